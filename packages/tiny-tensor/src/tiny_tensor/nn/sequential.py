"""Layers that put other layers together, or that have no weights."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tiny_tensor.nn.module import Module
from tiny_tensor.tensor import Tensor


class Sequential(Module, list[Callable[[Tensor], Tensor]]):
  """Calls its layers one after the other. Any function from Tensor to Tensor is a layer.

  A list of them: the tensors are called `0.weight`, `2.bias` …, as PyTorch calls them.
  """

  def __init__(self, *layers: Callable[[Tensor], Tensor]) -> None:
    super().__init__(layers)

  def forward(self, x: Tensor) -> Tensor:
    """What calling it computes."""
    for layer in self:
      x = layer(x)
    return x

  if TYPE_CHECKING:

    def __call__(self, x: Tensor) -> Tensor: ...


class Dropout(Module):
  """With `Tensor.training`, zeroes each element with probability `p` and divides the others by `1 - p`."""

  def __init__(self, p: float = 0.5) -> None:
    if not 0 <= p <= 1:
      raise ValueError(f"p is {p}: a probability lies in [0, 1]")
    self.p = p

  def __call__(self, x: Tensor) -> Tensor:
    return x.dropout(self.p)
