"""com.microsoft: what exporters and onnxruntime's optimiser write."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from tiny_onnx.ops.elementwise import gelu as gelu_of_onnx
from tiny_onnx.ops.neural import convolved
from tiny_onnx.ops.quantised import (
  by_range,
  dequantize_linear,
  integer_product,
  quantised,
  quantize_linear,
  requantised,
)
from tiny_onnx.ops.recurrent import activation, long_short
from tiny_onnx.registry import Call, op
from tiny_onnx.values import Value, elem_of, shape_of, tensor_of
from tiny_tensor import Tensor, dtypes

MICROSOFT = "com.microsoft"

# products


@op("FusedMatMul", domain=MICROSOFT)
@op("TransposeMatMul", domain=MICROSOFT)
def fused_matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
  for name, side in (("transBatchA", "a"), ("transBatchB", "b")):
    if call.get(name, 0):
      order = [*range(1, a.ndim - 1), 0, a.ndim - 1]
      a, b = (a.permute(tuple(order)), b) if side == "a" else (a, b.permute(tuple(order)))
  a = a.transpose(-2, -1) if call.get("transA", 0) else a
  b = b.transpose(-2, -1) if call.get("transB", 0) else b
  return (a.matmul(b) * call.get("alpha", 1.0)).cast(a.dtype)


@op("FusedGemm", domain=MICROSOFT)
def fused_gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
  a = a.transpose(0, 1) if call.get("transA", 0) else a
  b = b.transpose(0, 1) if call.get("transB", 0) else b
  made = a.matmul(b) * call.get("alpha", 1.0)
  if c is not None:
    made = made + c * call.get("beta", 1.0)
  name = call.get("activation", "")
  return (
    activation(name, call.given("activation_alpha", float), call.given("activation_beta", float))(made)
    if name
    else made
  )


@op("FusedConv", domain=MICROSOFT)
def fused_conv(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None, added: Tensor | None = None) -> Tensor:
  made = convolved(call, x, w, bias)
  if added is not None:
    made = made + added
  name = call.get("activation", "")
  parameters = [*call.get("activation_params", []), None, None]
  return activation(name, parameters[0], parameters[1])(made) if name else made


def unpacked(codes: Tensor, bits: int) -> Tensor:
  """Bytes as numbers of `bits` bits, the low ones first: the last axis grows."""
  if bits == 8:
    return codes
  parts = [(codes >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
  return parts[0].stack(*parts[1:], dim=-1).reshape(*shape_of(codes)[:-1], -1)


@op("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
  call: Call,
  x: Tensor,
  codes: Tensor,
  scales: Tensor,
  zeros: Tensor | None = None,
  groups: Tensor | None = None,
  bias: Tensor | None = None,
) -> Tensor:
  """A product with weights of few bits, in blocks along the summed axis with a scale and a zero point each."""
  k, n, bits, block = (
    call.need("K", int),
    call.need("N", int),
    call.choice("bits", {2: 2, 4: 4, 8: 8}, 4),
    call.need("block_size", int),
  )
  blocks = -(-k // block)
  numbers = unpacked(codes, bits).reshape(n, blocks, -1)[:, :, :block]
  if zeros is None:
    offset: Any = float(1 << (bits - 1))
  elif zeros.is_floating_point():
    offset = zeros.reshape(n, blocks, 1)
  else:
    offset = unpacked(zeros.reshape(n, -1), bits)[:, :blocks].reshape(n, blocks, 1).cast(x.dtype)
  factor = scales.reshape(n, blocks)
  if groups is not None and shape_of(groups) == (k,):  # each row of the summed axis names its block
    rows = numbers.reshape(n, -1)[:, :k].cast(x.dtype)
    point = offset if isinstance(offset, float) else offset.reshape(n, blocks)[:, groups]
    weights = (rows - point) * factor[:, groups]
  else:
    weights = ((numbers.cast(x.dtype) - offset) * factor.unsqueeze(-1)).reshape(n, -1)[:, :k]
  made = x.matmul(weights.transpose(0, 1))
  return made if bias is None else made + bias


# normalisation and activations


def layer_norm(x: Tensor, scale: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
  exact = x.cast(dtypes.float32)
  made = (exact - exact.mean(-1, True)) * (exact.var(-1, True, correction=0) + epsilon).rsqrt()
  made = made.cast(x.dtype) * scale
  return made if bias is None else made + bias


def rms_norm(x: Tensor, scale: Tensor, epsilon: float) -> Tensor:
  exact = x.cast(dtypes.float32)
  return (exact * ((exact * exact).mean(-1, True) + epsilon).rsqrt()).cast(x.dtype) * scale


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
  call: Call, x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Value, ...]:
  total = x + skip if bias is None else x + skip + bias
  return layer_norm(total, gamma, beta, call.get("epsilon", 1e-12)), None, None, total


@op("SimplifiedLayerNormalization", domain=MICROSOFT)
@op("SimplifiedLayerNormalization")
def simplified_layer_normalization(call: Call, x: Tensor, scale: Tensor) -> tuple[Value, ...]:
  return rms_norm(x, scale, call.get("epsilon", 1e-5)), None


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
  call: Call, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None
) -> tuple[Value, ...]:
  total = x + skip if bias is None else x + skip + bias
  return rms_norm(total, gamma, call.get("epsilon", 1e-12)), None, None, total


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
  call: Call,
  tokens: Tensor,
  segments: Tensor | None,
  words: Tensor,
  places: Tensor,
  kinds: Tensor | None,
  gamma: Tensor,
  beta: Tensor,
  mask: Tensor | None = None,
  positions: Tensor | None = None,
) -> tuple[Value, ...]:
  total = words[tokens] + (places[: shape_of(tokens)[1]] if positions is None else places[positions])
  if kinds is not None and segments is not None:
    total = total + kinds[segments]
  counts = Tensor.zeros(shape_of(tokens)[0], dtype=dtypes.int32) if mask is None else mask.sum(1).cast(dtypes.int32)
  return layer_norm(total, gamma, beta, call.get("epsilon", 1e-12)), counts, total


@op("Gelu", domain=MICROSOFT)
def gelu(call: Call, x: Tensor) -> Tensor:
  return gelu_of_onnx(call, x)


@op("FastGelu", domain=MICROSOFT)
def fast_gelu(call: Call, x: Tensor, bias: Tensor | None = None) -> Tensor:
  t = x if bias is None else x + bias
  return t * 0.5 * ((t * math.sqrt(2 / math.pi) * (t * t * 0.044715 + 1)).tanh() + 1)


@op("BiasGelu", domain=MICROSOFT)
def bias_gelu(call: Call, x: Tensor, bias: Tensor) -> Tensor:
  return gelu_of_onnx(call, x + bias)


@op("QuickGelu", domain=MICROSOFT)
def quick_gelu(call: Call, x: Tensor) -> Tensor:
  return x * (x * call.get("alpha", 1.702)).sigmoid()


@op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(call: Call, x: Tensor, bias: Tensor) -> Tensor:
  left, right = (x + bias).chunk(2, -1)
  return left * gelu_of_onnx(call, right)


@op("BiasAdd", domain=MICROSOFT)
def bias_add(call: Call, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
  return x + bias + skip


@op("GroupNorm", domain=MICROSOFT)
def group_norm(call: Call, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
  last = bool(call.get("channels_last", 1))
  t = x.permute(0, 3, 1, 2) if last else x
  rows = t.cast(dtypes.float32).reshape(shape_of(t)[0], call.need("groups", int), -1)
  rows = (rows - rows.mean(-1, True)) * (rows.var(-1, True, correction=0) + call.get("epsilon", 1e-5)).rsqrt()
  made = rows.reshape(t.shape) * gamma.reshape(1, -1, 1, 1) + beta.reshape(1, -1, 1, 1)
  if call.get("activation", 0):
    made = made * made.sigmoid()
  return (made.permute(0, 2, 3, 1) if last else made).cast(x.dtype)


# quantised numbers


@op("QuantizeLinear", domain=MICROSOFT, raw=True)
def quantize(call: Call, x: Value, scale: Value, zero: Value = None) -> Value:
  return quantize_linear(call, x, scale, zero)


@op("DequantizeLinear", domain=MICROSOFT, raw=True)
def dequantize(call: Call, x: Value, scale: Value, zero: Value = None) -> Tensor:
  return dequantize_linear(call, x, scale, zero)


@op("DynamicQuantizeMatMul", domain=MICROSOFT, raw=True)
def dynamic_quantize_matmul(
  call: Call, a: Value, b: Value, b_scale: Value, b_zero: Value = None, bias: Value = None
) -> Tensor:
  codes, scale, zero = by_range(tensor_of(a))
  product = integer_product(codes.cast(dtypes.uint8), tensor_of(b), zero.cast(dtypes.int32), b_zero)
  made = product.cast(dtypes.float32) * (scale * tensor_of(b_scale))
  return made if bias is None else made + tensor_of(bias)


@op("QGemm", domain=MICROSOFT, raw=True)
def qgemm(
  call: Call, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value, bias: Value = None,
  y_scale: Value = None, y_zero: Value = None,
) -> Tensor:  # fmt: skip
  left = tensor_of(a).transpose(0, 1) if call.get("transA", 0) else tensor_of(a)
  right = tensor_of(b).transpose(0, 1) if call.get("transB", 0) else tensor_of(b)
  exact = integer_product(left, right, a_zero, b_zero)
  factor = tensor_of(a_scale) * tensor_of(b_scale) * call.get("alpha", 1.0)
  exact = exact if bias is None else exact + tensor_of(bias)
  if y_scale is None:
    return exact.cast(dtypes.float32) * factor
  zero = tensor_of(y_zero)
  return requantised(exact, factor / tensor_of(y_scale), zero, zero.dtype)


def codes_times(weights: Tensor, scale: Tensor, zero: Tensor, x: Tensor) -> Tensor:
  """Rows, as uint8 for their range, times quantised weights (terms, results)."""
  codes, own_scale, own_zero = by_range(x)
  product = integer_product(codes.cast(dtypes.uint8), weights, own_zero.cast(dtypes.int32), zero)
  return product.cast(dtypes.float32) * (own_scale * scale)


@op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
  call: Call, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None, lengths: Tensor | None, h: Tensor | None,
  c: Tensor | None, peepholes: Tensor | None, w_scale: Tensor, w_zero: Tensor, r_scale: Tensor, r_zero: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
  """Weights are (directions, terms, results); scales and zero points are of a direction, or of each result."""
  inputs, again = (
    [partial(codes_times, weights[d], scale[d], zero[d]) for d in range(w.shape[0])]
    for weights, scale, zero in ((w, w_scale, w_zero), (r, r_scale, r_zero))
  )
  return long_short(call, x, inputs, again, r.shape[1], bias, lengths, h, c, peepholes)


@op("MatMulIntegerToFloat", domain=MICROSOFT, raw=True)
def matmul_integer_to_float(
  call: Call,
  a: Value,
  b: Value,
  a_scale: Value,
  b_scale: Value,
  a_zero: Value = None,
  b_zero: Value = None,
  bias: Value = None,
) -> Tensor:
  product = integer_product(tensor_of(a), tensor_of(b), a_zero, b_zero)
  made = product.cast(dtypes.float32) * (tensor_of(a_scale) * tensor_of(b_scale))
  return made if bias is None else made + tensor_of(bias)


def of_quantised(name: str, function: Any) -> None:
  """Registers an operator of two quantised tensors: the numbers are combined, and quantised again."""

  @op(name, domain=MICROSOFT, raw=True)
  def combined(
    call: Call,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    scale: Value,
    zero: Value = None,
  ) -> Value:
    left, right = dequantize_linear(call, a, a_scale, a_zero), dequantize_linear(call, b, b_scale, b_zero)
    offset = None if zero is None else tensor_of(zero).cast(dtypes.int32)
    return quantised(function(left, right), tensor_of(scale), offset, elem_of(a) if zero is None else elem_of(zero))


of_quantised("QLinearAdd", Tensor.add)
of_quantised("QLinearMul", Tensor.mul)


@op("QLinearSigmoid", domain=MICROSOFT, raw=True)
def qlinear_sigmoid(call: Call, x: Value, x_scale: Value, x_zero: Value, scale: Value, zero: Value = None) -> Value:
  made = dequantize_linear(call, x, x_scale, x_zero).sigmoid()
  return quantised(made, tensor_of(scale), None if zero is None else tensor_of(zero).cast(dtypes.int32), elem_of(x))


@op("QLinearGlobalAveragePool", domain=MICROSOFT, raw=True)
def qlinear_global_average_pool(
  call: Call, x: Value, x_scale: Value, x_zero: Value, scale: Value, zero: Value
) -> Value:
  t = dequantize_linear(call, x, x_scale, x_zero)
  axes = tuple(range(1, t.ndim - 1)) if call.get("channels_last", 0) else tuple(range(2, t.ndim))
  return quantised(t.mean(axes, True), tensor_of(scale), tensor_of(zero).cast(dtypes.int32), elem_of(x))


@op("Inverse", domain=MICROSOFT)
def inverse(call: Call, x: Tensor) -> Tensor:
  return x.inverse()
