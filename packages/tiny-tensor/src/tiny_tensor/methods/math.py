"""Elementary functions. Integers are cast to the default float first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self, TypeVar

from tiny_tensor.autograd.custom_gradient import with_slopes
from tiny_tensor.base import Operand, TensorBase, is_const
from tiny_tensor.special import chebyshev as ap
from tiny_tensor.special import exponentials
from tiny_uop import DType, GroupOp, Ops, UOp, dtypes, truncate

E = TypeVar("E", bound=TensorBase)


def _from_half_pi(x: E, times: int = 1) -> E:
  """times·π/2 - x, with more digits of π than the dtype has."""
  high = float(truncate(x.dtype, math.pi / 2)) * times
  low = math.pi / 2 * times - high if x.dtype.bits < 64 else 6.123233995736766e-17 * times
  return (x - low).mul(-1) + high


class MathMixin(TensorBase):
  """Exponentials, logarithms, trigonometric and hyperbolic functions, powers."""

  __slots__ = ()

  def exp(self) -> Self:
    """e to the power of self."""
    return self._as_float().alu(Ops.EXP)

  def exp2(self) -> Self:
    """2 to the power of self."""
    return self._as_float().alu(Ops.EXP2)

  def log(self) -> Self:
    """Natural logarithm; -inf at 0, NaN below."""
    return self._as_float().alu(Ops.LOG)

  def log2(self) -> Self:
    """Logarithm to base 2."""
    return self._as_float().alu(Ops.LOG2)

  def log10(self) -> Self:
    """Logarithm to base 10."""
    return self.log2() * math.log10(2)

  def sqrt(self) -> Self:
    """Square root; NaN below 0."""
    return self._as_float().alu(Ops.SQRT)

  def rsqrt(self) -> Self:
    """`1 / sqrt(self)`."""
    x, dtype = self._with_precision()
    return x.sqrt().reciprocal()._as_dtype(dtype)

  def sin(self) -> Self:
    """Sine, of radians."""
    return self._as_float().alu(Ops.SIN)

  def cos(self) -> Self:
    """Cosine, of radians."""
    return self._as_float().alu(Ops.COS)

  def tan(self) -> Self:
    """Tangent, of radians."""
    x, dtype = self._with_precision()
    return (x.sin() / x.cos())._as_dtype(dtype)

  def _with_precision(self) -> tuple[Self, DType]:
    """Self in at least float32, and the dtype to return to: for functions of several steps."""
    x = self._as_float()
    return (x if x.dtype.bits >= 32 else x._as_dtype(dtypes.float32)), x.dtype

  def asin(self) -> Self:
    """Arc sine; NaN outside [-1, 1]."""
    x, dtype = self._with_precision()
    size = x.abs()
    small = size <= 0.5
    core = x._small_asin(size, small)
    upper = _from_half_pi(core * 2)
    out = small.where(core, (x < 0).where(-upper, upper))
    return with_slopes(out, "asin", (x, SLOPES["asin"]))._as_dtype(dtype)

  def _small_asin(self, size: Self, small: Self) -> Self:
    """asin(self) where `small` holds, |self| <= 1/2, and asin(√((1-|self|)/2)) elsewhere. asin(x) for x > 1/2 is
    π/2 less twice the latter.
    """
    root = (small.where(1.0, size).mul(-1) + 1).mul(0.5).sqrt()
    return ap.odd(ap.asin_rest, 0.5, small.where(self, root))

  def acos(self) -> Self:
    """Arc cosine; NaN outside [-1, 1]."""
    x, dtype = self._with_precision()
    size = x.abs()
    small = size <= 0.5
    core = x._small_asin(size, small)
    upper = core * 2
    out = small.where(_from_half_pi(core), (x < 0).where(_from_half_pi(upper, 2), upper))
    return with_slopes(out, "acos", (x, SLOPES["acos"]))._as_dtype(dtype)

  def atan(self) -> Self:
    """Arc tangent."""
    x, dtype = self._with_precision()
    size = x.abs()
    large, middle = size > 1 + math.sqrt(2), size > math.sqrt(2) - 1
    # atan(x) = π/2 - atan(1/x) = π/4 + atan((x-1)/(x+1)) bring everything to |x| <= √2-1
    reduced = large.where(large.where(size, 1).reciprocal().mul(-1), middle.where((size - 1) / (size + 1), size))
    reduced = size.isinf().where(0.0, reduced)
    core = ap.odd(ap.atan_rest, math.sqrt(2) - 1 + 1e-6, reduced)
    out = core + large.where(x.const_like(math.pi / 2), middle.where(x.const_like(math.pi / 4), 0.0))
    return with_slopes((x < 0).where(out.mul(-1), out), "atan", (x, SLOPES["atan"]))._as_dtype(dtype)

  def sinh(self) -> Self:
    """Hyperbolic sine."""
    x, dtype = self._with_precision()
    small = x.abs() < 1
    inner = small.where(x, 0.0)
    near = ap.odd(ap.sinh_rest, 1.0, inner)
    size = (x < 0).where(x.mul(-1), x)
    half = (size * 0.5).exp()
    # e^x overflows before e^x/2 does
    far = half * 0.5 * half - size.mul(-1).exp() * 0.5
    out = small.where(near, (x < 0).where(far.mul(-1), far))
    return with_slopes(out, "sinh", (x, SLOPES["sinh"]))._as_dtype(dtype)

  def cosh(self) -> Self:
    """Hyperbolic cosine."""
    x, dtype = self._with_precision()
    half = (x.abs() * 0.5).exp()
    out = half * 0.5 * half + x.abs().mul(-1).exp() * 0.5
    return with_slopes(out, "cosh", (x, SLOPES["cosh"]))._as_dtype(dtype)

  def tanh(self) -> Self:
    """Hyperbolic tangent."""
    x, dtype = self._with_precision()
    return with_slopes(exponentials.tanh(x), "tanh", (x, SLOPES["tanh"]))._as_dtype(dtype)

  def expm1(self) -> Self:
    """`exp(x) - 1`, accurate near 0."""
    x, dtype = self._with_precision()
    return with_slopes(exponentials.expm1(x), "expm1", (x, SLOPES["expm1"]))._as_dtype(dtype)

  def _log1p_small(self) -> Self:
    """log(1 + self) for self >= -0.5, accurate near 0: what the sum rounds away is put back to first order."""
    u = self + 1
    lost = self - (u - 1)
    return u.log() + u.eq(math.inf).where(0, lost) / u

  def log1p(self) -> Self:
    """`log(1 + x)`, accurate near 0; -inf at -1, NaN below."""
    x, dtype = self._with_precision()
    pole = x.eq(-1)
    out = pole.where(-math.inf, pole.where(0.0, x)._log1p_small())
    return with_slopes(out, "log1p", (x, SLOPES["log1p"]))._as_dtype(dtype)

  def atan2(self, other: Operand) -> Self:
    """The angle of the point (x = `other`, y = `self`) in radians, in [-π, π]; signs of zeros count."""
    y, x = (t._as_float() for t in self._pair(other))
    dtype = y.dtype
    y, x = y._with_precision()[0], x._with_precision()[0]
    below, left = y._has_sign(), x._has_sign()
    height, width = below.where(y.mul(-1), y), left.where(x.mul(-1), x)
    steep = height > width
    far, near = steep.where(height, width), steep.where(width, height)
    far = far.eq(0).where(1.0, far)
    out = (near.eq(math.inf) & far.eq(math.inf)).where(1.0, near / far).atan()
    out = steep.where(_from_half_pi(out), out)
    out = left.where(_from_half_pi(out, 2), out)
    out = (y.isnan() | x.isnan()).where(math.nan, below.where(out.mul(-1), out))
    return with_slopes(out, "atan2", (y, SLOPES["atan2"]), (x, SLOPES["atan2_turned"]))._as_dtype(dtype)

  def _has_sign(self) -> Self:
    """Whether a float is negative, or -0.0."""
    x = self.detach()
    return (x < 0) | (x.eq(0) & (x.reciprocal() < 0))

  def asinh(self) -> Self:
    """Inverse hyperbolic sine."""
    x, dtype = self._with_precision()
    size = (x < 0).where(x.mul(-1), x)
    # x² overflows where log(2x) is exact
    big = size > 1e8
    s = big.where(1.0, size)
    # log(s + √(s²+1)) = log1p(s + s²/(1 + √(s²+1)))
    mid = (s + s * s / ((s * s + 1).sqrt() + 1))._log1p_small()
    out = big.where(big.where(size, 1.0).log() + math.log(2), mid)
    return with_slopes((x < 0).where(out.mul(-1), out), "asinh", (x, SLOPES["asinh"]))._as_dtype(dtype)

  def acosh(self) -> Self:
    """Inverse hyperbolic cosine; NaN below 1."""
    x, dtype = self._with_precision()
    big = x > 1e8
    s = big.where(1.5, x)
    t = s - 1
    mid = (t + (t * (s + 1)).sqrt())._log1p_small()
    out = big.where(big.where(x, 1.0).log() + math.log(2), mid)
    return with_slopes((x < 1).where(math.nan, out), "acosh", (x, _acosh_slope))._as_dtype(dtype)

  def atanh(self) -> Self:
    """Inverse hyperbolic tangent; NaN outside [-1, 1]."""
    x, dtype = self._with_precision()
    size = (x < 0).where(x.mul(-1), x)
    out = (size * 2 / (size.mul(-1) + 1))._log1p_small() * 0.5
    return with_slopes((x < 0).where(out.mul(-1), out), "atanh", (x, SLOPES["atanh"]))._as_dtype(dtype)

  def sigmoid(self) -> Self:
    """`1 / (1 + exp(-x))`, from the exponential that does not overflow."""
    x, dtype = self._with_precision()
    positive = x >= 0
    e = positive.where(-x, x).exp()
    out = positive.where(1.0, e) / (e + 1)
    return with_slopes(out, "sigmoid", (x, SLOPES["sigmoid"]))._as_dtype(dtype)

  def erf(self) -> Self:
    """Error function."""
    x, dtype = self._with_precision()
    size = (x < 0).where(-x, x)
    small = size < 1
    near = ap.odd(ap.erf_rest, 1.0, small.where(x, 0), 2 / math.sqrt(math.pi))
    # from `most` on the rest is less than half a unit of 1
    most = 4.0 if x.dtype.bits == 32 else 6.0
    z = size.clamp(1.0, most)
    q, n = exponentials.reduced(ap.polynomial(ap.erfc_scaled_log, 1.0, most, z) - z * z)
    far = (q + 1).alu(Ops.LDEXP, n).mul(-1) + 1
    out = small.where(near, (x < 0).where(-far, far))
    return with_slopes(out, "erf", (x, SLOPES["erf"]))._as_dtype(dtype)

  # *** powers ***

  def pow(self, x: Operand, reverse: bool = False) -> Self:
    """`self ** x`. Integers to a negative power are 0 unless the base is 1 or -1 (PyTorch)."""
    if not reverse and isinstance(x, (int, float)) and not isinstance(x, bool):
      if float(x).is_integer() and abs(x) <= 64 and (x >= 0 or dtypes.is_float(self.dtype)):
        dtype = self.dtype if isinstance(x, int) else dtypes.promote(self.dtype, self._as_float().dtype)
        return self._as_dtype(dtype)._counted()._integer_power(int(x))
      if x == 0.5:
        return self.sqrt()
      if x == -0.5:
        return self.rsqrt()
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
    odd = n._bits(Ops.AND, 1).ne(0)
    unit = self.eq(1).where(
      self.const_like(1), self.eq(-1).where(odd.where(self.const_like(-1), self.const_like(1)), 0)
    )
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

  def logaddexp(self, other: Operand) -> Self:
    """`log(exp(self) + exp(other))` without overflow."""
    a, b = self._as_float()._pair(other)
    a, b = a._as_float(), b._as_float()
    top = a.maximum(b)
    low = a.minimum(b)
    # equal infinities have no difference
    gap = ((top == low) & top.isinf()).where(0.0, low - top)
    out = top + gap.exp()._log1p_small()
    return with_slopes(out, "logaddexp", (a, _logaddexp_slope), (b, SLOPES["logaddexp_other"]))


# Derivatives, by the function's value y and its arguments. They have derivatives of their own in turn, and are those of
# PyTorch where a function has a kink or a pole, but NaN where its value is. Those of inverse functions are of products
# that do not cancel, whose own derivatives at 0 would be infinite times 0.

SLOPES: dict[str, Callable[..., Any]] = {
  "tanh": lambda y, x: y * y * -1 + 1,
  "expm1": lambda y, x: y + 1,
  "erf": lambda y, x: (x * x * -1).exp() * (2 / math.sqrt(math.pi)),
  "sigmoid": lambda y, x: y - y * y,
  "asin": lambda y, x: with_slopes(((x * -1 + 1) * (x + 1)).rsqrt(), "asin_slope", (x, SLOPES["asin_curve"])),
  "asin_curve": lambda slope, x: x * slope * slope * slope,
  "acos": lambda y, x: SLOPES["asin"](y, x) * -1,
  "atan": lambda y, x: (x * x + 1).reciprocal(),
  "sinh": lambda y, x: x.cosh(),
  "cosh": lambda y, x: x.sinh(),
  "asinh": lambda y, x: (x * x + 1).rsqrt(),
  "acosh_curve": lambda slope, x: x * slope * slope * slope * -1,
  "atanh": lambda y, x: with_slopes(((x * -1 + 1) * (x + 1)).reciprocal(), "atanh_slope", (x, SLOPES["atanh_curve"])),
  "atanh_curve": lambda slope, x: x * slope * slope * 2,
  "log1p": lambda y, x: (x + 1).reciprocal(),
  "atan2": lambda angle, y, x: x * _nearness(x, y),
  "atan2_turned": lambda angle, y, x: y * -1 * _nearness(x, y),
  "logaddexp_other": lambda y, a, b: _logaddexp_slope(y, b, a),
}
"""Derivatives that are one expression: of the value of a function and its arguments."""


def _acosh_slope(y: E, x: E) -> E:
  slope = (x < 1).where(math.nan, ((x - 1) * (x + 1)).rsqrt())
  return with_slopes(slope, "acosh_slope", (x, SLOPES["acosh_curve"]))


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
