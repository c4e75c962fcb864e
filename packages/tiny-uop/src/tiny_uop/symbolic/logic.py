"""Logic and bits: AND, OR, XOR and negation in canonical form, masks and shifts."""

from __future__ import annotations

from tiny_uop.dtype import dtypes
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule
from tiny_uop.symbolic.linear import is_const
from tiny_uop.uop import UOp


def _clauses(gate: UOp, op: Ops) -> list[UOp]:
  found: list[UOp] = []
  stack = [gate]
  while stack and len(found) < 64:
    node = stack.pop()
    if node.op is op:
      stack += [node.src[1], node.src[0]]
    else:
      found.append(node)
  return found


def _absorb(u: UOp) -> UOp | None:
  """a & b & a → a & b (the same for |), also where the repeated clause is deeper in a left-nested chain."""
  left, right = u.src
  if right in _clauses(left, u.op):
    return left
  return right if left in _clauses(right, u.op) else None


def _mask(u: UOp, x: UOp, c: UOp) -> UOp | None:
  """x & (2**k - 1) where x is in [0, 2**k)."""
  mask = c.arg
  return x if mask >= 0 and mask & (mask + 1) == 0 and 0 <= x.vmin and x.vmax <= mask else None


_INTS = (*dtypes.ints, dtypes.index)
x, y, c, c2 = UPat.var("x"), UPat.var("y"), UPat.cvar("c"), UPat.cvar("c2")
b = UPat.var("x", dtypes.bool)
true, false = UPat.const(None, True), UPat.const(None, False)
_BITS = (Ops.AND, Ops.OR, Ops.XOR)
_NEGATED = {Ops.CMPNE: Ops.CMPEQ, Ops.CMPEQ: Ops.CMPNE}
negation = UPat(Ops.CMPNE, None, (b, true))

RULES = PatternMatcher([
  rule("bool_add_is_or", UPat((Ops.ADD, Ops.MAX), dtypes.bool, (x, y)), lambda x, y: x.alu(Ops.OR, y)),
  rule("bool_mul_is_and", UPat(Ops.MUL, dtypes.bool, (x, y)), lambda x, y: x.alu(Ops.AND, y)),
  rule("and_true", UPat(Ops.AND, dtypes.bool, [x, true]), lambda x: x),
  rule("and_false", UPat(Ops.AND, dtypes.bool, [x, false], name="u"), lambda u, x: u.const_like(False)),
  rule("or_true", UPat(Ops.OR, dtypes.bool, [x, true], name="u"), lambda u, x: u.const_like(True)),
  rule("or_false", UPat(Ops.OR, dtypes.bool, [x, false]), lambda x: x),
  rule("and_or_same", UPat((Ops.AND, Ops.OR, Ops.MAX), None, (x, x)), lambda x: x),
  rule("and_not", UPat(Ops.AND, dtypes.bool, [b, negation], name="u"), lambda u, x: u.const_like(False)),
  rule("or_not", UPat(Ops.OR, dtypes.bool, [b, negation], name="u"), lambda u, x: u.const_like(True)),
  rule("absorb", UPat((Ops.AND, Ops.OR), name="u"), _absorb),
  rule("xor_true_is_not", UPat(Ops.XOR, dtypes.bool, [x, true]), lambda x: x.logical_not()),
  rule("bool_ne_true_last", UPat((Ops.CMPNE, Ops.CMPEQ), None, (UPat.cvar("c", dtypes.bool), b), name="u"),
       lambda u, x, c: None if is_const(x) else x.alu(u.op, c)),
  rule("bool_ne_false", UPat(Ops.CMPNE, None, (b, false)), lambda x: x),
  rule("bool_eq_true", UPat(Ops.CMPEQ, None, (b, true)), lambda x: x),
  rule("bool_eq_false", UPat(Ops.CMPEQ, None, (b, false)), lambda x: x.logical_not()),
  rule("not_not", UPat(Ops.CMPNE, None, (UPat(Ops.CMPNE, None, (b, true)), true)), lambda x: x),
  rule("not_compare", UPat(Ops.CMPNE, None, (UPat((Ops.CMPNE, Ops.CMPEQ), None, (x, y), name="u"), true)),
       lambda u, x, y: x.alu(_NEGATED[u.op], y)),
  rule("bits_and_zero", UPat(Ops.AND, _INTS, [x, UPat.const(None, 0)], name="u"), lambda u, x: u.const_like(0)),
  rule("bits_or_xor_zero", UPat((Ops.OR, Ops.XOR), _INTS, [x, UPat.const(None, 0)]), lambda x: x),
  rule("bits_xor_same", UPat(Ops.XOR, None, (x, x), name="u"), lambda u, x: u.const_like(0)),
  rule("bits_and_ones", UPat(Ops.AND, _INTS, [x, c]), lambda x, c: x if _all_ones(c) else None),
  rule("bits_or_ones", UPat(Ops.OR, _INTS, [x, c], name="u"),
       lambda u, x, c: u.const_like(c.arg) if _all_ones(c) else None),
  rule("bits_mask", UPat(Ops.AND, _INTS, [x, c], name="u"), _mask),
  rule("bits_constant_last", UPat(_BITS, None, (c, x), name="u"),
       lambda u, x, c: None if is_const(x) else x.alu(u.op, c)),
  rule("bits_constants", UPat(_BITS, None, (UPat(_BITS, None, (x, c), name="v"), c2), name="u"),
       lambda u, v, x, c, c2: x.alu(u.op, c.alu(u.op, c2)) if u.op is v.op else None),
  rule("shift_zero", UPat((Ops.SHL, Ops.SHR), _INTS, (x, UPat.const(None, 0))), lambda x: x),
])  # fmt: skip


def _all_ones(c: UOp) -> bool:
  return bool(c.arg == -1 or (c.dtype.kind == "uint" and c.arg == (1 << c.dtype.bits) - 1))
