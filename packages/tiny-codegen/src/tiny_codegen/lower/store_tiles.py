"""Pass: tiles whose lanes lie far apart in memory are stored a register's lanes at a time, by a loop.

The lanes of a register tile may be far apart in the memory that it is stored to, while its rows are neighbours: in a
convolution with lanes of channels, the rows are pixels. `transpose_in_registers` writes such a tile along its rows; for
all lanes at once that is the largest part of a kernel, and what is computed from the sums keeps registers from its
start to its end. Here the sums go to local memory as they are, and a loop over as many lanes as a register has reads
them back, computes the rest, and stores it:

    out[c, p] = f(REDUCE, bias[c], old[c, p])            # 32 lanes c, 8 rows p
    tile[p, c] = REDUCE; for each of 2 blocks b: out[16*b + c, p] = f(tile[p, 16*b + c], bias[…], old[…])

The code of a tile is half as long then, or a quarter, and takes as much less time to make.
"""

from __future__ import annotations

import math

from tiny_codegen.kernel.expressions import row_major, stride
from tiny_codegen.kernel.loops import IN_TILE, kind, next_loop_id, own_loops, size_of, substitute_simplified
from tiny_codegen.kernel.memory import next_alloc_id
from tiny_codegen.kernel.threads import refilling_loops
from tiny_codegen.lower.transpose_in_registers import LEAST_ROWS
from tiny_codegen.target import Target
from tiny_uop import AddrSpace, AxisType, Ops, UOp
from tiny_uop.graph import rebuild

SQUARE = 8  # lanes at a time: squares of 8×8 are transposed as fast as larger ones, in a quarter of the code


def store_tiles(root: UOp, target: Target) -> UOp:
  """The kernel with loops that store tiles, on processors with vectors."""
  if target.has_local or target.max_vector_lanes < LEAST_ROWS:
    return root
  loop_id, alloc_id = next_loop_id(root), next_alloc_id(root)

  def change(u: UOp, new: UOp) -> UOp | None:
    nonlocal loop_id, alloc_id
    if (found := _far_tile(new, target)) is None:
      return None
    tile, sums, count = found
    *rows, lanes = tile
    block = UOp.range(size_of(lanes) // count, loop_id, AxisType.LOOP)
    places = [UOp.range(r.src[0], loop_id + 1 + i, kind(r)) for i, r in enumerate(rows)]
    lane = UOp.range(count, loop_id + 1 + len(rows), AxisType.VECTOR)
    changes = dict(zip(tile, (*places, block * count + lane)))
    loop_id += 2 + len(rows)
    sizes = tuple([size_of(r) for r in tile])
    for total in sums:
      memory = UOp.alloc(alloc_id, total.dtype.ptr(math.prod(sizes), AddrSpace.LOCAL))
      alloc_id += 1
      keeping = memory.after(*refilling_loops(total, tile)).index(row_major(tile, sizes)).store(total).end(*tile)
      changes[total] = memory.after(keeping).index(row_major(tuple([changes[r] for r in tile]), sizes)).load()
    others = [r for r in own_loops(new) if r not in tile]
    return substitute_simplified(new.src[0], changes).end(*others, block, *places, lane)

  return rebuild(root, change)


def _far_tile(end: UOp, target: Target) -> tuple[tuple[UOp, ...], list[UOp], int] | None:
  """Of an END that stores sums along its rows and not along its lanes the loops of the tile, the lanes last, the sums,
  and how many lanes at a time are stored; None for another."""
  if end.op is not Ops.END or end.src[0].op is not Ops.STORE or end.src[0].arg is not None:
    return None
  offset, value = end.src[0].src[0].src[1], end.src[0].src[1]
  rows = [r for r in own_loops(end) if kind(r) in IN_TILE and kind(r) is not AxisType.VECTOR]
  lanes = [r for r in own_loops(end) if kind(r) is AxisType.VECTOR]
  if len(lanes) != 1 or stride(offset, lanes[0]) in (None, 0, 1):
    return None
  if not any(size_of(r) >= LEAST_ROWS and stride(offset, r) == 1 for r in rows):
    return None
  count, tile = min(target.lanes(value.dtype), SQUARE), (*rows, lanes[0])
  if size_of(lanes[0]) % count or size_of(lanes[0]) == count:
    return None
  sums = [u for u in value.walk(lambda u: u.op is not Ops.REDUCE) if u.op is Ops.REDUCE]
  return (tile, sums, count) if sums and all(u.ranges.issuperset(tile) for u in sums) else None
