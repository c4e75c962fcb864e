"""Normalisation with PyTorch's arguments."""

from collections.abc import Sequence

from tiny_tensor.nn.shared import per_channel
from tiny_tensor.tensor import Tensor
from tiny_uop import prod

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]


def layer_norm(
  input: Tensor,
  normalized_shape: Sequence[int],
  weight: Tensor | None = None,
  bias: Tensor | None = None,
  eps: float = 1e-5,
) -> Tensor:
  """Over the last axes, whose shape is `normalized_shape`, that of weight and bias too."""
  _check_last(input, normalized_shape)
  out = input.layernorm(tuple(range(-len(normalized_shape), 0)), eps)
  out = out if weight is None else out * weight
  return out if bias is None else out + bias


def rms_norm(
  input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
  """Divided by the root of the mean square over the last axes; `eps` is by default that of the dtype."""
  _check_last(input, normalized_shape)
  x, dtype = input._with_precision()
  small = 2.0 ** {64: -52, 32: -23, 16: -10}.get(input.dtype.bits, -23) if eps is None else eps
  mean = x.square().mean(tuple(range(-len(normalized_shape), 0)), keepdim=True)
  out = x * (mean + small).rsqrt()
  return (out if weight is None else out * weight)._as_dtype(dtype)


def _check_last(input: Tensor, normalized_shape: Sequence[int]) -> None:
  """ValueError where the last axes are others."""
  if not normalized_shape or tuple(input.shape[-len(normalized_shape) :]) != tuple(normalized_shape):
    raise ValueError(f"the last axes of the input are to be {tuple(normalized_shape)}, got shape {input.shape}")


def group_norm(
  input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
  """Over groups of channels (axis 1) and all positions of each sample; weight and bias `(channels,)`."""
  n, channels, *sizes = input.shape
  if num_groups < 1 or channels % num_groups:
    raise ValueError(f"group_norm makes {num_groups} groups of the channels on axis 1, got shape {input.shape}")
  grouped = input.reshape((n, num_groups, channels // num_groups * prod(sizes)))
  out = input if 0 in input.shape else grouped.layernorm(-1, eps).reshape(input.shape)
  return per_channel(out, weight, bias)


def batch_norm(
  input: Tensor,
  running_mean: Tensor | None,
  running_var: Tensor | None,
  weight: Tensor | None = None,
  bias: Tensor | None = None,
  training: bool = False,
  momentum: float = 0.1,
  eps: float = 1e-5,
) -> Tensor:
  """Per channel (axis 1), by the running statistics, or if `training` by those of the batch, to which the running ones
  are then assigned to move by `momentum`.
  """
  if input.numel() == 0:
    return input
  if input.ndim < 2:
    raise ValueError(f"batch_norm takes an input of shape (n, c, size…), got {input.shape}")
  if not training:
    if running_mean is None or running_var is None:
      raise ValueError("batch_norm without training needs running_mean and running_var")
    return input.batchnorm(weight, bias, running_mean, (running_var + eps).rsqrt())
  axes = tuple(axis for axis in range(input.ndim) if axis != 1)
  mean, var = input.mean(axes), input.var(axes, correction=0)
  if running_mean is not None and running_var is not None:
    count = input.numel() // input.shape[1]
    unbiased = count / max(count - 1, 1) if isinstance(count, int) else count / (count - 1)
    move_statistics(running_mean, running_var, mean.detach(), var.detach() * unbiased, momentum)
  return input.batchnorm(weight, bias, mean, (var + eps).rsqrt())


def move_statistics(running_mean: Tensor, running_var: Tensor, mean: Tensor, var: Tensor, momentum: float) -> None:
  """Assigns the running statistics to move towards others by `momentum`."""
  for running, new in ((running_mean, mean), (running_var, var)):
    running.assign(running * (1 - momentum) + new * momentum)


def instance_norm(
  input: Tensor,
  running_mean: Tensor | None = None,
  running_var: Tensor | None = None,
  weight: Tensor | None = None,
  bias: Tensor | None = None,
  use_input_stats: bool = True,
  momentum: float = 0.1,
  eps: float = 1e-5,
) -> Tensor:
  """Each channel of each sample over its positions; running statistics are the means of those of the samples."""
  if not use_input_stats:
    return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
  axes = tuple(range(2, input.ndim))
  if running_mean is not None and running_var is not None:
    each = input.detach()
    move_statistics(running_mean, running_var, each.mean(axes).mean(0), each.var(axes).mean(0), momentum)
  return per_channel(input.layernorm(axes, eps), weight, bias)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
  """Divided by `(k + alpha · mean of the squares of `size` neighbouring channels)^beta` (Krizhevsky et al., 2012)."""
  if input.ndim < 3:
    raise ValueError(f"local_response_norm takes (n, c, size…), got shape {input.shape}")
  squares = input.square().transpose(1, -1).pad((size // 2, (size - 1) // 2))
  mean = squares.unfold(squares.ndim - 1, size, 1).mean(-1).transpose(1, -1)
  return input / (mean * alpha + k).pow(beta)
