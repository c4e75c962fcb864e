"""Sockets, cores and their kinds, from what Linux tells of machines that this one is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tiny_runtime_cpu import system
from tiny_runtime_cpu.affinity import Affinity
from tiny_runtime_cpu.program import PARTS_PER_THREAD, PARTS_PER_UNEVEN_THREAD, divide
from tiny_runtime_cpu.system.topology import (
  Place,
  are_uneven,
  linux_places,
  neighbours,
  nodes_of_memory,
  places,
  shared_out,
)
from tiny_uop import Context


def machine(
  folder: Path, siblings: list[str], nodes: Sequence[str] = (), capacities: Sequence[int] = ()
) -> dict[int, Place]:
  """A processor for each list of siblings."""
  root = folder / "devices/system"
  for number, text in enumerate(siblings):
    place = root / f"cpu/cpu{number}"
    (place / "topology").mkdir(parents=True)
    (place / "topology/thread_siblings_list").write_text(f"{text}\n")
    if capacities:
      (place / "cpu_capacity").write_text(f"{capacities[number]}\n")
  for node, text in enumerate(nodes):
    (root / f"node/node{node}").mkdir(parents=True)
    (root / f"node/node{node}/cpulist").write_text(f"{text}\n")
  return linux_places(root)


TWO_SOCKETS = ["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"]
"""Two threads of each of four cores, the second threads behind all first ones."""


def test_threads_of_a_core_are_neighbours_then_cores_of_a_socket(tmp_path: Path) -> None:
  known = machine(tmp_path, TWO_SOCKETS, ["0-1,4-5", "2-3,6-7"])
  assert neighbours(range(8), known) == [0, 4, 1, 5, 2, 6, 3, 7]
  assert not are_uneven(range(8), known)


def test_fast_cores_come_first(tmp_path: Path) -> None:
  known = machine(tmp_path, ["0", "1", "2", "3"], capacities=[446, 446, 1024, 1024])
  assert neighbours(range(4), known) == [2, 3, 0, 1]
  assert are_uneven(range(4), known) and not are_uneven([2, 3], known)


def test_efficiency_cores_of_x86(tmp_path: Path) -> None:
  (tmp_path / "devices/cpu_atom").mkdir(parents=True)
  (tmp_path / "devices/cpu_atom/cpus").write_text("2-3\n")
  known = machine(tmp_path, ["0-1", "0-1", "2", "3"])
  assert are_uneven(range(4), known) and not are_uneven([0, 1], known)


def test_what_is_not_told_is_all_the_same(tmp_path: Path) -> None:
  assert linux_places(tmp_path) == {} and neighbours([3, 1, 2], {}) == [1, 2, 3] and not are_uneven([1, 2], {})


def test_this_machine() -> None:
  if not system.places_threads():
    pytest.skip("the system does not tell")
  assert system.allowed_processors() <= places().keys()


@pytest.mark.parametrize("workers", range(1, 8))
def test_a_worker_stays_on_a_socket(tmp_path: Path, workers: int) -> None:
  """Of seven processors besides the caller's, three on its socket, everybody has some; and cores are kept together."""
  known = machine(tmp_path, TWO_SOCKETS, ["0-1,4-5", "2-3,6-7"])
  given = shared_out(range(1, 8), workers, known)
  assert given.keys() == {*range(1, 8)} and {*given.values()} == {*range(workers)}
  for worker in range(workers):
    sockets = {known[number].node for number, owner in given.items() if owner == worker}
    assert len(sockets) == 1 or workers == 1


def test_positions_of_processors(tmp_path: Path) -> None:
  """Those of a node are next to each other, and nodes begin where the pool's shares do."""
  known = machine(tmp_path, TWO_SOCKETS, ["0-1,4-5", "2-3,6-7"])
  nodes, positions = nodes_of_memory(known)
  assert nodes == 2 and len(positions) == 1024
  ordered = neighbours(range(8), known)
  assert [positions[number] for number in ordered] == [0, 32, 64, 96, 128, 160, 192, 224]
  three = {n: Place(n // 2, number=n) for n in range(6)}
  assert nodes_of_memory(three) == (3, bytes([0, 43, 86, 128, 171, 213]) + bytes(1018))
  assert nodes_of_memory({}) == (0, bytes(1024))


def test_threads_may_run_where_the_system_likes(monkeypatch: pytest.MonkeyPatch) -> None:
  confined: list[int] = []
  monkeypatch.setattr(system, "confine", lambda thread, processors: confined.append(thread))
  with Context(CPU_AFFINITY=0):
    Affinity().deal([1])
  assert not confined


def test_parts_are_smaller_where_cores_differ() -> None:
  assert divide(1000, 8, 8) == (8 * PARTS_PER_THREAD, 8)
  assert divide(1000, 8, 8, True) == (8 * PARTS_PER_UNEVEN_THREAD, 8)
  assert divide(20, 8, 8, True) == (20, 8)


def test_some_more_threads_where_they_have_equal_shares() -> None:
  assert divide(512, 63, 128) == (64 * PARTS_PER_THREAD, 64)
  assert divide(512, 63, 63)[1] == 63 and divide(512, 90, 128)[1] == 90 and divide(3, 2, 8)[1] == 2
