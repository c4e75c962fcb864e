"""How to tile a sum of products: matrix products, convolutions and whatever else reads two operands along loops of
their own.

Of the output loops some move only one operand, some only the other. One of the first kind becomes vector lanes, one of
the second the rows of a register tile: in each step of the sum a few vectors of the one operand (`lanes`) meet a few
scalars of the other (`rows`), and rows × vectors products are added to accumulators that stay in registers. The operand
with the lanes is packed into local memory in panels, so that its lanes are adjacent whatever its layout: one, several
or all at a time, past which the other operand streams. The more panels, the longer the pieces of memory that are read
and written; the fewer, the nearer they stay. An estimate of cycles decides which loops, and what is packed (Goto and
van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008, has the reasoning for matrices; here the panel
is as long as the sum, whose accumulators stay in registers, and a long sum is taken in blocks: see `k_blocking.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from tiny_codegen.instructions.dot_product import MatrixProduct, SquareProduct
from tiny_codegen.kernel.loops import size_of
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.target import Target
from tiny_codegen.tiling.cost import TileCost
from tiny_codegen.tiling.matrix_cost import MatrixTileCost
from tiny_codegen.tiling.square_cost import SquareTileCost
from tiny_codegen.tiling.step_cost import rate
from tiny_codegen.tiling.tiles import Tiling, blocks, divides
from tiny_uop import UOp

ROWS: tuple[int, ...] = (16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2)
LONG_RUN = 16  # steps of a sum that use up a cache line
NEAR = 1.04  # of an estimate: others within it are as good
FEW_TILES = 20  # of a loop: of so many, a smaller last one matters
FEW_ROWS = 4  # of a loop: with fewer another one may be better
LEAST_ROWS = 8  # that reuse enough of what they read
DOT_ROWS = 4  # of each operand, in a tile whose lanes are along the sum


def best_tiling(c: SumOfProducts, target: Target) -> Tiling | None:
  """The tiling with the fewest cycles, or one of fewer rows that is about as good and does without a smaller last tile;
  None if there is no choice of loops to tile."""
  # those first that may be the best: most of the others need not be looked at then
  plans = sorted([(plan.least, place, plan) for place, plan in enumerate(_plans(c, target)) if plan.fits])
  best: tuple[float, int, Tiling, TileCost] | None = None
  for least, place, plan in plans:
    if best is not None and least > best[0]:
      break
    for tiling in plan.tilings(math.inf if best is None else best[0]):
      if best is None or (tiling.cycles, place) < best[:2]:
        best = tiling.cycles, place, tiling, plan
  return None if best is None else _in_whole_tiles(*best[2:])


def _in_whole_tiles(best: Tiling, plan: TileCost) -> Tiling:
  """A tiling that reads its operands in the same way, of so many rows as divide their loop, if it is as good. The loops
  of a sum are written out once then, and not once more for the last tile: half the code to make and to keep in caches.
  Where a sum has one loop that is little, and the more rows reuse what they read, the better."""
  few = blocks(best.row_loop, best.rows) <= FEW_TILES
  if len(plan.summed) < 2 or divides(best.row_loop, best.rows) or isinstance(plan, MatrixTileCost) or not few:
    return best
  for rows in ROWS:
    if LEAST_ROWS <= rows < best.rows and divides(best.row_loop, rows):
      for tiling in replace(plan, rows=rows).tilings(best.cycles * NEAR):
        if tiling.cycles <= best.cycles * NEAR and _reads(tiling) == _reads(best):
          return tiling
  return best


def _reads(tiling: Tiling) -> tuple[object, ...]:
  return tiling.lanes_from, tiling.rows_from, tiling.panels, tiling.images


def ranked_tilings(c: SumOfProducts, target: Target) -> list[Tiling]:
  """All tilings, that of the fewest cycles first."""
  found = [tiling for plan in _plans(c, target) for tiling in plan.tilings()]
  return sorted(found, key=lambda t: t.cycles)


def _plans(c: SumOfProducts, target: Target) -> Iterator[TileCost]:
  width = min(target.lanes(u.dtype) for u in (c.reduce, *[o.value for o in c.operands]))
  if width < 2:
    return
  a, b = c.operands
  offset = c.instruction is not None and c.instruction.offset  # a sum of its own over the other operand: of its lanes
  # where estimates are equal the first is taken: panels of one vector stay in nearer caches; dot products load less so
  sizes: tuple[int, ...] = (1, 2, 4) if c.instruction is None else (2, 1, 4)
  plan, rows_of_tiles = TileCost, ROWS
  if isinstance(c.instruction, SquareProduct):
    plan, sizes = SquareTileCost, (4, 2)
  elif isinstance(c.instruction, MatrixProduct):
    plan, width = MatrixTileCost, c.instruction.lanes
    sizes, rows_of_tiles = (2, 1), (2 * c.instruction.rows, c.instruction.rows)
  for lanes_of, rows_of in ((b, a),) if offset else ((a, b), (b, a)):
    # rows next to each other in memory, as near as can be; any where many steps of the sum are next to each other
    near = {r: abs(rows_of.step(r) or 1 << 62) for r in c.own_loops(rows_of)}
    along = any(rows_of.step(r) == 1 and r.src[0].vmax >= LONG_RUN for r in c.reduce.src[1:])
    row_loops = sorted(near, key=lambda r: (near[r], r.arg[0]))
    enough = next((place for place, r in enumerate(row_loops, 1) if size_of(r) >= FEW_ROWS), len(near))
    for row_loop in row_loops[: len(near) if along else enough]:
      for lane_loop in c.own_loops(lanes_of):
        known: dict[str, float] = {}
        taps: dict[UOp, tuple[float, tuple[UOp, ...]]] = {}
        for vectors, rows in itertools.product(sizes, rows_of_tiles):
          yield plan(c, target, lanes_of, rows_of, lane_loop, row_loop, width, vectors, rows, known, taps)


def dot_cycles(c: SumOfProducts, target: Target) -> float:
  """An estimate for lanes along the sum, which both operands have to be adjacent in. A tile of results reads some rows
  of each for the whole sum: from the second cache level, if they do not fit into the first."""
  summed = [r for r in c.reduce.src[1:] if all(o.step(r) == 1 for o in c.operands)]
  if not summed:
    return math.inf
  width = min(target.lanes(o.value.dtype) for o in c.operands)
  size = size_of(summed[0])
  vectors = c.length * blocks(summed[0], width) / size
  each, nbytes = 1.25 / rate(c, target), sum(o.itemsize for o in c.operands)
  if DOT_ROWS * nbytes * c.length > target.caches.first:
    each = max(each, nbytes * width / DOT_ROWS / target.cost.second_bytes)
  return c.outputs * (vectors * each + 8)
