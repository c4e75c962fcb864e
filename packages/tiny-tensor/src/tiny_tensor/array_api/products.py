"""Matrix products, in the main namespace and in `linalg`."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_tensor.array_api.operands import Array

__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]


def matmul(x1: Array, x2: Array, /) -> Array:
  """The matrix product over the last axis of `x1` and the second to last of `x2`; leading axes broadcast."""
  return x1.matmul(x2)


def matrix_transpose(x: Array, /) -> Array:
  """The last two axes swapped."""
  return x.mT


def tensordot(x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
  """The sum of products over the last `axes` axes of `x1` and first ones of `x2`, or over the pairs that are listed."""
  return x1.tensordot(x2, axes)


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
  """The sum of products along one axis, counted from the end; the others broadcast."""
  if not -min(x1.ndim, x2.ndim) <= axis < 0:
    raise ValueError(f"vecdot takes an axis counted from the end that both have, got {axis} for {x1.shape}, {x2.shape}")
  if x1.shape[axis] != x2.shape[axis]:
    raise ValueError(f"vecdot: shapes {x1.shape} and {x2.shape} differ along axis {axis}")
  return x1.vecdot(x2, axis)
