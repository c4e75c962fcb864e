"""Sums over windows without what lies in padding: the same results, fewer steps, no gates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_kernels import data, garbage, loop, over, param
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_codegen import cpu_target
from tiny_codegen.compile import PassContext, run_passes
from tiny_codegen.kernel.expressions import clauses, number
from tiny_codegen.lower.skip_padding_taps import share_inside, shorten_loops, steps_inside
from tiny_codegen.opt.apply import apply_opts
from tiny_uop import AxisType, Context, KernelInfo, Ops, Opt, OptOps, UOp, dtypes, evaluate, simplify

TARGET = cpu_target("x86_64").target
ZERO = UOp.const(dtypes.float32, 0.0)
CHANNELS, OUTPUTS = 3, 5


def places(size: int, taps: int, stride: int, padding: int, dilation: int) -> int:
  return (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1


def window(
  size: int = 7, taps: int = 3, stride: int = 1, padding: int = 1, dilation: int = 1, flipped: bool = False,
  opts: tuple[Opt, ...] | None = None, outputs: int = OUTPUTS,
) -> UOp:  # fmt: skip
  """A convolution of CHANNELS rows of `size` numbers; `flipped`: the last tap comes first."""
  count = places(size, taps, stride, padding, dilation)
  o, y, c, t = loop(outputs, 0), loop(count, 1), over(CHANNELS, 2), over(taps, 3)
  row = y * stride + (t * -1 + (taps - 1) if flipped else t) * dilation + -padding
  pixel = param(1, CHANNELS * size).index(c * size + row, (row >= 0) & (row < size)).load(ZERO)
  weight = param(2, outputs * CHANNELS * taps).index((o * CHANNELS + c) * taps + t).load()
  end = param(0, outputs * count).index(o * count + y).store((pixel * weight).reduce(Ops.ADD, c, t)).end(o, y)
  return UOp.sink(end, arg=KernelInfo("window", opts))


def gates(root: UOp) -> list[UOp]:
  return [c for u in root.toposort if u.op is Ops.INDEX and len(u.src) == 3 for c in clauses(u.src[2])]


SIZES = {
  "size": st.integers(1, 9), "taps": st.integers(1, 5), "stride": st.integers(1, 3), "padding": st.integers(0, 6),
  "dilation": st.integers(1, 3), "flipped": st.booleans(),
}  # fmt: skip


@settings(deadline=None)
@given(**{**SIZES, "size": st.integers(2, 9)})
def test_just_those_inside_are_left(**sizes: Any) -> None:
  size, taps, stride, padding, dilation, flipped = sizes.values()
  count = places(size, taps, stride, padding, dilation)
  if count < 2 or taps < 2 or not padding:
    return
  root = simplify(window(**sizes))
  rows = [
    [at * stride + (taps - 1 - t if flipped else t) * dilation - padding for t in range(taps)] for at in range(count)
  ]
  wanted = [[t for t, row in enumerate(of_place) if 0 <= row < size] for of_place in rows]
  if not (found := steps_inside(root, TARGET)):
    assert all(len(left) in (0, taps) for left in wanted) or size <= dilation * taps + stride, "gates of a simpler kind"
    return
  ((_, inside),) = found.items()
  (y,) = [r for r in root.src[0].src[1:] if r.arg[0] == 1]
  still = [g for g in gates(shorten_loops(root, found)) if any(r.arg[1] is AxisType.REDUCE for r in g.ranges)]
  assert not still or size <= dilation * taps + stride, "taps have no gates"
  for at, left in enumerate(wanted):
    first, number = (evaluate(u, {y: at}) for u in (inside.first, inside.count))
    assert isinstance(first, int) and isinstance(number, int)
    over = set(range(first, first + number)) - set(left)
    assert set(left) <= set(range(first, first + number)) and (not over or not left or still)


@settings(deadline=None, max_examples=50)
@given(**SIZES)
def test_values(run_kernel: Any, **sizes: Any) -> None:
  size, taps, stride, padding, dilation, flipped = sizes.values()
  count = places(size, taps, stride, padding, dilation)
  if count < 1:
    return
  image, weights = data(CHANNELS, size), data(OUTPUTS, CHANNELS, taps, seed=1)
  padded = np.pad(image, ((0, 0), (padding, padding)))
  at = np.arange(count)[:, None] * stride + np.arange(taps)[None, :] * dilation
  ordered = weights[:, :, ::-1] if flipped else weights
  expected = np.einsum("cyt,oct->oy", padded[:, at], ordered)
  (got, *_) = run_kernel(window(**sizes), (garbage(OUTPUTS, count), image, weights))
  np.testing.assert_allclose(got.reshape(OUTPUTS, count), expected, rtol=1e-4, atol=1e-5)


def test_rows_whose_first_packs_weights(run_kernel: Any) -> None:
  """The loop over rows becomes another one, so that nothing is known any more about which taps are inside along it."""
  outputs, size, channels = 32, 7, 8
  o, y, c, t = loop(outputs, 0), loop(size, 1), over(channels, 2), over(3, 3)
  row = y + t - 1
  pixel = param(1, channels * size).index(c * size + row, (row >= 0) & (row < size)).load(ZERO)
  weight = param(2, outputs * channels * 3).index((c * 3 + t) * outputs + o).load()
  end = param(0, outputs * size).index(o * size + y).store((pixel * weight).reduce(Ops.ADD, c, t)).end(o, y)
  opts = (Opt(OptOps.VECTOR, 0, 16), Opt(OptOps.STAGE, 2, (2, 3)))
  image, weights = data(channels, size), data(channels, 3, outputs, seed=1)
  windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, ((0, 0), (1, 1))), 3, axis=1)
  expected = np.einsum("cyt,cto->oy", windows, weights)
  (got, *_) = run_kernel(UOp.sink(end, arg=KernelInfo("window", opts)), (garbage(outputs, size), image, weights))
  np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


STAGED = (Opt(OptOps.STAGE, 2, (2, 3)), Opt(OptOps.STAGE, 1, (2, 3)))
WHOLE = (Opt(OptOps.STAGE, 1, (1, 2, 3)),)


@pytest.mark.parametrize("opts", [STAGED, WHOLE, (Opt(OptOps.UPCAST, 0, 5),)], ids=["window", "image", "rows"])
@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 1), (1, 2)])
def test_values_from_near_memory(opts: tuple[Opt, ...], stride: int, padding: int, run_kernel: Any) -> None:
  root = window(stride=stride, padding=padding, opts=opts)
  image, weights = data(CHANNELS, 7), data(OUTPUTS, CHANNELS, 3, seed=1)
  windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, ((0, 0), (padding, padding))), 3, axis=1)[
    :, ::stride
  ]
  expected = np.einsum("cyt,oct->oy", windows, weights)
  with Context(SPEC=2):
    (got, *_) = run_kernel(root, (garbage(*expected.shape), image, weights))
  np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


MERGES = {
  "inside": (Opt(OptOps.MERGE, 0, 1),), "outside": (Opt(OptOps.MERGE, 1, 0),),
  "in pieces": (Opt(OptOps.SPLIT, 1, 4), Opt(OptOps.MERGE, 0, 1)),
}  # fmt: skip


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("opts", MERGES.values(), ids=MERGES)
def test_loops_that_threads_share_as_one(opts: tuple[Opt, ...], stride: int, run_kernel: Any) -> None:
  """Along an axis of which a quotient or a remainder of a merged loop is the place."""
  size = 8 * stride
  root = simplify(apply_opts(window(size, stride=stride), opts, TARGET))
  found = steps_inside(root, TARGET)
  assert [loop.arg[0] for loop in found] == [3] and not gates(shorten_loops(root, found))
  image, weights = data(CHANNELS, size), data(OUTPUTS, CHANNELS, 3, seed=1)
  windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, ((0, 0), (1, 1))), 3, axis=1)[:, ::stride]
  expected = np.einsum("cyt,oct->oy", windows, weights)
  with Context(SPEC=2):
    (got, *_) = run_kernel(window(size, stride=stride, opts=opts), (garbage(*expected.shape), image, weights))
  np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


def test_infinite_weights_do_not_meet_padding(run_kernel: Any) -> None:
  """As with PyTorch's convolutions; what an explicit mask hides is multiplied by zero all the same."""
  image, weights = np.ones((CHANNELS, 7), np.float32), np.full((OUTPUTS, CHANNELS, 3), np.inf, np.float32)
  (got, *_) = run_kernel(window(opts=()), (garbage(OUTPUTS, 7), image, weights))
  assert np.isposinf(got).all()


def masked(rows: int = 6, length: int = 6) -> UOp:
  """`a[i, k] * b[k]`, where a is zero for k > i."""
  i, k = loop(rows, 0), over(length, 1)
  a = param(1, rows * length).index(i * length + k, k < i + 1).load(ZERO)
  total = (a * param(2, length).index(k).load()).reduce(Ops.ADD, k)
  return UOp.sink(param(0, rows).index(i).store(total).end(i), arg=KernelInfo("masked", ()))


def test_other_masks_stay(run_kernel: Any) -> None:
  assert steps_inside(masked(), TARGET) == {}
  (got, *_) = run_kernel(masked(), (garbage(6), np.ones((6, 6), np.float32), np.full(6, np.inf, np.float32)))
  assert np.isnan(got[:5]).all() and np.isposinf(got[5])


def test_how_much_is_inside() -> None:
  root = window()
  (total,) = [u for u in root.toposort if u.op is Ops.REDUCE]
  _, tap = total.src[1:]
  (y,) = [r for r in root.src[0].src[1:] if r.arg[0] == 1]
  share, gone = share_inside(total, tap, ())
  assert share == pytest.approx(19 / 21)
  assert set(gone) == set(gates(root))
  assert share_inside(total, tap, (y,)) == (1.0, ()), "rows of a tile are summed together"


@pytest.mark.parametrize("padding", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_how_much_is_inside_of_an_image_whose_size_is_a_variable(stride: int, padding: int) -> None:
  """As much as with its largest size."""
  n = UOp.variable("n", 3, 7)
  shares = []
  for size in (number(7), n):
    y, c, t = loop(places(7, 3, stride, padding, 1), 1), over(CHANNELS, 2), over(3, 3)
    row = y * stride + t + -padding
    pixel = param(1, CHANNELS * 7).index(c * size + row, (row >= 0) & (row < size)).load(ZERO)
    shares.append(share_inside((pixel * param(2, 3).index(t).load()).reduce(Ops.ADD, c, t), t, ())[0])
  assert shares[0] == shares[1] < 1


@pytest.mark.parametrize(("rows", "cut"), [(5, True), (12, False)])
def test_a_tile_that_fills_the_registers_keeps_its_loops(rows: int, cut: bool) -> None:
  """Of 16, twelve accumulators leave too few for a loop that may have no iterations."""
  root = apply_opts(window(outputs=rows), (Opt(OptOps.UPCAST, 0, rows),), TARGET)
  assert bool(steps_inside(root, TARGET)) is cut


def products_of(root: UOp) -> int:
  """Multiplications of a kernel with written-out loops, in one iteration of the others."""
  context = PassContext(TARGET, root.arg.opts)
  linear = run_passes(root, context)
  return sum(u.op in (Ops.MULACC, Ops.MUL) and u.dtype.kind == "float" for u in linear.src)


@settings(deadline=None, max_examples=30)
@given(
  size=st.integers(2, 8),
  taps=st.integers(2, 4),
  stride=st.integers(1, 2),
  padding=st.integers(1, 3),
  vector=st.booleans(),
)
def test_written_out_taps_in_padding_are_not_computed(
  run_kernel: Any, size: int, taps: int, stride: int, padding: int, vector: bool
) -> None:
  count = places(size, taps, stride, padding, 1)
  if count < 2 or stride >= taps:  # loops that no window overlaps along are one loop
    return
  lanes = (Opt(OptOps.VECTOR, 0, 4),) if vector else ()
  opts = (*lanes, Opt(OptOps.UPCAST, 1, count), Opt(OptOps.UNROLL, 3, taps))
  outputs = 4
  root = window(size, taps, stride, padding, opts=opts, outputs=outputs)
  inside = [at * stride + tap - padding in range(size) for at in range(count) for tap in range(taps)]
  assert products_of(root) == sum(inside)
  image, weights = data(CHANNELS, size), data(outputs, CHANNELS, taps, seed=1)
  at = np.arange(count)[:, None] * stride + np.arange(taps)[None, :]
  expected = np.einsum("cyt,oct->oy", np.pad(image, ((0, 0), (padding, padding)))[:, at], weights)
  (got, *_) = run_kernel(root, (garbage(outputs, count), image, weights))
  np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


def test_a_mask_that_is_no_padding_stays() -> None:
  """Zeros of a mask meet what may be infinite."""
  o, y, t = loop(4, 0), loop(4, 1), over(3, 2)
  masked = param(1, 64).index(y * 3 + t, (y < t)).load(ZERO)  # the address does not move as the gate does
  end = (
    param(0, 16).index(o * 4 + y).store((masked * param(2, 12).index(o * 3 + t).load()).reduce(Ops.ADD, t)).end(o, y)
  )
  opts = (Opt(OptOps.UPCAST, 1, 4), Opt(OptOps.UNROLL, 2, 3))
  assert products_of(UOp.sink(end, arg=KernelInfo("mask", opts))) == 6, (
    "three where the mask holds, and zero times each weight"
  )
