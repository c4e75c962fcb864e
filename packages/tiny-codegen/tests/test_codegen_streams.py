"""Sums of rows that are made side by side: of an array larger than caches, and those that have one register each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import data, garbage, loop, over, param

from tiny_codegen import cpu_target
from tiny_codegen.cost_model import CostModel
from tiny_codegen.opt.vectors import STREAMS, choose_opts
from tiny_uop import KernelInfo, Ops, OptOps, UOp

WIDE = cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")).target


def total(rows: int, columns: int) -> UOp:
  """`out[i] = sum over k of x[i, k]`."""
  i, k = loop(rows, 0), over(columns, 1)
  x = param(1, rows * columns).index(i * columns + k).load()
  return UOp.sink(param(0, rows).index(i).store(x.reduce(Ops.ADD, k)).end(i), arg=KernelInfo("total"))


def test_rows_of_one_large_array_are_read_side_by_side(run_kernel: Any) -> None:
  """Memory then has several pages at work; what caches keep is read in one stream, with several accumulators."""
  large, small = choose_opts(total(256, 65536), WIDE), choose_opts(total(256, 4096), WIDE)
  assert [o.arg for o in large if o.op is OptOps.UPCAST] == [STREAMS]
  assert not [o for o in small if o.op is OptOps.UPCAST]
  rows, columns = 64, 128 * STREAMS
  x = data(rows, columns)
  for opts in (large, small):
    (out, *_) = run_kernel(total(rows, columns), [garbage(rows), x], opts)
    np.testing.assert_allclose(out, x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-4)


def of_channels(images: int, channels: int, size: int) -> UOp:
  """`out[c] = sum over n, k of x[n, c, k]`, as the statistics of a batch are."""
  c, n, k = loop(channels, 0), over(images, 1), over(size, 2)
  x = param(1, images * channels * size).index(n * (channels * size) + c * size + k).load()
  return UOp.sink(param(0, channels).index(c).store(x.reduce(Ops.ADD, n, k)).end(c), arg=KernelInfo("of_channels"))


def rows_at_once(kernel: UOp, threads: int = 2) -> list[object]:
  return [o.arg for o in choose_opts(kernel, replace(WIDE, threads=threads)) if o.op is OptOps.UPCAST]


def test_sums_of_one_register_are_made_side_by_side(run_kernel: Any) -> None:
  """One of them would wait for each of its additions; 64 numbers at once have four registers of their own."""
  assert rows_at_once(of_channels(512, 32, 400)) == [CostModel.chains[0]]
  assert rows_at_once(of_channels(512, 32, 1024)) == []
  assert rows_at_once(of_channels(64, 32, 400)) == [], "what takes little time is not worth a larger kernel"
  assert rows_at_once(of_channels(1, 32, 16 * CostModel.chained_additions - 16)) == [], (
    "a short one ends before it waits"
  )
  images, channels, size = 8, 16, 80
  x = data(images, channels, size)
  opts = choose_opts(of_channels(512, 32, 400), WIDE)
  (out, *_) = run_kernel(of_channels(images, channels, size), [garbage(channels), x], opts)
  np.testing.assert_allclose(out, x.astype(np.float64).sum((0, 2)), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("threads", "rows"), [(4, [4]), (8, [4]), (16, [2]), (32, []), (5, [])])
def test_sums_side_by_side_leave_each_thread_its_share(threads: int, rows: list[int]) -> None:
  assert rows_at_once(of_channels(512, 32, 400), threads) == rows
