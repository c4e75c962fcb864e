"""Windows with padding: the edges of an image apart from its inside, where loads have no gates."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from codegen_kernels import Case, check, data, garbage, param
from codegen_machine import Machine

from tiny_codegen import PASSES, LLVMRenderer, PassContext, compile_kernel, cpu_target, run_passes
from tiny_codegen.kernel.loops import extent, iterations, kind
from tiny_codegen.kernel.memory import gate_of
from tiny_codegen.lower.cut_edges import cut_edges
from tiny_uop import AxisType, Context, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

AVX2 = LLVMRenderer(cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+sse4.1")))
AVX512 = LLVMRenderer(cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")))
NEON = LLVMRenderer(cpu_target("aarch64-linux", "", ("+neon",)))
ROWS, COLUMNS = 0, 1
Sides = tuple[int, int]


def windows(
  sizes: Sides, taps: Sides, before: Sides, behind: Sides, step: int = 1, apart: int = 1, largest: bool = False
) -> Case:
  """Windows of an image: rows and columns, taps of both that are so far apart, and padding before and behind. The sum
  with weights, or the largest element."""
  reach = [apart * (n - 1) + 1 for n in taps]
  places = [(size + a + b - r) // step + 1 for size, a, b, r in zip(sizes, before, behind, reach)]
  loops = [UOp.range(n, axis) for axis, n in enumerate(places)]
  tap = [UOp.range(n, 2 + axis, AxisType.REDUCE) for axis, n in enumerate(taps)]
  row, column = (loop * step + t * apart for loop, t in zip(loops, tap))
  gate = UOp.const(dtypes.bool, True)
  for place, size, padding in zip((row, column), sizes, before):
    gate = gate & (place < padding).logical_not() & (place < size + padding)
  other = UOp.const(dtypes.float32, -np.inf if largest else 0.0)
  offset = (row - before[0]) * sizes[1] + column - before[1]
  value = gate.where(param(1, sizes[0] * sizes[1]).index(offset, gate).load(), other)
  if not largest:
    value = value * param(2, taps[0] * taps[1]).index(tap[0] * taps[1] + tap[1]).load()
  total = value.reduce(Ops.MAX if largest else Ops.ADD, *tap)
  end = param(0, places[0] * places[1]).index(loops[0] * places[1] + loops[1]).store(total).end(*loops)
  image, weights = data(*sizes), data(*taps)
  padded = np.pad(image, list(zip(before, behind)), constant_values=-np.inf if largest else 0)
  seen = np.lib.stride_tricks.sliding_window_view(padded, reach)[::step, ::step, ::apart, ::apart]
  expected = seen.max((2, 3)) if largest else np.einsum("yxij,ij->yx", seen, weights)
  arrays = (garbage(*places), image, *(() if largest else (weights,)))
  return Case(UOp.sink(end, arg=KernelInfo("windows")), arrays, expected, 1e-5)


def tiled(lanes: int, rows: int) -> tuple[Opt, ...]:
  """Lanes along columns, and so many rows of which each window is written out."""
  return (
    Opt(OptOps.PADTO, COLUMNS, lanes), Opt(OptOps.VECTOR, COLUMNS, lanes), Opt(OptOps.PADTO, ROWS, rows),
    Opt(OptOps.UPCAST, ROWS, rows), Opt(OptOps.UNROLL, 3, 0), Opt(OptOps.UNROLL, 2, 0),
  )  # fmt: skip


def parts(root: UOp) -> list[tuple[float, bool]]:
  """Of each END: how often its body runs, and whether it has gates."""
  ends = [u for u in root.toposort if u.op is Ops.END]
  around = [[r for r in u.src[1:] if kind(r) in (AxisType.LOOP, AxisType.THREAD)] for u in ends]
  gates = [any(u.op is Ops.LOAD and gate_of(u) is not None for u in end.toposort) for end in ends]
  return list(zip(map(iterations, around), gates))


def after(case: Case, opts: tuple[Opt, ...], renderer: LLVMRenderer, name: str = "cut_edges") -> UOp:
  seen: dict[str, UOp] = {}
  run_passes(case.kernel, PassContext(renderer.target, opts), observe=lambda p, root: seen.update({p.name: root}))
  assert name in {p.name for p in PASSES}
  return seen[name]


@pytest.mark.parametrize("renderer", [AVX2, NEON], ids=["avx2", "neon"])
@pytest.mark.parametrize(("step", "largest"), [(1, False), (2, False), (1, True)])
def test_what_is_inside_has_no_gates(renderer: LLVMRenderer, step: int, largest: bool) -> None:
  """12 × 5 of 14 × 7 tiles."""
  case = windows((56 * step, 56 * step), (3, 3), (1, 1), (1, 1), step, largest=largest)
  if step == 1:
    expected = [(7, True), (12, True), (60, False), (12, True), (7, True)]
  else:  # behind, the last window ends where the image does
    expected = [(7, True), (13, True), (78, False)]
  assert parts(after(case, tiled(8, 4), renderer)) == expected
  assert parts(after(case, tiled(8, 4), renderer, "peel")) == [(98, True)]


def test_pieces_that_share_rows_go_on_sharing_them() -> None:
  """A last vector that is narrower than the others is computed for the same rows: memory is walked through in order."""
  root = after(windows((56, 56), (3, 3), (1, 1), (1, 1)), tiled(16, 4), AVX2)
  rows = [u.src[1] for u in root.toposort if u.op is Ops.END and extent(u.src[1]) == 12]
  assert len(rows) == 3 and len(set(rows)) == 1  # the first column, the others that are whole, and half a one
  assert [often for often, gates in parts(root) if not gates] == [24]


def test_edges_that_are_most_of_a_loop_stay() -> None:
  """Half of four is enough where masks cost registers, and none of them where they do not."""
  assert parts(after(windows((12, 24), (3, 3), (1, 1), (1, 1)), tiled(8, 4), AVX2)) == [(9, True)]
  case, opts = windows((16, 16), (3, 3), (1, 1), (1, 1)), tiled(16, 4)
  assert [often for often, _ in parts(after(case, opts, AVX2))] == [1, 2, 1]
  assert parts(after(case, opts, AVX512)) == [(4, True)]


def test_memory_is_waited_for_where_masks_cost_little() -> None:
  """With AVX-512, rows of less than three whole tiles stay as they are, and so do tiles of one row."""
  long, short = (windows((rows, columns), (3, 3), (1, 1), (1, 1)) for rows, columns in ((20000, 112), (60000, 40)))
  one_row = tuple([opt for opt in tiled(16, 2) if opt.axis != ROWS])
  assert [len(parts(after(long, tiled(16, 2), renderer))) for renderer in (AVX2, AVX512)] == [5, 5]
  assert [len(parts(after(short, tiled(16, 2), renderer))) for renderer in (AVX2, AVX512)] == [7, 2]
  assert [len(parts(after(long, one_row, renderer))) for renderer in (AVX2, AVX512)] == [5, 1]


def test_not_where_threads_take_a_side_of_a_condition_each() -> None:
  before = after(windows((56, 56), (3, 3), (1, 1), (1, 1)), tiled(8, 4), AVX2, "peel")
  assert cut_edges(before, replace(AVX2.target, has_local=True)) is before
  assert cut_edges(before, AVX2.target) is not before


@pytest.mark.parametrize("seed", range(8))
def test_windows_are_right(run_kernel: Any, seed: int) -> None:
  """Any padding, also none on a side, and more than one vector of it."""
  order = Random(seed)
  taps = order.randint(2, 3), order.randint(2, 3)
  before, behind = (order.randint(0, 1), order.randint(0, 3)), (order.randint(0, 1), order.choice((0, 1, 9)))
  step, apart = order.choice([(1, 1), (2, 1), (1, 2), (1, 5)])
  case = windows((order.randint(12, 20), order.randint(24, 50)), taps, before, behind, step, apart, seed % 4 == 3)
  with Context(SPEC=2 if seed < 2 else 0):  # which proves that all places are inside of their memory
    check(case, run_kernel(case.kernel, case.arrays, tiled(order.choice([4, 8]), order.choice([1, 2]))))


def test_an_edge_without_loops_is_a_store(run_kernel: Any) -> None:
  """Where lanes are those of the sum, the first and the last window have no loop of their own."""
  case, opts = windows((1, 24), (1, 8), (0, 1), (0, 1)), (Opt(OptOps.VECTOR, 3, 8),)
  assert parts(after(case, opts, AVX2)) == [(17.0, False)]
  check(case, run_kernel(case.kernel, case.arrays, opts))


@pytest.mark.parametrize("columns", [41, 40, 33, 25])
def test_registers_that_a_gate_closes_are_not_read(columns: int) -> None:
  """With AVX2, LLVM would load them as if there were no gate, where it does not know those of the other lanes."""
  case, features = windows((12, columns), (3, 3), (1, 1), (1, 1)), llvm.get_host_cpu_features()
  program = compile_kernel(case.kernel, AVX2, tiled(16, 4))
  if columns in (41, 25):  # the last of nine lanes reads padding with its last tap, and so does all of its register
    assert "llvm.masked.load.v8f32" in program.src[2].arg
  if not features.get("avx2") or not features.get("fma"):
    pytest.skip("the program is for AVX2 and FMA, which this processor lacks")
  arrays = [array.copy() for array in case.arrays]
  Machine().call(program, arrays, {}, 1)
  check(case, arrays)
