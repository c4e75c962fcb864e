"""Groups: which there are, and what each operation does."""

from __future__ import annotations

import pytest
from dist_ranks import lines, ranks

from tiny_dist import Start, Unusable
from tiny_dist.__main__ import main
from tiny_dist.groups.discovery import fabrics, opened, probed

ALONE = Start(0, 1, 0, 1, "")


def test_ours_are_found() -> None:
  assert [entry.name for entry in fabrics()][-3:] == ["local", "mpi", "nccl"]


@pytest.mark.parametrize("count", [2, 4])
def test_operations_of_mpi(count: int) -> None:
  assert lines(ranks(count, "group_operations.py")) == [f"mpi {i} of {count}" for i in range(count)]


def test_what_is_under_way_arrives_while_nobody_waits() -> None:
  """Without the thread, MPI moves large messages in its calls only, and there are none."""
  assert lines(ranks(2, "progress.py", environment={"DIST_PROGRESS": "1"})) == ["arrived True"] * 2


def test_one_process() -> None:
  name, group = opened(ALONE)
  out = bytearray(3)
  group.all_gather(memoryview(out), memoryview(b"abc"), [3])
  assert (name, group.rank, group.size, bytes(out)) == ("local", 0, 1, b"abc")
  group.all_to_all(memoryview(out), [3], memoryview(b"xyz"), [3])
  assert out == b"xyz" and group.split([0]) is group
  for wrong in (group.send, group.recv):
    with pytest.raises(ValueError, match="of a group of one rank"):
      wrong(memoryview(out), 1)


def test_why_not() -> None:
  many = Start(1, 4, 1, 4, "mpiexec (PMI)")
  rows = {row.name: row for row in probed(many)}
  assert not rows["local"].usable and "mpiexec (PMI) has started 4 processes" in rows["local"].says
  with pytest.raises(Unusable, match=r"no group can be used by rank 1 of 4:\n  local: "):
    opened(many, "local")
  with pytest.raises(Unusable, match="no package provides the group 'carrier pigeon'; there are .*mpi"):
    opened(many, "carrier pigeon")


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
  assert main([]) == 0
  assert "rank 0 of 1, started by nobody in particular\nlocal    usable   tiny-dist" in capsys.readouterr().out


def test_a_failing_program_fails() -> None:
  assert ranks(2, "does_not_exist.py").returncode != 0
