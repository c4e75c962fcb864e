"""Pass: the graph becomes a list of instructions, each in the innermost loop of its `ranges`.

Every loop is laid out as a whole: RANGE, body, END. Within a loop the instructions and inner loops are sorted so that
each comes after what it needs, writes to memory as late as possible (a read of what a kernel overwrites comes first)
and otherwise in the order of a depth-first walk. So is a write to local memory that the same iteration reads again (see
`first_tile`): if what all steps of a sum read had to be read before it, registers would not do. Nor would they if what
a loop has summed, as the last tile of a matrix, were written after the next loop. What does not depend on a loop is
outside it by construction.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from tiny_codegen.errors import KernelError
from tiny_codegen.kernel.loops import in_order
from tiny_codegen.kernel.memory import in_register
from tiny_codegen.lower.tile_order import in_turn, sorted_by
from tiny_uop import Ops, UOp, dtypes
from tiny_uop.graph import memory_of


class Region:
  """One loop with what stands directly inside it; the root region has no loop, and is its own parent."""

  def __init__(self, loop: UOp | None = None, parent: Region | None = None) -> None:
    self.loop, self.parent, self.ends = loop, parent or self, list[UOp]()
    self.depth: int = 0 if parent is None else parent.depth + 1

  def chain(self) -> list[Region]:
    """This region and those around it, innermost first."""
    return [self] if self.loop is None else [self, *self.parent.chain()]


class Regions:
  """The loop tree of a kernel in which each RANGE is one loop (see `separate`)."""

  def __init__(self, root: UOp) -> None:
    self.root = Region()
    self.of_loop: dict[UOp, Region] = {}
    self._outside: dict[UOp, set[UOp]] = {}
    self._ends: dict[UOp, list[UOp]] = {}
    self._inside: dict[UOp, UOp] = {}
    self._homes: dict[frozenset[UOp], Region] = {}
    for u in root.toposort:
      if u.op is Ops.RANGE:
        self._outside.setdefault(u, set()).update(u.src[0].ranges)
      elif u.op is Ops.END:
        self._read_end(u)
    for loop in in_order(self._outside):
      self._region(loop, ())
    for loop, ends in self._ends.items():
      self.of_loop[loop].ends.extend(ends)

  def _read_end(self, end: UOp) -> None:
    outside = set(end.ranges)
    for loop in end.src[1:]:
      self._outside.setdefault(loop, set()).update(outside)
      outside.add(loop)
      self._ends.setdefault(loop, []).append(end)
    # an effect that does not use the counter of its innermost loop still belongs into that loop
    stack = [end.src[0]]
    while stack:
      effect = stack.pop()
      # an empty GROUP does nothing, and is the same node in all loops
      if effect.op in (Ops.STORE, Ops.BARRIER) or (effect.op is Ops.GROUP and effect.src):
        self._inside[effect] = end.src[-1]
      if effect.op is Ops.GROUP:
        stack.extend(effect.src)

  def _region(self, loop: UOp, path: tuple[UOp, ...]) -> Region:
    if (known := self.of_loop.get(loop)) is not None:
      return known
    if loop in path:
      raise KernelError(f"loop {loop.arg[0]} is inside itself: the ENDs of this kernel order their loops differently")
    around = [self._region(r, (*path, loop)) for r in in_order(self._outside[loop])]
    parent = self._innermost(around, f"loop {loop.arg[0]}")
    region = self.of_loop[loop] = Region(loop, parent)
    return region

  def _innermost(self, regions: list[Region], what: str) -> Region:
    if not regions:
      return self.root
    inner = max(regions, key=lambda r: r.depth)
    chain = inner.chain()
    for region in regions:
      if region not in chain:
        a, b = (r.loop.arg[0] if r.loop is not None else None for r in (inner, region))
        raise KernelError(f"{what} is inside both loop {a} and loop {b}, and neither of these is inside the other")
    return inner

  def home(self, u: UOp) -> Region:
    """The innermost loop that a node belongs into; for a RANGE or END the region around the loop."""
    if u.op is Ops.RANGE:
      return self.of_loop[u]
    if u.op is Ops.END:
      return self.of_loop[u.src[1]].parent
    loops = u.ranges
    if (loop := self._inside.get(u)) is not None:
      loops |= {loop}
    if (found := self._homes.get(loops)) is None:
      found = self._homes[loops] = self._innermost([self.of_loop[r] for r in loops], repr(u))
    return found


Item = UOp | Region
# these only order others
ALIASES = frozenset({Ops.SINK, Ops.GROUP})


def linearise(root: UOp) -> UOp:
  """The LINEAR of a kernel that has no REDUCE, STAGE, VECTOR, UPCAST or UNROLL left."""
  if root.op is Ops.LINEAR:
    return root
  return UOp(Ops.LINEAR, dtypes.void, tuple(_with_ifs(Layout(root).instructions())), root.arg)


def _with_ifs(instructions: Iterator[UOp]) -> Iterator[UOp]:
  """Scalar gates of stores as IF … ENDIF; neighbours with one gate share it."""
  open_if: UOp | None = None
  for u in instructions:
    gate = u.src[0].src[2] if u.op is Ops.STORE and len(u.src[0].src) > 2 and u.src[0].src[2].dtype.count == 1 else None
    if open_if is not None and open_if.src[0] is not gate:
      yield UOp(Ops.ENDIF, dtypes.void, (open_if,))
      open_if = None
    if gate is not None and open_if is None:
      # the address tells it from other IFs on the same condition
      open_if = UOp(Ops.IF, dtypes.void, (gate, u.src[0]))
      yield open_if
    yield u
  if open_if is not None:
    yield UOp(Ops.ENDIF, dtypes.void, (open_if,))


class Layout:
  """The order of one kernel's nodes."""

  def __init__(self, root: UOp) -> None:
    self.before = in_turn(root.toposort)
    self.order = {u: place for place, u in enumerate(sorted_by(root, self.before))}
    self.regions = Regions(root)
    self.homes = {u: self.regions.home(u) for u in self.order}
    self.inside: dict[Region, list[Item]] = {self.regions.root: []}
    self.needs: dict[Item, set[Item]] = {}
    self.rank: dict[Item, tuple[bool, int]] = {}
    self.waits = any(u.op is Ops.BARRIER for u in self.order)
    self.reads: dict[Item, set[UOp]] = {}
    self.read_again = {s for u in self.order if u.op is Ops.AFTER for s in u.src[1:] if s.op is Ops.STORE}
    for loop, region in self.regions.of_loop.items():
      self.inside.setdefault(region.parent, []).append(region)
      self.inside.setdefault(region, [])
      self.needs[region] = set()
      self.rank[region] = (False, min((self.order[e] for e in region.ends), default=self.order[loop]))
    for u in self.order:
      self._place(u)

  def _place(self, u: UOp) -> None:
    home = self.homes[u]
    if u.op not in (Ops.RANGE, Ops.END):
      self.inside[home].append(u)
      writes = u.op is Ops.STORE and u not in self.read_again and not in_register(u)
      self.rank[u] = (writes, self.order[u])
      self.needs.setdefault(u, set())
      if writes:
        for region in home.chain()[:-1]:
          self.rank[region] = (True, self.rank[region][1])
      for place in u.src[1:] if u.op is Ops.STORE else u.src:
        if place.op is Ops.INDEX:
          readers: list[Item] = [u, *home.chain()]
          for reader in readers:
            self.reads.setdefault(reader, set()).add(memory_of(place))
    user, around = self._item(u), home if u.op is not Ops.RANGE else home.parent
    for s in u.src:
      if self.homes[s] is around and s.op is not Ops.RANGE and s.op is not Ops.END:
        self.needs.setdefault(user, set()).add(s)  # most: both stand in one region
      else:
        self._need(user, around, s)
    if u in self.before:
      self._need(user, home, self.before[u])

  def _item(self, u: UOp) -> Item:
    """What stands for a node in the region around it."""
    if u.op is Ops.RANGE:
      return self.homes[u]
    return self.regions.of_loop[u.src[1]] if u.op is Ops.END else u

  def _need(self, user: Item, home: Region, source: UOp) -> None:
    """Lift user and source to the innermost region around both: there one has to come after the other."""
    need, need_home = self._item(source), self.homes[source]
    if isinstance(need, Region) and source.op is Ops.RANGE:
      need_home = need.parent
    while home is not need_home:
      if home.depth > need_home.depth:
        user, home = home, home.parent
      else:
        need, need_home = need_home, need_home.parent
    if user is not need:
      self.needs.setdefault(user, set()).add(need)

  def instructions(self) -> Iterator[UOp]:
    """The nodes in order."""
    return self._region(self.regions.root)

  def _region(self, region: Region) -> Iterator[UOp]:
    if region.loop is not None:
      yield region.loop
    for item in self._stored_early(self._sorted(self.inside[region], region)):
      if isinstance(item, Region):
        yield from self._region(item)
      elif item.op not in ALIASES:
        yield item
    if region.loop is not None:
      if not region.ends:
        raise KernelError(f"loop {region.loop.arg[0]} is never closed: no END or REDUCE names it")
      yield region.ends[0].replace(src=(region.ends[0].src[0], region.loop))

  def _sorted(self, items: list[Item], region: Region) -> list[Item]:
    ranked, placed = sorted(items, key=self.rank.__getitem__), set[Item]()
    for item in ranked:
      if not placed.issuperset(self.needs[item]):
        return list(self._as_needed(items, region))
      placed.add(item)
    return ranked  # mostly they are in order as it is

  def _stored_early(self, items: list[Item]) -> list[Item]:
    """Items in order, but a write of what a loop has made before the next loops, if they do not read what it writes:
    values that wait behind a loop to be written take registers in it."""
    loops = [place for place, item in enumerate(items) if isinstance(item, Region)]
    if len(loops) < 2 or self.waits:
      return items
    places = {item: place for place, item in enumerate(items)}
    order = {item: (place, 1, 0) for place, item in enumerate(items)}
    for place, item in enumerate(items):
      if isinstance(item, UOp) and item.op is Ops.STORE and not in_register(item):
        needed = max((places[need] for need in self.needs[item]), default=place)
        memory = memory_of(item.src[0])
        first = next((loop for loop in loops if loops[0] < needed < loop < place), place)
        if not any(memory in self.reads.get(other, ()) for other in items[first:place]):
          order[item] = (first, 0, place)
    return sorted(items, key=order.__getitem__)

  def _as_needed(self, items: list[Item], region: Region) -> Iterator[Item]:
    """Of those that need nothing more, always the one of the least rank."""
    waiting = {item: len(self.needs[item]) for item in items}
    users: dict[Item, list[Item]] = {}
    for item in items:
      for need in self.needs[item]:
        users.setdefault(need, []).append(item)
    ready = [(*self.rank[item], place, item) for place, item in enumerate(items) if not waiting[item]]
    places = {item: place for place, item in enumerate(items)}
    heapq.heapify(ready)
    while ready:
      item = heapq.heappop(ready)[3]
      yield item
      for user in users.get(item, ()):
        waiting[user] -= 1
        if not waiting[user]:
          heapq.heappush(ready, (*self.rank[user], places[user], user))
    if any(waiting.values()):
      stuck = ", ".join(repr(item if isinstance(item, UOp) else item.loop) for item in items if waiting[item])
      name = region.loop.arg[0] if region.loop is not None else "the kernel"
      raise KernelError(f"in loop {name} these need each other, so no order of loops computes them: {stuck}")
