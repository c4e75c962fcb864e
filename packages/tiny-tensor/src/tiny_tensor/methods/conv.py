"""Convolution and its transpose over any number of spatial axes, by windows as views."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from tiny_tensor.autograd.custom_gradient import Grads, with_gradient
from tiny_tensor.base import DTypeLike, TensorBase
from tiny_tensor.methods.windows import Sizes, pad_last, padding_of, windows
from tiny_tensor.shapes import as_tuple, number
from tiny_uop import UOp
from tiny_uop.records import dataclass
from tiny_uop.shape import all_known

CHANNELS = "channels and kernels of convolutions"
SUMMED_AT_ONCE = 4096  # places, in the gradient of a kernel


@dataclass(frozen=True)
class SlideBack:
  """The gradient of a convolution without stride in its input is a convolution, in which the kernel slides the other
  way. Left to the table, it would be a matrix product that writes out every window, and sums over windows.
  """

  groups: int
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
    back = gradient.conv_transpose2d(w, groups=groups, dilation=self.dilation, padding=flat)
    # the sum over images and places, some images at a time: their gradients stay in the cache while they meet every
    # tap of every channel
    some = max(b for b in range(1, n + 1) if n % b == 0 and (b == 1 or b * math.prod(sizes) <= SUMMED_AT_ONCE))
    x = windows(pad_last(source, list(self.padding)).contiguous(), kernel, (1,) * axes, self.dilation)
    x = x.reshape((n // some, some, groups, 1, per_group, *sizes, *kernel))
    each = gradient.reshape((n // some, some, groups, out // groups, 1, *sizes, *(1,) * axes))
    along = x._sum_of_products(each, (1, *range(5, 5 + axes)))
    along = along if n == some else along.contiguous()
    return back.uop, along.sum(0).reshape(w.shape).uop


class ConvMixin(TensorBase):
  """conv2d and conv_transpose2d. The layout is (batch, channels, spatial axes…)."""

  __slots__ = ()

  def conv2d(
    self,
    weight: Self,
    bias: Self | None = None,
    groups: int = 1,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    dtype: DTypeLike | None = None,
  ) -> Self:
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
    slides = all(s == 1 for s in as_tuple(stride, axes)) and all_known(self.shape) and 0 not in self.shape
    if slides and math.prod(kernel) > 1 and self.dtype is weight.dtype is y.dtype:
      back = SlideBack(groups, as_tuple(dilation, axes), tuple(padding_of(padding, axes)), self._wrap)
      y = y._derive(with_gradient((y.uop,), (self.uop, weight.uop), back, "conv2d")[0])
    if bias is None:
      return y
    bias = bias.reshape((1, out, *(1,) * axes))
    return y + (bias if dtype is None else bias._as_dtype(y.dtype))

  def conv_transpose2d(
    self,
    weight: Self,
    bias: Self | None = None,
    groups: int = 1,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
  ) -> Self:
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
    y = pad_last(self, [(t - 1, t - 1) for t in taps]).conv2d(w, groups=groups).contiguous()
    places = y.shape[2:]
    y = y.reshape((y.shape[0], groups * per_out, *steps, *places))
    y = y.permute(0, 1, *(a for i in range(axes) for a in (2 + axes + i, 2 + i)))
    y = y.reshape((y.shape[0], groups * per_out, *(n * step for n, step in zip(places, steps))))
    ends = [size - t * step for size, t, step in zip(sizes, taps, steps)]  # beyond the last tap
    y = pad_last(y, [(-before, end - after + e) for (before, after), end, e in zip(around, ends, extra, strict=True)])
    return y if bias is None else y + bias.reshape((1, -1, *(1,) * axes))

  def _spaced(self, axis: int, step: int) -> Self:
    """The elements along an axis with `step - 1` zeros between them."""
    n = self.shape[axis]
    x = self.unsqueeze(axis + 1)._pad_zeros([(0, step - 1 if i == axis + 1 else 0) for i in range(self.ndim + 1)])
    return x.flatten(axis, axis + 1)._select_axis(axis, 0, (n - 1) * step + 1)
