"""Loop-carried dependences: in which loops two iterations may alias, which is to change the same element of memory.

Two kinds of STORE may: one that accumulates, and one whose offset is read from memory. A loop carries no
dependence where its counter can be computed back from the offset: iterations with different counters then have
different offsets. For that an offset is looked at like a number of which a counter is one digit, a `Digit` (s, G):

    offset = G * anything + s * counter + rest     where 0 <= rest < s, and s * counter + rest < G
    counter = offset % G // s                      (offset // s, where nothing is a multiple: G is 0)

For example, rows of 768 numbers are added to rows that `index` names, with column < 192 and lane < 4:

    out[index[n] * 768 + column * 4 + lane] += x

    column   (4, 768)   offset % 768 // 4: index[n] * 768 is a multiple of 768, lane is less than 4
    lane     (1, 4)     offset % 4: the other two are multiples of 4
    n        none       it is no summand of the offset: two elements of `index` may be equal

So threads may share the loops over columns and lanes; the one over n runs in order, or its updates are atomic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from tiny_codegen.kernel.expressions import terms
from tiny_codegen.kernel.loops import in_order, own_loops
from tiny_codegen.kernel.memory import gates_of
from tiny_uop import Accumulate, Ops, UOp, stored_to
from tiny_uop.records import dataclass

Digit = tuple[int, int]
"""(s, G): the counter is `offset % G // s`, or `offset // s` where G is 0."""


@dataclass(frozen=True)
class Update:
  """A STORE, the loops around it (outermost first), and of each loop that carries no dependence the digit that is its
  counter."""

  store: UOp
  loops: tuple[UOp, ...]
  free: dict[UOp, Digit]

  @property
  def memory(self) -> UOp:
    """The PARAM or ALLOC."""
    return stored_to(self.store)

  @property
  def accumulates(self) -> bool:
    """Whether it combines with what is there."""
    return isinstance(self.store.arg, Accumulate)


def updates(root: UOp) -> list[Update]:
  """The STOREs of a kernel to memory in which iterations may alias: that of those that accumulate or have an offset
  from memory. All STOREs to such memory are there."""
  around = loops_around(root)
  found = [u for u in around if isinstance(u.arg, Accumulate) or _is_read(u)]
  memories = {stored_to(u) for u in found}
  return [Update(u, loops, _digits(u, loops)) for u, loops in around.items() if stored_to(u) in memories]


def loops_around(root: UOp) -> dict[UOp, tuple[UOp, ...]]:
  """The loops in which each STORE happens, outermost first: those that ENDs close, whether it uses their counters or
  not."""
  found: dict[UOp, tuple[UOp, ...]] = {}

  def enter(effect: UOp, loops: tuple[UOp, ...]) -> None:
    if effect.op is Ops.STORE:
      found.setdefault(effect, loops)
    elif effect.op is Ops.END:
      enter(effect.src[0], (*loops, *own_loops(effect)))
    elif effect.op in (Ops.GROUP, Ops.SINK, Ops.BARRIER):
      for s in effect.src:
        enter(s, loops)

  enter(root, ())
  for u in root.toposort:  # what something comes AFTER is no effect of the kernel's own list
    if u.op is Ops.AFTER:
      for s in u.src[1:]:
        enter(s, tuple(in_order(r for r in s.ranges if r.op is Ops.RANGE)))
  return found


def carried_loops(found: list[Update]) -> dict[UOp, list[Update]]:
  """For each loop in which iterations may alias, the STOREs that do. Where several STOREs change one memory, they have
  to have the same digit: else the one may change what another iteration of the other has changed."""
  carried: dict[UOp, list[Update]] = {}
  by_memory: dict[UOp, list[Update]] = {}
  for update in found:
    by_memory.setdefault(update.memory, []).append(update)
  for alike in by_memory.values():
    for loop in dict.fromkeys(r for update in alike for r in update.loops):
      inside = [update for update in alike if loop in update.loops]
      if len({update.free.get(loop) for update in inside}) > 1 or loop not in inside[0].free:
        carried[loop] = [*carried.get(loop, ()), *inside]
  return carried


def loops_without(found: list[Update]) -> list[UOp]:
  """Loops around some STOREs to a memory but not around others: threads that shared one would each make the others,
  with nothing that says who comes first."""
  around: dict[UOp, set[frozenset[UOp]]] = {}
  for update in found:
    around.setdefault(update.memory, set()).add(frozenset(update.loops))
  apart = [frozenset().union(*sets) - frozenset.intersection(*map(frozenset, sets)) for sets in around.values()]
  changing = [apart for apart, memory in zip(apart, around) if any(u.memory is memory and u.accumulates for u in found)]
  return in_order(frozenset().union(*changing))


def _is_read(store: UOp) -> bool:
  return any(u.op is Ops.LOAD for u in store.src[0].src[1].toposort)


# *** digits of offsets ***


def _digits(store: UOp, loops: tuple[UOp, ...]) -> dict[UOp, Digit]:
  place = store.src[0]
  parts = [_part(term) for term in terms(place.src[1])]
  known = Bounds(gates_of(store))
  digits = {loop: _digit(loop, parts, known) for loop in loops}
  return {loop: digit for loop, digit in digits.items() if digit is not None}


def _part(term: UOp) -> tuple[int, UOp | None]:
  """(factor, what it is the factor of) of a summand; None for a constant."""
  if term.op is Ops.CONST:
    return int(term.arg), None
  if term.op is Ops.MUL and term.src[1].op is Ops.CONST:
    return int(term.src[1].arg), term.src[0]
  return 1, term


def _digit(loop: UOp, parts: list[tuple[int, UOp | None]], known: Bounds) -> Digit | None:
  """Which digit of an offset, the sum of `parts`, the counter of a loop is; None if it is none. A summand is taken as a
  multiple (of G) if its factor is larger than all that the counter adds, and as a part of the rest otherwise."""
  own = [factor for factor, value in parts if value is loop]
  others = [(factor, value) for factor, value in parts if value is not loop]
  if len(own) != 1 or own[0] <= 0:
    return None
  step = own[0]
  low, high, group = 0, 0, 0
  for factor, value in others:
    if value is not None and abs(factor) > step * loop.vmax:
      group = math.gcd(group, factor)  # whatever the value is, also one that depends on the counter
      continue
    if value is not None and loop in value.ranges:
      return None
    least, most = (factor, factor) if value is None else known.of(value, factor)
    low, high = low + least, high + most
  if low < 0 or high >= step or (group and step * int(loop.vmax) + high >= group):
    return None
  return step, group


class Bounds:
  """Bounds of values where gates hold."""

  def __init__(self, gates: Iterable[UOp]) -> None:
    self.low: dict[UOp, int] = {}
    self.high: dict[UOp, int] = {}
    for value, least, most in _limits(gates):
      if least is not None:
        self.low[value] = max(least, self.low.get(value, least))
      if most is not None:
        self.high[value] = min(most, self.high.get(value, most))

  def of(self, value: UOp, factor: int = 1) -> tuple[int, int]:
    """The bounds of a value times a number."""
    low, high = max(int(value.vmin), self.low.get(value, int(value.vmin))), int(value.vmax)
    ends = low * factor, min(high, self.high.get(value, high)) * factor
    return min(ends), max(ends)


def _limits(gates: Iterable[UOp]) -> Iterator[tuple[UOp, int | None, int | None]]:
  """(value, its least, its most) from clauses that compare it with a number."""
  for clause in gates:
    holds = True
    while clause.op in (Ops.CMPNE, Ops.XOR) and clause.src[1].op is Ops.CONST and clause.src[1].arg is True:
      clause, holds = clause.src[0], not holds
    if clause.op is not Ops.CMPLT:
      continue
    a, b = clause.src
    if b.op is Ops.CONST and type(b.arg) is int:
      yield (a, None, b.arg - 1) if holds else (a, b.arg, None)
    elif a.op is Ops.CONST and type(a.arg) is int:
      yield (b, a.arg + 1, None) if holds else (b, None, a.arg)
