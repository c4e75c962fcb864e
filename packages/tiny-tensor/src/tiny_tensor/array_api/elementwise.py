"""Arithmetic, comparison, logic and bits, element by element. Operands broadcast; one of two may be a Python number."""

from __future__ import annotations

from tiny_tensor.array_api.operands import Array, check_kind, pair
from tiny_tensor.base import Scalar
from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes

Operand = Array | Scalar

# *** arithmetic ***


def abs(x: Array, /) -> Array:
  """Magnitude."""
  return x.abs()


def add(x1: Operand, x2: Operand, /) -> Array:
  """`x1 + x2`."""
  a, b = pair(x1, x2)
  return a.add(b)


def subtract(x1: Operand, x2: Operand, /) -> Array:
  """`x1 - x2`."""
  a, b = pair(x1, x2)
  return a.sub(b)


def multiply(x1: Operand, x2: Operand, /) -> Array:
  """`x1 * x2`."""
  a, b = pair(x1, x2)
  return a.mul(b)


def divide(x1: Operand, x2: Operand, /) -> Array:
  """`x1 / x2`; of integers, the default float."""
  a, b = pair(x1, x2)
  return a.div(b)


def floor_divide(x1: Operand, x2: Operand, /) -> Array:
  """Python's `x1 // x2`; of integers 0 where `x2` is."""
  a, b = pair(x1, x2)
  return a.floordiv(b)


def remainder(x1: Operand, x2: Operand, /) -> Array:
  """Python's `x1 % x2`, with the sign of `x2`."""
  a, b = pair(x1, x2)
  return a.mod(b)


def pow(x1: Operand, x2: Operand, /) -> Array:
  """`x1 ** x2`; integers to a negative power are 0 unless the base is 1 or -1."""
  if isinstance(x1, Tensor) and not isinstance(x2, Tensor):
    return x1.pow(x2)
  a, b = pair(x1, x2)
  return a.pow(b)


def negative(x: Array, /) -> Array:
  """`-x`."""
  return x.neg()


def positive(x: Array, /) -> Array:
  """`+x`: a copy."""
  return x.clone()


def square(x: Array, /) -> Array:
  """`x * x`."""
  return x.square()


def reciprocal(x: Array, /) -> Array:
  """`1 / x`."""
  return x.reciprocal()


def maximum(x1: Operand, x2: Operand, /) -> Array:
  """The larger element; NaN if either is."""
  a, b = pair(x1, x2)
  return a.maximum(b)


def minimum(x1: Operand, x2: Operand, /) -> Array:
  """The smaller element; NaN if either is."""
  a, b = pair(x1, x2)
  return a.minimum(b)


def clip(x: Array, /, min: Operand | None = None, max: Operand | None = None) -> Array:
  """Limited to [min, max], in the dtype of `x`; either may be missing."""
  if min is None and max is None:
    return x.clone()
  limits = [m if isinstance(m, Tensor) or m is None else x.const_like(m) for m in (min, max)]
  return x.clamp(*limits).cast(x.dtype)


# *** signs and parts ***


def sign(x: Array, /) -> Array:
  """-1, 0 or 1; NaN stays."""
  return x.sign()


def signbit(x: Array, /) -> Array:
  """Whether the sign bit of a float is set: also that of -0.0 and of some NaN."""
  check_kind("signbit", "real floating", x)
  return x.signbit()


def copysign(x1: Operand, x2: Operand, /) -> Array:
  """The magnitude of `x1` with the sign of `x2`."""
  a, b = pair(x1, x2)
  check_kind("copysign", "real floating", a)
  return a.copysign(b)


def nextafter(x1: Operand, x2: Operand, /) -> Array:
  """The next float after `x1` in the direction of `x2`."""
  a, b = pair(x1, x2)
  check_kind("nextafter", "real floating", a)
  kind = {2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}[a.dtype.itemsize]
  bits = a.bitcast(kind)
  # floats are sign and magnitude: away from zero the bits count up; past zero begins the other sign with 1
  away = (bits < 0).eq(b < a)
  least = (b < 0).where(dtypes.min(kind), 0).cast(kind) + 1
  moved = a.eq(0).where(least, away.where(bits + 1, bits - 1)).bitcast(a.dtype)
  return (a.isnan() | b.isnan()).where(a + b, a.eq(b).where(b, moved))


def conj(x: Array, /) -> Array:
  """`x` itself, as all numbers are real."""
  check_kind("conj", "numeric", x)
  return x


def real(x: Array, /) -> Array:
  """`x` itself, as all numbers are real."""
  check_kind("real", "numeric", x)
  return x


def imag(x: Array, /) -> Array:
  """Zeros, as all numbers are real."""
  check_kind("imag", "numeric", x)
  return x.const_like(0)


# *** comparison ***


def equal(x1: Operand, x2: Operand, /) -> Array:
  """`x1 == x2`."""
  a, b = pair(x1, x2)
  return a.eq(b)


def not_equal(x1: Operand, x2: Operand, /) -> Array:
  """`x1 != x2`."""
  a, b = pair(x1, x2)
  return a.ne(b)


def less(x1: Operand, x2: Operand, /) -> Array:
  """`x1 < x2`."""
  a, b = pair(x1, x2)
  return a < b


def less_equal(x1: Operand, x2: Operand, /) -> Array:
  """`x1 <= x2`."""
  a, b = pair(x1, x2)
  return a <= b


def greater(x1: Operand, x2: Operand, /) -> Array:
  """`x1 > x2`."""
  a, b = pair(x1, x2)
  return a > b


def greater_equal(x1: Operand, x2: Operand, /) -> Array:
  """`x1 >= x2`."""
  a, b = pair(x1, x2)
  return a >= b


def isfinite(x: Array, /) -> Array:
  """Whether an element is neither infinite nor NaN."""
  return x.isfinite()


def isinf(x: Array, /) -> Array:
  """Whether an element is infinite."""
  return x.isinf()


def isnan(x: Array, /) -> Array:
  """Whether an element is NaN."""
  return x.isnan()


# *** logic and bits ***


def logical_and(x1: Operand, x2: Operand, /) -> Array:
  """Whether both are true."""
  a, b = pair(x1, x2)
  return a.logical_and(b)


def logical_or(x1: Operand, x2: Operand, /) -> Array:
  """Whether either is true."""
  a, b = pair(x1, x2)
  return a.logical_or(b)


def logical_xor(x1: Operand, x2: Operand, /) -> Array:
  """Whether exactly one is true."""
  a, b = pair(x1, x2)
  return a.logical_xor(b)


def logical_not(x: Array, /) -> Array:
  """Whether an element is false."""
  return x.logical_not()


def bitwise_and(x1: Operand, x2: Operand, /) -> Array:
  """`x1 & x2`."""
  a, b = pair(x1, x2)
  return a.bitwise_and(b)


def bitwise_or(x1: Operand, x2: Operand, /) -> Array:
  """`x1 | x2`."""
  a, b = pair(x1, x2)
  return a.bitwise_or(b)


def bitwise_xor(x1: Operand, x2: Operand, /) -> Array:
  """`x1 ^ x2`."""
  a, b = pair(x1, x2)
  return a.bitwise_xor(b)


def bitwise_invert(x: Array, /) -> Array:
  """`~x`."""
  return x.bitwise_not()


def bitwise_left_shift(x1: Operand, x2: Operand, /) -> Array:
  """`x1 << x2`; 0 for counts of the width or more."""
  a, b = pair(x1, x2)
  return a.lshift(b)


def bitwise_right_shift(x1: Operand, x2: Operand, /) -> Array:
  """`x1 >> x2`, arithmetic on signed types."""
  a, b = pair(x1, x2)
  return a.rshift(b)
