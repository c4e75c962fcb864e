"""Python's operators as elementwise operations: what nodes (`UOp`) and patterns of nodes (`UPat`) share."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from tiny_uop.ops import Ops

Other = TypeVar("Other")
"""What may stand on the other side of an operator."""


class Operators(Generic[Other]):
  """Elementwise operators over `alu`. A Python number takes the dtype of what it meets."""

  __slots__ = ()

  def alu(self, op: Ops, *src: Any) -> Self:
    """An elementwise operation with this as its first source."""
    raise NotImplementedError

  def _other(self, value: Any) -> Self:
    """What stands on the other side of an operator: a constant where it is a Python number."""
    raise NotImplementedError

  def _binary(self, op: Ops, other: Any, swap: bool = False) -> Self:
    right = self._other(other)
    return right.alu(op, self) if swap else self.alu(op, right)

  def __add__(self, other: Other) -> Self:
    return self._binary(Ops.ADD, other)

  def __radd__(self, other: float) -> Self:
    return self._binary(Ops.ADD, other)

  def __sub__(self, other: Other) -> Self:
    return self._binary(Ops.ADD, -self._other(other))

  def __rsub__(self, other: float) -> Self:
    return (-self)._binary(Ops.ADD, other)

  def __mul__(self, other: Other) -> Self:
    return self._binary(Ops.MUL, other)

  def __rmul__(self, other: float) -> Self:
    return self._binary(Ops.MUL, other)

  def __neg__(self) -> Self:
    return self._binary(Ops.MUL, -1)

  def __floordiv__(self, other: Other) -> Self:
    return self._binary(Ops.FLOORDIV, other)

  def __rfloordiv__(self, other: int) -> Self:
    return self._binary(Ops.FLOORDIV, other, swap=True)

  def __mod__(self, other: Other) -> Self:
    return self._binary(Ops.FLOORMOD, other)

  def __rmod__(self, other: int) -> Self:
    return self._binary(Ops.FLOORMOD, other, swap=True)

  def __truediv__(self, other: Other) -> Self:
    return self._binary(Ops.FDIV, other)

  def __rtruediv__(self, other: float) -> Self:
    return self._binary(Ops.FDIV, other, swap=True)

  def __and__(self, other: Other) -> Self:
    return self._binary(Ops.AND, other)

  def __rand__(self, other: int) -> Self:
    return self._binary(Ops.AND, other)

  def __or__(self, other: Other) -> Self:
    return self._binary(Ops.OR, other)

  def __ror__(self, other: int) -> Self:
    return self._binary(Ops.OR, other)

  def __xor__(self, other: Other) -> Self:
    return self._binary(Ops.XOR, other)

  def __rxor__(self, other: int) -> Self:
    return self._binary(Ops.XOR, other)

  def __lshift__(self, other: Other) -> Self:
    return self._binary(Ops.SHL, other)

  def __rshift__(self, other: Other) -> Self:
    return self._binary(Ops.SHR, other)

  def __lt__(self, other: Other) -> Self:
    return self._binary(Ops.CMPLT, other)

  def __gt__(self, other: Other) -> Self:
    return self._binary(Ops.CMPLT, other, swap=True)

  def logical_not(self) -> Self:
    """not x, of a bool."""
    return self._binary(Ops.CMPNE, True)

  def eq(self, other: Other) -> Self:
    """Elementwise equality (`==` is identity)."""
    return self._binary(Ops.CMPEQ, other)

  def ne(self, other: Other) -> Self:
    """Elementwise inequality."""
    return self._binary(Ops.CMPNE, other)

  def maximum(self, other: Other) -> Self:
    """Elementwise maximum."""
    return self._binary(Ops.MAX, other)
