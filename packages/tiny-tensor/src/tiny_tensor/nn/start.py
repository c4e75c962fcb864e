"""What weights start from."""

import math

from tiny_tensor.tensor import Tensor


def uniform(shape: tuple[int, ...], fan: int) -> Tensor:
  """Uniform in ±1/√fan, kept in a buffer once computed: what a captured graph reads is what `assign` writes later."""
  bound = 1 / math.sqrt(fan) if fan > 0 else 0.0
  return Tensor.uniform(*shape, low=-bound, high=bound).contiguous()
