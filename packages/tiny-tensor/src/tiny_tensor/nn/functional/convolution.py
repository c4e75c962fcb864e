"""Linear maps and convolutions with PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tiny_tensor.methods.conv import Sizes
from tiny_tensor.methods.pool import windows
from tiny_tensor.shapes import as_tuple
from tiny_tensor.tensor import Tensor


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


def batched(input: Tensor, axes: int, apply: Callable[[Tensor], Tensor]) -> Tensor:
  """What `apply` makes of `(n, c, size…)`, for `axes` sizes; without the axis n, of one sample."""
  if input.ndim == axes + 1:
    return apply(input.unsqueeze(0)).squeeze(0)
  if input.ndim != axes + 2:
    raise ValueError(f"expected an input of shape (n, c, size…) or (c, size…) with {axes} sizes, got {input.shape}")
  return apply(input)


def _conv(
  axes: int,
  input: Tensor,
  weight: Tensor,
  bias: Tensor | None,
  stride: Sizes,
  padding: Sizes | str,
  dilation: Sizes,
  groups: int,
) -> Tensor:
  if weight.ndim != axes + 2:
    raise ValueError(f"conv{axes}d takes a weight of {axes + 2} axes, got shape {weight.shape}")
  gaps = as_tuple(dilation, axes)
  pads: list[int] = []
  if isinstance(padding, str):
    if padding not in ("same", "valid"):
      raise ValueError(f"padding must be numbers, 'same' or 'valid', got {padding!r}")
    if padding == "same" and any(s != 1 for s in as_tuple(stride, axes)):
      raise ValueError(f"padding='same' needs stride 1, got {stride}")
    total = [d * (int(k) - 1) if padding == "same" else 0 for k, d in zip(weight.shape[2:], gaps, strict=True)]
    for t in reversed(total):  # an odd one goes behind
      pads += [t // 2, t - t // 2]
  else:
    if any(p < 0 for p in as_tuple(padding, axes)):
      raise ValueError(f"conv{axes}d: padding must not be negative, got {padding}")
    for p in reversed(as_tuple(padding, axes)):
      pads += [p, p]
  return batched(input, axes, lambda x: x.conv2d(weight, bias, groups, stride, gaps, pads))


def conv1d(
  input: Tensor,
  weight: Tensor,
  bias: Tensor | None = None,
  stride: Sizes = 1,
  padding: Sizes | str = 0,
  dilation: Sizes = 1,
  groups: int = 1,
) -> Tensor:
  """Cross-correlation of `(n, c, l)` or `(c, l)` with weight `(out, c/groups, k)`; padding also "same", "valid"."""
  return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
  input: Tensor,
  weight: Tensor,
  bias: Tensor | None = None,
  stride: Sizes = 1,
  padding: Sizes | str = 0,
  dilation: Sizes = 1,
  groups: int = 1,
) -> Tensor:
  """conv1d over two spatial axes."""
  return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
  input: Tensor,
  weight: Tensor,
  bias: Tensor | None = None,
  stride: Sizes = 1,
  padding: Sizes | str = 0,
  dilation: Sizes = 1,
  groups: int = 1,
) -> Tensor:
  """conv1d over three spatial axes."""
  return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(
  axes: int,
  input: Tensor,
  weight: Tensor,
  bias: Tensor | None,
  stride: Sizes,
  padding: Sizes,
  output_padding: Sizes,
  groups: int,
  dilation: Sizes,
) -> Tensor:
  pads = as_tuple(padding, axes)
  extra = as_tuple(output_padding, axes)
  return batched(
    input, axes, lambda x: x.conv_transpose2d(weight, bias, groups, stride, dilation, pads, extra)
  )  # fmt: skip


def conv_transpose1d(
  input: Tensor,
  weight: Tensor,
  bias: Tensor | None = None,
  stride: Sizes = 1,
  padding: Sizes = 0,
  output_padding: Sizes = 0,
  groups: int = 1,
  dilation: Sizes = 1,
) -> Tensor:
  """The transpose of conv1d in its input; weight `(c, out/groups, k)`."""
  return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
  input: Tensor,
  weight: Tensor,
  bias: Tensor | None = None,
  stride: Sizes = 1,
  padding: Sizes = 0,
  output_padding: Sizes = 0,
  groups: int = 1,
  dilation: Sizes = 1,
) -> Tensor:
  """conv_transpose1d over two spatial axes."""
  return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
  input: Tensor,
  weight: Tensor,
  bias: Tensor | None = None,
  stride: Sizes = 1,
  padding: Sizes = 0,
  output_padding: Sizes = 0,
  groups: int = 1,
  dilation: Sizes = 1,
) -> Tensor:
  """conv_transpose1d over three spatial axes."""
  return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def unfold(input: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
  """Windows of images as columns (im2col): `(n, c, h, w)` → `(n, c·kh·kw, windows)`."""
  kernel, pads = as_tuple(kernel_size, 2), as_tuple(padding, 2)

  def columns(x: Tensor) -> Tensor:
    seen = windows(x.padded([(p, p) for p in pads]), kernel, as_tuple(stride, 2), as_tuple(dilation, 2))
    n, c, rows, cols = (int(s) for s in seen.shape[:4])
    return seen.permute(0, 1, 4, 5, 2, 3).reshape((n, c * kernel[0] * kernel[1], rows * cols))

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
  taps = kernel[0] * kernel[1]
  single = input.ndim == 2
  x = input.unsqueeze(0) if single else input
  n, channels = int(x.shape[0]), int(x.shape[1]) // taps
  pads, gaps, steps = as_tuple(padding, 2), as_tuple(dilation, 2), as_tuple(stride, 2)
  room = [s + 2 * p - d * (k - 1) - 1 for s, p, d, k in zip(size, pads, gaps, kernel, strict=True)]
  # each tap of the window is a channel that goes to its own place
  x = x.reshape((n * channels, taps, *[r // t + 1 for r, t in zip(room, steps, strict=True)]))
  weight = Tensor.eye(taps, dtype=x.dtype, device=x.device).reshape((taps, 1, *kernel))
  spare = [r % t for r, t in zip(room, steps, strict=True)]
  out = conv_transpose2d(x, weight, None, stride, padding, spare, 1, dilation).reshape((n, channels, *size))
  return out.squeeze(0) if single else out


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
  """1 at the position that each element names; -1 takes the largest element plus one."""
  return tensor.one_hot(num_classes)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
  """`Tensor.pad` with (before, after) pairs from the last axis on."""
  return input.pad(tuple(pad), mode, 0 if value is None else value)
