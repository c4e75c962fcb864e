"""Sums of a register tile whose lanes lie far apart in memory: stored by a loop, out of local memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_uop import AddrSpace, DType, KernelInfo, Ops, Opt, OptOps, PtrDType, UOp, dtypes
from tiny_uop.graph import memory_of

TARGET = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+sse4.1")))
TERMS = 5
TYPES = {dtypes.float32: np.float32, dtypes.float64: np.float64, dtypes.int32: np.int32}


def product(rows: int, lanes: int, dtype: DType, sums: int = 1, blocks: int = 1, far: bool = True) -> UOp:
  """`out[j, i] = max(sum over k of x[i, k]·y[k, j], 0) + old[j, i]·bias[j]`, a tile of rows i and lanes j; with two
  sums the largest product is added, and with `far` false `out[i, j]` is stored."""
  wide = rows * blocks
  i, j, k = UOp.range(wide, 0), UOp.range(lanes, 1), UOp.range(TERMS, 2)
  sizes = (wide * lanes, wide * TERMS, TERMS * lanes, wide * lanes, lanes)
  out, x, y, old, bias = [UOp.param(slot, dtype.ptr(size)) for slot, size in enumerate(sizes)]
  place = j * wide + i if far else i * lanes + j
  term = x.index(i * TERMS + k).load() * y.index(k * lanes + j).load()
  value = term.reduce(Ops.ADD, k).maximum(UOp.const(dtype, 0)) + old.index(place).load() * bias.index(j).load()
  if sums == 2:
    value = value + term.reduce(Ops.MAX, k)
  opts = (Opt(OptOps.VECTOR, 1, lanes), Opt(OptOps.UPCAST, 0, rows))
  return UOp.sink(out.index(place).store(value).end(i, j), arg=KernelInfo("product", opts))


@pytest.mark.parametrize(
  ("rows", "lanes", "sums", "blocks"), [(8, 16, 1, 1), (7, 32, 2, 2), (12, 16, 1, 3), (4, 24, 1, 1), (3, 32, 1, 1)]
)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_values(rows: int, lanes: int, sums: int, blocks: int, dtype: DType, run_kernel: Any) -> None:
  rng, kind, wide = np.random.default_rng(0), TYPES[dtype], rows * blocks
  x, y, old, bias = [
    rng.integers(-9, 9, shape).astype(kind) for shape in ((wide, TERMS), (TERMS, lanes), (lanes, wide), (lanes, 1))
  ]
  expected = np.maximum(x @ y, 0).T + old * bias
  if sums == 2:
    expected += (x[:, :, None] * y[None]).max(1).T
  kernel = product(rows, lanes, dtype, sums, blocks)
  (got, *_) = run_kernel(kernel, (np.zeros((lanes, wide), kind), x, y, old, bias))
  np.testing.assert_array_equal(got.reshape(lanes, wide), expected)


def kept(kernel: UOp) -> list[int]:
  """Elements of the buffers in local memory of a kernel's program."""
  linear = compile_kernel(kernel, TARGET).src[1].toposort
  types = [u.dtype for u in linear if u.op is Ops.ALLOC]
  return [t.size for t in types if isinstance(t, PtrDType) and t.space is AddrSpace.LOCAL]


def stores(kernel: UOp, *skip: str) -> int:
  """Instructions of a kernel's program that store results."""
  linear = compile_kernel(kernel, TARGET, skip=skip).src[1].toposort
  return sum(u.op is Ops.STORE and memory_of(u.src[0]).op is Ops.PARAM for u in linear)


@pytest.mark.parametrize("sums", [1, 2])
def test_a_loop_stores_it_out_of_local_memory(sums: int) -> None:
  kernel = product(8, 32, dtypes.float32, sums)
  assert kept(kernel) == [8 * 32] * sums
  assert (stores(kernel), stores(kernel, "store_tiles")) == (8, 32)


@pytest.mark.parametrize(
  "kernel",
  [
    product(8, 32, dtypes.float32, far=False),  # lanes that are neighbours
    product(8, 8, dtypes.float32),  # as many lanes as are stored at a time
    product(3, 32, dtypes.float32),  # rows that are transposed by nothing
  ],
  ids=["near", "one block", "few rows"],
)
def test_others_are_stored_from_registers(kernel: UOp) -> None:
  assert kept(kernel) == []
