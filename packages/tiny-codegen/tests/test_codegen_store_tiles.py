"""What follows the sums of a register tile: computed and stored by a loop, out of local memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_uop import AddrSpace, DType, KernelInfo, Ops, Opt, OptOps, PtrDType, UOp, dtypes
from tiny_uop.graph import memory_of

TARGET = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+sse4.1")))
WIDE = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl")))
TERMS = 5
TYPES = {dtypes.float32: np.float32, dtypes.float64: np.float64, dtypes.int32: np.int32}


def product(
  rows: int, lanes: int, dtype: DType, sums: int = 1, blocks: int = 1, far: bool = True, apart: int = 1, more: int = 0
) -> UOp:
  """`out[j, i] = max(sum over k of x[i, k]·y[k, j], 0) + old[j, i]·bias[j]`, a tile of rows i and lanes j; with two
  sums the largest product is added, and with `far` false `out[i, j]` is stored. Places are so many elements `apart`,
  and as many times as `more` says 1 is added and the largest of that and 3 taken."""
  wide = rows * blocks
  i, j, k = UOp.range(wide, 0), UOp.range(lanes, 1), UOp.range(TERMS, 2)
  sizes = (wide * lanes * apart, wide * TERMS, TERMS * lanes, wide * lanes * apart, lanes)
  out, x, y, old, bias = [UOp.param(slot, dtype.ptr(size)) for slot, size in enumerate(sizes)]
  place = (j * wide + i if far else i * lanes + j) * apart
  term = x.index(i * TERMS + k).load() * y.index(k * lanes + j).load()
  value = term.reduce(Ops.ADD, k).maximum(UOp.const(dtype, 0)) + old.index(place).load() * bias.index(j).load()
  if sums == 2:
    value = value + term.reduce(Ops.MAX, k)
  for _ in range(more):
    value = (value + 1).maximum(UOp.const(dtype, 3))
  opts = (Opt(OptOps.VECTOR, 1, lanes), Opt(OptOps.UPCAST, 0, rows))
  return UOp.sink(out.index(place).store(value).end(i, j), arg=KernelInfo("product", opts))


@pytest.mark.parametrize(
  ("rows", "lanes", "sums", "blocks", "far", "apart", "more"),
  [
    (8, 16, 1, 1, True, 1, 0),
    (7, 32, 2, 2, True, 1, 0),
    (12, 16, 1, 3, True, 1, 0),
    (16, 16, 1, 2, True, 1, 0),
    (16, 32, 2, 1, True, 1, 0),
    (4, 24, 1, 1, True, 1, 0),
    (3, 32, 1, 1, True, 1, 0),
    (7, 16, 1, 2, True, 3, 0),
    (6, 8, 2, 1, True, 3, 1),
    (6, 16, 2, 2, False, 1, 9),
  ],
)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_values(
  rows: int, lanes: int, sums: int, blocks: int, far: bool, apart: int, more: int, dtype: DType, run_kernel: Any
) -> None:
  rng, kind, wide = np.random.default_rng(0), TYPES[dtype], rows * blocks
  shapes = ((wide, TERMS), (TERMS, lanes), (lanes, wide), (lanes, 1))
  x, y, old, bias = [rng.integers(-9, 9, shape).astype(kind) for shape in shapes]
  expected = np.maximum(x @ y, 0).T + old * bias
  if sums == 2:
    expected += (x[:, :, None] * y[None]).max(1).T
  for _ in range(more):
    expected = np.maximum(expected + 1, 3)
  memory = [np.zeros((wide * lanes, apart), kind) for _ in range(2)]
  memory[1][:, 0] = (old if far else old.T).reshape(-1)
  kernel = product(rows, lanes, dtype, sums, blocks, far, apart, more)
  (got, *_) = run_kernel(kernel, (memory[0], x, y, memory[1], bias))
  got = got.reshape(wide * lanes, apart)
  np.testing.assert_array_equal(
    got[:, 0].reshape((lanes, wide) if far else (wide, lanes)), expected if far else expected.T
  )
  assert not got[:, 1:].any()


def kept(kernel: UOp, renderer: LLVMRenderer = TARGET) -> list[int]:
  """Elements of the buffers in local memory of a kernel's program."""
  linear = compile_kernel(kernel, renderer).src[1].toposort
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
  ("kernel", "written"),
  [
    (product(3, 32, dtypes.float32), 8),  # of each row 4 blocks
    (product(8, 8, dtypes.float32, apart=2), 8),  # of each row
    (product(8, 32, dtypes.float32, far=False, more=9), 1),
  ],
  ids=["few rows", "nothing adjacent", "much to compute"],
)
def test_rows_that_are_not_transposed_become_a_loop(kernel: UOp, written: int) -> None:
  assert kept(kernel) and stores(kernel) == written


@pytest.mark.parametrize(
  "kernel",
  [
    product(8, 32, dtypes.float32, far=False),  # lanes that are neighbours
    product(8, 8, dtypes.float32),  # as many lanes as are stored at a time
  ],
  ids=["near", "one block"],
)
def test_others_are_stored_from_registers(kernel: UOp) -> None:
  assert kept(kernel) == []


@pytest.mark.parametrize(("rows", "lanes", "memory"), [(16, 16, []), (16, 32, [512]), (12, 16, [192])])
def test_rows_that_are_whole_vectors_are_transposed_in_one_square(rows: int, lanes: int, memory: list[int]) -> None:
  kernel = product(rows, lanes, dtypes.float32)
  assert kept(kernel, WIDE) == memory
  linear = compile_kernel(kernel, WIDE).src[1].toposort
  written = [u.src[1].dtype.count for u in linear if u.op is Ops.STORE and memory_of(u.src[0]).op is Ops.PARAM]
  assert sorted(written) == ([16] * 16 if rows == 16 else [4] * 8 + [8] * 8)
