"""What functions of the namespace have in common: operands, axes and sizes as the standard has them."""

from __future__ import annotations

from typing import TypeAlias

from tiny_tensor.array_api.data_types import isdtype
from tiny_tensor.base import Scalar
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes

Array: TypeAlias = Tensor
Axis: TypeAlias = int | tuple[int, ...] | None


def pair(x1: Array | Scalar, x2: Array | Scalar) -> tuple[Array, Array]:
  """Two operands with one shape and dtype; one of them may be a Python number, else TypeError."""
  if isinstance(x1, Tensor):
    return x1.pair(x2)
  if isinstance(x2, Tensor):
    return x2.pair(x1, reverse=True)
  raise TypeError(f"one operand at least is an array: got {type(x1).__name__} and {type(x2).__name__}")


def check_kind(what: str, kind: str, *arrays: Array) -> None:
  """TypeError for an array that is not of a kind that `isdtype` knows."""
  for x in arrays:
    if not isdtype(x.dtype, kind):
      raise TypeError(f"{what} takes arrays of kind {kind!r}, got {x.dtype.name}")


def shape_tuple(shape: int | tuple[int, ...]) -> tuple[int, ...]:
  """A shape, of which a number stands for one axis."""
  return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def index_type() -> DType:
  """The dtype of positions and counts."""
  return dtypes.default_int
