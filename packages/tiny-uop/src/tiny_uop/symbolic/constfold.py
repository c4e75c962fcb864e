"""Operations of constants, and of values whose bounds leave one possibility."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_uop.dtype import PtrDType, dtypes
from tiny_uop.evaluate import exec_alu, lanes_of, packed
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


def _fold(u: UOp) -> UOp | None:
  for s in u.src:
    if s.op is not Ops.CONST:
      return None
  folded = u.const(u.dtype, exec_alu(u.op, u.dtype, [s.arg for s in u.src], u.src[0].dtype))
  # at tensor level a constant may name its device, which the result keeps
  device = next((s.src for s in u.src if s.src), ())
  return folded.replace(src=device) if device else folded


def _by_bounds(u: UOp) -> UOp | None:
  if u.dtype.kind == "float" or isinstance(u.dtype, PtrDType):
    return None
  low, high = u._bounds
  return u.const_like(low) if low == high else None


# what can be constant by bounds without constant sources, beyond what the rules on divisions and comparisons find
_BOUNDED = frozenset({
  Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.MAX, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ,
  Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.CAST,
})  # fmt: skip


def _unpack(u: UOp) -> UOp | None:
  vector = u.src[0]
  if vector.op is Ops.CONST:
    lanes = lanes_of(vector.arg, vector.dtype.count)
    return u.const(u.dtype, packed([lanes[i] for i in u.arg]))
  if vector.op is Ops.VECTORIZE and len(u.arg) == 1:
    lane = u.arg[0]
    for part in vector.src:
      if lane < part.dtype.count:
        return part.extract(lane) if part.dtype.count > 1 else part
      lane -= part.dtype.count
  if u.arg == tuple(range(vector.dtype.count)):
    return vector
  return None


def _vector_const(u: UOp) -> UOp | None:
  if any(s.op is not Ops.CONST for s in u.src):
    return None
  return u.const(u.dtype, tuple([lane for s in u.src for lane in lanes_of(s.arg, s.dtype.count)]))


_DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD)
RULES = PatternMatcher([
  rule("fold_constants", UPat(GroupOp.Elementwise, name="u"), _fold,
       example=lambda s: (
         *(s.i.const_like(-7).alu(op, s.i.const_like(d)) for op in _DIVISIONS for d in (2, -2, 0)),
         s.i.const_like(2**31 - 1) + s.i.const_like(1), s.n.const_like(2**40) * s.n.const_like(2**40),
         s.f.const_like(2).sqrt(), s.f.const_like(1) / s.f.const_like(0), s.f.const_like(1) < s.f.const_like(2),
         s.convert(Ops.CAST, dtypes.int8, s.i.const_like(200)), s.convert(Ops.BITCAST, dtypes.int32, s.f.const_like(1)),
         s.b.const_like(False).where(s.i.const_like(1), s.i.const_like(2)), s.lanes(1, 2) + s.lanes(3, 4)),
       near_miss=lambda s: (s.i + 3, s.b.where(s.i.const_like(1), 2))),
  rule("fold_bounds", UPat(_BOUNDED, name="u"), _by_bounds,
       example=lambda s: (
         s.p // 16, s.p < 16, s.p.maximum(20) < 20, s.p.eq(16), s.p >> 4, s.p.alu(Ops.TRUNCDIV, s.var("k", 16, 20)),
         s.i * 0, s.i & 0, s.b & False, s.b | True, s.n.eq(s.n), s.i.ne(s.i), s.b.eq(s.b), s.i < s.i,
         *(s.i.alu(op, s.i.const_like(0)) for op in _DIVISIONS), *(s.n.alu(op, s.n.const_like(0)) for op in _DIVISIONS),
         s.i % 1, s.i.alu(Ops.TRUNCMOD, s.i.const_like(1)), s.var("k", 3, 3).cast(dtypes.int8)),
       near_miss=lambda s: (s.p // 15, s.p < 15, s.i | 1, s.f * 0.0, s.f.eq(s.f))),
  rule("extract_known_lanes", UPat(Ops.EXTRACT, name="u"), _unpack,
       example=lambda s: (s.lanes(1, 2).extract(1), s.lanes(1, 2).extract(1, 0), s.lanes(3, 3).extract(1),
                          s.lanes(s.n, s.m).extract(1), s.value(dtypes.int32.vec(2), 6).extract(0, 1)),
       near_miss=lambda s: s.lanes(s.n, s.m).extract(1, 0)),
  rule("vector_of_constants", UPat(Ops.VECTORIZE, name="u"), _vector_const,
       example=lambda s: s.lanes(s.n.const_like(1), s.n.const_like(2)),
       near_miss=lambda s: s.lanes(s.n, s.n.const_like(2))),
])  # fmt: skip
