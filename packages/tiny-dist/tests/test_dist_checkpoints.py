"""Checkpoints: whole or not there, and read by another number of ranks; stopping when asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from dist_ranks import lines, ranks

from tiny_dist import batches


def losses(count: int, folder: Path, do: str) -> list[float]:
  found = lines(ranks(count, "checkpoints.py", str(folder), do))
  assert len(found) == count and len(set(found)) == 1, found
  return [float(word) for word in found[0].split()]


def test_other_ranks_go_on(tmp_path: Path) -> None:
  expected = losses(2, tmp_path / "model", "first")
  names = sorted(p.name for p in (tmp_path / "model").iterdir())
  assert names == ["index.json", "rank-0001-of-0002.safetensors", "rank-0002-of-0002.safetensors"]
  for count in (1, 2, 3):
    np.testing.assert_allclose(losses(count, tmp_path / "model", "again"), expected, atol=2e-5)


def test_a_full_disk_leaves_the_old_one(tmp_path: Path) -> None:
  assert lines(ranks(2, "checkpoints.py", str(tmp_path / "model"), "full")) == ["the old checkpoint is there"] * 2


def test_all_ranks_hear_of_the_trouble_of_one(tmp_path: Path) -> None:
  """Nobody waits for it, what was there stays, and nothing is loaded by others either."""
  said = ["no notes for JSON", "nothing is loaded", "the old checkpoint is back"]
  assert lines(ranks(2, "checkpoints.py", str(tmp_path / "model"), "alone")) == sorted(said * 2)


def test_damaged_ones_are_refused_by_name(tmp_path: Path) -> None:
  assert lines(ranks(1, "damaged.py", str(tmp_path / "model"))) == ["all are refused"]


def test_stopping_when_asked(tmp_path: Path) -> None:
  assert lines(ranks(2, "checkpoints.py", str(tmp_path / "model"), "asked")) == ["stopped after 3"] * 2
  assert len(losses(1, tmp_path / "model", "again")) == 5


def test_batches_are_the_same_everywhere() -> None:
  every = batches(10, 3, seed=1, epoch=0)
  assert len(every) == 3 and len({n for b in every for n in b}) == 9
  assert batches(10, 3, seed=1, epoch=0, first=2) == every[2:] and batches(10, 3, seed=1, epoch=1) != every
