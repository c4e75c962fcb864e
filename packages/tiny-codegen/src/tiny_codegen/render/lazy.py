"""Which values of a program are worth a branch: those that only one side of a WHERE needs, if they cost enough.

A WHERE computes both of its sides in all lanes. Where one takes many instructions, such as a function of arguments that
hardly ever occur, the program tests whether any lane needs it. A side is pure, so that whether it is computed makes no
difference to what the program means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tiny_uop import GroupOp, Ops, UOp

LEAST = 20
"""Instructions from which on a side is worth a test and a jump."""

_WEIGHT = {Ops.FDIV: 8, Ops.SQRT: 8, Ops.TRUNCDIV: 8, Ops.TRUNCMOD: 8}
_CONTROL = frozenset({Ops.RANGE, Ops.END, Ops.SPECIAL, Ops.IF, Ops.ENDIF, Ops.BARRIER})


class Sides(NamedTuple):
  """What only the sides of a WHERE need, in the order of the program; nothing for a side that is computed anyway."""

  true: tuple[UOp, ...]
  false: tuple[UOp, ...]


def lazy_sides(linear: Sequence[UOp]) -> dict[UOp, Sides]:
  """The WHEREs of a LINEAR's instructions that are worth a branch. A value is under one of them at most: the
  innermost.
  """
  place = {u: number for number, u in enumerate(linear)}
  block, blocks = 0, {}
  users: dict[UOp, list[UOp]] = {}
  for u in linear:
    block += u.op in _CONTROL
    blocks[u] = block
    for s in set(u.src):
      users.setdefault(s, []).append(u)
  found: dict[UOp, Sides] = {}
  taken: set[UOp] = set()
  for u in linear:
    if u.op is not Ops.WHERE:
      continue
    sides = [_only_for(u, side, users, blocks) for side in (1, 2)]
    costly = [side if sum(_WEIGHT.get(v.op, 1) for v in side) >= LEAST else set() for side in sides]
    if any(costly):
      ordered = [tuple(sorted(side - taken, key=place.__getitem__)) for side in costly]
      taken |= costly[0] | costly[1]
      found[u] = Sides(*ordered)
  return found


def _only_for(where: UOp, side: int, users: dict[UOp, list[UOp]], blocks: dict[UOp, int]) -> set[UOp]:
  """The elementwise values that nothing but this side of a WHERE leads to."""
  root = where.src[side]
  if any(s is root for place, s in enumerate(where.src) if place != side):
    return set()
  inside: set[UOp] = set()
  waiting = [root]
  while waiting:
    u = waiting.pop()
    if u in inside or u.op not in GroupOp.Elementwise or blocks.get(u) != blocks[where]:
      continue
    if all(user in inside or (user is where and u is root) for user in users[u]):
      inside.add(u)
      waiting += u.src
  return inside
