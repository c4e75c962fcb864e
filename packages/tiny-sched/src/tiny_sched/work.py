"""What each call of a schedule computes of the graph that was scheduled, so that it can be said where it comes from.

A template of the cache is for all graphs of a structure: it knows nodes by their places among those of the graph, and
each graph has marks of its own (`tiny_uop.origins`). A node that the rules have made is of the node whose place it has
taken, and what is below it alone is of it too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from math import prod

from tiny_sched.index import largest
from tiny_uop import GroupOp, Ops, UOp, value_nodes
from tiny_uop.origins import MARK, Mark, Origin, set_origins

Work = tuple[tuple[int, int], ...]
"""Of a call: (place of a node in the graph, elements that are computed for it)."""


class Tracker(threading.local):
  """What becomes of the nodes of the graph that this thread schedules."""

  def __init__(self) -> None:
    self.places: dict[UOp, int] | None = None
    """Of nodes as they are now, the places in the graph that was given; None while nobody wants to know."""
    self.calls: list[Work] = []
    """Of each call, once there are some."""

  def begin(self, nodes: Sequence[UOp]) -> None:
    """A graph with these nodes is scheduled."""
    self.places, self.calls = {}, []
    for place, u in enumerate(nodes):
      self.places.setdefault(u, place)

  def end(self) -> None:
    """Nobody wants to know any more."""
    self.places, self.calls = None, []

  def rewritten(self, became: dict[UOp, UOp], root: UOp) -> None:
    """The graph has become that of `root`."""
    if self.places is None:
      return
    moved: dict[UOp, int] = {}
    for u, place in self.places.items():
      new = became.get(u, u)
      moved[new] = min(place, moved.get(new, place))  # of two that became one, the one that is computed first
    self.places = inherited(value_nodes(root, kernels=True), moved)

  def scheduled(self, calls: Iterable[Sequence[UOp]]) -> None:
    """There are calls, which compute these nodes."""
    places = self.places
    if places is None:
      return
    for nodes in calls:
      work: dict[int, int] = {}
      for u in nodes:
        if (place := places.get(u)) is not None:
          work[place] = work.get(place, 0) + elements(u)
      self.calls.append(tuple(work.items()))


tracker = Tracker()


def inherited(nodes: Sequence[UOp], known: dict[UOp, int]) -> dict[UOp, int]:
  """`known` with the nodes that are only there for one of its nodes, which has a place."""
  found = dict(known)
  users = first_users(nodes)
  for u in reversed(nodes):
    if u not in found and (place := found.get(users.get(u, u))) is not None:
      found[u] = place
  return found


def first_users(nodes: Sequence[UOp]) -> dict[UOp, UOp]:
  """Of each node that has users the first of them, in the order of the nodes."""
  first: dict[UOp, UOp] = {}
  for u in nodes:
    for s in u.src:
      while s.op is Ops.CUSTOM_GRADIENT:  # of which the value is scheduled
        s = s.src[0]
      first.setdefault(s, u)
  return first


def elements(u: UOp) -> int:
  """The elements that are computed for a node: 0 where it only says which."""
  if u.op in GroupOp.Movement or u.op in GroupOp.Identity or u._shape is None or u.op is Ops.CONST:
    return 0
  return prod([largest(size) for size in (u.src[0] if u.op is Ops.REDUCE else u).shape])


class Schedule:
  """What the calls of a schedule compute."""

  def __init__(self, nodes: Sequence[UOp], calls: Sequence[Work]) -> None:
    """`nodes` are those of a graph that it is for, by place."""
    self.calls = [tuple([part for part in work if part[1]]) or work for work in calls]
    places = {u: place for place, u in enumerate(nodes)}
    first = first_users(nodes)
    wanted = {place for work in self.calls for place, _ in work}
    self.looked_at: list[tuple[int, int]] = []
    """Places whose marks matter, and those of their first users; users first."""
    for place, u in enumerate(nodes):
      if place in wanted:
        user = places[first.get(u, u)]
        self.looked_at.append((place, user))
        wanted.add(user)
    self.looked_at.reverse()
    self._told: list[tuple[list[Mark | None], tuple[Origin, ...]]] = [([], ())] * len(calls)

  def tell(self, calls: Sequence[UOp], nodes: Sequence[UOp]) -> None:
    """Tell CALLs where those nodes of a graph of this structure come from that they compute."""
    marks: list[Mark | None] = [None] * len(nodes)
    for place, user in self.looked_at:
      own = nodes[place].__dict__.get(MARK)
      marks[place] = own if own is not None else marks[user]
    for number, (call, work) in enumerate(zip(calls, self.calls, strict=True)):
      found = [marks[place] for place, _ in work]
      before, origins = self._told[number]
      if found != before:
        origins = ranked(found, work)
        self._told[number] = found, origins
      set_origins(call, origins)


def ranked(marks: Sequence[Mark | None], work: Work) -> tuple[Origin, ...]:
  """The origins of a call, that with most work first."""
  weights: dict[Origin, int] = {}
  for mark, (_, weight) in zip(marks, work, strict=True):
    if mark is not None:
      weights[mark.origin] = weights.get(mark.origin, 0) + weight
  return tuple(sorted(weights, key=lambda origin: -weights[origin]))
