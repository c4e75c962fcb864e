"""Conversions between element types."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto as T

from tiny_onnx.errors import ModelError
from tiny_onnx.narrow import decode, encode, is_narrow
from tiny_onnx.registry import Call, op
from tiny_onnx.values import (
  ARRAY_DTYPES,
  DTYPES,
  NARROW_INTS,
  Host,
  Narrow,
  Value,
  elem_name,
  elem_of,
  host_of,
  tensor_of,
)
from tiny_tensor import Tensor, dtypes


def text_of(x: Any) -> str:
  """A number as text: the fewest digits that give it back."""
  if isinstance(x, (bool, np.bool_)):
    return "1" if x else "0"
  if not np.issubdtype(type(x), np.floating) and not isinstance(x, float):
    return str(x)
  if np.isnan(x):
    return "NaN"
  if np.isinf(x):
    return "INF" if x > 0 else "-INF"
  return str(np.float32(x)) if not isinstance(x, np.float64) else str(x)


def number_of(text: str) -> float:
  words = {"nan": np.nan, "inf": np.inf, "+inf": np.inf, "-inf": -np.inf}
  return words[text.lower()] if text.lower() in words else float(text)


def cast_to(value: Value, elem: int, saturate: bool = True, round_mode: str = "up") -> Value:
  """A value in another element type."""
  if elem not in ARRAY_DTYPES:
    raise ModelError(f"cannot cast to {elem_name(elem)}, which tiny-onnx does not have")
  if isinstance(value, Host):
    kind = value.array.dtype.kind
    if value.symbolic:
      return value if elem in (T.INT64, T.INT32) else cast_to(tensor_of(value), elem)
    if kind == "O":
      if elem == T.STRING:
        return value
      try:
        numbers = np.array([number_of(x) if DTYPES[elem].kind == "float" else int(x) for x in value.array.flat])
      except ValueError as error:
        raise ModelError(f"a string is no number: {error}") from error
      return Host(numbers.astype(ARRAY_DTYPES[elem]).reshape(value.array.shape))
    if elem != T.STRING and elem in DTYPES and value.elem in DTYPES and elem != T.BFLOAT16 and value.elem != T.BFLOAT16:
      with np.errstate(all="ignore"):
        return Host(value.array.astype(ARRAY_DTYPES[elem]))
  if elem == T.STRING:
    array = host_of(value)
    words = np.empty(array.shape, object)
    words[...] = np.array([text_of(x) for x in array.flat], object).reshape(array.shape)
    return Host(words)
  if elem_of(value) == elem:
    return value
  device = value.device_value if isinstance(value, Host) else value
  if isinstance(device, Narrow):
    device = decode(device)
  x = tensor_of(device)
  if is_narrow(elem):
    return encode(x, elem, saturate, round_mode)
  return to_dtype(x, elem)


def to_dtype(x: Tensor, elem: int) -> Tensor:
  target = DTYPES[elem]
  if target is dtypes.bool:
    return x != 0
  if x.is_floating_point() and target.kind in ("int", "uint") and target.bits < 32:
    return x.cast(dtypes.int32).cast(target)  # the low bits, as others have it
  return x.cast(target)


@op("Cast", 6, raw=True)
def cast(call: Call, x: Value) -> Value:
  return cast_to(x, call["to"], bool(call.get("saturate", 1)), call.get("round_mode", "up"))


@op("Cast", 1, raw=True)
def cast_by_name(call: Call, x: Value) -> Value:
  return cast_to(x, T.DataType.Value(str(call["to"]).upper()))


@op("CastLike", 15, raw=True)
def cast_like(call: Call, x: Value, like: Value) -> Value:
  return cast_to(x, elem_of(like), bool(call.get("saturate", 1)), call.get("round_mode", "up"))


@op("BitCast", 26, raw=True)
def bit_cast(call: Call, x: Value) -> Value:
  elem = call["to"]
  device = x.device_value if isinstance(x, Host) else x
  bits = device.codes if isinstance(device, Narrow) else tensor_of(device)
  if elem in DTYPES:
    return bits != 0 if DTYPES[elem] is dtypes.bool else bits.bitcast(DTYPES[elem])
  if elem in NARROW_INTS:
    low, high, dtype = NARROW_INTS[elem]
    codes = bits.cast(dtypes.int32) & (high - low)
    signed = (codes > high).where(codes - (high - low + 1), codes)
    return Narrow(signed.cast(dtype), elem)
  return Narrow(bits.bitcast(dtypes.uint8), elem)
