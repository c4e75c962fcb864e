"""Kernels that tests run, each with inputs and what NumPy gives for them. Made as the scheduler makes them: PARAM 0
is the output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiny_uop import AxisType, DType, KernelInfo, Ops, UOp, dtypes

Array = np.ndarray[Any, Any]
NUMPY = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "int32": np.int32, "int8": np.int8,
"int64": np.int64, "uint8": np.uint8,
         "bool": np.bool_}  # fmt: skip


@dataclass(frozen=True)
class Case:
  """A kernel, the arrays it runs on (slot 0 is the output, filled with garbage) and what the output has to be."""

  kernel: UOp
  arrays: tuple[Array, ...]
  expected: Array
  tolerance: float = 1e-5

  def __repr__(self) -> str:
    return f"Case({self.kernel.arg.name}, {', '.join(str(a.shape) for a in self.arrays)})"


def param(slot: int, size: int, dtype: DType = dtypes.float32) -> UOp:
  return UOp.param(slot, dtype.ptr(size))


def loop(size: int | UOp, id: int) -> UOp:
  return UOp.range(size, id)


def over(size: int | UOp, id: int) -> UOp:
  return UOp.range(size, id, AxisType.REDUCE)


def kernel(*effects: UOp) -> UOp:
  """A kernel with the name of the function that makes it."""
  return UOp.sink(*effects, arg=KernelInfo(sys._getframe(1).f_code.co_name))


def data(*shape: int, dtype: DType = dtypes.float32, seed: int = 0) -> Array:
  random = np.random.default_rng(seed)
  if dtype.kind == "float":
    return random.standard_normal(shape).astype(NUMPY[dtype.name])
  return random.integers(0, 2 if dtype.kind == "bool" else 50, shape).astype(NUMPY[dtype.name])


def garbage(*shape: int, dtype: DType = dtypes.float32) -> Array:
  return np.full(shape, 77, dtype=NUMPY[dtype.name])


def elementwise(rows: int = 5, columns: int = 24, dtype: DType = dtypes.float32) -> Case:
  i, j = loop(rows, 0), loop(columns, 1)
  size = rows * columns
  a, b = param(1, size, dtype).index(i * columns + j).load(), param(2, size, dtype).index(i * columns + j).load()
  out = param(0, size, dtype).index(i * columns + j).store(a * b + a).end(i, j)
  x, y = data(rows, columns, dtype=dtype), data(rows, columns, dtype=dtype, seed=1)
  return Case(kernel(out), (garbage(rows, columns, dtype=dtype), x, y), x * y + x, 1e-2 if dtype.bits == 16 else 1e-5)


def broadcast_bias(rows: int = 6, columns: int = 20) -> Case:
  i, j = loop(rows, 0), loop(columns, 1)
  value = param(1, rows * columns).index(i * columns + j).load() + param(2, rows).index(i).load()
  out = param(0, rows * columns).index(i * columns + j).store(value.maximum(value.const_like(0.0))).end(i, j)
  x, y = data(rows, columns), data(rows, seed=1)
  return Case(kernel(out), (garbage(rows, columns), x, y), np.maximum(x + y[:, None], 0))


def transpose(rows: int = 8, columns: int = 12) -> Case:
  i, j = loop(rows, 0), loop(columns, 1)
  out = (
    param(0, rows * columns).index(i * columns + j).store(param(1, rows * columns).index(j * rows + i).load()).end(i, j)
  )
  x = data(columns, rows)
  return Case(kernel(out), (garbage(rows, columns), x), x.T)


def flip(rows: int = 3, columns: int = 16) -> Case:
  i, j = loop(rows, 0), loop(columns, 1)
  out = (
    param(0, rows * columns)
    .index(i * columns + j)
    .store(param(1, rows * columns).index(i * columns + (j * -1 + (columns - 1))).load())
    .end(i, j)
  )
  x = data(rows, columns)
  return Case(kernel(out), (garbage(rows, columns), x), x[:, ::-1])


def pad(size: int = 21, before: int = 3, after: int = 4) -> Case:
  i = loop(before + size + after, 0)
  valid = (i >= before) & (i < before + size)
  out = param(0, before + size + after).index(i).store(param(1, size).index(i + -before, valid).load() + 1.0).end(i)
  x = data(size)
  return Case(kernel(out), (garbage(before + size + after), x), np.pad(x, (before, after)) + 1)


def pad_with(size: int = 19) -> Case:
  """A gated load with another alternative than 0, into an output that is gated too."""
  i = loop(size + 5, 0)
  value = param(1, size).index(i, i < size).load(UOp.const(dtypes.float32, -2.5))
  out = param(0, size + 5).index(i, i >= 2).store(value).end(i)
  x = data(size)
  expected = np.concatenate([x, np.full(5, -2.5, np.float32)])
  expected[:2] = 77
  return Case(kernel(out), (garbage(size + 5), x), expected)


def arange(size: int = 24) -> Case:
  i = loop(size, 0)
  out = param(0, size, dtypes.int32).index(i).store((i * 3 + 1).cast(dtypes.int32)).end(i)
  return Case(kernel(out), (garbage(size, dtype=dtypes.int32),), np.arange(size, dtype=np.int32) * 3 + 1)


def gather(size: int = 24, table: int = 10) -> Case:
  i = loop(size, 0)
  index = param(2, size, dtypes.int32).index(i).load().cast(dtypes.index)
  out = param(0, size).index(i).store(param(1, table).index(index, (index >= 0) & (index < table)).load()).end(i)
  x, at = data(table), np.random.default_rng(3).integers(0, table, size).astype(np.int32)
  return Case(kernel(out), (garbage(size), x, at), x[at])


def reduce_rows(rows: int = 7, columns: int = 32, op: Ops = Ops.ADD, dtype: DType = dtypes.float32) -> Case:
  i, k = loop(rows, 0), over(columns, 1)
  value = param(1, rows * columns, dtype).index(i * columns + k).load().reduce(op, k)
  out = param(0, rows, dtype).index(i).store(value).end(i)
  x = data(rows, columns, dtype=dtype)
  if op is Ops.MUL:
    x = (1 + x / 8).astype(x.dtype)
  combined: Any = {Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.MAX: np.maximum}[op].reduce(x, axis=1)
  return Case(kernel(out), (garbage(rows, dtype=dtype), x), combined.astype(x.dtype), 1e-4)


def reduce_columns(rows: int = 9, columns: int = 32) -> Case:
  i, k = loop(columns, 0), over(rows, 1)
  out = (
    param(0, columns).index(i).store(param(1, rows * columns).index(k * columns + i).load().reduce(Ops.ADD, k)).end(i)
  )
  x = data(rows, columns)
  return Case(kernel(out), (garbage(columns), x), x.sum(0), 1e-4)


def reduce_all(rows: int = 6, columns: int = 20) -> Case:
  """Two REDUCE loops, no output loop."""
  i, k = over(rows, 0), over(columns, 1)
  x = param(1, rows * columns).index(i * columns + k).load()
  out = param(0, 1).index(0).store((x * x).reduce(Ops.ADD, i, k))
  values = data(rows, columns)
  return Case(kernel(out), (garbage(1), values), np.array([(values * values).sum()]), 1e-4)


def matmul(m: int = 8, n: int = 32, k: int = 12) -> Case:
  i, j, r = loop(m, 0), loop(n, 1), over(k, 2)
  product = param(1, m * k).index(i * k + r).load() * param(2, k * n).index(r * n + j).load()
  out = param(0, m * n).index(i * n + j).store(product.reduce(Ops.ADD, r)).end(i, j)
  a, b = data(m, k), data(k, n, seed=1)
  return Case(kernel(out), (garbage(m, n), a, b), a @ b, 1e-4)


def linear(m: int = 6, n: int = 10, k: int = 32) -> Case:
  """x @ w.T + bias, then relu: the reduction is over the adjacent axis of both operands."""
  i, j, r = loop(m, 0), loop(n, 1), over(k, 2)
  product = param(1, m * k).index(i * k + r).load() * param(2, n * k).index(j * k + r).load()
  value = product.reduce(Ops.ADD, r) + param(3, n).index(j).load()
  out = param(0, m * n).index(i * n + j).store(value.maximum(value.const_like(0.0))).end(i, j)
  x, w, bias = data(m, k), data(n, k, seed=1), data(n, seed=2)
  return Case(kernel(out), (garbage(m, n), x, w, bias), np.maximum(x @ w.T + bias, 0), 1e-4)


def softmax(rows: int = 5, columns: int = 24) -> Case:
  """Two reductions, the second of which needs the first, in one row loop; both name the same RANGE."""
  i, c = loop(rows, 0), loop(columns, 1)
  x = param(1, rows * columns).index(i * columns + c).load()
  k = over(columns, 2)
  again = param(1, rows * columns).index(i * columns + k).load()
  most = again.reduce(Ops.MAX, k)
  total = (again - most).exp().reduce(Ops.ADD, k)
  out = param(0, rows * columns).index(i * columns + c).store((x - most).exp() / total).end(i, c)
  values = data(rows, columns)
  e = np.exp(values - values.max(1, keepdims=True))
  return Case(kernel(out), (garbage(rows, columns), values), e / e.sum(1, keepdims=True), 1e-5)


def layer_norm(rows: int = 4, columns: int = 20) -> Case:
  """Sum and sum of squares share one loop."""
  i, c, k = loop(rows, 0), loop(columns, 1), over(columns, 2)
  x, again = (param(1, rows * columns).index(i * columns + r).load() for r in (c, k))
  mean = again.reduce(Ops.ADD, k) * (1 / columns)
  square = (again * again).reduce(Ops.ADD, k) * (1 / columns)
  value = (x - mean) / (square - mean * mean + 1e-5).sqrt()
  out = param(0, rows * columns).index(i * columns + c).store(value).end(i, c)
  v = data(rows, columns)
  expected = (v - v.mean(1, keepdims=True)) / np.sqrt(
    (v * v).mean(1, keepdims=True) - v.mean(1, keepdims=True) ** 2 + 1e-5
  )
  return Case(kernel(out), (garbage(rows, columns), v), expected, 1e-4)


def convolution(channels: int = 3, size: int = 8, filters: int = 4) -> Case:
  """3×3, padded: gates inside the reduction."""
  f, y, x = loop(filters, 0), loop(size, 1), loop(size, 2)
  c, ky, kx = over(channels, 3), over(3, 4), over(3, 5)
  row, column = y + ky + -1, x + kx + -1
  inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
  image = param(1, channels * size * size).index((c * size + row) * size + column, inside).load()
  weight = param(2, filters * channels * 9).index(((f * channels + c) * 3 + ky) * 3 + kx).load()
  value = (image * weight).reduce(Ops.ADD, c, ky, kx)
  out = param(0, filters * size * size).index((f * size + y) * size + x).store(value).end(f, y, x)
  a, w = data(channels, size, size), data(filters, channels, 3, 3, seed=1)
  padded = np.pad(a, ((0, 0), (1, 1), (1, 1)))
  windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
  return Case(kernel(out), (garbage(filters, size, size), a, w), np.einsum("cyxkl,fckl->fyx", windows, w), 1e-4)


def argmax(rows: int = 4, columns: int = 20) -> Case:
  i, k = loop(rows, 0), over(columns, 1)
  x = param(1, rows * columns).index(i * columns + k).load()
  most = x.reduce(Ops.MAX, k)
  place = x.eq(most).where((k * -1 + columns).cast(dtypes.int32), UOp.const(dtypes.int32, 0)).reduce(Ops.MAX, k)
  out = param(0, rows, dtypes.int32).index(i).store(place * -1 + columns).end(i)
  v = data(rows, columns)
  return Case(kernel(out), (garbage(rows, dtype=dtypes.int32), v), v.argmax(1).astype(np.int32))


def two_outputs(size: int = 40) -> Case:
  """PARAM 0 is overwritten in place, and PARAM 1 gets what it was before."""
  i = loop(size, 0)
  old = param(0, size).index(i).load()
  first = param(0, size).index(i).store(old * 2.0).end(i)
  second = param(1, size).index(i).store(old + 1.0).end(i)
  x = data(size)
  return Case(kernel(first, second), (x, garbage(size)), x * 2)


def scalar() -> Case:
  """No loops at all."""
  out = param(0, 1).index(0).store(param(1, 1).index(0).load() * 3.0)
  x = data(1)
  return Case(kernel(out), (garbage(1), x), x * 3)


def integers(rows: int = 3, columns: int = 24) -> Case:
  i, j = loop(rows, 0), loop(columns, 1)
  a = param(1, rows * columns, dtypes.int32).index(i * columns + j).load()
  b = param(2, columns, dtypes.int32).index(j).load() - 25
  value = (a // b) * 100 + a % b
  out = param(0, rows * columns, dtypes.int32).index(i * columns + j).store(value).end(i, j)
  x, y = data(rows, columns, dtype=dtypes.int32), data(columns, dtype=dtypes.int32, seed=1)
  with np.errstate(divide="ignore"):
    return Case(kernel(out), (garbage(rows, columns, dtype=dtypes.int32), x, y), (x // (y - 25)) * 100 + x % (y - 25))


def mixed_widths(size: int = 48) -> Case:
  """int8 in, float32 out, with a bool in between."""
  i = loop(size, 0)
  a = param(1, size, dtypes.int8).index(i).load()
  value = (a < 20).where(a.cast(dtypes.float32) * 0.5, UOp.const(dtypes.float32, -1.0))
  out = param(0, size).index(i).store(value).end(i)
  x = data(size, dtype=dtypes.int8)
  return Case(kernel(out), (garbage(size), x), np.where(x < 20, x.astype(np.float32) * 0.5, -1))


def any_of(rows: int = 5, columns: int = 24) -> Case:
  i, k = loop(rows, 0), over(columns, 1)
  value = (param(1, rows * columns, dtypes.int32).index(i * columns + k).load() < 2).reduce(Ops.MAX, k)
  out = param(0, rows, dtypes.bool).index(i).store(value).end(i)
  x = data(rows, columns, dtype=dtypes.int32)
  return Case(kernel(out), (garbage(rows, dtype=dtypes.bool), x), np.asarray((x < 2).any(1)))


def hinted(rows: int = 6, columns: int = 20) -> Case:
  """Each row asks for the next one, the last for one behind the memory; the first, too, for where it stores."""
  i, j = loop(rows, 0), loop(columns, 1)
  size, first = rows * columns, i * columns
  x, out = param(1, size), param(0, size)
  hints = (
    x.index(first + columns).prefetch(level=2),
    out.index(first, i < 1).prefetch("write", otherwise=x.index(first)),
  )
  store = out.index(first + j).store(x.index(first + j).load() * 2.0).end(j)
  a = data(rows, columns)
  return Case(kernel(UOp.group(store, *hints).end(i)), (garbage(rows, columns), a), a * 2)


CASES: dict[str, Callable[..., Case]] = {
  f.__name__: f
  for f in (
    elementwise, broadcast_bias, transpose, flip, pad, pad_with, arange, gather, reduce_rows, reduce_columns,
    reduce_all, matmul, linear, softmax, layer_norm, convolution, argmax, two_outputs, scalar, integers, mixed_widths,
    any_of, hinted,
  )
}  # fmt: skip


def check(case: Case, results: Sequence[Array]) -> None:
  """The output is what NumPy gives, and inputs are as they were."""
  np.testing.assert_allclose(results[0], case.expected, rtol=case.tolerance, atol=case.tolerance)
