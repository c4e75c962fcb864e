"""Processes that something has started which says who is who, as torchrun does, have their places in MPI.

`integration/tests/pytorch/test_dist_torch.py` does the same with torchrun itself.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from dist_ranks import PROGRAMS


def processes(
  count: int, *program: str, own: dict[str, str] | None = None, **more: str
) -> list[subprocess.CompletedProcess[str]]:  # fmt: skip
  """A program of `programs/` in `count` processes with the variables that torchrun sets, or `own`. Nobody ends them."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  size = {
    "WORLD_SIZE": str(count),
    "LOCAL_WORLD_SIZE": str(count),
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": str(port),
  }
  around = {**os.environ, "CPU_THREADS": "1", **size, **more}
  running = [
    subprocess.Popen(
      [sys.executable, str(PROGRAMS / program[0]), *program[1:]],
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
      env={**around, "RANK": str(i), "LOCAL_RANK": str(i), **(own or {})},
    )
    for i in range(count)
  ]  # fmt: skip
  found = []
  try:
    for process in running:
      out, error = process.communicate(timeout=120)
      found.append(subprocess.CompletedProcess(process.args, process.returncode, out, error))
  finally:
    for process in running:
      process.kill()
  return found


def test_operations_of_mpi() -> None:
  found = processes(3, "group_operations.py")
  assert [f.stdout for f in found] == [f"mpi {i} of 3\n" for i in range(3)], [f.stderr for f in found]
  assert [f.returncode for f in found] == [0, 0, 0]


def test_a_killed_rank_ends_the_others() -> None:
  start = time.monotonic()
  found = processes(3, "faults.py", "killed")
  said = "".join(f.stderr for f in found)
  assert all(f.returncode for f in found) and time.monotonic() - start < 45
  assert "rank 1 of 3 (process " in said and "has ended by surprise" in said, said
  assert "rank 0 of 3" not in said and "rank 2 of 3" not in said, said


def test_a_rank_that_never_comes_is_named() -> None:
  found = processes(2, "faults.py", "away", DIST_SLOW="1", DIST_TIMEOUT="2")
  assert found[0].returncode and not found[1].returncode, found
  assert "tiny_dist: process 1 of " in found[0].stderr and "has not called init yet" in found[0].stderr, found[0].stderr


def test_a_place_that_never_comes() -> None:
  """mpiexec runs where rank 0 is: here on another machine, where it has failed."""
  alone = {"WORLD_SIZE": "2", "RANK": "1", "DIST_TIMEOUT": "1", "DIST_MPI": "-hosts node0,node1 -ppn 1"}
  (found,) = processes(1, "group_operations.py", own=alone)
  assert found.returncode and "nobody has come to" in found.stderr and "place in MPI" in found.stderr, found.stderr


def test_other_machines_have_to_be_known() -> None:
  (alone,) = processes(1, "group_operations.py", WORLD_SIZE="2")
  assert "torchrun has started 1 of 2 processes here: DIST_MPI='-hosts node1,node2 -ppn 1' says" in alone.stderr
