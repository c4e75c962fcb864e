"""Python values to bytes and back."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from tiny_tensor.base import Scalar, python_number
from tiny_uop import DType, dtypes, truncate

# struct's characters; bfloat16 and the fp8s have none, they travel as float32
FORMATS: dict[DType, str] = {dtype: dtype.fmt for dtype in dtypes.all if dtype.fmt is not None}


BYTES = (bytes, bytearray, memoryview)


def is_block(value: Any) -> bool:
  """Whether a value in a list stands for several: bytes, or an array with axes."""
  return isinstance(value, BYTES) or (hasattr(value, "__array_interface__") and value.shape != ())


def shape_of_nested(data: Any) -> tuple[int, ...]:
  """Sizes of nested lists or tuples, of numbers, arrays or bytes. Raises ValueError, naming the place, where they are
  ragged."""
  if not isinstance(data, (list, tuple)):
    if isinstance(data, (bool, int, float)) or not is_block(data):
      return ()
    return (memoryview(data).nbytes,) if isinstance(data, BYTES) else tuple(int(s) for s in data.shape)
  if not data:
    return (0,)
  shapes = [shape_of_nested(d) for d in data]
  for i, shape in enumerate(shapes):
    if shape != shapes[0]:
      raise ValueError(f"ragged nested list: element 0 has shape {shapes[0]}, element {i} has shape {shape}")
  return (len(data), *shapes[0])


def flatten_nested(data: Any) -> Iterator[Any]:
  """The values of nested lists in order; arrays and bytes are values."""
  if isinstance(data, (list, tuple)):
    for d in data:
      yield from flatten_nested(d)
  else:
    yield data


def plain(value: Any) -> Scalar:
  """A number from a Python or NumPy scalar. Raises TypeError for anything else."""
  if isinstance(value, (bool, int, float)):
    return value
  if getattr(value, "shape", None) == () and hasattr(value, "item"):
    number = python_number(value[()]) if hasattr(value, "__array_interface__") else value.item()
    if isinstance(number, (bool, int, float)):
      return number
  raise TypeError(f"a tensor holds bool, int or float, got {type(value).__name__} {value!r}")


def infer_dtype(values: Sequence[Scalar]) -> DType:
  """bool, the default int or the default float. Raises OverflowError for an integer that does not fit."""
  if any(isinstance(v, float) for v in values):
    return dtypes.default_float
  if all(isinstance(v, bool) for v in values):
    return dtypes.bool if values else dtypes.default_float
  low, high = dtypes.min(dtypes.default_int), dtypes.max(dtypes.default_int)
  for v in values:
    if not low <= v <= high:
      raise OverflowError(f"{v} does not fit in {dtypes.default_int.name}: give a dtype, for example dtypes.int64")
  return dtypes.default_int


def pack(values: Sequence[Scalar], dtype: DType) -> bytes:
  """Values as bytes of `dtype`, which must have a struct format. Integers out of range wrap, floats round."""
  return struct.pack(f"={len(values)}{FORMATS[dtype]}", *[truncate(dtype, v) for v in values])


def unpack(data: bytes | memoryview, dtype: DType) -> tuple[Any, ...]:
  """Bytes of `dtype` as Python numbers."""
  return struct.unpack(f"={len(data) // dtype.itemsize}{FORMATS[dtype]}", data)


def nest(values: Sequence[Any], shape: Sequence[int]) -> Any:
  """Flat values as nested lists; a single value for no axes."""
  if not shape:
    return values[0]
  step = len(values) // shape[0] if shape[0] else 0
  return [nest(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
