"""Puts the items of a schedule in an order in which every read sees the version of a buffer that the graph says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from tiny_sched.index import ZERO, flatten
from tiny_sched.memo import simplify
from tiny_sched.schedule_item import BufferRegion, ScheduleItem
from tiny_sched.versions import BufferVersions
from tiny_uop import Ops, UOp


def ordered(items: Sequence[ScheduleItem], versions: BufferVersions) -> list[ScheduleItem]:
  """The items in a valid order, with the temporaries added that it takes.

  One is needed for a kernel that reads other elements of its buffer than the one it writes, and for a version that is
  read after it would have been overwritten.
  """
  all_items: list[ScheduleItem] = []
  for item in items:
    all_items.extend(_apart(item) if _overlaps_itself(item, versions) else (item,))
  for number, item in enumerate(all_items):
    item.number = number
  return _sorted(all_items, versions)


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
  temporary = BufferRegion(store.rtag("apart"), 0, item.root_size, target.dtype)
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


# *** all items ***


def _writers(items: Sequence[ScheduleItem]) -> dict[UOp, ScheduleItem]:
  """Who makes a version or a temporary: by STORE, or by the node that the temporary holds."""
  found: dict[UOp, ScheduleItem] = {}
  for item in items:
    for store, region in zip(item.stores, item.regions, strict=False):
      found[region.base if store is None else store] = item
  return found


def _needed(item: ScheduleItem, writers: dict[UOp, ScheduleItem], versions: BufferVersions) -> Iterator[ScheduleItem]:
  """Items whose results this one reads or overwrites (read after write, write after write)."""
  if item.first is not None:
    yield item.first
  for region in item.read:
    yield from [writers[w] for w in region.written_by if w in writers]
  for store, region in zip(item.stores, item.regions, strict=False):
    if store is None:
      continue
    yield from [writers[w] for w in versions.before(store).last if w in writers]
    if region.base.op is not Ops.BUFFER:
      raise ValueError(f"a STORE into {region.base!r}, which is no BUFFER")


def _overwriters(
  item: ScheduleItem, region: BufferRegion, writers: dict[UOp, ScheduleItem], versions: BufferVersions
) -> Iterator[ScheduleItem]:
  """Items that overwrite what this one reads (write after read)."""
  if region.base.op is Ops.BUFFER and region.version is not None:
    for store in versions.stores.get(region.base, ()):
      if store in writers and writers[store] is not item and versions.follows(store, region.version):
        yield writers[store]


def _sorted(items: list[ScheduleItem], versions: BufferVersions) -> list[ScheduleItem]:
  snapshots: dict[BufferRegion, BufferRegion] = {}
  while True:
    writers = _writers(items)
    after: list[set[int]] = [set() for _ in items]  # who has to come later
    for item in items:
      for earlier in _needed(item, writers, versions):
        if earlier is not item:
          after[earlier.number].add(item.number)
      for region in item.read:
        for later in _overwriters(item, region, writers, versions):
          after[item.number].add(later.number)
    order = _topological(items, after)
    if len(order) == len(items):
      return order
    stuck = {u.number for u in items} - {u.number for u in order}
    _break_cycle(items, stuck, after, writers, versions, snapshots)


def _topological(items: Sequence[ScheduleItem], after: Sequence[set[int]]) -> list[ScheduleItem]:
  """Kahn's algorithm; among those that can go, the one that is first in the graph."""
  waiting = [0] * len(items)
  for followers in after:
    for number in followers:
      waiting[number] += 1
  ready = [n for n, count in enumerate(waiting) if count == 0]
  heapify(ready)
  order: list[ScheduleItem] = []
  while ready:
    number = heappop(ready)
    order.append(items[number])
    for later in after[number]:
      waiting[later] -= 1
      if waiting[later] == 0:
        heappush(ready, later)
  return order


def _cycle(stuck: set[int], after: Sequence[set[int]]) -> list[int]:
  """Numbers of items that wait for each other in a ring, each before the next."""
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
  items: list[ScheduleItem],
  stuck: set[int],
  after: Sequence[set[int]],
  writers: dict[UOp, ScheduleItem],
  versions: BufferVersions,
  snapshots: dict[BufferRegion, BufferRegion],
) -> None:
  """Lets one reader of an old version read a copy of it instead."""
  ring = _cycle(stuck, after)
  for number, following in zip(ring, [*ring[1:], ring[0]]):
    reader = items[number]
    for slot, region in enumerate(reader.read, len(reader.stores)):
      if snapshots.get(region) == reader.regions[0]:
        continue  # the copy itself has to read it
      if any(w.number == following for w in _overwriters(reader, region, writers, versions)):
        reader.regions[slot] = _snapshot(items, region, reader.device, snapshots)
        return
  raise ValueError(f"the STOREs of the graph wait for each other: {[items[n].root for n in ring]}")


def _snapshot(
  items: list[ScheduleItem], region: BufferRegion, device: str, snapshots: dict[BufferRegion, BufferRegion]
) -> BufferRegion:
  if region not in snapshots:
    # the marker is unique to the version: the temporary is known by it
    marker = UOp(
      Ops.AFTER,
      region.dtype,
      (region.base, *region.version.last) if region.version else (region.base,),
      tag=str(len(snapshots)),
    )
    snapshots[region] = BufferRegion(marker, 0, region.size, region.dtype)
    items.append(ScheduleItem(len(items), marker, device, None, [snapshots[region], region], is_copy=True))
  return snapshots[region]
