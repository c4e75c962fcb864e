"""SIN of float32 and float64 for any argument: the tests hold it to the bound of the other functions.

The argument becomes n * pi/2 + r, |r| <= pi/4. Small arguments subtract n times pi/2 in four parts of which the
products with n are exact (Cody and Waite, "Software Manual for the Elementary Functions", 1980). Large ones multiply
the mantissa by as many bits of 2/pi as matter, in integers (Payne and Hanek, "Radian reduction for trigonometric
functions", 1983); the bits come from constants chosen by the exponent, not from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tiny_codegen.decompose import coefficients as fitted
from tiny_codegen.decompose.arithmetic import (
  INFINITY,
  NAN,
  horner,
  magnitude,
  nearest,
  reinterpret,
  signed_bits,
  to,
  unsigned_bits,
)
from tiny_uop import UOp, dtypes


class Reduced(NamedTuple):
  """x = quadrant * pi/2 + high + low; quadrant as int32, of which the last two bits count."""

  quadrant: UOp
  high: UOp
  low: UOp


class _Format(NamedTuple):
  mantissa: int
  parts: Sequence[float]  # of pi/2
  small: float  # below, a multiple of the leading parts is exact
  sine: Sequence[float]
  cosine: Sequence[float]
  identity: float  # below, sin(x) rounds to x
  half_pi: tuple[float, float]  # the nearest float, and what it misses
  half_pi_upper: float  # the first half of the digits of the former


_HALF_PI_F32 = (float.fromhex("0x1.921fb6p+0"), float.fromhex("-0x1.777a5cp-25"))
_HALF_PI_F64 = (float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54"))
_FORMATS = {
  32: _Format(
    23, fitted.HALF_PI_F32, 400.0, fitted.SIN_F32, fitted.COS_F32, 2.0**-12, _HALF_PI_F32, float.fromhex("0x1.92p+0")
  ),
  64: _Format(
    52,
    fitted.HALF_PI_F64,
    1.5e6,
    fitted.SIN_F64,
    fitted.COS_F64,
    2.0**-27,
    _HALF_PI_F64,
    float.fromhex("0x1.921fb5p+0"),
  ),
}
_TWO_OVER_PI = 0.6366197723675814


def _cody_waite(x: UOp) -> Reduced:
  """For |x| below the format's `small`."""
  form = _FORMATS[x.dtype.bits]
  n = nearest(x * _TWO_OVER_PI)
  count = to(n, x.dtype.scalar())
  first = x - count * form.parts[0]
  second_part, third_part = count * form.parts[1], count * form.parts[2]
  second = first - second_part
  third = second - third_part
  # what the two subtractions rounded away
  lost = ((first - second) - second_part) + ((second - third) - third_part)
  return Reduced(n, third, lost - count * form.parts[3])


def _shifted(words: list[UOp], place: UOp, wanted: int, steps: Sequence[int]) -> list[UOp]:
  """words[place : place + wanted] for a place that is known only at run time: one row of selections per bit of it."""
  for step in steps:
    needed = wanted + sum(s for s in steps if s < step)
    chosen = (place & step).ne(0)
    zero = words[0].const_like(0)
    padded = [*words, *[zero] * (needed + step)]
    words = [chosen.where(padded[i + step], padded[i]) for i in range(needed)]
  return words[:wanted]


def _window(x: UOp, exponent: UOp, words: int, steps: Sequence[int], count: int) -> list[UOp]:
  """`words` 32-bit words of 2/pi, as uint64, from the bit whose product with the mantissa of x is worth 2 at most."""
  kind = dtypes.uint32.vec(x.dtype.count)
  # words of zeros stand before the point, since the exponent may be negative; bit `place` of the list is the first
  # wanted
  zeros = 1 if x.dtype.bits == 32 else 2
  table = [UOp.const(kind, w) for w in (*(0,) * zeros, *fitted.TWO_OVER_PI[:count])]
  place = exponent + (32 * zeros - 2)
  chosen = [to(w, dtypes.uint64) for w in _shifted(table, place >> 5, words + 1, steps)]
  shift = to(place & 31, dtypes.uint64)
  return [((((high << 32) | low) << shift) >> 32) & 0xFFFFFFFF for high, low in zip(chosen, chosen[1:])]


def _payne_hanek_single(x: UOp) -> Reduced:
  """For 2**-1 <= |x| < 2**128 in float32; the sign of x is left out."""
  bits = unsigned_bits(x)
  mantissa = to((bits & 0x7FFFFF) | 0x800000, dtypes.uint64)
  exponent = to((bits >> 23) & 0xFF, dtypes.int32) - 150  # of the mantissa as an integer
  high, middle, low = _window(x, exponent, 3, (4, 2, 1), 7)
  # the product modulo 4, as a fixed-point number with 62 bits behind the point; lower bits cannot matter
  product = ((mantissa * high) << 32) + mantissa * middle + ((mantissa * low) >> 32)
  quadrant = (product + (1 << 61)) >> 62
  rest = reinterpret(product << 2, dtypes.int64) >> 2
  head = to(rest, dtypes.float32)
  tail = to(rest - to(head, dtypes.int64), dtypes.float32)
  return Reduced(to(quadrant, dtypes.int32), *_times_half_pi(head * 2.0**-62, tail * 2.0**-62))


def _product_limbs(mantissa: UOp, words: list[UOp]) -> list[UOp]:
  """The last len(words) 32-bit limbs of a 53-bit integer times an integer given as 32-bit words, both highest first."""
  low, high = mantissa & 0xFFFFFFFF, mantissa >> 32
  limbs: list[UOp] = []
  carry = mantissa.const_like(0)
  before = mantissa.const_like(0)  # the next lower word, which `high` multiplies into this limb
  for word in reversed(words):
    first, second = low * word, high * before
    total = (first & 0xFFFFFFFF) + (second & 0xFFFFFFFF) + carry
    limbs.append(total & 0xFFFFFFFF)
    carry = (first >> 32) + (second >> 32) + (total >> 32)
    before = word
  return limbs[::-1]


def _payne_hanek_double(x: UOp) -> Reduced:
  """For 2**-1 <= |x| < 2**1024 in float64; the sign of x is left out."""
  bits = unsigned_bits(x)
  mantissa = (bits & ((1 << 52) - 1)) | (1 << 52)
  exponent = to((bits >> 52) & 0x7FF, dtypes.int32) - 1075
  limbs = _product_limbs(mantissa, _window(x, exponent, 6, (32, 16, 8, 4, 2, 1), 38))
  upper = (limbs[0] << 32) | limbs[1]
  lower = (limbs[2] << 32) | limbs[3]
  quadrant = (upper + (1 << 61)) >> 62
  rest = reinterpret(upper << 2, dtypes.int64) >> 2
  # two exact pieces of 32 and 30 bits, then the rest of the fraction
  top = to((rest >> 32) << 32, dtypes.float64) * 2.0**-62
  middle = to(rest & 0xFFFFFFFF, dtypes.float64) * 2.0**-62
  bottom = middle + to(lower, dtypes.float64) * 2.0**-126
  high = top + bottom
  low = (top - high) + bottom
  return Reduced(to(quadrant, dtypes.int32), *_times_half_pi(high, low))


def _times_half_pi(high: UOp, low: UOp) -> tuple[UOp, UOp]:
  """(high + low) * pi/2 as the sum of two floats; the leading product is split to be exact (Dekker, 1971)."""
  form = _FORMATS[high.dtype.bits]
  (first, second), upper = form.half_pi, form.half_pi_upper
  product = high * first
  head = reinterpret(signed_bits(high) & (-1 << ((form.mantissa + 2) // 2)), high.dtype.scalar())
  rest = high - head
  lower = first - upper
  error = ((head * upper - product) + head * lower + rest * upper) + rest * lower
  return product, error + (high * second + low * first)


def sine(x: UOp) -> UOp:
  """sin(x)."""
  form = _FORMATS[x.dtype.bits]
  size = magnitude(x)
  near = _cody_waite(x)
  far = _payne_hanek_single(size) if x.dtype.bits == 32 else _payne_hanek_double(size)
  is_near = size < form.small
  high, low = is_near.where(near.high, far.high), is_near.where(near.low, far.low)
  quadrant = is_near.where(near.quadrant, far.quadrant)
  z = high * high
  odd = high + ((high * z) * horner(z, form.sine) + low)
  even = 1.0 - (z * 0.5 - (z * z * horner(z, form.cosine) - high * low))
  value = (quadrant & 1).ne(0).where(even, odd)
  # the large-argument path worked on |x|
  flip = (quadrant & 2).ne(0) ^ (is_near.logical_not() & (x < 0.0))
  value = flip.where(-value, value)
  value = (size < form.identity).where(x, value)
  return (size < INFINITY).where(value, x.const_like(NAN))
