"""How threads share the loops of a tiled sum of products."""

from __future__ import annotations

from tiny_codegen.cost_model import CACHE_LINE, CostModel
from tiny_codegen.kernel.loops import extent, kind, size_of
from tiny_codegen.kernel.sum_of_products import Operand
from tiny_codegen.lower.peel import lanes_left, rows_left
from tiny_codegen.tiling.tiles import Lanes, Rows, Tiling
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class Sharing:
  """How threads share the output loops of a tiled sum of products: a loop, and how many iterations at a time."""

  cost: float
  loop: int
  block: int


def best_sharing(root: UOp, tiling: Tiling, cost: CostModel) -> Sharing | None:
  """Which loop goes to threads: long enough for the work to be even, and so that little is packed more than once.

  The shared loop goes outside all others. What is packed outside of it now, and does not depend on it, is then packed
  again for each block of iterations; what depends on no loop at all is packed once by each thread in any case, and what
  depends on a loop that runs in order for each block, since that loop is inside. Where lanes are read from memory,
  iterations that follow each other stay next to each other there; and so should rows: those of images that threads
  share are other images for each. The last panel, or tile, of a shared loop is as large as the others, whatever is left
  for it (see `peel`).
  """
  order = [r for r in root.src[0].src[1:] if kind(r) is AxisType.LOOP]
  packed: list[tuple[int, float]] = []  # the depth at which something is packed, and what that costs
  rows, lanes = _packing(tiling.rows_of, tiling.row_loop, cost), _packing(tiling.lanes_of, tiling.lane_loop, cost)
  for stage in (u for u in root.toposort if u.op is Ops.STAGE):
    cycles = lanes if _reads(stage, tiling.lanes_of.slot) else rows
    depths = [order.index(r) for r in stage.src[0].ranges.difference(stage.src[1:]) if r in order]
    ordered = any(kind(r) is AxisType.ORDER for r in stage.src[0].ranges)
    if depths or ordered:
      packed.append((max(depths, default=-1), cycles / tiling.cycles))
  choices = []
  for depth, loop in enumerate(order):
    size = extent(loop)
    if size is None or size < 2:
      continue
    for block in {1, max(1, size // 8)}:
      if size % block == 0:
        again = sum(part for inside, part in packed if depth > inside) * (size // block - 1)
        apart = _apart(tiling, order[:depth], loop, cost)
        uneven = _beyond(tiling, loop, block) + 0.5 * block / size
        choices.append(Sharing(again + apart + uneven, loop.arg[0], block))
  return min(choices, key=lambda s: (s.cost, s.loop, s.block), default=None)


def _apart(tiling: Tiling, outside: list[UOp], loop: UOp, cost: CostModel) -> float:
  """The part of the time that is lost where a loop goes outside of these."""
  if outside and tiling.lanes_from is Lanes.DIRECT:
    return cost.apart
  rows = tiling.rows_of.loops if tiling.rows_from is not Rows.IMAGE else ()
  return cost.rows_apart if loop in rows and any(r in rows for r in outside) else 0.0


def _packing(operand: Operand, loop: UOp, cost: CostModel) -> float:
  """Cycles for packing all of an operand."""
  return (
    operand.elements * (cost.copy if operand.step(loop) == 1 else cost.gather) + operand.nbytes / CACHE_LINE * cost.line
  )


def _beyond(tiling: Tiling, loop: UOp, block: int) -> float:
  """The part that is computed for nothing where threads share a loop over panels, so that the last one is as wide as
  the others unless it is in a block; or over tiles, of which the last one then has as many rows."""
  if loop.arg[0] == tiling.lane_loop.arg[0] and block == 1:
    size = size_of(tiling.lane_loop)
    return (tiling.lanes - lanes_left(size, tiling.lanes)) / size
  if loop.arg[0] == tiling.row_loop.arg[0]:
    size = size_of(tiling.row_loop)
    return -size % tiling.rows / size if rows_left(size, tiling.rows) else 0.0
  return 0.0


def _reads(value: UOp, slot: int) -> bool:
  return any(u.op is Ops.PARAM and u.arg == slot for u in value.toposort)
