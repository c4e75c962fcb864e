"""Sums of rows of an array that is larger than caches read several of them side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from codegen_kernels import data, garbage, loop, over, param

from tiny_codegen import cpu_target
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
