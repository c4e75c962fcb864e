"""Steps of the sums of a register tile, written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_kernels import data, garbage, loop, over, param

from tiny_codegen import PASSES, LLVMRenderer, PassContext, cpu_target, run_passes
from tiny_codegen.kernel.memory import in_register
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.lower.reduce import by_loops, products
from tiny_codegen.tiling.choose import ranked_tilings
from tiny_uop import KernelInfo, Ops, Opt, OptOps, UOp

WIDE = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")))
CHANNELS, TAPS, LANES, PLACES = 8, 3, 16, 14


def window(rows: int, step: int = 1, written: int = TAPS) -> UOp:
  """`out[o, x] = sum over c and k of w[c, k, o] * image[c, step * x + k]`, `rows` places of x to a tile."""
  length = step * (PLACES - 1) + TAPS
  x, o, c, k = loop(PLACES, 0), loop(LANES, 1), over(CHANNELS, 2), over(TAPS, 3)
  image = param(1, CHANNELS * length).index(c * length + x * step + k).load()
  weights = param(2, CHANNELS * TAPS * LANES).index((c * TAPS + k) * LANES + o).load()
  end = param(0, LANES * PLACES).index(o * PLACES + x).store((image * weights).reduce(Ops.ADD, c, k)).end(x, o)
  opts = [Opt(OptOps.VECTOR, 1, 0), Opt(OptOps.UPCAST, 0, rows)]
  return UOp.sink(end, arg=KernelInfo("window", (*opts, Opt(OptOps.UNROLL, 3, written)) if written else tuple(opts)))


def body(kernel: UOp) -> list[UOp]:
  """The instructions of the loop of the sum, in order."""
  linear = list(run_passes(kernel, PassContext(WIDE.target)).src)
  last = next(place for place, u in enumerate(linear) if u.op is Ops.MULACC)
  begin = max(place for place, u in enumerate(linear[:last]) if u.op is Ops.RANGE)
  end = next(place for place, u in enumerate(linear) if u.op is Ops.END and place > last)
  return linear[begin:end]


def loads_of(instructions: list[UOp], slot: int) -> list[UOp]:
  return [
    u for u in instructions if u.op is Ops.LOAD and u.src[0].src[0].op is Ops.PARAM and u.src[0].src[0].arg == slot
  ]


def element(product: UOp) -> UOp:
  """The element of a row that goes into a multiply-add."""
  return next(u for s in product.src[:2] for u in s.toposort if u in loads_of([u], 1))


@pytest.mark.parametrize(("rows", "step"), [(14, 1), (7, 1), (7, 2)])
def test_a_window_is_read_once(rows: int, step: int) -> None:
  """Rows share what they read: each product comes when its element does, which nothing needs afterwards."""
  inside = body(window(rows, step))
  read = loads_of(inside, 1)
  assert len(read) == step * (rows - 1) + TAPS and len(loads_of(inside, 2)) == TAPS
  products = [u for u in inside if u.op is Ops.MULACC]
  assert len(products) == rows * TAPS, "each is one instruction"
  order = [read.index(element(u)) for u in products]
  assert order == sorted(order)


def test_rows_of_their_own_go_step_by_step() -> None:
  """All rows take a step before any takes the next: the products of one row would wait for each other."""
  rows, steps, n = 8, 4, 64
  i, j, k = loop(rows, 0), loop(LANES, 1), over(n, 2)
  a, b = param(1, rows * n).index(i * n + k).load(), param(2, n * LANES).index(k * LANES + j).load()
  end = param(0, rows * LANES).index(i * LANES + j).store((a * b).reduce(Ops.ADD, k)).end(i, j)
  opts = (Opt(OptOps.VECTOR, 1, 0), Opt(OptOps.UPCAST, 0, 0), Opt(OptOps.UNROLL, 2, steps))
  products = [u for u in body(UOp.sink(end, arg=KernelInfo("product", opts))) if u.op is Ops.MULACC]
  vectors = [next(u for s in p.src[:2] for u in s.toposort if u in loads_of([u], 2)) for p in products]
  assert len(products) == rows * steps
  assert [vectors.count(v) for v in dict.fromkeys(vectors)] == [rows] * steps
  assert vectors == [v for v in dict.fromkeys(vectors) for _ in range(rows)]


@pytest.mark.parametrize(("rows", "step"), [(14, 1), (7, 2)])
def test_an_accumulator_is_read_and_written_once_in_an_iteration(rows: int, step: int) -> None:
  """Its products are values in between, of which there are several for each."""
  inside = body(window(rows, step))
  of_registers = [u.op for u in inside if u.op in (Ops.LOAD, Ops.STORE) and in_register(u)]
  assert (of_registers.count(Ops.LOAD), of_registers.count(Ops.STORE)) == (rows, rows)


def test_few_sums_are_added_up_first() -> None:
  """A single accumulator would be waited for by each product."""
  j, k = loop(LANES, 1), over(64, 2)
  a, b = param(1, 64).index(k).load(), param(2, 64 * LANES).index(k * LANES + j).load()
  end = param(0, LANES).index(j).store((a * b).reduce(Ops.ADD, k)).end(j)
  inside = body(UOp.sink(end, arg=KernelInfo("few", (Opt(OptOps.VECTOR, 1, 0), Opt(OptOps.UNROLL, 2, 4)))))
  assert [u.op for u in inside if u.dtype.kind == "float"].count(Ops.ADD) == 1


@pytest.mark.parametrize(("rows", "step", "written"), [(14, 1, 3), (7, 2, 3), (2, 1, 3), (14, 1, 0)])
def test_what_is_computed(rows: int, step: int, written: int, run_kernel: Any) -> None:
  length = step * (PLACES - 1) + TAPS
  image, weights = data(CHANNELS, length), data(CHANNELS, TAPS, LANES, seed=1)
  (out, *_) = run_kernel(window(rows, step, written), [garbage(LANES, PLACES), image, weights])
  windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), TAPS, 1)[:, ::step]
  expected = np.einsum("cxk,cko->ox", windows, weights.astype(np.float64))
  np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_order_of_a_sum_is_the_same(run_kernel: Any) -> None:
  """Written out or not, an accumulator gets its products in the same order: not a bit changes."""
  long = 64
  i, j, k = loop(8, 0), loop(LANES, 1), over(long, 2)
  a, b = param(1, 8 * long).index(i * long + k).load(), param(2, long * LANES).index(k * LANES + j).load()
  end = param(0, 8 * LANES).index(i * LANES + j).store((a * b).reduce(Ops.ADD, k)).end(i, j)
  tile = (Opt(OptOps.VECTOR, 1, 0), Opt(OptOps.UPCAST, 0, 0))
  x, y = data(8, long), data(long, LANES, seed=1)
  results = []
  for opts in (tile, (*tile, Opt(OptOps.UNROLL, 2, 4))):
    results.append(run_kernel(UOp.sink(end, arg=KernelInfo("order", opts)), [garbage(8, LANES), x, y])[0])
  assert results[0].tobytes() == results[1].tobytes()


def test_what_the_estimate_writes_out() -> None:
  """All taps of a window that fit into registers beside the accumulators; of long sums so many steps as divide them."""
  found = SumOfProducts.of(
    run_passes(window(1, written=0).replace(arg=KernelInfo("w")), PassContext(WIDE.target), passes=PASSES[:4])
  )
  assert found is not None
  steps = {(t.rows, t.lanes // 16): t.steps for t in ranked_tilings(found, WIDE.target) if t.lanes_of.slot == 2}
  assert steps[14, 1] == steps[7, 1] == TAPS
  registers = WIDE.target.vector_registers
  assert all((t == 1) == (rows * v + TAPS * v + 2 > registers) for (rows, v), t in steps.items())


@pytest.mark.parametrize("written", [1, 4])
def test_blocks_are_as_many_numbers_long(written: int) -> None:
  """An iteration of several steps adds several numbers to an accumulator: blocks have so many iterations less."""
  long = 1 << 14
  i, j, k = loop(8, 0), loop(LANES, 1), over(long, 2)
  a = param(1, 8 * long).index(i * long + k).load()
  b = param(2, long * LANES).index(k * LANES + j).load()
  end = param(0, 8 * LANES).index(i * LANES + j).store((a * b).reduce(Ops.ADD, k)).end(i, j)
  opts = (
    Opt(OptOps.VECTOR, 1, 0),
    Opt(OptOps.UPCAST, 0, 0),
    *([Opt(OptOps.UNROLL, 2, written)] if written > 1 else []),
  )
  names = [p.name for p in PASSES]
  kernel = UOp.sink(end, arg=KernelInfo("long", opts))
  root = run_passes(kernel, PassContext(WIDE.target), passes=PASSES[: names.index("pairwise_sum") + 1])
  innermost = [loops for loops, sums in by_loops(root).items() if products(sums[0].src[0])]
  assert [int(r.src[0].arg) * written for loops in innermost for r in loops] == [512]


def test_long_sums_of_what_are_no_products(run_kernel: Any) -> None:
  """Thousands of terms are walked through, however deep they are nested."""
  terms, k = 3000, over(4, 0)
  x = param(1, 4).index(k).load()
  value = x
  for n in range(terms - 1):
    value = value + x.maximum(UOp.const(x.dtype, n / terms))
  root = UOp.sink(param(0, 1).index(UOp.const(k.dtype, 0)).store(value.reduce(Ops.ADD, k)), arg=KernelInfo("deep", ()))
  assert products(value) == []
  given = data(4)
  expected = sum(float(v) + sum(max(float(v), n / terms) for n in range(terms - 1)) for v in given)
  (out, *_) = run_kernel(root, [garbage(1), given])
  np.testing.assert_allclose(out[0], expected, rtol=1e-4)
