"""sort, argsort and topk. Stable; NaN counts as greater than every number, and 0.0 and -0.0 are equal."""

from __future__ import annotations

import operator
from functools import cache
from typing import Self

from tiny_tensor.base import TensorBase
from tiny_tensor.methods.sorting_network import Record, least_records
from tiny_tensor.naming import known_as
from tiny_tensor.shapes import lower, normalize_axis, upper
from tiny_uop import UOp, dtypes, prod, sint


class SortMixin(TensorBase):
  """Order along an axis."""

  __slots__ = ()

  def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> tuple[Self, Self]:
    """(values, int32 positions) in ascending or descending order along `dim`; equal elements keep their order, whether
    `stable` asks for it or not.
    """
    axis = normalize_axis(dim, self.ndim)
    if self.ndim == 0 or self.numel() == 0 or self.shape[axis] == 1:
      return self, self.const_like(0, dtypes.int32)
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
    records = x.detach()._sort_records(descending, given.shape[-1])
    most = min(upper(k), n)
    keep = 1 << (most - 1).bit_length()
    found = least_records(records, keep, cache(lambda size: self._count_up(size).uop))
    last = found[-1].shrink([(0, prod(lead)), (0, most)])
    # of a packed record the lower half is the position
    place = last if last.dtype == dtypes.int32 else (last & 0xFFFFFFFF).cast(dtypes.int32)
    order = self._wrap(place.reshape((*lead, most)), False).contiguous()
    cut = [*given.shape[:-1], k]
    return x.gather(-1, order).shrink_to(cut).transpose(axis, -1), order.shrink_to(cut).transpose(axis, -1)

  def _sort_records(self, descending: bool, count: sint) -> Record:
    """Of each row an integer that says key and position, or two for types of 64 bits; rows are padded to a power of two
    with what comes last, as what is behind the first `count` elements does."""
    *lead, n = (int(s) for s in self.shape)
    rows, size = prod(lead), 1 << (n - 1).bit_length()
    key = self.reshape((rows, n))._order_key()
    key = key.bitwise_not() if descending else key
    place = self._count_up(n).reshape((1, n)).expand((rows, n))
    if isinstance(count, UOp):
      key = (place < count).where(key, dtypes.max(dtypes.int32 if self.dtype.itemsize <= 4 else dtypes.int64))
    packed = self.dtype.itemsize <= 4
    parts = [key * (1 << 32) + place._as_dtype(dtypes.int64)] if packed else [key, place]
    if size == n:
      return tuple([part.uop for part in parts])
    return tuple([part.pad([(0, 0), (0, size - n)], value=dtypes.max(part.dtype)).contiguous().uop for part in parts])

  def _order_key(self) -> Self:
    """int64 in the same order: within 32 bits for types of up to 32 bits."""
    if not dtypes.is_float(self.dtype):
      if self.dtype == dtypes.uint64:
        return self.bitcast(dtypes.int64).bitwise_xor(dtypes.min(dtypes.int64))
      return self._as_dtype(dtypes.int64) - ((1 << 31) if self.dtype == dtypes.uint32 else 0)
    x = self if self.dtype.itemsize == 8 else self._as_dtype(dtypes.float32)
    kind = dtypes.int64 if self.dtype.itemsize == 8 else dtypes.int32
    most = dtypes.max(kind)
    bits = x.eq(0).where(0.0, x).bitcast(kind)
    # floats are sign and magnitude: the greater the magnitude of a negative one, the less it is
    ordered = (bits < 0).where(bits.bitwise_xor(most), bits)
    return x.isnan().where(most, ordered)._as_dtype(dtypes.int64)
