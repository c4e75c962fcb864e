"""Questions about the memory of a kernel: what an address points to, which gates an access has, and what iterations
have in local memory for themselves."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_codegen.kernel.expressions import all_of, clauses
from tiny_uop import AddrSpace, DType, Ops, PtrDType, UOp
from tiny_uop.graph import rebuild


def next_alloc_id(root: UOp) -> int:
  """An id above those of all ALLOCs of the kernel."""
  return max((u.arg for u in root.toposort if u.op is Ops.ALLOC), default=-1) + 1


def pointer_type(place: UOp) -> PtrDType:
  """The type of a buffer, or of an address in one."""
  assert isinstance(place.dtype, PtrDType)
  return place.dtype


def element_of(place: UOp) -> DType:
  """The type of the elements of a buffer, or of the one at an address."""
  return pointer_type(place).base


def space_of(u: UOp) -> AddrSpace | None:
  """The memory that a node points into; None for a node that is no pointer."""
  return u.dtype.space if isinstance(u.dtype, PtrDType) else None


def nbytes_of(buffer: UOp) -> int:
  """Bytes of a PARAM or ALLOC."""
  return pointer_type(buffer).size * pointer_type(buffer).base.itemsize


def in_register(store: UOp) -> bool:
  """Whether a LOAD or STORE is of a register."""
  return space_of(store.src[0]) is AddrSpace.REG


def filled_in_each(root: UOp, loop: UOp) -> bool:
  """Whether there is local memory that each iteration of the loop fills, all of them the same."""
  filled = (u for u in root.toposort if u.op is Ops.AFTER and u.src[0].op is Ops.ALLOC and loop in u.ranges)
  return any(space_of(u) is AddrSpace.LOCAL for u in filled)


def own_memory(root: UOp, loop: UOp) -> dict[UOp, UOp]:
  """Local memory that each iteration of the loop fills and reads, with as much that is new, for a copy of an iteration.

  Memory that the loop as a whole fills is not: there an AFTER is outside the loop.
  """
  filled: dict[UOp, None] = {}
  for u in root.toposort:
    if u.op is Ops.AFTER and loop in u.ranges and u.src[0].op is Ops.ALLOC:
      filled[u.src[0]] = None
  first = next_alloc_id(root)
  return {memory: memory.replace(arg=first + place) for place, memory in enumerate(filled)}


def with_memory(body: UOp, loop: UOp, memory: dict[UOp, UOp]) -> UOp:
  """The body of a loop with other local memory in what its iterations have for themselves. What is computed once for
  all of them may use the same memory before, and stays as it is."""
  done: dict[UOp, UOp] = {}
  for u in body.toposort:
    done[u] = u.with_src(tuple([memory.get(s, done[s]) for s in u.src])) if loop in u.ranges else u
  return done[body]


# *** gates ***


def gate_of(u: UOp) -> UOp | None:
  """What has to hold for an access, a LOAD, STORE or INDEX, to happen; None where it always does."""
  index = u if u.op is Ops.INDEX else u.src[0]
  return index.src[2] if len(index.src) > 2 else None


def gates_of(u: UOp) -> list[UOp]:
  """The clauses of the gate of a LOAD, STORE or INDEX."""
  gate = gate_of(u)
  return [] if gate is None else clauses(gate)


def gated(u: UOp, gate: UOp) -> UOp:
  """A LOAD or STORE that happens only where another gate holds as well."""
  pointer, offset, *others = u.src[0].src
  return u.replace(src=(pointer.index(offset, gate & others[0] if others else gate), *u.src[1:]))


def stored_gates(root: UOp) -> list[UOp]:
  """What has to hold for anything that the kernel computes to be stored."""
  stores = [u for u in root.toposort if u.op is Ops.STORE]
  gates = [gates_of(u) for u in stores]
  return [g for g in gates[0] if all(g in other for other in gates[1:])] if gates else []


def under(load: UOp, gates: Sequence[UOp], offset: UOp | None = None) -> UOp:
  """A gated load under these gates alone, at another offset if one is given. Without any it needs no alternative."""
  pointer, place = load.src[0].src[:2]
  index = pointer.index(place if offset is None else offset, all_of(gates))
  return load.replace(src=(index, *load.src[1:]) if gates else (index,))


def without_gate(value: UOp, gate: UOp) -> UOp:
  """The value with `gate` on none of its loads."""

  def change(_: UOp, u: UOp) -> UOp | None:
    found = gates_of(u) if u.op is Ops.LOAD else []
    return under(u, [c for c in found if c is not gate]) if gate in found else None

  return rebuild(value, change)


def gate_loads(value: UOp, loop: UOp, gate: UOp) -> UOp:
  """The value with `gate` on each LOAD that depends on `loop`."""

  def change(_: UOp, u: UOp) -> UOp | None:
    return gated(u, gate) if u.op is Ops.LOAD and loop in u.ranges else None

  return rebuild(value, change)
