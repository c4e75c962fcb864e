"""Pass: local memory that is filled again in each iteration of a sum's loop is there several times.

Twice, where threads go through registers: while the threads of a workgroup compute with one copy, what the next
iteration needs is on its way from memory; it is written to the other copy when they are through. So a read from memory
has a whole iteration's time, and an iteration needs one barrier, not two.

    fill(near, 0); barrier                       # before the loop
    for k: next = read(k + 1); total += near[k % 2]; near[(k + 1) % 2] = next; barrier

The last iteration reads what it has already, which costs nothing that counts and needs no branch.

Up to four times, where the target copies to local memory while threads go on (`Target.async_copy`, NVIDIA's cp.async).
Of c copies one is read and the others are on their way:

    for s < c - 1: copy(near[s], s); a group ends                 # before the loop
    for k: wait until all groups but the last c - 2 are there; barrier
           copy(near[(k + c - 1) % c], k + c - 1); total += near[k % c]

The one barrier of an iteration says that all threads have what they wait for, and that nobody reads any more what is
copied to next: the step before. Nothing goes through registers but what has to be computed, which is stored as it is
read an iteration before. Behind the last step zeros are copied, for which nothing is read.

Where tensor cores read local memory themselves, and there are four copies, what they multiply in one step may be on its
way while the next one begins. Nobody reads the copy of the step before once all threads have waited for its products,
so the barrier stands behind those of this step, and tensor cores are busy while threads wait and copy:

    for k: total += near[k % c], wait for the products of k - 1
           wait until all groups but the last c - 3 are there; barrier; copy(near[(k + c - 1) % c], k + c - 1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tiny_codegen.instructions.tensor_core import TensorCore
from tiny_codegen.kernel.expressions import divisor, number
from tiny_codegen.kernel.loops import in_order, kind, next_loop_id, own_loops, size_of
from tiny_codegen.kernel.memory import element_of, nbytes_of, next_alloc_id, pointer_type, space_of
from tiny_codegen.target import Target
from tiny_uop import ASYNC, AddrSpace, AxisType, Ops, UOp, dtypes, simplify
from tiny_uop.graph import rebuild
from tiny_uop.records import dataclass

COPIES = 2
"""Of local memory, where threads go through registers; and the fewest that are of use."""


@dataclass(frozen=True)
class Fill:
  """Local memory `filled`, which the effect `stores` fills in each iteration of `loop`."""

  filled: UOp
  memory: UOp
  stores: UOp
  ready: UOp
  """The pointer that is stored through: `memory`, once all threads have read it."""
  loop: UOp

  @staticmethod
  def of(u: UOp) -> Fill | None:
    """What a node is, as the passes `stage` and `unroll` leave it; None for anything else."""
    if u.op is not Ops.AFTER or u.src[0].op is not Ops.ALLOC or len(u.src) != 2 or u.src[1].op is not Ops.BARRIER:
      return None
    barrier = u.src[1]
    pointers = {s.src[0].src[0] for s in stores_of(barrier.src[0])} if len(barrier.src) == 1 else set()
    if len(pointers) != 1 or space_of(u) is not AddrSpace.LOCAL:
      return None
    (ready,) = pointers
    if ready.op is not Ops.AFTER or ready.src[0] is not u.src[0] or len(ready.src) != 2:
      return None
    before = ready.src[1]
    loops = before.src if before.op is Ops.BARRIER else ()
    if len(loops) != 1 or loops[0].op is not Ops.RANGE or size_of(loops[0]) < COPIES:
      return None
    return Fill(u, u.src[0], barrier.src[0], ready, loops[0])

  @property
  def size(self) -> int:
    """Elements of one copy."""
    return pointer_type(self.memory).size

  def copy(self, pointer: UOp, step: UOp, place: UOp, first_id: int) -> UOp:
    """The stores of iteration `step`, to copy `place` of what `pointer` points to, in loops of their own."""
    own = in_order(r for u in self.stores.toposort if u.op is Ops.END for r in own_loops(u))
    loops = {r: UOp.range(r.src[0], first_id + n, kind(r)) for n, r in enumerate(own)}
    changes: dict[UOp, UOp] = {}
    for s in stores_of(self.stores):
      index, value = s.src
      at = simplify(index.src[1] + place * self.size)
      changes[s] = pointer.index(at, *index.src[2:]).store(simplify(value.substitute({self.loop: step})))
    return self.stores.substitute(changes).substitute(loops)


def stores_of(effect: UOp) -> list[UOp]:
  """The STOREs of an effect that is nothing else, in loops or written out; none for others."""
  if effect.op is Ops.STORE:
    return [effect]
  inside = effect.src if effect.op is Ops.GROUP else effect.src[:1] if effect.op is Ops.END else ()
  found = [stores_of(s) for s in inside]
  return [s for stores in found for s in stores] if found and all(found) else []


def in_registers(effects: Sequence[UOp], loop: UOp, alloc_id: int) -> tuple[list[UOp], list[UOp]]:
  """(effects that store what has been kept in registers, the effects that keep it): whoever comes after the latter
  finds the values on their way already. What is stored in loops of its own stays as it is."""
  changes: dict[UOp, UOp] = {}
  kept: list[UOp] = []
  for effect in effects:
    for store in stores_of(effect) if not any(u.op is Ops.END for u in effect.toposort) else ():
      place, value = store.src
      register = UOp.alloc(alloc_id + len(kept), value.dtype.ptr(1, AddrSpace.REG))
      kept.append(register.after(loop).index(0).store(value))
      changes[store] = place.store(register.after(kept[-1]).index(0).load(dtype=value.dtype))
  return [effect.substitute(changes) for effect in effects], kept


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
    count = copies_that_fit(sum(near.values()), one, min(size_of(loop), MOST_COPIES), target)
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
  copies, firsts, nexts = _allocated(fills, COPIES), [], []
  for fill in fills:
    firsts.append(fill.copy(copies[fill], number(0), number(0), fresh))
    fresh = max(fresh, next_loop_id(firsts[-1]))
    nexts.append(fill.copy(copies[fill].after(loop), following, (loop + 1) % COPIES, fresh))
    fresh = max(fresh, next_loop_id(nexts[-1]))
  started = UOp.group(*firsts).barrier()
  nexts, kept = in_registers(nexts, loop, next_alloc_id(root))
  root = _reading(root, loop, copies, COPIES, (started, *kept))
  # nobody overwrites a copy that others still read, or reads one that is not all there
  return _in_each(root, loop, nexts, lambda iteration: iteration.barrier().end(loop))


def _allocated(fills: Sequence[Fill], count: int) -> dict[Fill, UOp]:
  """Memory for so many copies of what each of them fills."""
  sizes = {fill: element_of(fill.memory).ptr(count * fill.size, AddrSpace.LOCAL) for fill in fills}
  return {fill: UOp.alloc(fill.memory.arg, size) for fill, size in sizes.items()}


def _reading(root: UOp, loop: UOp, copies: Mapping[Fill, UOp], count: int, ready: Sequence[UOp]) -> UOp:
  """The kernel that reads, of so many copies, the one of its iteration, which is there when some effects are."""
  reads: dict[UOp, UOp] = {}
  for u in root.toposort:
    for fill, memory in copies.items():
      if u.op is Ops.INDEX and u.src[0] is fill.filled:
        at = simplify(u.src[1] + loop % count * fill.size)
        reads[u] = memory.after(*ready).index(at, *u.src[2:])
  return root.substitute(reads)


def _in_each(root: UOp, loop: UOp, effects: Sequence[UOp], ended: Callable[[UOp], UOp]) -> UOp:
  """The kernel with more effects in each iteration of a loop, all of which is `ended`."""
  updates = {u: u.src[0].end(*u.src[2:]) for u in root.toposort if u.op is Ops.END and u.src[1] is loop}
  through = ended(UOp.group(*effects, *updates.values()))
  return root.substitute({u: UOp.group(once.end(loop), through) for u, once in updates.items()})


# *** copies that go on while threads do ***


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
  return far and zeros and all(divisor(place.src[1]) * element % size == 0 for place in (source, store.src[0]))


def in_stages(root: UOp, loop: UOp, fills: Sequence[Fill], count: int, target: Target) -> UOp:
  """The kernel with `count` copies of what is filled in each iteration of a loop."""
  behind_products = count >= MOST_COPIES and _products_alone(root, loop)
  root = _with_pending(root, loop) if behind_products else root
  ahead, last = count - 1, simplify(loop.src[0] - 1)
  on_the_way = ahead - 1 - behind_products  # groups of copies that a barrier does not wait for
  near, fresh = _allocated(fills, count), next_loop_id(root)
  before: UOp | None = None
  for step in range(ahead):
    stores = []
    for fill in fills:
      pointer = near[fill] if before is None else near[fill].after(before)
      stores.append(fill.copy(pointer, number(step), number(step), fresh))
      fresh = max(fresh, next_loop_id(stores[-1]))
    group = UOp.group(*[_asynchronous(s, None, target) for s in stores])
    before = group.barrier(pending=on_the_way) if step + 1 < ahead else group
  assert before is not None
  # what is computed on the way is the last step's again behind the last; what is copied is not even read
  following, behind = loop + ahead, simplify(-(-(loop + ahead)).maximum(-last))
  there = UOp(Ops.BARRIER, dtypes.void, (loop, before), on_the_way)
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
  # nothing is on its way when somebody else uses the memory
  if not behind_products:
    root = _reading(root, loop, near, count, (there, *copies, *kept))
    return _in_each(root, loop, [*copies, *computed], lambda iteration: iteration.end(loop).barrier(pending=0))

  def ended(products: UOp) -> UOp:
    after_products = UOp.group(*copies, *computed).substitute({there: products.barrier(pending=on_the_way)})
    return after_products.end(loop).barrier(pending=0)

  return _in_each(_reading(root, loop, near, count, (before, *kept)), loop, [], ended)


def _products_alone(root: UOp, loop: UOp) -> bool:
  """Whether what a loop adds to accumulators are products of tensor cores that read local memory, and nothing else."""
  added = [u for u in root.toposort if u.op is Ops.END and u.src[1] is loop]
  return all(len(u.src) == 2 and _of_shared_memory(u.src[0].src[-1]) for u in added)


def _of_shared_memory(u: UOp) -> bool:
  return u.op is Ops.MMA and isinstance(u.arg, TensorCore) and u.arg.shared is not None


def _with_pending(root: UOp, loop: UOp) -> UOp:
  """The kernel whose products of one iteration are on their way while the next begins."""

  def change(_: UOp, u: UOp) -> UOp | None:
    return u.replace(arg=replace(u.arg, pending=1)) if _of_shared_memory(u) and loop in u.ranges else None

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
