"""Sums and products of integers: neutral and absorbing elements, canonical form.

A sum of `index` is kept left-nested, like terms collected, ordered by loop and then by name, the constant last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_uop.dtype import dtypes
from tiny_uop.graph import chain
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule
from tiny_uop.symbolic.linear import INTEGERS, MAX_TERMS, Linear, build, comes_before, in_order, is_const, linear
from tiny_uop.symbolic.recombine import PAIRED, recombine

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


def _base(term: UOp) -> UOp:
  return term.src[0] if term.op is Ops.MUL and is_const(term.src[1]) else term


def _in_order(left: UOp, right: UOp) -> bool:
  """Whether adding the right operand to the left one, a canonical sum, gives a canonical sum: decided at the seam
  alone."""
  if left.op is Ops.CONST or right.op is Ops.ADD:
    return False
  last = left.src[1] if left.op is Ops.ADD else left
  if last.op is Ops.CONST:
    return False
  if right.op is Ops.CONST:
    return bool(right.arg != 0)
  before, after = _base(last), _base(right)
  if after.op in PAIRED or before is after:
    return False
  return comes_before(before, after)


def _constant_last(u: UOp) -> UOp | None:
  """`(x + t) + c` for `(x + c) + t`, which a loop leaves that has become a number, where t comes after all of x."""
  left, right = u.src
  if left.op is not Ops.ADD or not is_const(left.src[1]) or left.src[0].op is Ops.CONST:
    return None
  rest, constant = left.src
  if is_const(right):
    total = constant.arg + right.arg
    return rest.alu(Ops.ADD, u.const(u.dtype, total)) if total else rest
  if right.op is Ops.CONST or not _in_order(rest, right):
    return None
  return rest.alu(Ops.ADD, right).alu(Ops.ADD, constant)


def _index_sum(u: UOp) -> UOp | None:
  if _in_order(*u.src):
    return None
  if (found := _constant_last(u)) is not None:
    return found
  form = linear(u)
  if form.leaves >= MAX_TERMS:
    return None  # sorting each prefix of a long sum again would be quadratic, and nothing is won on these
  recombine(form)
  return build(u, form)


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
  return build(u, form, form.terms) if after < before else None


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
      return build(u, linear(u))
    return None if constant is right else other.alu(Ops.MUL, constant)
  if (expanded := _expand_symbolic(u)) is not None:
    return expanded
  found = _factors(u)
  if found is None:
    return None  # as with long sums
  factors, constant_factor = found
  product = chain(Ops.MUL, in_order(factors))
  return product if constant_factor == 1 else product.alu(Ops.MUL, u.const(u.dtype, constant_factor))


_MAX_FACTORS = 32


def _factors(u: UOp) -> tuple[list[UOp], int] | None:
  """The factors of a product that are no constants, and the product of those that are; None for too many."""
  factors: list[UOp] = []
  constant = 1
  stack = [u]
  while stack:
    node = stack.pop()
    if node.op is Ops.MUL:
      if len(factors) + len(stack) + 2 > _MAX_FACTORS:
        return None
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
      first, second = in_order((term, other))
      result.add(first.alu(Ops.MUL, second), factor * other_factor)
  for term, factor in right.terms.items():
    result.add(term, factor * left.const)
  return build(u, result)


x, y, c, c2 = UPat.var("x"), UPat.var("y"), UPat.cvar("c"), UPat.cvar("c2")

RULES = PatternMatcher([
  rule("int_add_zero", UPat(Ops.ADD, INTEGERS, [x, UPat.const(None, 0)]), lambda x: x,
       example=lambda s: (s.n + 0, s.i + 0, s.i.const_like(0) + s.i), near_miss=lambda s: (s.i + 1, s.f + 0.0)),
  rule("int_mul_one", UPat(Ops.MUL, INTEGERS, [x, UPat.const(None, 1)]), lambda x: x,
       example=lambda s: (s.n * 1, s.i * 1, s.i.const_like(1) * s.i), near_miss=lambda s: s.i * -1),
  rule("index_sum", UPat(Ops.ADD, dtypes.index, name="u"), _index_sum,
       example=lambda s: (
         s.n + s.m, s.n.const_like(1) + s.n, s.m + (s.n + 1), s.range(4, 1) * 8 + s.range(4, 0),  # order
         s.n * 2 + s.n * 3, (s.m * 2 + s.n) + s.n * -1, (s.n + 1) + 2,                            # like terms
         s.n // 4 * 4 + s.n % 4, s.n // 12 * 24 + s.n % 12 * 2, s.n * 5 // 4 * 4 + s.n % 4,       # whole divisions
         s.n // 12 * 12 + s.n // 4 % 3 * 4, s.n // 4 % 3 * 4 + s.n % 4),
       near_miss=lambda s: (s.m + s.n + 1, s.range(4, 0) + s.range(4, 1) * 8, s.m % 4 + s.n // 4 * 4)),
  rule("index_product", UPat(Ops.MUL, dtypes.index, name="u"), _index_product,
       grows="products are multiplied out: equal terms can meet, and a size has one form",
       example=lambda s: (s.n.const_like(3) * s.n, s.n * 3 * 5, (s.n + 1) * 3, (s.n * 2 + s.m) * -3,
                          s.n * s.m, s.n * 2 * s.m, (s.n + 1) * s.m, (s.n + 2) * (s.n + s.m)),
       near_miss=lambda s: (s.n * 3, s.m * s.n, (s.range(4, 0) + 1) * s.range(4, 1))),  # in loops it would cost work
  rule("int_constant_last", UPat(Ops.MUL, dtypes.ints, (c, x)), lambda x, c: None if is_const(x) else x.alu(Ops.MUL, c),
       example=lambda s: s.i.const_like(3) * s.i, near_miss=lambda s: (s.i * 3, s.i.const_like(3) * s.i.const_like(4))),
  rule("int_sum", UPat(Ops.ADD, dtypes.ints, name="u"), _fixed_sum,
       example=lambda s: (s.i.const_like(3) + s.i, s.i + 1 + 2, s.i + s.i, s.i * 3 + s.j + s.i, s.i * 3 + s.i * -3,
                          s.value(dtypes.uint8, 6) * 255 + s.value(dtypes.uint8, 6),
                          s.value(dtypes.int8, 6) // 4 * 4 + s.value(dtypes.int8, 6) % 4),
       near_miss=lambda s: (s.i + 3, s.j + s.i, s.i * 3 + s.j, s.i // 4 * 4 + s.j % 4, s.i // 4 * 3 + s.i % 4)),
  rule("int_mul_mul", UPat(Ops.MUL, dtypes.ints, (UPat(Ops.MUL, None, (x, c)), c2)),
       lambda x, c, c2: x.alu(Ops.MUL, c.const_like(c.arg * c2.arg)),
       example=lambda s: (s.i * 3 * 5, s.i * (1 << 20) * (1 << 20)), near_miss=lambda s: s.i * s.j * 5),
  rule("index_neg", UPat(Ops.NEG, dtypes.index, (x,)), lambda x: x * -1,
       example=lambda s: s.n.alu(Ops.NEG), near_miss=lambda s: s.i.alu(Ops.NEG)),
  rule("index_sub", UPat(Ops.SUB, dtypes.index, (x, y)), lambda x, y: x + y * -1,
       grows="a difference is a sum until the last step of code generation",
       example=lambda s: s.n.alu(Ops.SUB, s.m), near_miss=lambda s: s.i.alu(Ops.SUB, s.j)),
])  # fmt: skip
