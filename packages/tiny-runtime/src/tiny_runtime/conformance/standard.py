"""Kernels as programs have them, by name: what a compiler for a new device is looked at with, without the device.

They are as large as real ones, so they are for compilers; the kit's own cases run on REF, and are small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tiny_runtime.conformance.kernels import kernel, read, write
from tiny_uop import AxisType, DType, Ops, UOp, dtypes


def _reduced(size: int, number: int) -> UOp:
  return UOp.range(size, number, AxisType.REDUCE)


def matmul(m: int, n: int, k: int, dtype: DType, total: DType, out: DType, transposed: bool = False) -> UOp:
  """`out[m, n] = a[m, k] @ b[k, n]`, summed in `total`; b may be given as [n, k]."""
  i, j, r = UOp.range(m, 0), UOp.range(n, 1), _reduced(k, 2)
  a = read(1, dtype, m * k, i * k + r)
  b = read(2, dtype, n * k, j * k + r if transposed else r * n + j)
  result = (a.cast(total) * b.cast(total)).reduce(Ops.ADD, r).cast(out)
  return kernel("matmul", write(0, out, m * n, i * n + j, result).end(i, j))


def linear(m: int, n: int, k: int) -> UOp:
  """`relu(x @ w.T + bias)` of half precision, as a layer computes it."""
  i, j, r = UOp.range(m, 0), UOp.range(n, 1), _reduced(k, 2)
  half, single = dtypes.float16, dtypes.float32
  x, w = read(1, half, m * k, i * k + r), read(2, half, n * k, j * k + r)
  total = (x.cast(single) * w.cast(single)).reduce(Ops.ADD, r) + read(3, half, n, j).cast(single)
  result = total.maximum(total.const_like(0.0)).cast(half)
  return kernel("linear", write(0, half, m * n, i * n + j, result).end(i, j))


def causal_values(heads: int, length: int, depth: int, dtype: DType) -> UOp:
  """Weights times values of causal attention, for each head: a row takes the values up to its own place."""
  h, i, j, r = UOp.range(heads, 0), UOp.range(length, 1), UOp.range(depth, 2), _reduced(length, 3)
  weight = read(1, dtype, heads * length * length, (h * length + i) * length + r)
  value = read(2, dtype, heads * length * depth, (h * length + r) * depth + j)
  term = weight.cast(dtypes.float32) * value.cast(dtypes.float32)
  total = (r < i + 1).where(term, term.const_like(0.0)).reduce(Ops.ADD, r).cast(dtype)
  place = (h * length + i) * depth + j
  return kernel("causal_values", write(0, dtype, heads * length * depth, place, total).end(h, i, j))


def convolution(channels: int, size: int, out_channels: int) -> UOp:
  """3 × 3 over images padded already, in NCHW, one image."""
  o, y, x = UOp.range(out_channels, 0), UOp.range(size, 1), UOp.range(size, 2)
  c, dy, dx = _reduced(channels, 3), _reduced(3, 4), _reduced(3, 5)
  wide, single = size + 2, dtypes.float32
  image = read(1, single, channels * wide * wide, (c * wide + y + dy) * wide + x + dx)
  weight = read(2, single, out_channels * channels * 9, ((o * channels + c) * 3 + dy) * 3 + dx)
  value, place = (image * weight).reduce(Ops.ADD, c, dy, dx), (o * size + y) * size + x
  return kernel("convolution", write(0, single, out_channels * size * size, place, value).end(o, y, x))


def softmax(rows: int, columns: int) -> UOp:
  """Of each row."""
  i, j, first, second = UOp.range(rows, 0), UOp.range(columns, 1), _reduced(columns, 2), _reduced(columns, 3)
  single, size = dtypes.float32, rows * columns

  def at(column: UOp) -> UOp:
    return read(1, single, size, i * columns + column)

  most = at(first).reduce(Ops.MAX, first)
  total = (at(second) - most).exp().reduce(Ops.ADD, second)
  return kernel("softmax", write(0, single, size, i * columns + j, (at(j) - most).exp() / total).end(i, j))


def layer_norm(rows: int, columns: int) -> UOp:
  """Each row with mean 0 and variance 1."""
  i, j, first, second = UOp.range(rows, 0), UOp.range(columns, 1), _reduced(columns, 2), _reduced(columns, 3)
  single, size = dtypes.float32, rows * columns

  def at(column: UOp) -> UOp:
    return read(1, single, size, i * columns + column)

  mean = at(first).reduce(Ops.ADD, first) * (1.0 / columns)
  apart = at(second) - mean
  scale = ((apart * apart).reduce(Ops.ADD, second) * (1.0 / columns) + 1e-5).sqrt()
  return kernel("layer_norm", write(0, single, size, i * columns + j, (at(j) - mean) / scale).end(i, j))


def total(size: int, dtype: DType) -> UOp:
  """The sum of all elements."""
  r = _reduced(size, 0)
  value = read(1, dtype, size, r).cast(dtypes.float32).reduce(Ops.ADD, r)
  return kernel("total", write(0, dtypes.float32, 1, UOp.const(dtypes.index, 0), value))


def sums(rows: int, columns: int, along: int) -> UOp:
  """Sums of rows (`along` 1) or of columns (0)."""
  i, r = UOp.range(rows if along else columns, 0), _reduced(columns if along else rows, 1)
  place = i * columns + r if along else r * columns + i
  value = read(1, dtypes.float32, rows * columns, place).reduce(Ops.ADD, r)
  return kernel("sums", write(0, dtypes.float32, rows if along else columns, i, value).end(i))


def elementwise(size: int, dtype: DType) -> UOp:
  """`relu(a * b + c)`."""
  i = UOp.range(size, 0)
  a, b, c = (read(slot, dtype, size, i) for slot in (1, 2, 3))
  value = a * b + c
  return kernel("elementwise", write(0, dtype, size, i, value.maximum(value.const_like(0))).end(i))


def transpose(rows: int, columns: int) -> UOp:
  """A copy that is turned."""
  i, j, size = UOp.range(columns, 0), UOp.range(rows, 1), rows * columns
  value = read(1, dtypes.float32, size, j * columns + i)
  return kernel("transpose", write(0, dtypes.float32, size, i * rows + j, value).end(i, j))


def gelu(size: int) -> UOp:
  """Its usual approximation, which needs an exponential."""
  i = UOp.range(size, 0)
  x = read(1, dtypes.float32, size, i)
  inner = (x + x * x * x * 0.044715) * 1.5957691216
  return kernel("gelu", write(0, dtypes.float32, size, i, x / ((-inner).exp() + 1.0)).end(i))


def dequantised(m: int, n: int, k: int) -> UOp:
  """A matrix product with weights of 8 bits and a scale for each column."""
  i, j, r = UOp.range(m, 0), UOp.range(n, 1), _reduced(k, 2)
  half, single = dtypes.float16, dtypes.float32
  x, w = read(1, half, m * k, i * k + r), read(2, dtypes.int8, n * k, j * k + r)
  value = (x.cast(single) * w.cast(half).cast(single)).reduce(Ops.ADD, r) * read(3, single, n, j)
  return kernel("dequantised", write(0, single, m * n, i * n + j, value).end(i, j))


_F32, _F16, _BF16, _S8, _S32 = dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.int8, dtypes.int32

STANDARD: Mapping[str, Callable[[], UOp]] = {
  "matmul_float32": lambda: matmul(1024, 1024, 1024, _F32, _F32, _F32),
  "matmul_float16": lambda: matmul(1024, 1024, 1024, _F16, _F32, _F16),
  "matmul_bfloat16": lambda: matmul(4096, 4096, 4096, _BF16, _F32, _BF16),
  "matmul_transposed": lambda: matmul(1024, 1024, 1024, _BF16, _F32, _BF16, transposed=True),
  "matmul_int8": lambda: matmul(1024, 1024, 1024, _S8, _S32, _S32, transposed=True),
  "matmul_odd": lambda: matmul(257, 129, 65, _F16, _F32, _F16),
  "matmul_thin": lambda: matmul(1, 4096, 4096, _F16, _F32, _F16, transposed=True),
  "linear": lambda: linear(512, 2048, 512),
  "dequantised": lambda: dequantised(256, 1024, 1024),
  "causal_values": lambda: causal_values(32, 1024, 64, _BF16),
  "convolution": lambda: convolution(64, 56, 64),
  "softmax": lambda: softmax(512, 1024),
  "layer_norm": lambda: layer_norm(512, 1024),
  "total": lambda: total(1 << 20, _F32),
  "row_sums": lambda: sums(1024, 4096, 1),
  "column_sums": lambda: sums(4096, 1024, 0),
  "elementwise": lambda: elementwise(1 << 24, _F32),
  "elementwise_float16": lambda: elementwise(1 << 24, _F16),
  "gelu": lambda: gelu(1 << 22),
  "transpose": lambda: transpose(2048, 4096),
}
"""Kernels by name."""
