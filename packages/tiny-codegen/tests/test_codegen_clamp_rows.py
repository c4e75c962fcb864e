"""Tiles that reach beyond the end: rows that nothing is stored for, windows that nothing is read from, lanes that are
left over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_kernels import CASES, check, data, garbage, kernel, loop, over, param

from tiny_codegen import PASSES, LLVMRenderer, PassContext, compile_kernel, run_passes
from tiny_codegen.kernel.loops import kind
from tiny_codegen.kernel.memory import with_memory
from tiny_codegen.lower.peel import MOST_CLAMPED
from tiny_uop import AddrSpace, AxisType, Ops, Opt, OptOps, UOp, dtypes
from tiny_uop.context import SPEC, Context

ROWS = (Opt(OptOps.PADTO, 0, 3), Opt(OptOps.UPCAST, 0, 3))


def after(name: str, root: UOp, opts: tuple[Opt, ...], renderer: LLVMRenderer) -> UOp:
  """The kernel as it is after a pass."""
  seen: dict[str, UOp] = {}
  run_passes(root, PassContext(renderer.target, opts), observe=lambda p, root: seen.update({p.name: root}))
  assert name in {p.name for p in PASSES}
  return seen[name]


def gated(root: UOp) -> list[UOp]:
  """Loads inside of a sum that have a gate."""
  sums = {r for u in root.toposort if u.op is Ops.REDUCE for r in u.src[1:]}
  loads = [u for u in root.toposort if u.op is Ops.LOAD and not u.ranges.isdisjoint(sums)]
  return [u for u in loads if len(u.src[0].src) == 3]


@pytest.mark.parametrize("m", [3, 2, 121, 122])
def test_rows_beyond_the_end_read_the_last_row(m: int, renderer: LLVMRenderer, run_kernel: Any) -> None:
  case = CASES["matmul"](m, 8, 12)
  if m % 3:
    assert len(gated(after("peel", case.kernel, ROWS, renderer))) == 1
    assert gated(after("clamp_rows", case.kernel, ROWS, renderer)) == []
  with Context(SPEC=2):  # which proves that all places are inside of their memory
    check(case, run_kernel(case.kernel, case.arrays, ROWS))


@pytest.mark.parametrize(("m", "left"), [(4, 1), (5, 2), (7, 1), (20, 2)])
def test_a_last_tile_of_few_rows_is_a_smaller_one(m: int, left: int, renderer: LLVMRenderer, run_kernel: Any) -> None:
  """If those that would be computed for nothing are many enough: there are no gates then."""
  case = CASES["matmul"](m, 8, 12)
  peeled = after("peel", case.kernel, ROWS, renderer)
  rows = {r.src[0].arg for u in peeled.toposort if u.op is Ops.END for r in u.src[1:] if kind(r) is AxisType.UPCAST}
  assert (rows, gated(peeled)) == ({3, left}, [])
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays, ROWS))


@pytest.mark.parametrize("left", range(1, 14))
def test_few_rows_of_a_large_loop_have_addresses_of_their_own(left: int, renderer: LLVMRenderer) -> None:
  """Each that is clamped needs a register for its address, and there are not enough beside a full register tile."""
  tiles = (Opt(OptOps.PADTO, 0, 14), Opt(OptOps.UPCAST, 0, 14))
  peeled = after("peel", CASES["matmul"](14 * 400 + left, 8, 12).kernel, tiles, renderer)
  beyond = 14 - left
  rows = {r.src[0].arg for u in peeled.toposort if u.op is Ops.END for r in u.src[1:] if kind(r) is AxisType.UPCAST}
  assert rows == ({14} if beyond <= MOST_CLAMPED else {14, left})
  assert bool(gated(peeled)) == (beyond <= MOST_CLAMPED)


@pytest.mark.parametrize("opts", [(Opt(OptOps.THREAD, 0, 0),), (Opt(OptOps.STAGE, 1, (2, 3)),)])
def test_a_smaller_last_tile_of_shared_loops(opts: tuple[Opt, ...], run_kernel: Any) -> None:
  """Where threads share tiles, and where what a tile reads is packed for it alone."""
  case = CASES["matmul"](20, 8, 12)
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays, (*ROWS, *opts)))


def test_what_is_computed_once_keeps_its_memory() -> None:
  """The last block of a loop gets local memory of its own; what was computed in the same memory before does not."""
  place, r = dtypes.float32.ptr(8, AddrSpace.LOCAL), loop(8, 0)
  memory, own = UOp.alloc(0, place), UOp.alloc(1, place)
  once = memory.index(UOp.const(dtypes.index, 0)).load()
  each = memory.index(r).load()
  changed = with_memory(param(0, 8).index(r).store(once + each), r, {memory: own}).toposort
  assert once in changed and each not in changed
  assert own.index(r).load() in changed


def test_a_gate_that_the_store_lacks_stays(renderer: LLVMRenderer) -> None:
  """Padding reads zeros there, which the result needs."""
  i, r = loop(6, 0), over(4, 1)
  inside = i < 5
  value = param(1, 20).index(i * 4 + r, inside).load().reduce(Ops.ADD, r)
  root = kernel(param(0, 6).index(i).store(value).end(i))
  opts = (Opt(OptOps.UPCAST, 0, 3),)
  assert len(gated(after("clamp_rows", root, opts, renderer))) == 1


def window(size: int, taps: int, stride: int, padding: int) -> tuple[UOp, tuple[Any, ...], Any]:
  """A convolution along a row of an image that has not one element more than it reads."""
  places = (size + 2 * padding - taps) // stride + 1
  f, x, c, k = loop(16, 0), loop(places, 1), over(3, 2), over(taps, 3)
  column = x * stride + k - padding
  inside = [(column >= 0) & (column < size)] if padding else []
  pixel = param(1, 3 * size).index(c * size + column, *inside).load()
  weight = param(2, 16 * 3 * taps).index((f * 3 + c) * taps + k).load()
  out = param(0, 16 * places).index(f * places + x)
  root = kernel(out.store((pixel * weight).reduce(Ops.ADD, c, k)).end(f, x))
  image, weights = data(3, size), data(16, 3, taps, seed=1)
  padded = np.pad(image, ((0, 0), (padding, padding)))
  seen = np.lib.stride_tricks.sliding_window_view(padded, taps, axis=1)[:, ::stride][:, :places]
  return root, (garbage(16, places), image, weights), np.einsum("cxk,fck->fx", seen, weights)


@pytest.mark.parametrize("size", [25, 33, 34])
@pytest.mark.parametrize(("taps", "stride", "padding"), [(3, 1, 0), (3, 1, 1), (5, 2, 0), (2, 1, 1), (2, 3, 0)])
def test_padded_rows_share_a_window(
  size: int, taps: int, stride: int, padding: int, renderer: LLVMRenderer, run_kernel: Any
) -> None:
  root, arrays, expected = window(size, taps, stride, padding)
  places = expected.shape[1]
  opts = (
    Opt(OptOps.VECTOR, 0, 8), Opt(OptOps.PADTO, 1, 6), Opt(OptOps.UPCAST, 1, 6), Opt(OptOps.STAGE, 1, (2, 3, 1, 5)),
  )  # fmt: skip
  staged = after("stage", root, opts, renderer)
  if taps >= stride:  # or there are holes
    (memory,) = [u for u in staged.toposort if u.op is Ops.ALLOC]
    row = (-(-places // 6) * 6 - 1) * stride + taps
    assert memory.dtype.size <= 3 * -(-row // 16) * 16  # type: ignore[attr-defined]
  with Context(SPEC=2):
    (got, *_) = run_kernel(root, arrays, opts)
  np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_lanes_left_over_are_fewer(renderer: LLVMRenderer, run_kernel: Any) -> None:
  for size, lanes in ((33, {16, 4}), (37, {16, 8}), (44, {16})):
    case = CASES["matmul"](3, size, 5)
    opts = (Opt(OptOps.PADTO, 1, 16), Opt(OptOps.VECTOR, 1, 16))
    peeled = after("peel", case.kernel, opts, renderer)
    vectors = [r for u in peeled.toposort if u.op is Ops.END for r in u.src[1:] if kind(r) is AxisType.VECTOR]
    assert {r.src[0].arg for r in vectors} == lanes
    with Context(SPEC=2):
      check(case, run_kernel(case.kernel, case.arrays, opts))


def test_lanes_left_over_are_fewer_in_near_memory(renderer: LLVMRenderer, run_kernel: Any) -> None:
  """What is packed for the last block is for itself: nothing that it leaves out has an effect."""
  case = CASES["matmul"](3, 37, 5)
  opts = (Opt(OptOps.PADTO, 1, 16), Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.SWAP, 0, 1), Opt(OptOps.STAGE, 2, (2,)))
  linear = compile_kernel(case.kernel, renderer, opts).src[1].src
  assert {u.dtype for u in linear if u.op is Ops.MULACC} == {dtypes.float32.vec(16), dtypes.float32.vec(8)}
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays, opts))


def test_all_of_near_memory_is_filled(run_kernel: Any) -> None:
  """Its last lanes hold zeros of the padding: those that are left over to read are half a vector, to write a whole."""
  root, arrays, expected = window(23, 1, 1, 1)
  opts = (Opt(OptOps.PADTO, 1, 16), Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.SWAP, 0, 1), Opt(OptOps.STAGE, 1, (2, 3)))
  assert expected.shape == (16, 25)
  with Context(SPEC=max(SPEC.value, 1)):
    (got, *_) = run_kernel(root, arrays, opts)
  np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_two_blocks_have_sums_of_their_own(renderer: LLVMRenderer) -> None:
  opts = (Opt(OptOps.PADTO, 1, 16), Opt(OptOps.VECTOR, 1, 16))
  linear = compile_kernel(CASES["matmul"](3, 28, 5).kernel, renderer, opts).src[1].src
  sums = [u for u in linear if u.op is Ops.RANGE and kind(u) is AxisType.REDUCE]
  assert len(sums) == 2
  assert {u.dtype for u in linear if u.op is Ops.MULACC} == {dtypes.float32.vec(16)}
