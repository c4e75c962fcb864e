"""Bytes as elements of a data type: what LOAD and STORE go through."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from tiny_uop import DType, PtrDType
from tiny_uop.truncate import from_bits, to_bits

# codes of `memoryview.cast`; types that it does not know are kept as their bit patterns
_CODES = {
  "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
  "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
}  # fmt: skip
_PATTERNS = {1: "B", 2: "H"}


def is_native(dtype: DType) -> bool:
  """Whether elements of this type come out of a view as values; if not, as bit patterns for `decode` and `encode`."""
  return dtype.name in _CODES


def open_view(dtype: DType, data: memoryview) -> memoryview:
  """`data` as elements of scalar `dtype`."""
  code: Any = _CODES.get(dtype.name) or _PATTERNS[dtype.itemsize]
  return cast("memoryview", data.cast(code))


def new_array(pointer: PtrDType) -> memoryview:
  """Local memory: uninitialised, which here is all ones."""
  return open_view(pointer.base, memoryview(bytearray(b"\xff") * (pointer.size * pointer.base.itemsize)))


@cache
def _table(dtype: DType) -> dict[int, Any]:
  return {}


def decode(dtype: DType, pattern: int) -> Any:
  """The value of a bit pattern. Remembered: there are at most 65536 per type."""
  table = _table(dtype)
  if (value := table.get(pattern)) is None:
    value = table[pattern] = from_bits(dtype, pattern)
  return value


def encode(dtype: DType, value: Any) -> int:
  """The bit pattern of a value."""
  return to_bits(dtype, value)
