"""What the rows of the spec are made of: their type, and the questions that many of them ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tiny_uop.dtype import DType, PtrDType, dtypes
from tiny_uop.ops import Ops

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


class Row(NamedTuple):
  """One legal form: the operations it is for, what it looks like in words, and the test."""

  ops: frozenset[Ops]
  expects: str
  holds: Callable[[UOp], bool]


def row(ops: Ops | Iterable[Ops], expects: str, holds: Callable[[UOp], bool]) -> Row:
  """A row of the spec."""
  return Row(frozenset({ops} if isinstance(ops, Ops) else ops), expects, holds)


def is_value(dtype: DType) -> bool:
  """Whether a dtype is of values: no effect, no pointer."""
  return dtype.kind != "void" and not isinstance(dtype, PtrDType)


def is_integer(dtype: DType) -> bool:
  """Whether a dtype is of integers, positions among them."""
  return is_value(dtype) and dtype.kind in ("int", "uint", "index")


def alike(u: UOp, count: int) -> bool:
  """Whether a node has `count` sources, all of its own dtype."""
  return len(u.src) == count and all(s.dtype is u.dtype for s in u.src) and is_value(u.dtype)


def is_a(value: Any, kind: type) -> bool:
  """Whether an argument is of this very type: True is no int here."""
  return type(value) is kind


def is_name(value: Any) -> bool:
  """Whether an argument names something: a device, a variable."""
  return type(value) is str and bool(value)


def are_names(value: Any) -> bool:
  """Whether an argument names several devices."""
  return type(value) is tuple and len(value) > 1 and all(map(is_name, value)) and len(set(value)) == len(value)


def void(u: UOp) -> bool:
  """Whether a node is an effect."""
  return u.dtype is dtypes.void


def waitable(sources: tuple[UOp, ...]) -> bool:
  """Whether sources are what one can wait for."""
  return all(void(s) or s.op in (Ops.RANGE, Ops.AFTER, Ops.INDEX) or isinstance(s.dtype, PtrDType) for s in sources)
