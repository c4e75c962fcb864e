"""Kernels that put results together of pieces: each piece is computed once, not once for each place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_kernels import Case, check, data, garbage, kernel, loop, over, param

from tiny_codegen import LLVMRenderer, build_program, cpu_target
from tiny_codegen.opt.beam import before_opts
from tiny_codegen.opt.vectors import choose_opts
from tiny_uop import AxisType, Context, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

WIDE = LLVMRenderer(cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")))


def side_by_side(rows: int, pieces: int) -> Case:
  """out[i, j] = piece j of x at i: the square root of sum 0 to j of rows of x."""
  i, j = UOp.range(rows, 0), UOp.range(pieces, 1)
  x, running, values = data(pieces, rows), None, []
  for n in range(pieces):
    row = param(1, rows * pieces).index(i + n * rows).load()
    running = row if running is None else running + row
    values.append((running * running).sqrt())
  value = values[-1]
  for n, piece in enumerate(values[:-1]):
    value = j.eq(n).where(piece, value)
  out = param(0, rows * pieces).index(i * pieces + j).store(value).end(i, j)
  return Case(UOp.sink(out, arg=KernelInfo("pieces")), (garbage(rows, pieces), x), np.abs(np.cumsum(x, 0)).T, 1e-4)


def test_pieces_are_written_out(run_kernel: Any) -> None:
  case = side_by_side(96, 8)
  assert Opt(OptOps.UPCAST, 1, 0) in choose_opts(before_opts(case.kernel), WIDE.target)
  linear = build_program(case.kernel, WIDE).src[1]
  nodes = linear.toposort
  assert sum(u.op is Ops.SQRT for u in nodes) == 8 and not any(u.op is Ops.WHERE for u in nodes)
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays))


def test_many_pieces_are_not() -> None:
  opts = choose_opts(before_opts(side_by_side(96, 20).kernel), WIDE.target)
  assert all(o.op is not OptOps.UPCAST or o.axis != 1 for o in opts)


def test_lanes_over_blocks_that_are_read_whole() -> None:
  """Sums of blocks of 8: lanes are blocks, whose elements are read along memory and turned in registers."""
  i, rows = UOp.range(512, 0), param(1, 4096)
  parts = [rows.index(i * 8 + n).load() for n in range(8)]
  total = parts[0]
  for part in parts[1:]:
    total = total + part
  sums = UOp.sink(param(0, 512).index(i).store(total).end(i), arg=KernelInfo("sums"))
  (lanes,) = [o for o in choose_opts(before_opts(sums), WIDE.target) if o.op is OptOps.VECTOR]
  loads = [u for u in build_program(sums, WIDE).src[1].toposort if u.op is Ops.LOAD]
  assert lanes.axis == 0 and {u.dtype.count for u in loads} == {8}
  # every eighth element alone is not worth lanes
  single = UOp.sink(param(0, 512).index(i).store(parts[0]).end(i), arg=KernelInfo("single"))
  assert all(o.op is not OptOps.VECTOR for o in choose_opts(before_opts(single), WIDE.target))


def test_vectors_before_and_in_a_loop_whose_size_is_read_from_memory(run_kernel: Any) -> None:
  """The size comes after lanes whose numbers are compared. Addresses in the loop are simplified: it stays one loop."""
  x = np.array([[3, 1, 4, 1], [5, 9, 2, 6]], np.float32)
  out, source = UOp.param(0, dtypes.float32.ptr(40)), UOp.param(1, dtypes.float32.ptr(8))
  row, lanes = UOp.range(2, 0), UOp.range(4, 4, AxisType.VECTOR)
  place = row * 4 + lanes
  first = out.index(place).store((place > row + 4).where(UOp.const(dtypes.float32, 1), source.index(place).load()))
  first = first.end(row, lanes)
  size = out.after(first).index(0).load().cast(dtypes.index).maximum(0).minimum(4)
  steps, lanes, piece = (
    UOp.range(size, 1, AxisType.ORDER),
    UOp.range(4, 2, AxisType.VECTOR),
    UOp.range(2, 3, AxisType.UPCAST),
  )
  so_far = out.after(first, steps)
  value = so_far.index(steps * 8 + lanes).load() + source.index(piece * 4 + lanes).load()
  body = so_far.index(steps * 8 + piece * 4 + lanes + 8).store(value).end(piece, lanes).end(steps)
  want = np.zeros(40, np.float32)
  want[:8] = [*x[0], 5, 9, 1, 1]
  for step in range(3):
    want[step * 8 + 8 : step * 8 + 16] = (want[step * 8 : step * 8 + 4] + x).ravel()
  found = run_kernel(UOp.sink(body, arg=KernelInfo("sizes", ())), (np.zeros(40, np.float32), x.ravel()))
  np.testing.assert_array_equal(found[0], want)


def test_lanes_that_lie_far_apart_are_one_register(run_kernel: Any) -> None:
  """Sums of every ninth number: each lane is a load, so that more registers are only more code."""
  channels, images = 64, 32
  c, n = UOp.range(channels, 0), UOp.range(images, 1, AxisType.REDUCE)
  x = param(1, images * channels * 9).index(n * (channels * 9) + c * 9).load()
  scale = param(2, channels).index(c).load()
  end = param(0, channels).index(c).store((x * x * scale).reduce(Ops.ADD, n)).end(c)
  kernel = UOp.sink(end, arg=KernelInfo("squares"))
  vectors = [o for o in choose_opts(before_opts(kernel), WIDE.target) if o.op is OptOps.VECTOR]
  assert vectors == [Opt(OptOps.VECTOR, 0, 16)]
  values, scales = data(images, channels, 9), data(channels, seed=1)
  (out, *_) = run_kernel(kernel, [garbage(channels), values, scales])
  expected = (values[:, :, 0].astype(np.float64) ** 2).sum(0) * scales
  np.testing.assert_allclose(out, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32])
def test_vectors_of_loops_that_a_value_does_not_depend_on(dtype: DType, run_kernel: Any) -> None:
  """A sum of equal terms, and a result that is stored again and again, beside another loop that is a vector."""
  i, j, k = loop(8, 0), loop(4, 1), over(4, 2)
  value = param(1, 8, dtype).index(i).load().reduce(Ops.ADD, k)
  x = data(8, dtype=dtype)
  opts = (Opt(OptOps.VECTOR, 2, 0), Opt(OptOps.VECTOR, 0, 0))
  summed = run_kernel(kernel(param(0, 8, dtype).index(i).store(value).end(i)), (garbage(8, dtype=dtype), x), opts)
  np.testing.assert_allclose(summed[0], 4 * x, rtol=1e-6)
  again = kernel(param(0, 8, dtype).index(i).store(param(1, 8, dtype).index(i).load()).end(i, j))
  opts = (Opt(OptOps.VECTOR, 1, 0), Opt(OptOps.VECTOR, 0, 0))
  np.testing.assert_array_equal(run_kernel(again, (garbage(8, dtype=dtype), x), opts)[0], x)
