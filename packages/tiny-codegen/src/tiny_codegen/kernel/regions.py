"""The tree of loops of a kernel, read off the `ranges` of its nodes and the order in its ENDs."""

from __future__ import annotations

from dataclasses import dataclass, field

from tiny_codegen.errors import KernelError
from tiny_codegen.kernel.loops import in_order
from tiny_uop import Ops, UOp


@dataclass(eq=False)
class Region:
  """One loop with what stands directly inside it; the root region has no loop."""

  loop: UOp | None
  parent: Region | None
  depth: int
  ends: list[UOp] = field(default_factory=list)

  def chain(self) -> list[Region]:
    """This region and those around it, innermost first."""
    found: list[Region] = []
    region: Region | None = self
    while region is not None:
      found.append(region)
      region = region.parent
    return found


class Regions:
  """The loop tree of a kernel in which each RANGE is one loop (see `separate`)."""

  def __init__(self, root: UOp) -> None:
    self.root = Region(None, None, 0)
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
    region = self.of_loop[loop] = Region(loop, parent, parent.depth + 1)
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
      parent = self.of_loop[u.src[1]].parent
      assert parent is not None
      return parent
    loops = u.ranges
    if (loop := self._inside.get(u)) is not None:
      loops |= {loop}
    if (found := self._homes.get(loops)) is None:
      found = self._homes[loops] = self._innermost([self.of_loop[r] for r in loops], repr(u))
    return found
