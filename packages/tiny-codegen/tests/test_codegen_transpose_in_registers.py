"""Tiles whose rows are adjacent in memory and whose lanes are not: the values and the accesses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_uop import DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

TARGET = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+sse4.1")))
TYPES = {dtypes.float32: np.float32, dtypes.int8: np.int8, dtypes.float64: np.float64, dtypes.bool: np.bool_}


def turned(rows: int, lanes: int, dtype: DType, opts: tuple[Opt, ...], padded: int = 0) -> UOp:
  """`out[j, i] = not x[i, j] or y[j, i]`, or their sum; the first `padded` of x's columns count as zero."""
  i, j = UOp.range(rows, 0), UOp.range(lanes, 1)
  x, y = (UOp.param(slot, dtype.ptr(rows * lanes)) for slot in (1, 2))
  gate = (j < padded).ne(True) if padded else None
  left = x.index(i * lanes + j, gate).load(UOp.const(dtype, 0) if padded else None)
  right = y.index(j * rows + i).load()
  value = left.ne(True) | right if dtype is dtypes.bool else left + right
  out = UOp.param(0, dtype.ptr(rows * lanes)).index(j * rows + i).store(value).end(i, j)
  return UOp.sink(out, arg=KernelInfo("turned", opts))


@pytest.mark.parametrize(("rows", "lanes"), [(4, 4), (7, 8), (8, 32), (11, 16), (16, 8), (3, 16), (32, 4), (16, 32)])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_values(rows: int, lanes: int, dtype: DType, run_kernel: Any) -> None:
  rng, kind = np.random.default_rng(0), TYPES[dtype]
  x, y = rng.integers(0, 100, (rows, lanes)), rng.integers(0, 2, (lanes, rows))
  x, y = (x > 50 if dtype is dtypes.bool else x).astype(kind), y.astype(kind)
  for padded in (0, 2):
    zeroed = np.where(np.arange(lanes) < padded, np.zeros_like(x), x)
    expected = ~zeroed.T | y if dtype is dtypes.bool else zeroed.T + y
    kernel = turned(rows, lanes, dtype, (Opt(OptOps.VECTOR, 1, lanes), Opt(OptOps.UPCAST, 0, rows)), padded)
    (got, *_) = run_kernel(kernel, (np.zeros((lanes, rows), kind), x, y))
    np.testing.assert_array_equal(got.reshape(lanes, rows), expected)


@pytest.mark.parametrize(("rows", "widths"), [(8, {8}), (7, {1, 2, 4}), (12, {4, 8}), (3, {1})])
def test_rows_are_read_and_written_together(rows: int, widths: set[int]) -> None:
  """Only x is read along the lanes; y and the result are vectors of rows, of powers of two."""
  kernel = turned(rows, 16, dtypes.float32, (Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.UPCAST, 0, rows)))
  linear = compile_kernel(kernel, TARGET).src[1].toposort
  stored = {u.src[1].dtype.count for u in linear if u.op is Ops.STORE}
  read = {
    u.dtype.count for u in linear if u.op is Ops.LOAD and any(p.op is Ops.PARAM and p.arg == 2 for p in u.toposort)
  }
  assert stored == read == widths


@pytest.mark.parametrize(("phases", "widths"), [(2, {32}), (3, {1})])
def test_lanes_of_two_rows_are_written_by_turns(phases: int, widths: set[int], run_kernel: Any) -> None:
  """`out[phases * i + p] = x[i] * w[p]`, lanes of i."""
  i, p = UOp.range(16, 0), UOp.range(phases, 1)
  x, w = UOp.param(1, dtypes.float32.ptr(16)).index(i).load(), UOp.param(2, dtypes.float32.ptr(phases)).index(p).load()
  out = UOp.param(0, dtypes.float32.ptr(16 * phases)).index(i * phases + p).store(x * w).end(i, p)
  kernel = UOp.sink(out, arg=KernelInfo("turns", (Opt(OptOps.VECTOR, 0, 16), Opt(OptOps.UPCAST, 1, phases))))
  stores = [u for u in compile_kernel(kernel, TARGET).src[1].toposort if u.op is Ops.STORE]
  assert {u.src[1].dtype.count for u in stores} == widths
  left, right = np.arange(16, dtype=np.float32), np.arange(1, phases + 1, dtype=np.float32)
  (got, *_) = run_kernel(kernel, (np.zeros(16 * phases, np.float32), left, right))
  np.testing.assert_array_equal(got.reshape(16, phases), np.outer(left, right))
