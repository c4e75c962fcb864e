"""Kernels with memory of their own, on devices with workgroups: threads share their nests, and wait between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_codegen_workgroups import Workgroups, barriers, sizes_of
from workgroup_machine import run_workgroups

from tiny_codegen import compile_kernel
from tiny_codegen.opt.optimise import optimise
from tiny_codegen.opt.workgroup_memory import choose_workgroup_memory
from tiny_uop import AddrSpace, AxisType, Context, KernelInfo, Ops, Opt, OptOps, UOp, dtypes, simplify

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
