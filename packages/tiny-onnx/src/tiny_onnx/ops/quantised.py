"""Quantised numbers: their scales and zero points, and products and convolutions of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onnx import TensorProto as T

from tiny_onnx.errors import ModelError
from tiny_onnx.narrow import decode, encode, is_narrow
from tiny_onnx.ops.neural import Window, window
from tiny_onnx.ops.shape import axis_in, padded
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
  scale = (scale == 0).where(1, scale)  # of zeros alone
  zero = (0 - low / scale).clamp(0, 255).round()
  return ((x / scale).round() + zero).clamp(0, 255), scale, zero


@op("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(call: Call, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
  codes, scale, zero = by_range(x)
  return codes.cast(dtypes.uint8), scale, zero.cast(dtypes.uint8)


def is_zero(value: Value) -> bool:
  """Whether a zero point is left out, or known to be 0."""
  return value is None or (isinstance(value, Host) and not value.array.any())


def offset_of(zero: Value, rows: bool = False) -> Tensor | None:
  """A zero point as int32, None for 0; one for each of several `rows` as a column."""
  if is_zero(zero):
    return None
  made = numbers(zero).cast(dtypes.int32)
  return made.unsqueeze(-1) if rows and made.ndim == 1 and made.shape[0] > 1 else made


def signed(codes: Tensor, zero: Tensor | None, shift: bool) -> tuple[Tensor, Tensor | None]:
  """With `shift`, uint8 less 128 as int8, and the zero point that then holds: dot products of bytes take numbers with a
  sign on one side."""
  if not shift:
    return codes, zero
  moved = (codes ^ 128).bitcast(dtypes.int8)
  return moved, (zero if zero is not None else Tensor.zeros(1, dtype=dtypes.int32)) - 128


def integer_product(a: Tensor, b: Tensor, a_zero: Value = None, b_zero: Value = None) -> Tensor:
  """`(a - a_zero) @ (b - b_zero)` in int32. The sum is one of products of bytes, for which processors have
  instructions; zero points are put right outside of it: Σ(a-p)(b-q) = Σab - pΣb - qΣ(a-p).
  """
  p, q = offset_of(a_zero, True), offset_of(b_zero)
  b, q = signed(b, q, a.dtype is b.dtype is dtypes.uint8)
  a = a.contiguous()  # as bytes: of what is made of wider numbers, these would be in memory
  total = a.cast(dtypes.int32).matmul(b.cast(dtypes.int32))
  if p is not None:
    total = total - p * b.cast(dtypes.int32).sum(-2, keepdim=b.ndim > 1)
  if q is not None:
    rows = a.cast(dtypes.int32) if p is None else a.cast(dtypes.int32) - p
    total = total - rows.sum(-1, keepdim=b.ndim > 1).contiguous() * q  # a kernel of its own: one is tiled for one sum
  return total.cast(dtypes.int32)


def integer_convolution(call: Call, x: Tensor, w: Tensor, bias: Tensor | None, x_zero: Value, w_zero: Value) -> Tensor:
  """The same for a convolution. Padding is no number: it takes part in none of the sums."""
  if x.ndim != w.ndim:
    raise ModelError(f"weights of {w.ndim} axes do not go with an input of {x.ndim}")
  p, q = offset_of(x_zero), offset_of(w_zero)
  w, q = signed(w, q, x.dtype is w.dtype is dtypes.uint8)
  span, groups = window(call, x.shape[2:], call.get("kernel_shape", w.shape[2:])), call.get("group", 1)
  if p is not None and any(span.padding):
    x = filled(x, span, tensor_of(x_zero).reshape(()))
    span = replace(span, before=[0] * len(span.before), after=[0] * len(span.after))
  x = x.contiguous()
  whole, weights = x.cast(dtypes.int32), w.cast(dtypes.int32)
  total = whole.conv2d(weights, bias, groups, span.strides, span.dilations, span.padding)
  each = (1, -1, *[1] * (w.ndim - 2))
  if p is not None:
    total = total - p.reshape(()) * weights.sum(tuple(range(1, w.ndim))).reshape(each)
    whole = whole - p.reshape(())
  if q is not None:
    summed = whole.reshape(x.shape[0], groups, -1, *x.shape[2:]).sum(2)
    ones = Tensor.ones(groups, 1, *w.shape[2:], dtype=dtypes.int32)
    windows = summed.conv2d(ones, None, groups, span.strides, span.dilations, span.padding).contiguous()
    total = total - windows.repeat_interleave(w.shape[0] // groups, 1) * q.reshape(each if q.numel() > 1 else ())
  return total.cast(dtypes.int32)


def filled(x: Tensor, span: Window, value: Tensor) -> Tensor:
  """Codes with the padding of a window, which is filled with a value."""
  pads = [0, 0, *span.before, 0, 0, *span.after]
  inside = padded(Tensor.ones(1, 1, *x.shape[2:], dtype=dtypes.bool), pads, range(x.ndim), "constant", False)
  return inside.where(padded(x, pads, range(x.ndim), "constant", 0), value)


@op("MatMulInteger", 10, raw=True)
def matmul_integer(call: Call, a: Value, b: Value, a_zero: Value = None, b_zero: Value = None) -> Tensor:
  return integer_product(tensor_of(a), tensor_of(b), a_zero, b_zero)


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
  if is_narrow(elem_of(a)) or is_narrow(elem_of(b)):
    left_zero = numbers(a_zero)
    left = numbers(a) - (left_zero.unsqueeze(-1) if left_zero.ndim == 1 and left_zero.shape[0] > 1 else left_zero)
    exact = left.matmul(numbers(b) - numbers(b_zero))
  else:
    exact = integer_product(tensor_of(a), tensor_of(b), a_zero, b_zero)
    return requantised(exact, scales[0] * scales[1] / scales[2], tensor_of(y_zero), DTYPES[elem])
  return quantised(exact.cast(dtypes.float32) * (scales[0] * scales[1]), scales[2], numbers(y_zero), elem)


@op("ConvInteger", 10, raw=True)
def conv_integer(call: Call, x: Value, w: Value, x_zero: Value = None, w_zero: Value = None) -> Tensor:
  return integer_convolution(call, tensor_of(x), tensor_of(w), None, x_zero, w_zero)


@op("QLinearConv", 10, raw=True)
def qlinear_conv(
  call: Call, x: Value, x_scale: Value, x_zero: Value, w: Value, w_scale: Value, w_zero: Value,
  y_scale: Value, y_zero: Value, bias: Value = None,
) -> Tensor:  # fmt: skip
  added = None if bias is None else tensor_of(bias)
  exact = integer_convolution(call, tensor_of(x), tensor_of(w), added, x_zero, w_zero)
  scales = tensor_of(w_scale)
  if scales.numel() > 1:
    scales = scales.reshape(1, -1, *[1] * (exact.ndim - 2))
  zero = tensor_of(y_zero)
  return requantised(exact, tensor_of(x_scale) * scales / tensor_of(y_scale), zero, zero.dtype)
