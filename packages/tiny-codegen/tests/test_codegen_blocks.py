"""Long sums keep their precision: errors against float64 are no larger than NumPy's, which adds in pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tiny_codegen.blocks import LONG, sum_in_blocks
from tiny_uop import AxisType, Context, KernelInfo, Ops, UOp, dtypes

ROWS = 3


def row_sums(columns: int) -> UOp:
  i, k = UOp.range(ROWS, 0), UOp.range(columns, 1, AxisType.REDUCE)
  x = UOp.param(1, dtypes.float32.ptr(ROWS * columns)).index(i * columns + k).load()
  out = UOp.param(0, dtypes.float32.ptr(ROWS)).index(i).store(x.reduce(Ops.ADD, k)).end(i)
  return UOp.sink(out, arg=KernelInfo("row_sums"))


@pytest.mark.parametrize("columns", [LONG, LONG + 1, 1000, 65536, 65537, 300_007])
def test_errors_of_long_sums(columns: int, run_kernel: Any) -> None:
  """Numbers far from zero: added one after the other their roundings all have one direction for a while."""
  values = (np.random.default_rng(1).random((ROWS, columns)) * 0.1 + 1000).astype(np.float32)
  exact = values.astype(np.float64).sum(1)
  with Context(SPEC=1):
    (got, *_) = run_kernel(row_sums(columns), (np.zeros(ROWS, np.float32), values))
  ours, numpy = (np.abs(sums - exact).max() / exact.max() for sums in (got, values.sum(1)))
  assert ours <= max(numpy, 2.0**-22)  # two roundings of the result


def test_short_sums_and_integers_stay_as_they_are() -> None:
  short = row_sums(LONG)
  assert sum_in_blocks(short) is short
  k = UOp.range(1000, 0, AxisType.REDUCE)
  x = UOp.param(1, dtypes.int32.ptr(1000)).index(k).load()
  integers = UOp.sink(UOp.param(0, dtypes.int32.ptr(1)).index(UOp.const(dtypes.index, 0)).store(x.reduce(Ops.ADD, k)))
  assert sum_in_blocks(integers) is integers
