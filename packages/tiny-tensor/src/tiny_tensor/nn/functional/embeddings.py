"""Tables of vectors with PyTorch's arguments: rows by number, and sums of them."""

from __future__ import annotations

import math

from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes

__all__ = ["embedding", "embedding_bag"]


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
  """Rows of `weight (count, size)` by number; the row `padding_idx` gets no gradient."""
  if weight.ndim != 2:
    raise ValueError(f"embedding takes weights of shape (count, size), got {weight.shape}")
  if padding_idx is None:
    return weight[input]
  row = padding_idx % int(weight.shape[0])
  padding = weight._count_up(int(weight.shape[0])).eq(row).unsqueeze(-1)
  return padding.where(weight.detach(), weight)[input]


def embedding_bag(
  input: Tensor,
  weight: Tensor,
  offsets: Tensor | None = None,
  max_norm: float | None = None,
  norm_type: float = 2.0,
  scale_grad_by_freq: bool = False,
  mode: str = "mean",
  sparse: bool = False,
  per_sample_weights: Tensor | None = None,
  include_last_offset: bool = False,
  padding_idx: int | None = None,
) -> Tensor:
  """Sums, means or maxima (`mode` "sum", "mean", "max") of rows of `weight (count, size)`, one for each bag: `(bags,
  size)`. `input (bags, length)` are the numbers of rows in each; or `(n,)` those of one bag after the other, which
  begin at `offsets (bags,)`. With `include_last_offset` the last offset is an end and begins no bag. Empty ones are 0.

  `per_sample_weights`, of the shape of `input`, multiply the rows of a sum. The row `padding_idx` counts nowhere.
  Gradients are never `sparse`. Raises NotImplementedError for `max_norm` and `scale_grad_by_freq`: rows are not changed
  by looking at them.
  """
  if max_norm is not None or scale_grad_by_freq:
    raise NotImplementedError("embedding_bag has no max_norm and scale_grad_by_freq: scale the weights by renorm()")
  if mode not in ("sum", "mean", "max"):
    raise ValueError(f"mode must be 'sum', 'mean' or 'max', got {mode!r}")
  if not dtypes.is_int(input.dtype):
    raise TypeError(f"embedding_bag is indexed by integers, got {input.dtype.name}")
  if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
    raise ValueError(
      f"per_sample_weights of shape {per_sample_weights.shape} are for mode 'sum' and rows {input.shape}, got {mode!r}"
    )
  rows = embedding(input, weight, padding_idx)
  if per_sample_weights is not None:
    rows = rows * per_sample_weights.unsqueeze(-1)
  if input.ndim == 2:
    if offsets is not None:
      raise ValueError(f"offsets are for rows (n,), got rows of shape {input.shape}, each of which is a bag")
    inside = input.const_like(True, dtypes.bool)
  elif input.ndim == 1 and offsets is not None and offsets.ndim == 1:
    inside = _in_bags(int(input.shape[0]), offsets, include_last_offset)
  else:
    raise ValueError(f"embedding_bag takes rows (bags, length), or rows (n,) and offsets, got shape {input.shape}")
  if padding_idx is not None:
    inside = inside & input.ne(padding_idx % int(weight.shape[0]))
  spread = inside.unsqueeze(-1)
  if mode == "max":
    found = spread.where(rows, -math.inf).max(1) if 0 not in inside.shape else rows._filled((inside.shape[0], 1), 0)
    return inside.any(1).unsqueeze(-1).where(found, 0)
  total = spread.where(rows, 0).sum(1)
  return total / inside.sum(1).clamp(1, None).unsqueeze(-1) if mode == "mean" else total


def _in_bags(count: int, offsets: Tensor, include_last: bool) -> Tensor:
  """bool `(bags, count)`: which elements lie in which bag."""
  bags = int(offsets.shape[0]) - include_last
  if bags < 0:
    raise ValueError("include_last_offset needs an offset at least, got none")
  place = offsets._count_up(count, offsets.dtype)
  starts = offsets[:bags].unsqueeze(-1)
  ends = offsets[1:] if include_last else offsets[1:].cat(offsets._filled((1,), count))
  return (place >= starts) & (place < ends.unsqueeze(-1))
