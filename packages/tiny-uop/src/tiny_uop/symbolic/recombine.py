"""Quotient and remainder in one sum put back together: `(x // a) * a + x % a → x`, with common factors and through
nested divisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_uop.bounds import fits
from tiny_uop.ops import Ops
from tiny_uop.symbolic.linear import Linear, build, is_const, linear
from tiny_uop.symbolic.quotient import Quotient, divided

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

PAIRED = frozenset({Ops.FLOORDIV, Ops.FLOORMOD})
"""What has a counterpart with which it makes a whole."""


def _positive_divisor(term: UOp) -> int:
  divisor = term.src[1]
  return int(divisor.arg) if is_const(divisor) and divisor.arg > 0 else 0


def _same_residue(x: Linear, y: Linear, divisor: int) -> bool:
  """Whether x % divisor is y % divisor for all values of the terms."""
  if (x.const - y.const) % divisor:
    return False
  return all((x.terms.get(t, 0) - y.terms.get(t, 0)) % divisor == 0 for t in {*x.terms, *y.terms})


def _whole(quotient: UOp, remainder: UOp) -> Linear | None:
  """`quotient * m + remainder` without division, m the remainder's divisor; None where it is not known.

  The remainder is y % m. Either y // m is the quotient but for a sum s that has no division: the whole is y + s * m. Or
  the quotient is x // (a * m), and x // a has the same remainder by m as y: the whole is x // a.
  """
  y, m = remainder.src[0], _positive_divisor(remainder)
  x, d = quotient.src[0], _positive_divisor(quotient)
  if x is y and d == m:
    return linear(x)
  numerator, operand = linear(x), linear(y)
  if not numerator.exact(x.dtype) or not operand.exact(x.dtype):
    return linear(y) if y.op is Ops.FLOORDIV and y.src[0] is x and _positive_divisor(y) * m == d else None
  of_remainder = Quotient(operand, m, x.dtype)
  if of_remainder.divisor == d and _same_residue(numerator, of_remainder.numerator, d):
    numerator.add_form(of_remainder.numerator, -1)
    whole = operand.copy()
    whole.add_form(of_remainder.whole, -m)
    whole.add_form(divided(numerator, d), m)
    return whole
  if d % m:
    return None
  inner = Quotient(numerator, d // m, x.dtype)
  result, node = inner.whole.copy(), inner.node()
  if node is not None:
    result.add(node, 1)
  return result if _same_residue(result, operand, m) else None


def _find(form: Linear) -> tuple[UOp, UOp, Linear] | None:
  quotients = [t for t in form.terms if t.op is Ops.FLOORDIV and _positive_divisor(t)]
  if not quotients:
    return None
  for remainder, factor in form.terms.items():
    if remainder.op is not Ops.FLOORMOD or not (m := _positive_divisor(remainder)):
      continue
    for quotient in quotients:
      if form.terms[quotient] == factor * m and (x := _whole(quotient, remainder)) is not None:
        return quotient, remainder, x
  return None


def _find_remainders(form: Linear) -> tuple[UOp, UOp, Linear] | None:
  """`(y % m) * a + x % a → (y*a + x % a) % (a * m)` where `y*a + x % a` is put back together."""
  remainders = [t for t in form.terms if t.op is Ops.FLOORMOD and _positive_divisor(t)]
  for high in remainders:
    m = _positive_divisor(high)
    for low in remainders:
      a = _positive_divisor(low)
      if low is high or form.terms[high] != form.terms[low] * a or not fits(high.dtype, 0, a * m):
        continue
      whole = Linear()
      whole.add_form(linear(high.src[0]), a)
      if not whole.exact(high.dtype) or not any(t.op is Ops.FLOORDIV for t in whole.terms):
        continue
      whole.add(low, 1)
      recombine(whole)
      if low in whole.terms or not whole.exact(high.dtype):
        continue
      numerator = build(high, whole)
      return high, low, Linear({numerator.alu(Ops.FLOORMOD, numerator.const_like(a * m)): 1})
  return None


def recombine(form: Linear) -> None:
  """Replace pairs in `form` until there are none."""
  if sum(t.op in PAIRED for t in form.terms) < 2:
    return
  while (found := _find(form) or _find_remainders(form)) is not None:
    first, second, whole = found
    factor = form.terms.pop(second)
    form.terms.pop(first)
    form.add_form(whole, factor)
