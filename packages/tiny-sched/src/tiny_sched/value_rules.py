"""Constant folding and identities of scalar values, exact for every dtype. Applied to each node as it is made."""

from __future__ import annotations

from tiny_uop import GroupOp, Ops, PatternMatcher, UOp, UPat, dtypes, exec_alu, rule
from tiny_uop.observe import observed
from tiny_uop.symbolic import SYMBOLIC

_BORROWED = (
  "cast_same", "bitcast_same", "int_mul_one", "float_mul_one", "float_div_one", "and_true", "or_false", "where_known",
  "where_same", "not_not", "and_or_same",
)  # fmt: skip
"""Rules of `simplify` that look at a node and its sources only."""
_INTEGER = (dtypes.bool, *dtypes.ints, dtypes.index)
_ints = UPat.var("x", _INTEGER)
_FOLDABLE = GroupOp.Elementwise - {Ops.CAST, Ops.BITCAST}


def _fold(u: UOp) -> UOp | None:
  if any(s.op is not Ops.CONST or type(s.arg) is tuple for s in u.src):
    return None
  return UOp.const(u.dtype, exec_alu(u.op, u.dtype, [s.arg for s in u.src], u.src[0].dtype))


def _cast_const(c: UOp, u: UOp) -> UOp | None:
  value = c.arg
  if type(value) is tuple or (c.dtype.kind == "float" and u.dtype.kind != "float" and not abs(value) < 2.0**31):
    return None  # what such a conversion gives is the target's business
  return UOp.const(u.dtype, value)


_bool = UPat.var("x", dtypes.bool)

VALUE_RULES = PatternMatcher([
  *[row for row in SYMBOLIC.rules if row.name in _BORROWED],
  rule("value_cast_const", UPat(Ops.CAST, src=(UPat.cvar("c"),), name="u"), _cast_const,
       example=lambda s: UOp(Ops.CAST, dtypes.int32, (s.f.const_like(-2.5),)),
       near_miss=lambda s: UOp(Ops.CAST, dtypes.int32, (s.f.const_like(1e30),))),
  rule("value_fold_constants", UPat(_FOLDABLE, name="u"), _fold,
       example=(lambda s: s.i.const_like(7) // s.i.const_like(-2), lambda s: s.f.const_like(2).sqrt()),
       near_miss=lambda s: s.i + 3),
  rule("value_add_zero", _ints + 0, lambda x: x,
       example=lambda s: s.i + 0, near_miss=lambda s: s.f + 0.0),  # -0.0 + 0.0 is 0.0
  rule("value_mul_zero", _ints * 0, lambda x: x.const_like(0),
       example=lambda s: s.i * 0, near_miss=lambda s: s.f * 0.0),  # of NaN and infinity
  rule("value_and_false", _bool & False, lambda x: x.const_like(False),
       example=lambda s: s.b & False, near_miss=lambda s: s.b & s.c),
  rule("value_or_true", _bool | True, lambda x: x.const_like(True),
       example=lambda s: s.b | True, near_miss=lambda s: s.i | 1),
])  # fmt: skip


def tidy(u: UOp) -> UOp:
  """The node after the rules, its sources being tidy already."""
  table = observed(VALUE_RULES, "values")
  while (simpler := table.rewrite(u)) is not None:
    u = simpler
  return u
