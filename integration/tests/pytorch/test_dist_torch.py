"""A script of tiny-dist that torchrun starts: the same losses as under mpiexec and in one process."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
PROGRAMS = Path(__file__).parents[3] / "packages" / "tiny-dist" / "tests" / "programs"


def test_torchrun_and_mpiexec_give_the_same_bits() -> None:
  script = [str(PROGRAMS / "training.py"), "conv", "data", "2"]
  torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *script]
  mpiexec = [sys.executable, "-m", "tiny_dist", "run", "-n", "2", *script]
  around = {**os.environ, "CPU_THREADS": "1"}
  found = []
  for command in (torchrun, mpiexec):
    done = subprocess.run(command, capture_output=True, text=True, env=around, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found.append(done.stdout.splitlines())
  assert len(found[0]) == 2 and len({*found[0], *found[1]}) == 1, found


MACHINE = """#!/bin/sh
# machine NAME COMMAND...: the command on the "machine" NAME, which has that name, and temporary files of its own
name=$1; shift
mkdir -p "$MACHINES/$name"
export name
exec unshare -mu sh -c 'hostname "$name" && mount --bind "$MACHINES/$name" "$TMPDIR" \\
  && mount --bind "$MACHINES/hosts" /etc/hosts && exec "$@"' sh "$@"
"""
SSH = """#!/bin/sh
# ssh [options] HOST COMMAND
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec sh "$MACHINES/machine" "$host" sh -c "$*"
"""


def namespaces() -> bool:
  """Whether this process may give others a host name and mounts of their own."""
  if shutil.which("unshare") is None:
    return False
  command = ["unshare", "-mu", "sh", "-c", "hostname other && mount --bind /tmp /mnt"]
  return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


@pytest.mark.nightly
@pytest.mark.skipif(not namespaces(), reason="machines of one's own need unshare, as root")
@pytest.mark.parametrize("fails", [False, True])
def test_torchrun_on_two_machines(fails: bool, tmp_path: Path) -> None:
  """An agent of torchrun on each of two machines, with two processes each; mpiexec reaches the other by ssh. They are
  namespaces of this one, with names and temporary files of their own. Where ssh fails, all end."""
  machines, scratch = tmp_path / "machines", tmp_path / "scratch"
  machines.mkdir()
  scratch.mkdir()
  (machines / "hosts").write_text("127.0.0.1 localhost node0\n")  # mpiexec would start what it takes for itself
  (machines / "machine").write_text(MACHINE)
  (machines / "ssh").write_text("#!/bin/sh\nexit 255\n" if fails else SSH)
  (machines / "ssh").chmod(0o755)
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  options = f"-hosts node0,node1 -ppn 2 -launcher ssh -launcher-exec {shlex.quote(str(machines / 'ssh'))}"
  around = {
    **os.environ, "CPU_THREADS": "1", "MACHINES": str(machines), "TMPDIR": str(scratch), "DIST_MPI": options,
    "DIST_TIMEOUT": "20" if fails else "120",
  }  # fmt: skip
  agents = []
  for number in range(2):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
    torchrun += ["--node-rank", str(number), "--master-addr", "127.0.0.1", "--master-port", str(port)]
    command = ["sh", str(machines / "machine"), f"node{number}", *torchrun, str(PROGRAMS / "group_operations.py")]
    agents.append(subprocess.Popen(command, env=around, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
  try:
    said = [agent.communicate(timeout=200) for agent in agents]
  finally:
    for agent in agents:
      agent.kill()
  if fails:
    assert all(agent.returncode for agent in agents), said
    assert "has no place in MPI" in said[0][1] and "nobody has come to node1" in said[1][1], said
    return
  assert [sorted(out.split("\n")) for out, _ in said] == [
    ["", "mpi 0 of 4", "mpi 1 of 4"], ["", "mpi 2 of 4", "mpi 3 of 4"],
  ], said  # fmt: skip
