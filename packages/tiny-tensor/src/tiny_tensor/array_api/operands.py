"""Types of arguments, checks, and the makers of functions that only forward to a method of Tensor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from tiny_tensor.array_api.data_types import isdtype
from tiny_tensor.base import Scalar
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes

Array: TypeAlias = Tensor
Operand: TypeAlias = Array | Scalar
Axis: TypeAlias = int | tuple[int, ...] | None
F = TypeVar("F", bound=Callable[..., Any])


def pair(x1: Array | Scalar, x2: Array | Scalar) -> tuple[Array, Array]:
  """Two operands with one shape and dtype; one of them may be a Python number, else TypeError."""
  if isinstance(x1, Tensor):
    return x1._pair(x2)
  if isinstance(x2, Tensor):
    return x2._pair(x1, reverse=True)
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


def of_one(method: Callable[[Array], Array], doc: str, name: str = "", kind: str = "") -> Callable[[Array], Array]:
  """A function of the namespace that calls a method of its one array, which must be of `kind` if that is given. Its
  name is that of the method unless another one is given."""
  attribute, name = method.__name__, name or method.__name__

  def function(x: Array, /) -> Array:
    if kind:
      check_kind(name, kind, x)
    result: Array = getattr(x, attribute)()
    return result

  return _named(function, name, doc)


def of_two(
  method: Callable[[Array, Array], Array], doc: str, name: str = "", kind: str = ""
) -> Callable[[Operand, Operand], Array]:
  """`of_one` for a method of the first of two operands, which `pair` brings to one shape and dtype."""
  attribute, name = method.__name__, name or method.__name__

  def function(x1: Operand, x2: Operand, /) -> Array:
    a, b = pair(x1, x2)
    if kind:
      check_kind(name, kind, a)
    result: Array = getattr(a, attribute)(b)
    return result

  return _named(function, name, doc)


def _named(function: F, name: str, doc: str) -> F:
  """The function as if a `def` in the module two calls above had made it."""
  function.__name__ = function.__qualname__ = name
  function.__doc__, function.__module__ = doc, sys._getframe(2).f_globals["__name__"]
  return function
