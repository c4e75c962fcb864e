"""Arithmetic on 64-bit integers given as two 32-bit halves. Halves are uint32, scalars or vectors."""

from __future__ import annotations

from typing import NamedTuple

from tiny_codegen.decompose.arithmetic import power_of_two, reinterpret, to
from tiny_uop import UOp, dtypes


class Halves(NamedTuple):
  """low + 2**32 * high, modulo 2**64."""

  low: UOp
  high: UOp


def _one_if(condition: UOp) -> UOp:
  return to(condition, dtypes.uint32)


def select(condition: UOp, a: Halves, b: Halves) -> Halves:
  """a where the condition holds, else b."""
  return Halves(condition.where(a.low, b.low), condition.where(a.high, b.high))


def add(a: Halves, b: Halves) -> Halves:
  """a + b."""
  low = a.low + b.low
  return Halves(low, a.high + b.high + _one_if(low < a.low))


def negate(a: Halves) -> Halves:
  """-a."""
  return Halves(~a.low + 1, ~a.high + _one_if(a.low.eq(0)))


def multiply(a: Halves, b: Halves) -> Halves:
  """a * b, the low product from 16-bit digits."""
  (a0, a1), (b0, b1) = ((x.low & 0xFFFF, x.low >> 16) for x in (a, b))
  middle = a1 * b0 + ((a0 * b0) >> 16)
  other = a0 * b1 + (middle & 0xFFFF)
  high = a1 * b1 + (middle >> 16) + (other >> 16)
  return Halves(a.low * b.low, high + a.low * b.high + a.high * b.low)


def less(a: Halves, b: Halves, signed: bool) -> UOp:
  """a < b."""
  high_a, high_b = (reinterpret(x.high, dtypes.int32) if signed else x.high for x in (a, b))
  return (high_a < high_b) | (a.high.eq(b.high) & (a.low < b.low))


def equal(a: Halves, b: Halves) -> UOp:
  """a == b."""
  return a.low.eq(b.low) & a.high.eq(b.high)


def shift_left(a: Halves, count: UOp) -> Halves:
  """a << count for 0 <= count < 64."""
  rest = count & 31
  # two shifts, since one by 32 has no meaning
  small = Halves(a.low << rest, (a.high << rest) | ((a.low >> 1) >> (rest ^ 31)))
  return select(count < 32, small, Halves(a.low.const_like(0), a.low << rest))


def shift_right(a: Halves, count: UOp, signed: bool) -> Halves:
  """a >> count for 0 <= count < 64; arithmetic if signed."""
  rest = count & 31
  top = reinterpret(a.high, dtypes.int32)
  shifted = reinterpret(top >> to(rest, dtypes.int32), dtypes.uint32) if signed else a.high >> rest
  fill = reinterpret(top >> 31, dtypes.uint32) if signed else a.high.const_like(0)
  small = Halves((a.low >> rest) | ((a.high << 1) << (rest ^ 31)), shifted)
  return select(count < 32, small, Halves(shifted, fill))


def is_negative(a: Halves) -> UOp:
  """Whether a, taken as signed, is below 0."""
  return reinterpret(a.high, dtypes.int32) < 0


def magnitude(a: Halves) -> Halves:
  """|a| of a signed integer, as an unsigned one."""
  return select(is_negative(a), negate(a), a)


def divide(a: Halves, b: Halves) -> tuple[Halves, Halves]:
  """Quotient and remainder of unsigned integers, bit by bit; (0, 0) for b = 0."""
  zero = a.low.const_like(0)
  quotient, rest = Halves(zero, zero), Halves(zero, zero)
  for bit in range(63, -1, -1):
    word = a.high if bit >= 32 else a.low
    carried = (rest.high >> 31).ne(0)  # the 65th bit
    rest = Halves((rest.low << 1) | ((word >> (bit & 31)) & 1), (rest.high << 1) | (rest.low >> 31))
    fits = carried | less(rest, b, False).logical_not()
    rest = select(fits, add(rest, negate(b)), rest)
    digit = _one_if(fits) << (bit & 31)
    quotient = Halves(quotient.low, quotient.high | digit) if bit >= 32 else Halves(quotient.low | digit, quotient.high)
  by_zero = (b.low | b.high).eq(0)
  nothing = Halves(zero, zero)
  return select(by_zero, nothing, quotient), select(by_zero, nothing, rest)


def divide_signed(a: Halves, b: Halves) -> tuple[Halves, Halves]:
  """Quotient toward zero and remainder; the least integer by -1 wraps."""
  quotient, rest = divide(magnitude(a), magnitude(b))
  negative = is_negative(a)
  return select(negative ^ is_negative(b), negate(quotient), quotient), select(negative, negate(rest), rest)


def to_float(a: Halves, signed: bool) -> UOp:
  """float32 nearest to a: shifted until it fits 32 bits, what falls out gathered in the last bit, and so rounded
  once.
  """
  value = magnitude(a) if signed else a
  exponent = value.low.const_like(0)
  for step in (16, 8, 4, 2, 1, 1):
    large = (value.high >> (step - 1)).ne(0)
    lost = _one_if((value.low & ((1 << step) - 1)).ne(0))
    low = (value.low >> step) | (value.high << (32 - step)) | lost
    value = select(large, Halves(low, value.high >> step), value)
    exponent = large.where(exponent + step, exponent)
  scaled = to(value.low, dtypes.float32) * power_of_two(reinterpret(exponent, dtypes.int32), dtypes.float32)
  return is_negative(a).where(-scaled, scaled) if signed else scaled


def from_float(x: UOp) -> Halves:
  """A float toward zero; out of range any."""
  negative = x < 0.0
  size = negative.where(-x, x)
  high = to(size * 2.0**-32, dtypes.uint32)
  low = to(size - to(high, x.dtype.scalar()) * 2.0**32, dtypes.uint32)
  return select(negative, negate(Halves(low, high)), Halves(low, high))


def extend(x: UOp) -> Halves:
  """A bool or an integer of at most 32 bits."""
  if x.dtype.kind != "int":
    low = to(x, dtypes.uint32)
    return Halves(low, low.const_like(0))
  wide = to(x, dtypes.int32)
  return Halves(reinterpret(wide, dtypes.uint32), reinterpret(wide >> 31, dtypes.uint32))
