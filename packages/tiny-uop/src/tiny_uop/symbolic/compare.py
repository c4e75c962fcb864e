"""Comparisons of integers: known by bounds, or in canonical form — terms with positive coefficients on the left,
negative ones negated on the right with the constant, common factors divided out. `x > c` becomes `not (x < c + 1)`.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tiny_uop.bounds import fits
from tiny_uop.dtype import dtypes
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule
from tiny_uop.symbolic.linear import INTEGERS, Linear, build, in_order, is_const, linear

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


def _difference(x: UOp, y: UOp) -> Linear | None:
  """x - y, where neither side wraps."""
  left, right = linear(x), linear(y)
  if not left.exact(x.dtype) or not right.exact(y.dtype):
    return None
  left.add_form(right, -1)
  return left


def _sides(form: Linear) -> tuple[Linear, Linear]:
  """The terms with positive coefficients, and the negated others with the negated constant."""
  left, right = Linear(), Linear(const=-form.const)
  for term, coefficient in form.terms.items():
    if coefficient > 0:
      left.terms[term] = coefficient
    else:
      right.terms[term] = -coefficient
  return left, right


def _emit(op: Ops, like: UOp, left: Linear, right: Linear) -> UOp | None:
  if not left.exact(like.dtype) or not right.exact(like.dtype):
    return None
  return build(like, left).alu(op, build(like, right))


def tighten(form: Linear) -> Linear:
  """The form F of which F < 0 says the same, without common factors: sum < k with all coefficients multiples of g is
  sum/g < ceil(k/g).

  Terms that are no multiples of g do not count where they cannot move the sum past the next multiple.
  """
  g = gcd(*form.terms.values())
  if g > 1:
    return Linear({t: c // g for t, c in form.terms.items()}, -_ceil(-form.const, g))
  for g in sorted({abs(c) for c in form.terms.values()} - {1}, reverse=True):
    multiples = {t: c // g for t, c in form.terms.items() if c % g == 0}
    rest = Linear({t: c for t, c in form.terms.items() if c % g})
    low, high = rest.bounds()
    limit = _ceil(-form.const - low, g)
    if rest.terms and limit == _ceil(-form.const - high, g):
      return Linear(multiples, -limit)
  return form


def _ceil(a: int, b: int) -> int:
  return -(-a // b)


def _less(u: UOp, x: UOp, y: UOp) -> UOp | None:
  if (form := _difference(x, y)) is None:
    return None
  low, high = form.bounds()
  if high < 0 or low >= 0:
    return u.const_like(high < 0)
  form = tighten(form)
  left, right = _sides(form)
  dtype = x.dtype
  if not left.terms:
    # 0 < x: not (x < 1)
    compared = _emit(Ops.CMPLT, x, Linear(right.terms), Linear(const=1 - right.const))
    return None if compared is None else compared.logical_not()
  if len(left.terms) == 1 and not right.terms:
    ((term, coefficient),) = left.terms.items()
    divided = term.op is Ops.FLOORDIV and is_const(term.src[1]) and term.src[1].arg > 0 and coefficient == 1
    if divided and fits(dtype, *sorted((0, limit := right.const * term.src[1].arg))):
      return term.src[0].alu(Ops.CMPLT, x.const(dtype, limit))
  return _emit(Ops.CMPLT, x, left, right)


def _equal(u: UOp, x: UOp, y: UOp) -> UOp | None:
  if (form := _difference(x, y)) is None:
    return None
  never = u.const_like(u.op is Ops.CMPNE)
  low, high = form.bounds()
  if low > 0 or high < 0:
    return never
  if not form.terms:
    return u.const_like((form.const == 0) == (u.op is Ops.CMPEQ))
  g = gcd(*form.terms.values())
  if form.const % g:
    return never
  first = in_order(form.terms)[0]
  if form.terms[first] < 0:
    g = -g
  left, right = _sides(Linear({t: c // g for t, c in form.terms.items()}, form.const // g))
  return _emit(u.op, x, left, right)


def _equal_shifted(u: UOp, x: UOp, c: UOp, c2: UOp) -> UOp:
  """x + c == d → x == d - c, which holds also where the sum wraps."""
  return x.alu(u.op, c.const_like(c2.arg - c.arg))


# *** comparisons of quotients and remainders: places on the line where x may lie ***


def _inside(x: UOp, start: int, stop: int) -> UOp:
  """start <= x < stop, without what the bounds of x say already."""
  below, above = x.alu(Ops.CMPLT, x.const_like(stop)), x.alu(Ops.CMPLT, x.const_like(start)).logical_not()
  if x.vmin >= start:
    return below
  return above if x.vmax < stop else above.alu(Ops.AND, below)


def _less_remainder(u: UOp, x: UOp, c: UOp, c2: UOp) -> UOp | None:
  """x % d < c, where the x for which it holds, or those for which it does not, lie next to each other."""
  d, limit = int(c.arg), int(c2.arg)
  if not 0 < limit < d:
    return None
  low, high = linear(x).bounds()
  # it holds in [m*d, m*d + limit): the least and the greatest m for which that meets the bounds
  first, last = _ceil(low - limit + 1, d), high // d
  if first == last:
    return _inside(x, first * d, first * d + limit)
  # and does not in [m*d + limit, (m+1)*d)
  first, last = _ceil(low + 1, d) - 1, (high - limit) // d
  return _inside(x, first * d + limit, first * d + d).logical_not() if first == last else None


def _equal_remainder(u: UOp, x: UOp, c: UOp, c2: UOp) -> UOp | None:
  """x % d == c where one x within the bounds has this remainder."""
  d = int(c.arg)
  if not 0 <= c2.arg < d:
    return None
  low, high = linear(x).bounds()
  least = low + (c2.arg - low) % d
  if least > high:
    return u.const_like(u.op is Ops.CMPNE)
  return x.alu(u.op, x.const_like(least)) if least + d > high else None


def _equal_quotient(u: UOp, x: UOp, c: UOp, c2: UOp) -> UOp | None:
  """x // d == c → c*d <= x < c*d + d."""
  d = int(c.arg)
  if d <= 0:
    return None
  inside = _inside(x, int(c2.arg) * d, int(c2.arg) * d + d)
  return inside if u.op is Ops.CMPEQ else inside.logical_not()


x, y, i, j = UPat.var("x"), UPat.var("y"), UPat.var("x", INTEGERS), UPat.var("y", INTEGERS)
c, c2 = UPat.cvar("c"), UPat.cvar("c2")
_EQUAL = (Ops.CMPEQ, Ops.CMPNE)

RULES = PatternMatcher([
  rule("less_same", UPat(Ops.CMPLT, None, (x, x), name="u"), lambda u, x: u.const_like(False),
       example=lambda s: (s.f < s.f, s.i < s.i),
       near_miss=lambda s: (s.i < s.j, s.f.eq(s.f))),  # NaN differs from itself
  rule("less_remainder", UPat(Ops.CMPLT, None, (UPat(Ops.FLOORMOD, dtypes.index, (x, c)), c2), name="u"),
       _less_remainder, grows="two comparisons in the place of a remainder and one",
       example=lambda s: (s.var("k", 0, 20) % 15 < 12, s.var("k", -2, 12) % 15 < 12, s.var("k", 0, 17) % 15 < 4,
                          s.var("k", 5, 16) % 10 < 3, s.var("k", 3, 26) % 20 < 7),
       near_miss=lambda s: (s.var("k", 0, 20) % 8 < 4, s.var("k", 3, 29) % 20 < 7, s.n % 4 < 9,
                            s.i % 15 < 12, s.n % -4 < -2)),
  rule("equal_remainder", UPat(_EQUAL, None, (UPat(Ops.FLOORMOD, dtypes.index, (x, c)), c2), name="u"),
       _equal_remainder,
       example=lambda s: ((s.p % 9).eq(7), (s.p % 9).ne(8), (s.n % 20).eq(19), (s.n % 20).ne(9),
                          (s.var("k", 7, 15) % 9).eq(0)),
       near_miss=lambda s: ((s.p % 9).eq(2), (s.n % 4).ne(3), (s.i % 15).eq(2), (s.n % -4).eq(-1), (s.p % 9).eq(9),
                            (s.p % 9).eq(-1), (s.var("k", 7, 16) % 9).eq(7))),
  rule("equal_quotient", UPat(_EQUAL, None, (UPat(Ops.FLOORDIV, dtypes.index, (x, c)), c2), name="u"),
       _equal_quotient, grows="two comparisons in the place of a quotient and one",
       example=lambda s: ((s.p // 3).eq(2), (s.p // 8).ne(1), (s.n // 3).eq(0), (s.n // 5).ne(-2), (s.n // 5).eq(1)),
       near_miss=lambda s: ((s.n // 3).eq(s.m), (s.i // 3).eq(2), (s.n // -3).eq(1), (s.n // 0).eq(0))),
  rule("less_linear", UPat(Ops.CMPLT, None, (i, j), name="u"), _less,
       grows="x > c is written not (x < c + 1), so that gates have one form",
       example=lambda s: (
         s.p < 16, s.p < 0, s.n + 8 < s.m - 7, s.n * 2 < s.n + s.n,                  # known by bounds
         s.n > 3, s.n * 4 > 9, s.i > 5,                                              # not less
         s.n + 3 < s.m + 5, s.n < s.n * 2 - s.m, s.n * -1 < s.m * -1,                # positive terms, constant last
         s.n * 4 < 9, s.n * 4 < 8, s.n * -3 < 7, s.n * 2 < s.m * 4 + 6,              # a common factor
         s.var("k", 0, 3) + s.n * 4 < 8, s.n * 4 < s.var("k", 0, 3) + 9,             # a factor of most terms
         s.n // 4 < 2, s.n // 4 < -1, s.i // 4 < 2),                                 # quotients
       near_miss=lambda s: (s.n < s.m, s.n < 5, s.i + 1 < s.j, s.i < s.i + 1, s.i * 4 < 8, s.i // -4 < 2, s.f < s.g,
                            s.n // 4 < s.m, s.n // s.var("k", 1, 9) < 2, s.var("k", 0, 3) + s.n * 4 < 9,
                            s.n * 4 < s.var("k", 0, 3) + 10,
                            s.var("k", 0, 20, dtypes.int8) + 100 < s.value(dtypes.int8, 6))),  # j - 100 may wrap
  rule("equal_linear", UPat(_EQUAL, None, (i, j), name="u"), _equal,
       example=lambda s: (s.n.eq(40), s.n.ne(-9), (s.n * 2).eq(7), (s.n * 2).eq(6), (s.n * 2 + s.m * 4).ne(6),
                          (s.n + s.m).eq(s.n + 3), (s.n - s.m).eq(0), (s.n + 1).ne(s.n), s.n.eq(s.m),
                          (s.n * 2).eq(s.n + s.n), s.value(dtypes.uint8, 6).cast(dtypes.int32).eq(300)),
       near_miss=lambda s: (s.m.eq(s.n), s.n.eq(5), (s.i * 2).eq(7), (s.i + 1).eq(s.j), s.f.eq(s.g))),
  rule("equal_constant_last", UPat(_EQUAL, None, (UPat.cvar("c", dtypes.ints), x), name="u"),
       lambda u, x, c: None if is_const(x) else x.alu(u.op, c),
       example=lambda s: (s.i.const_like(3).eq(s.i * 2), s.i.const_like(3).ne(s.i)),
       near_miss=lambda s: (s.i.eq(3), s.i.const_like(3).eq(s.i.const_like(4)))),
  rule("equal_shifted", UPat(_EQUAL, None, (UPat(Ops.ADD, dtypes.ints, (x, c)), c2), name="u"), _equal_shifted,
       example=lambda s: ((s.i + 5).eq(3), (s.i + 5).ne(-(2**31)), (s.value(dtypes.uint8, 6) + 5).eq(3)),
       near_miss=lambda s: ((s.i * 5).eq(3), (s.i + s.j).eq(3))),
])  # fmt: skip
