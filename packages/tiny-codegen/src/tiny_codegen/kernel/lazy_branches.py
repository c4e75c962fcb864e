"""Which values of a program are worth a branch: those that only one side of WHEREs needs, if they cost enough.

A WHERE computes both of its sides in all lanes. Where one takes many instructions, such as a function of arguments that
hardly ever occur, the program tests whether any lane needs it. A side is pure, so that whether it is computed makes no
difference to what the program means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tiny_uop import GroupOp, Ops, UOp
from tiny_uop.graph import users_of
from tiny_uop.records import dataclass

LEAST = 20
"""Instructions from which on a side is worth a test and a jump."""

_WEIGHT = {Ops.FDIV: 8, Ops.SQRT: 8, Ops.TRUNCDIV: 8, Ops.TRUNCMOD: 8}
_CONTROL = frozenset({Ops.RANGE, Ops.END, Ops.SPECIAL, Ops.IF, Ops.ENDIF, Ops.BARRIER})


@dataclass(frozen=True)
class Branch:
  """What only one side of WHEREs, which have one condition, needs: their sources number `side` (1 where it is true, 2
  where it is false) and what leads to them alone, in the order of the program.
  """

  wheres: tuple[UOp, ...]
  side: int
  values: tuple[UOp, ...]

  @property
  def roots(self) -> tuple[UOp, ...]:
    """What the WHEREs choose."""
    return tuple(dict.fromkeys([w.src[self.side] for w in self.wheres]))


def branches(linear: Sequence[UOp]) -> dict[UOp, Branch]:
  """The branches of a LINEAR's instructions that are worth it, by the first of their WHEREs: for each condition the
  costlier side, the other one is computed anyway. A value stands in one of them at most: the innermost.
  """
  together: dict[UOp, list[UOp]] = {}
  for u in linear:
    if u.op is Ops.WHERE:
      together.setdefault(u.src[0], []).append(u)
  together = {condition: wheres for condition, wheres in together.items() if _may_be_dear(wheres)}
  if not together:
    return {}
  program = _Program(linear)
  groups: dict[tuple[UOp, int], list[UOp]] = {}
  for condition, wheres in together.items():
    for u in wheres:
      groups.setdefault((condition, program.block[u]), []).append(u)
  found: list[Branch] = []
  for wheres in groups.values():
    sides = [b for side in (1, 2) if (b := program.branch(tuple(wheres), side)) is not None]
    found += [max(sides, key=lambda b: _cost(b.values))] if sides else []
  # WHEREs of which only some stand in another branch cannot share one of their own
  inside = [frozenset(b.values) for b in found]
  shared = [b for b in found if not any(0 < len(values.intersection(b.wheres)) < len(b.wheres) for values in inside)]
  taken: set[UOp] = set()
  out: dict[UOp, Branch] = {}
  for b in sorted(shared, key=lambda b: len(b.values)):
    own = tuple([u for u in b.values if u not in taken])
    taken.update(own)
    out[b.wheres[0]] = Branch(b.wheres, b.side, own)
  return out


def _may_be_dear(wheres: Sequence[UOp]) -> bool:
  """Whether all that is computed for a side of WHEREs is enough for a branch, were it for that alone."""
  for side in (1, 2):
    found, waiting, cost = set[UOp](), [w.src[side] for w in wheres], 0
    while waiting:
      u = waiting.pop()
      if u not in found and u.op in GroupOp.Elementwise:
        found.add(u)
        waiting += u.src
        cost += _WEIGHT.get(u.op, 1)
        if cost >= LEAST:
          return True
  return False


def _cost(values: Iterable[UOp]) -> int:
  return sum(_WEIGHT.get(v.op, 1) for v in values)


class _Program:
  """Where values stand, and who uses them."""

  def __init__(self, linear: Sequence[UOp]) -> None:
    self.place = {u: number for number, u in enumerate(linear)}
    self.block: dict[UOp, int] = {}
    self.users = users_of(linear)
    count = 0
    for u in linear:
      count += u.op in _CONTROL
      self.block[u] = count

  def branch(self, wheres: tuple[UOp, ...], side: int) -> Branch | None:
    """The branch of a side of WHEREs with one condition; None if it costs too little. It stands at the first of them:
    if something is not there by then, the others do without.
    """
    inside = self._only_for(wheres, side)
    if _cost(inside) < LEAST:
      return None
    wheres = tuple([w for w in wheres if w.src[side] in inside])
    outside = {s for v in inside for s in v.src if s.op is not Ops.CONST} - inside
    first = self.place[wheres[0]]
    if not inside.isdisjoint(wheres) or any(self.place.get(s, -1) >= first for s in outside):
      return self.branch(wheres[:1], side)
    return Branch(wheres, side, tuple(sorted(inside, key=self.place.__getitem__)))

  def _only_for(self, wheres: tuple[UOp, ...], side: int) -> set[UOp]:
    """The elementwise values that lead to nothing but this side of these WHEREs."""
    chosen = frozenset(wheres)
    inside: set[UOp] = set()
    waiting = [w.src[side] for w in chosen]
    # a value is looked at again when another of its users turns out to be inside
    while waiting:
      u = waiting.pop()
      if u in inside or u.op not in GroupOp.Elementwise or self.block.get(u) != self.block[wheres[0]]:
        continue
      if all(user in inside or (user in chosen and self._only_as(u, user, side)) for user in self.users[u]):
        inside.add(u)
        waiting += u.src
    return inside

  @staticmethod
  def _only_as(value: UOp, where: UOp, side: int) -> bool:
    return all((s is value) <= (place == side) for place, s in enumerate(where.src))
