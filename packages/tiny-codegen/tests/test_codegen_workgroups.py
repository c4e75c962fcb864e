"""Targets with workgroups: LOCAL, GROUP and STAGE with shared memory and barriers, run by an interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import CASES, check
from workgroup_machine import run_workgroups

from tiny_codegen import KernelError, KernelOptError, Limits, Renderer, Target, compile_kernel
from tiny_codegen.opt.beam import before_opts
from tiny_codegen.opt.vectors import choose_opts
from tiny_codegen.opt.workgroups import threads_for
from tiny_codegen.render.llvm.target import LLVM_DTYPES, LLVM_OPS
from tiny_uop import AddrSpace, AxisType, Context, KernelInfo, Ops, Opt, OptOps, ProgramInfo, PtrDType, UOp, dtypes


class Workgroups(Renderer):
  """A device with workgroups and no vectors; its programs are interpreted."""

  name = "workgroups"
  target = Target(
    LLVM_DTYPES, LLVM_OPS, has_local=True, limits=Limits(max_local=(64, 64, 64), max_workgroup=256, shared_memory=65536)
  )

  def render(self, linear: UOp, info: ProgramInfo) -> str:
    return ""


def run(name: str, sizes: tuple[int, ...], opts: list[Opt] | None) -> UOp:
  case = CASES[name](*sizes)
  with Context(SPEC=2):
    program = compile_kernel(case.kernel, Workgroups(), opts)
  for backwards in (False, True):
    arrays: list[Any] = [a.ravel().astype(float) for a in case.arrays]
    run_workgroups(program, arrays, backwards=backwards)
    check(case, [arrays[0].reshape(case.expected.shape)])
  return program


def sizes_of(program: UOp) -> tuple[list[int], list[int]]:
  """Workgroups, and threads of one."""
  groups, threads = ([int(s.arg) for s in group.src] for group in program.src[3:5])
  return groups, threads


def barriers(program: UOp) -> int:
  return sum(u.op is Ops.BARRIER for u in program.src[1].src)


def test_output_loops_are_workgroups() -> None:
  program = run("matmul", (4, 6, 5), [])
  assert [int(s.arg) for s in program.src[3].src] == [4, 6, 1]


def test_workgroups_of_one_thread() -> None:
  program = run("matmul", (4, 6, 5), [Opt(OptOps.NOLOCALS)])
  assert sizes_of(program) == ([4, 6, 1], [1, 1, 1])
  with pytest.raises(KernelOptError, match=r"LOCAL\(axis=0, arg=2\)"):
    compile_kernel(CASES["matmul"](4, 6, 5).kernel, Workgroups(), [Opt(OptOps.NOLOCALS), Opt(OptOps.LOCAL, 0, 2)])
  with pytest.raises(KernelOptError, match=r"loops \[3\] are shared by the threads of a workgroup already"):
    compile_kernel(CASES["matmul"](4, 6, 5).kernel, Workgroups(), [Opt(OptOps.LOCAL, 0, 2), Opt(OptOps.NOLOCALS)])


def test_local() -> None:
  program = run("matmul", (4, 6, 5), [Opt(OptOps.LOCAL, 0, 2), Opt(OptOps.LOCAL, 1, 3)])
  assert [int(s.arg) for s in program.src[3].src] == [2, 2, 1]
  assert [int(s.arg) for s in program.src[4].src] == [2, 3, 1]


def test_group_adds_up_in_shared_memory() -> None:
  program = run("reduce_rows", (3, 16), [Opt(OptOps.GROUP, 1, 4)])
  assert any(u.op is Ops.BARRIER for u in program.src[1].src)
  assert [int(s.arg) for s in program.src[4].src] == [4, 1, 1]


def test_group_with_upcast_and_local() -> None:
  run("matmul", (4, 6, 8), [Opt(OptOps.UPCAST, 0, 2), Opt(OptOps.LOCAL, 1, 3), Opt(OptOps.GROUP, 2, 4)])


def test_group_in_two_dependent_reductions() -> None:
  run("softmax", (3, 8), [Opt(OptOps.GROUP, 2, 4)])


def test_stage_is_shared_by_the_threads_of_a_workgroup() -> None:
  opts = [Opt(OptOps.LOCAL, 0, 2), Opt(OptOps.LOCAL, 1, 3), Opt(OptOps.UNROLL, 2, 2), Opt(OptOps.STAGE, 2, (4, 5))]
  program = run("matmul", (4, 6, 8), opts)
  assert sum(u.op is Ops.BARRIER for u in program.src[1].src) == 2  # before a tile is overwritten, and once it is there


@pytest.mark.parametrize(
  "name", ["elementwise", "transpose", "reduce_rows", "matmul", "layer_norm", "convolution", "scalar", "pad"]
)
def test_heuristics(name: str) -> None:
  run(name, {"convolution": (2, 4, 2), "scalar": (), "pad": (9,)}.get(name, (4, 16)), None)


def test_local_needs_workgroups(renderer: Renderer) -> None:
  with pytest.raises(KernelOptError, match=r"LOCAL\(axis=0, arg=2\): the target has no workgroups"):
    compile_kernel(CASES["matmul"]().kernel, renderer, [Opt(OptOps.LOCAL, 0, 2)])


# *** local memory ***


def test_threads_that_need_all_of_a_tile_fill_it_together() -> None:
  # of A, which is kept for four steps of the sum at a time, all threads along the columns read all
  opts = [Opt(OptOps.LOCAL, 1, 4), Opt(OptOps.SPLIT, 2, 4), Opt(OptOps.STAGE, 1, (4,))]
  program = run("matmul", (3, 8, 12), opts)
  assert barriers(program) == 2
  stores = [u for u in program.src[1].src if u.op is Ops.STORE and u.src[0].src[0].op is Ops.AFTER]
  tile = [u for u in stores if isinstance(u.src[0].dtype, PtrDType) and u.src[0].dtype.space is AddrSpace.LOCAL]
  assert len(tile) == 1 and not any(u.op is Ops.RANGE and u.src[0].arg == 4 for u in tile[0].toposort)


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_tiles_that_threads_do_not_divide(threads: int) -> None:
  loop = [
    Opt(OptOps.LOCAL, 1, threads),
    Opt(OptOps.SPLIT, 2, 5),
    Opt(OptOps.STAGE, 1, (4,)),
    Opt(OptOps.STAGE, 2, (4,)),
  ]
  run("matmul", (3, 12, 15), loop)


def test_both_operands_of_a_product_in_near_memory() -> None:
  opts = choose_opts(before_opts(CASES["matmul"](32, 64, 32).kernel), Workgroups.target)
  assert [o.op for o in opts].count(OptOps.STAGE) == 2 and [o.op for o in opts].count(OptOps.UPCAST) == 2
  run("matmul", (16, 24, 32), None)


PREFETCHED = [Opt(OptOps.LOCAL, 1, 8), Opt(OptOps.SPLIT, 2, 4), Opt(OptOps.STAGE, 1, (4,)), Opt(OptOps.STAGE, 2, (4,))]


@pytest.mark.parametrize("unrolled", [True, False])
@pytest.mark.parametrize("steps", [2, 3, 4])
def test_what_the_next_step_needs_is_read_meanwhile(steps: int, unrolled: bool) -> None:
  opts = [*PREFETCHED, *([Opt(OptOps.UNROLL, 4, 0)] if unrolled else [])]
  program = run("matmul", (3, 8, 4 * steps), opts)
  assert barriers(program) == 2  # before the loop, and one in it for both tiles
  near = [u.dtype for u in program.src[1].src if u.op is Ops.ALLOC]
  assert [d.size for d in near if isinstance(d, PtrDType) and d.space is AddrSpace.LOCAL] == [2 * 4, 2 * 4 * 8]


def test_two_copies_only_where_they_fit() -> None:
  little = Workgroups()
  little.target = replace(
    Workgroups.target, limits=replace(Workgroups.target.limits, shared_memory=(4 + 32) * 4 * 2 - 1)
  )
  program = compile_kernel(CASES["matmul"](3, 8, 12).kernel, little, PREFETCHED)
  assert barriers(program) == 3  # all have read, and each of the tiles is there
  few = compile_kernel(
    CASES["matmul"](3, 8, 4).kernel, Workgroups(), [Opt(OptOps.LOCAL, 1, 8), Opt(OptOps.STAGE, 1, (2,))]
  )
  assert barriers(few) == 1  # filled once


def test_workgroups_that_are_too_large() -> None:
  with pytest.raises(KernelOptError, match="512 threads in a workgroup, the target has up to 256"):
    compile_kernel(CASES["matmul"](8, 64, 4).kernel, Workgroups(), [Opt(OptOps.LOCAL, 1, 64), Opt(OptOps.LOCAL, 0, 8)])
  with pytest.raises(KernelOptError, match="workgroups of 128 threads, the target has up to 64×64×64"):
    compile_kernel(CASES["matmul"](8, 128, 4).kernel, Workgroups(), [Opt(OptOps.LOCAL, 1, 128)])


def test_near_memory_of_all_tiles_together() -> None:
  # 32 KiB and 40 KiB, each of which would fit
  opts = [Opt(OptOps.LOCAL, 1, 10), Opt(OptOps.LOCAL, 0, 8), Opt(OptOps.STAGE, 1, (2,)), Opt(OptOps.STAGE, 2, (2,))]
  with pytest.raises(KernelError, match="73728 bytes of local memory for a workgroup, the target has 65536"):
    compile_kernel(CASES["matmul"](8, 10, 1024).kernel, Workgroups(), opts)


# *** loops and counters ***


def test_a_reduction_is_not_done_again_for_each_element_of_its_row() -> None:
  program = run("softmax", (3, 100), [])
  assert sizes_of(program) == ([3, 1, 1], [1, 1, 1])


@pytest.mark.parametrize(("name", "columns"), [("softmax", 64), ("softmax", 100), ("layer_norm", 128)])
def test_the_threads_that_add_up_a_row_go_on_with_its_elements(name: str, columns: int) -> None:
  groups, threads = sizes_of(run(name, (3, columns), None))
  assert groups == [3, 1, 1] and threads[0] >= 32 and threads[1:] == [1, 1]


def test_loops_that_meet_have_counters_of_their_own() -> None:
  program = run("matmul", (4, 8, 8), [Opt(OptOps.LOCAL, 1, 4), Opt(OptOps.GROUP, 2, 4)])
  assert sizes_of(program) == ([4, 2, 1], [4, 4, 1])


def test_what_threads_have_in_common_is_written_once() -> None:
  i, size = UOp.range(8, 0), 8
  total = UOp.param(1, dtypes.float32.ptr(1)).index(0)
  effects = (
    UOp.param(0, dtypes.float32.ptr(size)).index(i).store(i.cast(dtypes.float32)).end(i),
    total.store(total.load() + 1.0),
  )
  program = compile_kernel(UOp.sink(*effects, arg=KernelInfo("both")), Workgroups(), [Opt(OptOps.LOCAL, 0, 8)])
  arrays = [np.zeros(8), np.zeros(1)]
  run_workgroups(program, arrays)
  assert arrays[0].tolist() == list(range(8)) and arrays[1].tolist() == [1.0]


def test_more_output_loops_than_counters() -> None:
  sizes = (2, 3, 4, 2, 3)
  loops = [UOp.range(size, place) for place, size in enumerate(sizes)]
  place, turned = UOp.const(dtypes.index, 0), UOp.const(dtypes.index, 0)
  for loop in loops:
    place = place * loop.src[0] + loop
  for loop in reversed(loops):
    turned = turned * loop.src[0] + loop
  floats = dtypes.float32.ptr(144)
  store = UOp.param(0, floats).index(place).store(UOp.param(1, floats).index(turned).load()).end(*loops)
  source = np.arange(144.0)
  choices: tuple[list[Opt] | None, ...] = ([], None)
  for opts in choices:
    program = compile_kernel(UOp.sink(store, arg=KernelInfo("turn")), Workgroups(), opts)
    assert not any(u.op is Ops.RANGE for u in program.src[1].src)
    arrays = [np.zeros(144), source]
    run_workgroups(program, arrays)
    assert np.array_equal(arrays[0].reshape(sizes), source.reshape(sizes[::-1]).transpose())


@pytest.mark.parametrize("n", [1, 7, 32])
def test_a_symbolic_extent_is_a_number_of_workgroups(n: int) -> None:
  size = UOp.variable("n", 1, 32)
  i, floats = UOp.range(size, 0), dtypes.float32.ptr(32)
  store = UOp.param(0, floats).index(i).store(UOp.param(1, floats).index(i).load() + 1.0).end(i)
  with Context(SPEC=2):
    program = compile_kernel(UOp.sink(store, arg=KernelInfo("some")), Workgroups(), [])
  assert program.src[3].src[0].op is Ops.VARIABLE
  arrays = [np.zeros(32), np.arange(32.0)]
  run_workgroups(program, arrays, {"n": n})
  assert arrays[0].tolist() == [i + 1.0 for i in range(n)] + [0.0] * (32 - n)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("columns", [4, 33, 64])
def test_what_is_read_again_was_written_by_the_same_thread(
  rows: int, columns: int, sums: bool, backwards: bool
) -> None:
  """A kernel that leaves something in memory and goes on with it, in another order: rows that end at a variable."""
  row, end = UOp.range(rows, 0), UOp.variable("end", 0, columns - 1)
  floats = dtypes.float32.ptr(rows * columns)
  out, kept, given = (UOp.param(n, floats) for n in range(3))
  i, j, k = UOp.range(end + 1, 1), UOp.range(end + 1, 2), UOp.range(end + 1, 3, AxisType.REDUCE)
  doubled = kept.index(row * columns + i).store(given.index(row * columns + i).load() * 2.0).end(i)
  again = kept.after(doubled)
  value = again.index(row * columns + end - j).load()
  value = value + again.index(row * columns + k).load().reduce(Ops.ADD, k) if sums else value
  store = out.index(row * columns + j).store(value).end(j).end(row)
  kernel = UOp.sink(store, arg=KernelInfo("again"))
  with Context(SPEC=2, BEAM=1):
    program = compile_kernel(kernel, Workgroups(), measure=lambda _: pytest.fail("a search would share its loops"))
  numbers, last = np.arange(rows * columns, dtype=float), columns - 2
  arrays = [np.zeros(rows * columns), np.zeros(rows * columns), numbers]
  run_workgroups(program, arrays, {"end": last}, backwards=backwards)
  expected = 2 * numbers.reshape(rows, columns)[:, last::-1]
  found = arrays[0].reshape(rows, columns)[:, : last + 1]
  assert np.array_equal(found, expected + (expected.sum(1, keepdims=True) if sums else 0))
  assert sizes_of(program) == ([rows, 1, 1], [1, 1, 1])


@pytest.mark.parametrize("behind", [4, 0])
def test_steps_before_a_store_that_never_happens(behind: int) -> None:
  """What comes after it comes after them, too: threads fill a row, and go on with columns behind its first four."""
  t, c = UOp.range(4, 0, AxisType.LOCAL), UOp.range(behind // 4, 1)
  out, kept, given = (UOp.param(n, dtypes.float32.ptr(8)) for n in range(3))
  filled = kept.after(t).index(t).store(given.index(t).load()).barrier()
  column = c * 4 + t + 4
  more = kept.after(filled).index(column, column < 4 + behind).store(given.index(t).load() * 2.0).end(c).barrier()
  value = kept.after(more).index(3 - t).load()
  kernel = UOp.sink(out.index(t).store(value).end(t), arg=KernelInfo("steps", ()))
  with Context(SPEC=2):
    program = compile_kernel(kernel, Workgroups())
  arrays = [np.zeros(8), np.zeros(8), np.arange(8, dtype=float)]
  run_workgroups(program, arrays)
  assert arrays[0].tolist() == [3, 2, 1, 0, 0, 0, 0, 0]
  assert arrays[1].tolist() == [0, 1, 2, 3, *([0, 2, 4, 6] if behind else [0] * 4)]


def test_loops_that_end_where_the_place_of_a_workgroup_says() -> None:
  """Their ends are simpler once that is a counter of the hardware, and are one end in all places."""
  tile, start = UOp.range(4, 0), UOp.variable("start", 0, 48)
  blocks = (start + (tile * 4 + 3)) // 16 + 1
  out, kept, given = (UOp.param(n, dtypes.float32.ptr(4 * 80)) for n in range(3))
  block, lane, k = UOp.range(blocks, 1), UOp.range(16, 2), UOp.range(blocks * 16, 3, AxisType.REDUCE)
  place = tile * 80 + block * 16 + lane
  value = (block * 16 + lane < start + (tile * 4 + 4)).where(given.index(place).load(), -1.0)
  largest = kept.after(kept.index(place).store(value).end(lane).end(block)).index(tile * 80 + k).load()
  store = out.index(tile).store(largest.reduce(Ops.MAX, k)).end(tile)
  program = compile_kernel(UOp.sink(store, arg=KernelInfo("ends")), Workgroups())
  arrays = [np.zeros(320), np.zeros(320), np.arange(320.0)]
  run_workgroups(program, arrays, {"start": 21})
  assert arrays[0][:4].tolist() == [80 * n + 24 + 4 * n for n in range(4)]


@pytest.mark.parametrize(("size", "threads"), [(7, 7), (64, 64), (1000, 64), (1003, 64), (96, 32), (65, 32)])
def test_threads_for_a_loop(size: int, threads: int) -> None:
  assert threads_for(size, 64) == threads
