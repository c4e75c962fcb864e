"""Searching, sorting, and picking by index. Positions are int32."""

from __future__ import annotations

from typing import Literal

from tiny_tensor.array_api.operands import Array, Axis, index_type, pair
from tiny_tensor.base import Scalar

__all__ = [
  "argmax", "argmin", "argsort", "count_nonzero", "nonzero", "searchsorted", "sort", "take", "take_along_axis",
  "where",
]  # fmt: skip


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
  """The position of the first maximum; in the flattened array without `axis`."""
  return x.argmax(axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
  """The position of the first minimum; in the flattened array without `axis`."""
  return x.argmin(axis, keepdims)


def count_nonzero(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
  """How many elements are not zero."""
  return x._as_bool().sum(axis, keepdims, dtype=index_type())


def nonzero(x: Array, /) -> tuple[Array, ...]:
  """The positions of the elements that are not zero, one vector per axis. Computes `x`. ValueError for a 0-d array."""
  if not x.ndim:
    raise ValueError("nonzero of a 0-d array has no axes to give positions in")
  places = x.nonzero()
  return tuple(places._select_axis(1, i, i + 1).squeeze(1) for i in range(x.ndim))


def searchsorted(
  x1: Array, x2: Array | Scalar, /, *, side: Literal["left", "right"] = "left", sorter: Array | None = None
) -> Array:
  """Positions at which `x2` goes into the vector `x1`, which `sorter` puts in order, so that it stays sorted: before or
  behind equal elements."""
  inside = x1 if sorter is None else x1.index_select(0, sorter)
  return inside.searchsorted(x2, side=side)


def where(condition: Array, x1: Array | Scalar, x2: Array | Scalar, /) -> Array:
  """`x1` where `condition` holds, else `x2`."""
  a, b = pair(x1, x2)
  return condition.where(a, b)


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
  """In order along `axis`; always stable, with NaN as the greatest."""
  return x.sort(axis, descending)[0]


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
  """The positions that put `x` in order along `axis`; always stable."""
  return x.argsort(axis, descending)


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
  """The entries along `axis` (of a vector: the elements) that a vector of positions names."""
  if axis is None and x.ndim != 1:
    raise ValueError(f"take needs an axis for an array of shape {x.shape}")
  return x.index_select(0 if axis is None else axis, indices)


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
  """`out[i][j] = x[i][indices[i][j]]` for the last axis; the others broadcast."""
  return x.take_along_dim(indices, axis)
