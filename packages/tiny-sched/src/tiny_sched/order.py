"""Puts the units of a schedule in an order in which every read sees the version of a buffer that the graph says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from tiny_sched.history import Histories
from tiny_sched.index import ZERO, flatten
from tiny_sched.simple import simplify
from tiny_sched.units import Place, Unit
from tiny_uop import Ops, UOp


def ordered(units: Sequence[Unit], histories: Histories) -> list[Unit]:
  """The units in a valid order, with the temporaries added that it takes.

  One is needed for a kernel that reads other elements of its buffer than the one it writes, and for a version that is
  read after it would have been overwritten.
  """
  all_units: list[Unit] = []
  for unit in units:
    all_units.extend(_apart(unit) if _overlaps_itself(unit, histories) else (unit,))
  for number, unit in enumerate(all_units):
    unit.number = number
  return _sorted(all_units, histories)


# *** one unit ***


def _overlaps_itself(unit: Unit, histories: Histories) -> bool:
  """Whether the unit reads its own buffer in a way that a write might have changed before."""
  if unit.store is None or unit.given:
    return False  # what a given kernel writes directly is read by nothing before
  target, version = unit.places[0], histories.before(unit.store)
  for slot, place in enumerate(unit.places[1:], 1):
    if place.base is not target.base or place.version != version:
      continue  # another version is the business of the order
    if replace(place, version=None) != target or not _reads_only_what_it_writes(unit, slot):
      return True
  return False


def _reads_only_what_it_writes(unit: Unit, slot: int) -> bool:
  if unit.body is None:
    return False
  nodes = unit.body.toposort
  written = next(u for u in nodes if u.op is Ops.STORE).src[0].src[1]
  return all(
    u.src[1] is written for u in nodes if u.op is Ops.INDEX and u.src[0].op is Ops.PARAM and u.src[0].arg == slot
  )


def _apart(unit: Unit) -> tuple[Unit, Unit]:
  """The unit writing a temporary, and a second one that puts it in place."""
  store, target = unit.store, unit.places[0]
  assert store is not None
  shape = store.src[0].shape
  temporary = Place(store.rtag("apart"), 0, unit.root_size, target.dtype)
  first = replace(unit, store=None, places=[temporary, *unit.places[1:]])
  second = replace(unit, places=[target, temporary], slots={})
  if unit.body is not None:
    written = next(u for u in unit.body.toposort if u.op is Ops.STORE)
    loops = [r for r in unit.loops if r is not ZERO]
    place = simplify(flatten(unit.loops, shape))
    out, load = UOp.param(0, target.pointer), UOp.param(1, temporary.pointer).index(place).load()
    first.body = UOp.param(0, temporary.pointer).index(place).store(written.src[1]).end(*loops)
    second.body = out.index(written.src[0].src[1]).store(load).end(*loops)
  return first, second


# *** all units ***


def _writers(units: Sequence[Unit]) -> dict[UOp, Unit]:
  """Who makes a version or a temporary: by STORE, or by the node that the temporary holds."""
  found: dict[UOp, Unit] = {}
  for unit in units:
    for store, place in zip(unit.stores, unit.places, strict=False):
      found[place.base if store is None else store] = unit
  return found


def _needed(unit: Unit, writers: dict[UOp, Unit], histories: Histories) -> Iterator[Unit]:
  """Units whose results this one reads or overwrites (read after write, write after write)."""
  if unit.first is not None:
    yield unit.first
  for place in unit.read:
    wanted = (place.base,) if place.base.op is not Ops.BUFFER else () if place.version is None else place.version.last
    yield from [writers[w] for w in wanted if w in writers]
  for store, place in zip(unit.stores, unit.places, strict=False):
    if store is None:
      continue
    yield from [writers[w] for w in histories.before(store).last if w in writers]
    if place.base.op is not Ops.BUFFER:
      raise ValueError(f"a STORE into {place.base!r}, which is no BUFFER")


def _overwriters(unit: Unit, place: Place, writers: dict[UOp, Unit], histories: Histories) -> Iterator[Unit]:
  """Units that overwrite what this one reads (write after read)."""
  if place.base.op is Ops.BUFFER and place.version is not None:
    for store in histories.stores.get(place.base, ()):
      if store in writers and writers[store] is not unit and histories.follows(store, place.version):
        yield writers[store]


def _sorted(units: list[Unit], histories: Histories) -> list[Unit]:
  snapshots: dict[Place, Place] = {}
  while True:
    writers = _writers(units)
    after: list[set[int]] = [set() for _ in units]  # who has to come later
    for unit in units:
      for earlier in _needed(unit, writers, histories):
        if earlier is not unit:
          after[earlier.number].add(unit.number)
      for place in unit.read:
        for later in _overwriters(unit, place, writers, histories):
          after[unit.number].add(later.number)
    order = _topological(units, after)
    if len(order) == len(units):
      return order
    stuck = {u.number for u in units} - {u.number for u in order}
    _break_cycle(units, stuck, after, writers, histories, snapshots)


def _topological(units: Sequence[Unit], after: Sequence[set[int]]) -> list[Unit]:
  """Kahn's algorithm; among those that can go, the one that is first in the graph."""
  waiting = [0] * len(units)
  for followers in after:
    for number in followers:
      waiting[number] += 1
  ready = [n for n, count in enumerate(waiting) if count == 0]
  heapify(ready)
  order: list[Unit] = []
  while ready:
    number = heappop(ready)
    order.append(units[number])
    for later in after[number]:
      waiting[later] -= 1
      if waiting[later] == 0:
        heappush(ready, later)
  return order


def _cycle(stuck: set[int], after: Sequence[set[int]]) -> list[int]:
  """Numbers of units that wait for each other in a ring, each before the next."""
  before: dict[int, int] = {}
  for number in stuck:
    for later in after[number]:
      if later in stuck:
        before[later] = number
  seen: dict[int, None] = {}
  number = next(iter(stuck & before.keys()))
  while number not in seen:
    seen[number] = None
    number = before[number]
  path = list(seen)
  return path[path.index(number) :][::-1]


def _break_cycle(
  units: list[Unit],
  stuck: set[int],
  after: Sequence[set[int]],
  writers: dict[UOp, Unit],
  histories: Histories,
  snapshots: dict[Place, Place],
) -> None:
  """Lets one reader of an old version read a copy of it instead."""
  ring = _cycle(stuck, after)
  for number, following in zip(ring, [*ring[1:], ring[0]]):
    reader = units[number]
    for slot, place in enumerate(reader.read, len(reader.stores)):
      if snapshots.get(place) == reader.places[0]:
        continue  # the copy itself has to read it
      if any(w.number == following for w in _overwriters(reader, place, writers, histories)):
        reader.places[slot] = _snapshot(units, place, reader.device, snapshots)
        return
  raise ValueError(f"the STOREs of the graph wait for each other: {[units[n].root for n in ring]}")


def _snapshot(units: list[Unit], place: Place, device: str, snapshots: dict[Place, Place]) -> Place:
  if place not in snapshots:
    # the marker is unique to the version: the temporary is known by it
    marker = UOp(
      Ops.AFTER,
      place.dtype,
      (place.base, *place.version.last) if place.version else (place.base,),
      tag=str(len(snapshots)),
    )
    snapshots[place] = Place(marker, 0, place.size, place.dtype)
    units.append(Unit(len(units), marker, device, None, [snapshots[place], place], is_copy=True))
  return snapshots[place]
