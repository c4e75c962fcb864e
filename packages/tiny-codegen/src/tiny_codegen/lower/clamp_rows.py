"""Pass: rows of a register tile beyond the end read what the last row reads.

`PADTO` and `UPCAST` leave a gate `outer * n + row < size` on what is loaded for a row and on the store of its result.
Inside of a sum the gate of the load costs a comparison and a branch for each step. But what a row beyond the end adds
up does not matter, as it is never stored: the load can have any value, from any place that is safe. So its gate goes,
and the row counts to `size - 1` at most, which does not change from one step of the sum to the next.
"""

from __future__ import annotations

from tiny_codegen.kernel.expressions import number, stride
from tiny_codegen.kernel.loops import extent, kind
from tiny_codegen.kernel.memory import gates_of, under
from tiny_codegen.target import Target
from tiny_uop import AxisType, Ops, UOp, simplify


def clamp_rows(root: UOp, target: Target) -> UOp:
  """The kernel in which sums load without those gates that the store of their result has as well; not for a target with
  workgroups, whose threads lose nothing by gates."""
  if target.has_local:
    return root
  changes = {}
  for u in root.toposort:
    if u.op is Ops.STORE and any(s.op is Ops.REDUCE for s in u.src[1].toposort):
      gates = [g for g in gates_of(u) if _rows(g)]
      value = _without(u.src[1], gates) if gates else u.src[1]
      if value is not u.src[1]:
        changes[u] = u.replace(src=(u.src[0], value, *u.src[2:]))
  return simplify(root.substitute(changes)) if changes else root


def _rows(gate: UOp) -> list[UOp]:
  """The loops over rows that a gate is about; none where it is about lanes as well, or where there may be no row."""
  if gate.op is not Ops.CMPLT or gate.src[0].dtype.kind != "index" or gate.src[1].vmin < 1 or gate.src[0].vmin < 0:
    return []
  if gate.src[1].ranges or any(kind(r) is AxisType.VECTOR for r in gate.ranges):
    return []
  return [r for r in gate.ranges if kind(r) is AxisType.UPCAST]


def _without(value: UOp, gates: list[UOp]) -> UOp:
  """A value that need not be right where one of the gates does not hold."""
  done: dict[UOp, UOp] = {}
  # what AFTER waits for is not part of the value: it fills memory that others may read, too
  for u in value.walk(lambda u: u.op is not Ops.AFTER):
    new = u if u.op is Ops.AFTER else u.with_src(tuple([done[s] for s in u.src]))
    if new.op is Ops.LOAD and any(kind(r) is AxisType.REDUCE and extent(r) not in (0, 1) for r in new.ranges):
      new = _opened(new, gates)
    done[u] = new
  return done[value]


def _opened(load: UOp, gates: list[UOp]) -> UOp:
  """A load without the gates whose rows its place is linear in."""
  offset, kept = load.src[0].src[1], []
  for clause in gates_of(load):
    place = _at_most(offset, clause) if clause in gates else None
    kept += [clause] if place is None else []
    offset = offset if place is None else place
  return load if kept == gates_of(load) else under(load, kept, offset)


def _at_most(offset: UOp, gate: UOp) -> UOp | None:
  """A place in memory with the row that a gate compares no further than the last; None where it is not linear in it."""
  row, size = gate.src
  loop = _rows(gate)[0]
  step, by = stride(row, loop), stride(offset, loop)
  if not step or by is None or by % step:
    return None
  rest = simplify(offset - row * (by // step))
  if rest.ranges & row.ranges:
    return None
  return simplify(rest + row.minimum(size - number(1)) * (by // step))
