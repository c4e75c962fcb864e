"""Register tiles of a sum of products, and where their operands are read from: see `choose.py`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from tiny_codegen.cost_model import CostModel
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import extent, kind, size_of
from tiny_codegen.kernel.sum_of_products import Operand, SumOfProducts
from tiny_codegen.lower.peel import lanes_left, rows_left
from tiny_codegen.target import FEW_THREADS, Target
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.ops import Named, members
from tiny_uop.records import dataclass

# where rows are packed in blocks: panels that share them, and register tiles in a block
PANELS, ROW_BLOCKS = 4, 8


@members
class Lanes(Named):
  """Where the operand with the lanes is read from."""

  DIRECT = "memory"
  PANEL = "local memory, a panel at a time, in the outermost loop"
  SOME = "local memory, several panels at a time, in the outermost loop"
  WHOLE = "local memory, all panels"


@members
class Rows(Named):
  """Where the operand with the rows is read from."""

  DIRECT = "memory"
  WINDOW = "local memory: what all rows of the row loop read, which may overlap"
  IMAGE = "local memory: what all rows of all its loops but the outermost read"
  TILE = "local memory: what one register tile reads, for the panels at hand"
  BLOCK = "local memory: what several register tiles read, for several panels"


@dataclass(frozen=True)
class Tiling:
  """A way to tile a sum of products. `cycles` is the estimate for one core."""

  cycles: float
  lanes_of: Operand
  rows_of: Operand
  lane_loop: UOp
  row_loop: UOp
  lanes: int
  rows: int
  lanes_from: Lanes
  rows_from: Rows
  panels: int = 1  # that are packed together, where it is SOME of them
  written: UOp | None = None  # the loop of the sum of which steps are written out
  steps: int = 1  # that are
  images: int = 1  # that are packed together, where rows are from an IMAGE
  packing: tuple[float, float] = (0.0, 0.0)  # cycles for packing all of the lanes' and of the rows' operand once

  @property
  def reads(self) -> tuple[object, ...]:
    """Which operand has the lanes, how many, along what, and how both are read."""
    return self.lanes_of.slot, self.lane_loop.arg[0], self.lanes, self.lanes_from, self.rows_from

  def image_loops(self, c: SumOfProducts) -> list[UOp]:
    """The loops of an IMAGE: all that move only the rows' operand, but the one that moves it farthest."""
    return [r for r in c.own_loops(self.rows_of) if r is not self.outermost(c)]

  def outermost(self, c: SumOfProducts) -> UOp:
    """The loop over images."""
    return farthest(c, self.rows_of)


def farthest(c: SumOfProducts, operand: Operand) -> UOp:
  """Of the loops that move only this operand that which moves it farthest."""
  return max(c.own_loops(operand), key=lambda r: abs(operand.step(r) or 1 << 62))


def row_by_row(c: SumOfProducts, operand: Operand, row_loop: UOp) -> bool:
  """Whether an operand has the steps of the sum next to each other, and rows far apart: it is packed in this order."""
  last, step = c.reduce.src[-1], abs(operand.step(row_loop) or 0)
  return operand.step(last) == 1 and step >= size_of(last) > 1


def blocks(loop: UOp, amount: int) -> int:
  """Iterations of a loop, so many at a time."""
  return -(-size_of(loop) // amount)


def divides(loop: UOp, amount: int) -> bool:
  return size_of(loop) % amount == 0


# *** how threads share loops ***

EVEN_ENOUGH = 0.05
"""Of the time, that may be lost by dividing among threads; another division is looked for where it is more."""
UNEVEN = 0.1
"""Of the time, that uneven shares count for besides."""


@dataclass(frozen=True)
class Sharing:
  """How threads share the output loops of a tiled sum of products: a loop, and how many iterations at a time; or each
  iteration of it with those of `merged`, loops inside of it, of one of all these, `in_blocks`, so many at a time."""

  cost: float
  loop: int
  block: int
  merged: tuple[int, ...] = ()
  in_blocks: int = 0


def sharings(root: UOp, tiling: Tiling, target: Target) -> list[Sharing]:
  """Which loop may go to threads, best first: long enough for the work to be even, and so that little is packed more
  than once.

  The shared loop goes outside all others. What is packed outside of it now, and does not depend on it, is then packed
  again for each block of iterations; what depends on no loop at all is packed once by each thread in any case, and what
  depends on a loop that runs in order for each block, since that loop is inside. Where lanes are read from memory,
  iterations that follow each other stay next to each other there; and so should rows: those of images that threads
  share are other images for each. The last panel, or tile, of a shared loop is as large as the others, whatever is left
  for it (see `peel`). For many threads two loops may be shared as one, or three where two are uneven.
  """
  order = [r for r in root.src[0].src[1:] if kind(r) is AxisType.LOOP]
  choices = [*_one_loop(root, order, tiling, target)]
  for count in (2, 3) if target.threads > FEW_THREADS else ():
    if min([s.cost for s in choices], default=1.0) > EVEN_ENOUGH:
      choices += _several_loops(root, order, tiling, target, count)
  # of those that are as good by a thousandth the outermost loop
  return sorted(choices, key=lambda s: (round(s.cost, 3), s.loop, s.block, s.merged, s.in_blocks))


def _one_loop(root: UOp, order: list[UOp], tiling: Tiling, target: Target) -> Iterator[Sharing]:
  packed, threads = _packed(root, order, tiling), target.threads
  for depth, loop in enumerate(order):
    size = extent(loop)
    if size is None or size < 2:
      continue
    for block in {1, max(1, size // 8), *(_even_blocks(size, threads) if threads > FEW_THREADS else ())}:
      if size % block == 0:
        again = sum(part for inside, part in packed if depth > inside) * (size // block - 1)
        apart = _apart(root, tiling, order[:depth], loop, block, target.cost)
        more = again + apart + _beyond(tiling, loop, block)
        yield Sharing(_shared_cost(more, size // block, threads), loop.arg[0], block)


def _several_loops(root: UOp, order: list[UOp], tiling: Tiling, target: Target, count: int) -> Iterator[Sharing]:
  packed = _packed(root, order, tiling)
  for depths in itertools.combinations(range(len(order)), count):
    loops = [order[depth] for depth in depths]
    sizes = [extent(loop) or 0 for loop in loops]
    if min(sizes) < 2:
      continue
    beyond = sum(_beyond(tiling, loop, 1) for loop in loops)
    crossed = [[r for r in order[:depth] if r not in loops[:-1]] for depth in depths]
    merged = tuple([loop.arg[0] for loop in loops[1:]])
    for cut, loop in enumerate(loops):
      # the whole of a loop is looked at once, as the last one in blocks of one
      for block in (n for n in range(1 if loop is loops[-1] else 2, sizes[cut]) if sizes[cut] % n == 0):
        blocks = [block if n == cut else 1 for n in range(count)]
        pieces = [size // n for size, n in zip(sizes, blocks)]
        again = sum(
          part * (math.prod(n for n, depth in zip(pieces, depths) if depth > inside) - 1) for inside, part in packed
        )
        apart = sum(_apart(root, tiling, *way, target.cost) for way in zip(crossed, loops, blocks))
        cost = _shared_cost(again + apart + beyond, math.prod(pieces), target.threads)
        yield Sharing(cost, loops[0].arg[0], block, merged, loop.arg[0])


def _packed(root: UOp, order: list[UOp], tiling: Tiling) -> list[tuple[int, float]]:
  """What is packed inside of loops: the depth, -1 outside of all, and the part of the time that it takes."""
  found = []
  lanes, rows = tiling.packing
  for stage in (u for u in root.toposort if u.op is Ops.STAGE):
    cycles = lanes if _reads(stage, tiling.lanes_of.slot) else rows
    depths = [order.index(r) for r in stage.src[0].ranges.difference(stage.src[1:]) if r in order]
    ordered = any(kind(r) is AxisType.ORDER for r in stage.src[0].ranges)
    if depths or ordered:
      found.append((max(depths, default=-1), cycles / tiling.cycles))
  return found


def _even_blocks(size: int, threads: int) -> Iterator[int]:
  """Iterations at a time that leave each thread one to four shares of equal length."""
  return (max(1, size // (threads * shares)) for shares in (1, 2, 4))


def _shared_cost(more: float, shares: int, threads: int) -> float:
  """What is lost, in parts of the time: `more` work for all threads together, and what they wait for the last one.
  Waiting is certain, and estimates of work are not nearer than a tenth."""
  if threads <= FEW_THREADS:
    return more + 0.5 / shares
  waiting = -(-shares // threads) * threads / shares
  return (1 + more) * max(1 + 0.5 / shares, waiting) - 1 + (UNEVEN if waiting > 1 + EVEN_ENOUGH else 0.0)


def _apart(root: UOp, tiling: Tiling, outside: list[UOp], loop: UOp, block: int, cost: CostModel) -> float:
  """The part of the time that is lost where a loop, so many iterations at a time, goes outside of these."""
  if outside and tiling.lanes_from is Lanes.DIRECT:
    return cost.apart
  rows = tiling.rows_of.loops if tiling.rows_from is not Rows.IMAGE else ()
  if not any(r in rows for r in outside):
    return 0.0
  # the loop over tiles of rows is another node than the one over rows
  tiles = loop.arg[0] == tiling.row_loop.arg[0] and _in_pieces(root, loop, block, cost)
  return cost.rows_apart if loop in rows or tiles else 0.0


def _in_pieces(root: UOp, loop: UOp, block: int, cost: CostModel) -> bool:
  """Whether neighbouring iterations of a loop, so many at a time, write short pieces of the same rows of results."""
  stores = [u for u in root.src[0].toposort if u.op is Ops.STORE]
  return any(0 < (stride(u.src[0].src[1], loop) or 0) * block < cost.neighbours for u in stores)


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
