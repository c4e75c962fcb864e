"""Symbolic sizes and positions."""

from tiny_uop import UOp


def Variable(name: str, low: int, high: int) -> UOp:
  """A symbolic integer in `[low, high]`. `Variable("i", 1, 10).bind(3)` gives it a value; shapes and slices take the
  bound one.
  """
  return UOp.variable(name, low, high)
