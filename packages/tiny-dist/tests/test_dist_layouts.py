"""Tensors on several ranks: every layout rule, against NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest
from dist_ranks import lines, ranks


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.nightly), 2, 4])
def test_layouts(count: int) -> None:
  assert lines(ranks(count, "layouts.py")) == [f"layouts are right on {i}" for i in range(count)]


@pytest.mark.parametrize(("count", "local", "programs"), [
  (4, 1, 20), pytest.param(2, 2, 200, marks=pytest.mark.nightly), pytest.param(4, 1, 400, marks=pytest.mark.nightly),
  pytest.param(4, 2, 200, marks=pytest.mark.nightly), pytest.param(3, 1, 200, marks=pytest.mark.nightly),
  pytest.param(2, 3, 200, marks=pytest.mark.nightly), pytest.param(6, 1, 100, marks=pytest.mark.nightly),
])  # fmt: skip
def test_random_operations_over_random_layouts(count: int, local: int, programs: int) -> None:
  """Of a mesh of two axes; with several devices of each rank, too."""
  first = 1000 * count + 100 * local + programs
  found = lines(ranks(count, "random_layouts.py", str(first), str(programs), str(local), seconds=500))
  assert found == [f"{programs} programs are right on {i}" for i in range(count)]


@pytest.mark.parametrize("others", [
  [(1, 1)], pytest.param([(4, 1), (1, 4)], marks=pytest.mark.nightly),
])  # fmt: skip
def test_pieces_and_checkpoints_of_a_mesh(others: list[tuple[int, int]], tmp_path: Path) -> None:
  """Written in pieces of two axes by two ranks with two devices each, read on other meshes and by one process."""
  for count, local, do in ((2, 2, "save"), *[(*other, "load") for other in others]):
    found = lines(ranks(count, "meshes.py", do, str(tmp_path / "last"), str(local)))
    assert found == [f"{do} {i}" for i in range(count)]
