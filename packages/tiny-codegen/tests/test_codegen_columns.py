"""Sums of columns read as much of a row at a time as registers hold; products with them, of some rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_kernels import Case, check, data, garbage, param

from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_uop import AxisType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

WIDE = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")))


@pytest.mark.parametrize(("rows", "columns", "lanes"), [(512, 4096, 64), (512, 256, 32), (8, 4096, 32)])
def test_lanes_of_column_sums(rows: int, columns: int, lanes: int) -> None:
  i, k = UOp.range(columns, 0), UOp.range(rows, 1, AxisType.REDUCE)
  x = UOp.param(1, dtypes.float32.ptr(rows * columns)).index(k * columns + i).load()
  out = UOp.param(0, dtypes.float32.ptr(columns)).index(i).store(x.reduce(Ops.ADD, k)).end(i)
  opts = compile_kernel(UOp.sink(out, arg=KernelInfo("column_sums")), WIDE).src[1].arg.opts
  assert [o.arg for o in opts if o.op is OptOps.VECTOR] == [lanes]


def row_times_matrix(rows: int, columns: int) -> Case:
  i, k = UOp.range(columns, 0), UOp.range(rows, 1, AxisType.REDUCE)
  product = param(1, rows).index(k).load() * param(2, rows * columns).index(k * columns + i).load()
  total = product.reduce(Ops.ADD, k) + param(3, columns).index(i).load()
  sink = UOp.sink(param(0, columns).index(i).store(total).end(i), arg=KernelInfo("row_times_matrix"))
  arrays = data(rows, seed=1), data(rows, columns, seed=2), data(columns, seed=3)
  return Case(sink, (garbage(columns), *arrays), arrays[0] @ arrays[1] + arrays[2], 1e-4)


@pytest.mark.parametrize(
  ("rows", "columns", "blocks"), [(128, 1024, True), (64, 2048, True), (100, 1024, False), (128, 1000, False)]
)
def test_a_row_times_a_matrix(run_kernel: Any, rows: int, columns: int, blocks: bool) -> None:
  case = row_times_matrix(rows, columns)
  opts = compile_kernel(case.kernel, WIDE).src[1].arg.opts
  assert (Opt(OptOps.BLOCK, 1, 8) in opts) == blocks
  check(case, run_kernel(case.kernel, case.arrays))


def rows_of_a_table(width: int, table: int = 40, sums: int = 3, length: int = 20) -> Case:
  row, column, k = UOp.range(sums, 0), UOp.range(width, 1), UOp.range(length, 2, AxisType.REDUCE)
  place = param(1, sums * length, dtypes.int32).index(row * length + k).load().cast(dtypes.index)
  x = param(2, table * width).index(place.maximum(0).minimum(table - 1) * width + column).load()
  sink = UOp.sink(
    param(0, sums * width).index(row * width + column).store(x.reduce(Ops.ADD, k)).end(row, column),
    arg=KernelInfo("rows_of_a_table"),
  )
  places = np.random.default_rng(0).integers(0, table, (sums, length), dtype=np.int32)
  values = data(table, width)
  return Case(sink, (garbage(sums, width), places, values), values[places].sum(1), 1e-4)


@pytest.mark.parametrize(
  ("width", "lanes", "vectors"), [(128, 64, 2), (768, 64, 6), (100, 16, 7), (16, 16, 1), (4096, 64, 4)]
)
def test_sums_of_rows_whose_places_are_read(run_kernel: Any, width: int, lanes: int, vectors: int) -> None:
  """A row is read once, as far as there are registers."""
  case = rows_of_a_table(width)
  opts = compile_kernel(case.kernel, WIDE).src[1].arg.opts
  written_out = [(o.op, o.arg) for o in opts if o.axis == 1 and o.op in (OptOps.VECTOR, OptOps.UPCAST)]
  assert written_out == [(OptOps.VECTOR, lanes), *([(OptOps.UPCAST, vectors)] if vectors > 1 else [])]
  check(case, run_kernel(case.kernel, case.arrays))


def test_a_single_sum_of_products(run_kernel: Any) -> None:
  """There are no columns: a STORE without loops around it."""
  k = UOp.range(128, 0, AxisType.REDUCE)
  x = param(1, 128).index(k).load()
  sink = UOp.sink(param(0, 1).index(0).store((x * x).reduce(Ops.ADD, k)), arg=KernelInfo("squares"))
  values = data(128)
  case = Case(sink, (garbage(1), values), (values * values).sum(keepdims=True), 1e-4)
  check(case, run_kernel(case.kernel, case.arrays))
