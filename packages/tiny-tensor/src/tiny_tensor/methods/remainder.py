"""Exact remainders of divisions of floats, and quotients rounded down, of every float dtype.

Products of halves of two floats' bits are exact, and so are their differences where they are small enough. So a
quotient that has fewer bits than a float is taken off in two parts. Of larger quotients, which hardly ever occur, the
operands are taken as whole numbers A·2ⁿ and B of all bits: A·2ⁿ mod B is A times 2ⁿ mod B, and that is a few squarings.
All of it is arithmetic of the dtype itself, without loops: the same in each lane of each device.
"""

from __future__ import annotations

import math
from typing import Generic, TypeVar

from tiny_tensor.autograd.custom_gradient import precise_pair
from tiny_tensor.base import TensorBase
from tiny_uop import Ops, dtypes
from tiny_uop.records import dataclass

E = TypeVar("E", bound=TensorBase)


@dataclass(frozen=True)
class Format:
  """Of a float format: bits of a whole number, and of half of one, rounded up; the bias of exponents; how many bits of
  a difference of exponents, of 9 and of 12, are squared for: 2 to the power of the others is less than half of a number
  of all bits.
  """

  bits: int
  half: int
  bias: int
  squarings: int


_FORMATS = {32: Format(24, 12, 127, 4), 64: Format(53, 27, 1023, 6)}


def _one(rest: E, a: E, b: E) -> E:
  return rest.const_like(1)


@precise_pair(_one, lambda rest, a, b: (a / b).trunc().detach()._flat_in(a, b) * -1)
def truncated(a: E, b: E) -> E:
  """C's `fmod(a, b)` for every a and b of one dtype: what is left of |a| after whole multiples of |b|, with the sign of
  a. NaN for an infinite a and for b = 0.
  """
  return _with_sign(_rest(a, b), a)


@precise_pair(_one, lambda rest, a, b: floor_quotient(a, b) * -1)
def floored(a: E, b: E) -> E:
  """Python's `a % b`: the remainder with the sign of b, of 0 too. A small one of the other sign may round to b."""
  size = _rest(a, b)
  rest = _with_sign(size, a)
  return size.eq(0).where(_with_sign(size, b), ((a < 0) ^ (b < 0)).where(rest + b, rest))


def floor_quotient(a: E, b: E) -> E:
  """Python's `a // b`, and `a / b` for b = 0."""
  x, y = _wide(a), _wide(b)
  size, ratio = _rest(x, y), x.alu(Ops.FDIV, y)
  # a multiple of b, so that the quotient is next to a whole number if it is none
  exact = (x - _with_sign(size, x)).alu(Ops.FDIV, y)
  exact = (size.ne(0) & ((x < 0) ^ (y < 0))).where(exact - 1, exact)
  whole = exact.floor()
  whole = (exact - whole > 0.5).where(whole + 1, whole)
  whole = exact.eq(0).where(_with_sign(exact.const_like(0), ratio), whole)
  return y.eq(0).where(ratio, whole)._as_dtype(a.dtype).detach()._flat_in(a, b)


def _wide(x: E) -> E:
  """In float32 at least, where remainders of narrower floats are exact, too."""
  return x if x.dtype.bits >= 32 else x._as_dtype(dtypes.float32)


def _rest(a: E, b: E) -> E:
  """The magnitude of the remainder of floats of 32 or 64 bits."""
  form = _FORMATS[a.dtype.bits]
  top, by = _magnitude(a), _magnitude(b)
  ratio = top.alu(Ops.FDIV, by)
  few = ratio < 2.0 ** (form.bits - 1)
  rest = few.where(_by_quotient(top, by, few.where(ratio, 0.0).trunc(), form), _by_powers(top, by, form))
  return ((top < math.inf) & (by > 0)).where((top < by).where(top, rest), math.nan)


def _bits(x: E) -> E:
  return x.bitcast(dtypes.uint32 if x.dtype.bits == 32 else dtypes.uint64)


def _both(bits: E, mask: int) -> E:
  return bits.alu(Ops.AND, bits.const_like(mask))


def _magnitude(x: E) -> E:
  return _both(_bits(x), (1 << (x.dtype.bits - 1)) - 1).bitcast(x.dtype)


def _with_sign(size: E, sign: E) -> E:
  """A magnitude with the sign of another float."""
  bits = _bits(size)
  return bits.alu(Ops.OR, _both(_bits(sign), 1 << (sign.dtype.bits - 1))).bitcast(size.dtype)


def _upper(x: E, form: Format) -> E:
  """The upper half of the bits of a float."""
  return _both(_bits(x), (1 << x.dtype.bits) - (1 << form.half)).bitcast(x.dtype)


def _by_quotient(a: E, b: E, quotient: E, form: Format) -> E:
  """a - quotient·b, where the quotient is that of a and b or one more, and has fewer bits than a float."""
  high = _upper(b, form)
  low = b - high
  scale = 2.0 ** (form.bits - form.half)
  upper = (quotient * (1 / scale)).trunc() * scale
  lower = quotient - upper
  rest = (a - upper * high) - upper * low
  rest = (rest - lower * high) - lower * low
  return (rest < 0).where(rest + b, rest)


def _whole(x: E, form: Format) -> tuple[E, E]:
  """(m, e), a whole number of all bits, as a float, and int32, with x = m·2^e, of a number above 0."""
  tiny = _bits(x) < 1 << (form.bits - 1)
  bits = _bits(tiny.where(x * 2.0**form.bits, x))
  digits = form.bits - 1
  # a whole number of all bits has one exponent
  fraction = _both(bits, (1 << digits) - 1).alu(Ops.OR, bits.const_like((form.bias + digits) << digits))
  exponent = bits.alu(Ops.SHR, bits.const_like(digits))._as_dtype(dtypes.int32)
  return fraction.bitcast(x.dtype), exponent - (form.bias + digits) - tiny.where(form.bits, 0)


def _power(exponent: E, like: E) -> E:
  """2 to the power of an integer."""
  return like.const_like(1).alu(Ops.LDEXP, exponent._as_dtype(like.dtype))


def _by_powers(a: E, b: E, form: Format) -> E:
  """The remainder for a >= b > 0."""
  first, start = _whole(a, form)
  number, end = _whole(b, form)
  modulo = _Modulo(number, form)
  steps = start - end
  power = _power(steps.alu(Ops.SHR, steps.const_like(form.squarings)), a)
  for place in reversed(range(form.squarings)):
    doubled = _both(steps.alu(Ops.SHR, steps.const_like(place)), 1).ne(0)
    power = modulo.product(power, power)
    power = doubled.where(modulo.rest(power * 2), power)
  rest = modulo.product(modulo.rest(first), power)
  rest = (rest < 0).where(rest + number, rest)
  # of zeros the positive one
  return _magnitude(rest).alu(Ops.LDEXP, end._as_dtype(a.dtype))


class _Modulo(Generic[E]):
  """Products modulo a number of all bits. Remainders are those of least magnitude, as rounding gives them: negative
  ones, too, and half of the number, or hardly more, is the largest. All sums and products here are exact.
  """

  def __init__(self, number: E, form: Format) -> None:
    self.form = form
    self.number, self.inverse = number, number.reciprocal()
    self.high, self.low = self.parts(number, form.half)

  def parts(self, x: E, places: int) -> tuple[E, E]:
    """The multiple of 2^places that is nearest to a whole number, and what is left of it."""
    large = 1.5 * 2.0 ** (self.form.bits - 1 + places)
    high = (x + large) - large
    return high, x - high

  def quotient(self, x: E) -> E:
    """x divided by the number and rounded to a whole one."""
    large = 1.5 * 2.0 ** (self.form.bits - 1)
    return (x * self.inverse + large) - large

  def rest(self, x: E) -> E:
    """The remainder of a number of all bits, or of twice a remainder."""
    return x - self.quotient(x) * self.number

  def product(self, x: E, y: E) -> E:
    """That of two remainders: by the upper half of y first, then by the lower one."""
    places = self.form.bits - self.form.half
    (high, low), (upper, lower) = self.parts(x, self.form.half), self.parts(y, places)
    upper = upper * 2.0**-places
    times = self.quotient(x * upper)
    rest = ((high * upper - times * self.high) + low * upper) - times * self.low
    rest = rest * 2.0**places
    times = self.quotient(rest + x * lower)
    return (((rest + high * lower) - times * self.high) + low * lower) - times * self.low
