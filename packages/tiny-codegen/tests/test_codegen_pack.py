"""The first register tile of a panel packs it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from codegen_kernels import data, garbage, kernel, loop, over, param
from codegen_prefetches import elements

from tiny_codegen import CacheSizes, LLVMRenderer, PassContext, build_program, cpu_target, run_passes
from tiny_codegen.kernel.memory import in_register
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.lower.prefetch.gaps import AHEAD, gaps
from tiny_codegen.lower.prefetch.program import Program, packed_buffer
from tiny_codegen.opt.neighbours import opts_of
from tiny_codegen.tiling.choose import _plans
from tiny_codegen.tiling.cost import TileCost
from tiny_codegen.tiling.tiles import Lanes
from tiny_uop import AxisType, Ops, Opt, OptOps, UOp, simplify
from tiny_uop.context import Context

FEATURES = ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl")
TARGET = LLVMRenderer(cpu_target("x86_64", "", FEATURES))
LANES, ROWS = 16, 3


def product(images: int = 2, outputs: int = 9, length: int = 8, size: int = 64, columns: bool = False) -> UOp:
  """`out[n, o, j] = sum over k of w[o, k] * x[n, k, j]`, or of `x[n, j, k]`."""
  n, o, j, k = loop(images, 0), loop(outputs, 1), loop(size, 2), over(length, 3)
  place = (n * size + j) * length + k if columns else (n * length + k) * size + j
  x = param(1, images * length * size).index(place).load()
  out = param(0, images * outputs * size).index((n * outputs + o) * size + j)
  weight = param(2, outputs * length).index(o * length + k).load()
  return kernel(out.store((weight * x).reduce(Ops.ADD, k)).end(n, o, j))


def tiles(outputs: int, size: int, steps: int = 1) -> tuple[Opt, ...]:
  """Tiles of ROWS rows, and panels of LANES lanes in local memory."""
  padded = [Opt(OptOps.PADTO, 2, LANES)] * (size % LANES > 0) + [Opt(OptOps.PADTO, 1, ROWS)] * (outputs % ROWS > 0)
  shapes = [Opt(OptOps.VECTOR, 2, LANES), Opt(OptOps.UPCAST, 1, ROWS), Opt(OptOps.SWAP, 1, 2)]
  unrolled = [Opt(OptOps.UNROLL, 3, steps)] * (steps > 1)
  return (*padded, *shapes, *unrolled, Opt(OptOps.STAGE, 1, (3, *[6] * (steps > 1))))


def packing(root: UOp, opts: Sequence[Opt]) -> list[bool]:
  """Of each store to local memory, whether it is made in the loop of a sum."""
  linear = run_passes(root, PassContext(TARGET.target, tuple(opts)))
  loops: list[UOp] = []
  found = []
  for u in linear.src:
    if u.op is Ops.RANGE:
      loops.append(u)
    elif u.op is Ops.END:
      loops.pop()
    elif u.op is Ops.STORE and packed_buffer(u.src[0]) is not None:
      found.append(bool(loops) and loops[-1].arg[1] is AxisType.REDUCE)
  return found


@pytest.mark.parametrize("outputs", [6, 9, 10, 11])
@pytest.mark.parametrize("size", [64, 50, 68, 28])
@pytest.mark.parametrize("steps", [1, 2])
def test_products(outputs: int, size: int, steps: int, run_kernel: Any) -> None:
  """Of whole and partial tiles and panels; threads share the panels."""
  images, length = 2, 8
  root = product(images, outputs, length, size)
  opts = tiles(outputs, size, steps=steps)
  assert set(packing(root, opts)) == {True}
  x, weight = data(images, length, size), data(outputs, length, seed=1)
  for more, pieces in (((), 1), ((Opt(OptOps.THREAD, 0, 0),), 3)):
    with Context(SPEC=2):  # which proves that all places are inside of their memory
      (out,) = run_kernel(root, [garbage(images, outputs, size), x, weight], (*opts, *more), pieces=pieces)[:1]
    np.testing.assert_allclose(out, weight @ x, rtol=1e-5, atol=1e-5)


def test_several_panels_together(run_kernel: Any) -> None:
  """Which the first tile passes all."""
  images, outputs, length, size, panels = 2, 9, 8, 128, 4
  root, opts = product(images, outputs, length, size), tiles(outputs, size)
  several = (*opts[:-1], Opt(OptOps.SPLIT, 2, panels), Opt(OptOps.SWAP, 6, 1), Opt(OptOps.STAGE, 1, (6, 3)))
  assert set(packing(root, several)) == {True}
  x, weight = data(images, length, size), data(outputs, length, seed=1)
  with Context(SPEC=2):
    (out,) = run_kernel(root, [garbage(images, outputs, size), x, weight], several)[:1]
  np.testing.assert_allclose(out, weight @ x, rtol=1e-5, atol=1e-5)


def test_what_is_turned_is_packed_before() -> None:
  """Its lanes are not next to each other in memory."""
  assert set(packing(product(length=16, columns=True), tiles(9, 64))) == {False}


def test_one_tile_packs_for_no_other() -> None:
  opts = [o for o in tiles(3, 64)[:-1] if o.op is not OptOps.SWAP]
  assert set(packing(product(outputs=3), (*opts, Opt(OptOps.STAGE, 1, (3,))))) == {False}


def test_what_other_loops_read_as_well_is_packed_before() -> None:
  """Panels of weights, for all images."""
  n, o, j, k = loop(2, 0), loop(9, 1), loop(64, 2), over(8, 3)
  x, weight = param(1, 2 * 9 * 8).index((n * 9 + o) * 8 + k).load(), param(2, 8 * 64).index(k * 64 + j).load()
  root = kernel(param(0, 2 * 9 * 64).index((o * 2 + n) * 64 + j).store((x * weight).reduce(Ops.ADD, k)).end(n, o, j))
  shapes = [Opt(OptOps.VECTOR, 2, LANES), Opt(OptOps.UPCAST, 1, ROWS), Opt(OptOps.SWAP, 0, 2)]
  assert set(packing(root, (*shapes, Opt(OptOps.STAGE, 2, (3,))))) == {False}


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("outputs", [6, 32, 100])
def test_the_estimate_knows(columns: bool, outputs: int) -> None:
  """Of each tiling, whether the first tile will pack."""
  root = simplify(product(2, outputs, 64, 192, columns))
  found = SumOfProducts.of(root)
  assert found is not None
  asked = 0
  for plan in _plans(found, TARGET.target):
    assert isinstance(plan, TileCost)
    if plan.vectors != 2 or plan.rows not in (4, 6):
      continue
    for tiling in plan.tilings():
      if tiling.lanes_from is not Lanes.DIRECT and tiling.lanes_of.slot == 1:
        opts = opts_of(root, TARGET.target, ([], found, tiling))
        assert (True in packing(root, opts)) == plan._first_tile_packs(tiling.lanes_from), tiling
        asked += 1
  assert asked


@pytest.mark.parametrize(("outputs", "twice", "once"), [(24, 3, 2), (21, 3, 1), (15, 2, 1), (12, 0, 4), (6, 0, 2)])
def test_a_narrow_panel_has_tiles_of_twice_the_rows(outputs: int, twice: int, once: int, run_kernel: Any) -> None:
  """But for the last one or two, in a quarter of the lanes of other panels."""
  size, images = 2 * LANES + 4, 2
  root, opts = product(images, outputs, size=size), tiles(outputs, size)[:-1]
  seen: dict[str, UOp] = {}
  run_passes(root, PassContext(TARGET.target, opts), observe=lambda p, root: seen.update({p.name: root}))
  found: dict[int, int] = {}
  for end in [u for u in seen["peel"].toposort if u.op is Ops.END]:
    loops = {kind: [r.src[0].arg for r in end.src[1:] if r.arg[1] is kind] for kind in AxisType}
    if loops[AxisType.VECTOR] == [LANES // 4]:
      rows = math.prod(loops[AxisType.UPCAST])
      found[rows] = found.get(rows, 0) + math.prod(loops[AxisType.LOOP]) // images
  assert found == {rows: count for rows, count in ((2 * ROWS, twice), (ROWS, once)) if count}
  x, weight = data(images, 8, size), data(outputs, 8, seed=1)
  with Context(SPEC=2):
    (out,) = run_kernel(root, [garbage(images, outputs, size), x, weight], opts)[:1]
  np.testing.assert_allclose(out, weight @ x, rtol=1e-5, atol=1e-5)


def test_what_is_packed_on_the_way_is_asked_for_some_steps_before() -> None:
  """In the sum that packs it, also where the panels after the first one have been asked for."""
  outputs, length, size = 9, 128, 512
  root = product(1, outputs, length, size)
  program = build_program(root, TARGET, tiles(outputs, size))
  caches = CacheSizes(32 << 10, length * size * 2)  # half of what is packed
  ((loop, lines),) = gaps(Program(program.src[1].src, caches), ()).items()
  assert loop.arg[1] is AxisType.REDUCE
  places = {place for line in lines for place in elements(line, dict.fromkeys(line.ranges, 0))}
  assert places == {AHEAD * size, AHEAD * size + LANES - 1}
  packed = [u for u in program.src[1].src if u.op is Ops.ALLOC]
  assert gaps(Program(program.src[1].src, caches), packed) == {loop: lines}


def test_each_step_packs_before_the_next_one_reads() -> None:
  """Registers would not do for what all steps read."""
  steps = 4
  linear = run_passes(product(), PassContext(TARGET.target, tiles(9, 64, steps)))
  order: list[str] = []
  for u in linear.src:
    if u.op is Ops.RANGE:
      order = []
    elif u.op in (Ops.LOAD, Ops.STORE) and u.src[0].op is Ops.INDEX and not in_register(u):
      order.append("pack" if u.op is Ops.STORE else "rows" if u.dtype.count == 1 else "panel")
    elif u.op is Ops.END and "pack" in order:
      break
  assert order.count("pack") == steps and order.count("rows") == steps * ROWS
  packs = [place for place, what in enumerate(order) if what == "pack"]
  assert all(order[:place].count("rows") <= n * ROWS + 1 for n, place in enumerate(packs)), order


@pytest.mark.parametrize("images", [2, 3])
@pytest.mark.parametrize("size", [4 * LANES, 2 * LANES - 4])
def test_tiles_that_pack_their_rows_as_well(images: int, size: int, run_kernel: Any) -> None:
  """What rows are packed in is filled for each tile; of two tiles, one is left when the first has packed the panel."""
  outputs, length = ROWS, 8
  n, o, j, k = loop(images, 0), loop(outputs, 1), loop(size, 2), over(length, 3)
  x, weight = (n * outputs + o) * length + k, k * size + j
  value = param(1, images * outputs * length).index(x).load() * param(2, length * size).index(weight).load()
  out = param(0, size * outputs * images).index((j * outputs + o) * images + n)
  root = kernel(out.store(value.reduce(Ops.ADD, k)).end(n, o, j))
  opts = (
    *[Opt(OptOps.PADTO, 2, LANES)] * (size % LANES > 0),
    Opt(OptOps.VECTOR, 2, LANES), Opt(OptOps.UPCAST, 1, ROWS), Opt(OptOps.SWAP, 0, 2),
    Opt(OptOps.STAGE, 2, (3,)), Opt(OptOps.STAGE, 1, (3, 5)),
  )  # fmt: skip
  assert True in packing(root, opts)
  rows, panels = data(images, outputs, length), data(length, size, seed=1)
  with Context(SPEC=2):
    (result,) = run_kernel(root, [garbage(size, outputs, images), rows, panels], opts)[:1]
  np.testing.assert_allclose(result, np.einsum("nok,kj->jon", rows, panels), rtol=1e-5, atol=1e-5)
