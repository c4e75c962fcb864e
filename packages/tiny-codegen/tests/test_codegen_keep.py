"""Values that one loop computes and another needs again are kept in local memory: `STAGE(None, (a, b))`."""

from __future__ import annotations

from typing import Any

import pytest
from codegen_kernels import CASES, check

from tiny_codegen import KernelOptError, LLVMRenderer, PassContext, compile_kernel, cpu_target, run_passes
from tiny_uop import AddrSpace, Context, Ops, Opt, OptOps, PtrDType, UOp

WIDE = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")))


def near(program: UOp) -> list[UOp]:
  """The local memory of a program or kernel."""
  return [u for u in program.toposort if u.op is Ops.ALLOC and isinstance(u.dtype, PtrDType)
          and u.dtype.space is AddrSpace.LOCAL]  # fmt: skip


def exponentials(kernel: UOp, opts: tuple[Opt, ...] | None) -> int:
  """How often a kernel's text has an exponential, before it becomes a polynomial."""
  counts: dict[str, int] = {}

  def observe(step: Any, root: UOp) -> None:
    counts[step.name] = sum(u.op is Ops.EXP for u in root.toposort)

  run_passes(kernel, PassContext(WIDE.target, opts), observe=observe)
  return counts["index_types"]


@pytest.mark.parametrize("columns", [16, 24, 100, 777])
def test_softmax_computes_exponentials_once(columns: int, run_kernel: Any) -> None:
  case = CASES["softmax"](7, columns)
  opts = compile_kernel(case.kernel, WIDE).src[1].arg.opts
  kept = [o for o in opts if o.op is OptOps.STAGE]
  assert [o.axis for o in kept] == [None]
  assert columns > 128 or exponentials(case.kernel, ()) == 2  # a longer sum is cut into blocks and a rest
  if columns % 16 == 0:  # else the last lanes are computed apart
    assert exponentials(case.kernel, opts) == 1
  assert len(near(compile_kernel(case.kernel, WIDE).src[1])) == 1
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays, opts))


def test_it_is_right_where_the_two_loops_are_cut_differently(run_kernel: Any) -> None:
  case = CASES["softmax"](5, 32)
  stage = next(o for o in compile_kernel(case.kernel, WIDE).src[1].arg.opts if o.op is OptOps.STAGE)
  summed, out = stage.arg
  opts = (stage, Opt(OptOps.VECTOR, out, 16), Opt(OptOps.VECTOR, summed, 8))
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays, opts))


def test_what_is_cheap_is_computed_again() -> None:
  assert not near(compile_kernel(CASES["layer_norm"](64, 256).kernel, WIDE).src[1])


def test_loops_that_do_not_compute_the_same() -> None:
  kernel = CASES["softmax"](5, 24).kernel
  with pytest.raises(KernelOptError, match="no computation in common"):
    compile_kernel(CASES["matmul"](24, 24, 24).kernel, WIDE, [Opt(OptOps.STAGE, None, (0, 1))])
  with pytest.raises(KernelOptError, match="two loops of one extent"):
    compile_kernel(kernel, WIDE, [Opt(OptOps.STAGE, None, (0, 1))])
