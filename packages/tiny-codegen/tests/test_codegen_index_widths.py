"""Programs whose offsets are int32 and int64: for vectors of every width, LLVM takes them as they are written."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest
from codegen_opts import before_optimising, opts_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_uop import AxisType, KernelInfo, Ops, UOp, dtypes

SIZE = 1 << 12
HUGE = 1 << 33
"""Elements of memory whose offsets need more than 32 bits."""
TARGETS = {
  bits: LLVMRenderer(cpu_target(triple, "", features, scalable_bits=bits, dynamic_scheduling=bits == 256))
  for bits, triple, features in (
    (128, "aarch64-unknown-linux-gnu", ()),
    (256, "x86_64-unknown-linux-gnu", ("+sse4.1", "+avx", "+avx2", "+fma")),
    (512, "x86_64-unknown-linux-gnu", ("+sse4.1", "+avx", "+avx2", "+fma", "+avx512f", "+avx512vl")),
    (1024, "aarch64-unknown-linux-gnu", ("+sve",)),
  )
}
LOADED = (dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint32)


@st.composite
def places(draw: st.DrawFn, leaves: list[UOp], depth: int) -> UOp:
  """An offset: loops, variables and numbers from memory, added, multiplied, divided and chosen between."""
  if depth == 0:
    return draw(st.sampled_from(leaves))
  a, n = draw(places(leaves, depth - 1)), draw(st.sampled_from((1, 2, 3, 4, 7, 64, 1000)))
  match draw(st.sampled_from(("+", "+", "*", "//", "%", "% *", "where", "max", "load", "near"))):
    case "+":
      return a + draw(places(leaves, depth - 1))
    case "*":
      return a * n
    case "//":
      return a // n
    case "%":
      return a % n
    case "% *":  # as threads share what is before and after another
      return a % n * draw(st.sampled_from((1, 8, 96)))
    case "where":
      b = draw(places(leaves, depth - 1))
      return (a < n).where(b, draw(places(leaves, depth - 1)))
    case "max":
      return a.maximum(draw(places(leaves, depth - 1)))
    case "load":
      dtype = draw(st.sampled_from(LOADED))
      gate = (a >= 0) & (a < SIZE)
      return UOp.param(7, dtype.ptr(SIZE)).index(a, gate).load(UOp.const(dtype, 0)).cast(dtypes.index)
    case _:
      return a + draw(st.integers(-9, 9))


@st.composite
def kernels(draw: st.DrawFn) -> UOp:
  """A sum of what is read at a few offsets that share parts, and of the offsets themselves, as integers."""
  i, j = UOp.range(draw(st.sampled_from((4, 6, 64))), 0), UOp.range(draw(st.sampled_from((8, 16, 40))), 1)
  k = UOp.range(draw(st.sampled_from((2, 8))), 2, AxisType.REDUCE)
  leaves = [i, j, k, UOp.variable("n", 0, 1 << 20), UOp.variable("m", 0, 1 << 40)]
  leaves += [draw(places(leaves, 2)) for _ in range(3)]
  value = UOp.const(dtypes.float32, 0.0)
  for slot in range(1, draw(st.integers(2, 5))):
    place, room = draw(places(leaves, 2)), draw(st.sampled_from((SIZE, HUGE)))
    read = UOp.param(slot, dtypes.float32.ptr(room)).index(place, (place >= 0) & (place < room))
    value = value + read.load(UOp.const(dtypes.float32, 0.0))
    if draw(st.booleans()):
      value = value + place.cast(draw(st.sampled_from((dtypes.int32, dtypes.int64)))).cast(dtypes.float32)
  total = value.reduce(Ops.ADD, k)
  out = UOp.param(0, dtypes.float32.ptr(64 * 40)).index(i * (j.src[0].arg) + j)
  return UOp.sink(out.store(total).end(i, j), arg=KernelInfo("places"))


@pytest.mark.parametrize("bits", TARGETS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_offsets_of_either_width_compile(bits: int, data: st.DataObject) -> None:
  renderer, kernel = TARGETS[bits], data.draw(kernels())
  prepared = before_optimising(kernel, renderer.target)
  opts = data.draw(st.none() | opts_for(prepared, renderer.target))
  program = compile_kernel(kernel, renderer, opts)
  llvm.parse_assembly(str(program.src[2].arg)).verify()
