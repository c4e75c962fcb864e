"""Pass: local memory that is filled again in each iteration of a sum's loop is there several times.

Twice, where threads go through registers:

While the threads of a workgroup compute with one copy, what the next iteration needs is on its way from memory; it is
written to the other copy when they are through. So a read from memory has a whole iteration's time, and an iteration
needs one barrier, not two.

    fill(near, 0); barrier                       # before the loop
    for k: next = read(k + 1); total += near[k % 2]; near[(k + 1) % 2] = next; barrier

The last iteration reads what it has already, which costs nothing that counts and needs no branch.

Where the target copies to local memory while threads go on (`Target.async_copy`), up to four times: see
`async_copies.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_codegen.kernel.loops import (
  element_of,
  kind,
  nbytes_of,
  next_alloc_id,
  next_loop_id,
  number,
  space_of,
)
from tiny_codegen.staging.async_copies import MOST_COPIES, copies_that_fit, in_stages, is_copy
from tiny_codegen.staging.refilled import COPIES, Fill, in_registers, stores_of
from tiny_codegen.target import Target
from tiny_uop import AddrSpace, AxisType, Ops, UOp, simplify


def double_buffer(root: UOp, target: Target) -> UOp:
  """The kernel with two copies of local memory, where they fit."""
  if not target.has_local:
    return root
  nodes = root.toposort
  found = [fill for u in nodes if (fill := Fill.of(u)) is not None]
  for loop in dict.fromkeys(fill.loop for fill in found):
    fills = [fill for fill in found if fill.loop is loop]
    if not _is_sum(nodes, loop, fills):
      continue
    near = {u: nbytes_of(u) for u in nodes if u.op is Ops.ALLOC and space_of(u) is AddrSpace.LOCAL}
    one = sum(near[fill.memory] for fill in fills)
    count = copies_that_fit(sum(near.values()), one, min(int(loop.src[0].vmax), MOST_COPIES), target)
    if count >= COPIES and any(is_copy(s, target) for fill in fills for s in stores_of(fill.stores)):
      return double_buffer(in_stages(root, loop, fills, count, target), target)
    if target.limits.has_room(sum(near.values()), sum(near.values()) + one):
      return double_buffer(_twice(root, loop, fills), target)
  return root


def _is_sum(nodes: Sequence[UOp], loop: UOp, fills: Sequence[Fill]) -> bool:
  """Whether a loop does nothing but add to accumulators what it finds in local memory and memory that is read only, and
  fills are what the loop itself reads there."""
  if kind(loop) is not AxisType.REDUCE:
    return False
  ends = [u for u in nodes if u.op is Ops.END and loop in u.src[1:]]
  accumulates = all(
    u.src[1] is loop and u.src[0].op is Ops.STORE and space_of(u.src[0].src[0]) is AddrSpace.REG for u in ends
  )
  users = [u for u in nodes for fill in fills if fill.filled in u.src]
  far = all(space_of(u.src[0]) is AddrSpace.GLOBAL for fill in fills for u in fill.stores.toposort if u.op is Ops.LOAD)
  return accumulates and far and all(u.op is Ops.INDEX for u in users)


def _twice(root: UOp, loop: UOp, fills: Sequence[Fill]) -> UOp:
  last = loop.src[0] - 1
  following = simplify(-(-(loop + 1)).maximum(-last))  # or the last one again
  fresh = next_loop_id(root)
  copies: dict[Fill, UOp] = {}
  firsts, nexts = [], []
  for fill in fills:
    both = UOp.alloc(fill.memory.arg, element_of(fill.memory).ptr(COPIES * fill.size, AddrSpace.LOCAL))
    copies[fill] = both
    firsts.append(fill.copy(both, number(0), number(0), fresh))
    fresh = max(fresh, next_loop_id(firsts[-1]))
    nexts.append(fill.copy(both.after(loop), following, (loop + 1) % COPIES, fresh))
    fresh = max(fresh, next_loop_id(nexts[-1]))
  started = UOp.group(*firsts).barrier()
  nexts, kept = in_registers(nexts, loop, next_alloc_id(root))
  reads: dict[UOp, UOp] = {}
  for u in root.toposort:
    for fill, both in copies.items():
      if u.op is Ops.INDEX and u.src[0] is fill.filled:
        reads[u] = both.after(started, *kept).index(simplify(u.src[1] + loop % COPIES * fill.size), *u.src[2:])
  root = root.substitute(reads)
  updates = {u: u.src[0].end(*u.src[2:]) for u in root.toposort if u.op is Ops.END and u.src[1] is loop}
  # nobody overwrites a copy that others still read, or reads one that is not all there
  step = UOp.group(*nexts, *updates.values()).barrier().end(loop)
  return root.substitute({u: UOp.group(once.end(loop), step) for u, once in updates.items()})
