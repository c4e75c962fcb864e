"""Masked and indexed updates: copies with new values where a mask holds, or at indices into the flattened tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tiny_tensor.base import Operand, TensorBase
from tiny_tensor.shapes import broadcast_shape, normalize_axis
from tiny_uop import dtypes, prod


class MaskedUpdateMixin(TensorBase):
  """take, put, index_put and their relatives: none changes `self`."""

  __slots__ = ()

  def _spread_index(self, what: str, axis: int, index: Self) -> Self:
    """A vector of positions along an axis, repeated along the others."""
    vector = self._index_vector(what, index)
    shape = (*self.shape[:axis], vector.shape[0], *self.shape[axis + 1 :])
    return vector.reshape([-1 if i == axis else 1 for i in range(self.ndim)]).expand(shape)

  def index_copy(self, dim: int, index: Self, source: Self) -> Self:
    """A copy with the entries of `source` along `dim` at those that the vector `index` names."""
    if self.ndim == 0:
      return self.reshape((1,)).index_copy(0, index, source.reshape((1,))).reshape(())
    axis = normalize_axis(dim, self.ndim)
    places = self._spread_index("index_copy", axis, index)
    if source.shape != places.shape:
      raise ValueError(
        f"index_copy along {dim} of {self.shape} needs a source of shape {places.shape}, got {source.shape}"
      )
    return self.scatter(axis, places, source)

  def index_fill(self, dim: int, index: Self, value: Operand) -> Self:
    """A copy with `value` in the entries along `dim` that the vector `index` names."""
    if self.ndim == 0:
      return self.reshape((1,)).index_fill(0, index, value).reshape(())
    axis = normalize_axis(dim, self.ndim)
    vector = self._index_vector("index_fill", index)
    size = int(self.shape[axis])
    named = (vector < 0).where(vector + size, vector)._hot(size).any(0) if vector.numel() else None
    if named is None:
      return self
    return named.reshape([-1 if i == axis else 1 for i in range(self.ndim)]).where(value, self)._as_dtype(self.dtype)

  def index_reduce(self, dim: int, index: Self, source: Self, reduce: str, include_self: bool = True) -> Self:
    """A copy in which the entries along `dim` that `index` names are combined with those of `source`, by "prod",
    "mean", "amax" or "amin".
    """
    if self.ndim == 0:
      return self.reshape((1,)).index_reduce(0, index, source.reshape((1,)), reduce, include_self).reshape(())
    axis = normalize_axis(dim, self.ndim)
    return self.scatter_reduce(axis, self._spread_index("index_reduce", axis, index), source, reduce, include_self)

  def take(self, index: Self) -> Self:
    """Elements of the flattened tensor, in the shape of `index`. A position outside reads 0."""
    flat = self.reshape((self.numel(),))
    return flat._gather_axes([(0, index)], False)

  def put(self, index: Self, source: Self, accumulate: bool = False) -> Self:
    """A copy with the elements of `source` at positions of the flattened tensor, or added to them."""
    places, values = index.reshape((index.numel(),)), source.reshape((source.numel(),))
    flat = self.reshape((self.numel(),))
    out = flat.scatter(0, places, values, "add" if accumulate else None)
    return out.reshape(self.shape)

  def index_put(self, indices: Sequence[Self | None], values: Operand, accumulate: bool = False) -> Self:
    """A copy with `values` where `self[indices]` reads (integers, masks, None for a whole axis), or with them added."""
    target: Any = self._count_up(int(prod(self.shape))).reshape(self.shape)
    places = target[tuple(slice(None) if i is None else i for i in indices)]
    amounts = self._operand(values)._as_dtype(self.dtype).broadcast_to(places.shape)
    return self.put(places, amounts, accumulate)

  def masked_scatter(self, mask: Self, source: Self) -> Self:
    """A copy with the elements of `source`, in order, where `mask` (which broadcasts) holds."""
    if not dtypes.is_bool(mask.dtype):
      raise TypeError(f"masked_scatter takes a mask of bool, got {mask.dtype.name}")
    shape = broadcast_shape(self.shape, mask.shape)
    x, wanted = self.broadcast_to(shape), mask.broadcast_to(shape)
    if 0 in shape or source.numel() == 0:
      return x
    flat = wanted.reshape((wanted.numel(),))
    place = (flat.cumsum(0) - 1).clamp(0, None).reshape(shape)
    return wanted.where(source.take(place), x)

  def argwhere(self) -> Self:
    """`nonzero`."""
    return self.nonzero()

  def unique_consecutive(
    self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
  ) -> Any:
    """The first of each run of equal elements (or slices along `dim`); with them, if asked for, the int32 number of the
    run of each element, and how long the runs are. Computes the tensor.
    """
    axis = 0 if dim is None else normalize_axis(dim, self.ndim)
    x = self.reshape((self.numel(),)) if dim is None else self.transpose(0, axis)
    shape = self.shape if dim is None else (x.shape[0],)
    values, number, counts = x._runs()
    values = values if dim is None else values.transpose(0, axis)
    more = ([number.reshape(shape)] if return_inverse else []) + ([counts] if return_counts else [])
    return (values, *more) if more else values

  def _runs(self) -> tuple[Self, Self, Self]:
    """(the first slice along axis 0 of each run of equal ones, the number of the run of each slice, their lengths)."""
    n = int(self.shape[0])
    if n == 0:
      none = self._filled((0,), 0, dtypes.int32)
      return self, none, none
    changed = self._select_axis(0, 1, n).ne(self._select_axis(0, 0, n - 1))
    changed = changed.any(tuple(range(1, self.ndim))) if self.ndim > 1 else changed
    first = changed.pad([(1, 0)], value=True)
    starts = first.nonzero().squeeze(1)
    ends = starts[1:].cat(self._filled((1,), n, dtypes.int32))
    return self[starts], first.cumsum(0) - 1, ends - starts

  def unravel_index(self, shape: int | Sequence[int]) -> tuple[Self, ...]:
    """Positions in a flattened tensor of this shape as one tensor of positions for each axis."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    out: list[Self] = []
    rest = self
    for size in reversed(sizes):
      out.insert(0, rest.mod(size))
      rest = rest.floordiv(size)
    return tuple(out)

  def fill(self, value: Operand) -> Self:
    """A tensor of this shape and dtype, filled with `value`."""
    filler = self._operand(value)
    if filler.ndim:
      raise ValueError(f"fill takes one number, got shape {filler.shape}")
    return filler._as_dtype(self.dtype).broadcast_to(self.shape)._flat_in(self)
