"""Kernels with memory of their own, on devices with workgroups: threads share their nests, and wait between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_codegen_tensor_cores import M16N8K16, Tensors
from test_codegen_workgroups import Workgroups, barriers, sizes_of
from workgroup_machine import run_workgroups

from tiny_codegen import compile_kernel
from tiny_codegen.opt.optimise import optimise
from tiny_codegen.opt.workgroup_memory import choose_workgroup_memory
from tiny_uop import AddrSpace, AxisType, Context, DType, KernelInfo, Ops, Opt, OptOps, PtrDType, UOp, dtypes, simplify

F = dtypes.float32


def running(columns: int, rows: int, turns: int = 3, carried: bool = False) -> UOp:
  """For each of 2 blocks, products of a part of their terms in each turn, kept as the largest so far, and the sum of
  each column of it. `carried`: an element is compared with its neighbour, which another iteration stores."""
  size, deep = rows * columns, 8
  a, b = UOp.param(1, F.ptr(2 * turns * rows * deep)), UOp.param(2, F.ptr(2 * turns * deep * columns))
  near, made = (UOp.alloc(n, F.ptr(size + 1, AddrSpace.LOCAL)) for n in range(2))
  block, turn = UOp.range(2, 0), UOp.range(turns, 1)
  n = UOp.range(size, 2)
  fresh = near.after(block).index(n).store(0.0).end(n)
  i, j, k = UOp.range(rows, 3), UOp.range(columns, 4), UOp.range(deep, 5, AxisType.REDUCE)
  part = block * turns + turn
  terms = a.index((part * rows + i) * deep + k).load() * b.index((part * deep + k) * columns + j).load()
  product = made.after(turn).index(i * columns + j).store(terms.reduce(Ops.ADD, k)).end(i, j)
  i, j = UOp.range(rows, 6), UOp.range(columns, 7)
  cell = near.after(fresh, turn).index(i * columns + j)
  before = near.after(fresh, turn).index(i * columns + j + 1) if carried else cell
  kept = cell.store(before.load().maximum(made.after(product).index(i * columns + j).load())).end(i, j).end(turn)
  j, i = UOp.range(columns, 8), UOp.range(rows, 9, AxisType.REDUCE)
  total = near.after(kept).index(i * columns + j).load().reduce(Ops.ADD, i)
  out = UOp.param(0, F.ptr(2 * columns)).index(block * columns + j).store(total).end(j).end(block)
  return simplify(UOp.sink(out, arg=KernelInfo("running")))


def expected(a: Any, b: Any) -> Any:
  return np.maximum((a @ b).max(1), 0).sum(1)


@pytest.mark.parametrize(
  ("columns", "rows"),
  [(4, 8), (5, 3), *[pytest.param(*shape, marks=pytest.mark.nightly) for shape in ((8, 16), (12, 20))]],
)
def test_threads_share_nests_and_wait_between_them(columns: int, rows: int) -> None:
  free = np.random.default_rng(0)
  a, b = (free.integers(-4, 5, shape).astype(float) for shape in ((2, 3, rows, 8), (2, 3, 8, columns)))
  with Context(SPEC=2):
    program = compile_kernel(running(columns, rows), Workgroups())
  groups, threads = sizes_of(program)
  assert groups == [2, 1, 1] and threads[0] > 1 and barriers(program) == 4
  for backwards in (False, True):
    arrays: list[Any] = [np.zeros(2 * columns), a.ravel(), b.ravel()]
    run_workgroups(program, arrays, backwards=backwards)
    assert (arrays[0].reshape(2, columns) == expected(a, b)).all()


def two_products(rows: int, columns: int, dtype: DType) -> UOp:
  """For each of 2 blocks of rows, a product with b in each of 3 turns, rounded, and the sum of its products with c: as
  attention is without its softmax. What is multiplied is near memory of that type, the sums are float32."""
  deep, turns = 16, 3
  a, b, c = (UOp.param(n + 1, F.ptr(size)) for n, size in enumerate((2 * deep * rows, turns * 16 * deep, turns * 256)))
  sizes = ((deep * rows, dtype), (16 * deep, dtype), (16 * columns, dtype), (16 * rows, dtype), (columns * rows, F))
  near = [UOp.alloc(n, of.ptr(size, AddrSpace.LOCAL)) for n, (size, of) in enumerate(sizes)]
  ids = iter(range(99))

  def loop(size: int, kind: AxisType = AxisType.LOOP) -> UOp:
    return UOp.range(size, next(ids), kind)

  def filled(memory: UOp, around: UOp, of: UOp, first: UOp) -> UOp:
    n = loop(memory.dtype.size) if isinstance(memory.dtype, PtrDType) else loop(0)
    return memory.after(memory.after(around).index(n).store(of.index(first + n).load().cast(dtype)).end(n))

  block, n, turn = loop(2), loop(columns * rows), loop(turns)
  mine = filled(near[0], block, a, block * (deep * rows))
  keys, values = filled(near[1], turn, b, turn * (16 * deep)), filled(near[2], turn, c, turn * (16 * columns))
  fresh = near[4].after(block).index(n).store(0.0).end(n)
  j, i, k = loop(16), loop(rows), loop(deep, AxisType.REDUCE)
  term = mine.index(k * rows + i).load().cast(F) * keys.index(j * deep + k).load().cast(F)
  made = near[3].after(near[3].after(turn).index(j * rows + i).store(term.reduce(Ops.ADD, k).cast(dtype)).end(j, i))
  j, i, k = loop(columns), loop(rows), loop(16, AxisType.REDUCE)
  cell = near[4].after(fresh, turn).index(j * rows + i)
  term = made.index(k * rows + i).load().cast(F) * values.index(k * columns + j).load().cast(F)
  done = near[4].after(cell.store(cell.load() + term.reduce(Ops.ADD, k)).end(j, i).end(turn))
  n = loop(columns * rows)
  place = block * (columns * rows) + n
  stored = UOp.param(0, F.ptr(2 * columns * rows)).index(place).store(done.index(n).load())
  return simplify(UOp.sink(stored.end(n).end(block), arg=KernelInfo("two_products")))


@pytest.mark.parametrize("rows", [16, pytest.param(32, marks=pytest.mark.nightly)])
def test_products_of_a_tensor_cores_types_are_its(rows: int) -> None:
  """Both, by the same subgroups, one product after the other; in float32, which this one does not take, none is."""
  free, columns = np.random.default_rng(0), 16
  a, b, c = (free.integers(-2, 3, shape).astype(float) for shape in ((2, 16, rows), (3, 16, 16), (3, 16, columns)))
  expected = sum(c[t].T @ (b[t] @ a) for t in range(3))
  for dtype, count in ((dtypes.float16, 2), (F, 0)):
    with Context(SPEC=2):
      program = compile_kernel(two_products(rows, columns, dtype), Tensors(M16N8K16))
    assert sum(u.op is Ops.MMA for u in program.src[1].src) == count
    arrays: list[Any] = [np.zeros(2 * columns * rows), a.ravel(), b.ravel(), c.ravel()]
    run_workgroups(program, arrays)
    assert (arrays[0].reshape(2, columns, rows) == expected).all()


def test_choices_are_the_same_when_they_are_given() -> None:
  kernel = running(8, 16)
  made = optimise(kernel, Workgroups.target, None)
  assert Opt(OptOps.LOCAL, 3, 32) in made.arg.opts
  assert optimise(kernel, Workgroups.target, made.arg.opts) is made


def test_iterations_that_read_each_others_results_stay_in_order() -> None:
  kernel = running(8, 16, carried=True)
  assert choose_workgroup_memory(kernel, Workgroups.target) == ()
  assert sizes_of(compile_kernel(kernel, Workgroups())) == ([1, 1, 1], [1, 1, 1])


def test_what_is_in_no_loop_is_one_workgroup() -> None:
  kernel = running(4, 8)
  block = next(u for u in kernel.toposort if u.op is Ops.RANGE and u.arg[0] == 0)
  once = kernel.substitute({block: UOp.range(1, 0)})
  assert sizes_of(compile_kernel(once, Workgroups())) == ([1, 1, 1], [32, 1, 1])
