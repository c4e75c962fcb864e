"""Constant folding and identities of scalar values, exact for every dtype. Applied to each node as it is made."""

from __future__ import annotations

from tiny_uop import GroupOp, Ops, PatternMatcher, UOp, UPat, dtypes, exec_alu, rule
from tiny_uop.observe import observed

_x, _y = UPat.var("x"), UPat.var("y")
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


def _same_dtype(x: UOp, u: UOp) -> UOp | None:
  return x if x.dtype is u.dtype else None


_bool, _not = UPat.var("x", dtypes.bool), UPat.var("x", dtypes.bool).ne(True)

VALUE_RULES = PatternMatcher([
  rule("value_cast_same", UPat(Ops.CAST, src=(_x,), name="u"), _same_dtype,
       example=lambda s: s.f.alu(Ops.CAST), near_miss=lambda s: s.i.cast(dtypes.int64)),
  rule("value_bitcast_same", UPat(Ops.BITCAST, src=(_x,), name="u"), _same_dtype,
       example=lambda s: s.f.alu(Ops.BITCAST), near_miss=lambda s: s.i.bitcast(dtypes.uint32)),
  rule("value_cast_const", UPat(Ops.CAST, src=(UPat.cvar("c"),), name="u"), _cast_const,
       example=lambda s: UOp(Ops.CAST, dtypes.int32, (s.f.const_like(-2.5),)),
       near_miss=lambda s: UOp(Ops.CAST, dtypes.int32, (s.f.const_like(1e30),))),
  rule("value_fold_constants", UPat(_FOLDABLE, name="u"), _fold,
       example=(lambda s: s.i.const_like(7) // s.i.const_like(-2), lambda s: s.f.const_like(2).sqrt()),
       near_miss=lambda s: s.i + 3),
  rule("value_add_zero", _ints + 0, lambda x: x,
       example=lambda s: s.i + 0, near_miss=lambda s: s.f + 0.0),  # -0.0 + 0.0 is 0.0
  rule("value_mul_one", _x * 1, lambda x: x,
       example=(lambda s: s.f * 1.0, lambda s: s.i * 1), near_miss=lambda s: s.f * 2.0),
  rule("value_mul_zero", _ints * 0, lambda x: x.const_like(0),
       example=lambda s: s.i * 0, near_miss=lambda s: s.f * 0.0),  # of NaN and infinity
  rule("value_div_one", UPat(Ops.FDIV, src=(_x, UPat.const(None, 1))), lambda x: x,
       example=lambda s: s.f / 1.0, near_miss=lambda s: 1.0 / s.f),
  rule("value_and_true", _bool & True, lambda x: x,
       example=lambda s: s.b & True, near_miss=lambda s: s.i & 1),
  rule("value_and_false", _bool & False, lambda x: x.const_like(False),
       example=lambda s: s.b & False, near_miss=lambda s: s.b & s.c),
  rule("value_or_false", _bool | False, lambda x: x,
       example=lambda s: s.b | False, near_miss=lambda s: s.b | s.c),
  rule("value_or_true", _bool | True, lambda x: x.const_like(True),
       example=lambda s: s.b | True, near_miss=lambda s: s.i | 1),
  rule("value_where_const", UPat.cvar("c").where(_x, _y), lambda c, x, y: x if c.arg else y,
       example=(lambda s: s.b.const_like(True).where(s.f, s.g), lambda s: s.b.const_like(False).where(s.f, s.g)),
       near_miss=lambda s: s.b.where(s.f, s.g)),
  rule("value_where_same", UPat.var("c").where(_x, _x), lambda c, x: x,
       example=lambda s: s.b.where(s.f, s.f), near_miss=lambda s: s.b.where(s.f, s.g)),
  rule("value_not_not", _not.ne(True), lambda x: x,
       example=lambda s: s.b.logical_not().logical_not(), near_miss=lambda s: s.b.ne(s.c).logical_not()),
  rule("value_max_same", UPat(Ops.MAX, src=(_x, _x)), lambda x: x,
       example=(lambda s: s.i.maximum(s.i), lambda s: s.f.maximum(s.f)), near_miss=lambda s: s.f.maximum(s.g)),
])  # fmt: skip


def tidy(u: UOp) -> UOp:
  """The node after the rules, its sources being tidy already."""
  table = observed(VALUE_RULES, "values")
  while (simpler := table.rewrite(u)) is not None:
    u = simpler
  return u
