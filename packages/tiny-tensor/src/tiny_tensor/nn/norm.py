"""Normalisation layers."""

from collections.abc import Sequence

from tiny_tensor.naming import known_as
from tiny_tensor.nn.functional.normalisation import group_norm, layer_norm, move_statistics
from tiny_tensor.nn.module import Module
from tiny_tensor.realize import is_realized
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops, dtypes


class BatchNorm(Module):
  """Normalises each channel (axis 1) over the batch and all other axes (Ioffe & Szegedy, 2015).

  x `(batch, channels, …)` → the same shape. With `Tensor.training` the statistics are those of the batch and the
  running ones move towards them by `momentum`: these are assignments, which an optimiser that was given all the
  layer's tensors realises, or the next batch. Otherwise the running statistics are used, if tracked.
  """

  @known_as(sz="num_features")
  def __init__(
    self,
    num_features: int,
    eps: float = 1e-5,
    affine: bool = True,
    track_running_stats: bool = True,
    momentum: float = 0.1,
  ) -> None:
    self.eps, self.momentum, self.track_running_stats = eps, momentum, track_running_stats
    self.weight: Tensor | None = Tensor.ones(num_features).contiguous() if affine else None
    self.bias: Tensor | None = Tensor.zeros(num_features).contiguous() if affine else None
    self.num_features = num_features
    if track_running_stats:
      self.running_mean = Tensor.zeros(num_features).contiguous().requires_grad_(False)
      self.running_var = Tensor.ones(num_features).contiguous().requires_grad_(False)
      self.num_batches_tracked = Tensor.zeros(1, dtype=dtypes.int64).contiguous().requires_grad_(False)

  def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance per channel, each `(channels,)`."""
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    shape = tuple(x.shape[axis] if axis == 1 else 1 for axis in range(x.ndim))
    if self.track_running_stats and not Tensor.training:
      return self.running_mean, self.running_var
    mean = x.mean(axis=axes)
    return mean, x._variance_about(mean.reshape(shape), axes).reshape(mean.shape)

  def __call__(self, x: Tensor) -> Tensor:
    if x.ndim < 2 or x.shape[1] != self.num_features:
      raise ValueError(f"BatchNorm expects {self.num_features} channels on axis 1, got an input of shape {x.shape}")
    mean, var = self.calc_stats(x)
    if self.track_running_stats and Tensor.training:
      count = x.numel() // x.shape[1]
      unbiased = count / max(count - 1, 1) if isinstance(count, int) else count / (count - 1)
      if not is_realized(self.running_mean.uop) and self.running_mean.uop.op is not Ops.CONTIGUOUS:
        self.running_mean.realize(self.running_var, self.num_batches_tracked)  # since the last batch nobody did
      move_statistics(self.running_mean, self.running_var, mean.detach(), unbiased * var.detach(), self.momentum)
      self.num_batches_tracked.assign(self.num_batches_tracked + 1)
    return x.batchnorm(self.weight, self.bias, mean, (var + self.eps).rsqrt())


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm
"""The same class: it takes inputs of any number of axes."""


class GroupNorm(Module):
  """Normalises groups of channels of each sample over all their positions (Wu & He, 2018). x `(batch, channels, …)`.

  Without `affine` there may be any number of channels that `num_groups` divides.
  """

  def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
    if num_groups < 1 or (affine and num_channels % num_groups):
      raise ValueError(f"num_groups={num_groups} must divide num_channels={num_channels}")
    self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
    self.weight: Tensor | None = Tensor.ones(num_channels).contiguous() if affine else None
    self.bias: Tensor | None = Tensor.zeros(num_channels).contiguous() if affine else None

  def __call__(self, x: Tensor) -> Tensor:
    if x.ndim < 2 or (self.weight is not None and x.shape[1] != self.num_channels):
      raise ValueError(f"{type(self).__name__} expects {self.num_channels} channels on axis 1, got shape {x.shape}")
    return group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm(GroupNorm):
  """Normalises each channel of each sample over its positions (Ulyanov et al., 2016). x `(batch, channels, …)`."""

  def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
    super().__init__(num_features, num_features, eps, affine)
    self.num_features = num_features


class LayerNorm(Module):
  """Normalises over the last axes, whose shape is `normalized_shape` (Ba et al., 2016)."""

  def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True) -> None:
    self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not self.normalized_shape:
      raise ValueError("normalized_shape is empty: LayerNorm needs at least one axis")
    self.eps = eps
    self.weight: Tensor | None = Tensor.ones(*self.normalized_shape).contiguous() if elementwise_affine else None
    self.bias: Tensor | None = Tensor.zeros(*self.normalized_shape).contiguous() if elementwise_affine else None

  def __call__(self, x: Tensor) -> Tensor:
    return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class LayerNorm2d(LayerNorm):
  """`LayerNorm` over the channels of an image: x `(batch, channels, height, width)`."""

  def __call__(self, x: Tensor) -> Tensor:
    return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm(Module):
  """Divides by the root of the mean square over the last axis (Zhang & Sennrich, 2019). x `(…, dim)`."""

  def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True) -> None:
    self.dim, self.eps = dim, eps
    self.weight: Tensor | None = Tensor.ones(dim).contiguous() if elementwise_affine else None

  def __call__(self, x: Tensor) -> Tensor:
    if x.ndim == 0 or x.shape[-1] != self.dim:
      raise ValueError(f"RMSNorm expects {self.dim} features on the last axis, got an input of shape {x.shape}")
    # the mean square of a half would overflow at 256
    wide = x.float()
    x = (wide * (wide.square().mean(axis=-1, keepdim=True) + self.eps).rsqrt()).cast(x.dtype)
    return x if self.weight is None else x * self.weight
