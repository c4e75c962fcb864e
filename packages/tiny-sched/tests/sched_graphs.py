"""Graphs that several tests of the scheduler begin with."""

from __future__ import annotations

import numpy as np

from tiny_uop import DType, Ops, UOp, dtypes


def new(*shape: int, dtype: DType = dtypes.float32) -> UOp:
  return UOp.new_buffer("CPU", int(np.prod(shape)), dtype).reshape(shape)


def stored(x: UOp) -> UOp:
  return new(*[int(s) for s in x.shape], dtype=x.dtype).assign(x)


def total(x: UOp, *axes: int) -> UOp:
  return x.reduce_axes(Ops.ADD, axes)


def arange(n: int, dtype: DType = dtypes.int32) -> UOp:
  """A running sum of ones over windows, as a frontend without an iota makes it."""
  ones = UOp.const(dtype, 1, (n,)).pad(((n - 1, 0),))
  size = 2 * n - 1
  rows = (
    ones.reshape((1, size))
    .expand((n + 1, size))
    .reshape(((n + 1) * size,))
    .shrink(((0, 2 * n * n),))
    .reshape((n, 2 * n))
  )
  return total(rows.shrink(((0, n), (0, n))), 1).reshape((n,)) + -1


def one_hot(idx: UOp, n: int) -> UOp:
  m = int(idx.shape[0])
  return idx.reshape((m, 1)).expand((m, n)).eq(arange(n, idx.dtype).reshape((1, n)).expand((m, n)))


def gather(table: UOp, idx: UOp) -> UOp:
  (n, d), m = table.shape, idx.shape[0]
  hot = one_hot(idx, int(n)).reshape((m, n, 1)).expand((m, n, d))
  return total(hot.where(table.reshape((1, n, d)).expand((m, n, d)), 0.0), 1).reshape((m, d))
