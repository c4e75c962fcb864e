"""SIN and COS of float32 and float64 for any argument: the tests hold it to the bound of the other functions.

The argument becomes n * pi/2 + r, |r| <= pi/4. Small arguments subtract n times pi/2 in parts of which the
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
  UNSIGNED,
  horner,
  magnitude,
  reinterpret,
  signed_bits,
  to,
  unsigned_bits,
  whole_near,
)
from tiny_uop import Ops, UOp, dtypes


class Reduced(NamedTuple):
  """x = quadrant * pi/2 + high + low; quadrant as an unsigned integer, of which the last two bits count."""

  quadrant: UOp
  high: UOp
  low: UOp


class _Format(NamedTuple):
  mantissa: int
  sine: Sequence[float]
  cosine: Sequence[float]
  half_pi: tuple[float, float]  # the nearest float, and what it misses
  half_pi_upper: float  # the first half of the digits of the former


class _Parts(NamedTuple):
  """pi/2 in parts, such that for |x| < limit what is left of x is exact until the last one is subtracted."""

  parts: Sequence[float]
  limit: float


_HALF_PI_F32 = (float.fromhex("0x1.921fb6p+0"), float.fromhex("-0x1.777a5cp-25"))
_HALF_PI_F64 = (float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54"))
_FORMATS = {
  32: _Format(23, fitted.SIN_F32, fitted.COS_F32, _HALF_PI_F32, float.fromhex("0x1.92p+0")),
  64: _Format(52, fitted.SIN_F64, fitted.COS_F64, _HALF_PI_F64, float.fromhex("0x1.921fb5p+0")),
}
# by whether products and sums are fused: products need not be exact then, and the parts are whole floats
_PARTS = {
  (32, False): _Parts(fitted.HALF_PI_F32, 400.0),
  (64, False): _Parts(fitted.HALF_PI_F64, 1.5e6),
  (32, True): _Parts(fitted.HALF_PI_FUSED_F32, 3000.0),
  (64, True): _Parts(fitted.HALF_PI_FUSED_F64, 1.5e6),
}
_TWO_OVER_PI = 0.6366197723675814


def _cody_waite(x: UOp, parts: Sequence[float], fused: bool) -> Reduced:
  """For |x| below the limit of the parts."""

  def without(value: UOp, part: float) -> UOp:
    """value - n * part."""
    return n.alu(Ops.MULACC, n.const_like(-part), value) if fused else value + n * -part

  n, quadrant = whole_near(x * _TWO_OVER_PI)
  rest, low = without(x, parts[0]), None
  for part in parts[1:-1]:
    less = without(rest, part)
    lost = without(rest - less, part)  # what this subtraction rounded away
    rest, low = less, lost if low is None else low + lost
  assert low is not None, "three parts at least"
  return Reduced(quadrant, rest, without(low, parts[-1]))


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
  return Reduced(quadrant, *_times_half_pi(head * 2.0**-62, tail * 2.0**-62))


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
  return Reduced(quadrant, *_times_half_pi(high, low))


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


def _value(r: Reduced, quarters: int) -> UOp:
  """sin((quadrant + quarters) * pi/2 + high + low)."""
  form = _FORMATS[r.high.dtype.bits]
  z = r.high * r.high
  odd = r.high + ((r.high * z) * horner(z, form.sine) + r.low)
  most = z * -0.5 + 1.0
  lost = (1.0 - most) + z * -0.5
  even = most + (z * z * horner(z, form.cosine) + (r.high * -r.low + lost))
  quadrant = r.quadrant + quarters if quarters else r.quadrant
  value = unsigned_bits((quadrant & 1).ne(0).where(even, odd))
  sign = 1 << (r.high.dtype.bits - 1)
  return reinterpret(value ^ ((quadrant << (r.high.dtype.bits - 2)) & sign), r.high.dtype.scalar())


def _circular(x: UOp, quarters: int, fused: bool) -> UOp:
  """sin(|x| + quarters * pi/2). Sine and cosine of one x share all but the last steps."""
  size = magnitude(x)
  parts, limit = _PARTS[x.dtype.bits, fused]
  near = _cody_waite(size, parts, fused)
  far = _payne_hanek_single(size) if x.dtype.bits == 32 else _payne_hanek_double(size)
  # the selection also keeps the product that `high` is, rounded, from being fused with what is added to it
  high = (size < INFINITY).where(far.high, x.const_like(NAN))
  both = high + far.low
  far = Reduced(to(far.quadrant, UNSIGNED[x.dtype.bits]), both, (high - both) + far.low)
  return (size < limit).where(_value(near, quarters), _value(far, quarters))


def sine(x: UOp, fused: bool = False) -> UOp:
  """sin(x). `fused`: the target rounds a product and a sum once."""
  sign = unsigned_bits(x) & (1 << (x.dtype.bits - 1))
  return reinterpret(unsigned_bits(_circular(x, 0, fused)) ^ sign, x.dtype.scalar())


def cosine(x: UOp, fused: bool = False) -> UOp:
  """cos(x). `fused`: the target rounds a product and a sum once."""
  return _circular(x, 1, fused)
