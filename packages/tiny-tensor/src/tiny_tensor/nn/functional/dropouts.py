"""Dropout with PyTorch's arguments: `training` is an argument and not `Tensor.training`."""

import math

from tiny_tensor.nn.functional.activations import _kept
from tiny_tensor.nn.functional.axes import for_axes
from tiny_tensor.tensor import Tensor

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]


def _dropped(input: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
  """bool of a shape that broadcasts: True with probability p. Raises ValueError outside [0, 1]."""
  if not 0.0 <= p <= 1.0:
    raise ValueError(f"dropout probability must be between 0 and 1, got {p}")
  return Tensor.rand(*shape, device=input.device) < p


def _without(input: Tensor, dropped: Tensor, p: float) -> Tensor:
  return dropped.where(0, input / (1 - p) if p < 1 else 0 * input)


def _channels(input: Tensor) -> tuple[int, ...]:
  """A shape with one element for each channel of each sample."""
  if input.ndim < 2:
    raise ValueError(f"dropout of channels needs (n, c, …), got shape {input.shape}")
  return (*(int(s) for s in input.shape[:2]), *(1,) * (input.ndim - 2))


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
  """Zeros with probability `p`, the rest scaled by 1/(1-p); itself unless `training`."""
  if not training or p == 0:
    return input
  return _kept(input, _without(input, _dropped(input, tuple(int(s) for s in input.shape), p), p), inplace)


def _dropout_channels(axes: int, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
  """`dropout` of whole channels of `(n, c, size…)`; over one or three axes also of `(c, size…)`."""
  if not training or p == 0:
    return input
  alone = axes != 2 and input.ndim == axes + 1  # PyTorch takes three axes for a batch of images without sizes
  x = input.unsqueeze(0) if alone else input
  out = _without(x, _dropped(x, _channels(x), p), p)
  return _kept(input, out.squeeze(0) if alone else out, inplace)


dropout1d, dropout2d, dropout3d = for_axes("dropout{}d", _dropout_channels)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
  """Dropout that keeps mean and variance of what selu gives (Klambauer et al., 2017)."""
  return _alpha(input, tuple(int(s) for s in input.shape), p, inplace) if training and p > 0 else input


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
  """`alpha_dropout` of whole channels."""
  return _alpha(input, _channels(input), p, inplace) if training and p > 0 else input


def _alpha(input: Tensor, shape: tuple[int, ...], p: float, inplace: bool) -> Tensor:
  dropped = _dropped(input, shape, p)
  if p == 1:
    return _kept(input, input * 0, inplace)
  lowest = -1.0507009873554805 * 1.6732632423543772
  scale = 1 / math.sqrt((1 - p) * (1 + p * lowest**2))
  out = dropped.where(lowest, input) * scale - scale * p * lowest
  return _kept(input, out._as_dtype(input.dtype), inplace)
