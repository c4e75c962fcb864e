"""Which rules a target needs."""

from __future__ import annotations

from functools import lru_cache

from tiny_codegen.decompose.arithmetic import MADE_OF_OTHERS, to
from tiny_codegen.decompose.floats import float_rules
from tiny_codegen.decompose.integers import division_rules
from tiny_codegen.decompose.rounding import ROUNDING_RULES
from tiny_codegen.decompose.transcendentals import transcendental_rules
from tiny_codegen.decompose.wide import WIDE_RULES
from tiny_codegen.target import Target
from tiny_uop import Ops, PatternMatcher, UOp, UPat, dtypes, graph_rewrite, rule

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(counter: UOp, key: UOp) -> UOp:
  """Threefry-2x32, 20 rounds; the low word of each uint64 is word 0."""
  x0, x1 = to(counter, dtypes.uint32), to(counter >> 32, dtypes.uint32)
  k0, k1 = to(key, dtypes.uint32), to(key >> 32, dtypes.uint32)
  keys = (k0, k1, k0 ^ k1 ^ _PARITY)
  x0, x1 = x0 + k0, x1 + k1
  for group in range(5):
    for rotation in _ROTATIONS[group % 2]:
      x0 = x0 + x1
      x1 = ((x1 << rotation) | (x1 >> (32 - rotation))) ^ x0
    x0 = x0 + keys[(group + 1) % 3]
    x1 = x1 + keys[(group + 2) % 3] + (group + 1)
  return (to(x1, dtypes.uint64) << 32) | to(x0, dtypes.uint64)


THREEFRY_RULES = (
  rule("threefry_rounds", UPat(Ops.THREEFRY, None, (UPat.var("counter"), UPat.var("key"))), threefry,
       grows=MADE_OF_OTHERS,
       example=lambda s: s.value(dtypes.uint64, 0).threefry(s.value(dtypes.uint64, 1)),
       near_miss=lambda s: s.value(dtypes.uint64, 0) ^ s.value(dtypes.uint64, 1)),
)  # fmt: skip


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
