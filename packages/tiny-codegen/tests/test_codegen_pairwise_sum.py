"""Long sums keep their precision: errors against float64 are no larger than NumPy's, which adds in pairs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tiny_codegen import cpu_target
from tiny_codegen.lower.pairwise_sum import LONG, LONG_IN_TILES, pairwise_sum
from tiny_uop import AxisType, Context, KernelInfo, Ops, UOp, dtypes

TARGET = cpu_target("x86_64", "", ("+avx", "+avx2", "+fma")).target

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
  assert pairwise_sum(short, TARGET) is short
  k = UOp.range(1000, 0, AxisType.REDUCE)
  x = UOp.param(1, dtypes.int32.ptr(1000)).index(k).load()
  integers = UOp.sink(UOp.param(0, dtypes.int32.ptr(1)).index(UOp.const(dtypes.index, 0)).store(x.reduce(Ops.ADD, k)))
  assert pairwise_sum(integers, TARGET) is integers


def sums(extents: tuple[int, ...], lanes: int, rows: int) -> UOp:
  """A register tile: vectors that are summed over the same loops."""
  loops = tuple([UOp.range(n, i, AxisType.REDUCE) for i, n in enumerate(extents)])
  position = sum((loop * math.prod(extents[i + 1 :]) for i, loop in enumerate(loops)), UOp.const(dtypes.index, 0))
  x, out = UOp.param(1, dtypes.float32.ptr(1 << 20)), UOp.param(0, dtypes.float32.ptr(1 << 10))
  dtype = dtypes.float32.vec(lanes)
  stores = []
  for row in range(rows):
    value = x.index((position * rows + row) * lanes).load(dtype=dtype).reduce(Ops.ADD, *loops)
    stores.append(out.index(UOp.const(dtypes.index, row * lanes)).store(value))
  return UOp.sink(*stores, arg=KernelInfo("tile"))


def iterations(reduce: UOp) -> int:
  return math.prod(int(loop.src[0].arg) for loop in reduce.src[1:])


@pytest.mark.parametrize("extents", [(64, 3, 3), (LONG_IN_TILES,), (3, 3, 100)])
def test_sums_of_a_register_tile_have_one_accumulator_each(extents: tuple[int, ...]) -> None:
  tile = sums(extents, 32, 8)
  assert pairwise_sum(tile, TARGET) is tile


@pytest.mark.parametrize("extents", [(64, 3, 3), (512, 3, 3), (3, 3, 100), (2, 5, 1000), (3, 200, 7)])
@pytest.mark.parametrize(("rows", "least"), [(1, 32), (8, 256)])
def test_short_loops_share_the_accumulator_of_a_block(extents: tuple[int, ...], rows: int, least: int) -> None:
  """Two accumulators more for every few iterations would cost as much as the products."""
  cut = pairwise_sum(sums(extents, 32, rows), TARGET)
  innermost = [u for u in cut.toposort if u.op is Ops.REDUCE and not any(s.op is Ops.REDUCE for s in u.src[0].toposort)]
  reduces = [u for u in cut.toposort if u.op is Ops.REDUCE]
  whole = max(innermost, key=iterations)
  assert min(least, math.prod(extents)) <= iterations(whole) <= (LONG if rows == 1 else LONG_IN_TILES)
  assert len(innermost) <= 2 * rows and len(reduces) <= 5 * rows
