"""Rounding and bit patterns, against NumPy, torch where it is installed, and a slow oracle that searches all values
of a format.
"""

import math
import struct
from bisect import bisect_left
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_uop import DType, dtypes, truncate
from tiny_uop.truncate import from_bits, to_bits

NARROW = {"fp8e4m3": (4, 3), "fp8e5m2": (5, 2), "bfloat16": (8, 7), "float16": (5, 10)}
any_float = st.floats() | st.floats(width=32) | st.floats(width=16) | st.floats(-1e-6, 1e-6)


def same(a: object, b: object) -> bool:
  """Equal as floats, where NaNs are equal and zeros of different sign are not."""
  assert isinstance(a, float) and isinstance(b, float)
  return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def decode(name: str, bits: int) -> Fraction | None:
  """The finite value of a bit pattern, straight from the definition; None for infinities and NaN."""
  e_bits, m_bits = NARROW[name]
  exponent, mantissa = bits >> m_bits & ((1 << e_bits) - 1), bits & ((1 << m_bits) - 1)
  if exponent == (1 << e_bits) - 1 and (name != "fp8e4m3" or mantissa == (1 << m_bits) - 1):
    return None
  bias = (1 << (e_bits - 1)) - 1
  fraction = Fraction(mantissa, 1 << m_bits) + (exponent > 0)
  size: Fraction = fraction * Fraction(2) ** (max(exponent, 1) - bias)
  return -size if bits >> (e_bits + m_bits) else size


def positive_values(name: str) -> list[Fraction]:
  width = sum(NARROW[name])
  return [v for b in range(1 << width) if (v := decode(name, b)) is not None]


VALUES = {name: positive_values(name) for name in NARROW}


def nearest(name: str, value: Fraction) -> Fraction | None:
  """The value rounded to nearest even by search; None where it overflows."""
  values, size = VALUES[name], abs(value)
  place = bisect_left(values, size)
  if place == len(values):
    # half a step above the largest value still rounds to it, or to the next even one, which does not exist
    step = values[-1] - values[-2]
    over = size - values[-1]
    last_is_even = (len(values) - 1) % 2 == 0
    found = values[-1] if over < step / 2 or (over == step / 2 and last_is_even) else None
  elif place == 0 or values[place] == size:
    found = values[place]
  else:
    below, above = size - values[place - 1], values[place] - size
    found = values[place - 1] if below < above or (below == above and place % 2 == 1) else values[place]
  return found if found is None or value >= 0 else -found


@pytest.mark.parametrize("name", NARROW)
def test_every_bit_pattern(name: str) -> None:
  dtype = dtypes.parse(name)
  for bits in range(1 << dtype.bits):
    value, expected = from_bits(dtype, bits), decode(name, bits)
    assert isinstance(value, float)
    if expected is None:
      assert not math.isfinite(value)
    else:
      assert Fraction(value) == expected
    if not math.isnan(value):
      assert to_bits(dtype, value) == bits
    assert same(truncate(dtype, value), value)


@pytest.mark.parametrize("name", NARROW)
@given(value=st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1000, 1000) | st.floats(-1e-4, 1e-4))
def test_rounds_to_nearest_even(name: str, value: float) -> None:
  got, expected = truncate(dtypes.parse(name), value), nearest(name, Fraction(value))
  assert isinstance(got, float)
  if expected is None:
    assert math.isnan(got) if name == "fp8e4m3" else got == math.copysign(math.inf, value)
  else:
    assert Fraction(got) == expected and math.copysign(1, got) == math.copysign(1, value)


@pytest.mark.parametrize("name", NARROW)
def test_ties_go_to_even(name: str) -> None:
  values = VALUES[name][:2000]
  for place, (low, high) in enumerate(zip(values, values[1:], strict=False)):
    got = truncate(dtypes.parse(name), float((low + high) / 2))
    assert got == (low if place % 2 == 0 else high)


@given(any_float)
def test_float16_and_float32_as_numpy(value: float) -> None:
  with np.errstate(over="ignore"):
    assert same(truncate(dtypes.float16, value), float(np.float16(value)))
    assert same(truncate(dtypes.float32, value), float(np.float32(value)))
  assert same(truncate(dtypes.float64, value), value)


@given(st.integers(-(2**200), 2**200) | st.integers(-(2**64), 2**64))
def test_integers_round_once(value: int) -> None:
  # through float64 a large integer would be rounded twice
  got = truncate(dtypes.float32, value)
  assert isinstance(got, float)
  size, bits = abs(value), abs(value).bit_length()
  if bits > 24:
    unit = 1 << (bits - 24)
    down = size // unit * unit
    rest = size - down
    size = down + unit if rest * 2 > unit or (rest * 2 == unit and down // unit % 2) else down
  expected = math.inf if size.bit_length() > 128 else float(size)
  assert got == (expected if value >= 0 else -expected)


def test_integer_rounded_once_example() -> None:
  value = (1 << 60) + (1 << 36) + 1  # rounding to 53 bits first would make this a tie
  assert truncate(dtypes.float32, value) == float((1 << 60) + (1 << 37))
  assert float(np.float32(float(value))) == float(1 << 60)


@pytest.mark.parametrize(
  ("dtype", "value", "expected"),
  [
    (dtypes.fp8e4m3, 448.0, 448.0), (dtypes.fp8e4m3, 464.0, 448.0), (dtypes.fp8e4m3, 464.01, math.nan),
    (dtypes.fp8e4m3, math.inf, math.nan), (dtypes.fp8e4m3, -1e30, math.nan), (dtypes.fp8e4m3, 2.0**-9, 2.0**-9),
    (dtypes.fp8e4m3, 2.0**-10, 0.0), (dtypes.fp8e4m3, -(2.0**-11), -0.0), (dtypes.fp8e5m2, 57344.0, 57344.0),
    (dtypes.fp8e5m2, 61439.0, 57344.0), (dtypes.fp8e5m2, 61440.0, math.inf), (dtypes.fp8e5m2, 2.0**-16, 2.0**-16),
    (dtypes.float16, 65519.99, 65504.0), (dtypes.float16, 65520.0, math.inf), (dtypes.bfloat16, 3.4e38, math.inf),
    (dtypes.float32, 1e39, math.inf), (dtypes.float32, -1e39, -math.inf), (dtypes.float32, 1e-46, 0.0),
    (dtypes.float64, 10**400, math.inf), (dtypes.float64, -(10**400), -math.inf),
  ],
)  # fmt: skip
def test_edges(dtype: DType, value: float, expected: float) -> None:
  assert same(truncate(dtype, value), expected)


@pytest.mark.parametrize("dtype", dtypes.floats)
def test_nan_and_zero(dtype: DType) -> None:
  nan = truncate(dtype, math.nan)
  assert isinstance(nan, float) and math.isnan(nan)
  assert math.isnan(float(from_bits(dtype, to_bits(dtype, math.nan))))
  assert same(truncate(dtype, -0.0), -0.0) and same(truncate(dtype, 0), 0.0)


@given(st.integers() | st.floats(-1e30, 1e30))
def test_integer_types_wrap(value: float) -> None:
  for dtype in dtypes.ints:
    got = truncate(dtype, value)
    assert isinstance(got, int) and dtypes.min(dtype) <= got <= dtypes.max(dtype)
    assert (got - math.trunc(value)) % (1 << dtype.bits) == 0
    assert from_bits(dtype, to_bits(dtype, value)) == got
  assert truncate(dtypes.index, value) == math.trunc(value)
  assert truncate(dtypes.bool, value) is bool(value)


@given(any_float)
def test_bits_as_struct(value: float) -> None:
  if not math.isnan(value):
    assert to_bits(dtypes.float64, value) == struct.unpack("<Q", struct.pack("<d", value))[0]
  assert to_bits(dtypes.float64, math.nan) == 0x7FF8000000000000


def test_errors() -> None:
  with pytest.raises(TypeError, match="void cannot be a constant: 3"):
    truncate(dtypes.void, 3)
  with pytest.raises(ValueError, match="0x100 does not fit the 8 bits of int8"):
    from_bits(dtypes.int8, 256)
  with pytest.raises(TypeError, match="no bit pattern"):
    to_bits(dtypes.index, 1)
  with pytest.raises(TypeError, match="no bit pattern"):
    from_bits(dtypes.index, 1)


def test_unspecified_conversions_do_not_raise() -> None:
  assert [truncate(dtypes.int32, v) for v in (math.nan, math.inf, -math.inf)] == [0, 0, 0]


@settings(deadline=None)  # the first call imports torch
@given(any_float)
def test_as_torch(value: float) -> None:
  torch = pytest.importorskip("torch")
  single = float(np.float32(value)) if abs(value) < 3e38 else value
  for dtype, kind in (
    (dtypes.bfloat16, torch.bfloat16), (dtypes.fp8e5m2, torch.float8_e5m2), (dtypes.fp8e4m3, torch.float8_e4m3fn),
  ):  # fmt: skip
    if dtype is dtypes.fp8e4m3 and abs(single) > 464:
      continue  # newer versions of torch saturate here, older ones overflow to NaN as we do
    assert same(truncate(dtype, single), float(torch.tensor(single, dtype=torch.float32).to(kind).float()))
