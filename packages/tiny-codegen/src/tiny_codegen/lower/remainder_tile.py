"""Narrow panels have register tiles of twice as many rows.

In a last panel of one vector where the others have four, a tile has a quarter of the accumulators, each of which has to
wait for itself. So tiles are taken two at a time there, but for the last one or two.
"""

from __future__ import annotations

import math

from tiny_codegen.kernel.expressions import number
from tiny_codegen.kernel.loops import extent, kind, substitute_simplified
from tiny_codegen.kernel.memory import own_memory
from tiny_uop import AxisType, Ops, UOp

# of a vector: those of 128 bits that are left over take as long as fewer
LEAST_LANES = 4
# rows that would be computed for nothing are worth code of their own if they are one in so many
LEFT_OVER = 28
# a last panel that is so many times narrower than others has tiles of twice as many rows, but no more than these
NARROW, MOST_ROWS = 4, 14

LEAST_TILES = 5
"""Tiles that are taken in pairs: two pairs, so that there is a loop over them."""


def with_remainder_tiles(body: UOp, loops: tuple[UOp, ...], narrower: int, fresh: int) -> UOp:
  """The END of `loops` over the body of a panel that is so many times narrower than others. `fresh`: the first free
  number of a loop."""
  rows = math.prod(extent(r) or 0 for r in loops if kind(r) is AxisType.UPCAST)
  tiles = next((r for r in loops if _is_over_tiles(body, r)), None) if rows_of_last(rows, narrower) != rows else None
  if tiles is None:
    return body.end(*loops)
  count = extent(tiles) or 0
  pairs = (count - 1) // 2
  pair, upper = UOp.range(pairs, fresh, AxisType.LOOP), UOp.range(2, fresh + 1, AxisType.UPCAST)
  left = UOp.range(count - 2 * pairs, fresh + 2, AxisType.LOOP) if count % 2 == 0 else number(0)
  both = substitute_simplified(body, {tiles: pair * 2 + upper})
  one = substitute_simplified(body, {tiles: left + 2 * pairs})
  others = tuple([r for r in loops if r is not tiles])
  return UOp.group(both.end(*others, pair, upper), one.end(*others, *[left] * (left.op is Ops.RANGE)))


def _is_over_tiles(body: UOp, loop: UOp) -> bool:
  """Whether a loop goes over register tiles of one panel: it moves no lanes, and fills no memory."""
  if kind(loop) is not AxisType.LOOP or (extent(loop) or 0) < LEAST_TILES or own_memory(body, loop):
    return False
  nodes = list(body.walk(lambda u: u.op is not Ops.AFTER))
  lanes = [u for u in nodes if u.op is Ops.LOAD and any(kind(r) is AxisType.VECTOR for r in u.ranges)]
  sums = any(u.op is Ops.REDUCE for u in nodes)
  return sums and bool(lanes) and not any(loop in u.ranges for u in lanes)


def lanes_left(size: int, lanes: int) -> int:
  """The lanes of the last panel of a loop: fewer than of the others, where half of theirs or more would be computed for
  nothing (see `peel`)."""
  left = size % lanes
  while left and lanes % 2 == 0 and lanes // 2 >= max(left, LEAST_LANES):
    lanes //= 2
  return lanes


def rows_left(size: int, rows: int) -> int:
  """The rows of the last register tile of a loop, where there are so few that it is a smaller one (see `peel`); 0 where
  it is as large as the others, of which some rows may be computed for nothing."""
  left = size % rows
  return left if left and (rows - left) * LEFT_OVER >= size > rows else 0


def rows_of_last(rows: int, narrower: int) -> int:
  """The rows of register tiles of a last panel that is so many times narrower than others."""
  return 2 * rows if narrower >= NARROW and rows > 0 and 2 * rows <= MOST_ROWS else rows
