"""Linear maps and convolutions with PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_tensor.methods.windows import Sizes, pad_last, windows
from tiny_tensor.nn.functional.axes import batched, for_axes, pad_pairs
from tiny_tensor.nn.shared import padding_by_name
from tiny_tensor.shapes import as_tuple
from tiny_tensor.tensor import Tensor

__all__ = [
  "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fold",
  "linear", "one_hot", "pad", "unfold",
]  # fmt: skip


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
  """`input @ weightᵀ + bias`; weight `(out, in)`, or `(in,)`."""
  if weight.ndim != 1:
    return input.linear(weight.transpose(0, 1), bias)
  out = input.matmul(weight)
  return out if bias is None else out + bias


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
  """`x1ᵀ W x2 + bias` for each output; weight `(out, in1, in2)`."""
  out = Tensor.einsum("...i,oij,...j->...o", input1, weight, input2)
  return out if bias is None else out + bias


def _conv(
  axes: int,
  input: Tensor,
  weight: Tensor,
  bias: Tensor | None = None,
  stride: Sizes = 1,
  padding: Sizes | str = 0,
  dilation: Sizes = 1,
  groups: int = 1,
) -> Tensor:
  """Cross-correlation of `(n, c, size…)` or `(c, size…)` with `weight (out, c/groups, kernel…)`. `padding` may also be
  "same" or "valid"."""
  if weight.ndim != axes + 2:
    raise ValueError(f"conv{axes}d takes a weight of {axes + 2} axes, got shape {weight.shape}")
  steps, gaps = as_tuple(stride, axes), as_tuple(dilation, axes)
  if isinstance(padding, str):
    pads = padding_by_name(padding, [int(k) for k in weight.shape[2:]], steps, gaps)
  else:
    pads = pad_pairs(padding, axes)
    if min(pads, default=0) < 0:
      raise ValueError(f"conv{axes}d: padding must not be negative, got {padding}")
  return batched(input, axes, lambda x: x.conv2d(weight, bias, groups, steps, gaps, pads))


conv1d, conv2d, conv3d = for_axes("conv{}d", _conv)


def _conv_transpose(
  axes: int,
  input: Tensor,
  weight: Tensor,
  bias: Tensor | None = None,
  stride: Sizes = 1,
  padding: Sizes = 0,
  output_padding: Sizes = 0,
  groups: int = 1,
  dilation: Sizes = 1,
) -> Tensor:
  """The transpose of a convolution in its input `(n, c, size…)` or `(c, size…)`; `weight (c, out/groups, kernel…)`."""
  pads, extra = as_tuple(padding, axes), as_tuple(output_padding, axes)
  return batched(input, axes, lambda x: x.conv_transpose2d(weight, bias, groups, stride, dilation, pads, extra))


conv_transpose1d, conv_transpose2d, conv_transpose3d = for_axes("conv_transpose{}d", _conv_transpose)


def unfold(input: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
  """Windows of images as columns (im2col): `(n, c, h, w)` → `(n, c·kh·kw, windows)`."""
  kernel, pads = as_tuple(kernel_size, 2), as_tuple(padding, 2)

  def columns(x: Tensor) -> Tensor:
    seen = windows(pad_last(x, [(p, p) for p in pads]), kernel, as_tuple(stride, 2), as_tuple(dilation, 2))
    n, c, rows, cols = (int(s) for s in seen.shape[:4])
    return seen.permute(0, 1, 4, 5, 2, 3).reshape((n, c * kernel[0] * kernel[1], rows * cols))._apart()

  return batched(input, 2, columns)


def fold(
  input: Tensor,
  output_size: Sizes,
  kernel_size: Sizes,
  dilation: Sizes = 1,
  padding: Sizes = 0,
  stride: Sizes = 1,
) -> Tensor:
  """The transpose of `unfold`: columns added up where their windows overlap, to images of `output_size`."""
  size, kernel = as_tuple(output_size, 2), as_tuple(kernel_size, 2)
  pads, gaps, steps = as_tuple(padding, 2), as_tuple(dilation, 2), as_tuple(stride, 2)
  taps = kernel[0] * kernel[1]
  room = [s + 2 * p - d * (k - 1) - 1 for s, p, d, k in zip(size, pads, gaps, kernel, strict=True)]
  counts, spare = zip(*((r // t + 1, r % t) for r, t in zip(room, steps, strict=True)), strict=True)

  def images(x: Tensor) -> Tensor:
    n, channels = int(x.shape[0]), int(x.shape[1]) // taps
    # each tap of the window is a channel that goes to its own place
    weight = Tensor.eye(taps, dtype=x.dtype, device=x.device).reshape((taps, 1, *kernel))
    x = x.reshape((n * channels, taps, *counts))
    return conv_transpose2d(x, weight, None, stride, padding, spare, 1, dilation).reshape((n, channels, *size))

  return batched(input, 1, images)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
  """1 at the position that each element names; -1 takes the largest element plus one."""
  return tensor.one_hot(num_classes)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
  """`Tensor.pad` with (before, after) pairs from the last axis on."""
  return input.pad(tuple(pad), mode, 0 if value is None else value)
