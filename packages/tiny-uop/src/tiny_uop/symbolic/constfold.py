"""Operations of constants, and of values whose bounds leave one possibility."""

from __future__ import annotations

from tiny_uop.dtype import PtrDType
from tiny_uop.evaluate import exec_alu
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule
from tiny_uop.uop import UOp


def _fold(u: UOp) -> UOp | None:
  for s in u.src:
    if s.op is not Ops.CONST:
      return None
  value = exec_alu(u.op, u.dtype, [s.arg for s in u.src], u.src[0].dtype)
  folded = UOp.const(u.dtype, value)
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
    lanes = vector.arg if isinstance(vector.arg, tuple) else (vector.arg,) * vector.dtype.count
    picked = tuple(lanes[i] for i in u.arg)
    return UOp.const(u.dtype, picked if len(picked) > 1 else picked[0])
  if vector.op is Ops.VECTORIZE and len(u.arg) == 1:
    lane: UOp = vector.src[u.arg[0]]
    return lane
  if u.arg == tuple(range(vector.dtype.count)):
    return vector
  return None


def _vector_const(u: UOp) -> UOp | None:
  if any(s.op is not Ops.CONST or isinstance(s.arg, tuple) for s in u.src):
    return None
  return UOp.const(u.dtype, tuple(s.arg for s in u.src))


RULES = PatternMatcher([
  rule("fold_constants", UPat(GroupOp.Elementwise, name="u"), _fold),
  rule("fold_bounds", UPat(_BOUNDED, name="u"), _by_bounds),
  rule("extract_known_lanes", UPat(Ops.EXTRACT, name="u"), _unpack),
  rule("vector_of_constants", UPat(Ops.VECTORIZE, name="u"), _vector_const),
])  # fmt: skip
