"""Gradients kept small, between `backward` and the step of an optimiser."""

import math
from collections.abc import Iterable

from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes


def _gradients(parameters: Iterable[Tensor] | Tensor) -> list[Tensor]:
  tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
  return [t.grad for t in {id(t): t for t in tensors}.values() if t.grad is not None]


def clip_grad_norm_(
  parameters: Iterable[Tensor] | Tensor, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
  """Scales all gradients together so that the norm of all their elements is at most `max_norm`, and gives the norm
  that they had: a float32 scalar, lazy as the gradients are. (Pascanu et al., 2013.)

  `norm_type` may be infinity. With `error_if_nonfinite` the norm is computed, and RuntimeError raised where it is
  infinite or NaN. Raises ValueError for a limit that is not positive.
  """
  if not max_norm > 0 or not norm_type > 0:
    raise ValueError(f"max_norm and norm_type must be positive, got {max_norm} and {norm_type}")
  grads = _gradients(parameters)
  if not grads:
    return Tensor(0.0)
  place = grads[0].device
  sizes = [g.detach().cast(dtypes.promote(g.dtype, dtypes.float32)).abs().to(place) for g in grads if 0 not in g.shape]
  if math.isinf(norm_type):
    total = Tensor.stack(*[s.max() for s in sizes]).max()
  else:
    total = Tensor.stack(*[s.pow(norm_type).sum() for s in sizes]).sum().pow(1 / norm_type)
  total = total.contiguous()
  if error_if_nonfinite and not math.isfinite(total.item()):
    raise RuntimeError(
      f"the norm of the gradients is {total.item()}: look for what overflows, or do not ask for errors"
    )
  scale = (max_norm / (total + 1e-6)).clamp(None, 1.0)
  for g in grads:
    g.assign((g * scale.to(g.device)).cast(g.dtype))
  return total


def clip_grad_value_(parameters: Iterable[Tensor] | Tensor, clip_value: float) -> None:
  """Limits each element of all gradients to [-clip_value, clip_value]. Raises ValueError for a negative limit."""
  if clip_value < 0:
    raise ValueError(f"clip_value must not be negative, got {clip_value}")
  for g in _gradients(parameters):
    g.assign(g.clamp(-clip_value, clip_value))
