"""Optimisations for a kernel that reads along one loop and writes along another: transposes, permuted axes, NCHW to
NHWC and back.

On a processor, lanes go along what is written, and as many rows of what is read are written out: a square, which the
pass `transpose_in_registers` reads and writes in whole cache lines. Squares follow each other along what is read, a few
pages' worth of lines, so that the next lines of these rows are fetched ahead. The stores of whole lines need not read
what they overwrite (`lower/stream_stores.py`).

On a target with workgroups, neighbouring threads should read neighbours and write neighbours, which are not the same
ones here. So a workgroup reads a square in rows into shared memory and writes it in columns (G. Ruetsch and P.
Micikevicius, "Optimizing matrix transpose in CUDA", 2009); rows there are one word longer than the square, so that
columns are in different banks (`stage.py`). What else the kernel reads, along the loop that it writes along, is read
where it is used.
"""

from __future__ import annotations

from tiny_codegen.cost_model import CACHE_LINE
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import extent, kind, next_loop_id
from tiny_codegen.target import Target
from tiny_uop import AxisType, Ops, Opt, OptOps, UOp

MOST_SIDE = 16  # rows and lanes of a square: n² elements are written out
SQUARES = (8, 32)  # squares that follow each other along what is read, at least and at most


def transpose_copy(root: UOp, target: Target) -> tuple[Opt, ...]:
  """The Opts, without THREAD; none for a kernel of another kind."""
  if (found := transposed_loops(root)) is None:
    return ()
  along, across, widest = found
  most = min(MOST_SIDE, CACHE_LINE // widest, target.max_vector_lanes)
  lanes, rows = (_amount(loop, most) for loop in (across, along))
  if lanes < 4 or rows < 4:
    return ()
  opts = [Opt(OptOps.PADTO, loop.arg[0], n) for loop, n in ((across, lanes), (along, rows)) if (extent(loop) or 0) % n]
  squares = -(-(extent(along) or 0) // rows)
  run = next((n for n in range(SQUARES[1], SQUARES[0] - 1, -1) if squares % n == 0 and n < squares), None)
  inner = along.arg[0]
  if run is not None:
    inner = next_loop_id(root)
    opts.append(Opt(OptOps.SPLIT, along.arg[0], rows * run))
  elif root.src[0].src.index(along) < root.src[0].src.index(across):
    opts.append(Opt(OptOps.SWAP, along.arg[0], across.arg[0]))
  return (*opts, Opt(OptOps.UPCAST, inner, rows), Opt(OptOps.VECTOR, across.arg[0], lanes))


def transposed_loops(root: UOp) -> tuple[UOp, UOp, int] | None:
  """(the loop along which a kernel reads, that along which it writes, bytes of the widest element); None for one that
  reads as it writes."""
  end, nodes = root.src[0] if len(root.src) == 1 else root, root.toposort
  store = end.src[0] if end.op is Ops.END else end
  if store.op is not Ops.STORE or store is end or store.arg is not None or any(u.op is Ops.REDUCE for u in nodes):
    return None
  offsets = [u.src[0].src[1] for u in nodes if u.op is Ops.LOAD]
  loops = [r for r in end.src[1:] if kind(r) is AxisType.LOOP and extent(r) is not None]
  across = next((r for r in loops if stride(end.src[0].src[0].src[1], r) == 1), None)
  if across is None:
    return None
  far = [offset for offset in offsets if stride(offset, across) not in (0, 1)]
  along = next((r for r in loops if r is not across and far and all(stride(o, r) == 1 for o in far)), None)
  if along is None:
    return None
  widest = max(u.dtype.itemsize for u in (end.src[0].src[1], *[u for u in nodes if u.op is Ops.LOAD]))
  return along, across, widest


def _amount(loop: UOp, most: int) -> int:
  """Iterations of a side of a square: a power of two that divides the loop, or one that fits into it a few times."""
  size, amount = extent(loop) or 0, most
  while amount > 1 and size % amount and size < 4 * amount:
    amount //= 2
  return amount


# *** a target with workgroups ***


SIDE = 32  # of a square: a row of it is a cache line or half of one
LEAST_SIDE = 8  # elements of a side from which on a square pays
MOST_THREADS = 256


def transpose_tile(root: UOp, target: Target) -> tuple[Opt, ...]:
  """The Opts; none for a kernel of another kind."""
  if (found := transposed_loops(root)) is None:
    return ()
  along, across, _ = found
  sides = {loop: _side(extent(loop) or 0) for loop in (along, across)}
  if min(sides.values()) < LEAST_SIDE:
    return ()
  most = min(MOST_THREADS, target.limits.max_workgroup)
  columns = min(sides[across], target.limits.max_local[0])
  rows = min(max(most // columns, 1), sides[along], target.limits.max_local[1])
  opts, inner = [], {}
  fresh = next_loop_id(root)
  for loop in (along, across):
    size, side = extent(loop) or 0, sides[loop]
    opts += [Opt(OptOps.PADTO, loop.arg[0], side)] if size % side else []
    inner[loop] = loop.arg[0]
    if -(-size // side) > 1:
      inner[loop], fresh = fresh, fresh + 1
      opts.append(Opt(OptOps.SPLIT, loop.arg[0], side))
  slots = [u.src[0].src[0].arg for u in root.toposort if u.op is Ops.LOAD and stride(u.src[0].src[1], along) == 1]
  opts += [Opt(OptOps.STAGE, slot, (inner[across], inner[along])) for slot in sorted(set(slots))]
  opts.append(Opt(OptOps.LOCAL, inner[across], columns))
  if rows > 1:
    opts.append(Opt(OptOps.LOCAL, inner[along], rows))
  if rows < sides[along]:
    opts.append(Opt(OptOps.UPCAST, inner[along], 0))
  return tuple(opts)


def _side(size: int) -> int:
  """A power of two that is not much more than there is to do."""
  side = SIDE
  while side > LEAST_SIDE // 2 and side // 2 >= size:
    side //= 2
  return side
