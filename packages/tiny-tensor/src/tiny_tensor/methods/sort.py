"""sort, argsort and topk. Stable; NaN counts as greater than every number, and 0.0 and -0.0 are equal."""

from __future__ import annotations

import math
import operator
from typing import Self

from tiny_tensor.base import TensorBase
from tiny_tensor.methods.radix import order_key, order_of
from tiny_tensor.naming import known_as
from tiny_tensor.shapes import lower, normalize_axis, upper
from tiny_uop import dtypes, sint

LONGEST_BLOCK = 64


class SortMixin(TensorBase):
  """Order along an axis."""

  __slots__ = ()

  def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> tuple[Self, Self]:
    """(values, int32 positions) in ascending or descending order along `dim`; equal elements keep their order, whether
    `stable` asks for it or not.
    """
    axis = normalize_axis(dim, self.ndim)
    if self.ndim == 0 or self.numel() == 0 or self.shape[axis] == 1:
      return self._apart(), self.const_like(0, dtypes.int32)
    return self._first_in_order(axis, self.shape[axis], descending)

  def msort(self) -> Self:
    """The values in order along axis 0."""
    return self.sort(0)[0]

  def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Self:
    """The positions that `sort` gives."""
    return self.sort(dim, descending)[1]

  @known_as(sorted="sorted_")
  def topk(self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True) -> tuple[Self, Self]:
    """The k largest (or smallest) elements along `dim`, in order, and their positions. ValueError if there are
    fewer.
    """
    axis, k = normalize_axis(dim, self.ndim), operator.index(k)
    size = self.shape[axis] if self.ndim else 1
    if not 0 <= k <= lower(size):
      raise ValueError(f"topk: k={k} must be between 0 and {size}, the size of axis {dim} of shape {self.shape}")
    if self.ndim == 0 or self.numel() == 0 or size == 1 or k == 0:
      values, order = self.sort(axis, descending=largest)
      return (values, order) if self.ndim == 0 else (values._select_axis(axis, 0, k), order._select_axis(axis, 0, k))
    return self._first_in_order(axis, k, largest)

  def _first_in_order(self, axis: int, k: sint, descending: bool) -> tuple[Self, Self]:
    """The first k elements of the order along an axis of two elements or more, and their positions."""
    given = self.transpose(axis, -1)
    x = given._filled_up(*range(self.ndim))
    *lead, n = (int(s) for s in x.shape)
    most = min(upper(k), n)
    order = x.detach()._ascending_keys(descending, given.shape[-1])._least(most).reshape((*lead, most)).contiguous()
    cut = [*given.shape[:-1], k]
    return x.gather(-1, order).shrink_to(cut).transpose(axis, -1), order.shrink_to(cut).transpose(axis, -1)

  def _least(self, k: int) -> Self:
    """int32 `(rows, k)`: the positions of the k least of unsigned keys `(rows, n)`, in order. Of long rows only those
    blocks are looked at that have the k least minima: none of the others has anything before these."""
    rows, n = (int(s) for s in self.shape)
    block = min(1 << (math.isqrt(n // k).bit_length() - 1), LONGEST_BLOCK)
    blocks = -(-n // block)
    if 2 * (blocks + k * block) > n:
      return order_of(self)._select_axis(1, 0, k)
    padded = self.pad(((0, 0), (0, blocks * block - n)), value=dtypes.max(self.dtype)).reshape((rows, blocks, block))
    chosen = order_of(padded.min(-1))._select_axis(1, 0, k)
    small = dtypes.uint16 if blocks < 1 << 16 else dtypes.uint32
    chosen = chosen.gather(1, order_of(chosen._as_dtype(small)))  # so that equal elements stay in their order
    inside = chosen.reshape((rows, k, 1)).broadcast_to((rows, k, block))
    places = (inside * block + self._count_up(block)).reshape((rows, k * block))
    found = order_of(padded.reshape((rows, blocks * block)).gather(1, places))._select_axis(1, 0, k)
    return places.gather(1, found)

  def _ascending_keys(self, descending: bool, count: sint) -> Self:
    """Unsigned integers `(rows, n)` in this order; what is behind the first `count` elements comes last."""
    n = int(self.shape[-1])
    key = self._wrap(order_key(self.reshape((-1, n)).uop), False)
    key = key.bitwise_not() if descending else key
    return key if isinstance(count, int) else (key._count_up(n) < count).where(key, dtypes.max(key.dtype))
