"""Conversions between float32 and narrower formats by integer operations: to nearest, ties to even, overflow as
`tiny_uop.truncate` does.
"""

from __future__ import annotations

from tiny_codegen.decompose.arithmetic import magnitude, reinterpret, to, unsigned_bits
from tiny_uop import DType, UOp, dtypes
from tiny_uop.truncate import FORMATS

_INFINITY = 0x7F800000


def encode(x: UOp, dtype: DType) -> UOp:
  """The bits of float32 `x` in a narrower format, as unsigned integers of its width."""
  form = FORMATS[dtype.scalar().name]
  bits = unsigned_bits(x)
  size = bits & 0x7FFFFFFF
  shift = 23 - form.mantissa
  # half of the last place, less one, plus the last bit that is kept: carries exactly when rounding is up
  rounded = (size + ((1 << (shift - 1)) - 1) + ((size >> shift) & 1)) >> shift
  if form.exponent < 8:
    # the float addition rounds at the place where this format's subnormals end
    magic = 2.0 ** (24 - form.bias - form.mantissa)
    small = unsigned_bits(magnitude(x) + magic) - unsigned_bits(x.const_like(magic))
    rounded = rounded - ((127 - form.bias) << form.mantissa)
    rounded = (size < ((128 - form.bias) << 23)).where(small, rounded)
    rounded = (size > _INFINITY - 1).where(rounded.const_like(form.largest + 1), rounded)
    too_large = rounded.const_like(form.nan if form.finite else form.largest + 1)
    rounded = (rounded > form.largest).where(too_large, rounded)
  sign = (bits >> 31) << (form.exponent + form.mantissa)
  made = (size > _INFINITY).where(rounded.const_like(form.nan), rounded | sign)
  return to(made, dtypes.uint16 if dtype.bits == 16 else dtypes.uint8)


def decode(bits: UOp, dtype: DType) -> UOp:
  """float32 values from the bits of a narrower format; exact."""
  form = FORMATS[dtype.scalar().name]
  wide = to(bits, dtypes.uint32)
  shift = 23 - form.mantissa
  if form.exponent == 8:
    return reinterpret(wide << shift, dtypes.float32)
  size = wide & ((1 << (form.exponent + form.mantissa)) - 1)
  sign = (wide >> (form.exponent + form.mantissa)) << 31
  normal = reinterpret((size << shift) + ((127 - form.bias) << 23), dtypes.float32)
  small = to(size, dtypes.float32) * 2.0 ** (1 - form.bias - form.mantissa)
  value = unsigned_bits((size < (1 << form.mantissa)).where(small, normal))
  special = value.const_like(0x7FC00000) if form.finite else (size << shift) | _INFINITY
  value = (size > form.largest).where(special, value)
  return reinterpret(value | sign, dtypes.float32)


def to_odd_single(x: UOp) -> UOp:
  """float64 to float32, rounded to odd: what rounding once more to a format of at most 22 bits then gives is what
  rounding once would.

  (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008.)
  """
  single = to(x, dtypes.float32)
  back = to(single, dtypes.float64)
  bits = unsigned_bits(single)
  toward_zero = (magnitude(x) < magnitude(back)).where(bits - 1, bits)
  odd = reinterpret(toward_zero | 1, dtypes.float32)
  return (back.ne(x) & x.eq(x)).where(odd, single)


def sticky_double(x: UOp) -> UOp:
  """A 64-bit integer to float64 so that rounding once more is right: bits below the 42nd from the top are gathered
  into one.
  """
  rest = (x & 0x7FF).ne(0)
  gathered = (x >> 11) | rest.where(x.const_like(1), x.const_like(0))
  small = x < (1 << 53) if x.dtype.kind == "uint" else (x < (1 << 53)) & (x.const_like(-(1 << 53)) < x)
  return small.where(to(x, dtypes.float64), to(gathered, dtypes.float64) * 2048.0)
