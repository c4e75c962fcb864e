"""Kernels over the same loops become one that writes several results: what they share is read once.

The sums of a batch norm's gradient, a moment of an optimiser and the parameter that it moves, running statistics. The
later kernel goes to the place of the earlier one where nothing in between minds. Products that are summed stay alone:
their loops are tiled for what one of them reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tiny_sched.fusion import SMALL
from tiny_sched.index import largest
from tiny_sched.schedule_item import BufferRegion, ScheduleItem
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.records import dataclass

MOST_REGIONS = 12  # streams that one loop goes through, and arguments of a call
MOST_NODES = 500
LONG_ROW = 64  # terms of a sum that make what is done once per sum cheap
MOST_HOSTS = 16  # that are tried


@dataclass(frozen=True, eq=False)
class Task:
  """A kernel, with what decides whether another can join it."""

  item: ScheduleItem
  effects: tuple[UOp, ...]
  loops: tuple[UOp, ...]
  written: frozenset[BufferRegion]
  read: frozenset[BufferRegion]
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


def merge_kernels(items: Sequence[ScheduleItem]) -> list[ScheduleItem]:
  """The items, in an order that can run, with those that go through the same memory together merged."""
  line = Line()
  for item in items:
    line.add(item, _task(item))
  wanted = {region.base for e in line.entries for region in e.read}
  merged = [_live(entry, wanted) if isinstance(entry, Task) else entry for entry in line.entries]
  for number, item in enumerate(merged):
    item.number = number
  return merged


class Line:
  """Kernels in order, and how far up a new one may move."""

  def __init__(self) -> None:
    self.entries: list[Task | ScheduleItem] = []
    self.alike: dict[tuple[object, ...], list[int]] = {}  # positions in `entries`, by device and loops
    self.last_write: dict[UOp, int] = {}
    self.last_read: dict[UOp, int] = {}

  def add(self, item: ScheduleItem, task: Task | None) -> None:
    """Lets a kernel join another, or puts it at the end."""
    where = None
    if task is not None:
      hosts = self.alike.setdefault((item.device, *task.sizes), [])
      where = self.join(task, hosts)
      if where is None:
        hosts.append(len(self.entries))
    if where is None:
      where = len(self.entries)
      self.entries.append(item if task is None else task)
    entry = self.entries[where]
    reads = entry.read
    writes = entry.written if isinstance(entry, Task) else item.regions[: len(item.stores)]
    for touched, last in ((reads, self.last_read), (writes, self.last_write)):
      for region in touched:
        last[region.base] = max(where, last.get(region.base, 0))

  def join(self, task: Task, hosts: Sequence[int]) -> int | None:
    """The place of the last kernel that could take the task in."""
    written = {region.base for region in task.written}
    earliest = max([self.last_write.get(region.base, 0) for region in task.read | task.written]
                   + [self.last_read.get(base, 0) for base in written])  # fmt: skip
    for place in reversed(hosts[-MOST_HOSTS:]):
      if place < earliest:
        return None
      host = self.entries[place]
      if isinstance(host, Task) and (both := _joined(host, task)) is not None:
        self.entries[place] = both
        return place
    return None


def _plain(region: BufferRegion) -> BufferRegion:
  """A region without its version: the order has made sure that versions are right."""
  return replace(region, version=None)


def _task(item: ScheduleItem) -> Task | None:
  """None for copies, given kernels, and for sums of products of operands that several results share."""
  if item.body is None or item.given or item.first is not None:
    return None
  item = _one_slot_each(item, item.body)
  body = item.body
  assert body is not None
  loops = body.src[1:] if body.op is Ops.END else ()
  store = body.src[0] if body.op is Ops.END else body
  nodes = store.toposort
  reduces = tuple([u for u in nodes if u.op is Ops.REDUCE])
  loads = frozenset([u for u in nodes if u.op is Ops.LOAD])
  outputs = frozenset(loops)
  if len(nodes) > MOST_NODES or any(any(_is_sum(r) for r in u.ranges) and not outputs <= u.ranges for u in loads):
    return None
  written = frozenset([item.regions[0]])
  # also what the kernel only has to wait for, which none of its loads reads
  waits = set(range(len(item.regions))) - {u.arg for u in body.toposort if u.op is Ops.PARAM}
  read = frozenset([item.regions[u.src[0].src[0].arg] for u in loads] + [item.regions[i] for i in waits])
  return Task(item, (store,), loops, written, read, reduces, loads)


def _one_slot_each(item: ScheduleItem, body: UOp) -> ScheduleItem:
  """The item with one PARAM for all versions of a region."""
  regions = list(dict.fromkeys(map(_plain, item.regions)))
  if len(regions) == len(item.regions):
    return replace(item, regions=regions)
  params = [u for u in body.toposort if u.op is Ops.PARAM]
  changes = {u: u.replace(arg=regions.index(_plain(item.regions[u.arg]))) for u in params}
  body = body.substitute({a: b for a, b in changes.items() if a is not b})
  return replace(item, regions=regions, body=body, slots={})


def _is_sum(loop: UOp) -> bool:
  return bool(loop.arg[1] is AxisType.REDUCE)


def _overlap(a: BufferRegion, b: BufferRegion) -> bool:
  return a.base is b.base and a.byte_offset < b.byte_offset + b.nbytes and b.byte_offset < a.byte_offset + a.nbytes


def _joined(host: Task, guest: Task) -> Task | None:
  """Both kernels as one, or None where that cannot be, or does not pay."""
  if host.item.device != guest.item.device or host.sizes != guest.sizes:
    return None
  few = len(host.reduces) == 0, len(guest.reduces) == 0
  if few[0] != few[1] and host.terms * guest.terms < LONG_ROW and host.iterations > SMALL:
    return None  # an elementwise kernel would lose its vectors to a sum over a few terms
  regions = list(dict.fromkeys([*host.item.regions, *guest.item.regions]))
  if len(regions) > MOST_REGIONS or any(_overlap(a, b) for a in host.written for b in guest.written):
    return None
  effects = _renamed(host, guest, regions)
  stored = {effect.src[0]: effect.src[1] for effect in host.effects}
  forwarded = _forwarded(host, effects, regions, stored)
  if forwarded is None or not _reads_before_writing(host, guest, forwarded, regions):
    return None
  loads = frozenset([u for effect in forwarded for u in effect.toposort if u.op is Ops.LOAD])
  shared = forwarded != effects or not host.loads.isdisjoint(loads)
  small = host.iterations * max(host.terms, guest.terms) <= SMALL
  if not shared and not small:
    return None
  return _both(host, guest, forwarded, regions, loads)


def _live(task: Task, wanted: set[UOp]) -> ScheduleItem:
  """The item without temporaries that were read by nothing but what has been merged with them."""
  regions = task.item.regions
  targets = [regions[effect.src[0].src[0].arg] for effect in task.effects]
  live = [e for e, target in zip(task.effects, targets) if target.base.op is Ops.BUFFER or target.base in wanted]
  if len(live) in (0, len(task.effects)):
    return task.item
  group = UOp.group(*live)
  first = live[0].src[0].src[0].arg
  swapped = {u: u.replace(arg={0: first, first: 0}[u.arg])
             for u in group.toposort if u.op is Ops.PARAM and u.arg in (0, first)}  # fmt: skip
  group = group.substitute({a: b for a, b in swapped.items() if a is not b})
  body = group.end(*task.loops) if task.loops else group
  regions = [regions[first], *regions[1:first], regions[0], *regions[first + 1 :]] if first else regions
  return replace(task.item, regions=regions, body=body, slots={})


def _renamed(host: Task, guest: Task, regions: list[BufferRegion]) -> tuple[UOp, ...]:
  """The effects of the guest in the host's loops, with the PARAMs of both together."""
  changes: dict[UOp, UOp] = dict(zip(guest.loops, host.loops))
  free = [reduce.src[1:] for reduce in host.reduces]
  next_range = max(host.item.next_range, guest.item.next_range)
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
      changes[u] = u.replace(arg=regions.index(guest.item.regions[u.arg]))
  return tuple([effect.substitute({a: b for a, b in changes.items() if a is not b}) for effect in guest.effects])


def _forwarded(
  host: Task, effects: tuple[UOp, ...], regions: list[BufferRegion], stored: dict[UOp, UOp]
) -> tuple[UOp, ...] | None:
  """The guest's effects with what the host has just computed in the place of loads of it. None where the guest reads
  other elements."""
  changes: dict[UOp, UOp] = {}
  for effect in effects:
    for u in effect.toposort:
      if u.op is Ops.LOAD and any(_overlap(regions[u.src[0].src[0].arg], w) for w in host.written):
        if u.src[0] not in stored:
          return None
        changes[u] = stored[u.src[0]]
  return tuple([effect.substitute(changes) for effect in effects]) if changes else effects


def _reads_before_writing(host: Task, guest: Task, effects: tuple[UOp, ...], regions: list[BufferRegion]) -> bool:
  """Whether all that the host reads where the guest writes is read by the guest's own value: then the write waits."""
  for effect in effects:
    target = regions[effect.src[0].src[0].arg]
    for load in host.loads:
      if not _overlap(regions[load.src[0].src[0].arg], target):
        continue
      if load.src[0] is not effect.src[0] or load not in effect.src[1].toposort:
        return False
  return True


def _both(
  host: Task, guest: Task, added: tuple[UOp, ...], regions: list[BufferRegion], loads: frozenset[UOp]
) -> Task | None:
  effects = (*host.effects, *added)
  group = UOp.group(*effects)
  nodes = group.toposort
  if len(nodes) > MOST_NODES:
    return None
  body = group.end(*host.loops) if host.loops else group
  ranges = [u.arg[0] for u in nodes if u.op is Ops.RANGE]
  nodes_of_both = tuple(dict.fromkeys((*host.item.nodes, *guest.item.nodes)))
  next_range = max(ranges, default=-1) + 1
  item = replace(host.item, regions=regions, body=body, slots={}, next_range=next_range, nodes=nodes_of_both)
  used = frozenset([regions[u.src[0].src[0].arg] for u in nodes if u.op is Ops.LOAD])
  reduces = tuple([u for u in nodes if u.op is Ops.REDUCE])
  return Task(item, effects, host.loops, host.written | guest.written, used, reduces, host.loads | loads)
