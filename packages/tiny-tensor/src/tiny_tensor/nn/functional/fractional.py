"""Maxima of windows that begin at random (Graham, "Fractional max-pooling", 2014), with PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiny_tensor.methods.windows import Sizes
from tiny_tensor.nn.functional.axes import for_axes
from tiny_tensor.nn.functional.pooling import maxima_at
from tiny_tensor.shapes import as_tuple
from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes

__all__ = ["fractional_max_pool2d", "fractional_max_pool3d"]


def _starts(samples: Tensor, size: int, kernel: int, count: int) -> Tensor:
  """int32 `(n, c, count)`: where windows begin, from random numbers `(n, c)` in [0, 1); the last one ends with the
  axis."""
  if count == 1:
    return samples._filled((*samples.shape, 1), size - kernel, dtypes.int32)
  alpha = (size - kernel) / (count - 1)
  u = samples.unsqueeze(-1)
  places = ((u + samples._count_up(count)) * alpha).trunc() - (u * alpha).trunc()
  last = samples._count_up(count).eq(count - 1)
  return last.where(size - kernel, places)._as_dtype(dtypes.int32)


def _fractional(
  axes: int,
  input: Tensor,
  kernel_size: Sizes,
  output_size: Sizes | None = None,
  output_ratio: float | Sequence[float] | None = None,
  return_indices: bool = False,
  _random_samples: Tensor | None = None,
) -> Any:
  """Maxima of `output_size` windows, or of `output_ratio` times the size, that begin at random, with steps of two
  neighbouring sizes. With `return_indices` also their int32 positions in the flattened spatial axes. `_random_samples
  (n, c, axes)` are numbers in [0, 1) in the place of those drawn.
  """
  name = f"fractional_max_pool{axes}d"
  if input.ndim not in (axes + 1, axes + 2):
    raise ValueError(f"{name} takes (n, c, size…) or (c, size…) with {axes} sizes, got shape {input.shape}")
  if (output_size is None) == (output_ratio is None):
    raise ValueError(f"{name} needs output_size or output_ratio, and not both: got {output_size} and {output_ratio}")
  kernel, old = as_tuple(kernel_size, axes), [int(s) for s in input.shape[-axes:]]
  if output_size is not None:
    new = list(as_tuple(output_size, axes))
  else:
    assert output_ratio is not None
    ratios = list(output_ratio) if isinstance(output_ratio, Sequence) else [output_ratio] * axes
    if len(ratios) != axes or not all(0 < r < 1 for r in ratios):
      raise ValueError(f"{name}: output_ratio must be {axes} numbers between 0 and 1, got {output_ratio}")
    new = [int(s * r) for s, r in zip(old, ratios, strict=True)]
  if any(k < 1 or o < 1 or o + k - 1 > s for k, o, s in zip(kernel, new, old, strict=True)):
    raise ValueError(f"{name}: {new} windows of size {tuple(kernel)} do not fit in {old}")
  x = input.unsqueeze(0) if input.ndim == axes + 1 else input
  n, c = (int(s) for s in x.shape[:2])
  samples = Tensor.rand(n, c, axes, device=x.device) if _random_samples is None else _random_samples
  if samples.shape != (n, c, axes):
    raise ValueError(f"{name}: _random_samples have shape {samples.shape}, expected {(n, c, axes)}")
  # PyTorch's order: of two axes the last one first
  order = [1, 0] if axes == 2 else range(axes)
  starts = [_starts(samples[..., o], *sizes) for o, *sizes in zip(order, old, kernel, new, strict=True)]
  places = [begin.unsqueeze(-1) + begin._count_up(k) for begin, k in zip(starts, kernel, strict=True)]
  found = maxima_at(x, places, None, return_indices)
  if input.ndim != axes + 1:
    return found
  return tuple(t.squeeze(0) for t in found) if return_indices else found.squeeze(0)


fractional_max_pool2d, fractional_max_pool3d = for_axes("fractional_max_pool{}d", _fractional, (2, 3))
