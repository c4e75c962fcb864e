"""Small parts of layers and of `nn.functional`: first weights, padding, masks, weights per channel."""

import math
from collections.abc import Sequence

from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes


def uniform(shape: tuple[int, ...], fan: int) -> Tensor:
  """Uniform in ±1/√fan, kept in a buffer once computed: what a captured graph reads is what `assign` writes later."""
  bound = 1 / math.sqrt(fan) if fan > 0 else 0.0
  return Tensor.uniform(*shape, low=-bound, high=bound).contiguous()


def padding_by_name(padding: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[int]:
  """Padding of a convolution as pairs (before, after), the last axis first: with "same" that which keeps the sizes, of
  which an odd one has more behind; none with "valid". ValueError for other names, and "same" with a stride."""
  if padding.lower() not in ("same", "valid"):
    raise ValueError(f"padding is {padding!r}: expected numbers, 'same' or 'valid'")
  if padding.lower() == "valid":
    return [0] * (2 * len(kernel))
  if any(s != 1 for s in stride):
    raise ValueError(f"padding='same' needs stride 1, got {', '.join(map(str, stride))}")
  total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
  return [x for t in reversed(total) for x in (t // 2, t - t // 2)]


def per_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
  """`x` with a weight and a bias for each channel (axis 1)."""
  shape = (1, -1, *(1,) * (x.ndim - 2))
  out = x if weight is None else x * weight.reshape(shape)
  return out if bias is None else out + bias.reshape(shape)


def added_mask(mask: Tensor) -> Tensor:
  """A mask as numbers to add to scores: bool says what must not be seen."""
  return mask.where(-math.inf, 0.0) if dtypes.is_bool(mask.dtype) else mask
