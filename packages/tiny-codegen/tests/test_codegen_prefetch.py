"""Lines of a result that are fetched before the sums that are written there."""

from __future__ import annotations

from typing import Any

import numpy as np
from codegen_kernels import data, garbage, loop, over, param

from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_uop import KernelInfo, Ops, Opt, OptOps, UOp, dtypes

TARGET = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl")))
LANES, ROWS = 16, 8
SIZE = 1024  # results of 4 MiB, which is more than the second cache level has


def product(size: int = SIZE, length: int = 64, adjacent: str = "rows", rows: int = ROWS) -> UOp:
  """`out[j, i] = sum over k of x[k, i] * y[k, j]`, in tiles of LANES values of j and so many of i.

  `adjacent`: what is next to each other in the result; with "nothing", places of j are read from a buffer, and come
  in order.
  """
  i, j, k = loop(size, 0), loop(size, 1), over(length, 2)
  total = param(1, size * length).index(k * size + i).load() * param(2, size * length).index(k * size + j).load()
  column = param(3, size, dtypes.int32).index(j).load().cast(dtypes.index) if adjacent == "nothing" else j
  place = i * size + j if adjacent == "lanes" else column * size + i
  out = param(0, size * size).index(place).store(total.reduce(Ops.ADD, k)).end(i, j)
  lanes = () if adjacent == "nothing" else (Opt(OptOps.VECTOR, 1, LANES),)
  return UOp.sink(out, arg=KernelInfo("product", (*lanes, Opt(OptOps.UPCAST, 0, rows))))


def fetched(kernel: UOp, renderer: LLVMRenderer = TARGET) -> int:
  return str(compile_kernel(kernel, renderer).src[2].arg).count("call void @llvm.prefetch.p0(")


def test_each_lane_of_a_tile_has_a_line_of_its_own() -> None:
  assert fetched(product()) == LANES
  assert fetched(product(1120, rows=14)) == LANES, "pieces that are next to each other are one"


def test_results_that_stay_in_the_second_level_are_there() -> None:
  assert fetched(product(256)) == 0


def test_short_sums_leave_no_time() -> None:
  assert fetched(product(length=16)) == 0


def test_whole_lines_are_left_to_the_processor() -> None:
  assert fetched(product(adjacent="lanes")) == fetched(product(rows=16)) == 0


def test_places_that_are_read_are_not_known_before() -> None:
  assert fetched(product(adjacent="nothing")) == 0


def test_results(run_kernel: Any) -> None:
  x, y = data(64, SIZE), data(64, SIZE, seed=1)
  (got, *_) = run_kernel(product(), (garbage(SIZE, SIZE), x, y))
  np.testing.assert_allclose(got.reshape(SIZE, SIZE), y.T @ x, rtol=1e-4, atol=1e-4)
