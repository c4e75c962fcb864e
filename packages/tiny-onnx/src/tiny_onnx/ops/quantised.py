"""Quantised numbers: their scales and zero points, and products and convolutions of them."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto as T

from tiny_onnx.errors import ModelError
from tiny_onnx.narrow import decode, encode, is_narrow
from tiny_onnx.ops.neural import convolved
from tiny_onnx.ops.shape import axis_in
from tiny_onnx.registry import Call, op
from tiny_onnx.values import DTYPES, NARROW_INTS, Host, Narrow, Value, elem_of, shape_of, tensor_of
from tiny_tensor import Tensor, dtypes


def numbers(value: Value) -> Tensor:
  """The numbers behind quantised ones: int32 of integers, float32 of narrow floats."""
  device = value.device_value if isinstance(value, Host) else value
  if isinstance(device, Narrow):
    return decode(device)
  x = tensor_of(device)
  return x if x.is_floating_point() else x.cast(dtypes.int64 if x.dtype.bits == 32 else dtypes.int32)


def along(t: Tensor, shape: tuple[Any, ...], axis: int, block: int) -> Tensor:
  """A scale or zero point as it goes with a tensor: one for all, for each place on an axis, or for each block."""
  rank = len(shape)
  if t.ndim == 0 or (t.ndim == 1 and t.shape[0] == 1 and not block):
    return t.reshape([1] * rank)
  axis = axis_in(axis, rank)
  if block:
    spread = t.repeat_interleave(block, axis)
    return spread[tuple(slice(0, s) for s in shape)]
  return t.reshape(*[-1 if a == axis else 1 for a in range(rank)]) if t.ndim == 1 else t


def limits_of(elem: int) -> tuple[int, int]:
  if elem in NARROW_INTS:
    return NARROW_INTS[elem][:2]
  return int(DTYPES[elem].min), int(DTYPES[elem].max)


def quantised(x: Tensor, scale: Tensor, zero: Tensor | None, elem: int, saturate: bool = True) -> Value:
  """x / scale, rounded to nearest even, plus the zero point, held to the range of the element type."""
  if elem not in NARROW_INTS and is_narrow(elem):
    y = x / scale
    return encode(y if zero is None else y + zero, elem, saturate)
  low, high = limits_of(elem)
  y = (x / scale).round()
  if zero is not None:
    y = y + zero.cast(y.dtype)
  y = y.clamp(low, high)
  return encode(y, elem) if is_narrow(elem) else y.cast(dtypes.int32).cast(DTYPES[elem])


@op("QuantizeLinear", 10, raw=True)
def quantize_linear(call: Call, x: Value, scale: Value, zero: Value = None) -> Value:
  t, s = tensor_of(x), tensor_of(scale)
  elem = elem_of(zero) if zero is not None else call.get("output_dtype", 0) or int(T.UINT8)
  axis, block = call.get("axis", 1), call.get("block_size", 0)
  precise = (
    DTYPES[call["precision"]]
    if call["precision"]
    else dtypes.promote(t.dtype, s.dtype)
    if t.is_floating_point()
    else s.dtype
  )
  exact = t.cast(precise)
  factor = along(s.cast(precise), shape_of(x), axis, block)
  offset = None if zero is None else along(numbers(zero), shape_of(x), axis, block)
  return quantised(exact, factor, offset, elem, bool(call.get("saturate", 1)))


@op("DequantizeLinear", 10, raw=True)
def dequantize_linear(call: Call, x: Value, scale: Value, zero: Value = None) -> Tensor:
  s = tensor_of(scale)
  axis, block = call.get("axis", 1), call.get("block_size", 0)
  exact = numbers(x)
  if zero is not None:
    exact = exact - along(numbers(zero), shape_of(x), axis, block).cast(exact.dtype)
  target = DTYPES[call["output_dtype"]] if call["output_dtype"] else s.dtype
  return (exact.cast(s.dtype if s.dtype.bits >= 32 else dtypes.float32) * along(s, shape_of(x), axis, block)).cast(
    target
  )


def by_range(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
  """(codes, scale, zero point) of uint8 for the range of the numbers, all as floats."""
  low, high = x.min().minimum(0), x.max().maximum(0)
  scale = (high - low) / 255
  zero = (0 - low / scale).clamp(0, 255).round()
  return ((x / scale).round() + zero).clamp(0, 255), scale, zero


@op("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(call: Call, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
  codes, scale, zero = by_range(x)
  return codes.cast(dtypes.uint8), scale, zero.cast(dtypes.uint8)


def centred(x: Tensor, zero: Tensor | None, rows: bool = False) -> Tensor:
  """Integers less their zero point: int32."""
  whole = x.cast(dtypes.int32)
  if zero is None:
    return whole
  offset = zero.cast(dtypes.int32)
  return whole - (offset.unsqueeze(-1) if rows and offset.ndim == 1 and offset.shape[0] > 1 else offset)


@op("MatMulInteger", 10)
def matmul_integer(
  call: Call, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
  return centred(a, a_zero, True).matmul(centred(b, b_zero)).cast(dtypes.int32)


def requantised(exact: Tensor, factor: Tensor, zero: Tensor, dtype: Any) -> Tensor:
  made = (exact.cast(dtypes.float32) * factor).round() + zero.cast(dtypes.float32)
  return made.clamp(dtype.min, dtype.max).cast(dtypes.int32).cast(dtype)


@op("QLinearMatMul", 10, raw=True)
def qlinear_matmul(
  call: Call,
  a: Value,
  a_scale: Value,
  a_zero: Value,
  b: Value,
  b_scale: Value,
  b_zero: Value,
  y_scale: Value,
  y_zero: Value,
) -> Value:
  elem = elem_of(y_zero)
  scales = [tensor_of(s).cast(dtypes.float32) for s in (a_scale, b_scale, y_scale)]
  if scales[0].ndim == 1 and scales[0].shape[0] > 1:
    scales[0] = scales[0].unsqueeze(-1)
  left, right = numbers(a), numbers(b)
  left_zero = numbers(a_zero)
  left = left - (left_zero.unsqueeze(-1) if left_zero.ndim == 1 and left_zero.shape[0] > 1 else left_zero)
  product = left.matmul(right - numbers(b_zero)).cast(dtypes.float32)
  return quantised(product * (scales[0] * scales[1]), scales[2], numbers(y_zero), elem)


@op("ConvInteger", 10)
def conv_integer(
  call: Call, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Tensor:
  by_channel = w_zero is not None and w_zero.ndim == 1 and w_zero.shape[0] > 1
  offset = w_zero.reshape(-1, *[1] * (w.ndim - 1)) if by_channel and w_zero is not None else w_zero
  return convolved(call, centred(x, x_zero), centred(w, offset), None).cast(dtypes.int32)


@op("QLinearConv", 10)
def qlinear_conv(
  call: Call, x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor,
  y_scale: Tensor, y_zero: Tensor, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
  if x.ndim != w.ndim:
    raise ModelError(f"weights of {w.ndim} axes do not go with an input of {x.ndim}")

  def by_channel(t: Tensor, axis: int) -> Tensor:
    return (
      t.reshape(*[-1 if a == axis else 1 for a in range(w.ndim)])
      if t.ndim == 1 and t.shape[0] > 1
      else t.reshape([1] * w.ndim)
    )

  exact = convolved(call, centred(x, x_zero), centred(w, by_channel(w_zero, 0)), bias)
  return requantised(exact, x_scale * by_channel(w_scale, 1) / y_scale, y_zero, y_zero.dtype)
