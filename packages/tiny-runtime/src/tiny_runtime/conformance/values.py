"""Edge values per data type, elements as bytes, and comparison in units in the last place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tiny_uop import DType, dtypes, truncate
from tiny_uop.truncate import FORMATS, Number, from_bits, to_bits


def edge_values(dtype: DType) -> tuple[Number, ...]:
  """Numbers where mistakes show: zeros, ones, the limits of the type, and for floats also subnormals, infinities and
  NaN."""
  if dtype.kind == "bool":
    return (False, True)
  if dtype.kind in ("int", "uint"):
    low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
    picks = {0, 1, 2, 3, 7, 100, high, high - 1, high // 2, high // 2 + 1, low}
    if low < 0:
      picks |= {-1, -2, -3, -7, -100, low + 1, low // 2}
    return tuple(sorted(picks))
  return _float_edges(dtype)


def _float_edges(dtype: DType) -> tuple[Number, ...]:
  form = FORMATS[dtype.name]
  smallest_normal = from_bits(dtype, 1 << form.mantissa)
  largest = from_bits(dtype, form.largest)
  epsilon = 2.0**-form.mantissa
  positive = [
    1.0,
    1.0 + epsilon,
    0.5,
    1.5,
    2.0,
    3.0,
    7.0,
    0.1,
    10.0,
    math.pi,
    100.0,
    from_bits(dtype, 1),
    smallest_normal,
  ]
  positive += [from_bits(dtype, (1 << form.mantissa) - 1), largest, float(largest) / 2]
  values = [0.0, -0.0, *positive, *(-v for v in positive), math.nan]
  if not form.finite:
    values += [math.inf, -math.inf]
  rounded = [truncate(dtype, v) for v in values]
  return tuple({to_bits(dtype, v): v for v in rounded}.values())


def small_integers(dtype: DType) -> tuple[Number, ...]:
  """Values whose sums and products of a few are exact in every type."""
  if dtype.kind == "bool":
    return (False, True)
  return (0, 1, 2, 3) if dtype.kind == "uint" else tuple(truncate(dtype, v) for v in (-2, -1, 0, 1, 2, 3))


def pack(dtype: DType, values: Sequence[Number]) -> bytes:
  """Elements as bytes."""
  size = dtype.itemsize
  return b"".join(to_bits(dtype, v).to_bytes(size, "little") for v in values)


def unpack(dtype: DType, data: bytes) -> list[Number]:
  """The inverse of `pack`. A bool is what is not 0."""
  size = dtype.itemsize
  patterns = (int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size))
  if dtype.kind == "bool":
    return [bool(p) for p in patterns]
  return [from_bits(dtype, p) for p in patterns]


def ulps(dtype: DType, a: Number, b: Number) -> float:
  """How many representable numbers lie between two floats; 0 if both are NaN, infinity if one is."""
  if a != a or b != b:
    return 0 if a != a and b != b else math.inf
  return abs(_ordinal(dtype, a) - _ordinal(dtype, b))


def _ordinal(dtype: DType, value: Number) -> int:
  bits = to_bits(dtype, value)
  sign = 1 << (dtype.bits - 1)
  return -(bits & (sign - 1)) if bits & sign else bits


@dataclass(frozen=True)
class Difference:
  """An element that is not what it should be."""

  place: int
  got: Number
  want: Number
  distance: float = 0
  """In units in the last place, for floats."""

  def __str__(self) -> str:
    far = f" ({self.distance} ulp apart)" if 0 < self.distance < math.inf else ""
    return f"element {self.place}: got {self.got!r}, expected {self.want!r}{far}"


def differences(
  dtype: DType, got: Sequence[Number], want: Sequence[Number], tolerance: float = 0, signed_zeros: bool = False
) -> list[Difference]:
  """The elements that differ: integers at all, floats by more than `tolerance` ulp. Any NaN equals any NaN, and 0.0
  equals -0.0 unless `signed_zeros`."""
  found = []
  for place, (g, w) in enumerate(zip(got, want, strict=True)):
    if dtype.kind != "float":
      if g != w:
        found.append(Difference(place, g, w))
    elif (far := ulps(dtype, g, w)) > tolerance:
      found.append(Difference(place, g, w, far))
    elif signed_zeros and g == 0 == w and math.copysign(1, g) != math.copysign(1, w):
      found.append(Difference(place, g, w))
  return found
