"""The fully connected layer."""

import math

from tiny_tensor.tensor import Tensor


class Linear:
  """`y = x @ weight.T + bias`: x `(…, in_features)` → `(…, out_features)`.

  `weight` is `(out_features, in_features)`; both start uniform in ±1/√in_features.
  """

  def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
    bound = 1 / math.sqrt(in_features) if in_features > 0 else 0.0
    self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound)
    self.bias: Tensor | None = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None

  def __call__(self, x: Tensor) -> Tensor:
    if x.ndim == 0 or x.shape[-1] != self.weight.shape[1]:
      raise ValueError(
        f"Linear expects {self.weight.shape[1]} features on the last axis, got an input of shape {x.shape}"
      )
    return x.linear(self.weight.transpose(), self.bias)
