"""Sums of many float32 are no further from the exact sum than NumPy's pairwise ones, whatever their length."""

from __future__ import annotations

import numpy as np
import pytest

from tiny_tensor import Tensor

DATA = {
  "uniform": lambda rng, n: rng.random(n, dtype=np.float32),
  "normal": lambda rng, n: rng.standard_normal(n, dtype=np.float32),
  "far from zero": lambda rng, n: rng.random(n, dtype=np.float32) * np.float32(0.1) + np.float32(1000),
}


@pytest.mark.parametrize("size", [10_000_000, 9_999_991, 70_001])
@pytest.mark.parametrize("name", DATA)
def test_sum(name: str, size: int) -> None:
  values = DATA[name](np.random.default_rng(size), size)
  exact, scale = values.astype(np.float64).sum(), np.abs(values).astype(np.float64).sum()
  ours, numpy = (abs(float(total) - exact) / scale for total in (Tensor(values).sum().item(), values.sum()))
  assert ours <= max(2 * numpy, 2.0**-23)


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_of_rows_and_columns(axis: int) -> None:
  values = DATA["far from zero"](np.random.default_rng(0), 2048 * 2048).reshape(2048, 2048)
  exact = values.astype(np.float64).sum(axis)
  ours, numpy = (np.abs(sums / exact - 1).max() for sums in (Tensor(values).sum(axis).numpy(), values.sum(axis)))
  assert ours <= max(numpy, 2.0**-22)


def test_variance_far_from_zero() -> None:
  values = DATA["far from zero"](np.random.default_rng(1), 10_000_000)
  exact = values.astype(np.float64).var(ddof=1)
  assert abs(float(Tensor(values).var().item()) / exact - 1) < 1e-4  # the mean is rounded to 2**-24 of 1000
