"""Quotient and remainder in one sum put back together: `(x // a) * a + x % a → x`, with common factors and through
nested divisions."""

from __future__ import annotations

from tiny_uop.bounds import fits
from tiny_uop.ops import Ops
from tiny_uop.symbolic.linear import Linear, is_const, linear
from tiny_uop.uop import UOp

_PAIRED = frozenset({Ops.FLOORDIV, Ops.FLOORMOD})


def _positive_divisor(term: UOp) -> int:
  divisor = term.src[1]
  return int(divisor.arg) if is_const(divisor) and divisor.arg > 0 else 0


def _residue(u: UOp, divisor: int) -> tuple[tuple[tuple[UOp, int], ...], int]:
  """What decides `u % divisor`: its linear form with coefficients reduced."""
  form = linear(u)
  terms = tuple((t, c % divisor) for t, c in form.terms.items() if c % divisor)
  return tuple(sorted(terms, key=lambda item: item[0].key)), form.const % divisor


def _whole(quotient: UOp, remainder: UOp) -> UOp | None:
  """The x for which these are x // m and x % m, m the remainder's divisor; None when there is none.

  Also the x = y // a for which they are y // (a * m) and (y // a) % m.
  """
  y, m = remainder.src[0], _positive_divisor(remainder)
  x, d = quotient.src[0], _positive_divisor(quotient)
  if d == m:
    if x is y:
      return x
    # the remainder's operand may have been reduced further than the quotient's: (5*x) // 4 and x % 4
    return x if x.dtype.kind == "index" and _residue(x, m) == _residue(y, m) else None
  if y.op is Ops.FLOORDIV and y.src[0] is x and _positive_divisor(y) * m == d and _positive_divisor(y):
    return y
  return None


def _find(form: Linear) -> tuple[UOp, UOp, UOp] | None:
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


def _find_remainders(form: Linear) -> tuple[UOp, UOp, UOp] | None:
  """`((x // a) % m) * a + x % a → x % (a * m)`."""
  remainders = [t for t in form.terms if t.op is Ops.FLOORMOD and _positive_divisor(t)]
  for high in remainders:
    y = high.src[0]
    if y.op is not Ops.FLOORDIV or not (a := _positive_divisor(y)):
      continue
    for low in remainders:
      if _positive_divisor(low) != a or low.src[0] is not y.src[0] or form.terms[high] != form.terms[low] * a:
        continue
      if fits(y.dtype, 0, a * _positive_divisor(high)):
        return high, low, y.src[0].alu(Ops.FLOORMOD, high.src[1].const_like(a * _positive_divisor(high)))
  return None


def recombine(form: Linear) -> None:
  """Replace pairs in `form` until there are none."""
  if sum(t.op in _PAIRED for t in form.terms) < 2:
    return
  while (found := _find(form) or _find_remainders(form)) is not None:
    first, second, whole = found
    factor = form.terms.pop(second)
    form.terms.pop(first)
    form.add_form(linear(whole), factor)
