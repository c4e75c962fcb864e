"""The last rewriting before linearising: operations that only targets know (SUB, NEG, MULACC, shifts for products)."""

from __future__ import annotations

from functools import lru_cache

from tiny_codegen.target import Target
from tiny_uop import Ops, PatternMatcher, Samples, UOp, UPat, dtypes, rule
from tiny_uop.pattern import Rule
from tiny_uop.rewrite import rewrite_once

_SIGNED = (*dtypes.sints, *dtypes.floats)
_NUMBERS = (*dtypes.ints, *dtypes.floats)


def _is_minus_one(c: UOp) -> bool:
  if c.dtype.kind == "uint":
    return bool(c.arg == (1 << c.dtype.bits) - 1)
  return bool(c.arg == -1)


def _subtract(x: UOp, y: UOp) -> UOp | None:
  """x - z for x + y, where y is -z."""
  if y.op is Ops.NEG:
    return x.alu(Ops.SUB, y.src[0])
  for factor, c in (y.src, y.src[::-1]):
    if c.op is Ops.CONST and _is_minus_one(c):
      return x.alu(Ops.SUB, factor)
  return None


def _shift(x: UOp, c: UOp) -> UOp | None:
  """x * 2**k for x >= 0, whose bounds stay known."""
  value = int(c.arg)
  if value < 2 or value & (value - 1) or x.vmin < 0:
    return None
  return x << value.bit_length() - 1


def _fuse(a: UOp, b: UOp, c: UOp) -> UOp | None:
  """a * b + c with one rounding. A negation is left to SUB."""
  by_one = any(f.op is Ops.CONST and not isinstance(f.arg, tuple) and abs(f.arg) == 1 for f in (a, b))
  return None if by_one else a.alu(Ops.MULACC, b, c)


def _byte(s: Samples, slot: int) -> UOp:
  return s.value(dtypes.uint8, slot)


_x, _y, _c = UPat.var("x"), UPat.var("y"), UPat.cvar("c")
_product = UPat(Ops.MUL, None, (UPat.var("a"), UPat.var("b")))

# by the operation that the target must have
LATE_RULES: dict[Ops, Rule] = {
  Ops.SUB:
    rule("subtract", UPat(Ops.ADD, _NUMBERS, [_x, UPat((Ops.NEG, Ops.MUL), name="y")]), _subtract,
         example=(lambda s: s.i - s.j, lambda s: s.f - s.g, lambda s: _byte(s, 0) - _byte(s, 1),
                  lambda s: s.i + s.j.alu(Ops.NEG)),
         near_miss=lambda s: s.i + s.j * -2),
  Ops.MULACC:
    rule("fuse", UPat(Ops.ADD, (dtypes.float32, dtypes.float64), [_product, UPat.var("c")]), _fuse,
         changes="the product is not rounded",
         example=lambda s: s.f * s.g + 1.0, near_miss=(lambda s: s.i * s.j + 1, lambda s: s.f * 1.0 + s.g)),
  Ops.NEG:
    rule("negate", UPat(Ops.MUL, _SIGNED, [_y, _c]), lambda y, c: y.alu(Ops.NEG) if _is_minus_one(c) else None,
         example=(lambda s: -s.i, lambda s: -s.f), near_miss=(lambda s: s.i * -2, lambda s: -_byte(s, 0))),
  Ops.SHL:
    rule("shift_product", UPat(Ops.MUL, dtypes.ints, [_x, _c]), _shift,
         example=(lambda s: s.var("x", 0, 1000, dtypes.int32) * 8, lambda s: _byte(s, 0) * 128),
         near_miss=(lambda s: s.i * 8, lambda s: s.var("x", 0, 1000, dtypes.int32) * 6)),
}  # fmt: skip


def fuse(root: UOp, target: Target) -> UOp:
  """The kernel with subtractions, negations and multiply-adds, where the target has them."""
  return rewrite_once(root, late_table_for(target), name="fuse")


@lru_cache(maxsize=64)
def late_table_for(target: Target) -> PatternMatcher:
  """The late rules of a target. Run it once all types are native, after `table_for`.

  Floats are fused only where the target has a fused multiply-add (`has_fma`): one rounding instead of two.
  """
  usable = target.native_ops - (frozenset() if target.has_fma else {Ops.MULACC})
  return PatternMatcher([row for op, row in LATE_RULES.items() if op in usable])
