"""Identities of floats, selection and conversions; `RULES` is all of algebra, with sums, products, logic and bits.

Float rules keep every value bit for bit (NaN payloads aside), so there are few of them.
"""

from __future__ import annotations

from tiny_uop.bounds import fits
from tiny_uop.dtype import DType, dtypes
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule
from tiny_uop.symbolic import logic, sums
from tiny_uop.symbolic.linear import is_const
from tiny_uop.uop import UOp

_INTS = (*dtypes.ints, dtypes.index)
x, y, z, c, c2 = UPat.var("x"), UPat.var("y"), UPat.var("z"), UPat.cvar("c"), UPat.cvar("c2")
true, minus_one = UPat.const(None, True), UPat.const(None, -1)

FLOATS = PatternMatcher([
  rule("float_mul_one", UPat(Ops.MUL, dtypes.floats, [x, UPat.const(None, 1)]), lambda x: x),
  rule("float_div_one", UPat(Ops.FDIV, dtypes.floats, (x, UPat.const(None, 1))), lambda x: x),
  # x + 0.0 is not x for x = -0.0
  rule("float_add_minus_zero", UPat(Ops.ADD, dtypes.floats, [x, c]),
       lambda x, c: x if c.arg == 0 and str(c.arg) == "-0.0" else None),
  rule("float_neg_neg", UPat(Ops.MUL, dtypes.floats, (UPat(Ops.MUL, None, (x, minus_one)), minus_one)), lambda x: x),
  rule("trunc_trunc", UPat(Ops.TRUNC, dtypes.floats, (UPat(Ops.TRUNC, name="x"),)), lambda x: x),
])  # fmt: skip


# *** selection ***


def _where_constant(u: UOp, x: UOp, y: UOp) -> UOp | None:
  """WHERE(c, True, False) → c and the like, for bool branches."""
  cond = u.src[0]
  if cond.dtype is not u.dtype:
    return None
  if is_const(x) and is_const(y) and x.arg != y.arg:
    return cond if x.arg else cond.logical_not()
  return None


def _max_by_bounds(u: UOp, x: UOp, y: UOp) -> UOp | None:
  return x if x.vmin >= y.vmax else y if y.vmin >= x.vmax else None


cond = UPat.var("cond", dtypes.bool)
SELECTION = PatternMatcher([
  rule("where_known", UPat(Ops.WHERE, None, (UPat.cvar("c"), x, y)), lambda x, y, c: x if c.arg else y),
  rule("where_same", UPat(Ops.WHERE, None, (cond, x, x)), lambda cond, x: x),
  rule("where_bool", UPat(Ops.WHERE, dtypes.bool, (cond, x, y), name="u"),
       lambda u, cond, x, y: _where_constant(u, x, y)),
  rule("where_not", UPat(Ops.WHERE, None, (UPat(Ops.CMPNE, None, (cond, true)), x, y), name="u"),
       lambda u, cond, x, y: cond.alu(Ops.WHERE, y, x)),
  rule("where_where_then", UPat(Ops.WHERE, None, (cond, UPat(Ops.WHERE, None, (cond, x, y)), z)),
       lambda cond, x, y, z: cond.alu(Ops.WHERE, x, z)),
  rule("where_where_else", UPat(Ops.WHERE, None, (cond, x, UPat(Ops.WHERE, None, (cond, y, z)))),
       lambda cond, x, y, z: cond.alu(Ops.WHERE, x, z)),
  rule("max_by_bounds", UPat(Ops.MAX, _INTS, (x, y), name="u"), _max_by_bounds),
])  # fmt: skip


# *** conversions ***


def _integer(dtype: DType) -> bool:
  return dtype.kind in ("int", "uint", "index")


def _cast_cast(u: UOp, v: UOp, x: UOp) -> UOp | None:
  """A conversion through a type that loses nothing on the way, or less than the target does."""
  source, middle, target = x.dtype.scalar(), v.dtype.scalar(), u.dtype.scalar()
  lossless = dtypes.can_lossless_cast(source, middle)
  if _integer(source) and _integer(middle):
    lossless = fits(middle, x.vmin, x.vmax)
    # wrapping twice is wrapping once to the narrower
    narrowing = _integer(target) and target.kind != "index" and (middle.kind == "index" or target.bits <= middle.bits)
    lossless = lossless or narrowing
  return x.cast(u.dtype) if lossless else None


CONVERSIONS = PatternMatcher([
  rule("cast_same", UPat(Ops.CAST, None, (x,), name="u"), lambda u, x: x if u.dtype is x.dtype else None),
  rule("bitcast_same", UPat(Ops.BITCAST, None, (x,), name="u"), lambda u, x: x if u.dtype is x.dtype else None),
  rule("bitcast_bitcast", UPat(Ops.BITCAST, None, (UPat(Ops.BITCAST, None, (x,), name="v"),), name="u"),
       # at tensor level a change of item size moves the last axis; equal sizes never do
       lambda u, v, x: x.bitcast(u.dtype) if x.dtype.itemsize == v.dtype.itemsize == u.dtype.itemsize else None),
  rule("cast_cast", UPat(Ops.CAST, None, (UPat(Ops.CAST, None, (x,), name="v"),), name="u"), _cast_cast),
])  # fmt: skip


RULES = sums.RULES + FLOATS + logic.RULES + SELECTION + CONVERSIONS
