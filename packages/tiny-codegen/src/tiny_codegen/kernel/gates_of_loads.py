"""Gates of LOADs inside of an expression: given to all that depend on a loop, or taken away."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_codegen.kernel.loops import all_of, clauses
from tiny_uop import Ops, UOp
from tiny_uop.graph import rebuild


def stored_gates(root: UOp) -> list[UOp]:
  """What has to hold for anything that the kernel computes to be stored."""
  stores = [u for u in root.toposort if u.op is Ops.STORE]
  gates = [clauses(u.src[0].src[2]) if len(u.src[0].src) == 3 else [] for u in stores]
  return [g for g in gates[0] if all(g in other for other in gates[1:])] if gates else []


def under(load: UOp, gates: Sequence[UOp], offset: UOp | None = None) -> UOp:
  """A gated load under these gates alone, at another offset if one is given. Without any it needs no alternative."""
  pointer, place = load.src[0].src[:2]
  index = pointer.index(place if offset is None else offset, all_of(gates))
  return load.replace(src=(index, *load.src[1:]) if gates else (index,))


def without_gate(value: UOp, gate: UOp) -> UOp:
  """The value with `gate` on none of its loads."""

  def change(_: UOp, u: UOp) -> UOp | None:
    if u.op is not Ops.LOAD or len(u.src[0].src) < 3 or gate not in clauses(u.src[0].src[2]):
      return None
    return under(u, [c for c in clauses(u.src[0].src[2]) if c is not gate])

  return rebuild(value, change)


def gate_loads(value: UOp, loop: UOp, gate: UOp) -> UOp:
  """The value with `gate` on each LOAD that depends on `loop`."""

  def change(_: UOp, u: UOp) -> UOp | None:
    if u.op is not Ops.LOAD or loop not in u.ranges:
      return None
    pointer, offset, *gates = u.src[0].src
    return u.replace(src=(pointer.index(offset, gate & gates[0] if gates else gate), *u.src[1:]))

  return rebuild(value, change)
