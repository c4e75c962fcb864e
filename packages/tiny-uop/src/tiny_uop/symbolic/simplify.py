"""`simplify`, and the table that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tiny_uop.dtype import dtypes
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher
from tiny_uop.rewrite import graph_rewrite, substitute_rewritten
from tiny_uop.symbolic import algebra, compare, constfold, divmod, logic, positions, sums, valid
from tiny_uop.symbolic.valid import PLAIN

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

__all__ = ["PLAIN", "SYMBOLIC", "TABLES", "simplify", "simplify_substituted"]

# every rule, those that look at gates last: they are the slow ones
SYMBOLIC = PLAIN + valid.RULES
# whole ones first, then their parts in the order in which their rules are tried
TABLES: dict[str, PatternMatcher] = {
  "simplify": SYMBOLIC,
  "plain": PLAIN,
  "constants": constfold.RULES,
  "algebra": algebra.RULES,
  "sums": sums.RULES,
  "floats": algebra.FLOATS,
  "logic": logic.RULES,
  "selection": algebra.SELECTION,
  "conversions": algebra.CONVERSIONS,
  "positions": positions.RULES,
  "divmod": divmod.RULES,
  "compare": compare.RULES,
  "gates": valid.RULES,
}
"""The tables by name: what `python -m tiny_uop simplify --table` runs."""
_DONE = frozenset({Ops.CONST, Ops.VARIABLE, Ops.DEVICE, Ops.BUFFER, Ops.PARAM})


def simplify(u: UOp) -> UOp:
  """The graph with integer algebra, divisions, comparisons, selections and gates simplified; every value stays the
  same, bit for bit. Of a value that is what computes it, and not what its loads come AFTER: a loop there would be
  another than the same loop elsewhere in the kernel."""
  return (
    u if u.op in _DONE else graph_rewrite(u, SYMBOLIC, bottom_up=True, name="simplify", history=u.dtype is dtypes.void)
  )


def simplify_substituted(
  u: UOp, changes: Sequence[Mapping[UOp, UOp]], inside: Callable[[UOp], bool], change: Callable[[UOp], UOp]
) -> list[UOp]:
  """The graph with values in the place of nodes, simplified; one for each of `changes`. See `substitute_rewritten`."""
  return substitute_rewritten(u, changes, SYMBOLIC, inside, change, "simplify", history=False)
