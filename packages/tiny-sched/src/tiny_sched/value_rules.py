"""Constant folding and identities of scalar values, exact for every dtype. Applied to each node as it is made."""

from __future__ import annotations

from tiny_uop import GroupOp, Ops, PatternMatcher, UOp, UPat, dtypes, exec_alu, rule

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


VALUE_RULES = PatternMatcher([
  rule("cast_same",      UPat(Ops.CAST, src=(_x,), name="u"),              _same_dtype),
  rule("bitcast_same",   UPat(Ops.BITCAST, src=(_x,), name="u"),           _same_dtype),
  rule("cast_const",     UPat(Ops.CAST, src=(UPat.cvar("c"),), name="u"),  _cast_const),
  rule("fold_constants", UPat(_FOLDABLE, name="u"),                        _fold),
  rule("add_zero",       _ints + 0,                                        lambda x: x),
  rule("mul_one",        _x * 1,                                           lambda x: x),
  rule("mul_zero",       _ints * 0,                                        lambda x: x.const_like(0)),
  rule("div_one",        UPat(Ops.FDIV, src=(_x, UPat.const(None, 1))),    lambda x: x),
  rule("and_true",       UPat.var("x", dtypes.bool) & True,                lambda x: x),
  rule("and_false",      UPat.var("x", dtypes.bool) & False,               lambda x: x.const_like(False)),
  rule("or_false",       UPat.var("x", dtypes.bool) | False,               lambda x: x),
  rule("or_true",        UPat.var("x", dtypes.bool) | True,                lambda x: x.const_like(True)),
  rule("where_const",    UPat.cvar("c").where(_x, _y),                     lambda c, x, y: x if c.arg else y),
  rule("where_same",     UPat.var("c").where(_x, _x),                      lambda c, x: x),
  rule("not_not",        UPat.var("x", dtypes.bool).ne(True).ne(True),     lambda x: x),
  rule("max_same",       UPat(Ops.MAX, src=(_x, _x)),                      lambda x: x),
])  # fmt: skip


def tidy(u: UOp) -> UOp:
  """The node after the rules, its sources being tidy already."""
  while (simpler := VALUE_RULES.rewrite(u)) is not None:
    u = simpler
  return u
