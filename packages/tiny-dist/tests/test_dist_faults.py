"""What goes wrong ends soon, with words that say which rank it was."""

from __future__ import annotations

import sys
import time

import pytest
from dist_ranks import lines, ranks

from tiny_dist.launch import mpiexec, version


@pytest.mark.parametrize(("fault", "count"), [("graphs", 2), ("shapes", 2), ("rows", 4)])
def test_ranks_that_differ_find_out(fault: str, count: int) -> None:
  assert lines(ranks(count, "faults.py", fault)) == ["refused: the ranks do not compute the same"] * count


def test_a_nan_says_which_rank() -> None:
  assert lines(ranks(2, "faults.py", "nan", environment={"DIST_NAN": "1"})) == ["refused: NaN of rank 1"] * 2


def test_a_rank_that_has_ended() -> None:
  done = ranks(2, "faults.py", "ended")
  assert lines(done) == ["refused: rank 1 has ended"]
  assert "rank 1 ends, and other ranks go on" in done.stderr


def test_a_rank_that_fails_ends_the_others() -> None:
  done = ranks(2, "faults.py", "failed", seconds=60)
  assert done.returncode != 0
  assert "rank 1 of 2 has failed" in done.stderr and "OSError: no such file: data.bin" in done.stderr


def test_a_killed_rank_ends_the_others() -> None:
  start = time.monotonic()
  done = ranks(3, "faults.py", "killed", seconds=60)
  assert done.returncode != 0 and time.monotonic() - start < 45  # 30 s, and the start of three processes
  assert "rank 1 of 3 (process " in done.stderr and "has ended by surprise" in done.stderr, done.stderr
  assert "rank 0 of 3" not in done.stderr and "rank 2 of 3" not in done.stderr


def test_a_killed_rank_that_the_launcher_takes_no_notice_of() -> None:
  """`srun` leaves the other ranks alone, unless it is told: they end themselves."""
  if "Open MPI" not in version(mpiexec()):
    pytest.skip("mpiexec of MPICH always takes notice")
  start = time.monotonic()
  done = ranks(3, "faults.py", "killed", seconds=60, options=["--enable-recovery"])
  assert done.returncode != 0 and time.monotonic() - start < 45
  assert "rank 1 of 3 (process " in done.stderr and "has ended by surprise" in done.stderr, done.stderr
  assert "for rank 1 (process " in done.stderr and "which is gone; it ends all ranks" in done.stderr, done.stderr


def test_a_rank_that_ends_before_init() -> None:
  """MPI waits for it, in a call in which no thread of Python runs. Open MPI's mpiexec ends the others itself."""
  start = time.monotonic()
  done = ranks(2, "faults.py", "early", environment={"DIST_SLOW": "1", "DIST_TIMEOUT": "2"}, seconds=60)
  assert done.returncode != 0 and time.monotonic() - start < 45
  assert "no module of rank 1" in done.stderr, done.stderr
  if "Open MPI" not in version(mpiexec()):
    assert "rank 0 of 2 (process " in done.stderr, done.stderr
    assert "waits since 2 s for ranks that have not called init; it ends" in done.stderr, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_all_processes_are_asked_to_stop() -> None:
  done = ranks(2, "faults.py", "asked")
  assert lines(done) == ["stops"] * 2 and "Traceback" not in done.stderr, done.stderr


def test_a_slow_rank_is_named() -> None:
  done = ranks(2, "faults.py", "slow", environment={"DIST_SLOW": "1"})
  assert lines(done) == ["came in the end"] * 2
  assert "rank 0 waits since" in done.stderr and "for rank 1 (process " in done.stderr, done.stderr


def test_a_rank_that_is_stuck_ends_all() -> None:
  done = ranks(2, "faults.py", "stuck", environment={"DIST_TIMEOUT": "3"}, seconds=60)
  assert done.returncode != 0 and "it ends all ranks" in done.stderr and "for rank 1 (process " in done.stderr
