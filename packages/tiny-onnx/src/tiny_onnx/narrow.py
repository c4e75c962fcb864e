"""Narrow numbers: what their codes mean, and the codes that numbers round to.

A format of at most 8 bits is a table of its values. A number's code is how many thresholds lie at or below its
magnitude: the midpoints of neighbours, moved up by one float32 where the lower neighbour has the even code, so that
ties go to even.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto as T

from tiny_onnx.values import ARRAY_DTYPES, DTYPES, NARROW_FLOATS, NARROW_INTS, Narrow, narrow_values
from tiny_tensor import Tensor, dtypes


@cache
def thresholds(elem: int) -> np.ndarray[Any, Any]:
  """The least float32 magnitude of each positive finite code but the first."""
  values = narrow_values(elem)
  half = values[: len(values) // 2].astype(np.float64)
  finite = half[np.isfinite(half)]
  middle = ((finite[:-1] + finite[1:]) / 2).astype(np.float32)
  lower_is_even = np.arange(len(middle)) % 2 == 0
  return np.where(lower_is_even, np.nextafter(middle, np.float32(np.inf)), middle).astype(np.float32)


def decode(x: Narrow) -> Tensor:
  """The values: float32 of narrow floats, int32 of narrow integers."""
  if x.elem in NARROW_INTS:
    return x.codes.cast(dtypes.int32)
  table = Tensor(narrow_values(x.elem))
  return table[x.codes.cast(dtypes.int32)]


def encode(x: Tensor, elem: int, saturate: bool = True, round_mode: str = "up") -> Narrow:
  """Numbers rounded to a narrow format.

  Floats round to nearest, ties to even. What is too large becomes the largest with `saturate`, and otherwise what the
  format has for infinity. Integers are cut off toward zero, and keep the bits that the format has.
  """
  if elem in NARROW_INTS:
    low, high, dtype = NARROW_INTS[elem]
    whole = x.cast(dtypes.int32)
    return Narrow(((whole - low) & (high - low)).cast(dtypes.int32).add(low).cast(dtype), elem)
  x = x.cast(dtypes.float32)
  if elem == T.FLOAT8E8M0:
    return Narrow(encode_exponent(x, saturate, round_mode), elem)
  name = ARRAY_DTYPES[elem].name
  steps = thresholds(elem)
  size = x.abs()
  code = _rank(size, steps)
  largest = len(steps)
  negative = x.bitcast(dtypes.uint32) >> 31
  sign = 1 << (NARROW_FLOATS[elem] - 1)
  unsigned_zero = name.endswith("fnuz")
  nan = sign if unsigned_zero else sign - 1
  infinity = 0x7C if name == "float8_e5m2" else nan
  limit = np.float32(narrow_values(elem)[largest])
  step = limit - np.float32(narrow_values(elem)[largest - 1])
  over = size >= float(limit + step / 2)
  if elem == T.FLOAT4E2M1:
    return Narrow(x.isnan().where(sign, code + negative.cast(dtypes.int32) * sign).cast(dtypes.uint8), elem)
  if saturate:
    code = x.isinf().where(largest, code)
  else:
    code = (over | x.isinf()).where(infinity, code)
  if unsigned_zero:
    made = (code == 0).where(0, (code == nan).where(nan, code + negative.cast(dtypes.int32) * sign))
  else:
    made = code + negative.cast(dtypes.int32) * sign
  made = x.isnan().where(nan if unsigned_zero else nan + negative.cast(dtypes.int32) * sign, made)
  return Narrow(made.cast(dtypes.uint8), elem)


def _rank(size: Tensor, steps: np.ndarray[Any, Any]) -> Tensor:
  """How many of the rising steps are at most `size`, for each element: int32."""
  table = Tensor(steps)
  return (size.unsqueeze(-1) >= table).cast(dtypes.int32).sum(-1)


def encode_exponent(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
  """Codes of FLOAT8E8M0, powers of two: of float32 numbers, whose sign is left out. `up`, `down` or `nearest`."""
  bits = x.abs().bitcast(dtypes.uint32)
  exponent, fraction = (bits >> 23).cast(dtypes.int32), bits & 0x7FFFFF
  subnormal = exponent == 0
  if round_mode == "up":
    more = subnormal.where(fraction > 0x400000, fraction > 0)
  elif round_mode == "nearest":
    more = subnormal.where(fraction > 0x600000, fraction >= 0x400000)
  else:
    more = fraction < 0
  top = 254 if saturate else 255
  code = (exponent + more.cast(dtypes.int32)).minimum(top)
  code = x.isinf().where(top, code)
  return x.isnan().where(255, code).cast(dtypes.uint8)


def is_narrow(elem: int) -> bool:
  """Whether the device has no dtype for an element type."""
  return elem not in DTYPES and (elem in NARROW_FLOATS or elem in NARROW_INTS)
