"""Convolutions over one, two or three spatial axes, and their transposes."""

import math

from tiny_tensor.methods.windows import Sizes
from tiny_tensor.nn.module import Module
from tiny_tensor.nn.shared import padding_by_name, uniform
from tiny_tensor.tensor import Tensor


def _spatial(value: Sizes, axes: int, name: str) -> tuple[int, ...]:
  """One number per spatial axis, from one number or from as many as there are axes."""
  sizes = (value,) * axes if isinstance(value, int) else tuple(value)
  if len(sizes) != axes:
    raise ValueError(f"{name} is {value}: expected a number or {axes} of them, one per spatial axis")
  return sizes


class _Conv(Module):
  """A convolution over any number of spatial axes; the public classes set `axes`."""

  axes: int

  def __init__(
    self,
    in_channels: int,
    out_channels: int,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    bias: bool = True,
  ) -> None:
    if groups < 1 or in_channels % groups or out_channels % groups:
      raise ValueError(f"groups={groups} must divide in_channels={in_channels} and out_channels={out_channels}")
    self.kernel_size = _spatial(kernel_size, self.axes, "kernel_size")
    self.stride = _spatial(stride, self.axes, "stride")
    self.dilation = _spatial(dilation, self.axes, "dilation")
    self.groups = groups
    if isinstance(padding, str):
      padding = padding_by_name(padding, self.kernel_size, self.stride, self.dilation)
    # 2 * axes numbers are (left, right) pairs, last axis first, as conv2d takes them
    pairs = not isinstance(padding, int) and len(padding) == 2 * self.axes
    self.padding = _spatial(padding, self.axes * (1 + pairs), "padding")
    shape = self._weight_shape(in_channels, out_channels)
    fan_in = shape[1] * math.prod(self.kernel_size)
    self.weight = uniform(shape, fan_in)
    self.bias: Tensor | None = uniform((out_channels,), fan_in) if bias else None

  def _weight_shape(self, in_channels: int, out_channels: int) -> tuple[int, ...]:
    return (out_channels, in_channels // self.groups, *self.kernel_size)

  def _check(self, x: Tensor, channels: int) -> None:
    if x.ndim != self.axes + 2 or x.shape[1] != channels:
      name = type(self).__name__
      raise ValueError(f"{name} expects (batch, {channels}, {self.axes} spatial axes), got an input of shape {x.shape}")

  def __call__(self, x: Tensor) -> Tensor:
    self._check(x, int(self.weight.shape[1]) * self.groups)
    return x.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding)


class Conv1d(_Conv):
  """x `(batch, in_channels, length)` → `(batch, out_channels, length')`. `weight` is
  `(out_channels, in_channels // groups, kernel)` and starts uniform in ±1/√fan-in. `padding` may also be "same" or
  "valid"."""

  axes = 1


class Conv2d(_Conv):
  """x `(batch, in_channels, height, width)` → `(batch, out_channels, height', width')`. `weight` is
  `(out_channels, in_channels // groups, *kernel)`; otherwise as `Conv1d`."""

  axes = 2


class Conv3d(_Conv):
  """x `(batch, in_channels, depth, height, width)` → `(batch, out_channels, depth', height', width')`."""

  axes = 3


class _ConvTranspose(_Conv):
  def __init__(
    self,
    in_channels: int,
    out_channels: int,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    bias: bool = True,
  ) -> None:
    if isinstance(padding, str):
      raise ValueError(f"padding is {padding!r}: a transposed convolution takes numbers")
    super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
    self.output_padding = _spatial(output_padding, self.axes, "output_padding")

  def _weight_shape(self, in_channels: int, out_channels: int) -> tuple[int, ...]:
    return (in_channels, out_channels // self.groups, *self.kernel_size)

  def __call__(self, x: Tensor) -> Tensor:
    self._check(x, int(self.weight.shape[0]))
    return x.conv_transpose2d(
      self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding, self.output_padding
    )


class ConvTranspose1d(_ConvTranspose):
  """The gradient of `Conv1d` with respect to its input, as a layer.

  `weight` is `(in_channels, out_channels // groups, kernel)`.
  """

  axes = 1


class ConvTranspose2d(_ConvTranspose):
  """The gradient of `Conv2d` with respect to its input, as a layer.

  `weight` is `(in_channels, out_channels // groups, *kernel)`.
  """

  axes = 2
