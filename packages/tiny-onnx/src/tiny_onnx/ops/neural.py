"""Products, convolutions, pooling, normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiny_onnx.errors import ModelError
from tiny_onnx.ops.random import seeded_uniform
from tiny_onnx.ops.shape import axis_in, padded
from tiny_onnx.registry import Call, op
from tiny_onnx.values import DTYPES, Value, checked_count, host_of, tensor_of
from tiny_tensor import Tensor, dtypes

# products


@op("MatMul")
def matmul(call: Call, x: Tensor, y: Tensor) -> Tensor:
  return x.matmul(y).cast(x.dtype)


@op("Gemm", 7)
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
  a, b = (a.transpose(0, 1) if call["transA"] else a), (b.transpose(0, 1) if call["transB"] else b)
  product = a.matmul(b).cast(a.dtype)
  if call["alpha"] != 1:
    product = (product * call["alpha"]).cast(a.dtype)
  if c is None or call["beta"] == 0:
    return product
  return product + (c if call["beta"] == 1 else (c * call["beta"]).cast(c.dtype))


@op("Gemm", 1)
def gemm_before_broadcasting(call: Call, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
  return gemm(call, a, b, c)


@op("Einsum", 12)
def einsum(call: Call, *operands: Tensor) -> Tensor:
  return Tensor.einsum(call["equation"].replace(" ", ""), *operands).cast(operands[0].dtype)


@op("Det", 11)
def det(call: Call, x: Tensor) -> Tensor:
  return x.det()


# windows that slide


@dataclass(frozen=True)
class Window:
  """Sizes of a window that slides over the last axes."""

  kernel: list[int]
  strides: list[int]
  dilations: list[int]
  before: list[int]
  after: list[int]

  @property
  def padding(self) -> list[int]:
    """As tiny-tensor has it: the last axis first."""
    return [p for pair in reversed([*zip(self.before, self.after)]) for p in pair]


def window(call: Call, sizes: Sequence[Any], kernel: Sequence[int]) -> Window:
  """The window that attributes describe, with the padding that `auto_pad` means."""
  rank = len(sizes)
  kernel = list(kernel)
  strides, dilations = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
  if not len(kernel) == len(strides) == len(dilations) == rank:
    raise ModelError(f"kernel {kernel}, strides {strides} and dilations {dilations} are for {rank} axes")
  if any(n < 1 for n in [*kernel, *strides, *dilations]):
    raise ModelError(f"kernel {kernel}, strides {strides} and dilations {dilations} are positive")
  auto, before, after = call.get("auto_pad", "NOTSET"), [0] * rank, [0] * rank
  if auto in ("SAME_UPPER", "SAME_LOWER"):
    for i, (size, k, s, d) in enumerate(zip(sizes, kernel, strides, dilations)):
      more = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
      before[i], after[i] = (more // 2, more - more // 2) if auto == "SAME_UPPER" else (more - more // 2, more // 2)
  elif auto == "NOTSET":
    pads = call.get("pads", [0] * (2 * rank))
    if len(pads) != 2 * rank:
      raise ModelError(f"{2 * rank} numbers of padding were expected, found {pads}")
    before, after = pads[:rank], pads[rank:]
  elif auto != "VALID":
    raise ModelError(f"auto_pad is NOTSET, SAME_UPPER, SAME_LOWER or VALID, found {auto!r}")
  return Window(kernel, list(strides), list(dilations), list(before), list(after))


def convolved(call: Call, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
  span = window(call, x.shape[2:], call.get("kernel_shape", w.shape[2:]))
  groups = call.get("group", 1)
  if w.ndim != x.ndim or x.shape[1] != w.shape[1] * groups:
    raise ModelError(
      f"a convolution of {tuple(x.shape)} takes weights for its channels, found {tuple(w.shape)} in {groups} groups"
    )
  if any(p < 0 for p in span.padding):
    x = padded(x, [0, 0, *span.before, 0, 0, *span.after], range(x.ndim), "constant", 0)
    span = Window(span.kernel, span.strides, span.dilations, [0] * (x.ndim - 2), [0] * (x.ndim - 2))
  return x.conv2d(w, bias, groups, span.strides, span.dilations, span.padding)


@op("Conv")
def conv(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
  return convolved(call, x, w, bias)


@op("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
  rank = x.ndim - 2
  kernel = list(call.get("kernel_shape", w.shape[2:]))
  strides, dilations = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
  extra, auto = call.get("output_padding", [0] * rank), call.get("auto_pad", "NOTSET")
  whole = [s * (n - 1) + (k - 1) * d + 1 + e for n, k, s, d, e in zip(x.shape[2:], kernel, strides, dilations, extra)]
  wanted = call["output_shape"]
  if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
    sizes = wanted[-rank:] if wanted is not None else [n * s for n, s in zip(x.shape[2:], strides)]
    more = [a - b for a, b in zip(whole, sizes)]
    less, rest = [m // 2 for m in more], [m - m // 2 for m in more]
    before, after = (less, rest) if auto == "SAME_UPPER" else (rest, less)
  else:
    pads = call.get("pads", [0] * (2 * rank))
    before, after = pads[:rank], pads[rank:]
  if all(p >= 0 for p in [*before, *after]):
    flat = [p for pair in reversed([*zip(before, after)]) for p in pair]
    return x.conv_transpose2d(w, bias, call.get("group", 1), strides, dilations, flat, extra)
  made = x.conv_transpose2d(w, None, call.get("group", 1), strides, dilations, 0, extra)
  made = padded(made, [0, 0, *[-p for p in before], 0, 0, *[-p for p in after]], range(x.ndim), "constant", 0)
  return made if bias is None else made + bias.reshape(1, -1, *[1] * rank)


@op("DeformConv", 19)
def deform_conv(
  call: Call, x: Tensor, w: Tensor, offset: Tensor, bias: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
  """A convolution whose taps are moved by offsets, and read between elements (Dai et al. 2017, Zhu et al. 2018)."""
  n, channels, height, width = x.shape
  kh, kw = call.get("kernel_shape", w.shape[2:])
  span = window(call, (height, width), (kh, kw))
  groups, areas = call["group"], call["offset_group"]
  out_h, out_w = offset.shape[2:]
  moves = offset.reshape(n, areas, kh * kw, 2, out_h, out_w)

  def places(axis: int, count: Any, step: int, gap: int, before: int, taps: int) -> Tensor:
    grid = (Tensor.arange(count) * step - before).reshape(*[count if a == axis else 1 for a in range(2)])
    tap = Tensor.arange(kh * kw) // kw if axis == 0 else Tensor.arange(kh * kw) % kw
    return (tap * gap).reshape(kh * kw, 1, 1) + grid

  y = moves[:, :, :, 0] + places(0, out_h, span.strides[0], span.dilations[0], span.before[0], kh)
  z = moves[:, :, :, 1] + places(1, out_w, span.strides[1], span.dilations[1], span.before[1], kw)
  rows = x.reshape(n, areas, channels // areas, height * width)
  sampled: Tensor | None = None
  for down in (0, 1):
    for right in (0, 1):
      i, j = y.floor() + down, z.floor() + right
      share = (1 - (y - i).abs()) * (1 - (z - j).abs())
      inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
      at = (inside.where(i, 0) * width + inside.where(j, 0)).cast(dtypes.int64).reshape(n, areas, 1, -1)
      found = rows.gather(3, at.expand(n, areas, channels // areas, at.shape[-1]))
      part = found * inside.where(share, 0).reshape(n, areas, 1, -1)
      sampled = part if sampled is None else sampled + part
  assert sampled is not None
  sampled = sampled.reshape(n, areas, channels // areas, kh * kw, out_h * out_w)
  if mask is not None:
    sampled = sampled * mask.reshape(n, areas, 1, kh * kw, out_h * out_w)
  columns = sampled.reshape(n, groups, channels // groups * kh * kw, out_h * out_w)
  made = w.reshape(groups, w.shape[0] // groups, -1).matmul(columns).reshape(n, w.shape[0], out_h, out_w)
  return made if bias is None else made + bias.reshape(1, -1, 1, 1)


def overhang(size: Any, span: Window, i: int, ceil: bool) -> int:
  """Elements that the last window of an axis reaches beyond the padding, where the number of windows is rounded up."""
  reach = (span.kernel[i] - 1) * span.dilations[i] + 1
  whole = size + span.before[i] + span.after[i]
  if not ceil:
    return 0
  count = -(-(whole - reach) // span.strides[i]) + 1
  if (count - 1) * span.strides[i] >= size + span.before[i]:
    count -= 1
  return max(0, int((count - 1) * span.strides[i] + reach - whole))


def windows_of(x: Tensor, span: Window, value: float, ceil: bool = False) -> Tensor:
  """`x` with its windows as axes behind: (…, places, …, kernel, …)."""
  rank = len(span.kernel)
  front = x.ndim - rank
  after = [a + overhang(x.shape[front + i], span, i, ceil) for i, a in enumerate(span.after)]
  x = x.pad(((0, 0),) * front + tuple(zip(span.before, after)), value=value)
  for i in range(rank):
    x = x.unfold(front + i, (span.kernel[i] - 1) * span.dilations[i] + 1, span.strides[i])
    x = x[..., :: span.dilations[i]]
  return x


@op("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
  span = window(call, x.shape[2:], call["kernel_shape"])
  ceil, counted = bool(call["ceil_mode"]), bool(call["count_include_pad"])
  return x.avg_pool2d(tuple(span.kernel), tuple(span.strides), tuple(span.dilations), span.padding, ceil, counted)


@op("LpPool")
def lp_pool(call: Call, x: Tensor) -> Tensor:
  span, p = window(call, x.shape[2:], call["kernel_shape"]), call["p"]
  found = windows_of(x, span, 0.0, bool(call["ceil_mode"])).abs().pow(p)
  return found.sum(tuple(range(-len(span.kernel), 0))).pow(1 / p).cast(x.dtype)


@op("MaxPool")
def max_pool(call: Call, x: Tensor) -> Any:
  span = window(call, x.shape[2:], call["kernel_shape"])
  arguments = tuple(span.kernel), tuple(span.strides), tuple(span.dilations), span.padding, bool(call["ceil_mode"])
  if not call.wants(1):
    return x.max_pool2d(*arguments)
  found, places = x.max_pool2d(*arguments, return_indices=True)
  sizes = x.shape[2:]
  places = places.cast(dtypes.int64)
  if call["storage_order"]:  # the first of the axes is the one that counts in ones
    left, column, step = places, Tensor.zeros_like(places), math.prod(sizes)
    for size in reversed(sizes):
      step //= size
      column = column + left % size * step
      left = left // size
    places = column
  first = Tensor.arange(x.shape[0] * x.shape[1], dtype=dtypes.int64) * math.prod(sizes)
  return found, places + first.reshape(x.shape[0], x.shape[1], *[1] * len(sizes))


@op("MaxUnpool", 9, needs=(2,))
def max_unpool(call: Call, x: Tensor, places: Tensor, shape: Tensor | None = None) -> Tensor:
  rank = x.ndim - 2
  span = window(call, x.shape[2:], call["kernel_shape"])
  inferred = [
    (n - 1) * s - b - a + k for n, s, k, b, a in zip(x.shape[2:], span.strides, span.kernel, span.before, span.after)
  ]
  smaller = [*x.shape[:2], *inferred]
  made = Tensor.zeros(math.prod(smaller), dtype=x.dtype).scatter(0, places.reshape(-1), x.reshape(-1)).reshape(*smaller)
  if shape is None:
    return made
  # places count in the smaller shape; the larger one has them in the same rows and columns
  wanted = [int(s) for s in host_of(shape)]
  return made.pad(tuple((0, w - s) for w, s in zip(wanted, smaller))) if len(wanted) == rank + 2 else made


@op("GlobalAveragePool")
def global_average_pool(call: Call, x: Tensor) -> Tensor:
  return x.mean(tuple(range(2, x.ndim)), True)


@op("GlobalMaxPool")
def global_max_pool(call: Call, x: Tensor) -> Tensor:
  return x.max(tuple(range(2, x.ndim)), True)


@op("GlobalLpPool")
def global_lp_pool(call: Call, x: Tensor) -> Tensor:
  return x.abs().pow(call["p"]).sum(tuple(range(2, x.ndim)), True).pow(1 / call["p"]).cast(x.dtype)


@op("Col2Im", 18, needs=(1, 2))
def col2im(call: Call, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
  """Columns of windows added up into an image."""
  sizes, kernel = [int(s) for s in host_of(image)], [int(s) for s in host_of(block)]
  span = window(call, sizes, kernel)
  n, channels = x.shape[0], x.shape[1] // math.prod(kernel)
  counts = [
    (s + b + a - ((k - 1) * d + 1)) // t + 1
    for s, b, a, k, d, t in zip(sizes, span.before, span.after, kernel, span.dilations, span.strides)
  ]
  padded_sizes = [s + b + a for s, b, a in zip(sizes, span.before, span.after)]
  rank = len(sizes)
  checked_count(math.prod([*kernel, *counts]), "places of windows")
  flat = np.zeros([*kernel, *counts], np.int64)
  for i in range(rank):
    tap = np.arange(kernel[i]).reshape([-1 if a == i else 1 for a in range(2 * rank)]) * span.dilations[i]
    place = np.arange(counts[i]).reshape([-1 if a == rank + i else 1 for a in range(2 * rank)]) * span.strides[i]
    flat = flat * padded_sizes[i] + tap + place
  places = Tensor(flat.reshape(1, 1, -1)).expand(n, channels, flat.size)
  source = x.reshape(n, channels, flat.size)
  made = Tensor.zeros(n, channels, math.prod(padded_sizes), dtype=x.dtype).scatter_add(2, places, source)
  cut = tuple(slice(b, b + s) for b, s in zip(span.before, sizes))
  return made.reshape(n, channels, *padded_sizes)[(slice(None), slice(None), *cut)]


# normalisation


def per_channel(t: Tensor, x: Tensor) -> Tensor:
  """A vector as it multiplies the channels of `x`."""
  return t.reshape(1, -1, *[1] * (x.ndim - 2)) if x.ndim > 1 else t


def normalised(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float) -> Tensor:
  factor = (
    scale.cast(dtypes.float32 if x.dtype.bits < 32 else x.dtype)
    * (var.cast(dtypes.float32 if x.dtype.bits < 32 else x.dtype) + epsilon).rsqrt()
  )
  made = (x - per_channel(mean.cast(factor.dtype), x)) * per_channel(factor, x) + per_channel(
    bias.cast(factor.dtype), x
  )
  return made.cast(x.dtype)


@op("BatchNormalization", 9)
def batch_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Any:
  if not call.get("training_mode", 0):
    return normalised(x, scale, bias, mean, var, call["epsilon"])
  axes = (0, *range(2, x.ndim))
  now, spread = x.mean(axes), x.var(axes, correction=0)
  momentum = call["momentum"]
  kept = (
    (mean * momentum + now * (1 - momentum)).cast(mean.dtype),
    (var * momentum + spread * (1 - momentum)).cast(var.dtype),
  )
  return normalised(x, scale, bias, now, spread, call["epsilon"]), *kept


@op("BatchNormalization", 1)
def batch_normalization_with_spatial(
  call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
  if not call.get("spatial", 1):
    factor = scale * (var + call["epsilon"]).rsqrt()
    return (x - mean) * factor + bias
  return normalised(x, scale, bias, mean, var, call["epsilon"])


@op("InstanceNormalization")
def instance_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
  axes = tuple(range(2, x.ndim))
  made = (x - x.mean(axes, True)) * (x.var(axes, True, correction=0) + call["epsilon"]).rsqrt()
  return made * per_channel(scale, x) + per_channel(bias, x)


@op("LayerNormalization", 17)
def layer_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> tuple[Tensor, ...]:
  axes = tuple(range(axis_in(call["axis"], x.ndim), x.ndim))
  exact = x.cast(DTYPES[call["stash_type"]])
  mean = exact.mean(axes, True)
  inverse = (exact.var(axes, True, correction=0) + call["epsilon"]).rsqrt()
  made = ((exact - mean) * inverse).cast(x.dtype) * scale
  return (made if bias is None else made + bias), mean, inverse


@op("GroupNormalization", 21)
def group_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
  exact = grouped(call, x)
  return (exact * per_channel(scale, x).cast(exact.dtype) + per_channel(bias, x).cast(exact.dtype)).cast(x.dtype)


@op("GroupNormalization", 18)
def group_normalization_by_group(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
  each = x.shape[1] // call["num_groups"]
  return grouped(call, x) * per_channel(scale.repeat_interleave(each), x) + per_channel(bias.repeat_interleave(each), x)


def grouped(call: Call, x: Tensor) -> Tensor:
  exact = x.cast(DTYPES[call.get("stash_type", 1)]) if x.dtype.bits < 32 else x
  rows = exact.reshape(x.shape[0], call["num_groups"], -1)
  rows = (rows - rows.mean(-1, True)) * (rows.var(-1, True, correction=0) + call["epsilon"]).rsqrt()
  return rows.reshape(x.shape)


@op("RMSNormalization", 23)
def rms_normalization(call: Call, x: Tensor, scale: Tensor) -> Tensor:
  axes = tuple(range(axis_in(call["axis"], x.ndim), x.ndim))
  exact = x.cast(DTYPES[call["stash_type"]])
  made = exact * ((exact * exact).mean(axes, True) + call["epsilon"]).rsqrt()
  return (made.cast(x.dtype) * scale).cast(scale.dtype)


@op("MeanVarianceNormalization", 9)
def mean_variance_normalization(call: Call, x: Tensor) -> Tensor:
  axes = tuple(call["axes"])
  centred = x - x.mean(axes, True)
  return centred / ((centred * centred).mean(axes, True).sqrt() + 1e-9)


@op("LRN")
def lrn(call: Call, x: Tensor) -> Tensor:
  size = call["size"]
  before = (size - 1) // 2
  square = (x * x).pad(((0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)))
  summed = square.unfold(1, size, 1).sum(-1)
  return x / (summed * (call["alpha"] / size) + call["bias"]).pow(call["beta"])


@op("Dropout", 12, raw=True, random=True, needs=(1, 2))
def dropout(call: Call, x: Value, ratio: Value = None, training: Value = None) -> tuple[Tensor, Tensor]:
  t = tensor_of(x)
  active = training is not None and bool(host_of(training).reshape(-1)[0])
  share = 0.5 if ratio is None else float(host_of(ratio).reshape(-1)[0])
  if not active or share == 0:
    return t, Tensor.ones(*t.shape, dtype=dtypes.bool)
  kept = seeded_uniform(call, t.shape) >= share
  return (kept.where(t, 0) * (1 / (1 - share))).cast(t.dtype), kept


@op("Dropout", 1)
def dropout_by_attribute(call: Call, x: Tensor) -> tuple[Tensor, Tensor]:
  return x, Tensor.ones(*x.shape, dtype=dtypes.bool if call.version >= 10 else x.dtype)
