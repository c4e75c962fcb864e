"""Pass: loops in which iterations may come to the same element run in order, or are shared by threads that update
memory atomically.

Integers give the same in any order, so threads of a device with workgroups share them where it has the atomics. Floats
keep their order, unless the kernel says `atomic`: two runs then differ by rounding. A processor has few threads: there
the loop runs in order, without atomics, unless the kernel says so.
"""

from __future__ import annotations

import math

from tiny_codegen.errors import KernelError
from tiny_codegen.kernel.dependences import Update, carried_loops, loops_without, updates
from tiny_codegen.kernel.expressions import number
from tiny_codegen.kernel.loops import THREADS, kind, next_loop_id, size_of
from tiny_codegen.kernel.memory import pointer_type
from tiny_codegen.lower.reduce import identity
from tiny_codegen.target import Target
from tiny_uop import Accumulate, AddrSpace, AxisType, Ops, UOp, stored_to
from tiny_uop.graph import rebuild

PARALLEL = THREADS | {AxisType.GLOBAL, AxisType.THREAD}
FEW_THREADS = 64
"""Threads with which a device with workgroups is as good as idle."""
IDENTITIES = (Ops.ADD, Ops.MUL, Ops.MAX)


def order_loops(root: UOp, target: Target) -> UOp:
  """The kernel with ORDER loops where iterations may alias and cannot, or shall not, be shared by threads.

  Raises KernelError for threads that alias where the kernel or the target does not allow it.
  """
  found = updates(root)
  if not found:
    return root
  carried, outside = carried_loops(found), loops_without(found)
  if (gathered := gather(root, carried, found, target)) is not None:
    return gathered
  if not target.has_local:  # threads share a loop only if it is around the kernel's last effects
    outside = [r for r in outside if any(r in u.loops for u in found if u.accumulates)]
  ordered, atomic = dict.fromkeys(r for r in outside if kind(r) is AxisType.LOOP), set()
  for loop, stores in carried.items():
    if kind(loop) in PARALLEL:
      atomic |= {u.store for u in stores if _demand(u, loop, target)}
    elif kind(loop) is AxisType.LOOP and loop not in ordered:
      # an iteration that does not use its counter has nothing that would make a thread of it
      if all(may_share(u, target) and loop in u.store.ranges for u in stores):
        atomic |= {u.store for u in stores}
      else:
        ordered[loop] = None
  kinds = {r: UOp.range(r.src[0], r.arg[0], AxisType.ORDER) for r in ordered}
  arguments = {u.store: Accumulate(u.store.arg.op, u.store in atomic) for u in found if u.accumulates}

  def change(u: UOp, new: UOp) -> UOp | None:
    return kinds[u] if u in kinds else new.replace(arg=arguments[u]) if u in arguments else None

  return rebuild(root, change)


def may_share(update: Update, target: Target) -> bool:
  """Whether threads may share the loops in which iterations of a STORE alias."""
  if not update.accumulates or not has_atomic(update.store, target):
    return False
  value = update.store.src[1].dtype
  return bool(update.store.arg.atomic) or (target.has_local and value.kind in ("int", "uint", "bool"))


def has_atomic(store: UOp, target: Target) -> bool:
  """Whether a target can make the update of a STORE as one step."""
  pointer = pointer_type(store.src[0])
  return target.has_atomic(pointer.space, store.arg.op, store.src[1].dtype.scalar())


def _demand(update: Update, loop: UOp, target: Target) -> bool:
  """Whether threads that a kernel has given itself have to update memory atomically."""
  what, memory = kind(loop), pointer_type(update.store.src[0])
  alone = what in (AxisType.GLOBAL, AxisType.LOCAL, AxisType.GROUP) and not target.has_local
  if not update.accumulates or alone or memory.space is AddrSpace.REG:
    return False
  if memory.space is AddrSpace.LOCAL and what not in THREADS:
    return False
  name = f"{update.store.arg.op.name} to {memory.base.name} in {memory.space.name} memory"
  if not update.store.arg.atomic:
    raise KernelError(
      f"threads of {what.name} loop {loop.arg[0]} may change the same element in a STORE that accumulates by "
      f"{name}: say atomic=True, or make it a LOOP"
    )
  if loop not in update.store.ranges and target.has_local:
    raise KernelError(f"the STORE that accumulates in {what.name} loop {loop.arg[0]} does not use its counter")
  if not has_atomic(update.store, target):
    raise KernelError(
      f"threads of {what.name} loop {loop.arg[0]} may change the same element by an atomic {name}, which the "
      "target does not have: make it a LOOP, which runs in order there"
    )
  return True


def choose_atomics(root: UOp) -> UOp:
  """The kernel, after optimisations, with atomic STOREs only where threads share a loop in which iterations alias."""
  if not any(isinstance(u.arg, Accumulate) and u.arg.atomic for u in root.toposort):
    return root
  found = [u for u in updates(root) if u.accumulates and u.store.arg.atomic]
  carried = {loop: {u.store for u in stores} for loop, stores in carried_loops(updates(root)).items()}
  needed = set().union(*[stores for loop, stores in carried.items() if loop.arg[1] in PARALLEL])
  alone = {u.store for u in found} - needed
  return rebuild(root, lambda u, new: new.replace(arg=Accumulate(u.arg.op)) if u in alone else None)


def gather(root: UOp, carried: dict[UOp, list[Update]], found: list[Update], target: Target) -> UOp | None:
  """On a device with workgroups, a kernel of one STORE that would be left with hardly any threads, the other way
  round: a thread for each element of the memory looks at all iterations, and combines those that come to it.
  """
  if not target.has_local or not carried or len(found) != 1 or len(root.src) != 1:
    return None
  (update,) = found
  store, memory = update.store, stored_to(update.store)
  ends = root.src[0]
  if ends.op is not Ops.END or ends.src[0] is not store or memory.op is not Ops.PARAM:
    return None
  if not update.accumulates or store.arg.op not in IDENTITIES or may_share(update, target):
    return None
  free = math.prod(size_of(r) for r in update.loops if r not in carried)
  if free >= FEW_THREADS or any(kind(r) is not AxisType.LOOP for r in update.loops):
    return None
  place, value = store.src
  first = next_loop_id(root)
  terms = {r: UOp.range(r.src[0], first + 1 + n, AxisType.REDUCE) for n, r in enumerate(update.loops)}
  element = UOp.range(number(pointer_type(place).size), first, AxisType.LOOP)
  here = place.src[1].eq(element)
  here = here if len(place.src) < 3 else place.src[2] & here
  taken = here.where(value, identity(store.arg.op, value.dtype)).substitute(dict(terms))
  combined = place.src[0].index(element).accumulate(store.arg.op, taken.reduce(store.arg.op, *terms.values()))
  return root.with_src((combined.end(element),))


def lower_accumulate(root: UOp) -> UOp:
  """The kernel in which only atomic STOREs accumulate: others load, combine and store.

  Loads are in the loops of the STORE, whatever their address depends on, and several STOREs to one memory wait for
  each other.
  """
  if not any(isinstance(u.arg, Accumulate) and not u.arg.atomic for u in root.toposort):
    return root
  found = {u.store: u for u in updates(root) if u.accumulates and not u.store.arg.atomic}
  before: dict[UOp, list[tuple[frozenset[UOp], UOp]]] = {}

  def change(u: UOp, new: UOp) -> UOp | None:
    return _combined(new, found[u], before.setdefault(found[u].memory, [])) if u in found else None

  return rebuild(root, change)


def _combined(store: UOp, update: Update, before: list[tuple[frozenset[UOp], UOp]]) -> UOp:
  place, value = store.src
  loops = frozenset(update.loops)
  earlier = [effect for around, effect in before if around <= loops]
  pointer = place.src[0].after(*[r for r in update.loops if r.op is Ops.RANGE], *earlier)
  at = UOp(Ops.INDEX, place.dtype, (pointer, *place.src[1:]))
  made = at.store(at.load(dtype=value.dtype).alu(store.arg.op, value))
  before.append((loops, made))
  return made
