"""Pass: what follows the sums of a register tile is computed and stored by a loop.

Sums of a tile are used at once, and all of that is written out: for each row and lane a store where neither are
neighbours in memory, for each row an error function where that is what comes of a sum. It is the largest part of many
kernels, and what it reads keeps registers from before the sums. Here the sums go to local memory as they are, and a
loop reads them back, computes the rest, and stores it:

    out[c, p] = f(REDUCE, bias[c], old[c, p])            # 32 lanes c, 8 rows p
    tile[p, c] = REDUCE; for each of 4 blocks b: out[8*b + c, p] = f(tile[p, 8*b + c], bias[…], old[…])

- Lanes that lie far apart are taken a few at a time. Rows that are neighbours then, as in a convolution with lanes of
  channels and rows of pixels, are left to `transpose_in_registers`, which writes along them; other rows become a loop.
- Lanes that are neighbours stay, and rows become a loop where more than a few operations follow a sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiny_codegen.kernel.expressions import row_major, stride
from tiny_codegen.kernel.loops import IN_TILE, kind, next_loop_id, own_loops, size_of, substitute_simplified
from tiny_codegen.kernel.memory import next_alloc_id
from tiny_codegen.kernel.threads import refilling_loops
from tiny_codegen.lower.transpose_in_registers import LEAST_ROWS
from tiny_codegen.target import Target
from tiny_uop import AddrSpace, AxisType, GroupOp, Ops, UOp
from tiny_uop.graph import rebuild

SQUARE = 8  # lanes at a time: squares of 8×8 take a quarter of the code of larger ones
MOST_WRITTEN = 16  # operations on a row that are written out for each


def store_tiles(root: UOp, target: Target) -> UOp:
  """The kernel with loops that store tiles, on processors with vectors."""
  if target.has_local or target.max_vector_lanes < LEAST_ROWS:
    return root
  loop_id, alloc_id = next_loop_id(root), next_alloc_id(root)

  def change(u: UOp, new: UOp) -> UOp | None:
    nonlocal loop_id, alloc_id
    if (found := _tile_of(new, target)) is None:
      return None
    tile, sums, kinds, count = found
    size = size_of(tile[-1])
    places = [UOp.range(r.src[0], loop_id + 1 + i, axis) for i, (r, axis) in enumerate(zip(tile, kinds))]
    lane = UOp.range(count, loop_id + 1 + len(kinds), AxisType.VECTOR)
    blocks = [UOp.range(size // count, loop_id, AxisType.LOOP)] if count < size else []
    changes = dict(zip(tile, (*places, sum((b * count for b in blocks), lane))))
    loop_id += 2 + len(kinds)
    sizes = tuple([size_of(r) for r in tile])
    for total in sums:
      memory = UOp.alloc(alloc_id, total.dtype.ptr(math.prod(sizes), AddrSpace.LOCAL))
      alloc_id += 1
      keeping = memory.after(*refilling_loops(total, tile)).index(row_major(tile, sizes)).store(total).end(*tile)
      changes[total] = memory.after(keeping).index(row_major(tuple([changes[r] for r in tile]), sizes)).load()
    others = [r for r in own_loops(new) if r not in tile]
    return substitute_simplified(new.src[0], changes).end(*others, *blocks, *places, lane)

  return rebuild(root, change)


def _tile_of(end: UOp, target: Target) -> tuple[tuple[UOp, ...], list[UOp], list[AxisType], int] | None:
  """Of an END that stores sums the loops of the tile, the lanes last, the sums, what the rows become, and how many
  lanes at a time are stored; None for one that is better written out."""
  if end.op is not Ops.END or end.src[0].op is not Ops.STORE or end.src[0].arg is not None:
    return None
  offset, value = end.src[0].src[0].src[1], end.src[0].src[1]
  rows = [r for r in own_loops(end) if kind(r) in IN_TILE and kind(r) is not AxisType.VECTOR]
  lanes = [r for r in own_loops(end) if kind(r) is AxisType.VECTOR]
  if len(lanes) != 1 or (step := stride(offset, lanes[0])) in (None, 0) or not rows:
    return None
  written = list(value.walk(lambda u: u.op is not Ops.REDUCE))
  sums, tile, size = [u for u in written if u.op is Ops.REDUCE], (*rows, lanes[0]), size_of(lanes[0])
  if not sums or not all(u.ranges.issuperset(tile) for u in sums):
    return None
  kinds, count = [AxisType.LOOP] * len(rows), size
  neighbours = _neighbours(offset, rows)
  run = math.prod(map(size_of, neighbours))
  if step == 1 or step == run == 2:  # lanes of two rows are stored by turns
    if sum(u.op in GroupOp.Elementwise and not u.ranges.isdisjoint(rows) for u in written) <= MOST_WRITTEN:
      return None
  else:
    # rows that are whole vectors are transposed in one square, and are stored as such
    count = lanes_at_once if run == (lanes_at_once := target.lanes(value.dtype)) else min(lanes_at_once, SQUARE)
    kinds = [AxisType.UPCAST if run >= LEAST_ROWS and r in neighbours else AxisType.LOOP for r in rows]
  looped = math.prod([size_of(r) for r, axis in zip(rows, kinds) if axis is AxisType.LOOP]) * size // count
  return None if size % count or looped == 1 else (tile, sums, kinds, count)


def _neighbours(offset: UOp, rows: Sequence[UOp]) -> list[UOp]:
  """The loops of rows along which results are neighbours: each step of one begins where those before end."""
  found, run = list[UOp](), 1
  while (loop := next((r for r in rows if r not in found and stride(offset, r) == run), None)) is not None:
    found.append(loop)
    run *= size_of(loop)
  return found
