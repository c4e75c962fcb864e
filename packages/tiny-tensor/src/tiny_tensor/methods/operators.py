"""Python's operators of two operands: `a + b`, its reflected form (`1 + a`), and the form that assigns (`a += b`)."""

from __future__ import annotations

from typing import Any

from tiny_tensor.base import Operand, TensorBase

METHODS = {
  "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floordiv", "mod": "mod", "pow": "pow",
  "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "lshift",
  "rshift": "rshift",
}  # fmt: skip
"""Operator, as `__…__`, `__r…__` and `__i…__` have it → the method that it calls."""


class OperatorMixin(TensorBase):
  """The operators of `METHODS`, which `TensorBase` declares."""

  __slots__ = ()


def _define(operator: str, method: str) -> None:
  def plain(self: Any, x: Operand) -> Any:
    return getattr(self, method)(x)

  def reflected(self: Any, x: Operand) -> Any:
    return getattr(self, method)(x, reverse=True)

  def assigning(self: Any, x: Operand) -> Any:
    return self.assign(getattr(self, method)(x))

  for prefix, function in (("", plain), ("r", reflected), ("i", assigning)):
    function.__name__ = f"__{prefix}{operator}__"
    setattr(OperatorMixin, function.__name__, function)


for _operator, _method in METHODS.items():
  _define(_operator, _method)
