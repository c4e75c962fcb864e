"""Pooling with PyTorch's arguments, over the last axes of `(n, c, size…)` or `(c, size…)`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tiny_tensor.methods.windows import Sizes
from tiny_tensor.nn.functional.axes import for_axes, pad_pairs
from tiny_tensor.shapes import as_tuple
from tiny_tensor.tensor import Tensor
from tiny_uop import prod

__all__ = [
  "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
  "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
  "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip


def _window(
  axes: int, kernel_size: Sizes, stride: Sizes | None, padding: Sizes
) -> tuple[tuple[int, ...], Sizes | None, list[int]]:
  """Window, stride (None, or an empty tuple: the window) and padding as the methods of Tensor take them. ValueError for
  negative padding, and for more than half a window."""
  kernel, pads = as_tuple(kernel_size, axes), as_tuple(padding, axes)
  if any(not 0 <= 2 * p <= k for p, k in zip(pads, kernel, strict=True)):
    raise ValueError(f"padding {padding} must not be negative, and at most half of the window {kernel}")
  return kernel, None if stride in (None, (), []) else stride, pad_pairs(pads, axes)


def _max(
  axes: int,
  input: Tensor,
  kernel_size: Sizes,
  stride: Sizes | None = None,
  padding: Sizes = 0,
  dilation: Sizes = 1,
  ceil_mode: bool = False,
  return_indices: bool = False,
) -> Any:
  """Maximum of each window of `(n, c, size…)`. With `return_indices` also its int32 position in the flattened spatial
  axes."""
  kernel, steps, pads = _window(axes, kernel_size, stride, padding)
  pool: Any = input.max_pool2d
  return pool(kernel, steps, dilation, pads, ceil_mode, return_indices)


max_pool1d, max_pool2d, max_pool3d = for_axes("max_pool{}d", _max)


def _avg(
  axes: int,
  input: Tensor,
  kernel_size: Sizes,
  stride: Sizes | None = None,
  padding: Sizes = 0,
  ceil_mode: bool = False,
  count_include_pad: bool = True,
  divisor_override: int | None = None,
) -> Tensor:
  """Mean of each window of `(n, c, size…)`. Padding counts as zeros unless `count_include_pad` is False;
  `divisor_override` takes the place of the size of the window."""
  kernel, steps, pads = _window(axes, kernel_size, stride, padding)
  if divisor_override == 0:
    raise ValueError("divisor_override must not be 0")
  if divisor_override is None:
    return input.avg_pool2d(kernel, steps, 1, pads, ceil_mode, count_include_pad)
  seen = input._pool_windows(kernel, steps, 1, pads, ceil_mode, 0.0)
  return seen.sum(tuple(range(seen.ndim - axes, seen.ndim))) / divisor_override


avg_pool2d, avg_pool3d = for_axes("avg_pool{}d", _avg, (2, 3))


def avg_pool1d(
  input: Tensor,
  kernel_size: Sizes,
  stride: Sizes | None = None,
  padding: Sizes = 0,
  ceil_mode: bool = False,
  count_include_pad: bool = True,
) -> Tensor:
  """Mean of each window; padding counts as zeros unless `count_include_pad` is False."""
  return _avg(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _bounds(size: int, new: int) -> list[tuple[int, int]]:
  """Windows of adaptive pooling: `new` of them, as equal as they can be, over `size` elements."""
  return [(i * size // new, -(-(i + 1) * size // new)) for i in range(new)]


def _sizes(input: Tensor, output_size: Any, axes: int) -> list[int]:
  """Sizes after adaptive pooling. Raises ValueError for negative ones, and for an input without channels."""
  given = as_tuple(output_size, axes)
  if input.ndim not in (axes + 1, axes + 2):
    raise ValueError(f"pooling over {axes} axes takes (n, c, size…) or (c, size…), got shape {input.shape}")
  sizes = [int(old) if new is None else int(new) for old, new in zip(input.shape[-axes:], given, strict=True)]
  if min(sizes, default=0) < 0:
    raise ValueError(f"output_size must not be negative, got {output_size}")
  return sizes


def adaptive_avg(axes: int, input: Tensor, output_size: Any) -> Tensor:
  """Means of `output_size` windows of (almost) equal size; None keeps a size."""
  out = input
  for axis, new in zip(range(input.ndim - axes, input.ndim), _sizes(input, output_size, axes), strict=True):
    size = int(out.shape[axis])
    if new and size % new == 0:
      out = out.unflatten(axis, (new, size // new)).mean(axis + 1)
    else:
      parts = [out._select_axis(axis, a, b).mean(axis, keepdim=True) for a, b in _bounds(size, new)]
      out = parts[0].cat(*parts[1:], dim=axis) if parts else out._select_axis(axis, 0, 0)
  return out


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = for_axes("adaptive_avg_pool{}d", adaptive_avg)


def maxima_at(input: Tensor, places: Sequence[Tensor], fits: Sequence[Tensor] | None, return_indices: bool) -> Any:
  """Maxima of windows over the last axes. `places` has for each of them int32 `(…, windows, taps)`, `fits` bool of the
  same shape, whether a place counts. With `return_indices` also int32 positions in the flattened axes."""
  # the windows of all axes at once, so that the first of equal maxima is that of the window and not of an axis
  axes = len(places)
  lead, old = input.shape[:-axes], input.shape[-axes:]

  def across(parts: Sequence[Tensor], join: Callable[[Tensor, int, Tensor], Tensor]) -> Tensor:
    out: Tensor | None = None
    for axis, part in enumerate(parts):
      shape = [1] * (2 * axes)
      shape[axis], shape[axes + axis] = (int(s) for s in part.shape[-2:])
      part = part.reshape((*part.shape[:-2], *shape))
      out = part if out is None else join(out, axis, part)
    assert out is not None
    count = out.ndim - 2 * axes
    return out.flatten(count + axes).flatten(count, count + axes - 1).broadcast_to((*lead, *map(prod, sizes)))

  sizes = ([int(p.shape[-2]) for p in places], [int(p.shape[-1]) for p in places])
  index = across(places, lambda flat, axis, place: flat * int(old[axis]) + place)
  seen = input.flatten(len(lead)).gather(-1, index.flatten(-2)).reshape(index.shape)
  if fits is not None:
    seen = across(fits, lambda all_fit, axis, fit: all_fit & fit).where(seen, -math.inf)
  out = seen.max(-1).reshape((*lead, *sizes[0]))
  if not return_indices:
    return out
  return out, index.gather(-1, seen.argmax(-1, keepdim=True)).reshape(out.shape)


def _adaptive_max(axes: int, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
  """Maxima of `output_size` windows of (almost) equal size, and their int32 positions with `return_indices`."""
  new = _sizes(input, output_size, axes)
  if 0 in (*input.shape, *new):
    empty = input._filled((*input.shape[:-axes], *new), 0)
    return (empty, empty.int()) if return_indices else empty
  places, fits = [], []
  for size, count in zip(input.shape[-axes:], new, strict=True):
    bounds = _bounds(int(size), count)
    taps = range(max(b - a for a, b in bounds))
    places.append(Tensor([[min(a + t, int(size) - 1) for t in taps] for a, _ in bounds], device=input.device))
    fits.append(Tensor([[a + t < b for t in taps] for a, b in bounds], device=input.device))
  return maxima_at(input, places, fits, return_indices)


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = for_axes("adaptive_max_pool{}d", _adaptive_max)


def _unpool(
  axes: int,
  input: Tensor,
  indices: Tensor,
  kernel_size: Sizes,
  stride: Sizes | None = None,
  padding: Sizes = 0,
  output_size: Sequence[int] | None = None,
) -> Tensor:
  """Elements put back at the positions that max pooling gave, zeros elsewhere."""
  kernel, steps, pads = _window(axes, kernel_size, stride, padding)
  return input.max_unpool2d(indices, kernel, steps, 1, pads, output_size)


max_unpool1d, max_unpool2d, max_unpool3d = for_axes("max_unpool{}d", _unpool)
