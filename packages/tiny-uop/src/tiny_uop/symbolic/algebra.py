"""Identities: neutral and absorbing elements, sums and products in canonical form, logic, selection, conversions,
shifts.

Float rules keep every value bit for bit (NaN payloads aside), so there are few of them.
"""

from __future__ import annotations

from tiny_uop.bounds import fits
from tiny_uop.dtype import DType, dtypes
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule
from tiny_uop.symbolic.linear import MAX_TERMS, Linear, build, is_const, linear, order
from tiny_uop.symbolic.recombine import recombine
from tiny_uop.uop import UOp

_INTS = (*dtypes.ints, dtypes.index)
x, y, z, c, c2 = UPat.var("x"), UPat.var("y"), UPat.var("z"), UPat.cvar("c"), UPat.cvar("c2")
i, j = UPat.var("x", _INTS), UPat.var("y", _INTS)
b, b2 = UPat.var("x", dtypes.bool), UPat.var("y", dtypes.bool)
f = UPat.var("x", dtypes.floats)


# *** sums and products ***


def _base(term: UOp) -> UOp:
  return term.src[0] if term.op is Ops.MUL and is_const(term.src[1]) else term


_PAIRED = frozenset({Ops.FLOORDIV, Ops.FLOORMOD})


def _in_order(u: UOp) -> bool:
  """Whether adding the right operand to the left one, a canonical sum, gives a canonical sum: decided at the seam
  alone."""
  left, right = u.src
  if left.op is Ops.CONST or right.op is Ops.ADD:
    return False
  last = left.src[1] if left.op is Ops.ADD else left
  if last.op is Ops.CONST:
    return False
  if right.op is Ops.CONST:
    return bool(right.arg != 0)
  before, after = _base(last), _base(right)
  if after.op in _PAIRED or before is after:
    return False
  return order(before) < order(after)


def _index_sum(u: UOp) -> UOp | None:
  if _in_order(u):
    return None
  form = linear(u)
  if form.leaves >= MAX_TERMS:
    return None  # sorting each prefix of a long sum again would be quadratic, and nothing is won on these
  recombine(form)
  return build(u.dtype, form)


_NEAR = 4


def _fixed_sum(u: UOp) -> UOp | None:
  """Sums of fixed-width integers are data as often as addresses: what is shared stays shared, only what gets shorter
  nearby is rewritten."""
  left, right = u.src
  if left.op is Ops.CONST and right.op is not Ops.CONST:
    return right.alu(Ops.ADD, left)
  summands: list[UOp] = []
  stack = [right, left]
  while stack and len(summands) <= _NEAR:
    node = stack.pop()
    if node.op is Ops.ADD and len(summands) + len(stack) + 2 <= _NEAR:
      stack += [node.src[1], node.src[0]]
    else:
      summands.append(node)
  if stack or not (_shares(summands)):
    return None
  form = Linear()
  for s in summands:
    form.add_form(linear(s, 0))
  before = len(summands)
  recombine(form)
  after = len(form.terms) + (form.const != 0)
  return build(u.dtype, form, form.terms) if after < before else None


def _shares(summands: list[UOp]) -> bool:
  bases = [_base(s) for s in summands]
  kinds = [s.op for s in bases]
  return len(set(bases)) < len(bases) or kinds.count(Ops.CONST) > 1 or (Ops.FLOORMOD in kinds and Ops.FLOORDIV in kinds)


def _index_product(u: UOp) -> UOp | None:
  """Constants are multiplied into sums; other factors are sorted, constants behind them."""
  left, right = u.src
  if is_const(right) or is_const(left):
    constant, other = (right, left) if is_const(right) else (left, right)
    if other.op is Ops.ADD or (other.op is Ops.MUL and is_const(other.src[1])):
      return build(u.dtype, linear(u))
    return None if constant is right else other.alu(Ops.MUL, constant)
  if (expanded := _expand_symbolic(u)) is not None:
    return expanded
  factors, constant_factor = _factors(u)
  factors.sort(key=order)
  product = factors[0]
  for factor in factors[1:]:
    product = product.alu(Ops.MUL, factor)
  return product if constant_factor == 1 else product.alu(Ops.MUL, UOp.const(u.dtype, constant_factor))


def _factors(u: UOp) -> tuple[list[UOp], int]:
  factors: list[UOp] = []
  constant = 1
  stack = [u]
  while stack:
    node = stack.pop()
    if node.op is Ops.MUL and len(factors) < 32:
      stack += [node.src[1], node.src[0]]
    elif is_const(node):
      constant *= node.arg
    else:
      factors.append(node)
  return factors, constant


def _expand_symbolic(u: UOp) -> UOp | None:
  """(n + 1) * m → n*m + m for sizes, so that equal symbolic sizes become one node. Not inside loops, where it would
  cost work."""
  if u.ranges or all(s.op is not Ops.ADD for s in u.src):
    return None
  left, right = (linear(s) for s in u.src)
  if len(left.terms) * len(right.terms) > 16:
    return None
  result = Linear(const=left.const * right.const)
  for term, factor in left.terms.items():
    result.add(term, factor * right.const)
    for other, other_factor in right.terms.items():
      first, second = sorted((term, other), key=order)
      result.add(first.alu(Ops.MUL, second), factor * other_factor)
  for term, factor in right.terms.items():
    result.add(term, factor * left.const)
  return build(u.dtype, result)


def _fixed_product(x: UOp, c: UOp, c2: UOp) -> UOp:
  return x.alu(Ops.MUL, c.const_like(c.arg * c2.arg))


INTEGERS = PatternMatcher([
  rule("int_mul_zero", UPat(Ops.MUL, _INTS, [x, UPat.const(None, 0)], name="u"), lambda u, x: u.const_like(0)),
  rule("int_add_zero", UPat(Ops.ADD, _INTS, [x, UPat.const(None, 0)]), lambda x: x),
  rule("int_mul_one", UPat(Ops.MUL, _INTS, [x, UPat.const(None, 1)]), lambda x: x),
  rule("index_sum", UPat(Ops.ADD, dtypes.index, name="u"), _index_sum),
  rule("index_product", UPat(Ops.MUL, dtypes.index, name="u"), _index_product),
  rule("int_constant_last", UPat(Ops.MUL, dtypes.ints, (c, x)),
       lambda x, c: None if is_const(x) else x.alu(Ops.MUL, c)),
  rule("int_sum", UPat(Ops.ADD, dtypes.ints, name="u"), _fixed_sum),
  rule("int_mul_mul", UPat(Ops.MUL, dtypes.ints, (UPat(Ops.MUL, None, (x, c)), c2)), _fixed_product),
  rule("index_neg", UPat(Ops.NEG, dtypes.index, (x,)), lambda x: x * -1),
  rule("index_sub", UPat(Ops.SUB, dtypes.index, (x, y)), lambda x, y: x + y * -1),
])  # fmt: skip

minus_one = UPat.const(None, -1)
FLOATS = PatternMatcher([
  rule("float_mul_one", UPat(Ops.MUL, dtypes.floats, [x, UPat.const(None, 1)]), lambda x: x),
  rule("float_div_one", UPat(Ops.FDIV, dtypes.floats, (x, UPat.const(None, 1))), lambda x: x),
  # x + 0.0 is not x for x = -0.0
  rule("float_add_minus_zero", UPat(Ops.ADD, dtypes.floats, [x, c]),
       lambda x, c: x if c.arg == 0 and str(c.arg) == "-0.0" else None),
  rule("float_neg_neg", UPat(Ops.MUL, dtypes.floats, (UPat(Ops.MUL, None, (x, minus_one)), minus_one)), lambda x: x),
  rule("trunc_trunc", UPat(Ops.TRUNC, dtypes.floats, (UPat(Ops.TRUNC, name="x"),)), lambda x: x),
])  # fmt: skip


# *** logic and bits ***


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


def _not(x: UOp) -> UOp:
  return x.alu(Ops.CMPNE, x.const_like(True))


true, false = UPat.const(None, True), UPat.const(None, False)
_BITS = (Ops.AND, Ops.OR, Ops.XOR)
_NEGATED = {Ops.CMPNE: Ops.CMPEQ, Ops.CMPEQ: Ops.CMPNE}
negation = UPat(Ops.CMPNE, None, (b, true))

LOGIC = PatternMatcher([
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
  rule("xor_true_is_not", UPat(Ops.XOR, dtypes.bool, [x, true]), _not),
  rule("bool_ne_true_last", UPat((Ops.CMPNE, Ops.CMPEQ), None, (UPat.cvar("c", dtypes.bool), b), name="u"),
       lambda u, x, c: None if is_const(x) else x.alu(u.op, c)),
  rule("bool_ne_false", UPat(Ops.CMPNE, None, (b, false)), lambda x: x),
  rule("bool_eq_true", UPat(Ops.CMPEQ, None, (b, true)), lambda x: x),
  rule("bool_eq_false", UPat(Ops.CMPEQ, None, (b, false)), _not),
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


# *** selection ***


def _where_constant(u: UOp, x: UOp, y: UOp) -> UOp | None:
  """WHERE(c, True, False) → c and the like, for bool branches."""
  cond = u.src[0]
  if cond.dtype is not u.dtype:
    return None
  if is_const(x) and is_const(y) and x.arg != y.arg:
    return cond if x.arg else _not(cond)
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


RULES = INTEGERS + FLOATS + LOGIC + SELECTION + CONVERSIONS
