"""Resampling and rearranging images with PyTorch's arguments."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

from tiny_tensor.nn.functional.pooling import adaptive_avg
from tiny_tensor.shapes import as_tuple
from tiny_tensor.tensor import Tensor

__all__ = [
  "affine_grid", "channel_shuffle", "grid_sample", "interpolate", "pixel_shuffle", "pixel_unshuffle", "upsample",
  "upsample_bilinear", "upsample_nearest",
]  # fmt: skip

# the number of spatial axes that a mode is for
LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}


def interpolate(
  input: Tensor,
  size: Any = None,
  scale_factor: Any = None,
  mode: str = "nearest",
  align_corners: bool | None = None,
  recompute_scale_factor: bool | None = None,
  antialias: bool = False,
) -> Tensor:
  """Resample `(n, c, size…)` to `size`, or to sizes multiplied by `scale_factor`.

  `mode`: "nearest", "nearest-exact", "linear", "bilinear", "trilinear" (linear over one, two, three axes), "bicubic" or
  "area". The dtype stays; integers are rounded at the end, halves upwards. A scale factor is also the step between
  samples, unless `recompute_scale_factor`. Raises NotImplementedError with `antialias`.
  """
  axes = input.ndim - 2
  if (size is None) == (scale_factor is None):
    raise ValueError(f"interpolate takes one of size and scale_factor, got {size} and {scale_factor}")
  if antialias:
    raise NotImplementedError("interpolate does not know antialias=True")
  if LINEAR.get(mode, axes) != axes or (mode == "bicubic" and axes != 2):
    raise ValueError(f"mode {mode!r} is not for an input of shape {input.shape}, which has {axes} spatial axes")
  if mode in ("nearest", "nearest-exact", "area") and align_corners is not None:
    raise ValueError(f"align_corners is for linear and cubic modes, got mode {mode!r}")
  old = [int(s) for s in input.shape[2:]]
  if size is not None:
    new, scales = [int(s) for s in as_tuple(size, axes)], [None] * axes
  else:
    factors = [float(f) for f in as_tuple(scale_factor, axes)]
    new = [math.floor(s * f) for s, f in zip(old, factors, strict=True)]
    scales = [None if recompute_scale_factor else f for f in factors]  # type: ignore[misc]
  if mode == "area":
    return adaptive_avg(axes, input.cast(input._resampling_dtype()), new)._rounded_to(input.dtype)
  kind = "linear" if mode in LINEAR else "cubic" if mode == "bicubic" else mode
  return input._resampled(new, kind, bool(align_corners), scales)


def upsample(
  input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
  """`interpolate`."""
  return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
  """`interpolate` by the nearest element."""
  return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
  """`interpolate` by two linear interpolations, with the corners of both images in the same places."""
  return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
  """Channels to pixels: `(…, c·r², h, w)` → `(…, c, h·r, w·r)` (Shi et al., 2016)."""
  r = upscale_factor
  *lead, channels, height, width = (int(s) for s in input.shape)
  if r < 1 or channels % (r * r):
    raise ValueError(f"pixel_shuffle: {channels} channels of {input.shape} are no multiple of {r}²")
  x = input.reshape((*lead, channels // (r * r), r, r, height, width))
  k = len(lead)
  return (
    x.permute(*range(k), k, k + 3, k + 1, k + 4, k + 2)
    .reshape((*lead, channels // (r * r), height * r, width * r))
    ._apart()
  )


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
  """Pixels to channels, the inverse of pixel_shuffle: `(…, c, h·r, w·r)` → `(…, c·r², h, w)`."""
  r = downscale_factor
  *lead, channels, height, width = (int(s) for s in input.shape)
  if r < 1 or height % r or width % r:
    raise ValueError(f"pixel_unshuffle: {height} × {width} pixels are no multiple of {r}")
  x = input.reshape((*lead, channels, height // r, r, width // r, r))
  k = len(lead)
  moved = x.permute(*range(k), k, k + 2, k + 4, k + 1, k + 3)
  return moved.reshape((*lead, channels * r * r, height // r, width // r))._apart()


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
  """Channels `(n, groups · k, …)` in the order `(n, k · groups, …)` (Zhang et al., 2018)."""
  n, channels = (int(s) for s in input.shape[:2])
  if channels % groups:
    raise ValueError(f"channel_shuffle: groups={groups} must divide the {channels} channels of {input.shape}")
  x = input.reshape((n, groups, channels // groups, *input.shape[2:]))
  return x.transpose(1, 2).reshape(input.shape)._apart()


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
  """Positions at which `grid_sample` reads each pixel of images of shape `size (n, c, h, w)`: matrices `(n, 2, 3)` →
  `(n, h, w, 2)`."""
  rows, cols = int(size[2]), int(size[3])

  def along(n: int) -> Tensor:
    step = theta._count_up(n)._as_dtype(theta.dtype)
    return step * (2 / max(n - 1, 1)) - 1 if align_corners else (step * 2 + 1) / n - 1

  x, y = along(cols), along(rows)
  ones = theta._filled((rows, cols), 1)
  base = x.unsqueeze(0).expand(rows, cols).stack(y.unsqueeze(1).expand(rows, cols), ones, dim=-1)
  out = base.reshape((1, rows * cols, 3)).matmul(theta.transpose(1, 2))
  return out.reshape((int(size[0]), rows, cols, 2))


def grid_sample(
  input: Tensor,
  grid: Tensor,
  mode: str = "bilinear",
  padding_mode: str = "zeros",
  align_corners: bool | None = None,
) -> Tensor:
  """`(n, c, size…)` read at the positions `grid (n, size'…, axes)`, in [-1, 1] from edge to edge, the last axis first.

  `mode`: "bilinear" (linear over all axes), "nearest", or for images "bicubic"; `padding_mode` "zeros", "border" or
  "reflection" says what is outside.
  """
  axes = input.ndim - 2
  if mode not in ("bilinear", "nearest", "bicubic") or padding_mode not in ("zeros", "border", "reflection"):
    raise ValueError(f"grid_sample: no mode {mode!r} with padding_mode {padding_mode!r}")
  if mode == "bicubic" and axes != 2:
    raise ValueError(f"grid_sample: mode 'bicubic' is for images, got shape {input.shape}")
  corners = bool(align_corners)
  # the last coordinate is of the first spatial axis
  taps: list[list[tuple[Tensor, Tensor]]] = []  # for each axis: position, weight
  for axis, size in enumerate(map(int, input.shape[2:])):
    position = grid[..., axes - 1 - axis] + 1
    position = position * ((size - 1) / 2) if corners else (position * size - 1) * 0.5
    taps.append(_taps(position if mode == "bicubic" else _inside(position, size, padding_mode, corners), mode))
  out: Tensor | None = None
  for combination in itertools.product(*taps):
    at, weights = zip(*combination, strict=True)
    value = _read(input, at, padding_mode, corners) * functools.reduce(Tensor.mul, weights).unsqueeze(1)
    out = value if out is None else out + value
  assert out is not None
  return out


def _inside(position: Tensor, size: int, padding_mode: str, corners: bool) -> Tensor:
  """Positions moved inside by reflection or to the border; with "zeros" they stay."""
  if padding_mode == "reflection":
    low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
    if span == 0:
      return position * 0
    away = (position - low).abs()
    turns = (away / span).floor()
    rest = away - turns * span
    position = (turns.detach() % 2).eq(0).where(rest, span - rest) + low
  return position if padding_mode == "zeros" else position.clamp(0, size - 1)


def _taps(position: Tensor, mode: str) -> list[tuple[Tensor, Tensor]]:
  if mode == "nearest":
    return [(position.detach().round(), position.const_like(1))]
  low = position.detach().floor()
  t = position - low
  if mode == "bilinear":
    return [(low, t * -1 + 1), (low + 1, t)]
  return [(low + i, weight) for i, weight in zip((-1, 0, 1, 2), t._cubic_weights(), strict=True)]


def _read(input: Tensor, at: Sequence[Tensor], padding_mode: str, corners: bool) -> Tensor:
  """`(n, c, size'…)` of whole positions, 0 outside."""
  n, c = (int(s) for s in input.shape[:2])
  sizes = [int(s) for s in input.shape[2:]]
  positions = [_inside(position, size, padding_mode, corners) for position, size in zip(at, sizes, strict=True)]
  inside = [(p >= 0) & (p <= size - 1) for p, size in zip(positions, sizes, strict=True)]
  whole = [ok.where(p, 0).int() for p, ok in zip(positions, inside, strict=True)]
  valid, flat = functools.reduce(Tensor.bitwise_and, inside), whole[0]
  for size, place in zip(sizes[1:], whole[1:], strict=True):
    flat = flat * size + place
  index = flat.reshape((n, 1, -1)).expand(n, c, flat.numel() // n)
  found = input.flatten(2).gather(2, index).reshape((n, c, *flat.shape[1:]))
  return valid.unsqueeze(1).where(found, 0)
