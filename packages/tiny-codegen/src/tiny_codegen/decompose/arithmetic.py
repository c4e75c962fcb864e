"""Small pieces that the decompositions share. Everything works on scalars and vectors alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiny_uop import DType, Samples, UOp, dtypes

SIGNED = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}
UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def as_wide(dtype: DType, x: UOp) -> DType:
  """Scalar `dtype` with as many lanes as `x`."""
  return dtype.vec(x.dtype.count)


def to(x: UOp, dtype: DType) -> UOp:
  """`x` converted to the scalar type `dtype`, lane by lane."""
  return x.cast(as_wide(dtype, x))


def reinterpret(x: UOp, dtype: DType) -> UOp:
  """The bits of `x` as the scalar type `dtype` of the same width, lane by lane. Constants are folded."""
  return x.bitcast(as_wide(dtype, x))


def signed_bits(x: UOp) -> UOp:
  """The bits of a float as signed integers of its width."""
  return reinterpret(x, SIGNED[x.dtype.bits])


def unsigned_bits(x: UOp) -> UOp:
  """The bits of a float as unsigned integers of its width."""
  return reinterpret(x, UNSIGNED[x.dtype.bits])


def magnitude(x: UOp) -> UOp:
  """|x| of a float, by clearing the sign bit."""
  bits = unsigned_bits(x)
  return reinterpret(bits & ((1 << (x.dtype.bits - 1)) - 1), x.dtype.scalar())


def horner(x: UOp, coefficients: Sequence[float]) -> UOp:
  """The polynomial with these coefficients, lowest degree first."""
  result = x.const_like(coefficients[-1])
  for c in reversed(coefficients[:-1]):
    result = result * x + c
  return result


def whole_near(x: UOp, offset: int = 0) -> tuple[UOp, UOp]:
  """(n, bits): the integer n nearest to x (halves to even) as a float, for |x| below 2**(mantissa bits - 2), and
  unsigned bits of which the low ones are n + offset.

  Where floats have no bits behind the point, adding rounds, and leaves the integer in the low bits.
  """
  large = 1.5 * 2.0 ** (23 if x.dtype.bits == 32 else 52) + offset
  moved = x + large
  return moved + -large, unsigned_bits(moved)


def power_of_two(exponent: UOp, dtype: DType) -> UOp:
  """2**exponent as float32 or float64 from a signed integer of the same width, for normal results."""
  mantissa, bias = (23, 127) if dtype.bits == 32 else (52, 1023)
  return reinterpret((exponent + bias) << mantissa, dtype.scalar())


NAN = math.nan
INFINITY = math.inf


# *** what the examples of the rules share ***


MADE_OF_OTHERS = "a decomposition: made of what the target has"  # why the graph grows


def place_in(s: Samples, dtype: DType, gate: UOp | None = None) -> UOp:
  """The address of an element, which has a neighbour, of memory of this type."""
  return UOp.param(9, dtype.ptr(8)).index(s.var("offset", 0, 6), gate)
