"""Puts the items of a schedule in an order in which every read sees the version of a buffer that the graph says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import pairwise

from tiny_sched.index import ZERO, flatten, largest_size, simplify
from tiny_sched.schedule_item import BufferRegion, ScheduleItem
from tiny_sched.versions import BufferVersions
from tiny_uop import Ops, UOp, collective_of


def ordered(items: Sequence[ScheduleItem], versions: BufferVersions) -> list[ScheduleItem]:
  """The items in a valid order, with the temporaries added that it takes.

  One is needed for a kernel that reads other elements of its buffer than the one it writes, and for a version that is
  read after it would have been overwritten.
  """
  apart = [_apart(item) if _overlaps_itself(item, versions) else (item,) for item in items]
  return _Order([item for some in apart for item in some], versions).found()


# *** one item ***


def _overlaps_itself(item: ScheduleItem, versions: BufferVersions) -> bool:
  """Whether the item reads its own buffer in a way that a write might have changed before."""
  if item.store is None or item.given:
    return False  # what a given kernel writes directly is read by nothing before
  target, version = item.regions[0], versions.before(item.store)
  for slot, region in enumerate(item.regions[1:], 1):
    if region.base is not target.base or region.version != version:
      continue  # another version is the business of the order
    if replace(region, version=None) != target or not _reads_only_what_it_writes(item, slot):
      return True
  return False


def _reads_only_what_it_writes(item: ScheduleItem, slot: int) -> bool:
  if item.body is None:
    return False
  nodes = item.body.toposort
  written = next(u for u in nodes if u.op is Ops.STORE).src[0].src[1]
  return all(
    u.src[1] is written for u in nodes if u.op is Ops.INDEX and u.src[0].op is Ops.PARAM and u.src[0].arg == slot
  )


def _apart(item: ScheduleItem) -> tuple[ScheduleItem, ScheduleItem]:
  """The item writing a temporary, and a second one that puts it in place."""
  store, target = item.store, item.regions[0]
  assert store is not None
  shape = store.src[0].shape
  temporary = BufferRegion(store.rtag("apart"), 0, largest_size(shape), target.dtype)
  first = replace(item, store=None, regions=[temporary, *item.regions[1:]])
  second = replace(item, regions=[target, temporary], slots={})
  if item.body is not None:
    written = next(u for u in item.body.toposort if u.op is Ops.STORE)
    loops = [r for r in item.loops if r is not ZERO]
    offset = simplify(flatten(item.loops, shape))
    out, load = UOp.param(0, target.pointer), UOp.param(1, temporary.pointer).index(offset).load()
    first.body = UOp.param(0, temporary.pointer).index(offset).store(written.src[1]).end(*loops)
    second.body = out.index(written.src[0].src[1]).store(load).end(*loops)
  return first, second


def _collective(item: ScheduleItem) -> UOp | None:
  return collective_of(item.body) if item.given and item.body is not None else None


# *** all items ***


class _Order:
  """Who has to run before whom, and the order that follows from it."""

  def __init__(self, items: list[ScheduleItem], versions: BufferVersions) -> None:
    self.items, self.versions = items, versions
    for number, item in enumerate(items):
      item.number = number
    self.writers: dict[UOp, ScheduleItem] = {}
    """Who makes a version or a temporary: by STORE, or by the node that the temporary holds."""
    self.after: list[set[int]] = []
    """For each item the numbers of those that have to come later."""
    self.snapshots: dict[BufferRegion, BufferRegion] = {}
    """Copies of old versions."""

  def found(self) -> list[ScheduleItem]:
    """A valid order. Where there is none, readers of old versions are made to read copies until there is."""
    while True:
      # what fills memory for another item to accumulate in has not made the value yet
      filling = {item.first.number for item in self.items if item.first is not None}
      making = [item for item in self.items if item.number not in filling]
      self.writers = {region.base if store is None else store: i for i in making for store, region in i.written}
      self.after = [set() for _ in self.items]
      for item in self.items:
        for earlier in self.needed(item):
          if earlier is not item:
            self.after[earlier.number].add(item.number)
        for region in item.read:
          self.after[item.number].update(later.number for later in self.overwriters(item, region))
      for one, other in pairwise(self.collectives()):
        self.after[one.number].add(other.number)
      order = self.topological()
      if len(order) == len(self.items):
        return order
      self.break_cycle({u.number for u in self.items} - {u.number for u in order})

  def collectives(self) -> list[ScheduleItem]:
    """The items that all ranks carry out together, in the order that all keep to."""
    numbers = {item.number: body.arg.number for item in self.items if (body := _collective(item)) is not None}
    return [self.items[n] for n in sorted(numbers, key=lambda n: numbers[n])]

  def needed(self, item: ScheduleItem) -> Iterator[ScheduleItem]:
    """Items whose results this one reads or overwrites (read after write, write after write)."""
    if item.first is not None:
      yield item.first
    wanted = [w for region in item.read for w in region.written_by]
    for store, region in item.written:
      if store is not None:
        wanted += self.versions.before(store).last
        if region.base.op is not Ops.BUFFER:
          raise ValueError(f"a STORE into {region.base!r}, which is no BUFFER")
    yield from [self.writers[w] for w in wanted if w in self.writers]

  def overwriters(self, item: ScheduleItem, region: BufferRegion) -> Iterator[ScheduleItem]:
    """Items that overwrite what this one reads (write after read)."""
    if region.base.op is Ops.BUFFER and region.version is not None:
      for store in self.versions.stores.get(region.base, ()):
        writer = self.writers.get(store, item)
        if writer is not item and self.versions.follows(store, region.version):
          yield writer

  def topological(self) -> list[ScheduleItem]:
    """Kahn's algorithm; among those that can go, one that an early collective waits for, so that it is under way while
    the others run; among these, the one that is first in the graph."""
    waiting = Counter([number for followers in self.after for number in followers])
    wanted = self.wanted()
    ready = [(wanted[n], n) for n in range(len(self.items)) if not waiting[n]]
    heapify(ready)
    order: list[ScheduleItem] = []
    while ready:
      _, number = heappop(ready)
      order.append(self.items[number])
      for later in self.after[number]:
        waiting[later] -= 1
        if not waiting[later]:
          heappush(ready, (wanted[later], later))
    return order

  def wanted(self) -> list[int]:
    """For each item the first collective that waits for it, of those that send what this schedule computes; a number
    after all of them where none does."""
    writers = self.writers
    collectives = [i for i in self.collectives() if any(w in writers for region in i.read for w in region.written_by)]
    found = [len(collectives)] * len(self.items)
    if not collectives:
      return found
    before: list[list[int]] = [[] for _ in self.items]
    for number, followers in enumerate(self.after):
      for later in followers:
        before[later].append(number)
    for order, item in enumerate(collectives):
      waiting = [item.number]
      while waiting:
        number = waiting.pop()
        if found[number] == len(collectives):
          found[number] = order
          waiting += before[number]
    return found

  def cycle(self, stuck: set[int]) -> list[int]:
    """Numbers of items that wait for each other in a ring, each before the next."""
    before = {later: number for number in stuck for later in self.after[number] if later in stuck}
    seen: dict[int, None] = {}
    number = next(iter(stuck & before.keys()))
    while number not in seen:
      seen[number] = None
      number = before[number]
    path = list(seen)
    return path[path.index(number) :][::-1]

  def break_cycle(self, stuck: set[int]) -> None:
    """Lets one reader of an old version read a copy of it instead."""
    ring = self.cycle(stuck)
    for number, following in zip(ring, [*ring[1:], ring[0]]):
      reader = self.items[number]
      for slot, region in enumerate(reader.read, len(reader.stores)):
        if self.snapshots.get(region) == reader.regions[0]:
          continue  # the copy itself has to read it
        if any(w.number == following for w in self.overwriters(reader, region)):
          reader.regions[slot] = self.snapshot(region, reader.device)
          return
    raise ValueError(f"the STOREs of the graph wait for each other: {[self.items[n].root for n in ring]}")

  def snapshot(self, region: BufferRegion, device: str) -> BufferRegion:
    """A copy of a version."""
    if region not in self.snapshots:
      # the marker is unique to the version: the temporary is known by it
      sources = (region.base, *region.written_by)
      marker = UOp(Ops.AFTER, region.dtype, sources, tag=str(len(self.snapshots)))
      copy = self.snapshots[region] = BufferRegion(marker, 0, region.size, region.dtype)
      nodes = (marker, *region.written_by)
      self.items.append(ScheduleItem(len(self.items), marker, device, None, [copy, region], is_copy=True, nodes=nodes))
    return self.snapshots[region]
