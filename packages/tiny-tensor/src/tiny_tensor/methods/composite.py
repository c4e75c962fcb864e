"""Functions of one or two elements that are a few operations: ratios, limits, tests, logic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self, TypeVar

from tiny_tensor.autograd.custom_gradient import with_slopes
from tiny_tensor.base import Operand, TensorBase
from tiny_tensor.special import chebyshev as ap
from tiny_uop import DType, Ops, dtypes
from tiny_uop.dtype import FLOAT_LIMITS

E = TypeVar("E", bound=TensorBase)


class CompositeMixin(TensorBase):
  """What PyTorch has besides the elementary functions. Operands broadcast and promote."""

  __slots__ = ()

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
    power = self._operand(other)
    return self._as_float() * power._as_float().exp2()

  def hypot(self, other: Operand) -> Self:
    """`sqrt(self² + other²)` without overflow; infinite if either is, whatever the other."""
    x, y = (t._with_precision()[0] for t in self._pair(other))
    a, b = x.abs(), y.abs()
    large, small = a.maximum(b), a.minimum(b)
    zero = large.eq(0)
    ratio = (small.isinf() | zero).where(1.0, small) / zero.where(1.0, large)
    length = large * (ratio.square() + 1).sqrt()
    length = (a.isinf() | b.isinf()).where(math.inf, length)
    length = with_slopes(length, "hypot", (x, SLOPES["hypot"]), (y, SLOPES["hypot_other"]))
    return length._as_dtype(self._pair(other)[0]._as_float().dtype)

  def xlogy(self, other: Operand) -> Self:
    """`self * log(other)`, 0 where `self` is 0, NaN where `other` is."""
    x, y = (t._as_float() for t in self._pair(other))
    skip = x.eq(0) & ((y <= 0) | y.eq(math.inf))
    out = y.isnan().where(math.nan, skip.where(0.0, x * skip.where(1.0, y).log()))
    return with_slopes(out, "xlogy", (x, _xlogy_slope), (y, SLOPES["xlogy_other"]))

  def xlog1py(self, other: Operand) -> Self:
    """`self * log(1 + other)`, 0 where `self` is 0, NaN where `other` is."""
    x, y = (t._as_float() for t in self._pair(other))
    skip = x.eq(0) & ((y <= -1) | y.eq(math.inf))
    out = y.isnan().where(math.nan, skip.where(0.0, x * skip.where(1.0, y).log1p()))
    return with_slopes(out, "xlog1py", (x, _xlog1py_slope), (y, SLOPES["xlog1py_other"]))

  def logaddexp2(self, other: Operand) -> Self:
    """`log2(2**self + 2**other)` without overflow."""
    a, b = (t._as_float() for t in self._as_float()._pair(other))
    return (a * math.log(2)).logaddexp(b * math.log(2)) * (1 / math.log(2))

  def entr(self) -> Self:
    """`-x log(x)`: 0 at 0, -inf below."""
    x = self._as_float()
    inside = x > 0
    value = x * inside.where(x, 1.0).log() * -1
    out = x.isnan().where(x, inside.where(value, (x < 0).where(-math.inf, 0.0)))
    return with_slopes(out, "entr", (x, SLOPES["entr"]))

  def logit(self, eps: float | None = None) -> Self:
    """`log(x / (1 - x))`; x is limited to [eps, 1 - eps] first, if given. NaN outside [0, 1]."""
    x = self._as_float()
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return with_slopes((x / (x * -1 + 1)).log(), "logit", (x, _logit_slope))

  def sinc(self) -> Self:
    """`sin(πx) / (πx)`, 1 at 0."""
    x = self._as_float() * math.pi
    zero = x.eq(0)
    out = zero.where(1.0, x.sin() / zero.where(1.0, x))
    return with_slopes(out, "sinc", (x, _sinc_slope))

  def deg2rad(self) -> Self:
    """Degrees as radians."""
    return self._as_float() * (math.pi / 180)

  def rad2deg(self) -> Self:
    """Radians as degrees."""
    return self._as_float() * (180 / math.pi)

  # *** parts and limits ***

  def frac(self) -> Self:
    """What is behind the point, with the sign of x."""
    return self - self.trunc().detach()

  def positive(self) -> Self:
    """Itself. Raises TypeError for bool."""
    if dtypes.is_bool(self.dtype):
      raise TypeError("positive takes numbers, got bool")
    return self

  def sgn(self) -> Self:
    """`sign`."""
    return self.sign()

  def nan_to_num(self, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Self:
    """Numbers in the place of NaN (0), +inf and -inf (the largest and the least of the dtype)."""
    if not dtypes.is_float(self.dtype):
      return self
    most, least = FLOAT_LIMITS[self.dtype.name][0], -FLOAT_LIMITS[self.dtype.name][0]
    out = self.isnan().where(0.0 if nan is None else nan, self)
    out = self.eq(math.inf).where(most if posinf is None else posinf, out)
    return self.eq(-math.inf).where(least if neginf is None else neginf, out)

  def heaviside(self, values: Operand) -> Self:
    """0 below 0, 1 above, `values` at 0."""
    x, at_zero = self._pair(values)
    return x.eq(0).where(at_zero, (x > 0)._as_dtype(x.dtype)).detach()

  def clamp_min(self, min_: Operand) -> Self:
    """Limited from below."""
    return self.clamp(min_, None)

  def clamp_max(self, max_: Operand) -> Self:
    """Limited from above."""
    return self.clamp(None, max_)

  def fmax(self, other: Operand) -> Self:
    """The larger of two elements; of NaN and a number the number. Equal ones: the gradient is that of `self`."""
    a, b = self._pair(other)
    return ((a >= b) | b.isnan()).where(a, b)

  def fmin(self, other: Operand) -> Self:
    """The smaller of two elements; of NaN and a number the number. Equal ones: the gradient is that of `self`."""
    a, b = self._pair(other)
    return ((a <= b) | b.isnan()).where(a, b)

  # *** tests and logic ***

  def lt(self, x: Operand) -> Self:
    """`self < x`."""
    return self < x

  def le(self, x: Operand) -> Self:
    """`self <= x`."""
    return self <= x

  def gt(self, x: Operand) -> Self:
    """`self > x`."""
    return self > x

  def ge(self, x: Operand) -> Self:
    """`self >= x`."""
    return self >= x

  def signbit(self) -> Self:
    """Whether the sign is set: negative numbers, -0.0, and NaN with a sign."""
    if not dtypes.is_float(self.dtype):
      return self < 0
    kind = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}[self.dtype.bits]
    return self.detach().bitcast(kind) < 0

  def frexp(self) -> tuple[Self, Self]:
    """(m, e), a float and int32, with `self = m 2**e` and 0.5 <= |m| < 1; 0, infinities and NaN are (itself, 0)."""
    dtype = self._as_float().dtype
    x = self._as_float() if dtype == dtypes.float64 else self._as_float()._as_dtype(dtypes.float32)
    digits, places, kind = (52, 11, dtypes.int64) if dtype == dtypes.float64 else (23, 8, dtypes.int32)
    bias, most = (1 << (places - 1)) - 2, (1 << places) - 1
    # below the least normal number the exponent's field does not say how small a number is
    bits = x.detach().bitcast(kind)
    tiny = bits.rshift(digits).bitwise_and(most).eq(0)
    lifted = tiny.where((x.detach() * 2.0**64).bitcast(kind), bits).rshift(digits).bitwise_and(most)
    plain = lifted.eq(0) | lifted.eq(most)
    exponent = plain.where(0, lifted - tiny.where(bias + 64, bias))._as_dtype(dtypes.int32)
    # 2**-e may be more than the dtype holds, the powers of both halves are not
    half = exponent.floordiv(2)
    mantissa = x._times_power_of_two(half * -1)._times_power_of_two(half - exponent)
    return mantissa._as_dtype(dtype), exponent

  def _times_power_of_two(self, exponent: Self) -> Self:
    """`self * 2**exponent`, exactly, for float32 and float64, and integers whose power is a normal number."""
    digits, bias, kind = (52, 1023, dtypes.int64) if self.dtype == dtypes.float64 else (23, 127, dtypes.int32)
    return self * (exponent._as_dtype(kind) + bias).lshift(digits).bitcast(self.dtype)

  def nextafter(self, other: Operand) -> Self:
    """The next number of the dtype from `self` toward `other`; `other` where they are equal, NaN where either is. The
    gradient is that of `self`, and 0 where they are equal.
    """
    x, y = (t._as_float() for t in self._pair(other))
    a, b = x.detach(), y.detach()
    kind = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}[a.dtype.bits]
    bits = a.bitcast(kind)
    # the bits of a float count its magnitude
    away = (a < b) ^ (bits < 0)
    step = bits + away.where(1, -1)._as_dtype(kind)
    least = (b < 0).where(dtypes.min(kind) + 1, bits.const_like(1))
    moved = a.eq(0).where(least, step).bitcast(a.dtype)
    out = (a.isnan() | b.isnan()).where(math.nan, a.eq(b).where(b, moved))
    return with_slopes(out, "nextafter", (x, SLOPES["differ"]))._flat_in(y)

  def gcd(self, other: Operand) -> Self:
    """The greatest common divisor of integers, never negative; that of 0 and 0 is 0. By Euclid's algorithm with the
    remainder of least magnitude, which takes log(N) / log(1 + √2) steps at most (Dupré, 1846). TypeError for floats.
    """
    a, b = self._pair(other)
    if not dtypes.is_int(a.dtype):
      raise TypeError(f"gcd takes integers, got {a.dtype.name}")
    # a magnitude has one bit less than a signed integer, but for that of the least one
    wide = dtypes.uint64 if a.dtype.bits > 32 else dtypes.uint32
    x, y = (t._magnitude(wide) for t in (a, b))
    for _ in range(math.ceil(a.dtype.bits * math.log(2) / math.log(1 + math.sqrt(2))) + 1):
      done = y.eq(0)
      rest = x.alu(Ops.FLOORMOD, done.where(1, y))
      x, y = done.where(x, y), done.where(0, (y - rest < rest).where(y - rest, rest))
    return x._as_dtype(a.dtype)

  def _magnitude(self, dtype: DType) -> Self:
    """Absolute values of integers, in an unsigned dtype that holds all of them."""
    if dtypes.is_unsigned(self.dtype):
      return self._as_dtype(dtype)
    x = self._as_dtype(dtype)
    return (self < 0).where(x.const_like(0) - x, x)

  def lcm(self, other: Operand) -> Self:
    """The least common multiple of integers, never negative; 0 where either is. TypeError for floats."""
    a, b = self._pair(other)
    common = a.gcd(b)
    return (a.floordiv(common.eq(0).where(1, common)) * b).abs()

  def isposinf(self) -> Self:
    """Whether an element is +inf."""
    return self.isinf(detect_negative=False)

  def isneginf(self) -> Self:
    """Whether an element is -inf."""
    return self.isinf(detect_positive=False)

  def isreal(self) -> Self:
    """True: there are no complex numbers."""
    return self.const_like(True, dtypes.bool)

  def logical_and(self, other: Operand) -> Self:
    """Whether both are true (not zero)."""
    return self.ne(0) & self._operand(other).ne(0)

  def logical_or(self, other: Operand) -> Self:
    """Whether one is true (not zero)."""
    return self.ne(0) | self._operand(other).ne(0)

  def logical_xor(self, other: Operand) -> Self:
    """Whether just one is true (not zero)."""
    return self.ne(0) ^ self._operand(other).ne(0)


# Derivatives, by the function's value and its arguments.

SLOPES: dict[str, Callable[..., Any]] = {
  "hypot": lambda length, x, y: x / length,
  "hypot_other": lambda length, x, y: y / length,
  "xlogy_other": lambda value, x, y: x / y,
  "xlog1py_other": lambda value, x, y: x / (y + 1),
  "entr": lambda value, x: x.log() * -1 - 1,
  "logit_curve": lambda slope, x: (x * 2 - 1) * slope * slope,
  "differ": lambda value, x: value.ne(x)._as_dtype(x.dtype),
}
"""Derivatives that are one expression: of the value of a function and its arguments."""


def _xlogy_slope(value: E, x: E, y: E) -> E:
  skip = x.eq(0) & (y <= 0)
  return skip.where(0.0, skip.where(1.0, y).log())


def _xlog1py_slope(value: E, x: E, y: E) -> E:
  skip = x.eq(0) & (y <= -1)
  return skip.where(0.0, skip.where(0.0, y).log1p())


def _logit_slope(value: E, x: E) -> E:
  slope = ((x < 0) | (x > 1)).where(math.nan, (x * (x * -1 + 1)).reciprocal())
  return with_slopes(slope, "logit_slope", (x, SLOPES["logit_curve"]))


def _sinc_slope(value: E, x: E) -> E:
  # near 0 the difference would cancel
  near = x.abs() < 0.5
  u = near.where(x, 0.0).square()
  far = near.where(1.0, x)
  return near.where(ap.polynomial(ap.sinc_rest, 0.0, 0.25, u) * x, (far.cos() - far.sin() / far) / far)
