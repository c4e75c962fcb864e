"""Copies that are read along one loop and written along another, and stores that go past the caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from codegen_kernels import CASES, Case, check, data, garbage, param

from tiny_codegen import LLVMRenderer, build_program, cpu_target
from tiny_codegen.kernel.expressions import divisor
from tiny_codegen.lower import stream_stores
from tiny_codegen.opt.beam import before_opts
from tiny_codegen.opt.vectors import choose_opts
from tiny_codegen.target import KEPT
from tiny_uop import Context, KernelInfo, Opt, OptOps, UOp, dtypes

HOST = LLVMRenderer(cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")))


def turned(images: int, rows: int, columns: int, add: bool = False) -> Case:
  """out[n, i, j] = x[n, j, i] * 2, to which y[n, i, j] may be added."""
  size = images * rows * columns
  n, i, j = UOp.range(images, 0), UOp.range(rows, 1), UOp.range(columns, 2)
  here, there = (n * rows + i) * columns + j, (n * columns + j) * rows + i
  value = param(1, size).index(there).load() * 2.0
  x = data(images, columns, rows)
  expected, arrays = np.swapaxes(x, 1, 2) * np.float32(2), [garbage(images, rows, columns), x]
  if add:
    value, y = value + param(2, size).index(here).load(), data(images, rows, columns, seed=1)
    expected, arrays = expected + y, [*arrays, y]
  kernel = UOp.sink(param(0, size).index(here).store(value).end(n, i, j), arg=KernelInfo("turned"))
  return Case(kernel, tuple(arrays), expected)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(
  "shape", [(1, 64, 48), (2, 256, 40), (3, 16, 300), (1, 67, 133), (2, 8, 8), (1, 300, 4), (1, 7, 64), (2, 65, 12)]
)
def test_results(shape: tuple[int, int, int], add: bool, run_kernel: Any) -> None:
  case = turned(*shape, add)
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays))


def test_squares_are_chosen() -> None:
  root = before_opts(turned(2, 1024, 512).kernel)
  opts = choose_opts(root, HOST.target)
  assert [o.op for o in opts if o.op is not OptOps.MERGE] == [
    OptOps.SPLIT, OptOps.UPCAST, OptOps.VECTOR, OptOps.THREAD
  ]  # fmt: skip
  assert [o.arg for o in opts[:3]] == [512, 16, 16]
  odd = choose_opts(before_opts(turned(1, 67, 133).kernel), HOST.target)
  assert {Opt(OptOps.PADTO, 1, 16), Opt(OptOps.PADTO, 2, 16)} <= set(odd)
  # what is read and written along the same loop is no such copy, nor is a reduction
  for name in ("elementwise", "reduce_rows", "softmax", "pad"):
    assert all(o.op is not OptOps.SPLIT for o in choose_opts(before_opts(CASES[name]().kernel), HOST.target))


# *** streaming stores ***


def copy(size: int, dtype: Any = dtypes.float32, in_place: bool = False) -> UOp:
  i = UOp.range(size, 0)
  source = UOp.param(0 if in_place else 1, dtype.ptr(size))
  return UOp.sink(UOp.param(0, dtype.ptr(size)).index(i).store(source.index(i).load() + 1).end(i), arg=KernelInfo("c"))


def source(kernel: UOp, renderer: LLVMRenderer = HOST) -> str:
  return str(build_program(kernel, renderer).src[2].arg)


def test_who_streams() -> None:
  large = KEPT // 8 + 64
  text = source(copy(large))
  assert text.count("!nontemporal") == text.count("; streamed") > 0 and "sfence" in text
  assert "align 64, !nontemporal !0" in text and "@c.body.aligned(" in text
  for kernel in (copy(KEPT // 8), copy(large, in_place=True)):
    assert "nontemporal" not in source(kernel), "small, or read before it is written"
  for target in ("aarch64-linux", ""):
    assert "nontemporal" not in source(copy(large), LLVMRenderer(cpu_target(target)))


def test_rows_that_are_no_whole_lines_do_not_stream() -> None:
  assert "nontemporal" in source(turned(1, 4096, 2048).kernel)
  assert "nontemporal" not in source(turned(1, 4096, 2052).kernel)


def test_factor() -> None:
  i, j, n = UOp.range(9, 0), UOp.range(9, 1), UOp.variable("n", 1, 9)
  assert divisor(i * 48 + j * 32) == 16 and divisor(i * 48 + j) == 1 and divisor((i * 4 + n * 6) * 8) == 16
  assert divisor(UOp.const(dtypes.index, 0)) == 0 and divisor(i * 32 + 8) == 8


@pytest.mark.parametrize("offset", [0, 4, 32])
def test_streamed_results(offset: int, run_kernel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
  """Buffers that are aligned are streamed to, others are not; rests of vectors and pieces too."""
  monkeypatch.setattr(stream_stores, "KEPT", 0)
  for size in (4096, 8192 + 37):
    memory = np.full(size + 64, np.nan, np.float32)
    start = (-memory.ctypes.data % 64 + offset) // 4
    out, x = memory[start : start + size], data(size + 64)
    x = x[-x.ctypes.data % 64 // 4 :][:size]
    (result, _) = run_kernel(copy(size), [out, x], pieces=3, in_place=True)
    assert np.array_equal(result, x + np.float32(1)) and np.isnan(memory[start + size :]).all()
