"""Prefetching of results: lines that a tile will write are asked for during its sums."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from codegen_kernels import data, garbage, loop, over, param
from codegen_prefetches import RESULT, elements, prefetches

from tiny_codegen import LLVMRenderer, build_program, compile_kernel, cpu_target
from tiny_codegen.cost_model import CACHE_LINE as LINE
from tiny_codegen.lower.prefetch.program import joined
from tiny_codegen.lower.prefetch.results import LEAST_RESULT_STEPS
from tiny_uop import KernelInfo, Ops, Opt, OptOps, UOp, dtypes, evaluate

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
  """One in each step of the sum."""
  assert fetched(product()) == 1
  assert fetched(product(1120, rows=14)) == 1, "pieces that are next to each other are one"


def test_results_that_stay_in_the_second_level_are_there() -> None:
  assert fetched(product(256)) == 0


def test_short_sums_have_no_steps_for_all_lines_and_leave_no_time() -> None:
  assert fetched(product(length=2 * LANES - 1)) == LANES, "all before the sum"
  assert fetched(product(length=LEAST_RESULT_STEPS - 1)) == 0


def test_lines_of_results_that_stream_are_not_asked_for() -> None:
  """Streaming stores go past the caches: `out[i, j] = 2**x[i, j] * sum over k of 2**x[i, k]`, of 48 MiB."""
  rows, columns = 12288, 1024
  i, j, k = loop(rows, 0), loop(columns, 1), over(columns, 2)
  x = param(1, rows * columns)
  total = x.index(i * columns + k).load().exp2().reduce(Ops.ADD, k)
  store = param(0, rows * columns).index(i * columns + j).store(x.index(i * columns + j).load().exp2() * total)
  text = str(compile_kernel(UOp.sink(store.end(i, j), arg=KernelInfo("scaled")), TARGET).src[2].arg)
  assert "streamed" in text and text.count("i32 1, i32 3, i32 1)") == 0


@pytest.mark.parametrize(
  "kernel",
  [
    product(),
    product(length=16),
    product(1120, rows=14),
    product(adjacent="lanes"),
    product(rows=16),
    product(rows=32),
    product(1120, rows=20),
  ],
  ids=["short", "before the sum", "14 rows", "along lanes", "a line each", "two lines each", "a line and a quarter"],
)
def test_every_line_that_a_tile_writes_is_asked_for(kernel: UOp) -> None:
  program = build_program(kernel, TARGET)
  ((walk, found),) = prefetches(program.src[1], RESULT).items()
  places = {place for u in found for place in elements(u, {r: 0 for r in u.ranges if r is not walk})}
  stores = [u for u in program.src[1].src if u.op is Ops.STORE and u.src[0].src[0].op is Ops.PARAM]
  spans = [(place * 4, u.src[1].dtype.count * 4) for u in stores for place in of_a_tile(u, {0, 1})]
  pieces = joined([(first, first + size) for first, size in spans], 0)
  for start in range(0, LINE, 4):  # of the first one, in a line
    asked = {(start + 4 * place) // LINE for place in places}
    for first, behind in pieces:
      lines = set(range((start + first) // LINE, (start + behind - 1) // LINE + 1))
      assert lines <= asked or (behind - first < LINE and max(lines) in asked), "a short one's last line"


def of_a_tile(store: UOp, around: set[int]) -> Iterator[int]:
  """Where the iterations of a tile's own loops store, in elements from where the tile begins; `around` are the ids of
  the loops around it."""
  offset = store.src[0].src[1]
  own = [r for r in offset.ranges if r.arg[0] not in around]
  for counters in itertools.product(*[range(r.src[0].arg) for r in own]):
    place = evaluate(offset, dict.fromkeys(offset.ranges, 0) | dict(zip(own, counters)))
    assert isinstance(place, int)
    yield place


def test_places_that_are_read_are_not_known_before() -> None:
  assert fetched(product(adjacent="nothing")) == 0


def test_results(run_kernel: Any) -> None:
  x, y = data(64, SIZE), data(64, SIZE, seed=1)
  (got, *_) = run_kernel(product(), (garbage(SIZE, SIZE), x, y))
  np.testing.assert_allclose(got.reshape(SIZE, SIZE), y.T @ x, rtol=1e-4, atol=1e-4)
