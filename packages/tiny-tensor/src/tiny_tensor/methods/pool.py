"""Pooling over any number of spatial axes, by windows as views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Self, overload

from tiny_tensor.base import TensorBase
from tiny_tensor.methods.windows import Sizes, pad_last, padding_of, windows
from tiny_tensor.shapes import as_tuple, greatest, least, number
from tiny_uop import dtypes, sint
from tiny_uop.shape import prod


def window_of(size: Sizes) -> tuple[int, ...]:
  """A window: one number is for two axes, several are one for each axis, however many."""
  return (size, size) if isinstance(size, int) else tuple(int(s) for s in size)


class PoolMixin(TensorBase):
  """The poolings of windows over the last axes."""

  __slots__ = ()

  def _pool_windows(
    self, kernel: Sequence[int], stride: Sizes | None, dilation: Sizes, padding: Sizes, ceil_mode: bool, value: float
  ) -> Self:
    """`(…, out…, kernel…)`, padded by `value`; with `ceil_mode` padded behind so that a last window begun inside is
    kept.
    """
    axes = len(kernel)
    steps, gaps = as_tuple(kernel if stride is None else stride, axes), as_tuple(dilation, axes)
    pads: list[tuple[sint, sint]] = [*padding_of(padding, axes)]
    if self.ndim < axes:
      raise ValueError(f"pooling over {axes} axes needs as many in shape {self.shape}")
    if ceil_mode:
      pads = [
        (b, a + extra_padding(s, k, t, d, b, a))
        for s, k, t, d, (b, a) in zip(self.shape[-axes:], kernel, steps, gaps, padding_of(padding, axes), strict=True)
      ]
    return windows(pad_last(self, pads, value), tuple(kernel), steps, gaps)

  @overload
  def max_pool2d(
    self,
    kernel_size: Sizes = (2, 2),
    stride: Sizes | None = None,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
  ) -> Self: ...

  @overload
  def max_pool2d(
    self,
    kernel_size: Sizes = (2, 2),
    stride: Sizes | None = None,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
  ) -> tuple[Self, Self]: ...

  def max_pool2d(
    self,
    kernel_size: Sizes = (2, 2),
    stride: Sizes | None = None,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    return_indices: bool = False,
  ) -> Self | tuple[Self, Self]:
    """Maximum of each window; `stride` defaults to the window. `return_indices` adds its position in the flattened
    spatial axes.
    """
    kernel = window_of(kernel_size)
    axes = len(kernel)
    x = self._pool_windows(kernel, stride, dilation, padding, ceil_mode, float(dtypes.min(self.dtype)) if
                          dtypes.is_float(self.dtype) else dtypes.min(self.dtype))  # fmt: skip
    last = tuple(range(x.ndim - axes, x.ndim))
    if not return_indices:
      return x.max(last)
    spatial = self.shape[-axes:]
    place = self._count_up(prod(spatial)).reshape(spatial)
    where = place._pool_windows(kernel, stride, dilation, padding, ceil_mode, -1)
    flat = x.flatten(x.ndim - axes)
    chosen = flat.argmax(-1, keepdim=True)
    hot = chosen == flat._along(flat.ndim - 1)
    index = hot.where(where.flatten(where.ndim - axes), 0).sum(-1)
    return x.max(last), index

  def avg_pool2d(
    self,
    kernel_size: Sizes = (2, 2),
    stride: Sizes | None = None,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
  ) -> Self:
    """Mean of each window. Padding counts as zeros, or with `count_include_pad=False` not at all; what ceil_mode
    adds never counts.
    """
    kernel = window_of(kernel_size)
    x = self._pool_windows(kernel, stride, dilation, padding, ceil_mode, 0.0)
    last = tuple(range(x.ndim - len(kernel), x.ndim))
    if not ceil_mode and (count_include_pad or not any(map(any, padding_of(padding, len(kernel))))):
      return x.mean(last)
    spatial = self.shape[-len(kernel) :]
    ones = self._filled(spatial, 1, dtypes.float32)
    if count_include_pad:
      ones = pad_last(ones, padding_of(padding, len(kernel)), 1.0)
      windows_per_axis = x.shape[x.ndim - 2 * len(kernel) : x.ndim - len(kernel)]
      counted = ones._windows_behind(kernel, stride, dilation, windows_per_axis)
    else:
      counted = ones._pool_windows(kernel, stride, dilation, padding, ceil_mode, 0.0)
    total = x.sum(last)
    return total / counted.sum(tuple(range(counted.ndim - len(kernel), counted.ndim)))._as_dtype(total.dtype)

  def _windows_behind(self, kernel: Sequence[int], stride: Sizes | None, dilation: Sizes, out: Sequence[sint]) -> Self:
    """Windows over all axes, padded with zeros behind until there are `out` of them."""
    steps, gaps = as_tuple(kernel if stride is None else stride, len(kernel)), as_tuple(dilation, len(kernel))
    need = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out, steps, kernel, gaps, strict=True)]
    x = windows(
      pad_last(self, [(0, greatest(n - s, 0)) for n, s in zip(need, self.shape, strict=True)]),
      tuple(kernel),
      steps,
      gaps,
    )
    return x.shrink([*[(0, o) for o in out], *[None] * len(kernel)])

  def max_unpool2d(
    self,
    indices: Self,
    kernel_size: Sizes = (2, 2),
    stride: Sizes | None = None,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
  ) -> Self:
    """Elements put back at the positions that max_pool2d(return_indices=True) gave; zeros elsewhere."""
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
    values, where = (t.flatten(t.ndim - axes).unsqueeze(-2) for t in (self, indices))
    places = self._count_up(math.prod(spatial)).unsqueeze(-1)
    # overlapping windows may name a position twice, with equal values: take the last
    hot = where == places
    last = hot.where(hot._along(hot.ndim - 1) + 1, 0).max(-1, keepdim=True)
    once = hot & (hot._along(hot.ndim - 1) + 1 == last)
    return once.where(values, 0).sum(-1)._as_dtype(self.dtype).reshape((*lead, *spatial))


def extra_padding(size: sint, kernel: int, stride: int, dilation: int, before: int, after: int) -> sint:
  """What ceil_mode adds behind an axis: windows are rounded up in number, but must start inside the input or the
  padding before.
  """
  span, padded = dilation * (kernel - 1) + 1, size + before + after
  last = least((padded - span + stride - 1) // stride, (size + before - 1) // stride)
  return greatest(last * stride + span - padded, 0)
