"""Long sums in blocks, one after the other, around all other loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import check, convolution, data, garbage, kernel, linear, loop, matmul, over, param, softmax

from tiny_codegen import KernelOptError, LLVMRenderer, build_program, cpu_target
from tiny_codegen.opt.apply import apply_opt
from tiny_codegen.opt.vectors import choose_opts
from tiny_uop import AxisType, Ops, Opt, OptOps, UOp, dtypes

WIDE = cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl"))
TILE = (Opt(OptOps.VECTOR, 1, 8), Opt(OptOps.UPCAST, 0, 2))


def block(axis: int, amount: int) -> Opt:
  return Opt(OptOps.BLOCK, axis, amount)


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize(
  "opts",
  [
    (block(2, 4),),
    (block(2, 1),),
    (block(2, 6), *TILE),
    (block(2, 4), Opt(OptOps.UNROLL, 3, 2), *TILE),
    (block(2, 4), *TILE, Opt(OptOps.STAGE, 2, (3,))),
    (block(2, 4), *TILE, Opt(OptOps.SWAP, 0, 1), Opt(OptOps.STAGE, 2, (3,))),
    (block(2, 4), *TILE, Opt(OptOps.STAGE, 2, (1, 3))),
    (block(2, 4), *TILE, Opt(OptOps.STAGE, 1, (0, 3))),
    (block(2, 4), *TILE, Opt(OptOps.THREAD, 0, 0)),
    (block(2, 4), *TILE, Opt(OptOps.STAGE, 2, (3,)), Opt(OptOps.THREAD, 1, 0)),
    (Opt(OptOps.PADTO, 2, 5), block(2, 5), *TILE),
    (
      block(2, 4),
      Opt(OptOps.PADTO, 0, 3),
      Opt(OptOps.UPCAST, 0, 3),
      Opt(OptOps.PADTO, 1, 12),
      Opt(OptOps.VECTOR, 1, 12),
    ),
  ],
)
def test_results(opts: tuple[Opt, ...], pieces: int, run_kernel: Any) -> None:
  """Whatever else is chosen, and whatever was in the result before."""
  case = matmul()
  arrays = (np.full_like(case.arrays[0], np.nan), *case.arrays[1:])
  threads = any(opt.op is OptOps.THREAD for opt in opts)
  check(case, run_kernel(case.kernel, arrays, opts, pieces=pieces if threads else 1))


def test_what_follows_the_sum_is_computed_in_the_last_block_only(run_kernel: Any) -> None:
  """Bias and relu: earlier blocks have sums of either sign."""
  case = linear()
  for opts in ((block(2, 4),), (block(2, 8), Opt(OptOps.VECTOR, 1, 2), Opt(OptOps.UPCAST, 0, 3))):
    check(case, run_kernel(case.kernel, case.arrays, opts))


def test_a_loop_of_several(run_kernel: Any) -> None:
  """The channels of a convolution are the blocks, its taps the sum of each."""
  case = convolution()
  (reduce,) = [u for u in case.kernel.toposort if u.op is Ops.REDUCE]
  check(case, run_kernel(case.kernel, case.arrays, (block(reduce.src[1].arg[0], 1),)))


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.int32])
def test_other_types(dtype: Any, run_kernel: Any) -> None:
  i, j, k = loop(6, 0), loop(8, 1), over(12, 2)
  product = param(1, 72, dtype).index(i * 12 + k).load() * param(2, 96, dtype).index(k * 8 + j).load()
  sink = kernel(param(0, 48, dtype).index(i * 8 + j).store(product.reduce(Ops.ADD, k)).end(i, j))
  a, b = data(6, 12, dtype=dtype), data(12, 8, dtype=dtype, seed=1)
  (got, *_) = run_kernel(sink, (garbage(6, 8, dtype=dtype), a, b), (block(2, 3),))
  np.testing.assert_allclose(got, a @ b, rtol=1e-12)


def test_the_loop_over_blocks_runs_in_order_and_the_result_is_not_read() -> None:
  root = apply_opt(matmul().kernel, block(2, 4), WIDE.target)
  assert [r.arg[1] for r in root.src[0].src[1:]] == [AxisType.ORDER, AxisType.LOOP, AxisType.LOOP]
  program = build_program(matmul().kernel, LLVMRenderer(WIDE), (block(2, 4), *TILE))
  assert [(p.written, p.read) for p in program.arg.params] == [(True, False), (False, True), (False, True)]


def chosen(sink: UOp) -> list[OptOps]:
  return [opt.op for opt in choose_opts(sink, WIDE.target)]


def test_long_sums_are_taken_in_blocks() -> None:
  assert OptOps.BLOCK in chosen(matmul(512, 512, 8192).kernel)
  assert OptOps.BLOCK not in chosen(matmul(512, 512, 1024).kernel)
  assert OptOps.BLOCK not in chosen(matmul(512, 512, 8191).kernel), "nothing divides it"


def test_all_panels_are_not_packed_for_every_block() -> None:
  """Each part that threads take would pack them again."""
  for size in (64, 96, 512):
    opts = choose_opts(matmul(size, size, 16384).kernel, WIDE.target)
    lanes = {opt.axis for opt in opts if opt.op is OptOps.VECTOR}
    staged = [opt.arg for opt in opts if opt.op is OptOps.STAGE]
    assert not any(isinstance(loops, tuple) and lanes & set(loops) for loops in staged)


def doubled() -> UOp:
  """Each row stores to the same elements."""
  i, j, k = loop(4, 0), loop(8, 1), over(12, 2)
  total = (param(1, 48).index(i * 12 + k).load() * param(2, 96).index(k * 8 + j).load()).reduce(Ops.ADD, k)
  return kernel(param(0, 8).index(j).store(total).end(i, j))


def going_on() -> UOp:
  """`out = out + a @ b`."""
  i, j, k = loop(4, 0), loop(8, 1), over(12, 2)
  place = param(0, 32).index(i * 8 + j)
  total = (param(1, 48).index(i * 12 + k).load() * param(2, 96).index(k * 8 + j).load()).reduce(Ops.ADD, k)
  return kernel(place.store(place.load() + total).end(i, j))


def narrowed() -> UOp:
  """A result of another type than the sum."""
  i, k = loop(4, 0), over(12, 2)
  total = param(1, 48).index(i * 12 + k).load().reduce(Ops.ADD, k)
  return kernel(param(0, 4, dtypes.float16).index(i).store(total.cast(dtypes.float16)).end(i))


@pytest.mark.parametrize(
  ("sink", "opt", "message"),
  [
    (matmul().kernel, block(0, 2), "loop 0 is a LOOP loop, expected a REDUCE loop"),
    (matmul().kernel, block(2, 5), "not a multiple of 5"),
    (matmul().kernel, block(2, 12), "one block"),
    (matmul().kernel, block(2, 0), "1 or more"),
    (softmax().kernel, block(2, 4), "one sum"),
    (doubled(), block(2, 4), "loops [0] may store the same element"),
    (going_on(), block(2, 4), "reads what it writes"),
    (narrowed(), block(2, 4), "a result of the type of the sum, float32, got ptr<float16"),
  ],
)  # fmt: skip
def test_what_it_does_not_fit(sink: UOp, opt: Opt, message: str) -> None:
  with pytest.raises(KernelOptError) as raised:
    apply_opt(sink, opt, WIDE.target)
  assert message in str(raised.value) and str(raised.value).startswith("BLOCK(")


def test_a_sum_of_unknown_length_may_have_no_terms() -> None:
  """Nothing would be stored then."""
  size = UOp.variable("n", 0, 12)
  i, k = loop(4, 0), over(size, 1)
  total = param(1, 48).index(i * 12 + k).load().reduce(Ops.ADD, k)
  sink = kernel(param(0, 4).index(i).store(total).end(i))
  with pytest.raises(KernelOptError, match="the extent n of loop 1"):
    apply_opt(sink, block(1, 1), WIDE.target)


def test_near_memory_comes_after_blocks() -> None:
  staged = apply_opt(matmul().kernel, Opt(OptOps.STAGE, 2, (2,)), WIDE.target)
  with pytest.raises(KernelOptError, match="BLOCK before STAGE"):
    apply_opt(staged, block(2, 4), WIDE.target)


def test_workgroups_have_no_order() -> None:
  with pytest.raises(KernelOptError, match="workgroups"):
    apply_opt(matmul().kernel, block(2, 4), replace(WIDE.target, has_local=True))
