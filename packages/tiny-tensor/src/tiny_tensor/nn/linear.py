"""The fully connected layer."""

from tiny_tensor.nn.module import Module
from tiny_tensor.nn.shared import uniform
from tiny_tensor.tensor import Tensor


class Linear(Module):
  """`y = x @ weight.T + bias`: x `(…, in_features)` → `(…, out_features)`.

  `weight` is `(out_features, in_features)`; both start uniform in ±1/√in_features.
  """

  def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
    self.weight = uniform((out_features, in_features), in_features)
    self.bias: Tensor | None = uniform((out_features,), in_features) if bias else None

  def __call__(self, x: Tensor) -> Tensor:
    if x.ndim == 0 or x.shape[-1] != self.weight.shape[1]:
      raise ValueError(
        f"Linear expects {self.weight.shape[1]} features on the last axis, got an input of shape {x.shape}"
      )
    return x.linear(self.weight.transpose(), self.bias)
