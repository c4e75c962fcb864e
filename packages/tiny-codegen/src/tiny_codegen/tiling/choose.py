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

from tiny_codegen.instructions.dot_product import MatrixProduct
from tiny_codegen.kernel.loops import size_of
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.target import Target
from tiny_codegen.tiling.cost import MatrixTileCost, TileCost, rate
from tiny_codegen.tiling.tiles import Tiling, blocks
from tiny_uop import UOp

ROWS: tuple[int, ...] = (14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2)
LONG_RUN = 16  # steps of a sum that use up a cache line


def best_tiling(c: SumOfProducts, target: Target) -> Tiling | None:
  """The tiling with the fewest cycles; None if there is no choice of loops to tile."""
  best: Tiling | None = None
  for plan in _plans(c, target):
    for tiling in plan.tilings(math.inf if best is None else best.cycles):
      if best is None or tiling.cycles < best.cycles:
        best = tiling
  return best


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
  if isinstance(c.instruction, MatrixProduct):
    plan, width = MatrixTileCost, c.instruction.lanes
    sizes, rows_of_tiles = (2, 1), (2 * c.instruction.rows, c.instruction.rows)
  for lanes_of, rows_of in ((b, a),) if offset else ((a, b), (b, a)):
    # rows next to each other in memory, as near as can be; any where many steps of the sum are next to each other
    near = {r: abs(rows_of.step(r) or 1 << 62) for r in c.own_loops(rows_of)}
    along = any(rows_of.step(r) == 1 and r.src[0].vmax >= LONG_RUN for r in c.reduce.src[1:])
    for row_loop in sorted(near, key=lambda r: (near[r], r.arg[0]))[: len(near) if along else 1]:
      for lane_loop in c.own_loops(lanes_of):
        known: dict[str, float] = {}
        taps: dict[UOp, tuple[float, tuple[UOp, ...]]] = {}
        for vectors, rows in itertools.product(sizes, rows_of_tiles):
          yield plan(c, target, lanes_of, rows_of, lane_loop, row_loop, width, vectors, rows, known, taps)


def dot_cycles(c: SumOfProducts, target: Target) -> float:
  """An estimate for lanes along the sum, which both operands have to be adjacent in."""
  summed = [r for r in c.reduce.src[1:] if all(o.step(r) == 1 for o in c.operands)]
  if not summed:
    return math.inf
  width = min(target.lanes(o.value.dtype) for o in c.operands)
  size = size_of(summed[0])
  outputs = c.outputs
  return outputs * (c.length * blocks(summed[0], width) * width / size / (width * rate(c, target)) * 1.25 + 8)
