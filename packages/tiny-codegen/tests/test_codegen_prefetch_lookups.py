"""Prefetching of rows of a table whose numbers are in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import data, garbage, loop, over, param
from codegen_prefetches import PACKED, prefetches

from tiny_codegen import CacheSizes, LLVMRenderer, PassContext, cpu_target, run_passes
from tiny_codegen.lower.prefetch.insert import prefetch
from tiny_codegen.lower.prefetch.lookups import ROWS_AHEAD
from tiny_uop import KernelInfo, Ops, UOp, dtypes

CACHES = CacheSizes(32 << 10, 256 << 10, 1 << 20)
FEATURES = ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl")
TARGET = LLVMRenderer(cpu_target("x86_64", "", FEATURES, caches=CACHES)).target


def bags(count: int, length: int, rows: int, width: int) -> UOp:
  """`out[b, x] = sum over i of table[ids[b, i], x]`."""
  b, x, i = loop(count, 0), loop(width, 1), over(length, 2)
  number = param(1, count * length, dtypes.int32).index(b * length + i).load().cast(dtypes.index)
  row = param(2, rows * width).index(number.maximum(0).minimum(rows - 1) * width + x).load()
  out = param(0, count * width).index(b * width + x)
  return UOp.sink(out.store(row.reduce(Ops.ADD, i)).end(b, x), arg=KernelInfo("bags"))


def asked(kernel: UOp, caches: CacheSizes = CACHES) -> list[UOp]:
  linear = run_passes(kernel, PassContext(TARGET), ("prefetch",))
  return [u for found in prefetches(prefetch(linear, replace(TARGET, caches=caches)), PACKED).values() for u in found]


@pytest.mark.parametrize(
  ("width", "count", "ahead"), [(64, 5, ROWS_AHEAD), (100, 8, ROWS_AHEAD), (512, 17, ROWS_AHEAD // 2)]
)
def test_rows_are_asked_for_some_before(width: int, count: int, ahead: int) -> None:
  """All lines of a row, whose number is the one so much further on: in the next bag, too, but not behind the last."""
  lines = asked(bags(9, 32, 4096, width))
  assert len(lines) == count, "a row may begin anywhere in a line"
  (number,) = {u for line in lines for u in line.toposort if u.op is Ops.LOAD}
  place = number.src[0].src[1]
  bag, i = sorted(place.ranges, key=lambda r: r.arg[0])
  for at in ((0, 0), (3, 31), (8, 30), (8, 31)):
    there = place.substitute({bag: bag.const_like(at[0]), i: i.const_like(at[1])})
    assert there.vmin == there.vmax == min(at[0] * 32 + at[1] + ahead, 9 * 32 - 1)


@pytest.mark.parametrize("width", [100, 300])
def test_nothing_behind_a_row_is_asked_for(width: int) -> None:
  """The last vector has lanes beyond the row, which may be in another line."""
  lines = asked(bags(9, 32, 4096, width))
  (number,) = {u for line in lines for u in line.toposort if u.op is Ops.LOAD}
  first = number.const_like(0)
  places = [line.src[0].src[1].substitute({number: first}) for line in lines]
  assert max(place.vmax for place in places) == width - 1


def test_small_tables_and_long_rows_are_left_to_the_processor() -> None:
  assert asked(bags(9, 32, 256, 64)) == []
  assert asked(bags(9, 32, 4096, 64), CacheSizes(32 << 10, 64 << 20, 1 << 30)) == []
  assert asked(bags(9, 32, 4096, 1024)) == []


@pytest.mark.parametrize(("count", "length"), [(1, 3), (5, 8), (4, 17)])
def test_results(run_kernel: Any, count: int, length: int) -> None:
  """The last numbers are at the end of their memory."""
  table = data(4096, 100)
  ids = np.random.default_rng(0).integers(0, 4096, (count, length)).astype(np.int32)
  (out, *_) = run_kernel(bags(count, length, 4096, 100), [garbage(count, 100), ids, table])
  np.testing.assert_allclose(out, table[ids].sum(1), rtol=1e-5, atol=1e-5)
