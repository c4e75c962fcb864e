"""Exact rounding of Python numbers to a data type, and their bit patterns.

A CONST holds a Python number that its dtype represents exactly; `truncate` makes it so. Floats round to nearest, ties
to even, with gradual underflow (IEEE 754-2019); fp8 formats are those of the OCP 8-bit floating point specification
(OFP8, 2023), and overflow does not saturate: fp8e5m2 overflows to an infinity, fp8e4m3 (which has none) to NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from struct import Struct
from typing import Any, NamedTuple

from tiny_uop.dtype import DType, dtypes

Number = bool | int | float
_SINGLE = Struct("<f")


class Format(NamedTuple):
  """A binary floating point format: widths of its fields in bits; `finite`: no infinities, all-ones is NaN."""

  exponent: int
  mantissa: int
  finite: bool = False

  @property
  def bias(self) -> int:
    return (1 << (self.exponent - 1)) - 1

  @property
  def largest(self) -> int:
    """Bit pattern of the largest finite number."""
    top = ((1 << self.exponent) - 1) << self.mantissa
    return top + (1 << self.mantissa) - 2 if self.finite else top - 1

  @property
  def nan(self) -> int:
    """Bit pattern of the quiet NaN that stands for all of them."""
    top = ((1 << self.exponent) - 1) << self.mantissa
    return top + (1 << self.mantissa) - 1 if self.finite else top + (1 << (self.mantissa - 1))


FORMATS = {d.name: Format(*dtypes.finfo(d), finite=d is dtypes.fp8e4m3) for d in dtypes.floats}


def _round_shift(value: int, shift: int) -> int:
  """value / 2**shift, to nearest, ties to even."""
  if shift <= 0:
    return value << -shift
  half, rest = 1 << (shift - 1), value & ((1 << shift) - 1)
  quotient = value >> shift
  return quotient + (rest > half or (rest == half and quotient & 1))


def _magnitude_bits(form: Format, value: int, scale: int) -> int:
  """Bits of value * 2**scale (value > 0), without the sign; beyond `form.largest` where it overflows."""
  exponent = value.bit_length() - 1 + scale  # of the leading bit
  exponent = max(exponent, 1 - form.bias)  # subnormals share the smallest exponent
  mantissa = _round_shift(value, exponent - form.mantissa - scale)
  # adding, not or-ing: a mantissa that rounded up to the next power of two carries into the exponent
  return ((exponent + form.bias - 1) << form.mantissa) + mantissa


def _float_to_bits(form: Format, value: Number) -> int:
  sign = math.copysign(1.0, value) < 0 if isinstance(value, float) else value < 0
  if value != value:
    return form.nan
  if value in (math.inf, -math.inf):
    magnitude = form.largest + 1
  elif value == 0:
    magnitude = 0
  else:
    numerator, denominator = abs(value).as_integer_ratio()
    magnitude = _magnitude_bits(form, numerator, 1 - denominator.bit_length())
  if magnitude > form.largest:
    magnitude = form.nan if form.finite else form.largest + 1
  return (sign << (form.exponent + form.mantissa)) | magnitude


def _float_from_bits(form: Format, bits: int) -> float:
  sign = -1.0 if bits >> (form.exponent + form.mantissa) else 1.0
  magnitude = bits & ((1 << (form.exponent + form.mantissa)) - 1)
  if magnitude > form.largest:
    return sign * math.inf if not form.finite and magnitude == form.largest + 1 else math.nan
  exponent, mantissa = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
  if exponent:
    mantissa += 1 << form.mantissa
  return sign * math.ldexp(mantissa, max(exponent, 1) - form.bias - form.mantissa)


def _to_int(value: Number) -> int:
  """Toward zero; NaN and infinities, for which a conversion is unspecified, give 0."""
  return 0 if isinstance(value, float) and not math.isfinite(value) else int(value)


def truncate(dtype: DType, value: Number) -> Number:
  """`value` as scalar `dtype` represents it: integers wrap, floats round to nearest even, a float to an integer type
  goes toward zero first.

  A vector dtype rounds to its scalar. Raises TypeError for void.
  """
  result: Number = rounding(dtype)(value)
  return result


@cache
def rounding(dtype: DType) -> Callable[[Any], Any]:
  """`truncate` to one type."""
  kind, bits = dtype.kind, dtype.bits
  if kind == "float":
    form = FORMATS[dtype.scalar().name]

    def to_float(value: Number) -> Number:
      if isinstance(value, float):
        if bits == 64:
          return value
        if bits == 32:  # the one that is used all the time; the C conversion rounds as we do
          try:
            return float(_SINGLE.unpack(_SINGLE.pack(value))[0])
          except OverflowError:
            return math.copysign(math.inf, value)
      # integers may be NumPy's
      return _float_from_bits(form, _float_to_bits(form, value if isinstance(value, float) else int(value)))

    return to_float
  if kind == "bool":
    return bool
  if kind == "index":
    return lambda value: value if type(value) is int else _to_int(value)
  if kind not in ("int", "uint"):
    return partial(_no_constant, dtype)
  low, high, mask = int(dtypes.min(dtype)), int(dtypes.max(dtype)), (1 << bits) - 1

  def to_integer(value: Number) -> int:
    if type(value) is int and low <= value <= high:
      return value
    wrapped = _to_int(value) & mask
    return wrapped if wrapped <= high else wrapped - mask - 1

  return to_integer


def _no_constant(dtype: DType, value: Number) -> Number:
  wanted = "constants are bool, int, uint, float or index"
  raise TypeError(f"a value of dtype {dtype} cannot be a constant: {value!r}; {wanted}")


def to_bits(dtype: DType, value: Number) -> int:
  """The bit pattern of `value` in scalar `dtype` as an unsigned integer; `value` is truncated first, NaNs have one
  pattern per format."""
  kind = dtype.kind
  if kind == "float":
    return _float_to_bits(FORMATS[dtype.scalar().name], value)
  if kind == "bool":
    return int(bool(value))
  if kind in ("int", "uint"):
    return _to_int(value) & ((1 << dtype.scalar().bits) - 1)
  raise TypeError(f"dtype {dtype} has no bit pattern; it must be bool, int, uint or float")


def from_bits(dtype: DType, bits: int) -> Number:
  """The value of scalar `dtype` with bit pattern `bits`, which must fit its width (ValueError). The payload and sign of
  a NaN are dropped."""
  scalar = dtype.scalar()
  width = scalar.itemsize * 8 if scalar.kind != "index" else 0
  if scalar.kind not in ("bool", "int", "uint", "float"):
    raise TypeError(f"dtype {dtype} has no bit pattern; it must be bool, int, uint or float")
  if not 0 <= bits < 1 << width:
    raise ValueError(f"bit pattern {bits:#x} does not fit the {width} bits of {dtype}")
  if scalar.kind == "float":
    return _float_from_bits(FORMATS[scalar.name], bits)
  number: Number = rounding(scalar)(bits)
  return number
