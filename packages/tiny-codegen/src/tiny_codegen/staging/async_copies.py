"""Local memory that a sum fills again and again, copied to while the threads go on (NVIDIA's cp.async).

Of c copies one is read and the others are on their way:

    for s < c - 1: copy(near[s], s); a group ends                 # before the loop
    for k: wait until all groups but the last c - 2 are there; barrier
           copy(near[(k + c - 1) % c], k + c - 1); total += near[k % c]

The one barrier of an iteration says that all threads have what they wait for, and that nobody reads any more what is
copied to next: the step before. Nothing goes through registers but what has to be computed, which is stored as it is
read an iteration before. Behind the last step zeros are copied, for which nothing is read.

Where tensor cores read local memory themselves, and there are four copies, what they multiply in one step may be on its
way while the next one begins: then the copy of the step before the last is what is copied to, one step less ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tiny_codegen.instructions.tensor_core import TensorCore
from tiny_codegen.kernel.loops import element_of, factor, next_alloc_id, next_loop_id, number, space_of
from tiny_codegen.staging.refilled import Fill, in_registers, stores_of
from tiny_codegen.target import Target
from tiny_uop import ASYNC, AddrSpace, Ops, UOp, dtypes, simplify
from tiny_uop.graph import rebuild

MOST_COPIES = 4
FEWEST = 3
"""Copies from which on a workgroup keeps itself busy: rather than fewer for two of them, more for one."""


def copies_that_fit(needed: int, one: int, most: int, target: Target) -> int:
  """How many copies of local memory to have: `needed` bytes are there with one, each further one takes `one`. Two
  workgroups should fit on a processor, if that leaves copies enough."""
  for room in (target.limits.shared_memory_for_all // 2, target.limits.shared_memory):
    fitting = min(most, 1 + (room - needed) // one) if room >= needed else 0
    if fitting >= min(FEWEST, most):
      return fitting
  return fitting


def is_copy(store: UOp, target: Target) -> bool:
  """Whether a STORE into local memory may be a copy: it brings a piece of memory, both ends aligned if their buffers
  are, or zeros."""
  value, size = store.src[1], target.async_copy
  if not size or value.op is not Ops.LOAD or value.dtype.itemsize != size:
    return False
  source = value.src[0]
  element = value.dtype.scalar().itemsize
  far = space_of(source) is AddrSpace.GLOBAL
  zeros = len(value.src) < 2 or (value.src[1].op is Ops.CONST and value.src[1].arg == 0)
  return far and zeros and all(factor(place.src[1]) * element % size == 0 for place in (source, store.src[0]))


def in_stages(root: UOp, loop: UOp, fills: Sequence[Fill], count: int, target: Target) -> UOp:
  """The kernel with `count` copies of what is filled in each iteration of a loop."""
  pending = int(count >= MOST_COPIES and _products_alone(root, loop))
  root = _with_pending(root, loop, pending) if pending else root
  ahead, last = count - 1 - pending, simplify(loop.src[0] - 1)
  near = {
    fill: UOp.alloc(fill.memory.arg, element_of(fill.memory).ptr(count * fill.size, AddrSpace.LOCAL)) for fill in fills
  }
  fresh = next_loop_id(root)
  before: UOp | None = None
  for step in range(ahead):
    stores = []
    for fill in fills:
      pointer = near[fill] if before is None else near[fill].after(before)
      stores.append(fill.copy(pointer, number(step), number(step), fresh))
      fresh = max(fresh, next_loop_id(stores[-1]))
    group = UOp.group(*[_asynchronous(s, None, target) for s in stores])
    before = group.barrier(pending=ahead - 1) if step + 1 < ahead else group
  assert before is not None
  there = UOp(Ops.BARRIER, dtypes.void, (loop, before), ahead - 1)
  # what is computed on the way is the last step's again behind the last; what is copied is not even read
  following, behind = loop + ahead, simplify(-(-(loop + ahead)).maximum(-last))
  copies, computed = [], []
  for fill in fills:
    copied = all(is_copy(s, target) for s in stores_of(fill.stores))
    source = following if copied else behind
    stores_of_step = fill.copy(near[fill].after(there), source, following % count, fresh)
    fresh = max(fresh, next_loop_id(stores_of_step))
    if copied:
      copies.append(_asynchronous(stores_of_step, following < last + 1, target))
    else:
      computed.append(stores_of_step)
  computed, kept = in_registers(computed, loop, next_alloc_id(root))
  reads: dict[UOp, UOp] = {}
  for u in root.toposort:
    for fill, memory in near.items():
      if u.op is Ops.INDEX and u.src[0] is fill.filled:
        at = simplify(u.src[1] + loop % count * fill.size)
        reads[u] = memory.after(there, *copies, *kept).index(at, *u.src[2:])
  root = root.substitute(reads)
  updates = {u: u.src[0].end(*u.src[2:]) for u in root.toposort if u.op is Ops.END and u.src[1] is loop}
  iteration = UOp.group(*copies, *computed, *updates.values()).end(loop)
  through = iteration.barrier(pending=0)  # nothing is on its way when somebody else uses the memory
  return root.substitute({u: UOp.group(once.end(loop), through) for u, once in updates.items()})


def _products_alone(root: UOp, loop: UOp) -> bool:
  """Whether what a loop adds to accumulators are products of tensor cores that read local memory, and nothing else."""
  added = [u for u in root.toposort if u.op is Ops.END and u.src[1] is loop]
  return all(len(u.src) == 2 and _of_near_memory(u.src[0].src[-1]) for u in added)


def _of_near_memory(u: UOp) -> bool:
  return u.op is Ops.MMA and isinstance(u.arg, TensorCore) and u.arg.near is not None


def _with_pending(root: UOp, loop: UOp, pending: int) -> UOp:
  def change(_: UOp, u: UOp) -> UOp | None:
    return u.replace(arg=replace(u.arg, pending=pending)) if _of_near_memory(u) and loop in u.ranges else None

  return rebuild(root, change)


def _asynchronous(stores: UOp, gate: UOp | None, target: Target) -> UOp:
  """The same stores, as copies that happen where `gate` holds, and are zeros elsewhere."""
  changes: dict[UOp, UOp] = {}
  for s in stores_of(stores):
    if is_copy(s, target):
      index, value = s.src
      pointer, offset, *gates = value.src[0].src
      if gate is not None:
        gates = [gates[0] & gate] if gates else [gate]
      load = pointer.index(offset, *gates).load(dtype=value.dtype)
      changes[s] = UOp(Ops.STORE, dtypes.void, (index, load), ASYNC)
  return stores.substitute(changes)
