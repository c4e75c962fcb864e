"""sort, argsort and topk. Stable; NaN counts as greater than every number."""

from __future__ import annotations

from typing import Self

from tiny_tensor.scatter import ScatterMixin
from tiny_tensor.shapes import normalize_axis
from tiny_uop import dtypes

# Up to this length every pair is compared (one kernel, n² comparisons); beyond it a bitonic network runs.
PAIRWISE = 1024


class SortMixin(ScatterMixin):
  """Order along an axis."""

  __slots__ = ()

  def sort(self, dim: int = -1, descending: bool = False) -> tuple[Self, Self]:
    """(values, int32 positions) in ascending or descending order along `dim`; equal elements keep their order."""
    axis = normalize_axis(dim, self.ndim)
    if self.ndim == 0 or self.numel() == 0 or self.shape[axis] == 1:
      return self, self.const_like(0, dtypes.int32)
    x = self.transpose(axis, -1)
    key = x.detach()
    order = key.order_pairwise(descending) if int(x.shape[-1]) <= PAIRWISE else key.order_bitonic(descending)
    order = order.contiguous()
    return x.gather(-1, order).transpose(axis, -1), order.transpose(axis, -1)

  def argsort(self, dim: int = -1, descending: bool = False) -> Self:
    """The positions that `sort` gives."""
    return self.sort(dim, descending)[1]

  def topk(self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True) -> tuple[Self, Self]:
    """The k largest (or smallest) elements along `dim`, in order, and their positions. ValueError if there are
    fewer.
    """
    axis = normalize_axis(dim, self.ndim)
    size = int(self.shape[axis]) if self.ndim else 1
    if not 0 <= k <= size:
      raise ValueError(f"topk: k={k} must be between 0 and {size}, the size of axis {dim} of shape {self.shape}")
    values, order = self.sort(axis, descending=largest)
    return (values, order) if self.ndim == 0 else (values.select_axis(axis, 0, k), order.select_axis(axis, 0, k))

  def before(self, other: Self, place: Self, other_place: Self, descending: bool) -> Self:
    """Whether an element of `self` comes before one of `other`: by value, then by position."""
    a, b = (other, self) if descending else (self, other)
    less, same = a < b, self == other
    if dtypes.is_bool(self.dtype):
      less = a.logical_not() & b
    if dtypes.is_float(self.dtype):
      less = less | (b.isnan() & a.isnan().logical_not())
      same = same | (self.isnan() & other.isnan())
    return less | (same & (place < other_place))

  def order_pairwise(self, descending: bool) -> Self:
    """Positions in order along the last axis: an element's rank is the number of those before it."""
    n = int(self.shape[-1])
    place = self.count_up(n)
    mine, theirs = self.unsqueeze(-1), self.unsqueeze(-2)
    rank = theirs.before(mine, place.unsqueeze(0), place.unsqueeze(-1), descending).sum(-1).contiguous()
    # the element of rank r stands at r
    return (rank.unsqueeze(-2) == place.unsqueeze(-1)).where(place, 0).sum(-1)

  def order_bitonic(self, descending: bool) -> Self:
    """Positions in order along the last axis, by Batcher's bitonic network (1968): O(n log² n), one kernel a stage."""
    n = int(self.shape[-1])
    levels = (n - 1).bit_length()
    size, lead = 1 << levels, self.shape[:-1]
    # padding comes last whatever the order: its positions are the largest, and it loses every comparison by its value
    pad = [(0, 0)] * len(lead) + [(0, size - n)]
    worst = dtypes.min(self.dtype) if descending else dtypes.max(self.dtype)
    if not descending and dtypes.is_float(self.dtype):
      worst = float("nan")
    values = self.pad(pad, value=worst)
    place = self.count_up(size).broadcast_to((*lead, size))
    for level in range(1, levels + 1):
      for step in range(level - 1, -1, -1):
        half = 1 << step
        shape = (*lead, size // (2 * half), 2, half)
        axis = len(lead) + 1
        first, second = (t.reshape(shape).select_axis(axis, 0, 1) for t in (values, place))
        third, fourth = (t.reshape(shape).select_axis(axis, 1, 2) for t in (values, place))
        # blocks of 2^level run up and down in turn
        blocks = self.count_up(size // (2 * half)).floordiv(1 << (level - step - 1)).mod(2)
        upward = blocks.eq(0).reshape((size // (2 * half), 1, 1))
        keep = third.before(first, fourth, second, descending) ^ upward
        low_v, high_v = keep.where(first, third), keep.where(third, first)
        low_p, high_p = keep.where(second, fourth), keep.where(fourth, second)
        values = low_v.cat(high_v, dim=axis).reshape((*lead, size)).contiguous()
        place = low_p.cat(high_p, dim=axis).reshape((*lead, size)).contiguous()
    return place.select_axis(len(lead), 0, n)
