"""Windows along rows: lanes that read every second element, and rows of windows that overlap."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import Case, check, data, garbage, param

from tiny_codegen import LLVMRenderer, build_program, cpu_target
from tiny_codegen.opt.beam import before_opts
from tiny_codegen.opt.vectors import choose_opts
from tiny_uop import AxisType, Context, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

NARROW = LLVMRenderer(cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+sse4.1")))
NEON = LLVMRenderer(cpu_target("aarch64-linux", "", ("+neon",)))
WIDE = LLVMRenderer(cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")))


def pool(size: int, window: int, step: int, images: int = 3, weighted: bool = False, back: bool = False) -> Case:
  """Windows of squares with a border of `window // 2`: the largest element, or the sum by weights of each image; `back`
  reads the rows of a window from the last to the first."""
  before = window // 2
  places = (size + 2 * before - window) // step + 1
  n, y, x = (UOp.range(extent, i) for i, extent in enumerate((images, places, places)))
  down, right = UOp.range(window, 3, AxisType.REDUCE), UOp.range(window, 4, AxisType.REDUCE)
  row, column = y * step + (window - 1 - down if back else down), x * step + right
  there = (row >= before) & (row < size + before) & (column >= before) & (column < size + before)
  offset = n * size * size + row * size + column - before * (size + 1)
  image, weight = data(images, size, size), data(images, window, window)
  around = [(0, 0), (before, before), (before, before)]
  windows = np.lib.stride_tricks.sliding_window_view(
    np.pad(image, around, constant_values=0 if weighted else -np.inf), (window, window), (1, 2)
  )[:, ::step, ::step]
  other = UOp.const(dtypes.float32, 0.0 if weighted else -np.inf)
  value = there.where(param(1, image.size).index(offset, there).load(), other)
  if weighted:
    value = value * param(2, weight.size).index((n * window + down) * window + right).load()
  out = param(0, images * places**2).index((n * places + y) * places + x)
  kernel = out.store(value.reduce(Ops.ADD if weighted else Ops.MAX, down, right)).end(n, y, x)
  expected = np.einsum("nyxij,nij->nyx", windows, weight) if weighted else windows.max((3, 4))
  arrays = (garbage(images, places, places), image, *((weight,) if weighted else ()))
  return Case(UOp.sink(kernel, arg=KernelInfo("windows")), arrays, expected, 1e-5)


CASES = [
  (37, 3, 2, False),
  (64, 3, 2, False),
  (33, 5, 2, True),
  (40, 3, 1, True),
  (24, 2, 2, False),
  (19, 5, 1, False),
  (30, 4, 2, True),
  (41, 7, 2, True),
]


@pytest.mark.parametrize(("size", "window", "step", "weighted"), CASES)
def test_windows_are_right(run_kernel: Any, size: int, window: int, step: int, weighted: bool) -> None:
  case = pool(size, window, step, weighted=weighted)
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays))


def test_every_second_element_is_read_in_vectors() -> None:
  """With a border too, whose gates are known only as the kernel runs."""
  case = pool(128, 3, 2)
  loads = [u for u in build_program(case.kernel, WIDE).src[1].toposort if u.op is Ops.LOAD]
  assert loads and all(u.dtype.count >= 8 for u in loads)


@pytest.mark.parametrize(("window", "vectors"), [(2, 2), (3, 4), (5, 6)])
def test_neighbouring_taps_share_what_they_read(window: int, vectors: int) -> None:
  """The even and the odd elements of two vectors, where each would read two of its own."""
  unroll = Opt(OptOps.UNROLL, 4, 0), Opt(OptOps.UNROLL, 3, 0)
  opts = (Opt(OptOps.PADTO, 2, 16), Opt(OptOps.VECTOR, 2, 16), *unroll)
  kernel = pool(128, window, 2, weighted=True).kernel.replace(arg=KernelInfo("windows", opts))
  program = build_program(kernel, WIDE, skip=("cut_edges",))  # the edges read apart
  loads = [u for u in program.src[1].toposort if u.op is Ops.LOAD and u.dtype.count >= 8]
  assert len(loads) == window * vectors


def test_windows_that_overlap_are_written_out() -> None:
  """Of a window of 3×3 the next row has two thirds, of one with a step of two a third: worth it for few rows alone. Of
  larger windows, a loop over the taps of a row stays: their products are more than registers hold weights for."""

  def written(case: Case) -> list[tuple[OptOps, object]]:
    opts = choose_opts(before_opts(case.kernel), WIDE.target)
    return [(o.op, o.arg if o.op is OptOps.UPCAST else o.axis) for o in opts if o.axis in (1, 3, 4)]

  rows, along, across = OptOps.UPCAST, (OptOps.UNROLL, 3), (OptOps.UNROLL, 4)
  assert written(pool(64, 3, 1, weighted=True)) == [(rows, 4), across, along]
  assert written(pool(7, 3, 1, weighted=True)) == [(rows, 7), across, along]
  assert written(pool(14, 3, 1, weighted=True)) == [(rows, 14), along]
  assert written(pool(64, 5, 2, weighted=True)) == [(rows, 8), along]
  assert written(pool(28, 5, 1, weighted=True)) == [(rows, 7), along]
  assert written(pool(56, 7, 1, weighted=True)) == [(rows, 8), along]
  assert written(pool(64, 3, 2)) == written(pool(64, 3, 2, back=True)) == [across, along]
  assert written(pool(14, 3, 2)) == [(rows, 7), across, along]
  assert written(pool(64, 5, 2, back=True)) == [(rows, 8), along]


@pytest.mark.parametrize(
  ("renderer", "size", "images", "rows"),
  [
    (WIDE, 112, 160, 4), (WIDE, 112, 200, 2), (NARROW, 112, 200, 2),
    (WIDE, 40, 1600, 4),  # rows of three lines
    (NARROW, 56, 800, 4), (NEON, 112, 200, 4),  # vectors of half a line
  ],
)  # fmt: skip
def test_few_rows_are_side_by_side_where_memory_is_waited_for(
  renderer: LLVMRenderer, size: int, images: int, rows: int
) -> None:
  kernel = before_opts(pool(size, 3, 1, images, weighted=True).kernel)
  assert Opt(OptOps.UPCAST, 1, rows) in choose_opts(kernel, renderer.target)


def test_sums_of_a_window_go_on_in_turn(run_kernel: Any) -> None:
  """Also where a function is applied to them: no sum is more steps ahead of another than a window has rows."""
  case = pool(64, 3, 1, weighted=True)
  (end,) = case.kernel.src
  store = end.src[0]
  relu = store.replace(src=(store.src[0], store.src[1].alu(Ops.MAX, UOp.const(dtypes.float32, 0.0))))
  for kernel in (case.kernel, case.kernel.substitute({store: relu})):
    linear = build_program(kernel, NARROW).src[1].src
    loops = [place for place, u in enumerate(linear) if u.op in (Ops.RANGE, Ops.END)]
    bodies = [linear[a:b] for a, b in itertools.pairwise(loops)]
    (inside,) = [body for body in bodies if sum(u.op is Ops.MULACC for u in body) == 32]
    taken, ahead = dict[UOp, int](), 0
    for u in inside:
      if u.op is Ops.MULACC:
        taken[u] = taken.pop(u.src[2], 0) + 1
        ahead = max(ahead, max(taken.values()) - min(taken.values()) if len(taken) == 4 else taken[u])
    assert sorted(taken.values()) == [8] * 4 and ahead <= 3
  expected = replace(case, expected=np.maximum(case.expected, 0))
  check(expected, run_kernel(case.kernel.substitute({store: relu}), case.arrays))


@pytest.mark.parametrize(
  ("size", "window", "step"), [(7, 3, 1), (14, 3, 1), (13, 3, 2), (14, 5, 1), (15, 5, 2), (28, 5, 1), (17, 7, 1)]
)
def test_depthwise_convolutions_are_right(run_kernel: Any, size: int, window: int, step: int) -> None:
  """Images as small as the last ones of a network, and such as rows and lanes do not divide."""
  case = pool(size, window, step, weighted=True)
  check(case, run_kernel(case.kernel, case.arrays))


def test_threads_walk_through_images_in_order() -> None:
  """Few images of many rows are one loop: not all images for each row."""
  opts = choose_opts(before_opts(pool(128, 3, 1, images=8, weighted=True).kernel), WIDE.target)
  assert [(o.op, o.axis, o.arg) for o in opts[-2:]] == [(OptOps.MERGE, 0, 1), (OptOps.THREAD, 0, 0)]
