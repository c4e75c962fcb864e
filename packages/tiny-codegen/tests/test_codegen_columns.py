"""Sums of columns read as much of a row at a time as registers hold."""

from __future__ import annotations

import pytest

from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_uop import AxisType, KernelInfo, Ops, OptOps, UOp, dtypes

WIDE = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")))


@pytest.mark.parametrize(("rows", "columns", "lanes"), [(512, 4096, 64), (512, 256, 32), (8, 4096, 32)])
def test_lanes_of_column_sums(rows: int, columns: int, lanes: int) -> None:
  i, k = UOp.range(columns, 0), UOp.range(rows, 1, AxisType.REDUCE)
  x = UOp.param(1, dtypes.float32.ptr(rows * columns)).index(k * columns + i).load()
  out = UOp.param(0, dtypes.float32.ptr(columns)).index(i).store(x.reduce(Ops.ADD, k)).end(i)
  opts = compile_kernel(UOp.sink(out, arg=KernelInfo("column_sums")), WIDE).src[1].arg.opts
  assert [o.arg for o in opts if o.op is OptOps.VECTOR] == [lanes]
