"""Sets: the different elements of an array, ascending. Every NaN is different from every other. All compute `x`, since
the shape of the result depends on its values, but for `isin`."""

from __future__ import annotations

from typing import NamedTuple

from tiny_tensor.array_api.operands import Array, pair
from tiny_tensor.base import Scalar
from tiny_tensor.tensor import Tensor

__all__ = ["isin", "unique_all", "unique_counts", "unique_inverse", "unique_values"]


class UniqueAllResult(NamedTuple):
  """The different elements, where each comes first, which one each element of the array is, and how often it occurs."""

  values: Array
  indices: Array
  inverse_indices: Array
  counts: Array


class UniqueCountsResult(NamedTuple):
  """The different elements, and how often each occurs."""

  values: Array
  counts: Array


class UniqueInverseResult(NamedTuple):
  """The different elements, and which of them each element of the array is."""

  values: Array
  inverse_indices: Array


def unique_all(x: Array, /) -> UniqueAllResult:
  """The different elements, their first positions in the flattened array, the inverse, and counts."""
  values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
  if not x.numel():
    return UniqueAllResult(values, counts, inverse, counts)
  starts = counts.cumsum(0) - counts
  return UniqueAllResult(values, x.flatten().argsort(0).reshape((-1,))[starts], inverse, counts)


def unique_counts(x: Array, /) -> UniqueCountsResult:
  """The different elements, and how often each occurs."""
  return UniqueCountsResult(*x.unique(return_counts=True))


def unique_inverse(x: Array, /) -> UniqueInverseResult:
  """The different elements, and which of them each element is, in the shape of `x`."""
  return UniqueInverseResult(*x.unique(return_inverse=True))


def unique_values(x: Array, /) -> Array:
  """The different elements."""
  values: Array = x.unique()
  return values


def isin(x1: Array | Scalar, x2: Array | Scalar, /, *, invert: bool = False) -> Array:
  """Whether each element of `x1` is among those of `x2`. (Of the 2025.12 standard.)"""
  array = x1 if isinstance(x1, Tensor) else pair(x1, x2)[0].flatten()[0]
  return array.isin(x2, invert=invert)
