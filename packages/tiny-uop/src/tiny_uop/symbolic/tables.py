"""The tables of `simplify` by name: what `python -m tiny_uop simplify --table` runs."""

from __future__ import annotations

from tiny_uop.pattern import PatternMatcher
from tiny_uop.symbolic import algebra, compare, constfold, divmod, logic, positions, sums, valid
from tiny_uop.symbolic.simplify import PLAIN, SYMBOLIC

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
