"""Functions of each element. Operands broadcast; one of two may be a Python number.

A function that only forwards to a method of Tensor is a row: `of_one` takes one array, `of_two` takes two operands.
"""

from __future__ import annotations

from tiny_tensor.array_api.operands import Array, Operand, check_kind, of_one, of_two, pair
from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes

__all__ = [
  "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert",
  "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign", "cos",
  "cosh", "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot", "imag",
  "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp", "logical_and",
  "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter", "not_equal",
  "positive", "pow", "real", "reciprocal", "remainder", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square",
  "subtract", "tan", "tanh", "trunc",
]  # fmt: skip

# *** arithmetic ***


abs = of_one(Tensor.abs, "Magnitude.")
add = of_two(Tensor.add, "`x1 + x2`.")
subtract = of_two(Tensor.sub, "`x1 - x2`.", "subtract")
multiply = of_two(Tensor.mul, "`x1 * x2`.", "multiply")
divide = of_two(Tensor.div, "`x1 / x2`; of integers, the default float.", "divide")
floor_divide = of_two(Tensor.floordiv, "Python's `x1 // x2`; of integers 0 where `x2` is.", "floor_divide")
remainder = of_two(Tensor.mod, "Python's `x1 % x2`, with the sign of `x2`.", "remainder")


def pow(x1: Operand, x2: Operand, /) -> Array:
  """`x1 ** x2`; integers to a negative power are 0 unless the base is 1 or -1."""
  if isinstance(x1, Tensor) and not isinstance(x2, Tensor):
    return x1.pow(x2)
  a, b = pair(x1, x2)
  return a.pow(b)


negative = of_one(Tensor.neg, "`-x`.", "negative")
positive = of_one(Tensor.clone, "`+x`: a copy.", "positive")
square = of_one(Tensor.square, "`x * x`.")
reciprocal = of_one(Tensor.reciprocal, "`1 / x`.")
maximum = of_two(Tensor.maximum, "The larger element; NaN if either is.")
minimum = of_two(Tensor.minimum, "The smaller element; NaN if either is.")


def clip(x: Array, /, min: Operand | None = None, max: Operand | None = None) -> Array:
  """Limited to [min, max], in the dtype of `x`; either may be missing."""
  if min is None and max is None:
    return x.clone()
  limits = [m if isinstance(m, Tensor) or m is None else x.const_like(m) for m in (min, max)]
  return x.clamp(*limits).cast(x.dtype)


# *** signs and parts ***


sign = of_one(Tensor.sign, "-1, 0 or 1; NaN stays.")
signbit = of_one(
  Tensor.signbit, "Whether the sign bit of a float is set: also that of -0.0 and of some NaN.", kind="real floating"
)
copysign = of_two(Tensor.copysign, "The magnitude of `x1` with the sign of `x2`.", kind="real floating")


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


equal = of_two(Tensor.eq, "`x1 == x2`.", "equal")
not_equal = of_two(Tensor.ne, "`x1 != x2`.", "not_equal")
less = of_two(Tensor.lt, "`x1 < x2`.", "less")
less_equal = of_two(Tensor.le, "`x1 <= x2`.", "less_equal")
greater = of_two(Tensor.gt, "`x1 > x2`.", "greater")
greater_equal = of_two(Tensor.ge, "`x1 >= x2`.", "greater_equal")
isfinite = of_one(Tensor.isfinite, "Whether an element is neither infinite nor NaN.")
isinf = of_one(Tensor.isinf, "Whether an element is infinite.")
isnan = of_one(Tensor.isnan, "Whether an element is NaN.")


# *** logic and bits ***


logical_and = of_two(Tensor.logical_and, "Whether both are true.")
logical_or = of_two(Tensor.logical_or, "Whether either is true.")
logical_xor = of_two(Tensor.logical_xor, "Whether exactly one is true.")
logical_not = of_one(Tensor.logical_not, "Whether an element is false.")
bitwise_and = of_two(Tensor.bitwise_and, "`x1 & x2`.")
bitwise_or = of_two(Tensor.bitwise_or, "`x1 | x2`.")
bitwise_xor = of_two(Tensor.bitwise_xor, "`x1 ^ x2`.")
bitwise_invert = of_one(Tensor.bitwise_not, "`~x`.", "bitwise_invert")
bitwise_left_shift = of_two(Tensor.lshift, "`x1 << x2`; 0 for counts of the width or more.", "bitwise_left_shift")
bitwise_right_shift = of_two(Tensor.rshift, "`x1 >> x2`, arithmetic on signed types.", "bitwise_right_shift")

# *** exponential, trigonometric and rounding functions: of integers they give the default float ***

exp = of_one(Tensor.exp, "e to the power of `x`.")
expm1 = of_one(Tensor.expm1, "`exp(x) - 1`, exact for small `x`.")
log = of_one(Tensor.log, "The natural logarithm.")
log1p = of_one(Tensor.log1p, "`log(1 + x)`, exact for small `x`.")
log2 = of_one(Tensor.log2, "The logarithm to base 2.")
log10 = of_one(Tensor.log10, "The logarithm to base 10.")
logaddexp = of_two(Tensor.logaddexp, "`log(exp(x1) + exp(x2))` without overflow.")
sqrt = of_one(Tensor.sqrt, "The root.")
hypot = of_two(Tensor.hypot, "`sqrt(x1² + x2²)` without overflow.")
sin = of_one(Tensor.sin, "Sine, of radians.")
cos = of_one(Tensor.cos, "Cosine, of radians.")
tan = of_one(Tensor.tan, "Tangent, of radians.")
asin = of_one(Tensor.asin, "Inverse sine, in radians.")
acos = of_one(Tensor.acos, "Inverse cosine, in radians.")
atan = of_one(Tensor.atan, "Inverse tangent, in radians.")
atan2 = of_two(Tensor.atan2, "The angle of the point (x2, x1), in radians.")
sinh = of_one(Tensor.sinh, "Hyperbolic sine.")
cosh = of_one(Tensor.cosh, "Hyperbolic cosine.")
tanh = of_one(Tensor.tanh, "Hyperbolic tangent.")
asinh = of_one(Tensor.asinh, "Inverse hyperbolic sine.")
acosh = of_one(Tensor.acosh, "Inverse hyperbolic cosine.")
atanh = of_one(Tensor.atanh, "Inverse hyperbolic tangent.")
ceil = of_one(Tensor.ceil, "Rounded toward +inf.")
floor = of_one(Tensor.floor, "Rounded toward -inf.")
trunc = of_one(Tensor.trunc, "Rounded toward zero.")
round = of_one(Tensor.round, "Rounded to the nearest integer, halves to the even one.")
