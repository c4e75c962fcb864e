"""Local memory that a loop fills again in each of its iterations: what the pass `double_buffer` looks for."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_codegen.kernel.loops import in_order, kind, own_loops, pointer_type, space_of
from tiny_uop import AddrSpace, Ops, UOp, simplify
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
    if len(loops) != 1 or loops[0].op is not Ops.RANGE or int(loops[0].src[0].vmax) < COPIES:
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
