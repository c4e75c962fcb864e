"""Kernels over the same loops become one that writes several results: what they share is read once.

The sums of a batch norm's gradient, a moment of an optimiser and the parameter that it moves, running statistics. The
later kernel goes to the place of the earlier one where nothing in between minds. Products that are summed stay alone:
their loops are tiled for what one of them reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tiny_sched.cut import SMALL
from tiny_sched.index import largest
from tiny_sched.units import Place, Unit
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.records import dataclass

MOST_PLACES = 12  # streams that one loop goes through, and arguments of a call
MOST_NODES = 500
LONG_ROW = 64  # terms of a sum that make what is done once per sum cheap
MOST_HOSTS = 16  # that are tried


@dataclass(frozen=True, eq=False)
class Task:
  """A kernel, with what decides whether another can join it."""

  unit: Unit
  effects: tuple[UOp, ...]
  loops: tuple[UOp, ...]
  written: frozenset[Place]
  read: frozenset[Place]
  reduces: tuple[UOp, ...]
  loads: frozenset[UOp]

  @property
  def sizes(self) -> tuple[UOp, ...]:
    """Extents of the output loops."""
    return tuple([r.src[0] for r in self.loops])

  @property
  def iterations(self) -> int:
    """Elements per result."""
    return prod(largest(s) for s in self.sizes)

  @property
  def terms(self) -> int:
    """Terms of the longest sum, 1 for a kernel without any."""
    return max((prod(largest(r.src[0]) for r in reduce.src[1:]) for reduce in self.reduces), default=1)


def merge_kernels(units: Sequence[Unit]) -> list[Unit]:
  """The units, in an order that can run, with those that go through the same memory together merged."""
  line = Line()
  for unit in units:
    line.add(unit, _task(unit))
  wanted = {place.base for e in line.entries for place in e.read}
  merged = [_live(entry, wanted) if isinstance(entry, Task) else entry for entry in line.entries]
  for number, unit in enumerate(merged):
    unit.number = number
  return merged


class Line:
  """Kernels in order, and how far up a new one may move."""

  def __init__(self) -> None:
    self.entries: list[Task | Unit] = []
    self.alike: dict[tuple[object, ...], list[int]] = {}  # places in the line, by device and loops
    self.last_write: dict[UOp, int] = {}
    self.last_read: dict[UOp, int] = {}

  def add(self, unit: Unit, task: Task | None) -> None:
    """Lets a kernel join another, or puts it at the end."""
    where = None
    if task is not None:
      hosts = self.alike.setdefault((unit.device, *task.sizes), [])
      where = self.join(task, hosts)
      if where is None:
        hosts.append(len(self.entries))
    if where is None:
      where = len(self.entries)
      self.entries.append(unit if task is None else task)
    entry = self.entries[where]
    reads = entry.read
    writes = entry.written if isinstance(entry, Task) else unit.places[: len(unit.stores)]
    for touched, last in ((reads, self.last_read), (writes, self.last_write)):
      for place in touched:
        last[place.base] = max(where, last.get(place.base, 0))

  def join(self, task: Task, hosts: Sequence[int]) -> int | None:
    """The place of the last kernel that could take the task in."""
    written = {place.base for place in task.written}
    earliest = max([self.last_write.get(place.base, 0) for place in task.read | task.written]
                   + [self.last_read.get(base, 0) for base in written])  # fmt: skip
    for place in reversed(hosts[-MOST_HOSTS:]):
      if place < earliest:
        return None
      host = self.entries[place]
      if isinstance(host, Task) and (both := _joined(host, task)) is not None:
        self.entries[place] = both
        return place
    return None


def _plain(place: Place) -> Place:
  """A place as memory: the order has made sure that versions are right."""
  return replace(place, version=None)


def _task(unit: Unit) -> Task | None:
  """None for copies, given kernels, and for sums of products of operands that several results share."""
  if unit.body is None or unit.given or unit.first is not None:
    return None
  unit = _one_slot_each(unit, unit.body)
  body = unit.body
  assert body is not None
  loops = body.src[1:] if body.op is Ops.END else ()
  store = body.src[0] if body.op is Ops.END else body
  nodes = store.toposort
  reduces = tuple([u for u in nodes if u.op is Ops.REDUCE])
  loads = frozenset([u for u in nodes if u.op is Ops.LOAD])
  outputs = frozenset(loops)
  if len(nodes) > MOST_NODES or any(any(_is_sum(r) for r in u.ranges) and not outputs <= u.ranges for u in loads):
    return None
  written = frozenset([unit.places[0]])
  # also what the kernel only has to wait for, which none of its loads reads
  waits = set(range(len(unit.places))) - {u.arg for u in body.toposort if u.op is Ops.PARAM}
  read = frozenset([unit.places[u.src[0].src[0].arg] for u in loads] + [unit.places[i] for i in waits])
  return Task(unit, (store,), loops, written, read, reduces, loads)


def _one_slot_each(unit: Unit, body: UOp) -> Unit:
  """The unit with one PARAM for all versions of a place."""
  places = list(dict.fromkeys(map(_plain, unit.places)))
  if len(places) == len(unit.places):
    return replace(unit, places=places)
  params = [u for u in body.toposort if u.op is Ops.PARAM]
  changes = {u: u.replace(arg=places.index(_plain(unit.places[u.arg]))) for u in params}
  body = body.substitute({a: b for a, b in changes.items() if a is not b})
  return replace(unit, places=places, body=body, slots={})


def _is_sum(loop: UOp) -> bool:
  return bool(loop.arg[1] is AxisType.REDUCE)


def _overlap(a: Place, b: Place) -> bool:
  return a.base is b.base and a.byte_offset < b.byte_offset + b.nbytes and b.byte_offset < a.byte_offset + a.nbytes


def _joined(host: Task, guest: Task) -> Task | None:
  """Both kernels as one, or None where that cannot be, or does not pay."""
  if host.unit.device != guest.unit.device or host.sizes != guest.sizes:
    return None
  few = len(host.reduces) == 0, len(guest.reduces) == 0
  if few[0] != few[1] and host.terms * guest.terms < LONG_ROW and host.iterations > SMALL:
    return None  # an elementwise kernel would lose its vectors to a sum over a few terms
  places = list(dict.fromkeys([*host.unit.places, *guest.unit.places]))
  if len(places) > MOST_PLACES or any(_overlap(a, b) for a in host.written for b in guest.written):
    return None
  effects = _renamed(host, guest, places)
  stored = {effect.src[0]: effect.src[1] for effect in host.effects}
  forwarded = _forwarded(host, effects, places, stored)
  if forwarded is None or not _reads_before_writing(host, guest, forwarded, places):
    return None
  loads = frozenset([u for effect in forwarded for u in effect.toposort if u.op is Ops.LOAD])
  shared = forwarded != effects or not host.loads.isdisjoint(loads)
  small = host.iterations * max(host.terms, guest.terms) <= SMALL
  if not shared and not small:
    return None
  return _both(host, guest, forwarded, places, loads)


def _live(task: Task, wanted: set[UOp]) -> Unit:
  """The unit without temporaries that were read by nothing but what has been merged with them."""
  places = task.unit.places
  targets = [places[effect.src[0].src[0].arg] for effect in task.effects]
  live = [e for e, target in zip(task.effects, targets) if target.base.op is Ops.BUFFER or target.base in wanted]
  if len(live) in (0, len(task.effects)):
    return task.unit
  group = UOp.group(*live)
  first = live[0].src[0].src[0].arg
  swapped = {u: u.replace(arg={0: first, first: 0}[u.arg])
             for u in group.toposort if u.op is Ops.PARAM and u.arg in (0, first)}  # fmt: skip
  group = group.substitute({a: b for a, b in swapped.items() if a is not b})
  body = group.end(*task.loops) if task.loops else group
  places = [places[first], *places[1:first], places[0], *places[first + 1 :]] if first else places
  return replace(task.unit, places=places, body=body, slots={})


def _renamed(host: Task, guest: Task, places: list[Place]) -> tuple[UOp, ...]:
  """The effects of the guest in the host's loops, with the PARAMs of both together."""
  changes: dict[UOp, UOp] = dict(zip(guest.loops, host.loops))
  free = [reduce.src[1:] for reduce in host.reduces]
  next_range = max(host.unit.next_range, guest.unit.next_range)
  for reduce in guest.reduces:
    own = reduce.src[1:]
    if all(r in changes for r in own):
      continue
    same = next((f for f in free if [r.src[0] for r in f] == [r.src[0] for r in own]), None)
    if same is not None and not any(r in changes for r in own):
      free.remove(same)
      changes.update(zip(own, same))
      continue
    for r in own:
      if r not in changes:
        changes[r] = UOp.range(r.src[0], next_range, AxisType.REDUCE)
        next_range += 1
  nodes = [u for effect in guest.effects for u in effect.toposort]
  for u in nodes:
    if u.op is Ops.PARAM:
      changes[u] = u.replace(arg=places.index(guest.unit.places[u.arg]))
  return tuple([effect.substitute({a: b for a, b in changes.items() if a is not b}) for effect in guest.effects])


def _forwarded(
  host: Task, effects: tuple[UOp, ...], places: list[Place], stored: dict[UOp, UOp]
) -> tuple[UOp, ...] | None:
  """The guest's effects with what the host has just computed in the place of loads of it. None where the guest reads
  other elements."""
  changes: dict[UOp, UOp] = {}
  for effect in effects:
    for u in effect.toposort:
      if u.op is Ops.LOAD and any(_overlap(places[u.src[0].src[0].arg], w) for w in host.written):
        if u.src[0] not in stored:
          return None
        changes[u] = stored[u.src[0]]
  return tuple([effect.substitute(changes) for effect in effects]) if changes else effects


def _reads_before_writing(host: Task, guest: Task, effects: tuple[UOp, ...], places: list[Place]) -> bool:
  """Whether all that the host reads where the guest writes is read by the guest's own value: then the write waits."""
  for effect in effects:
    target = places[effect.src[0].src[0].arg]
    for load in host.loads:
      if not _overlap(places[load.src[0].src[0].arg], target):
        continue
      if load.src[0] is not effect.src[0] or load not in effect.src[1].toposort:
        return False
  return True


def _both(host: Task, guest: Task, added: tuple[UOp, ...], places: list[Place], loads: frozenset[UOp]) -> Task | None:
  effects = (*host.effects, *added)
  group = UOp.group(*effects)
  nodes = group.toposort
  if len(nodes) > MOST_NODES:
    return None
  body = group.end(*host.loops) if host.loops else group
  ranges = [u.arg[0] for u in nodes if u.op is Ops.RANGE]
  unit = replace(host.unit, places=places, body=body, slots={}, next_range=max(ranges, default=-1) + 1)
  used = frozenset([places[u.src[0].src[0].arg] for u in nodes if u.op is Ops.LOAD])
  reduces = tuple([u for u in nodes if u.op is Ops.REDUCE])
  return Task(unit, effects, host.loops, host.written | guest.written, used, reduces, host.loads | loads)
