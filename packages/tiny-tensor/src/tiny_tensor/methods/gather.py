"""Gather and scatter-add by index, search in ascending values, unique elements and counts."""

from __future__ import annotations

from typing import Any, Self

from tiny_tensor.base import Operand, TensorBase
from tiny_tensor.naming import known_as
from tiny_tensor.shapes import broadcast_shape, normalize_axis
from tiny_uop import dtypes


class GatherMixin(TensorBase):
  """index_select, take_along_dim, index_add, scatter_add, searchsorted, unique and bincount."""

  __slots__ = ()

  def _index_vector(self, what: str, index: Self) -> Self:
    """`index` as a vector. Raises ValueError or TypeError where it is not one of integers."""
    if index.ndim > 1:
      raise ValueError(f"{what} takes a vector of positions, got shape {index.shape}")
    if not dtypes.is_int(index.dtype):
      raise TypeError(f"{what} needs integer positions, got {index.dtype.name}")
    return index.reshape((index.numel(),))

  def index_select(self, dim: int, index: Self) -> Self:
    """The entries along `dim` that the vector `index` names: `(…, len(index), …)`. A position outside reads 0."""
    axis = normalize_axis(dim, self.ndim)
    index = self._index_vector("index_select", index)
    if not self.ndim:
      return self.reshape((1,))[index].reshape(())
    return self[(slice(None),) * axis + (index,)]

  def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
    """`out[i][j] = self[indices[i][j]][j]` for dim 0, as `gather`, but other axes broadcast (NumPy's
    `take_along_axis`). Without `dim`, positions in the flattened tensor.
    """
    if dim is None:
      return self.flatten().gather(0, indices.flatten())
    axis = normalize_axis(dim, self.ndim)
    if indices.ndim != self.ndim:
      raise ValueError(f"take_along_dim: indices of shape {indices.shape} need as many axes as {self.shape}")
    around = broadcast_shape(
      self.shape[:axis] + (1,) + self.shape[axis + 1 :], indices.shape[:axis] + (1,) + indices.shape[axis + 1 :]
    )
    x, index = (t.broadcast_to((*around[:axis], t.shape[axis], *around[axis + 1 :])) for t in (self, indices))
    return x.gather(axis, index)

  def scatter_add(self, dim: int, index: Self, src: Operand) -> Self:
    """A copy with `out[index[i][j]][j] += src[i][j]` (for dim 0): `scatter` that adds up all values for a position."""
    return self.scatter(dim, index, src, reduce="add")

  def index_add(self, dim: int, index: Self, source: Self, alpha: float = 1) -> Self:
    """A copy with `alpha` times the entries of `source` along `dim` added to those that the vector `index` names.

    `source` has the shape of `self`, but for `dim`, where it has as many entries as `index`: ValueError.
    """
    if not self.ndim:
      return self.reshape((1,)).index_add(dim, index, source.reshape((source.numel(),)), alpha).reshape(())
    axis = normalize_axis(dim, self.ndim)
    index = self._index_vector("index_add", index)
    expected = (*self.shape[:axis], index.shape[0], *self.shape[axis + 1 :])
    if source.shape != expected:
      raise ValueError(f"index_add along {dim} of {self.shape} needs a source of shape {expected}, got {source.shape}")
    positions = index.reshape([-1 if i == axis else 1 for i in range(self.ndim)]).expand(expected)
    return self.scatter_add(axis, positions, source if alpha == 1 else (source * alpha)._as_dtype(self.dtype))

  # *** by value ***

  def searchsorted(
    self,
    values: Operand,
    right: bool = False,
    side: str | None = None,
    sorter: Self | None = None,
    out_int32: bool = True,
  ) -> Self:
    """int32 positions (int64 unless `out_int32`) at which `values` would go into the ascending last axis of `self`, so
    that it stays sorted: before equal elements, behind them with `right` (or `side` "right"). NaN is greater than every
    number. `sorter` are positions that put `self` in order, if it is not.

    `self` is a vector, or has the shape of `values` but for the last axis: ValueError. Order is not checked.
    """
    if side not in (None, "left", "right"):
      raise ValueError(f"side must be 'left' or 'right', got {side!r}")
    if sorter is not None:
      return self.gather(-1, sorter).searchsorted(values, right, side, None, out_int32)
    wanted = self._operand(values).detach()
    if self.ndim == 0 or (self.ndim > 1 and self.shape[:-1] != wanted.shape[:-1]):
      raise ValueError(
        f"searchsorted: shapes {self.shape} and {wanted.shape} must agree but for the last axis, "
        "or what is searched must be a vector"
      )
    common = dtypes.promote(self.dtype, wanted.dtype)
    # each step of the search reads both: what is computed is computed once
    inside, wanted = (t._as_dtype(common).contiguous() for t in (self.detach(), wanted))
    size = int(self.shape[-1])
    found = self._filled(wanted.shape, 0, dtypes.int32)
    for step in (1 << bit for bit in reversed(range(size.bit_length()))):
      place = found + (step - 1)
      there = inside._gather_axes([(0, place)], False) if self.ndim == 1 else inside.gather(-1, place)
      before = there._not_after(wanted) if right or side == "right" else wanted._not_after(there).logical_not()
      found = ((place < size) & before).where(found + step, found)
    return found if out_int32 else found._as_dtype(dtypes.int64)

  def _not_after(self, other: Self) -> Self:
    """`self <= other`, where NaN is greater than every number and equal to itself."""
    below = self <= other
    return below | other.isnan() if dtypes.is_float(self.dtype) else below

  @known_as(sorted="sorted_")
  def unique(
    self, sorted_: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
  ) -> Any:
    """The different elements, ascending; with them, if asked for, the int32 position of each element of `self` among
    them (of the shape of `self`), and how often each occurs. Every NaN is different from every other, as in PyTorch.

    With `dim`, the different slices along it, in the order of their elements (as of words in a lexicon), the position
    of each slice, and how often each occurs. Computes the tensor, as the shape depends on it.
    """
    if dim is not None:
      return self._unique_slices(normalize_axis(dim, self.ndim), return_inverse, return_counts)
    flat = self.flatten()
    values, order = flat.sort(0)
    n = int(flat.shape[0])
    if n == 0:
      none = self._filled((0,), 0, dtypes.int32)
      values, inverse, counts = flat, none.reshape(self.shape), none
    else:
      first = (values[1:] != values[:-1]).pad([(1, 0)], value=True)
      starts = first.nonzero().squeeze(1)
      values = values[starts]
      counts = starts[1:].cat(self._filled((1,), n, dtypes.int32)) - starts
      group = first.cumsum(0) - 1
      # the order of the order: where each element went
      inverse = group[order.reshape((n,)).argsort(0)].reshape(self.shape)
    more = ([inverse] if return_inverse else []) + ([counts] if return_counts else [])
    return (values, *more) if more else values

  def _unique_slices(self, axis: int, return_inverse: bool, return_counts: bool) -> Any:
    """`unique` along an axis: slices are sorted by one element after the other, the last one first."""
    x = self.movedim(axis, 0)
    n = int(x.shape[0])
    rows = x.reshape((n, x.numel() // n if n else 0))
    order = self._count_up(n)
    for column in reversed(range(int(rows.shape[1]))):
      order = order[rows[:, column][order].argsort(0).reshape((n,))]
    ordered = rows[order]
    values, number, counts = ordered._runs()  # type: ignore[attr-defined]
    inverse = number[order.argsort(0).reshape((n,))] if n else number
    values = values.reshape((values.shape[0], *x.shape[1:])).movedim(0, axis)
    more = ([inverse] if return_inverse else []) + ([counts] if return_counts else [])
    return (values, *more) if more else values

  def bincount(self, weights: Self | None = None, minlength: int = 0) -> Self:
    """How often 0, 1, 2, … occur in a vector of integers, int32; or the sums of their `weights`.

    Computes the tensor: the result ends with its largest element, or has `minlength` elements if that is more. Raises
    ValueError for negative elements.
    """
    if self.ndim != 1 or not dtypes.is_int(self.dtype):
      raise ValueError(f"bincount takes a vector of integers, got {self.dtype.name} of shape {self.shape}")
    if weights is not None and weights.shape != self.shape:
      raise ValueError(f"bincount: weights have shape {weights.shape}, expected {self.shape}")
    if minlength < 0:
      raise ValueError(f"bincount: minlength must not be negative, got {minlength}")
    low, high = (0, -1) if self.shape[0] == 0 else (int(self.min().item()), int(self.max().item()))
    if low < 0:
      raise ValueError(f"bincount counts from 0 on, the tensor has an element {low}")
    amounts = self._filled(self.shape, 1, dtypes.int32) if weights is None else weights
    return amounts._filled((max(high + 1, minlength),), 0).scatter_add(0, self, amounts)
