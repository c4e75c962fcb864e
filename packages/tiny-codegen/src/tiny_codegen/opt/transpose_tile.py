"""Optimisations for a kernel that reads along one loop and writes along another, on a target with workgroups:
transposes, permuted axes, NCHW to NHWC and back.

Neighbouring threads should read neighbours and write neighbours, which are not the same ones here. So a workgroup reads
a square in rows into shared memory and writes it in columns (G. Ruetsch and P. Micikevicius, "Optimizing matrix
transpose in CUDA", 2009); rows there are one word longer than the square, so that columns are in different banks
(`stage.py`). What else the kernel reads, along the loop that it writes along, is read where it is used.
"""

from __future__ import annotations

from tiny_codegen.kernel.loops import extent, next_loop_id, stride
from tiny_codegen.opt.transpose_copy import transposed_loops
from tiny_codegen.target import Target
from tiny_uop import Ops, Opt, OptOps, UOp

SIDE = 32  # of a square: a row of it is a cache line or half of one
LEAST_SIDE = 8  # elements of a side from which on a square pays
MOST_THREADS = 256


def transpose_tile(root: UOp, target: Target) -> tuple[Opt, ...]:
  """The Opts; none for a kernel of another kind."""
  found = transposed_loops(root) if len(root.src) == 1 else None
  if found is None:
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
