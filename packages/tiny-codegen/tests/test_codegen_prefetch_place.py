"""Where in a loop cache lines are asked for."""

from __future__ import annotations

import re

import pytest
from codegen_kernels import loop, over, param

from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_uop import KernelInfo, Ops, Opt, OptOps, UOp

TARGET = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl")))
SIZE = 1344  # results of 7 MB, which is more than the second cache level has


def order(rows: int, lanes: int, steps: int) -> str:
  """What the loop of a sum does, in order: asks (a, once or several times), reads a vector of its second operand (v),
  and multiplies and adds (m)."""
  i, j, k = loop(SIZE, 0), loop(SIZE, 1), over(64, 2)
  total = param(1, SIZE * 64).index(i * 64 + k).load() * param(2, SIZE * 64).index(k * SIZE + j).load()
  out = param(0, SIZE * SIZE).index(i * SIZE + j).store(total.reduce(Ops.ADD, k)).end(i, j)
  opts = (Opt(OptOps.VECTOR, 1, lanes), Opt(OptOps.UPCAST, 0, rows), Opt(OptOps.UNROLL, 2, steps))
  kernel = UOp.sink(out, arg=KernelInfo("product", opts))
  text = str(compile_kernel(kernel, TARGET).src[2].arg)
  (body,) = [block for block in re.split(r"^\w+:$", text, flags=re.M) if " call " in block and "@llvm.fma" in block]
  places = dict(re.findall(r"(%v\d+) = getelementptr inbounds (?:float|<\d+ x float>), ptr %([pm])", body))
  found = re.findall(rf"@llvm\.(prefetch|fma)|= (load) <{lanes} x float>, ptr (%v\d+)", body)
  kinds = {"prefetch": "a", "fma": "m", "": "v"}
  done = "".join(kinds[called] for called, _, place in found if places.get(place) != "m")
  return re.sub("a+", "a", done)


def test_a_loop_asks_first() -> None:
  assert order(7, 32, 2) == "a" + 2 * ("v" + 7 * "m")


@pytest.mark.parametrize(("rows", "lanes"), [(14, 32), (6, 64)])
def test_where_registers_are_scarce_the_first_step_comes_first(rows: int, lanes: int) -> None:
  """LLVM would read the vectors of both steps together, and spill accumulators."""
  assert order(rows, lanes, 2) == "v" + rows * "m" + "a" + "v" + rows * "m"


def test_a_single_step_has_nothing_to_wait_for() -> None:
  assert order(14, 32, 1) == "a" + "v" + 14 * "m"
