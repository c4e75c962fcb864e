"""Programs run as machine code and compared with NumPy."""

from __future__ import annotations

from typing import Any

import pytest
from codegen_kernels import CASES, check

from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_uop import Context, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

TILED = frozenset({OptOps.VECTOR, OptOps.UPCAST, OptOps.UNROLL, OptOps.STAGE, OptOps.THREAD})


@pytest.mark.parametrize("name", CASES)
def test_without_optimisations(name: str, run_kernel: Any) -> None:
  case = CASES[name]()
  with Context(NOOPT=1, SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays))


@pytest.mark.parametrize("name", CASES)
def test_with_heuristics(name: str, run_kernel: Any) -> None:
  case = CASES[name]()
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays))


@pytest.mark.parametrize("size", [8192, 10007, 20480, 33333])
def test_pieces_of_large_odd_sizes(size: int, run_kernel: Any) -> None:
  """Threads get blocks, the last of which is partial: whole vectors run without gates, the rest once."""
  case = CASES["elementwise"](1, size)
  for pieces in (1, 3, 7):
    check(case, run_kernel(case.kernel, case.arrays, pieces=pieces))


@pytest.mark.parametrize(
  ("name", "sizes", "expected"),
  [
    ("matmul", (192, 576, 512), {*TILED, OptOps.SWAP}),
    ("matmul", (130, 547, 512), {*TILED, OptOps.SWAP, OptOps.PADTO}),
    ("linear", (33, 64, 200), {*TILED, OptOps.SWAP, OptOps.PADTO}),
    ("transpose", (64, 72), {OptOps.PADTO, OptOps.SWAP, OptOps.UPCAST, OptOps.VECTOR}),
    ("convolution", (16, 17, 8), {*TILED, OptOps.PADTO} - {OptOps.STAGE}),
    ("softmax", (64, 777), {OptOps.STAGE, OptOps.PADTO, OptOps.VECTOR, OptOps.THREAD}),
  ],
)
def test_choices_for_large_kernels(
  name: str, sizes: tuple[int, ...], expected: set[OptOps], run_kernel: Any, renderer: Any
) -> None:
  """What the heuristics choose on a processor with wide vectors, and that it is right."""
  case = CASES[name](*sizes)
  wide = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")))
  opts = compile_kernel(case.kernel, wide).src[1].arg.opts
  assert expected == {o.op for o in opts}
  for pieces in (1, 3):
    check(case, run_kernel(case.kernel, case.arrays, opts, pieces=pieces))


def test_offsets_beyond_int32(renderer: Any) -> None:
  """index becomes int64 where a buffer has more than 2**31 elements; only there, unless the target has all so."""
  for rows, wide in ((1 << 10, False), (1 << 22, True)):
    i, j = UOp.range(rows, 0), UOp.range(1024, 1)
    out = UOp.param(0, dtypes.float32.ptr(rows * 1024)).index(j * rows + i).store(1.0).end(i, j)
    program = compile_kernel(UOp.sink(out, arg=KernelInfo("fill")), renderer, [])
    types = {u.dtype for u in program.src[1].src if u.op in (Ops.ADD, Ops.MUL, Ops.SHL, Ops.RANGE)}
    assert (dtypes.int64 in types) is (wide or renderer.target.wide_offsets)
    assert (dtypes.int32 in types) is not renderer.target.wide_offsets


@pytest.mark.parametrize("size", [3, 11, 24])
@pytest.mark.parametrize("tile", [(0,), (1,), (0, 1)])
def test_padded_loops_that_fill_near_memory(size: int, tile: tuple[int, ...], run_kernel: Any) -> None:
  """Peeling parts the memory that an iteration fills and reads, but not what the loop fills as a whole."""
  case = CASES["reduce_columns"](5, size)
  for axis in (0, 1):
    opts = [Opt(OptOps.PADTO, axis, 2), Opt(OptOps.VECTOR, axis, 2), Opt(OptOps.STAGE, 1, tile)]
    check(case, run_kernel(case.kernel, case.arrays, opts))


@pytest.mark.parametrize(
  "dtype", [dtypes.float16, dtypes.float64, dtypes.int8, dtypes.uint8, dtypes.int64, dtypes.bool]
)
@pytest.mark.parametrize("opts", [None, ()])
def test_dtypes(dtype: DType, opts: tuple[Opt, ...] | None, run_kernel: Any) -> None:
  for case in (CASES["elementwise"](3, 77, dtype), CASES["reduce_rows"](5, 77, Ops.MAX, dtype)):
    check(case, run_kernel(case.kernel, case.arrays, opts))


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX])
@pytest.mark.parametrize("columns", [2, 31, 64, 100])
def test_reductions(op: Ops, columns: int, run_kernel: Any) -> None:
  case = CASES["reduce_rows"](4, columns, op)
  check(case, run_kernel(case.kernel, case.arrays))
  check(case, run_kernel(case.kernel, case.arrays, [Opt(OptOps.PADTO, 1, 8), Opt(OptOps.VECTOR, 1, 8)]))


def test_part_of_a_padded_loop_that_shares_near_memory(run_kernel: Any) -> None:
  """Blocks of a padded loop, of which only the last has a partial one: no other reads past what was packed for it."""
  opts = (
    Opt(OptOps.PADTO, 1, 16), Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.SPLIT, 1, 3), Opt(OptOps.SWAP, 0, 1),
    Opt(OptOps.STAGE, 2, (4, 2)),
  )  # fmt: skip
  case = CASES["matmul"](5, 137, 40)
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays, opts))
