"""Which rules a target needs."""

from __future__ import annotations

from functools import lru_cache

from tiny_codegen.decompose.floats import float_rules
from tiny_codegen.decompose.integers import division_rules
from tiny_codegen.decompose.rounding import ROUNDING_RULES
from tiny_codegen.decompose.threefry import THREEFRY_RULES
from tiny_codegen.decompose.transcendentals import transcendental_rules
from tiny_codegen.decompose.wide import WIDE_RULES
from tiny_codegen.target import Target
from tiny_uop import Ops, PatternMatcher, UOp, dtypes, graph_rewrite


def decompose(root: UOp, target: Target) -> UOp:
  """The kernel in ops and types that the target has."""
  return graph_rewrite(root, table_for(target), name="decompose")


@lru_cache(maxsize=64)
def table_for(target: Target) -> PatternMatcher:
  """The rules that rewrite a kernel into one of native ops and dtypes. Exact but for the transcendentals, whose
  bounds they state.

  Run it to a fixed point with `graph_rewrite` when `index` has been lowered, then `late_table_for(target)`: the
  late rules fuse operations, which must not happen before the types are the final ones.
  """
  rules = [
    *(WIDE_RULES if dtypes.int64 not in target.native_dtypes else ()),
    *transcendental_rules(target),
    *float_rules(target),
    *(ROUNDING_RULES if Ops.TRUNC not in target.native_ops else ()),
    *(THREEFRY_RULES if Ops.THREEFRY not in target.native_ops else ()),
    *division_rules(target),
  ]
  return PatternMatcher(rules)
