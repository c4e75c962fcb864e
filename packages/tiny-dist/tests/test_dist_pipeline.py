"""Stages of a pipeline: the losses of one process, in the order of 1F1B."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from dist_ranks import lines, ranks

from tiny_dist import Mesh, Pipeline


def test_several_devices_of_a_rank_are_refused() -> None:
  mesh = Mesh({"stage": 1, "data": 2}, local=2)
  with pytest.raises(
    ValueError, match="has 2 devices of each rank, and a stage is computed by one. Start a rank for each"
  ):
    Pipeline([lambda x: x], mesh, "stage")


@cache
def found(count: int, *arguments: str) -> tuple[list[float], set[str]]:
  """The losses, the same on all ranks, and the orders in which ranks exchange something with the next stage."""
  rows = [line.split(" ") for line in lines(ranks(count, "pipelines.py", *arguments))]
  losses = {tuple(map(float, row[:4])) for row in rows}
  assert len(rows) == count and len(losses) == 1, rows
  return list(losses.pop()), {row[4] for row in rows}


@pytest.mark.parametrize(("count", "stages", "microbatches", "jit", "orders"), [
  # stage s of p sends p - 1 - s results ahead, then one for each gradient that comes; so as many come alone in the end
  (2, 2, 4, True, {"fxxxb", ""}),
  pytest.param(4, 4, 8, True, {"fffxxxxxbbb", "ffxxxxxxbb", "fxxxxxxxb", ""}, marks=pytest.mark.nightly),
  pytest.param(4, 4, 2, False, {"ffbb", "fxb", ""}, marks=pytest.mark.nightly),  # fewer than there are stages
  (4, 2, 2, True, {"fxb", ""}),  # two pipelines, with half of the rows each
])  # fmt: skip
def test_losses_are_those_of_one_process(
  count: int, stages: int, microbatches: int, jit: bool, orders: set[str]
) -> None:
  alone, _ = found(1, "1", "1")
  losses, by_rank = found(count, str(stages), str(microbatches), *["jit"] * jit)
  np.testing.assert_allclose(losses, alone, atol=2e-5)
  assert by_rank == orders
