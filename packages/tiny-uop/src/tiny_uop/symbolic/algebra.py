"""Identities of floats, selection and conversions; `RULES` is all of algebra, with sums, products, logic and bits.

Float rules keep every value bit for bit (NaN payloads aside), so there are few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_uop.bounds import fits
from tiny_uop.dtype import dtypes
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule
from tiny_uop.symbolic import logic, sums
from tiny_uop.symbolic.linear import INTEGERS, is_const

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

x, y, z, c, c2 = UPat.var("x"), UPat.var("y"), UPat.var("z"), UPat.cvar("c"), UPat.cvar("c2")
true, minus_one = UPat.const(None, True), UPat.const(None, -1)

FLOATS = PatternMatcher([
  rule("float_mul_one", UPat(Ops.MUL, dtypes.floats, [x, UPat.const(None, 1)]), lambda x: x,
       example=lambda s: (s.f * 1.0, s.f.const_like(1) * s.f, s.value(dtypes.fp8e4m3, 6) * 1.0),
       near_miss=lambda s: s.f * -1.0),
  rule("float_div_one", UPat(Ops.FDIV, dtypes.floats, (x, UPat.const(None, 1))), lambda x: x,
       example=lambda s: s.f / 1.0, near_miss=lambda s: (1.0 / s.f, s.f / s.f)),
  # x + 0.0 is not x for x = -0.0
  rule("float_add_minus_zero", UPat(Ops.ADD, dtypes.floats, [x, c]),
       lambda x, c: x if str(c.arg) == "-0.0" else None,
       example=lambda s: (s.f + -0.0, s.f.const_like(-0.0) + s.f), near_miss=lambda s: (s.f + 0.0, s.f + 1.0)),
  rule("float_neg_neg", UPat(Ops.MUL, dtypes.floats, (UPat(Ops.MUL, None, (x, minus_one)), minus_one)), lambda x: x,
       example=lambda s: s.f * -1.0 * -1.0, near_miss=lambda s: s.f * 2.0 * 0.5),  # overflows
  rule("trunc_trunc", UPat(Ops.TRUNC, dtypes.floats, (UPat(Ops.TRUNC, name="x"),)), lambda x: x,
       example=lambda s: s.f.trunc().trunc(), near_miss=lambda s: s.f.sqrt().trunc()),
])  # fmt: skip


# *** selection ***


def _where_bool(cond: UOp, x: UOp, y: UOp) -> UOp | None:
  """A choice between bools of which one is known is logic: WHERE(c, x, False) → c & x."""
  if is_const(x) and is_const(y) and x.arg != y.arg:
    return cond if x.arg else cond.logical_not()
  if is_const(x) and x.arg:
    return cond.alu(Ops.OR, y)
  return cond.alu(Ops.AND, x) if is_const(y) and not y.arg else None


def _max_by_bounds(u: UOp, x: UOp, y: UOp) -> UOp | None:
  return x if x.vmin >= y.vmax else y if y.vmin >= x.vmax else None


cond = UPat.var("cond", dtypes.bool)
SELECTION = PatternMatcher([
  rule("where_known", UPat(Ops.WHERE, None, (UPat.cvar("c"), x, y)), lambda x, y, c: x if c.arg else y,
       example=lambda s: (s.b.const_like(True).where(s.f, s.g), s.b.const_like(False).where(s.i, s.j)),
       near_miss=lambda s: s.b.where(s.f, s.g)),
  rule("where_same", UPat(Ops.WHERE, None, (cond, x, x)), lambda cond, x: x,
       example=lambda s: (s.b.where(s.f, s.f), s.b.where(s.n, s.n)), near_miss=lambda s: s.b.where(s.f, s.g)),
  rule("where_bool", UPat(Ops.WHERE, dtypes.bool, (cond, x, y)), _where_bool,
       example=lambda s: (s.b.where(s.c.const_like(True), False), s.b.where(s.c.const_like(False), True),
                          s.b.where(s.c, False), s.b.where(s.c.const_like(True), s.c)),
       near_miss=lambda s: (s.b.where(s.c, True), s.b.where(s.c.const_like(False), s.c), s.b.where(s.c, s.b),
                            s.b.where(s.i.const_like(1), 0))),
  rule("where_not", UPat(Ops.WHERE, None, (UPat(Ops.CMPNE, None, (cond, true)), x, y), name="u"),
       lambda u, cond, x, y: cond.alu(Ops.WHERE, y, x),
       example=lambda s: (s.b.logical_not().where(s.f, s.g), (s.n >= 0).where(s.n, s.m)),
       near_miss=lambda s: (s.b.where(s.f, s.g), s.b.ne(s.c).where(s.f, s.g))),
  rule("where_where_then", UPat(Ops.WHERE, None, (cond, UPat(Ops.WHERE, None, (cond, x, y)), z)),
       lambda cond, x, y, z: cond.alu(Ops.WHERE, x, z),
       example=lambda s: s.b.where(s.b.where(s.i, s.j), 7), near_miss=lambda s: s.b.where(s.c.where(s.i, s.j), 7)),
  rule("where_where_else", UPat(Ops.WHERE, None, (cond, x, UPat(Ops.WHERE, None, (cond, y, z)))),
       lambda cond, x, y, z: cond.alu(Ops.WHERE, x, z),
       example=lambda s: s.b.where(s.i, s.b.where(s.j, 7)), near_miss=lambda s: s.b.where(s.i, s.c.where(s.j, 7))),
  rule("max_by_bounds", UPat(Ops.MAX, INTEGERS, (x, y), name="u"), _max_by_bounds,
       example=lambda s: (s.p.maximum(0), s.n.maximum(7), s.p.maximum(s.var("k", 15, 20)),
                          s.value(dtypes.uint8, 6).maximum(255)),
       near_miss=lambda s: (s.p.maximum(1), s.n.maximum(s.m))),
])  # fmt: skip


# *** conversions ***


def _cast_cast(u: UOp, v: UOp, x: UOp) -> UOp | None:
  """A conversion through a type that loses nothing on the way, or less than the target does."""
  source, middle, target = x.dtype.scalar(), v.dtype.scalar(), u.dtype.scalar()
  lossless = dtypes.can_lossless_cast(source, middle)
  if dtypes.is_int(source) and dtypes.is_int(middle):
    lossless = fits(middle, x.vmin, x.vmax)
    # wrapping twice is wrapping once to the narrower
    narrower = middle.kind == "index" or target.bits <= middle.bits
    lossless = lossless or (target.kind in ("int", "uint") and narrower)
  return x.cast(u.dtype) if lossless else None


CONVERSIONS = PatternMatcher([
  rule("cast_same", UPat(Ops.CAST, None, (x,), name="u"), lambda u, x: x if u.dtype is x.dtype else None,
       example=lambda s: (s.f.alu(Ops.CAST), s.n.alu(Ops.CAST)), near_miss=lambda s: s.i.cast(dtypes.uint32)),
  rule("bitcast_same", UPat(Ops.BITCAST, None, (x,), name="u"), lambda u, x: x if u.dtype is x.dtype else None,
       example=lambda s: s.f.alu(Ops.BITCAST), near_miss=lambda s: s.i.bitcast(dtypes.uint32)),
  rule("bitcast_bitcast", UPat(Ops.BITCAST, None, (UPat(Ops.BITCAST, None, (x,), name="v"),), name="u"),
       # at tensor level a change of item size moves the last axis; equal sizes never do
       lambda u, v, x: x.bitcast(u.dtype) if x.dtype.itemsize == v.dtype.itemsize == u.dtype.itemsize else None,
       example=lambda s: (s.i.bitcast(dtypes.float32).bitcast(dtypes.uint32),
                          s.f.bitcast(dtypes.int32).bitcast(dtypes.float32)),
       near_miss=lambda s: s.buffer(4, 2).bitcast(dtypes.int16).bitcast(dtypes.float32)),
  rule("cast_cast", UPat(Ops.CAST, None, (UPat(Ops.CAST, None, (x,), name="v"),), name="u"), _cast_cast,
       example=lambda s: (
         s.f.cast(dtypes.float64).cast(dtypes.float32), s.f.cast(dtypes.float64).cast(dtypes.int8),
         s.p.cast(dtypes.int8).cast(dtypes.index), s.i.cast(dtypes.index).cast(dtypes.int8),
         s.i.cast(dtypes.int64).cast(dtypes.float32), s.i.cast(dtypes.float64).cast(dtypes.int32),
         s.i.cast(dtypes.int16).cast(dtypes.uint8), s.value(dtypes.uint8, 6).cast(dtypes.int8).cast(dtypes.uint8),
         s.b.cast(dtypes.int32).cast(dtypes.bool), s.b.cast(dtypes.float32).cast(dtypes.int8)),
       near_miss=lambda s: (
         s.f.cast(dtypes.float16).cast(dtypes.float32), s.f.cast(dtypes.int32).cast(dtypes.int8),
         s.i.cast(dtypes.int8).cast(dtypes.int64), s.n.cast(dtypes.uint8).cast(dtypes.index),
         s.value(dtypes.uint64, 6).cast(dtypes.int64).cast(dtypes.index),
         s.i.cast(dtypes.float32).cast(dtypes.int32), s.i.cast(dtypes.int8).cast(dtypes.bool),
         s.value(dtypes.uint8, 6).cast(dtypes.int8).cast(dtypes.int16), s.i.cast(dtypes.bool).cast(dtypes.int32))),
])  # fmt: skip


RULES = sums.RULES + FLOATS + logic.RULES + SELECTION + CONVERSIONS
