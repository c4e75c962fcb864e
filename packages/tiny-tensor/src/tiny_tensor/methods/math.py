"""Elementary functions, powers, products and ratios. Integers are cast to the default float first."""

from __future__ import annotations

import math
from typing import Self, TypeVar

from tiny_tensor.autograd.custom_gradient import precise, precise_pair, with_slopes
from tiny_tensor.base import Operand, TensorBase, is_const
from tiny_tensor.naming import unary
from tiny_tensor.special import chebyshev as ap
from tiny_uop import DType, GroupOp, Ops, UOp, dtypes, truncate

E = TypeVar("E", bound=TensorBase)


# ln 2 in two parts; products of the first with whole numbers up to 2**10 are exact (Cody and Waite, 1980)
_LN2 = {
  32: (0.693359375, -2.12194440054690583e-4),
  64: (float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")),
}
_MANTISSA = {32: 23, 64: 52}


def reduced(x: E) -> tuple[E, E]:
  """(q, n) with exp(x) = (1 + q)·2ⁿ, n whole and |q| < 0.42, as relatively exact as x: for |x| < 1000."""
  bits = x.dtype.bits
  high, low = _LN2[bits]
  # where floats have no bits behind the point, adding rounds
  large = 1.5 * 2.0 ** _MANTISSA[bits]
  n = ((x * (1 / math.log(2)) + large) - large).detach()
  r = (x - n * high) - n * low
  return r * r * ap.polynomial(ap.exponential_rest, -0.35, 0.35, r) + r, n


def _from_half_pi(x: E, times: int = 1) -> E:
  """times·π/2 - x, with more digits of π than the dtype has."""
  high = float(truncate(x.dtype, math.pi / 2)) * times
  low = math.pi / 2 * times - high if x.dtype.bits < 64 else 6.123233995736766e-17 * times
  return (x - low).mul(-1) + high


# Derivatives, by the function's value y and its arguments. They have derivatives of their own in turn, and are those of
# PyTorch where a function has a kink or a pole, but NaN where its value is. Those of inverse functions are of products
# that do not cancel, whose own derivatives at 0 would be infinite times 0.


@precise(lambda slope, x: x * slope * slope * slope)
def asin_slope(x: E) -> E:
  """1/√(1 - x²)."""
  return ((x * -1 + 1) * (x + 1)).rsqrt()


@precise(lambda slope, x: x * slope * slope * slope * -1)
def acosh_slope(x: E) -> E:
  """1/√(x² - 1)."""
  return (x < 1).where(math.nan, ((x - 1) * (x + 1)).rsqrt())


@precise(lambda slope, x: x * slope * slope * 2)
def atanh_slope(x: E) -> E:
  """1/(1 - x²)."""
  return ((x * -1 + 1) * (x + 1)).reciprocal()


@precise(lambda slope, x: (x * 2 - 1) * slope * slope)
def logit_slope(x: E) -> E:
  """1/(x (1 - x))."""
  return ((x < 0) | (x > 1)).where(math.nan, (x * (x * -1 + 1)).reciprocal())


def _sinc_slope(value: E, x: E) -> E:
  # near 0 the difference would cancel
  near = x.abs() < 0.5
  u = near.where(x, 0.0).square()
  far = near.where(1.0, x)
  return near.where(ap.polynomial(ap.sinc_rest, 0.0, 0.25, u) * x, (far.cos() - far.sin() / far) / far)


def _nearness(x: E, y: E) -> E:
  """1/(x² + y²), and 0 at 0."""
  square = x * x + y * y
  return square.eq(0).where(0.0, square.reciprocal())


def _logaddexp_slope(y: E, a: E, b: E) -> E:
  gap = (a.eq(b) & a.isinf()).where(0.0, a - b)
  return gap.sigmoid()


def _pow_slope(y: E, x: E, exponent: E) -> E:
  if is_const(exponent.uop):
    number = _number(exponent.uop)
    return x.pow(number - 1) * number if number else x.const_like(0)._flat_in(x)
  return exponent.eq(0).where(0.0, exponent * x._float_pow(exponent - 1))


def _pow_growth(y: E, x: E, exponent: E) -> E:
  nothing = x.eq(0) & (exponent >= 0)
  return nothing.where(0.0, y * nothing.where(1.0, x).log())


def _number(constant: UOp) -> float:
  while constant.op in GroupOp.Movement:
    constant = constant.src[0]
  return float(constant.arg)


def _xlogy_slope(value: E, x: E, y: E) -> E:
  skip = x.eq(0) & (y <= 0)
  return skip.where(0.0, skip.where(1.0, y).log())


def _xlog1py_slope(value: E, x: E, y: E) -> E:
  skip = x.eq(0) & (y <= -1)
  return skip.where(0.0, skip.where(0.0, y).log1p())


class MathMixin(TensorBase):
  """Exponentials, logarithms, trigonometric and hyperbolic functions, powers, products and ratios."""

  __slots__ = ()

  exp = unary("e to the power of self.", lambda x: x._as_float().alu(Ops.EXP))
  exp2 = unary("2 to the power of self.", lambda x: x._as_float().alu(Ops.EXP2))
  log = unary("Natural logarithm; -inf at 0, NaN below.", lambda x: x._as_float().alu(Ops.LOG))
  log2 = unary("Logarithm to base 2.", lambda x: x._as_float().alu(Ops.LOG2))
  log10 = unary("Logarithm to base 10.", lambda x: x.log2() * math.log10(2))
  sqrt = unary("Square root; NaN below 0.", lambda x: x._as_float().alu(Ops.SQRT))

  @precise()
  def rsqrt(self) -> Self:
    """`1 / sqrt(self)`."""
    return self.sqrt().reciprocal()

  sin = unary("Sine, of radians.", lambda x: x._as_float().alu(Ops.SIN))
  cos = unary("Cosine, of radians.", lambda x: x._as_float().alu(Ops.COS))

  @precise()
  def tan(self) -> Self:
    """Tangent, of radians."""
    return self.sin() / self.cos()

  def _with_precision(self) -> tuple[Self, DType]:
    """Self in at least float32, and the dtype to return to: for functions of several steps."""
    x = self._as_float()
    return (x if x.dtype.bits >= 32 else x._as_dtype(dtypes.float32)), x.dtype

  def _odd_from(self, value: Self) -> Self:
    """An odd function from its values for |self|."""
    return (self < 0).where(value.mul(-1), value)

  @precise(lambda y, x: asin_slope(x))
  def asin(self) -> Self:
    """Arc sine; NaN outside [-1, 1]."""
    small, core = self._small_asin()
    return small.where(core, self._odd_from(_from_half_pi(core * 2)))

  def _small_asin(self) -> tuple[Self, Self]:
    """(|self| <= 1/2, asin(self) there, and asin(√((1-|self|)/2)) elsewhere). asin(x) for x > 1/2 is π/2 less twice the
    latter.
    """
    size = self.abs()
    small = size <= 0.5
    root = (small.where(1.0, size).mul(-1) + 1).mul(0.5).sqrt()
    return small, ap.odd(ap.asin_rest, 0.5, small.where(self, root))

  @precise(lambda y, x: asin_slope(x) * -1)
  def acos(self) -> Self:
    """Arc cosine; NaN outside [-1, 1]."""
    small, core = self._small_asin()
    upper = core * 2
    return small.where(_from_half_pi(core), (self < 0).where(_from_half_pi(upper, 2), upper))

  @precise(lambda y, x: (x * x + 1).reciprocal())
  def atan(self) -> Self:
    """Arc tangent."""
    size = self.abs()
    large, middle = size > 1 + math.sqrt(2), size > math.sqrt(2) - 1
    # atan(x) = π/2 - atan(1/x) = π/4 + atan((x-1)/(x+1)) bring everything to |x| <= √2-1
    reduced = large.where(large.where(size, 1).reciprocal().mul(-1), middle.where((size - 1) / (size + 1), size))
    reduced = size.isinf().where(0.0, reduced)
    core = ap.odd(ap.atan_rest, math.sqrt(2) - 1 + 1e-6, reduced)
    out = core + large.where(self.const_like(math.pi / 2), middle.where(self.const_like(math.pi / 4), 0.0))
    return self._odd_from(out)

  @precise(lambda y, x: x.cosh())
  def sinh(self) -> Self:
    """Hyperbolic sine."""
    small = self.abs() < 1
    near = ap.odd(ap.sinh_rest, 1.0, small.where(self, 0.0))
    size = self._odd_from(self)
    half = (size * 0.5).exp()
    # e^x overflows before e^x/2 does
    far = half * 0.5 * half - size.mul(-1).exp() * 0.5
    return small.where(near, self._odd_from(far))

  @precise(lambda y, x: x.sinh())
  def cosh(self) -> Self:
    """Hyperbolic cosine."""
    half = (self.abs() * 0.5).exp()
    return half * 0.5 * half + self.abs().mul(-1).exp() * 0.5

  @precise(lambda y, x: y * y * -1 + 1)
  def tanh(self) -> Self:
    """Hyperbolic tangent."""
    # with e = exp(2x) - 1: e / (e + 2)
    most = 9.5 if self.dtype.bits == 32 else 20.0
    q, n = reduced(self.clamp(-most, most) * 2)
    power = q.const_like(1).alu(Ops.LDEXP, n)
    e = q * power + (power - 1)
    return e / (e + 2)

  @precise(lambda y, x: y + 1)
  def expm1(self) -> Self:
    """`exp(x) - 1`, accurate near 0."""
    # q·2ⁿ + (2ⁿ - 1), in halves, since 2ⁿ may be as large as no number is
    q, n = reduced(self.clamp(*((-18.0, 88.9) if self.dtype.bits == 32 else (-38.0, 709.9))))
    half = q.const_like(0.5).alu(Ops.LDEXP, n)
    return (q * half + (half - 0.5)) * 2

  def _log1p_small(self) -> Self:
    """log(1 + self) for self >= -0.5, accurate near 0: what the sum rounds away is put back to first order."""
    u = self + 1
    lost = self - (u - 1)
    return u.log() + u.eq(math.inf).where(0, lost) / u

  @precise(lambda y, x: (x + 1).reciprocal())
  def log1p(self) -> Self:
    """`log(1 + x)`, accurate near 0; -inf at -1, NaN below."""
    pole = self.eq(-1)
    return pole.where(-math.inf, pole.where(0.0, self)._log1p_small())

  @precise_pair(lambda angle, y, x: x * _nearness(x, y), lambda angle, y, x: y * -1 * _nearness(x, y))
  def atan2(self, other: Self) -> Self:
    """The angle of the point (x = `other`, y = `self`) in radians, in [-π, π]; signs of zeros count."""
    below, left = self._has_sign(), other._has_sign()
    height, width = below.where(self.mul(-1), self), left.where(other.mul(-1), other)
    steep = height > width
    far, near = steep.where(height, width), steep.where(width, height)
    far = far.eq(0).where(1.0, far)
    out = (near.eq(math.inf) & far.eq(math.inf)).where(1.0, near / far).atan()
    out = steep.where(_from_half_pi(out), out)
    out = left.where(_from_half_pi(out, 2), out)
    return (self.isnan() | other.isnan()).where(math.nan, below.where(out.mul(-1), out))

  def _has_sign(self) -> Self:
    """Whether a float is negative, or -0.0."""
    x = self.detach()
    return (x < 0) | (x.eq(0) & (x.reciprocal() < 0))

  @precise(lambda y, x: (x * x + 1).rsqrt())
  def asinh(self) -> Self:
    """Inverse hyperbolic sine."""
    size = self._odd_from(self)
    # x² overflows where log(2x) is exact
    big = size > 1e8
    s = big.where(1.0, size)
    # log(s + √(s²+1)) = log1p(s + s²/(1 + √(s²+1)))
    mid = (s + s * s / ((s * s + 1).sqrt() + 1))._log1p_small()
    return self._odd_from(big.where(big.where(size, 1.0).log() + math.log(2), mid))

  @precise(lambda y, x: acosh_slope(x))
  def acosh(self) -> Self:
    """Inverse hyperbolic cosine; NaN below 1."""
    big = self > 1e8
    s = big.where(1.5, self)
    t = s - 1
    mid = (t + (t * (s + 1)).sqrt())._log1p_small()
    return (self < 1).where(math.nan, big.where(big.where(self, 1.0).log() + math.log(2), mid))

  @precise(lambda y, x: atanh_slope(x))
  def atanh(self) -> Self:
    """Inverse hyperbolic tangent; NaN outside [-1, 1]."""
    size = self._odd_from(self)
    return self._odd_from((size * 2 / (size.mul(-1) + 1))._log1p_small() * 0.5)

  @precise(lambda y, x: y - y * y)
  def sigmoid(self) -> Self:
    """`1 / (1 + exp(-x))`, from the exponential that does not overflow."""
    positive = self >= 0
    e = positive.where(-self, self).exp()
    return positive.where(1.0, e) / (e + 1)

  @precise(lambda y, x: (x * x * -1).exp() * (2 / math.sqrt(math.pi)))
  def erf(self) -> Self:
    """Error function."""
    size = self._odd_from(self)
    small = size < 1
    near = ap.odd(ap.erf_rest, 1.0, small.where(self, 0), 2 / math.sqrt(math.pi))
    # from `most` on the rest is less than half a unit of 1
    most = 4.0 if self.dtype.bits == 32 else 6.0
    z = size.clamp(1.0, most)
    q, n = reduced(ap.polynomial(ap.erfc_scaled_log, 1.0, most, z) - z * z)
    return small.where(near, self._odd_from((q + 1).alu(Ops.LDEXP, n).mul(-1) + 1))

  # *** powers ***

  def pow(self, x: Operand, reverse: bool = False) -> Self:
    """`self ** x`. Integers to a negative power are 0 unless the base is 1 or -1 (PyTorch)."""
    if not reverse and isinstance(x, (int, float)) and not isinstance(x, bool):
      if float(x).is_integer() and abs(x) <= 64 and (x >= 0 or dtypes.is_float(self.dtype)):
        dtype = self.dtype if isinstance(x, int) else dtypes.promote(self.dtype, self._as_float().dtype)
        return self._as_dtype(dtype)._counted()._integer_power(int(x))
      if abs(x) == 0.5:
        return self.sqrt() if x > 0 else self.rsqrt()
    base, exponent = self._pair(x, reverse)
    if not dtypes.is_float(base.dtype):
      return base._counted()._integer_pow(exponent._counted())
    out, dtype = base._with_precision()
    return out._float_pow(exponent._as_dtype(out.dtype))._as_dtype(dtype)

  def _integer_power(self, n: int) -> Self:
    """By repeated squaring: exact where the products are."""
    if n < 0:
      inverse = self._integer_power(-n).reciprocal()
      # the derivative is not that of the reciprocal of a power, which is infinity times 0 at 0
      slopes = (self, _pow_slope), (self.const_like(n), _pow_growth)
      return inverse if n == -1 else with_slopes(inverse, "pow", *slopes)
    out, square = None, self
    while n:
      if n & 1:
        out = square if out is None else out * square
      square, n = square * square, n >> 1
    return self.const_like(1)._flat_in(self) if out is None else out

  def _integer_pow(self, n: Self) -> Self:
    """Integer to integer power, one squaring per bit of the exponent."""
    out, square = self.const_like(1), self
    for bit in range(self.dtype.bits - (0 if dtypes.is_unsigned(self.dtype) else 1)):
      out = n._bits(Ops.AND, 1 << bit).ne(0).where(out * square, out)
      square = square * square
    if dtypes.is_unsigned(self.dtype):
      return out
    one, odd = self.const_like(1), n._bits(Ops.AND, 1).ne(0)
    unit = self.eq(1).where(one, self.eq(-1).where(odd.where(self.const_like(-1), one), 0))
    return (n < 0).where(unit, out)

  def _float_pow(self, y: Self) -> Self:
    """x^y = ±2^(y·log2|x|), with the special cases of C's pow."""
    zero, negative = self.eq(0), self < 0
    size = zero.where(1.0, self.abs())
    out = (y * size.log2()).exp2()
    whole = y.trunc() == y
    odd = whole & ((y * 0.5).trunc() * 2 != y)
    out = (negative & odd).where(out.mul(-1), out)
    out = (negative & (whole | self.isinf()).logical_not()).where(math.nan, out)
    pole = odd.where(self.reciprocal(), math.inf)
    at_zero = (y < 0).where(pole, y.isnan().where(y, odd.where(self, 0.0)))
    out = zero.where(at_zero, out)
    # infinite bases and exponents: |x| = 1 gives 1 for any y, y = 0 gives 1 for any x, even NaN
    out = (self.abs().eq(1) & y.isinf()).where(1.0, out)
    out = (y.eq(0) | self.eq(1)).where(1.0, out)
    return with_slopes(out, "pow", (self, _pow_slope), (y, _pow_growth))

  @precise_pair(_logaddexp_slope, lambda y, a, b: _logaddexp_slope(y, b, a))
  def logaddexp(self, other: Self) -> Self:
    """`log(exp(self) + exp(other))` without overflow."""
    top, low = self.maximum(other), self.minimum(other)
    # equal infinities have no difference
    gap = ((top == low) & top.isinf()).where(0.0, low - top)
    return top + gap.exp()._log1p_small()

  # *** products and ratios ***

  def addcmul(self, tensor1: Self, tensor2: Operand, value: float = 1) -> Self:
    """`self + value * tensor1 * tensor2`."""
    product = tensor1 * tensor2
    return self + (product if value == 1 else product * value)

  def addcdiv(self, tensor1: Self, tensor2: Operand, value: float = 1) -> Self:
    """`self + value * tensor1 / tensor2`."""
    ratio = tensor1 / tensor2
    return self + (ratio if value == 1 else ratio * value)

  def float_power(self, exponent: Operand) -> Self:
    """`self ** exponent` in float64."""
    power = self._operand(exponent)
    return self._as_dtype(dtypes.float64).pow(power._as_dtype(dtypes.float64))

  def ldexp(self, other: Operand) -> Self:
    """`self * 2 ** other`."""
    return self._as_float() * self._operand(other)._as_float().exp2()

  @precise_pair(lambda length, x, y: x / length, lambda length, x, y: y / length)
  def hypot(self, other: Self) -> Self:
    """`sqrt(self² + other²)` without overflow; infinite if either is, whatever the other."""
    a, b = self.abs(), other.abs()
    large, small = a.maximum(b), a.minimum(b)
    zero = large.eq(0)
    ratio = (small.isinf() | zero).where(1.0, small) / zero.where(1.0, large)
    return (a.isinf() | b.isinf()).where(math.inf, large * (ratio.square() + 1).sqrt())

  @precise_pair(_xlogy_slope, lambda value, x, y: x / y)
  def xlogy(self, other: Self) -> Self:
    """`self * log(other)`, 0 where `self` is 0, NaN where `other` is."""
    skip = self.eq(0) & ((other <= 0) | other.eq(math.inf))
    return other.isnan().where(math.nan, skip.where(0.0, self * skip.where(1.0, other).log()))

  @precise_pair(_xlog1py_slope, lambda value, x, y: x / (y + 1))
  def xlog1py(self, other: Self) -> Self:
    """`self * log(1 + other)`, 0 where `self` is 0, NaN where `other` is."""
    skip = self.eq(0) & ((other <= -1) | other.eq(math.inf))
    return other.isnan().where(math.nan, skip.where(0.0, self * skip.where(1.0, other).log1p()))

  def logaddexp2(self, other: Operand) -> Self:
    """`log2(2**self + 2**other)` without overflow."""
    a, b = (t._as_float() for t in self._pair(other))
    return (a * math.log(2)).logaddexp(b * math.log(2)) * (1 / math.log(2))

  @precise(lambda value, x: x.log() * -1 - 1)
  def entr(self) -> Self:
    """`-x log(x)`: 0 at 0, -inf below."""
    inside = self > 0
    value = self * inside.where(self, 1.0).log() * -1
    return self.isnan().where(self, inside.where(value, (self < 0).where(-math.inf, 0.0)))

  def logit(self, eps: float | None = None) -> Self:
    """`log(x / (1 - x))`; x is limited to [eps, 1 - eps] first, if given. NaN outside [0, 1]."""
    return (self if eps is None else self._as_float().clamp(eps, 1 - eps))._logit()

  @precise(lambda value, x: logit_slope(x))
  def _logit(self) -> Self:
    return (self / (self * -1 + 1)).log()

  def sinc(self) -> Self:
    """`sin(πx) / (πx)`, 1 at 0."""
    return (self._as_float() * math.pi)._sine_ratio()

  @precise(_sinc_slope)
  def _sine_ratio(self) -> Self:
    """`sin(x) / x`, 1 at 0."""
    zero = self.eq(0)
    return zero.where(1.0, self.sin() / zero.where(1.0, self))

  deg2rad = unary("Degrees as radians.", lambda x: x._as_float() * (math.pi / 180))
  rad2deg = unary("Radians as degrees.", lambda x: x._as_float() * (180 / math.pi))
