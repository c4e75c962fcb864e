"""Logic and bits: AND, OR, XOR and negation in canonical form, masks and shifts."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tiny_uop.dtype import dtypes
from tiny_uop.graph import operands
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule
from tiny_uop.symbolic.linear import INTEGERS, is_const

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


_LONGEST = 64  # operands that are looked at: each prefix of a longer chain would cost time with its square


def _absorb(u: UOp) -> UOp | None:
  """a & b & a → a & b (the same for |), also where the repeated clause is deeper in a left-nested chain."""
  left, right = u.src
  if right in islice(operands(left, u.op), _LONGEST):
    return left
  return right if left in islice(operands(right, u.op), _LONGEST) else None


def _all_ones(c: UOp) -> bool:
  return bool(c.arg == (dtypes.max(c.dtype) if c.dtype.kind == "uint" else -1))


def _mask(u: UOp, x: UOp, c: UOp) -> UOp | None:
  """x & (2**k - 1) where x is in [0, 2**k)."""
  mask = c.arg
  return x if mask & (mask + 1) == 0 and 0 <= x.vmin and x.vmax <= mask else None


x, y, c, c2 = UPat.var("x"), UPat.var("y"), UPat.cvar("c"), UPat.cvar("c2")
b = UPat.var("x", dtypes.bool)
true, false = UPat.const(None, True), UPat.const(None, False)
_BITS = (Ops.AND, Ops.OR, Ops.XOR)
_NEGATED = {Ops.CMPNE: Ops.CMPEQ, Ops.CMPEQ: Ops.CMPNE}
negation = UPat(Ops.CMPNE, None, (b, true))

RULES = PatternMatcher([
  rule("bool_add_is_or", UPat((Ops.ADD, Ops.MAX), dtypes.bool, (x, y)), lambda x, y: x.alu(Ops.OR, y),
       example=lambda s: (s.b + s.c, s.b.maximum(s.c)), near_miss=lambda s: s.i + s.j),
  rule("bool_mul_is_and", UPat(Ops.MUL, dtypes.bool, (x, y)), lambda x, y: x.alu(Ops.AND, y),
       example=lambda s: s.b * s.c, near_miss=lambda s: s.i * s.j),
  rule("and_true", UPat(Ops.AND, dtypes.bool, [x, true]), lambda x: x,
       example=lambda s: (s.b & True, s.b.const_like(True) & s.b), near_miss=lambda s: (s.b & False, s.i & 1)),
  rule("or_false", UPat(Ops.OR, dtypes.bool, [x, false]), lambda x: x,
       example=lambda s: (s.b | False, s.b.const_like(False) | s.b), near_miss=lambda s: s.b | True),
  rule("and_or_same", UPat((Ops.AND, Ops.OR, Ops.MAX), None, (x, x)), lambda x: x,
       example=lambda s: (s.b & s.b, s.i | s.i, s.i.maximum(s.i), s.f.maximum(s.f)),
       near_miss=lambda s: (s.b & s.c, s.i ^ s.i)),
  rule("and_not", UPat(Ops.AND, dtypes.bool, [b, negation], name="u"), lambda u, x: u.const_like(False),
       example=lambda s: (s.b & s.b.logical_not(), s.b.logical_not() & s.b),
       near_miss=lambda s: s.b & s.c.logical_not()),
  rule("or_not", UPat(Ops.OR, dtypes.bool, [b, negation], name="u"), lambda u, x: u.const_like(True),
       example=lambda s: (s.b | s.b.logical_not(), s.b.logical_not() | s.b),
       near_miss=lambda s: s.b | s.c.logical_not()),
  rule("absorb", UPat((Ops.AND, Ops.OR), name="u"), _absorb,
       example=lambda s: ((s.b & s.c) & s.b, s.b & (s.c & s.b), (s.i | s.j) | s.i),
       near_miss=lambda s: (s.b & s.c, (s.b | s.c) & s.b)),
  rule("xor_true_is_not", UPat(Ops.XOR, dtypes.bool, [x, true]), lambda x: x.logical_not(),
       example=lambda s: (s.b ^ True, s.b.const_like(True) ^ s.b), near_miss=lambda s: (s.b ^ s.c, s.i ^ 1)),
  rule("bool_ne_true_last", UPat((Ops.CMPNE, Ops.CMPEQ), None, (UPat.cvar("c", dtypes.bool), b), name="u"),
       lambda u, x, c: None if is_const(x) else x.alu(u.op, c),
       example=lambda s: (s.b.const_like(True).ne(s.b), s.b.const_like(False).eq(s.b)),
       near_miss=lambda s: (s.b.ne(True), s.b.const_like(True).ne(False))),
  rule("bool_ne_false", UPat(Ops.CMPNE, None, (b, false)), lambda x: x,
       example=lambda s: s.b.ne(False), near_miss=lambda s: (s.b.ne(True), s.i.ne(0))),
  rule("bool_eq_true", UPat(Ops.CMPEQ, None, (b, true)), lambda x: x,
       example=lambda s: s.b.eq(True), near_miss=lambda s: (s.b.eq(False), s.i.eq(1))),
  rule("bool_eq_false", UPat(Ops.CMPEQ, None, (b, false)), lambda x: x.logical_not(),
       example=lambda s: s.b.eq(False), near_miss=lambda s: (s.b.eq(True), s.i.eq(0))),
  rule("not_not", UPat(Ops.CMPNE, None, (UPat(Ops.CMPNE, None, (b, true)), true)), lambda x: x,
       example=lambda s: s.b.logical_not().logical_not(), near_miss=lambda s: s.b.ne(s.c).logical_not()),
  rule("not_compare", UPat(Ops.CMPNE, None, (UPat((Ops.CMPNE, Ops.CMPEQ), None, (x, y), name="u"), true)),
       lambda u, x, y: x.alu(_NEGATED[u.op], y),
       example=lambda s: (s.i.eq(s.j).logical_not(), s.f.ne(s.g).logical_not(), s.f.eq(s.f).logical_not()),
       near_miss=lambda s: ((s.i < s.j).logical_not(), s.i.eq(s.j).ne(s.b))),
  rule("bits_or_xor_zero", UPat((Ops.OR, Ops.XOR), INTEGERS, [x, UPat.const(None, 0)]), lambda x: x,
       example=lambda s: (s.i | 0, s.n ^ 0, s.i.const_like(0) ^ s.i), near_miss=lambda s: (s.i | 1, s.i & 0)),
  rule("bits_xor_same", UPat(Ops.XOR, None, (x, x), name="u"), lambda u, x: u.const_like(0),
       example=lambda s: (s.i ^ s.i, s.b ^ s.b, s.n ^ s.n), near_miss=lambda s: s.i ^ s.j),
  rule("bits_and_ones", UPat(Ops.AND, INTEGERS, [x, c]), lambda x, c: x if _all_ones(c) else None,
       example=lambda s: (s.i & -1, s.n & -1, s.value(dtypes.uint8, 6) & 255, s.i.const_like(-1) & s.i),
       near_miss=lambda s: (s.i & 255, s.value(dtypes.uint16, 6) & 255, s.n & 2**64 - 1)),
  rule("bits_or_ones", UPat(Ops.OR, INTEGERS, [x, c], name="u"),
       lambda u, x, c: u.const_like(c.arg) if _all_ones(c) else None,
       example=lambda s: (s.i | -1, s.n | -1, s.value(dtypes.uint8, 6) | 255, s.i.const_like(-1) | s.i),
       near_miss=lambda s: (s.i | 255, s.value(dtypes.uint16, 6) | 255)),
  rule("bits_mask", UPat(Ops.AND, INTEGERS, [x, c], name="u"), _mask,
       example=lambda s: (s.p & 15, s.p.const_like(15) & s.p, s.var("k", 0, 7, dtypes.int32) & 7),
       near_miss=lambda s: (s.p & 7, s.n & 15, s.p & 20, s.i & 15)),
  rule("bits_constant_last", UPat(_BITS, None, (c, x), name="u"),
       lambda u, x, c: None if is_const(x) else x.alu(u.op, c),
       example=lambda s: (s.i.const_like(5) & s.i, s.i.const_like(5) | s.i, s.n.const_like(5) ^ s.n),
       near_miss=lambda s: (s.i & 5, s.i.const_like(5) & s.i.const_like(3))),
  rule("bits_constants", UPat(_BITS, None, (UPat(_BITS, None, (x, c), name="v"), c2), name="u"),
       lambda u, v, x, c, c2: x.alu(u.op, c.alu(u.op, c2)) if u.op is v.op else None,
       example=lambda s: (s.i & 12 & 6, s.i | 12 | 6, s.i ^ 12 ^ 6, s.n ^ 12 ^ 6),
       near_miss=lambda s: ((s.i & 12) | 6, s.i & s.j & 6)),
  rule("shift_zero", UPat((Ops.SHL, Ops.SHR), INTEGERS, (x, UPat.const(None, 0))), lambda x: x,
       example=lambda s: (s.i << 0, s.i >> 0, s.n << 0), near_miss=lambda s: (s.i << 1, s.i.const_like(0) << s.i)),
])  # fmt: skip
