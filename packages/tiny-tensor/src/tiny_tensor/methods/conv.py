"""Convolution, pooling and resampling over any number of spatial axes, by windows as views."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Literal, Self, overload

from tiny_tensor.autograd.custom_gradient import Grads, with_gradient
from tiny_tensor.base import DTypeLike, TensorBase
from tiny_tensor.methods.windows import Sizes, pad_last, padding_of, windows
from tiny_tensor.shapes import as_tuple, greatest, least, number
from tiny_uop import DType, UOp, dtypes, sint
from tiny_uop.records import dataclass
from tiny_uop.shape import all_known, prod

CHANNELS = "channels and kernels of convolutions"
MOST_PHASES = 4  # of an axis of a transposed convolution that one kernel computes together
SUMMED_AT_ONCE = 4096  # places, in the gradient of a kernel


@dataclass(frozen=True)
class SlideBack:
  """The gradient of a convolution in its input is a transposed convolution, in which the kernel slides the other way.
  Left to the table, it would be a matrix product that writes out every window, and sums over windows.
  """

  groups: int
  stride: tuple[int, ...]
  dilation: tuple[int, ...]
  padding: tuple[tuple[int, int], ...]
  wrap: Callable[[UOp], Any]

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    assert gs[0] is not None, "a function of one result"
    gradient, source, w = (self.wrap(u) for u in (gs[0], *inputs))
    groups, out, per_group = self.groups, int(w.shape[0]), int(w.shape[1])
    axes, kernel = w.ndim - 2, tuple(int(k) for k in w.shape[2:])
    n, sizes = int(gradient.shape[0]), tuple(int(s) for s in gradient.shape[2:])
    flat = [p for pair in reversed(self.padding) for p in pair]
    each_axis = zip(source.shape[2:], self.padding, kernel, self.dilation, self.stride, strict=True)
    left = [(int(n) + sum(pads) - gap * (k - 1) - 1) % step for n, pads, k, gap, step in each_axis]  # no window has it
    back = gradient.conv_transpose2d(w, None, groups, self.stride, self.dilation, flat, left)
    padded, strided = pad_last(source, list(self.padding)), any(step > 1 for step in self.stride)
    is_cut = any(int(n) % step for n, step in zip(source.shape[2:], self.stride))  # from what is stored already
    if strided and not is_cut:
      back = back.contiguous()  # its lanes are channels: what comes after would read images across them
    if not strided or out > groups:  # few windows of one channel meet an element
      padded = padded.contiguous()
    # the sum over images and places, some images at a time: their gradients stay in the cache while they meet every
    # tap of every channel
    some = max(b for b in range(1, n + 1) if n % b == 0 and (b == 1 or b * math.prod(sizes) <= SUMMED_AT_ONCE))
    x = windows(padded, kernel, self.stride, self.dilation)
    x = x.reshape((n // some, some, groups, 1, per_group, *sizes, *kernel))
    each = gradient.reshape((n // some, some, groups, out // groups, 1, *sizes, *(1,) * axes))
    along = x._sum_of_products(each, (1, *range(5, 5 + axes)))
    along = along if n == some else along.contiguous()
    return back.uop, along.sum(0).reshape(w.shape).uop


def _overlap(kernel: Sequence[int], steps: Sequence[int], gaps: Sequence[int]) -> bool:
  """Whether windows overlap along each axis with a step, of which a transposed convolution computes all phases in one
  kernel.
  """
  return all(step == 1 or step <= MOST_PHASES and step < k and gap == 1 for k, step, gap in zip(kernel, steps, gaps))


def window_of(size: Sizes) -> tuple[int, ...]:
  """A window: one number is for two axes, several are one for each axis, however many."""
  return (size, size) if isinstance(size, int) else tuple(int(s) for s in size)


class ConvMixin(TensorBase):
  """conv2d, the poolings, interpolate and their relatives. The layout is (batch, channels, spatial axes…)."""

  __slots__ = ()

  def conv2d(
    self, weight: Self, bias: Self | None = None, groups: int = 1, stride: Sizes = 1, dilation: Sizes = 1,
    padding: Sizes = 0, dtype: DTypeLike | None = None,
  ) -> Self:  # fmt: skip
    """Cross-correlation. `(n, c, size…)` with weight `(out, c/groups, kernel…)` → `(n, out, size'…)`.

    Works for any number of spatial axes. Raises ValueError naming the shapes when channels or groups do not fit.
    """
    axes = weight.ndim - 2
    if axes < 1 or self.ndim != axes + 2:
      raise ValueError(f"conv2d takes (n, c, size…) and (out, c/groups, kernel…), got {self.shape} and {weight.shape}")
    n, (channels, out, per_group) = self.shape[0], (number(s, CHANNELS) for s in (self.shape[1], *weight.shape[:2]))
    if channels != groups * per_group or out % groups:
      raise ValueError(
        f"conv2d with groups={groups}: input {self.shape} has {channels} channels and weight {weight.shape} takes "
        f"{groups}*{per_group} and gives {out}, a multiple of groups"
      )
    kernel = tuple(number(k, CHANNELS) for k in weight.shape[2:])
    x = windows(pad_last(self, padding_of(padding, axes)), kernel, as_tuple(stride, axes), as_tuple(dilation, axes))
    sizes = x.shape[2 : 2 + axes]
    each = out // groups
    # (n, group, 1, c, size…, kernel…) → (n, group, out/group, size…, c, kernel…)
    x = x.reshape((n, groups, 1, per_group, *sizes, *kernel))
    x = x.permute(0, 1, 2, *range(4, 4 + axes), 3, *range(4 + axes, 4 + 2 * axes))
    w = weight.reshape((1, groups, each, *(1,) * axes, per_group, *kernel))
    y = x._sum_of_products(w, tuple(range(3 + axes, 4 + 2 * axes)), dtype).reshape((n, out, *sizes))
    # in an image of padding alone there is nothing to slide back over
    steps, gaps = as_tuple(stride, axes), as_tuple(dilation, axes)
    slides = math.prod(kernel) > 1 and _overlap(kernel, steps, gaps) and all_known(self.shape) and 0 not in self.shape
    if slides and self.dtype is weight.dtype is y.dtype:
      back = SlideBack(groups, steps, gaps, tuple(padding_of(padding, axes)), self._wrap)
      y = y._derive(with_gradient((y.uop,), (self.uop, weight.uop), back, "conv2d")[0])
    if bias is None:
      return y
    bias = bias.reshape((1, out, *(1,) * axes))
    return y + (bias if dtype is None else bias._as_dtype(y.dtype))

  def conv_transpose2d(
    self, weight: Self, bias: Self | None = None, groups: int = 1, stride: Sizes = 1, dilation: Sizes = 1,
    padding: Sizes = 0, output_padding: Sizes = 0,
  ) -> Self:  # fmt: skip
    """The transpose of conv2d in its input. Weight is `(c, out/groups, kernel…)`.

    Size' = (size-1)*stride - 2*padding + dilation*(kernel-1) + 1 + output_padding.
    """
    axes = weight.ndim - 2
    channels = number(weight.shape[0], CHANNELS)
    if axes < 1 or self.ndim != axes + 2 or self.shape[1] != channels or channels % groups:
      raise ValueError(
        f"conv_transpose2d takes (n, c, size…) and (c, out/groups, kernel…), got {self.shape}, "
        f"{weight.shape}, groups={groups}"
      )
    steps, gaps, extra = as_tuple(stride, axes), as_tuple(dilation, axes), as_tuple(output_padding, axes)
    kernel = [number(k, CHANNELS) for k in weight.shape[2:]]
    per_in, per_out = channels // groups, number(weight.shape[1], CHANNELS)
    around = padding_of(padding, axes)
    if all(step == 1 for step in steps):
      w = weight.flip(*range(2, 2 + axes)).reshape((groups, per_in, per_out, *kernel)).transpose(1, 2)
      whole = [(k - 1) * d for k, d in zip(kernel, gaps)]
      pads = [(n - before, n - after + e) for n, (before, after), e in zip(whole, around, extra, strict=True)]
      w = w.reshape((groups * per_out, per_in, *kernel))
      return pad_last(self, pads).conv2d(w, bias, groups=groups, dilation=gaps)
    # Place i·step + r of the result takes tap j·step + r of element i - j: a convolution without stride, with a channel
    # for each r (Shi et al., 2016), where zeros between the elements would be multiplied as well.
    spread = weight
    for axis, gap in enumerate(gaps, start=2):
      spread = spread._spaced(axis, gap)
    sizes = [(k - 1) * d + 1 for k, d in zip(kernel, gaps)]
    taps = [-(-size // step) for size, step in zip(sizes, steps)]
    spread = pad_last(spread, [(0, t * step - size) for t, step, size in zip(taps, steps, sizes)])
    split = [n for pair in zip(taps, steps) for n in pair]
    spread = spread.reshape((groups, per_in, per_out, *split)).flip(*range(3, 3 + 2 * axes, 2))
    order = (0, 2, *range(4, 4 + 2 * axes, 2), 1, *range(3, 3 + 2 * axes, 2))
    w = spread.permute(*order).reshape((groups * per_out * math.prod(steps), per_in, *taps))
    y = pad_last(self, [(t - 1, t - 1) for t in taps]).conv2d(w, groups=groups)
    # each phase is a loop of the convolution's kernel where there are few and results are as many of each
    phases = all_known(self.shape) and all(step <= MOST_PHASES for step in steps)
    y = y if phases else y.contiguous()
    places = y.shape[2:]
    y = y.reshape((y.shape[0], groups * per_out, *steps, *places))
    y = y.permute(0, 1, *(a for i in range(axes) for a in (2 + axes + i, 2 + i)))
    y = y.reshape((y.shape[0], groups * per_out, *(n * step for n, step in zip(places, steps))))
    ends = [size - t * step for size, t, step in zip(sizes, taps, steps)]  # beyond the last tap
    cut = [(-before, end - after + e) for (before, after), end, e in zip(around, ends, extra, strict=True)]
    more = [-(int(n) + sum(c)) % step if phases else 0 for n, c, step in zip(y.shape[2:], cut, steps)]
    y = pad_last(y, [(before, after + m) for (before, after), m in zip(cut, more)])
    y = y if bias is None else y + bias.reshape((1, -1, *(1,) * axes))
    return pad_last(y.contiguous(), [(0, -m) for m in more]) if any(more) else y

  def _spaced(self, axis: int, step: int) -> Self:
    """The elements along an axis with `step - 1` zeros between them."""
    n = self.shape[axis]
    x = self.unsqueeze(axis + 1)._pad_zeros([(0, step - 1 if i == axis + 1 else 0) for i in range(self.ndim + 1)])
    return x.flatten(axis, axis + 1)._select_axis(axis, 0, (n - 1) * step + 1)

  def _pool_windows(
    self, kernel: Sequence[int], stride: Sizes | None, dilation: Sizes, padding: Sizes, ceil_mode: bool, value: float,
    behind: float | None = None,
  ) -> Self:  # fmt: skip
    """`(…, out…, kernel…)`, padded by `value`; with `ceil_mode` padded behind, by the same or by `behind`, so that a
    last window begun inside is kept.
    """
    axes, x = len(kernel), self
    steps, gaps = as_tuple(kernel if stride is None else stride, axes), as_tuple(dilation, axes)
    pads: list[tuple[sint, sint]] = [*padding_of(padding, axes)]
    if self.ndim < axes:
      raise ValueError(f"pooling over {axes} axes needs as many in shape {self.shape}")
    if ceil_mode:
      each = zip(self.shape[-axes:], kernel, steps, gaps, padding_of(padding, axes), strict=True)
      more = [extra_padding(s, k, t, d, b, a) for s, k, t, d, (b, a) in each]
      if behind is not None:
        x, pads, value = pad_last(x, pads, value), [(0, 0)] * axes, behind
      pads = [(b, a + extra) for (b, a), extra in zip(pads, more, strict=True)]
    return windows(pad_last(x, pads, value), tuple(kernel), steps, gaps)

  @overload
  def max_pool2d(
    self, kernel_size: Sizes = (2, 2), stride: Sizes | None = None, dilation: Sizes = 1, padding: Sizes = 0,
    ceil_mode: bool = False, return_indices: Literal[False] = False,
  ) -> Self: ...  # fmt: skip
  @overload
  def max_pool2d(
    self, kernel_size: Sizes = (2, 2), stride: Sizes | None = None, dilation: Sizes = 1, padding: Sizes = 0,
    ceil_mode: bool = False, *, return_indices: Literal[True],
  ) -> tuple[Self, Self]: ...  # fmt: skip
  def max_pool2d(
    self, kernel_size: Sizes = (2, 2), stride: Sizes | None = None, dilation: Sizes = 1, padding: Sizes = 0,
    ceil_mode: bool = False, return_indices: bool = False,
  ) -> Any:  # fmt: skip
    """Maximum of each window; `stride` defaults to the window. With `return_indices` a pair: also its position in the
    flattened spatial axes.
    """
    kernel = window_of(kernel_size)
    axes = len(kernel)
    last = tuple(range(-axes, 0))
    x = self._pool_windows(kernel, stride, dilation, padding, ceil_mode, dtypes.min(self.dtype))
    if not return_indices:
      return x.max(last)
    spatial = self.shape[-axes:]
    places = self._count_up(prod(spatial)).reshape(spatial)
    where = places._pool_windows(kernel, stride, dilation, padding, ceil_mode, -1).flatten(-axes)
    index = x.flatten(-axes).argmax(-1)._hot(where.shape[-1]).where(where, 0).sum(-1)
    return x.max(last), index

  def avg_pool2d(
    self, kernel_size: Sizes = (2, 2), stride: Sizes | None = None, dilation: Sizes = 1, padding: Sizes = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
  ) -> Self:  # fmt: skip
    """Mean of each window. Padding counts as zeros, or with `count_include_pad=False` not at all; what ceil_mode
    adds never counts.
    """
    kernel = window_of(kernel_size)
    x = self._pool_windows(kernel, stride, dilation, padding, ceil_mode, 0.0)
    last = tuple(range(-len(kernel), 0))
    if not ceil_mode and (count_include_pad or not any(map(any, padding_of(padding, len(kernel))))):
      return x.mean(last)
    spatial = self.shape[-len(kernel) :]
    ones = self._filled(spatial, 1, dtypes.float32)
    counted = ones._pool_windows(kernel, stride, dilation, padding, ceil_mode, float(count_include_pad), 0.0)
    total = x.sum(last)
    return total / counted.sum(last)._as_dtype(total.dtype)

  def max_unpool2d(
    self, indices: Self, kernel_size: Sizes = (2, 2), stride: Sizes | None = None, dilation: Sizes = 1,
    padding: Sizes = 0, output_size: Sequence[int] | None = None,
  ) -> Self:  # fmt: skip
    """Elements put back at the positions that max_pool2d(return_indices=True) gave; zeros elsewhere."""
    if indices.shape != self.shape:
      raise ValueError(f"max_unpool2d takes one position per element, got {indices.shape} for {self.shape}")
    kernel = window_of(kernel_size)
    axes = len(kernel)
    steps, gaps = as_tuple(kernel if stride is None else stride, axes), as_tuple(dilation, axes)
    if output_size is None:
      output_size = [
        (number(s, "axes of max_unpool2d") - 1) * t - b - a + d * (k - 1) + 1
        for s, t, k, d, (b, a) in zip(self.shape[-axes:], steps, kernel, gaps, padding_of(padding, axes), strict=True)
      ]
    spatial = tuple(int(s) for s in output_size)[-axes:]
    lead = self.shape[: self.ndim - axes]
    # overlapping windows may name a position twice, with equal values: the last counts
    values, places = (t.flatten(-axes) for t in (self, indices))
    return self._filled((*lead, math.prod(spatial)), 0).scatter(-1, places, values).reshape((*lead, *spatial))

  def interpolate(self, size: Sequence[int], mode: str = "linear", align_corners: bool = False) -> Self:
    """Resample the last axes to `size` by "linear", "cubic", "nearest" or "nearest-exact" interpolation (PyTorch's).

    The dtype stays. Integers are interpolated as floats, kept in range after each axis, and rounded at the end, halves
    upwards.
    """
    if mode not in ("linear", "cubic", "nearest", "nearest-exact"):
      raise ValueError(f"mode must be 'linear', 'cubic', 'nearest' or 'nearest-exact', got {mode!r}")
    if align_corners and mode.startswith("nearest"):
      raise ValueError("align_corners only goes with mode='linear' and 'cubic'")
    return self._resampled([int(s) for s in size], mode, align_corners, [None] * len(size))

  def _resampled(self, sizes: Sequence[int], mode: str, align_corners: bool, scales: Sequence[float | None]) -> Self:
    """The last axes resampled, from the last to the first, in this dtype."""
    out = self if mode.startswith("nearest") else self._as_dtype(self._resampling_dtype())
    for axis, (new, scale) in reversed(list(enumerate(zip(sizes, scales, strict=True), start=self.ndim - len(sizes)))):
      out = out._resample(axis, new, mode, align_corners, scale)
      if mode == "cubic" and not dtypes.is_float(self.dtype):  # it goes beyond the values it is made of
        out = out.clamp(float(dtypes.min(self.dtype)), float(dtypes.max(self.dtype)))
    return out._rounded_to(self.dtype)

  def _resampling_dtype(self) -> DType:
    """The float in which elements are averaged: 32 bits at least, and 64 for integers that need them."""
    wide = dtypes.is_int(self.dtype) and self.dtype.bits >= 32
    return dtypes.float64 if wide else dtypes.promote(self.dtype, dtypes.float32)

  def _rounded_to(self, dtype: DType) -> Self:
    """Cast to `dtype`; floats to integers rounded, halves upwards, and kept in range."""
    if not dtypes.is_float(self.dtype) or dtypes.is_float(dtype):
      return self._as_dtype(dtype)
    if dtypes.is_bool(dtype):
      return self.ge(0.5)
    low, high = dtypes.min(dtype), dtypes.max(dtype)
    whole = (self + 0.5).floor().maximum(low)
    # the greatest of 64 bits are no floats: what is beyond them is chosen after the cast
    return (whole >= float(high)).where(self.const_like(high, dtype), whole._as_dtype(dtype))

  def _resample(self, axis: int, new: int, mode: str, align_corners: bool, scale: float | None = None) -> Self:
    """One axis of `interpolate`, as sums of at most four elements with weights. `scale` says how much longer the axis
    becomes where that is not new / old. Of floats of 32 bits at least, but for the nearest element.
    """
    old = number(self.shape[axis], "axes that are resampled")
    if old < 1 or new < 1:
      raise ValueError(f"interpolate needs sizes of at least 1, got {old} resampled to {new}")
    step = old / new if scale is None else 1 / scale
    at = self._count_up(new)._as_dtype(dtypes.float64)
    if mode.startswith("nearest"):
      low = ((at + 0.5) * step if mode == "nearest-exact" else at * step).floor()
      return self.transpose(axis, -1)._picked(low, old)._as_dtype(self.dtype).transpose(axis, -1)
    # (at + 0.5) * step - 0.5 without a product in a sum: the element at or before a place is the same if they are fused
    at = at * ((old - 1) / max(new - 1, 1)) if align_corners else (at + (0.5 - 0.5 / step)) * step
    if mode == "linear":
      at = at.clamp(0, old - 1)
    low = at.floor()
    share = (at - low)._as_dtype(self.dtype)
    weights = [share.mul(-1) + 1, share] if mode == "linear" else share._cubic_weights()
    x = self.transpose(axis, -1)
    first = 0 if mode == "linear" else -1
    terms = [x._picked(low + tap, old) * weight for tap, weight in enumerate(weights, start=first)]
    return reduce(operator.add, terms).transpose(axis, -1)

  def _picked(self, index: Self, size: int) -> Self:
    """Elements of the last axis at whole positions; the first and the last one stand for those outside."""
    return index.clamp(0, size - 1)._as_dtype(dtypes.int32)._hot(size).where(self.unsqueeze(-2), 0).sum(-1)

  def _cubic_weights(self) -> list[Self]:
    """Weights of the four elements around places that are `self`, in [0, 1), behind the second (Keys, 1981; with
    a = -3/4, as PyTorch has it).
    """
    a = -0.75

    def near(x: Self) -> Self:
      return ((x * (a + 2) - (a + 3)) * x) * x + 1

    def far(x: Self) -> Self:
      return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(self + 1), near(self), near(self.mul(-1) + 1), far(self.mul(-1) + 2)]


def extra_padding(size: sint, kernel: int, stride: int, dilation: int, before: int, after: int) -> sint:
  """What ceil_mode adds behind an axis: windows are rounded up in number, but must start inside the input or the
  padding before.
  """
  span, padded = dilation * (kernel - 1) + 1, size + before + after
  last = least((padded - span + stride - 1) // stride, (size + before - 1) // stride)
  return greatest(last * stride + span - padded, 0)
