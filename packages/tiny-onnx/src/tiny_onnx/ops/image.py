"""Images: resizing, sampling at places, regions of interest, boxes, decoding of files."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tiny_onnx.errors import ModelError
from tiny_onnx.ops.shape import axes_of
from tiny_onnx.pictures import decoded
from tiny_onnx.registry import Call, op
from tiny_onnx.values import Host, Value, checked_count, checked_rank, host_of, ints_of, shape_of, tensor_of
from tiny_tensor import Tensor, dtypes

Array = np.ndarray[Any, Any]

MOST_PHASES = 4
"""How many times as long an axis may become by slices."""

# Resize: along each axis, an output element is a sum of input elements with weights. Places and weights are known
# before anything runs; the tensor is gathered and multiplied, one axis after the other.


def source_places(mode: str, size: int, out: int, scale: float, roi: tuple[float, float]) -> Array:
  """Where the elements of an output axis lie on the input axis, as the coordinate transformation says."""
  x = np.arange(out, dtype=np.float64)
  if mode == "align_corners":
    return x * (size - 1) / (scale * size - 1) if out > 1 else np.zeros(out)
  if mode == "asymmetric":
    return x / scale
  if mode == "pytorch_half_pixel":
    return (x + 0.5) / scale - 0.5 if out > 1 else np.zeros(out)
  if mode == "half_pixel_symmetric":
    adjustment = out / (scale * size)
    centre = size / 2
    return centre * (1 - adjustment) + (x + 0.5) / scale - 0.5
  if mode == "tf_crop_and_resize":
    start, end = roi
    if out == 1:
      return np.full(1, 0.5 * (start + end) * (size - 1))
    return start * (size - 1) + x * (end - start) * (size - 1) / (out - 1)
  if mode == "half_pixel":
    return (x + 0.5) / scale - 0.5
  if mode == "tf_half_pixel_for_nn":
    return (x + 0.5) / scale
  raise ModelError(f"there is no coordinate transformation {mode!r}")


ROUNDINGS: dict[str, Callable[[Array], Array]] = {
  "round_prefer_floor": lambda x: np.ceil(x - 0.5),
  "round_prefer_ceil": lambda x: np.floor(x + 0.5),
  "floor": np.floor,
  "ceil": np.ceil,
  "simple": np.trunc,
}


def linear(x: Array) -> Array:
  return np.maximum(0, 1 - np.abs(x))


def cubic(a: float) -> Callable[[Array], Array]:
  """Keys' kernel of cubic convolution."""

  def kernel(x: Array) -> Array:
    x = np.abs(x)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))

  return kernel


def taps(
  places: Array, kernel: Callable[[Array], Array], radius: int, size: int, scale: float, antialias: bool, exclude: bool
) -> tuple[Array, Array]:
  """(indices, weights), both (out, taps), of the input elements that each output element is a sum of."""
  stretch = min(scale, 1.0) if antialias else 1.0
  reach = radius / stretch
  first = np.ceil(places - reach).astype(np.int64) if antialias else np.floor(places).astype(np.int64) - radius + 1
  count = int(math.ceil(2 * reach)) + (1 if antialias else 0)
  checked_count(count * len(places), "weights of a resize")
  indices = first[:, None] + np.arange(count)
  weights = kernel((indices - places[:, None]) * stretch)
  outside = (indices < 0) | (indices >= size)
  if exclude:
    weights = np.where(outside, 0, weights)
  if exclude or antialias:
    total = weights.sum(1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
  return np.clip(indices, 0, size - 1), weights


def resize_axis(x: Tensor, axis: int, indices: Array, weights: Array | None) -> Tensor:
  """Sums of elements along an axis: each output element has a row of indices and weights."""
  before = (slice(None),) * axis
  indices = indices.astype(np.int32)
  made = in_phases(x, indices if weights is not None else indices[:, None], weights) if axis == x.ndim - 1 else None
  if made is not None:
    return made
  if weights is None:
    return x[(*before, Tensor(indices))]
  for tap in range(indices.shape[1]):
    if not weights[:, tap].any():
      continue
    factor = Tensor(weights[:, tap].astype(np.float32)).cast(x.dtype)
    part = x[(*before, Tensor(np.ascontiguousarray(indices[:, tap])))] * factor.reshape(-1, *[1] * (x.ndim - 1 - axis))
    made = part if made is None else made + part
  return x[(*before, Tensor(np.ascontiguousarray(indices[:, 0])))] * 0 if made is None else made


def in_phases(x: Tensor, indices: Array, weights: Array | None) -> Tensor | None:
  """`resize_axis` along the last axis, where that becomes a whole number of times as long: each of so many output
  elements has inputs at the same distances, so that all are sums of slices. None for other places.

  Vectors along the axis would have to gather their elements one by one.
  """
  size, (out, count) = int(x.shape[-1]), indices.shape
  factor = out // size
  if out != factor * size or not 2 <= factor <= MOST_PHASES:
    return None
  begins = indices.reshape(size, factor, count)
  distances = begins[size // 2] - size // 2
  wrong = np.clip(np.arange(size)[:, None, None] + distances, 0, size - 1) != begins
  if weights is not None:
    wrong &= weights.reshape(begins.shape) != 0
  if wrong.any() or abs(distances).max() >= size:
    return None
  phases = []
  for phase in range(factor):
    terms = []
    for tap, distance in enumerate(distances[phase]):
      if weights is None:
        terms.append(moved(x, int(distance)))
      elif (own := weights[phase::factor, tap]).any():
        terms.append(moved(x, int(distance)) * Tensor(own.astype(np.float32)).cast(x.dtype))
    if not terms:
      return None
    phases.append(functools.reduce(operator.add, terms))
  return phases[0].stack(*phases[1:], dim=-1).flatten(-2).contiguous()


def moved(x: Tensor, distance: int) -> Tensor:
  """The elements so far behind those of the last axis; the first and the last one stand for those outside."""
  shape = (*x.shape[:-1], abs(distance))
  if distance > 0:
    return x[..., distance:].cat(x[..., -1:].expand(*shape), dim=-1)
  return x[..., :1].expand(*shape).cat(x[..., :distance], dim=-1) if distance else x


def target_sizes(
  sizes: Sequence[int], axes: Sequence[int], scales: Sequence[float] | None, wanted: Sequence[int] | None, policy: str
) -> tuple[list[int], list[float]]:
  """(sizes, scales) of the axes that are resized."""
  if wanted is not None:
    ratios = [1.0 if w is sizes[a] else w / sizes[a] for w, a in zip(wanted, axes)]
    if policy != "stretch":
      one = min(ratios) if policy == "not_larger" else max(ratios)
      return [int(math.floor(sizes[a] * one + 0.5)) for a in axes], [one] * len(axes)
    return list(wanted), ratios
  if scales is None:
    raise ModelError("a Resize has scales or sizes")
  return [sizes[a] if s == 1 else int(math.floor(sizes[a] * s)) for s, a in zip(scales, axes)], list(scales)


def resized(
  call: Call,
  x: Tensor,
  roi: Array | None,
  scales: Sequence[float] | None,
  wanted: Sequence[int] | None,
  axes: Sequence[int],
) -> Tensor:
  """`x` resized along axes, as the attributes say."""
  mode, transformation = call["mode"], call.get("coordinate_transformation_mode", "asymmetric")
  antialias, exclude = bool(call.get("antialias", 0)), bool(call.get("exclude_outside", 0))
  policy = call.get("keep_aspect_ratio_policy", "stretch")
  if scales is not None and any(s <= 0 for s in scales):
    raise ModelError(f"scales are positive, found {list(scales)}")
  outs, ratios = target_sizes(list(shape_of(x)), axes, scales, wanted, policy)
  kind = x.dtype
  exact = x if x.is_floating_point() else x.cast(dtypes.float32)
  outside: list[tuple[int, Array]] = []
  turns = list(enumerate(zip(axes, outs, ratios)))
  if all(scale >= 1 for scale in ratios):  # rows before there are more of them
    turns.reverse()
  for i, (axis, out, scale) in turns:
    size = shape_of(x)[axis]
    area = (0.0, 1.0) if roi is None or roi.size == 0 else (float(roi[i]), float(roi[i + len(axes)]))
    if (out is size or out == size) and scale == 1 and transformation != "tf_crop_and_resize":
      continue
    checked_count(out, "a resized axis")
    places = source_places(transformation, size, out, scale, area)
    if transformation == "tf_crop_and_resize":
      outside.append((axis, (places < 0) | (places > size - 1)))
    if mode == "nearest":
      rounding = ROUNDINGS[call.get("nearest_mode", "floor" if call.version < 11 else "round_prefer_floor")]
      exact = resize_axis(exact, axis, np.clip(rounding(places), 0, size - 1), None)
      continue
    kernel, radius = (linear, 1) if mode == "linear" else (cubic(call.get("cubic_coeff_a", -0.75)), 2)
    if mode == "linear" and not antialias:
      places = np.clip(places, 0, size - 1)
    exact = resize_axis(exact, axis, *taps(places, kernel, radius, size, scale, antialias and scale < 1, exclude))
  for axis, gone in outside:
    mask = Tensor(gone).reshape(*[-1 if a == axis else 1 for a in range(exact.ndim)])
    exact = mask.where(call["extrapolation_value"], exact)
  if kind.kind in ("int", "uint") and mode != "nearest":
    exact = exact.round().clamp(kind.min, kind.max)
  return exact.cast(kind)


@op("Resize", 11, raw=True, needs=(1, 2, 3))
def resize(call: Call, x: Value, roi: Value = None, scales: Value = None, sizes: Value = None) -> Tensor:
  t = tensor_of(x)
  axes = axes_of(call, None, t.ndim)
  factors = None if scales is None or host_of(scales).size == 0 else [float(s) for s in host_of(scales).reshape(-1)]
  wanted = None if sizes is None else ints_of(sizes)
  return resized(call, t, None if roi is None else host_of(roi), factors, wanted, axes)


@op("Upsample", 9, raw=True, needs=(1,))
@op("Resize", 10, raw=True, needs=(1,))
def resize_by_scales(call: Call, x: Value, scales: Value) -> Tensor:
  t = tensor_of(x)
  return resized(call, t, None, [float(s) for s in host_of(scales).reshape(-1)], None, range(t.ndim))


@op("Upsample", 7)
def upsample(call: Call, x: Tensor) -> Tensor:
  return resized(call, x, None, call["scales"], None, range(x.ndim))


@op("Upsample")
def upsample_images(call: Call, x: Tensor) -> Tensor:
  if call.get("mode", "nearest") == "bilinear":
    call = replace(call, attributes={**call.attributes, "mode": "linear"})
  return resized(call, x, None, [1.0, 1.0, call["height_scale"], call["width_scale"]], None, range(x.ndim))


# reading images between elements


def unnormalised(grid: Tensor, size: Any, align: bool) -> Tensor:
  """Places in [-1, 1] as places of elements."""
  return (grid + 1) * ((size - 1) / 2) if align else ((grid + 1) * size - 1) / 2


def reflected(x: Tensor, low: float, high: float) -> Tensor:
  """Places mirrored at both ends until they are inside."""
  span = high - low
  if span <= 0:
    return x * 0
  away = (x - low).abs()
  turns, rest = (away / span).floor(), away % span
  return (turns % 2 == 0).where(rest + low, high - rest)


def read_at(x: Tensor, places: Sequence[Tensor], mode: str) -> Tensor:
  """Elements of `x` (n, c, …) at whole places (n, …) on each axis; 0 outside, or the nearest, by the padding mode."""
  sizes = shape_of(x)[2:]
  inside: Tensor | None = None
  flat: Tensor | None = None
  for size, place in zip(sizes, places):
    here = (place >= 0) & (place <= size - 1)
    inside = here if inside is None else inside & here
    near = place.clamp(0, size - 1).cast(dtypes.int64)
    flat = near if flat is None else flat * size + near
  assert inside is not None and flat is not None
  n, channels, out = shape_of(x)[0], shape_of(x)[1], shape_of(flat)[1:]
  at = flat.reshape(n, 1, -1).expand(n, channels, math.prod(out))
  found = x.reshape(n, channels, -1).gather(2, at).reshape(n, channels, *out)
  return inside.unsqueeze(1).where(found, 0) if mode == "zeros" else found


def cubic_weights(t: Tensor, a: float = -0.75) -> list[Tensor]:
  """Weights of the four neighbours of a place, `t` behind the second of them."""

  def near(x: Tensor) -> Tensor:
    return ((x * (a + 2) - (a + 3)) * x) * x + 1

  def far(x: Tensor) -> Tensor:
    return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a

  return [far(t + 1), near(t), near(1 - t), far(2 - t)]


@op("GridSample", 16)
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
  """`x` (n, c, …) read at places (n, …, axes) in [-1, 1], the last axis first."""
  mode = {"bilinear": "linear", "bicubic": "cubic"}.get(call["mode"], call["mode"])
  align, padding = bool(call["align_corners"]), call["padding_mode"]
  sizes = shape_of(x)[2:]
  places = [unnormalised(grid[..., len(sizes) - 1 - i], size, align) for i, size in enumerate(sizes)]

  def inward(place: Tensor, size: Any) -> Tensor:
    if padding == "border":
      return place.clamp(0, size - 1)
    if padding == "reflection":
      low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
      return reflected(place, low, high).clamp(0, size - 1)
    return place

  if mode == "nearest":
    return read_at(x, [inward(p, s).round() for p, s in zip(places, sizes)], padding)
  if mode == "linear":
    inner = [inward(p, s) for p, s in zip(places, sizes)]
    firsts = [p.floor() for p in inner]
    weights = [[1 - (p - f), p - f] for p, f in zip(inner, firsts)]
    first_tap, count = 0, 2
  elif mode == "cubic":
    firsts = [p.floor() for p in places]
    weights = [cubic_weights(p - f) for p, f in zip(places, firsts)]
    first_tap, count = -1, 4
  else:
    raise ModelError(f"mode is linear, nearest or cubic, found {call['mode']!r}")
  made: Tensor | None = None
  for combination in np.ndindex(*[count] * len(sizes)):
    at = [f + (first_tap + t) for f, t in zip(firsts, combination)]
    if mode == "cubic":
      at = [inward(p, s).round() if padding == "reflection" else inward(p, s) for p, s in zip(at, sizes)]
    weight = weights[0][combination[0]]
    for w, t in zip(weights[1:], combination[1:]):
      weight = weight * w[t]
    part = read_at(x, at, padding) * weight.unsqueeze(1)
    made = part if made is None else made + part
  assert made is not None
  return made.cast(x.dtype)


@op("AffineGrid", 20, needs=(1,))
def affine_grid(call: Call, theta: Tensor, size: Tensor) -> Tensor:
  """Places in [-1, 1] of a grid that an affine map moves."""
  sizes = ints_of(size)[2:]
  checked_count(math.prod(sizes), "a grid")
  align = bool(call["align_corners"])
  axes: list[Array] = []
  for count in sizes:
    axes.append(np.linspace(-1, 1, count) if align and count > 1 else (np.arange(count) * 2 + 1) / count - 1)
  mesh = np.meshgrid(*axes, indexing="ij")
  points = np.stack([*mesh[::-1], np.ones_like(mesh[0])], -1).reshape(1, -1, len(sizes) + 1)
  made = Tensor(points.astype(np.float32)).cast(theta.dtype).matmul(theta.transpose(1, 2))
  return made.reshape(shape_of(theta)[0], *sizes, len(sizes))


# regions of interest


@op("RoiAlign", 10, raw=True, needs=(1, 2))
def roi_align(call: Call, x: Value, rois: Value, batches: Value) -> Tensor:
  """Averages or maxima of points in the cells of boxes, read between elements (He et al. 2017)."""
  t, boxes = tensor_of(x), host_of(rois).astype(np.float64)
  checked_rank(t, 4, "images")
  if checked_rank(rois, 2, "boxes")[1] != 4:
    raise ModelError(f"boxes have 4 numbers each, found shape {boxes.shape}")
  half = (
    call.get("coordinate_transformation_mode", "output_half_pixel" if call.version < 16 else "half_pixel")
    == "half_pixel"
  )
  scale, ratio, high, wide = call["spatial_scale"], call["sampling_ratio"], call["output_height"], call["output_width"]
  parts: list[Tensor] = []
  if not len(boxes):
    return Tensor.zeros(0, t.shape[1], high, wide, dtype=t.dtype)
  for box, batch in zip(boxes, ints_of(batches)):
    x1, y1, x2, y2 = box * scale - (0.5 if half else 0)
    w, h = x2 - x1, y2 - y1
    if not half:
      w, h = max(w, 1.0), max(h, 1.0)
    ny, nx = ratio or math.ceil(h / high), ratio or math.ceil(w / wide)
    if ny < 1 or nx < 1:  # a box without a size has no points
      parts.append(Tensor.zeros(t.shape[1], high, wide, dtype=t.dtype))
      continue
    ys = y1 + (np.arange(high * ny) + 0.5) * (h / (high * ny))
    xs = x1 + (np.arange(wide * nx) + 0.5) * (w / (wide * nx))
    points = sampled_at(t[batch], ys, xs, call["mode"] == "max")
    if call["mode"] == "max":
      parts.append(points.reshape(-1, high, ny, wide, nx * 4).max((2, 4)))
    else:
      parts.append(points.reshape(-1, high, ny, wide, nx).mean((2, 4)))
  return (parts[0].stack(*parts[1:]) if len(parts) > 1 else parts[0].unsqueeze(0)).cast(t.dtype)


def sampled_at(image: Tensor, ys: Array, xs: Array, corners: bool) -> Tensor:
  """(channels, ys, xs) of an image between elements, 0 outside; with `corners` the four weighted neighbours behind."""
  height, width = shape_of(image)[1:]

  def side(p: Array, size: int) -> tuple[Array, Array, Array, Array]:
    valid = (p >= -1) & (p <= size)
    p = np.clip(p, 0, None)
    low = np.minimum(np.floor(p), size - 1).astype(np.int64)
    upper = np.minimum(low + 1, size - 1)
    p = np.where(low >= size - 1, low, p)
    return low, upper, p - low, valid

  y0, y1, fy, vy = side(ys, height)
  x0, x1, fx, vx = side(xs, width)
  valid = vy[:, None] & vx[None, :]
  flat = image.reshape(-1, height * width)
  found = []
  for yi, wy in ((y0, 1 - fy), (y1, fy)):
    for xi, wx in ((x0, 1 - fx), (x1, fx)):
      at = (yi[:, None] * width + xi[None, :]).reshape(-1)
      weight = np.where(valid, wy[:, None] * wx[None, :], 0).astype(np.float32)
      found.append(flat[:, Tensor(at)].reshape(-1, *weight.shape) * Tensor(weight))
  if corners:
    return found[0].stack(*found[1:], dim=-1)
  return found[0] + found[1] + found[2] + found[3]


@op("MaxRoiPool", raw=True, needs=(1,))
def max_roi_pool(call: Call, x: Value, rois: Value) -> Tensor:
  """Maxima in the cells of boxes (Girshick 2015)."""
  t, (high, wide) = tensor_of(x), call["pooled_shape"]
  height, width = shape_of(t)[2:]
  parts = []
  for batch, *box in host_of(rois):
    x1, y1, x2, y2 = (int(math.floor(c * call["spatial_scale"] + 0.5)) for c in box)
    h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
    for i in range(high):
      for j in range(wide):
        top, bottom = (
          min(max(math.floor(i * h / high) + y1, 0), height),
          min(max(math.ceil((i + 1) * h / high) + y1, 0), height),
        )
        left, right = (
          min(max(math.floor(j * w / wide) + x1, 0), width),
          min(max(math.ceil((j + 1) * w / wide) + x1, 0), width),
        )
        cell = t[int(batch), :, top:bottom, left:right]
        empty = bottom <= top or right <= left
        parts.append(Tensor.zeros(shape_of(t)[1], dtype=t.dtype) if empty else cell.max((1, 2)))
  made = parts[0].stack(*parts[1:]) if len(parts) > 1 else parts[0].unsqueeze(0)
  return made.reshape(-1, high, wide, shape_of(t)[1]).permute(0, 3, 1, 2)


@op("NonMaxSuppression", 10, raw=True, needs=(0, 1, 2, 3, 4))
def non_max_suppression(
  call: Call, boxes: Value, scores: Value, most: Value = None, overlap: Value = None, least: Value = None
) -> Value:
  """(batch, class, box) of the boxes that are kept: by falling score, without those that overlap too much."""
  corners, points = host_of(boxes).astype(np.float64), host_of(scores)
  if corners.ndim != 3 or points.ndim != 3 or (len(points), points.shape[2], 4) != corners.shape:
    raise ModelError(
      f"boxes of shape (batches, boxes, 4) and scores of (batches, classes, boxes) were expected, "
      f"found {corners.shape} and {points.shape}"
    )
  if call["center_point_box"]:
    x, y, w, h = np.moveaxis(corners, -1, 0)
    corners = np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
  low, high = np.minimum(corners[..., :2], corners[..., 2:]), np.maximum(corners[..., :2], corners[..., 2:])
  limit = 0 if most is None else ints_of(most)[0]
  threshold = 0.0 if overlap is None else float(host_of(overlap).reshape(-1)[0])
  floor = -math.inf if least is None else float(host_of(least).reshape(-1)[0])
  kept: list[tuple[int, int, int]] = []
  for batch, of_batch in enumerate(points):
    area = np.prod(high[batch] - low[batch], -1)
    for kind, row in enumerate(of_batch):
      order = [int(i) for i in np.argsort(-row, kind="stable") if row[i] > floor]
      chosen: list[int] = []
      for box in order:
        if len(chosen) >= limit:
          break
        shared = np.prod(
          np.maximum(
            0, np.minimum(high[batch][chosen], high[batch][box]) - np.maximum(low[batch][chosen], low[batch][box])
          ),
          -1,
        )
        union = area[chosen] + area[box] - shared
        if not (shared > threshold * union).any():
          chosen.append(box)
      kept += [(batch, kind, box) for box in chosen]
  return Host(np.array(kept, np.int64).reshape(-1, 3))


@op("ImageDecoder", 20, raw=True, needs=(0,))
def image_decoder(call: Call, data: Value) -> Tensor:
  """A picture of (height, width, channels) of uint8 from the bytes of its file. Needs the package Pillow."""
  form = call["pixel_format"]
  pixels = decoded(host_of(data).astype(np.uint8).tobytes(), form == "Grayscale")
  if form == "BGR":
    pixels = pixels[..., ::-1]
  return Tensor(np.ascontiguousarray(pixels))
