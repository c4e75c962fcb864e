"""Sums that go to one element each: the counterpart of sums that pick one (`collapse.py`).

out[m] = Σ_n (v[n] where index[n] == m) looks at every n for every m. Where m is solved for instead of n, each n goes to
the one element that it names: out is filled with what the operation does not change, and then out[index[n]] += v[n] for
one n after the other. That is how `scatter`, `bincount`, and the gradient of indexing and of an embedding reach the
scheduler. Maxima and products are the same with MAX and MUL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiny_sched.collapse import gate_loads
from tiny_sched.conditions import conjuncts, interval_of, together
from tiny_sched.index import ZERO, largest_size, simplify
from tiny_uop import AxisType, Ops, Shape, UOp, dtypes
from tiny_uop.records import dataclass

LEAST_PLACES = 32
LEAST_WORK = 1 << 16
"""Places that terms may go to, and terms times places, from which on this pays; see `docs/performance.md`."""


@dataclass(frozen=True)
class Scatter:
  """`out[places of the loops] = out[…] op value` wherever `gate` holds, for all iterations of `terms`; out is `start`
  before. Loops of the output that are not in `places` stay."""

  op: Ops
  start: UOp
  value: UOp
  gate: UOp
  places: dict[UOp, UOp]
  terms: tuple[UOp, ...]

  def bodies(self, pointer: UOp, offset: UOp, loops: Sequence[UOp]) -> tuple[UOp, UOp]:
    """(the kernel that fills the memory, the one that accumulates): STOREs in loops."""
    fill = pointer.index(offset).store(self.start).end(*loops)
    at = simplify(offset.substitute(self.places))
    gate = None if self.gate.op is Ops.CONST else self.gate
    first = min(n for n, r in enumerate(loops) if r in self.places)
    before, after = ([r for r in part if r not in self.places] for part in (loops[:first], loops[first:]))
    update = pointer.index(at, gate).accumulate(self.op, self.value).end(*before, *self.terms, *after)
    return fill, update.substitute({r: UOp.range(r.src[0], r.arg[0], AxisType.LOOP) for r in self.terms})


def pays(places: Sequence[int], shape: Shape, terms: int) -> bool:
  """Whether to scatter: over axes of these numbers of places, of an output of this shape."""
  return math.prod(places) >= LEAST_PLACES and largest_size(shape) * terms >= LEAST_WORK


def scatter_of(value: UOp, loops: Sequence[UOp]) -> Scatter | None:
  """The value of an element of the output, at the counters `loops`, as a scatter; None where it is none."""
  if value.op is not Ops.REDUCE or (found := _choice(value.arg[0], value.src[0])) is None:
    return None
  op, terms = value.arg[0], value.src[1:]
  condition, chosen, start = found
  conditions = conjuncts(condition)
  places: dict[UOp, UOp] = {}
  for loop in loops:
    bound = [c for c in conditions if loop in c.ranges]
    interval = interval_of(bound, loop) if any(c.op is Ops.CMPEQ for c in bound) else None
    point = None if interval is None else interval.point
    if interval is None or point is None or point.ranges.isdisjoint(terms) or not _is_read(point):
      continue
    inside = simplify(together([(point < 0).logical_not(), point < loop.src[0]]))
    free = [c for c in conditions if loop not in c.ranges]
    conditions = [*free, *conjuncts(inside), *[_moved(c, loop, point, inside) for c in interval.valid]]
    chosen = _moved(chosen, loop, point, inside)
    places = {r: _moved(p, loop, point, inside) for r, p in places.items()} | {loop: point}
  if not places:
    return None
  gate = simplify(together(conditions))
  if any(not u.ranges.isdisjoint(places) for u in (chosen, gate, *places.values())):
    return None
  return Scatter(op, start, chosen, gate, places, terms)


def _moved(value: UOp, loop: UOp, point: UOp, inside: UOp) -> UOp:
  """A value at the place that a term names, reading nothing where there is no such place."""
  if loop not in value.ranges:
    return value
  return gate_loads(value.substitute({loop: point}), {*value.toposort, *point.toposort}, inside)


def _choice(op: Ops, term: UOp) -> tuple[UOp, UOp, UOp] | None:
  """(condition, the term where it holds, what the memory is filled with) of a term that else changes nothing."""
  dtype = term.dtype
  if dtype.kind == "bool" and term.op in (Ops.CMPEQ, Ops.AND) and op in (Ops.ADD, Ops.MAX):
    return term, UOp.const(dtype, True), UOp.const(dtype, False)
  if term.op is Ops.CAST and term.src[0].dtype.kind == "bool" and op is Ops.ADD:
    return term.src[0], UOp.const(dtype, 1), UOp.const(dtype, 0)
  if term.op is Ops.CAST and term.src[0].op is Ops.WHERE and term.src[0].src[2].op is Ops.CONST:
    condition, chosen, other = term.src[0].src
    other = UOp.const(dtype, other.arg) if other.arg == 0 else other
    chosen = UOp(Ops.CAST, dtype, (chosen,))
  elif term.op is Ops.WHERE:
    condition, chosen, other = term.src
  else:
    return None
  if other.op is not Ops.CONST or other.dtype is not dtype or type(other.arg) is tuple:
    return None
  same = {Ops.ADD: other.arg == 0, Ops.MUL: other.arg == 1}.get(op)
  if same is None:  # a maximum may be filled with anything that is no more than any term
    same = op is Ops.MAX and (other.arg == dtypes.min(dtype) or (dtype.kind != "float" and other.arg <= chosen.vmin))
  return (condition, chosen, other) if same else None


def _is_read(place: UOp) -> bool:
  return any(u.op is Ops.LOAD for u in place.toposort)


def is_plain(index: Sequence[UOp]) -> bool:
  """Whether a position has a counter of its own on each axis that has more than one element."""
  counters = [i for i in index if i is not ZERO]
  return all(i.op is Ops.RANGE for i in counters) and len(set(counters)) == len(counters)
