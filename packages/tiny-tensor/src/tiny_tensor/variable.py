"""Symbolic sizes and positions."""

from tiny_uop import UOp


def Variable(name: str, min_val: int, max_val: int) -> UOp:
  """A symbolic integer in `[min_val, max_val]`. `Variable("i", 1, 10).bind(3)` gives it a value; shapes and slices take
  the bound one.
  """
  return UOp.variable(name, min_val, max_val)
