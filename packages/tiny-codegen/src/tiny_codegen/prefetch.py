"""Pass: near memory that is filled again in each iteration of a sum's loop is there twice.

While the threads of a workgroup compute with one copy, what the next iteration needs is on its way from memory; it is
written to the other copy when they are through. So a read from memory has a whole iteration's time, and an iteration
needs one barrier, not two.

    fill(near, 0); barrier                       # before the loop
    for k: next = read(k + 1); total += near[k % 2]; near[(k + 1) % 2] = next; barrier

The last iteration reads what it has already, which costs nothing that counts and needs no branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiny_codegen.loops import extent, in_order, kind, next_alloc_id, next_loop_id, number
from tiny_codegen.render.base import Capabilities
from tiny_uop import AddrSpace, AxisType, Ops, PtrDType, UOp, simplify

COPIES = 2


@dataclass(frozen=True)
class Fill:
  """Near memory `filled`, which the effect `stores` fills in each iteration of `loop`."""

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
    pointers = {s.src[0].src[0] for s in _stores(barrier.src[0])} if len(barrier.src) == 1 else set()
    if len(pointers) != 1 or not isinstance(u.dtype, PtrDType) or u.dtype.space is not AddrSpace.LOCAL:
      return None
    (ready,) = pointers
    if ready.op is not Ops.AFTER or ready.src[0] is not u.src[0] or len(ready.src) != 2:
      return None
    before = ready.src[1]
    loops = before.src if before.op is Ops.BARRIER else ()
    if len(loops) != 1 or loops[0].op is not Ops.RANGE or (extent(loops[0]) or 0) < COPIES:
      return None
    return Fill(u, u.src[0], barrier.src[0], ready, loops[0])

  @property
  def size(self) -> int:
    """Elements of one copy."""
    assert isinstance(self.memory.dtype, PtrDType)
    return self.memory.dtype.size

  def copy(self, pointer: UOp, step: UOp, half: UOp, first_id: int) -> UOp:
    """The stores of iteration `step`, to that half of what `pointer` points to, in loops of their own."""
    own = in_order(r for u in self.stores.toposort if u.op is Ops.END for r in u.src[1:] if r.op is Ops.RANGE)
    loops = {r: UOp.range(r.src[0], first_id + n, kind(r)) for n, r in enumerate(own)}
    changes: dict[UOp, UOp] = {}
    for s in _stores(self.stores):
      place, value = s.src
      at = simplify(place.src[1] + half * self.size)
      changes[s] = pointer.index(at, *place.src[2:]).store(simplify(value.substitute({self.loop: step})))
    return self.stores.substitute(changes).substitute(loops)


def prefetch(root: UOp, capabilities: Capabilities) -> UOp:
  """The kernel with two copies of near memory, where they fit."""
  if not capabilities.has_local:
    return root
  nodes = root.toposort
  found = [fill for u in nodes if (fill := Fill.of(u)) is not None]
  for loop in dict.fromkeys(fill.loop for fill in found):
    fills = [fill for fill in found if fill.loop is loop]
    if _fits(nodes, fills, capabilities) and _is_sum(nodes, loop, fills):
      return prefetch(_twice(root, loop, fills), capabilities)
  return root


def _stores(effect: UOp) -> list[UOp]:
  """The STOREs of an effect that is nothing else, in loops or written out; none for others."""
  if effect.op is Ops.STORE:
    return [effect]
  inside = effect.src if effect.op is Ops.GROUP else effect.src[:1] if effect.op is Ops.END else ()
  found = [_stores(s) for s in inside]
  return [s for stores in found for s in stores] if found and all(found) else []


def _fits(nodes: Sequence[UOp], fills: Sequence[Fill], capabilities: Capabilities) -> bool:
  sizes = {u: _bytes(u) for u in nodes if u.op is Ops.ALLOC and _is_near(u)}
  return sum(sizes.values()) + sum(sizes[fill.memory] for fill in fills) <= capabilities.shared_memory_bytes


def _is_near(u: UOp) -> bool:
  return isinstance(u.dtype, PtrDType) and u.dtype.space is AddrSpace.LOCAL


def _bytes(u: UOp) -> int:
  assert isinstance(u.dtype, PtrDType)
  return u.dtype.size * u.dtype.base.itemsize


def _is_sum(nodes: Sequence[UOp], loop: UOp, fills: Sequence[Fill]) -> bool:
  """Whether a loop does nothing but add to accumulators what it finds in near memory and memory that is read only, and
  fills are what the loop itself reads there."""
  if kind(loop) is not AxisType.REDUCE:
    return False
  ends = [u for u in nodes if u.op is Ops.END and loop in u.src[1:]]
  accumulates = all(
    u.src[1] is loop and u.src[0].op is Ops.STORE and _space(u.src[0].src[0]) is AddrSpace.REG for u in ends
  )
  users = [u for u in nodes for fill in fills if fill.filled in u.src]
  far = all(_space(u.src[0]) is AddrSpace.GLOBAL for fill in fills for u in fill.stores.toposort if u.op is Ops.LOAD)
  return accumulates and far and all(u.op is Ops.INDEX for u in users)


def _space(pointer: UOp) -> AddrSpace | None:
  return pointer.dtype.space if isinstance(pointer.dtype, PtrDType) else None


def _twice(root: UOp, loop: UOp, fills: Sequence[Fill]) -> UOp:
  last = number((extent(loop) or 1) - 1)
  following = -(-(loop + 1)).maximum(-last)  # or the last one again
  fresh = next_loop_id(root)
  copies: dict[Fill, UOp] = {}
  firsts, nexts = [], []
  for fill in fills:
    assert isinstance(fill.memory.dtype, PtrDType)
    both = UOp.alloc(fill.memory.arg, fill.memory.dtype.base.ptr(COPIES * fill.size, AddrSpace.LOCAL))
    copies[fill] = both
    firsts.append(fill.copy(both, number(0), number(0), fresh))
    fresh = max(fresh, next_loop_id(firsts[-1]))
    nexts.append(fill.copy(both.after(loop), following, (loop + 1) % COPIES, fresh))
    fresh = max(fresh, next_loop_id(nexts[-1]))
  started = UOp.group(*firsts).barrier()
  nexts, kept = _in_registers(nexts, loop, next_alloc_id(root))
  reads: dict[UOp, UOp] = {}
  for u in root.toposort:
    for fill, both in copies.items():
      if u.op is Ops.INDEX and u.src[0] is fill.filled:
        reads[u] = both.after(started, *kept).index(simplify(u.src[1] + loop % COPIES * fill.size), *u.src[2:])
  root = root.substitute(reads)
  updates = {u: u.src[0].end(*u.src[2:]) for u in root.toposort if u.op is Ops.END and u.src[1] is loop}
  # nobody overwrites a copy that others still read, or reads one that is not all there
  turn = UOp.group(*nexts, *updates.values()).barrier().end(loop)
  return root.substitute({u: UOp.group(once.end(loop), turn) for u, once in updates.items()})


def _in_registers(effects: Sequence[UOp], loop: UOp, alloc_id: int) -> tuple[list[UOp], list[UOp]]:
  """(effects that store what has been kept in registers, the effects that keep it): whoever comes after the latter
  finds the values on their way already. What is stored in loops of its own stays as it is."""
  changes: dict[UOp, UOp] = {}
  kept: list[UOp] = []
  for effect in effects:
    for store in _stores(effect) if not any(u.op is Ops.END for u in effect.toposort) else ():
      place, value = store.src
      register = UOp.alloc(alloc_id + len(kept), value.dtype.ptr(1, AddrSpace.REG))
      kept.append(register.after(loop).index(0).store(value))
      changes[store] = place.store(register.after(kept[-1]).index(0).load(dtype=value.dtype))
  return [effect.substitute(changes) for effect in effects], kept
