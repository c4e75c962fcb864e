"""The rest of Python's operators: reflected, in place, power, matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tiny_tensor.base import Operand, TensorBase


class OperatorMixin(TensorBase):
  """Operators that elementwise.py does not define for itself."""

  __slots__ = ()

  if TYPE_CHECKING:

    def assign(self, x: Operand) -> Self: ...  # in assign.py

  def __radd__(self, x: Operand) -> Self:
    return self.add(x, reverse=True)

  def __rsub__(self, x: Operand) -> Self:
    return self.sub(x, reverse=True)

  def __rmul__(self, x: Operand) -> Self:
    return self.mul(x, reverse=True)

  def __rtruediv__(self, x: Operand) -> Self:
    return self.div(x, reverse=True)

  def __floordiv__(self, x: Operand) -> Self:
    return self.floordiv(x)

  def __rfloordiv__(self, x: Operand) -> Self:
    return self.floordiv(x, reverse=True)

  def __mod__(self, x: Operand) -> Self:
    return self.mod(x)

  def __rmod__(self, x: Operand) -> Self:
    return self.mod(x, reverse=True)

  def __pow__(self, x: Operand) -> Self:
    return self.pow(x)

  def __rpow__(self, x: Operand) -> Self:
    return self.pow(x, reverse=True)

  def __matmul__(self, x: Self) -> Self:
    return self.matmul(x)

  def __rmatmul__(self, x: Self) -> Self:
    return self.matmul(x, reverse=True)

  def __rand__(self, x: Operand) -> Self:
    return self.bitwise_and(x, reverse=True)

  def __ror__(self, x: Operand) -> Self:
    return self.bitwise_or(x, reverse=True)

  def __rxor__(self, x: Operand) -> Self:
    return self.bitwise_xor(x, reverse=True)

  def __lshift__(self, x: Operand) -> Self:
    return self.lshift(x)

  def __rlshift__(self, x: Operand) -> Self:
    return self.lshift(x, reverse=True)

  def __rshift__(self, x: Operand) -> Self:
    return self.rshift(x)

  def __rrshift__(self, x: Operand) -> Self:
    return self.rshift(x, reverse=True)

  def __invert__(self) -> Self:
    return self.bitwise_not()

  def __iadd__(self, x: Operand) -> Self:
    return self.assign(self.add(x))

  def __isub__(self, x: Operand) -> Self:
    return self.assign(self.sub(x))

  def __imul__(self, x: Operand) -> Self:
    return self.assign(self.mul(x))

  def __itruediv__(self, x: Operand) -> Self:
    return self.assign(self.div(x))

  def __ifloordiv__(self, x: Operand) -> Self:
    return self.assign(self.floordiv(x))

  def __imod__(self, x: Operand) -> Self:
    return self.assign(self.mod(x))

  def __ipow__(self, x: Operand) -> Self:
    return self.assign(self.pow(x))

  def __imatmul__(self, x: Self) -> Self:
    return self.assign(self.matmul(x))

  def __iand__(self, x: Operand) -> Self:
    return self.assign(self.bitwise_and(x))

  def __ior__(self, x: Operand) -> Self:
    return self.assign(self.bitwise_or(x))

  def __ixor__(self, x: Operand) -> Self:
    return self.assign(self.bitwise_xor(x))

  def __ilshift__(self, x: Operand) -> Self:
    return self.assign(self.lshift(x))

  def __irshift__(self, x: Operand) -> Self:
    return self.assign(self.rshift(x))
