"""Training on several ranks gives the losses of one process."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from dist_ranks import lines, ranks

STEPS = 5


@cache
def losses(count: int, net: str, layout: str, steps: int = STEPS) -> tuple[tuple[float, ...], ...]:
  """What each rank prints."""
  return tuple(tuple(map(float, line.split())) for line in lines(ranks(count, "training.py", net, layout, str(steps))))


MORE = pytest.mark.nightly


@pytest.mark.parametrize(("net", "layout", "count"), [
  ("conv", "data", 2), pytest.param("conv", "data", 4, marks=MORE),
  pytest.param("transformer", "data", 2, marks=MORE), ("transformer", "tensor", 2),
  ("transformer", "grid", 4), pytest.param("transformer", "grid-zero2", 4, marks=MORE),
  pytest.param("transformer", "grid-zero3", 4, marks=MORE), pytest.param("transformer", "grid-local", 2, marks=MORE),
  pytest.param("conv", "grid", 4, marks=MORE),
  ("conv", "zero2", 2), ("transformer", "zero3", 2), pytest.param("transformer", "zero2", 4, marks=MORE),
  pytest.param("conv", "zero3", 4, marks=MORE), pytest.param("transformer", "zero3", 4, marks=MORE),
  pytest.param("conv", "tensor", 2, marks=MORE), pytest.param("conv", "tensor", 4, marks=MORE),
  pytest.param("transformer", "data", 4, marks=MORE), pytest.param("transformer", "tensor", 4, marks=MORE),
])  # fmt: skip
def test_losses_are_those_of_one_process(net: str, layout: str, count: int) -> None:
  alone, together = losses(1, net, "data")[0], losses(count, net, layout)
  assert len(together) == count and len(set(together)) == 1  # the same bits on every rank
  np.testing.assert_allclose(together[0], alone, rtol=2e-3, atol=2e-5)


def test_kernels_run_while_gradients_travel() -> None:
  assert lines(ranks(2, "overlap.py", environment={"BUCKET_BYTES": "2000"})) == ["True True"] * 2
