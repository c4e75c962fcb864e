"""What the examples of the rules share."""

from __future__ import annotations

from tiny_uop import DType, Samples, UOp

MADE_OF_OTHERS = "a decomposition: made of what the target has"  # why the graph grows


def place_in(s: Samples, dtype: DType, gate: UOp | None = None) -> UOp:
  """The address of an element, which has a neighbour, of memory of this type."""
  return UOp.param(9, dtype.ptr(8)).index(s.var("offset", 0, 6), gate)
