"""Pooling with PyTorch's arguments, over the last axes of `(n, c, size…)` or `(c, size…)`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tiny_tensor.methods.windows import Sizes
from tiny_tensor.nn.functional.axes import for_axes, pad_pairs
from tiny_tensor.shapes import as_tuple
from tiny_tensor.tensor import Tensor

__all__ = [
  "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
  "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
  "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip


def _check_padding(padding: Sizes, kernel: Sequence[int]) -> None:
  """ValueError for negative padding, and for more than half a window."""
  if any(not 0 <= 2 * p <= k for p, k in zip(as_tuple(padding, len(kernel)), kernel, strict=True)):
    raise ValueError(f"padding {padding} must not be negative, and at most half of the window {tuple(kernel)}")


def _steps(stride: Sizes | None) -> Sizes | None:
  """PyTorch's way to leave the stride out is also an empty tuple."""
  return None if stride is None or stride == () or stride == [] else stride


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
  kernel = as_tuple(kernel_size, axes)
  _check_padding(padding, kernel)
  pads = pad_pairs(padding, axes)
  if return_indices:
    return input.max_pool2d(kernel, _steps(stride), dilation, pads, ceil_mode, return_indices=True)
  return input.max_pool2d(kernel, _steps(stride), dilation, pads, ceil_mode)


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
  kernel = as_tuple(kernel_size, axes)
  _check_padding(padding, kernel)
  if divisor_override == 0:
    raise ValueError("divisor_override must not be 0")
  pads = pad_pairs(padding, axes)
  if divisor_override is None:
    return input.avg_pool2d(kernel, _steps(stride), 1, pads, ceil_mode, count_include_pad)
  seen = input._pool_windows(kernel, _steps(stride), 1, pads, ceil_mode, 0.0)
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


def _adaptive_max(axes: int, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
  """Maxima of `output_size` windows of (almost) equal size, and their int32 positions with `return_indices`."""
  # the windows of all axes at once, so that the first of equal maxima is that of the window and not of an axis
  old, new = [int(s) for s in input.shape[-axes:]], _sizes(input, output_size, axes)
  spans = [_bounds(s, n) for s, n in zip(old, new, strict=True)]
  wide = [max((b - a for a, b in bounds), default=1) for bounds in spans]
  inside: list[bool] = []
  places: list[int] = []
  starts = [[]] if axes == 0 else [[a] for a in spans[0]]
  for bounds in spans[1:]:
    starts = [[*s, b] for s in starts for b in bounds]
  for window in starts:
    for tap in range(math.prod(wide)):
      at, flat, fits = tap, 0, True
      offsets: list[int] = []
      for w in reversed(wide):
        offsets.insert(0, at % w)
        at //= w
      for (a, b), offset, size in zip(window, offsets, old, strict=True):
        fits &= a + offset < b
        flat = flat * size + min(a + offset, size - 1)
      inside.append(fits)
      places.append(flat)
  shape = (math.prod(new), math.prod(wide))
  lead = tuple(int(s) for s in input.shape[:-axes])
  if 0 in (*lead, *shape):
    empty = input._filled((*lead, *new), 0)
    return (empty, empty.int()) if return_indices else empty
  index = Tensor(places, device=input.device).reshape(shape)
  mask = Tensor(inside, device=input.device).reshape(shape)
  seen = mask.where(input.flatten(len(lead))[(slice(None),) * len(lead) + (index,)], -math.inf)
  out = seen.max(-1).reshape((*lead, *new))
  if not return_indices:
    return out
  chosen = index.broadcast_to(seen.shape).gather(-1, seen.argmax(-1, keepdim=True)).squeeze(-1)
  return out, chosen.reshape((*lead, *new))


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
  kernel = as_tuple(kernel_size, axes)
  return input.max_unpool2d(indices, kernel, _steps(stride), 1, pad_pairs(padding, axes), output_size)


max_unpool1d, max_unpool2d, max_unpool3d = for_axes("max_unpool{}d", _unpool)
