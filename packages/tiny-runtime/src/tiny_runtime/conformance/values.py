"""Edge values per data type, elements as bytes, and comparison in units in the last place."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

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
  positive = [1.0, 1.0 + epsilon, 0.5, 1.5, 2.0, 3.0, 7.0, 0.1, 10.0, math.pi, 100.0, from_bits(dtype, 1)]
  positive += [smallest_normal, from_bits(dtype, (1 << form.mantissa) - 1), largest, float(largest) / 2]
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


def small(dtype: DType, size: int, seed: int = 0) -> bytes:
  """Random small integers as elements of a type."""
  return pack(dtype, random.Random(seed).choices(small_integers(dtype), k=size))


def random_values(dtype: DType, count: int, seed: int) -> list[Number]:
  """Numbers drawn from a seed, half of them of any size, half of the others' order: integers by their length in bits,
  floats around 1."""
  chosen, bits = random.Random(f"{dtype.name} {seed}"), dtype.bits
  if dtype.kind == "bool":
    return [chosen.random() < 0.5 for _ in range(count)]
  drawn = [from_bits(dtype, chosen.getrandbits(8 * dtype.itemsize)) for _ in range(count // 2)]
  for _ in range(count - len(drawn)):
    if dtype.kind == "float":
      value = math.ldexp(chosen.uniform(1, 2), chosen.randrange(-4, 5)) * chosen.choice((-1, 1))
      drawn.append(truncate(dtype, value))
    else:
      number = chosen.getrandbits(chosen.randrange(1, bits + 1))
      drawn.append(truncate(dtype, -number if dtype.kind == "int" and chosen.random() < 0.5 else number))
  chosen.shuffle(drawn)
  return drawn


def roundings(source: DType, dtype: DType) -> list[Number]:
  """Numbers of one type that a conversion to a float type has to round: each as close as it gets to halfway between two
  numbers of that, below, above and, where it exists, there. Whoever rounds to a third type in between gets some of them
  wrong. Empty where every number of `source` is one of `dtype`."""
  form, chosen = FORMATS[dtype.name], random.Random(f"{source.name} {dtype.name}")
  bits = form.mantissa
  found: dict[Number, None] = {}
  least, normal, most = -form.bias - bits, 1 - form.bias, form.bias + 1
  exponents = {*range(max(least, 0), min(most, 64) + 1)} if source.kind != "float" else {
    *range(least, least + 3), *range(normal - 2, normal + 2), *range(-2, 3), *range(most - 2, most + 1),
    *range(least, most, max(1, (most - least) // 12)),
  }  # fmt: skip
  for exponent in sorted(exponents):
    # of a subnormal number there are fewer bits, down to none
    step = max(exponent, 1 - form.bias) - bits
    whole = max(exponent - step, -1)
    top = (1 << whole) if whole >= 0 else 0
    for rest in {0, 1, top - 1, *(chosen.randrange(max(top, 1)) for _ in range(2))}:
      if 0 <= rest < max(top, 1):
        found.update(dict.fromkeys(_around(source, 2 * (top + rest) + 1, step - 1)))
  signs = (1,) if source.kind == "uint" else (1, -1)
  return [sign * value for value in found for sign in signs if _inside(source, sign * value)]


def _inside(dtype: DType, value: Number) -> bool:
  return dtype.kind == "float" or dtypes.min(dtype) <= value <= dtypes.max(dtype)


def _around(dtype: DType, number: int, scale: int) -> Iterator[Number]:
  """`number * 2**scale`, which takes a bit more than another type has, as `dtype` has it, and its neighbours there."""
  if dtype.kind != "float":
    if scale >= 0:
      yield from (n for n in ((number << scale) - 1, number << scale, (number << scale) + 1) if _inside(dtype, n))
    return
  form = FORMATS[dtype.name]
  lowest = max(number.bit_length() - 1 + scale, 1 - form.bias) - form.mantissa
  if number.bit_length() - 1 + scale > form.bias or lowest > scale:
    return  # too large, or too many bits
  value = math.ldexp(number, scale)
  pattern = to_bits(dtype, value)
  for near in (pattern - 1, pattern, pattern + 1):
    if 0 < near <= form.largest:
      yield from_bits(dtype, near)


def near_limits(source: DType, dtype: DType) -> list[Number]:
  """Floats around the limits of an integer type and, where that has fewer bits, of int32; and some that are not
  whole."""
  low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
  exact = [0.25, 0.5, 0.75, 1.5, 2.5, -0.25, -0.5, -0.75, -1.5, -2.5, float(low), high / 2, high / 4 * 3, float(high)]
  if dtype.bits < 32:
    exact += [float(limit) for limit in (dtypes.min(dtypes.int32), dtypes.max(dtypes.int32))]
    exact += [sign * size for sign in (1, -1) for size in (high * 1.5, high * 3.0, 70000.5, 1e7)]
  found = {to_bits(source, value): truncate(source, value) for value in exact}
  for pattern in list(found):
    for near in (pattern - 1, pattern + 1):
      if 0 <= near < 1 << source.bits:
        found[near] = from_bits(source, near)
  return list(found.values())


def nan_patterns(dtype: DType) -> list[int]:
  """Bit patterns of NaNs: quiet and signalling ones of both signs, with few bits and with all."""
  form = FORMATS[dtype.name]
  sign = 1 << (dtype.bits - 1)
  first, last = form.largest + (1 if form.finite else 2), sign - 1
  kinds = {first, last, form.nan, min(form.nan + 1, last), max(form.nan - 1, first)}
  return sorted({pattern | s for pattern in kinds for s in (0, sign)})


# codes of `struct`: the types that it knows take a small part of the time
_CODES = {
  "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
  "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip


def pack(dtype: DType, values: Sequence[Number]) -> bytes:
  """Elements as bytes."""
  size = dtype.itemsize
  if (code := _CODES.get(dtype.name)) is not None:
    try:
      return struct.pack(f"<{len(values)}{code}", *values)
    except (struct.error, OverflowError):
      pass  # values of other types, which are wrapped and rounded
  return b"".join(to_bits(dtype, v).to_bytes(size, "little") for v in values)


def unpack(dtype: DType, data: bytes) -> list[Number]:
  """The inverse of `pack`. A bool is what is not 0."""
  size = dtype.itemsize
  if (code := _CODES.get(dtype.name)) is not None:
    return list(struct.unpack(f"<{len(data) // size}{code}", data))
  patterns = (int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size))
  return [_number(dtype, p) for p in patterns]


@cache
def _number(dtype: DType, pattern: int) -> Number:
  """`from_bits`, of types of 16 bits at most."""
  return from_bits(dtype, pattern)


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
    if g == w != 0:
      continue
    if dtype.kind != "float":
      if g != w:
        found.append(Difference(place, g, w))
    elif (far := ulps(dtype, g, w)) > tolerance:
      found.append(Difference(place, g, w, far))
    elif signed_zeros and g == 0 == w and math.copysign(1, g) != math.copysign(1, w):
      found.append(Difference(place, g, w))
  return found
