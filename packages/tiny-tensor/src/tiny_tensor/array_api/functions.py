"""Exponential, trigonometric and rounding functions. Of integers they give the default float."""

from __future__ import annotations

from tiny_tensor.array_api.elementwise import Operand
from tiny_tensor.array_api.operands import Array, pair


def exp(x: Array, /) -> Array:
  """e to the power of `x`."""
  return x.exp()


def expm1(x: Array, /) -> Array:
  """`exp(x) - 1`, exact for small `x`."""
  return x.expm1()


def log(x: Array, /) -> Array:
  """The natural logarithm."""
  return x.log()


def log1p(x: Array, /) -> Array:
  """`log(1 + x)`, exact for small `x`."""
  return x.log1p()


def log2(x: Array, /) -> Array:
  """The logarithm to base 2."""
  return x.log2()


def log10(x: Array, /) -> Array:
  """The logarithm to base 10."""
  return x.log10()


def logaddexp(x1: Operand, x2: Operand, /) -> Array:
  """`log(exp(x1) + exp(x2))` without overflow."""
  a, b = pair(x1, x2)
  return a.logaddexp(b)


def sqrt(x: Array, /) -> Array:
  """The root."""
  return x.sqrt()


def hypot(x1: Operand, x2: Operand, /) -> Array:
  """`sqrt(x1² + x2²)` without overflow."""
  a, b = pair(x1, x2)
  return a.hypot(b)


def sin(x: Array, /) -> Array:
  """Sine, of radians."""
  return x.sin()


def cos(x: Array, /) -> Array:
  """Cosine, of radians."""
  return x.cos()


def tan(x: Array, /) -> Array:
  """Tangent, of radians."""
  return x.tan()


def asin(x: Array, /) -> Array:
  """Inverse sine, in radians."""
  return x.asin()


def acos(x: Array, /) -> Array:
  """Inverse cosine, in radians."""
  return x.acos()


def atan(x: Array, /) -> Array:
  """Inverse tangent, in radians."""
  return x.atan()


def atan2(x1: Operand, x2: Operand, /) -> Array:
  """The angle of the point (x2, x1), in radians."""
  a, b = pair(x1, x2)
  return a.atan2(b)


def sinh(x: Array, /) -> Array:
  """Hyperbolic sine."""
  return x.sinh()


def cosh(x: Array, /) -> Array:
  """Hyperbolic cosine."""
  return x.cosh()


def tanh(x: Array, /) -> Array:
  """Hyperbolic tangent."""
  return x.tanh()


def asinh(x: Array, /) -> Array:
  """Inverse hyperbolic sine."""
  return x.asinh()


def acosh(x: Array, /) -> Array:
  """Inverse hyperbolic cosine."""
  return x.acosh()


def atanh(x: Array, /) -> Array:
  """Inverse hyperbolic tangent."""
  return x.atanh()


def ceil(x: Array, /) -> Array:
  """Rounded toward +inf."""
  return x.ceil()


def floor(x: Array, /) -> Array:
  """Rounded toward -inf."""
  return x.floor()


def trunc(x: Array, /) -> Array:
  """Rounded toward zero."""
  return x.trunc()


def round(x: Array, /) -> Array:
  """Rounded to the nearest integer, halves to the even one."""
  return x.round()
