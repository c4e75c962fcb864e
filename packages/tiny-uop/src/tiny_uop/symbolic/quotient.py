"""The quotient of a linear form by a positive constant, reduced: as little as possible is left to divide.

Division rounds toward minus infinity, so none of the steps needs the signs of the operands:
  (d*a + b) // d = a + b // d
  (g*a + b) // (g*d) = (a + b // g) // d      where b // g is known
  (a + x // e) // d = (e*a + x) // (e*d)
They hold for mathematical integers; for fixed-width types a step is taken only where the forms it makes do not wrap.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING

from tiny_uop.dtype import DType
from tiny_uop.ops import Ops
from tiny_uop.symbolic.linear import Linear, build, is_const, linear

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

_MOST_DIVISORS = 1 << 20  # larger divisors are tried by the factors that they share with coefficients only


def single_quotient(form: Linear, divisor: int) -> int | None:
  """The one value of form // divisor, where the bounds leave one."""
  low, high = form.bounds()
  return low // divisor if low // divisor == high // divisor else None


def split(form: Linear, divisor: int) -> tuple[Linear, Linear]:
  """The terms whose coefficients are multiples of `divisor`, and the others with the constant's remainder."""
  multiples, rest = Linear(const=form.const - form.const % divisor), Linear(const=form.const % divisor)
  for term, coefficient in form.terms.items():
    (rest if coefficient % divisor else multiples).terms[term] = coefficient
  return multiples, rest


def nearest(form: Linear, divisor: int) -> tuple[Linear, Linear]:
  """form = divisor * quotients + remainders, with remainders as small as they can be."""
  quotients, rest = Linear(const=form.const // divisor), Linear(const=form.const % divisor)
  for term, coefficient in form.terms.items():
    quotient = (coefficient + divisor // 2) // divisor
    if coefficient - quotient * divisor:
      rest.terms[term] = coefficient - quotient * divisor
    if quotient:
      quotients.terms[term] = quotient
  return quotients, rest


def divided(form: Linear, divisor: int) -> Linear:
  """form / divisor, where all coefficients are multiples; the constant rounds down."""
  return Linear({t: c // divisor for t, c in form.terms.items()}, form.const // divisor)


def partial(form: Linear, divisor: int) -> tuple[int, Linear, Linear, int] | None:
  """(g, multiples, rest, rest // g): a factor g of the divisor for which the terms that are no multiples of it have one
  quotient."""
  candidates = {g for c in form.terms.values() if (g := gcd(c, divisor)) > 1}
  for g in sorted(candidates, reverse=True):
    multiples, rest = split(form, g)
    if multiples.terms and (quotient := single_quotient(rest, g)) is not None:
      return g, multiples, rest, quotient
  return None


def is_leaf(u: UOp) -> bool:
  """A value that costs nothing: a loop counter or a variable."""
  return u.op in (Ops.RANGE, Ops.VARIABLE, Ops.SPECIAL, Ops.BIND)


def operations(form: Linear) -> int:
  """Additions and multiplications of a form; signs cost nothing."""
  return max(len(form.terms) + (form.const != 0) - 1, 0) + sum(abs(c) != 1 for c in form.terms.values())


def much_nearer(form: Linear, other: Linear, divisor: int) -> bool:
  """Whether a form that differs from another by multiples of the divisor varies over few of them, the other over
  more."""
  low, high = form.bounds()
  other_low, other_high = other.bounds()
  return high - low < 2 * divisor and other_high - other_low >= max(divisor, 2 * (high - low))


@lru_cache(maxsize=1024)
def _factors(divisor: int) -> tuple[int, ...]:
  """The factors of a divisor between 1 and itself, the greatest first."""
  if divisor > _MOST_DIVISORS:
    return ()
  small = [g for g in range(2, int(divisor**0.5) + 1) if divisor % g == 0]
  return tuple(sorted({*small, *(divisor // g for g in small)}, reverse=True))


class Quotient:
  """`whole + numerator // divisor`, reduced step by step to a form that no step changes; `changed` says whether any
  did."""

  __slots__ = ("changed", "divisor", "dtype", "numerator", "whole")

  def __init__(self, form: Linear, divisor: int, dtype: DType) -> None:
    self.whole, self.numerator, self.divisor, self.dtype = Linear(), form, divisor, dtype
    self.changed = False
    while self.numerator.terms and self.divisor != 1 and self.step():
      self.changed = True
    if self.divisor == 1 or not self.numerator.terms:
      self.take(divided(self.numerator, self.divisor), Linear())

  def take(self, quotients: Linear, rest: Linear) -> bool:
    """Moves quotients out of the division, of which `rest` is left."""
    if not (quotients.exact(self.dtype) and rest.exact(self.dtype)):
      return False
    self.whole.add_form(quotients)
    self.numerator = rest
    return True

  def shrink(self, numerator: Linear, factor: int) -> bool:
    """Both divided by a common factor."""
    if not numerator.exact(self.dtype):
      return False
    self.numerator, self.divisor = numerator, self.divisor // factor
    return True

  def step(self) -> bool:
    """One step, if there is one."""
    form, d = self.numerator, self.divisor
    if (single := single_quotient(form, d)) is not None:
      return self.take(Linear(const=single), Linear())
    multiples, rest = split(form, d)
    if multiples.terms or multiples.const:
      return multiples.exact(self.dtype) and self.take(divided(multiples, d), rest)
    if (g := gcd(d, *form.terms.values())) > 1:
      return self.shrink(divided(form, g), g)
    return self.by_nearest() or self.by_factor() or self.by_inner()

  def by_nearest(self) -> bool:
    """Coefficients next to a multiple of the divisor: (13*x + 5) // 12 is x where 0 <= x < 7."""
    form, d = self.numerator, self.divisor
    quotients, small = nearest(form, d)
    if not quotients.terms or not small.exact(self.dtype):
      return False
    if (single := single_quotient(small, d)) is not None:
      quotients.const += single
      return self.take(quotients, Linear())
    # leaves may as well stand on both sides: (14*i + j) // 15 is i + (j - i) // 15, of which the last part is near 0
    free = self.dtype.kind == "index" and all(t in small.terms and is_leaf(t) for t in quotients.terms)
    longer = operations(quotients) + operations(small) + 1 - operations(form)
    return free and longer <= 1 and much_nearer(small, form, d) and self.take(quotients, small)

  def by_factor(self) -> bool:
    """A factor of the divisor by which the numerator can be divided first, with nothing left to divide."""
    form, d = self.numerator, self.divisor
    if self.dtype.kind != "index":
      found = partial(form, d)
      if found is None:
        return False
      g, multiples, _, single = found
      reduced = divided(multiples, g)
      reduced.const += single
      return self.shrink(reduced, g)
    most = 2 * max(abs(c) for c in form.terms.values())
    for g in _factors(d) or {g for c in form.terms.values() if 1 < (g := gcd(c, d)) < d}:
      if g <= most:
        quotients, small = nearest(form, g)
        if quotients.terms and (rest := single_quotient(small, g)) is not None:
          quotients.const += rest
          return self.shrink(quotients, g)
    return False

  def by_inner(self) -> bool:
    """A quotient among the terms becomes part of this one."""
    if self.dtype.kind != "index":
      return False
    for term, coefficient in self.numerator.terms.items():
      if term.op is Ops.FLOORDIV and coefficient == 1 and is_const(term.src[1]) and term.src[1].arg > 0:
        inner, outer = int(term.src[1].arg), self.numerator.copy()
        del outer.terms[term]
        numerator = linear(term.src[0])
        numerator.add_form(outer, inner)
        self.numerator, self.divisor = numerator, self.divisor * inner
        return True
    return False

  def node(self) -> UOp | None:
    """`numerator // divisor`, None where nothing is left to divide."""
    if not self.numerator.terms:
      return None
    numerator = build(next(iter(self.numerator.terms)), self.numerator)
    return numerator.alu(Ops.FLOORDIV, numerator.const_like(self.divisor))
