"""`simplify`, and the table that it runs."""

from __future__ import annotations

from tiny_uop.ops import Ops
from tiny_uop.rewrite import graph_rewrite
from tiny_uop.symbolic import valid
from tiny_uop.symbolic.valid import PLAIN
from tiny_uop.uop import UOp

__all__ = ["PLAIN", "SYMBOLIC", "simplify"]

# every rule, those that look at gates last: they are the slow ones
SYMBOLIC = PLAIN + valid.RULES

_DONE = frozenset({Ops.CONST, Ops.VARIABLE, Ops.DEVICE, Ops.BUFFER, Ops.PARAM})


def simplify(u: UOp) -> UOp:
  """The graph with integer algebra, divisions, comparisons, selections and gates simplified; every value stays the
  same, bit for bit."""
  return u if u.op in _DONE else graph_rewrite(u, SYMBOLIC, bottom_up=True, name="simplify")
