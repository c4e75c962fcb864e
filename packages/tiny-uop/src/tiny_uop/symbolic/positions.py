"""Positions that a graph computes with as data: `int32(i + 1) - 1 < int32(j)` becomes `i < j`.

Frontends count in int32 and the like (`arange`), from loop counters that are `index`. Where neither the conversion nor
the operation can wrap, the operation is done on positions, for which there are more rules, and which gates are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_uop.bounds import fits
from tiny_uop.dtype import dtypes
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule
from tiny_uop.symbolic.linear import is_const

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

_MOST = 1 << 48  # numbers beyond that are no positions, and moved to another side might not fit any type


def _position(u: UOp) -> UOp | None:
  """The index expression of the same value, for a lossless conversion of one and for a constant."""
  if is_const(u):
    return u.const(dtypes.index.vec(u.dtype.count), u.arg) if abs(u.arg) < _MOST else None
  inner = u.src[0] if u.op is Ops.CAST else None
  return inner if inner is not None and inner.dtype.kind == "index" and fits(u.dtype, inner.vmin, inner.vmax) else None


def _positions(u: UOp) -> UOp | None:
  """The operation on the positions that both operands are conversions of."""
  left, right = u.src
  if left.op is not Ops.CAST and right.op is not Ops.CAST:
    return None
  a, b = _position(left), _position(right)
  if a is None or b is None:
    return None
  result = a.alu(u.op, b)
  if result.dtype.kind == "bool":
    return result
  return result.cast(u.dtype) if fits(u.dtype, result.vmin, result.vmax) else None


_CALCULATED = (Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.MAX)
_COMPARED = (Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE)
_int = UPat.var(None, dtypes.ints)

RULES = PatternMatcher([
  rule("position_arithmetic", UPat(_CALCULATED, dtypes.ints, name="u"), _positions,
       example=lambda s: (s.p.cast(dtypes.int32) + 1, s.p.cast(dtypes.int32) + s.n.cast(dtypes.int32),
                          s.n.cast(dtypes.int8) * -3, s.p.cast(dtypes.uint8) // 3, s.n.cast(dtypes.int32) % 3,
                          s.n.cast(dtypes.int64).maximum(s.m.cast(dtypes.int64))),
       near_miss=lambda s: (s.n.cast(dtypes.uint8) + 1, s.p.cast(dtypes.int8) * 9, s.p.cast(dtypes.int32) + s.i,
                            s.p.cast(dtypes.uint8) + 250, s.i + 1)),
  rule("position_comparison", UPat(_COMPARED, None, (_int, _int), name="u"), _positions,
       example=lambda s: (s.p.cast(dtypes.int32) < s.q.cast(dtypes.int32), s.p.cast(dtypes.int8).eq(3),
                          (s.n.cast(dtypes.int32)).ne(s.m.cast(dtypes.int32))),
       near_miss=lambda s: (s.n.cast(dtypes.uint8) < 3, s.p.cast(dtypes.int32) < s.i, s.i < 3)),
])  # fmt: skip
