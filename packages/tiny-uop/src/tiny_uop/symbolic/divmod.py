"""FLOORDIV and FLOORMOD by constants, through the linear form of the numerator.

Division rounds toward minus infinity, so neither these nor the steps in `quotient.py` need the signs of the operands:
  (d*a + b) % d = b % d                    (g*a + b) % (g*d) = ((a + b // g) % d) * g + b % g
They hold for mathematical integers; for fixed-width types a rule applies only where the linear forms it reads and
writes do not wrap.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tiny_uop.bounds import fits
from tiny_uop.dtype import dtypes
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule
from tiny_uop.symbolic.linear import INTEGERS, Linear, build, is_const, linear, scaled
from tiny_uop.symbolic.quotient import Quotient, divided, much_nearer, nearest, partial, single_quotient

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


def _make(op: Ops, like: UOp, form: Linear, divisor: int) -> UOp:
  numerator = build(like, form)
  if divisor == 1:
    return numerator if op is Ops.FLOORDIV else numerator.const_like(0)
  return numerator.alu(op, numerator.const_like(divisor))


def _usable(u: UOp, x: UOp, c: UOp) -> Linear | None:
  """The numerator's form, where it is exact and the divisor positive."""
  if c.arg <= 0 or x.op is Ops.CONST:
    return None
  form = linear(x)
  return form if form.exact(u.dtype) else None


def _divide(u: UOp, x: UOp, c: UOp) -> UOp | None:
  if (form := _usable(u, x, c)) is None:
    return None
  quotient = Quotient(form, int(c.arg), u.dtype)
  if not quotient.changed or not quotient.whole.exact(u.dtype):
    return None
  inner, whole = quotient.node(), quotient.whole
  if inner is None or not (whole.terms or whole.const):
    return build(u, whole) if inner is None else inner
  return build(u, whole).alu(Ops.ADD, inner)


def _unwrapped(form: Linear, divisor: int) -> Linear:
  """The form modulo `divisor`: y % e stands for y where e is a multiple, and whole multiples and large coefficients are
  reduced."""
  result = Linear(const=form.const % divisor)
  for term, coefficient in form.terms.items():
    if term.op is Ops.FLOORMOD and is_const(term.src[1]) and coefficient * term.src[1].arg % divisor == 0:
      inner = linear(term.src[0])
      if inner.exact(term.dtype):
        result.add_form(inner, coefficient)
        continue
    result.add(term, coefficient)
  result.const %= divisor
  result.terms = {t: c if abs(c) < divisor else c % divisor for t, c in result.terms.items() if c % divisor}
  return result


def _remainder(u: UOp, x: UOp, c: UOp) -> UOp | None:
  d, dtype = int(c.arg), u.dtype
  if (form := _usable(u, x, c)) is None:
    return None
  if (single := single_quotient(form, d)) is not None:
    form.const -= single * d
    return build(u, form) if form.exact(dtype) else None
  reduced = _unwrapped(form, d)
  if not reduced.exact(dtype):
    reduced = form
  _, small = nearest(reduced, d)
  if (single := single_quotient(small, d)) is not None:
    small.const -= single * d
    return build(u, small) if small.exact(dtype) else None
  if dtype.kind == "index" and much_nearer(small, reduced, d):
    reduced = small
  if reduced.terms != form.terms or reduced.const != form.const:
    return _make(Ops.FLOORMOD, u, reduced, d)
  if (g := gcd(d, *form.terms.values())) > 1:
    result = scaled(_make(Ops.FLOORMOD, u, divided(form, g), d // g), g)
    return result.alu(Ops.ADD, result.const_like(form.const % g)) if form.const % g else result
  if (found := partial(form, d)) is not None:
    g, multiples, rest, single = found
    high = divided(multiples, g)
    high.const += single
    rest.const -= single * g
    if high.exact(dtype) and rest.exact(dtype):
      return scaled(_make(Ops.FLOORMOD, u, high, d // g), g).alu(Ops.ADD, build(u, rest))
  return None


def _div_div(u: UOp, x: UOp, c: UOp, c2: UOp) -> UOp | None:
  """(x // a) // b → x // (a * b)."""
  product = int(c.arg) * int(c2.arg)
  if c.arg <= 0 or c2.arg <= 0 or not fits(u.dtype, 0, product):
    return None
  return x.alu(Ops.FLOORDIV, x.const_like(product))


def _mod_div(x: UOp, c: UOp, c2: UOp) -> UOp | None:
  """(x % (a * b)) // b → (x // b) % a."""
  e, b = int(c.arg), int(c2.arg)
  if b <= 1 or e <= 0 or e % b or e == b:
    return None
  return x.alu(Ops.FLOORDIV, c2).alu(Ops.FLOORMOD, c.const_like(e // b))


def _negative(u: UOp, x: UOp, c: UOp) -> UOp | None:
  """x // -d → -x // d and x % -d → -(-x % d)."""
  if c.arg >= 0:
    return None
  result = (-x).alu(u.op, c.const_like(-c.arg))
  return result if u.op is Ops.FLOORDIV else -result


def _nonzero(u: UOp) -> bool:
  return bool(u.vmin > 0 or u.vmax < 0)


def _contains(term: UOp, factor: UOp) -> UOp | None:
  """term / factor for a product that has it as a factor."""
  if term is factor:
    return term.const_like(1)
  if term.op is not Ops.MUL:
    return None
  for part, other in (term.src, term.src[::-1]):
    if (inner := _contains(part, factor)) is not None:
      return other if is_const(inner) and inner.arg == 1 else inner.alu(Ops.MUL, other)
  return None


def _by_symbol(u: UOp, x: UOp, y: UOp) -> UOp | None:
  """Division by a size n that is not 0: (a*n + b) // n → a + b // n, (a*n + b) % n → b % n; r // n is 0 for a loop
  counter r below n."""
  if is_const(y) or not _nonzero(y):
    return None
  form = linear(x)
  quotient, rest = Linear(), Linear(const=form.const)
  for term, coefficient in form.terms.items():
    if (part := _contains(term, y)) is None:
      rest.add(term, coefficient)
    else:
      quotient.add_form(linear(part), coefficient)
  below = _below(rest, y)
  if not below and not (quotient.terms or quotient.const):
    return None
  remaining = build(u, rest)
  if u.op is Ops.FLOORMOD:
    return remaining if below else remaining.alu(Ops.FLOORMOD, y)
  whole = build(u, quotient)
  if below:
    return whole
  return whole.alu(Ops.ADD, remaining.alu(Ops.FLOORDIV, y))


def _below(rest: Linear, y: UOp) -> bool:
  """Whether 0 <= rest < y is known."""
  low, high = rest.bounds()
  if low >= 0 and high < y.vmin:
    return True
  if rest.const == 0 and len(rest.terms) == 1:
    ((term, coefficient),) = rest.terms.items()
    counter = term.op in (Ops.RANGE, Ops.SPECIAL) and term.src[0] is y
    return coefficient == 1 and (counter or (term.op is Ops.FLOORMOD and term.src[1] is y and y.vmin > 0))
  return False


x, y, c, c2 = UPat.var("x"), UPat.var("y"), UPat.cvar("c"), UPat.cvar("c2")
_DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD)
zero = UPat.const(None, 0)

RULES = PatternMatcher([
  rule("div_by_one", UPat((Ops.FLOORDIV, Ops.TRUNCDIV), INTEGERS, (x, UPat.const(None, 1))), lambda x: x,
       example=lambda s: (s.n // 1, s.i // 1, s.i.alu(Ops.TRUNCDIV, s.i.const_like(1))),
       near_miss=lambda s: (s.i // -1, 1 // s.i)),
  rule("div_mod_of_zero", UPat((*_DIVISIONS, Ops.TRUNCDIV, Ops.TRUNCMOD), INTEGERS, (zero, y), name="u"),
       lambda u, y: u.const_like(0),
       example=lambda s: (0 // s.n, 0 % s.n, 0 // s.i, 0 % s.i, s.i.const_like(0).alu(Ops.TRUNCDIV, s.i),
                          s.i.const_like(0).alu(Ops.TRUNCMOD, s.i)),
       near_miss=lambda s: 1 // s.i),
  rule("div_mod_by_itself", UPat(_DIVISIONS, INTEGERS, (x, x), name="u"),
       lambda u, x: u.const_like(int(u.op is Ops.FLOORDIV)) if _nonzero(x) else None,
       example=lambda s: (s.var("k", 1, 9) // s.var("k", 1, 9), s.var("k", -9, -1) % s.var("k", -9, -1),
                          s.var("k", 1, 9, dtypes.int8) // s.var("k", 1, 9, dtypes.int8)),
       near_miss=lambda s: (s.p // s.p, s.i % s.i, s.n // s.m)),  # 0 // 0 is 0
  rule("div_mod_by_negative", UPat(_DIVISIONS, dtypes.index, (x, c), name="u"), _negative,
       grows="a negation, for a divisor that the other rules know what to do with",
       example=lambda s: (s.n // -1, s.n // -3, s.n % -3, s.p % -4),
       near_miss=lambda s: (s.n // 3, s.n % 0, s.i // -3)),
  rule("div_div", UPat(Ops.FLOORDIV, INTEGERS, (UPat(Ops.FLOORDIV, None, (x, c)), c2), name="u"), _div_div,
       example=lambda s: (s.n // 2 // 3, s.i // 3 // 5, s.value(dtypes.uint8, 6) // 3 // 5),
       near_miss=lambda s: (s.n // 2 // -3, s.n // -2 // 3, s.i // 65536 // 65536, s.n % 5 // 3)),
  rule("mod_div", UPat(Ops.FLOORDIV, INTEGERS, (UPat(Ops.FLOORMOD, None, (x, c)), c2)), _mod_div,
       example=lambda s: (s.n % 12 // 4, s.n % 12 // 3, s.i % 12 // 4, s.value(dtypes.uint8, 6) % 12 // 4),
       near_miss=lambda s: (s.n % 12 // 5, s.n % 4 // 4, s.n % -12 // 4, s.n % 12 // -4)),
  rule("div_constant", UPat(Ops.FLOORDIV, INTEGERS, (x, c), name="u"), _divide,
       example=lambda s: (
         s.p // 16, (s.p - 32) // 16, s.var("k", 0, 9, dtypes.int32) // 10,              # one quotient by bounds
         (s.n * 4 + s.m) // 4, (s.n * -4 + s.m) // 4, (s.n * 8 + s.m * 4 - 7) // 4,      # multiples
         (s.var("k", 0, 9, dtypes.int32) * 4 + 3) // 4, s.n * 4 // 4,
         s.var("k", 0, 5) * 7 // 6, (s.var("k", 0, 5) * 5 + s.n * 6) // 6,               # nearest multiples
         s.n * 6 // 4, (s.n * 6 + 3) // 4, (s.n * -6 + 5) // 9, (s.m * 4 + s.n * 6) // 12,  # a common factor
         (s.n * 10 + s.var("k", 0, 9)) // 30, (s.n * 10 - s.var("k", 1, 10)) // 30,      # a factor of most terms
         (s.n * 12 + s.var("k", 0, 1) * 8 + 7) // 24,                                    # a factor of the divisor
         (s.var("k", 0, 3) * 14 + s.var("l", 0, 11)) // 15,                              # close to one multiple
         (s.n // 3 + 2) // 5, (s.n // 3 - 7) // 5, (s.n // 3 + s.m * 2) // 5),           # a quotient inside
       near_miss=lambda s: (s.n // 3, s.n // -3, (s.n * 3 + s.m) // 4, s.i * 4 // 4, (s.i + 8) // 4,
                            (s.n // 3 * 2 + s.m) // 5, (s.i // 3 + 2) // 5, (s.n // -3 + 2) // 5,
                            # a * 4 - 4 would wrap
                            (s.var("k", -32, 0, dtypes.int8) * 4 + s.var("l", 1, 4, dtypes.int8) - 1) // 4)),
  rule("mod_constant", UPat(Ops.FLOORMOD, INTEGERS, (x, c), name="u"), _remainder,
       grows="a common factor moves out of the remainder, where it can meet others",
       example=lambda s: (
         s.p % 16, (s.p - 32) % 16, s.var("k", 0, 9, dtypes.int32) % 10,                 # one quotient by bounds
         (s.n * 4 + s.m) % 4, (s.n + 24) % 12, s.n * 13 % 12, (s.n * -13 + 30) % 12,     # coefficients
         s.n % 12 % 4, (s.n % 4 * 3 + s.m) % 6, s.i % 12 % 4, (s.i % 8 * 3 + 13) % 6,    # remainders inside
         s.var("k", 0, 9) * 11 % 10, (s.var("k", 0, 9) * 9 + s.n * 10 + 9) % 10,         # nearest multiples
         s.n * 2 % 4, (s.n * 6 + 4) % 9, s.n * -6 % 9, (s.m * 4 + s.n * 6) % 12,         # a common factor
         (s.n * 10 + s.var("k", 0, 9)) % 30, (s.n * 10 - s.var("k", 1, 10)) % 30,        # a factor of most terms
         (s.var("k", 0, 3) * 14 + s.var("l", 0, 11)) % 15),                              # close to one multiple
       near_miss=lambda s: (s.n % 3, s.n % -3, (s.n * 3 + s.m) % 4, s.i * 4 % 4, (s.i + 8) % 4,
                            s.i * 4 % 8 % 4, s.n % 6 % 4, s.n % s.var("k", 1, 9) % 4)),
  rule("div_mod_symbol", UPat(_DIVISIONS, dtypes.index, (x, y), name="u"), _by_symbol,
       example=lambda s: (
         (s.n * s.var("k", 1, 9) + s.m) // s.var("k", 1, 9), (s.n * s.var("k", 1, 9) + s.m) % s.var("k", 1, 9),
         (s.n * s.var("k", -9, -1) + s.m) // s.var("k", -9, -1), (s.n * s.var("k", -9, -1) + s.m) % s.var("k", -9, -1),
         s.range(s.var("k", 1, 9)) // s.var("k", 1, 9), s.range(s.var("k", 1, 9)) % s.var("k", 1, 9),
         s.n % s.var("k", 1, 9) % s.var("k", 1, 9), s.p // s.var("k", 16, 20), s.p % s.var("k", 16, 20)),
       near_miss=lambda s: (s.n // s.var("k", 1, 9), s.n * s.m // s.m, s.range(s.p) // s.p, s.n // s.var("k", 16, 20),
                            s.n * s.m // s.var("k", 1, 9))),
])  # fmt: skip
