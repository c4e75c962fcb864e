"""The first register tile of a panel packs it: it reads an operand where it is, and leaves in local memory what it has
read, in the steps of its own sum. The other tiles read it there.

    for k: near[k] = x[k]                        for k: near[k] = x[k]; total += w[0, k] * near[k]
    for m: for k: total += w[m, k] * near[k]     for m in 1…: for k: total += w[m, k] * near[k]

A loop that only packs waits for memory, and keeps the units that multiply waiting. In a sum both have something to do,
and storing takes nothing that multiplying needs. (LibShalom, SC '21, does the same for small products.)
"""

from __future__ import annotations

from collections.abc import Mapping

from tiny_codegen.kernel.expressions import number, stride
from tiny_codegen.kernel.loops import IN_TILE, extent, in_order, kind, next_loop_id, substitute_simplified
from tiny_codegen.kernel.memory import gates_of, own_memory, with_memory
from tiny_uop import Accumulate, AxisType, Ops, UOp
from tiny_uop.records import dataclass

# what a tile is written out for, and what its sums go over
STEPS = frozenset({AxisType.REDUCE, AxisType.UNROLL})


def pack_in_first_tile(root: UOp, staged: Mapping[UOp, UOp]) -> UOp:
  """The kernel with panels that the first tile packs. `staged`: by each LOAD from local memory the value that a STAGE
  keeps there, over the loops of the kernel."""
  for read, value in staged.items():
    found = _Panel.of(root, read, value)
    if found is not None:
      root = found.packed_on_the_way(root)
  return root


@dataclass(frozen=True)
class _Panel:
  """Local memory that is read only in the tiles of one loop."""

  read: UOp
  value: UOp
  """What is read, where it comes from."""
  end: UOp
  """Of the tiles."""
  tiles: UOp
  """The loop over them."""

  @staticmethod
  def of(root: UOp, read: UOp, value: UOp) -> _Panel | None:
    """None where a tile reads a part of a panel, or its elements more than once, or not in the order of memory."""
    filled, place = read.src[0].src
    nodes = root.toposort
    ends = [u for u in nodes if u.op is Ops.END and read in u.src[0].toposort]
    if len(ends) != 1 or sum(filled in u.src for u in nodes) != 1:
      return None
    inside = [r for r in ends[0].src[1:] if r not in filled.ranges]
    own = in_order(read.ranges.difference(filled.ranges))
    lanes = [r for r in own if kind(r) is AxisType.VECTOR]
    panels = [r for r in own if r in inside and kind(r) is AxisType.LOOP]
    loops = [r for r in inside if kind(r) not in IN_TILE and r not in panels]
    if (
      len(loops) != 1
      or kind(loops[0]) is not AxisType.LOOP
      or (extent(loops[0]) or 0) < 2
      or len(lanes) != 1
      or not all(r is lanes[0] or r in panels or kind(r) in STEPS for r in own)
      or not all(r in filled.ranges or r in own for r in value.ranges)
      or stride(place, lanes[0]) != 1
      or not _apart(place, own)
      or not _in_order(value, lanes[0])
      or not _gates(ends[0].src[0]).isdisjoint(panels)
      or any(u.op is Ops.MMA or isinstance(u.arg, Accumulate) for u in ends[0].src[0].toposort)
      or _masked(ends[0].src[0], read)
      or not _once(ends[0], loops[0], filled)
    ):
      return None
    return _Panel(read, value, ends[0], loops[0])

  def packed_on_the_way(self, root: UOp) -> UOp:
    """The kernel with the first tile apart from the others."""
    filled = self.read.src[0].src[0]
    fresh, body = next_loop_id(root), self.end.src[0]
    inside = [r for r in self.end.src[1:] if r not in filled.ranges and r is not self.tiles]
    sums = [r for u in body.toposort if u.op is Ops.REDUCE for r in u.src[1:]]
    own = {r: r.replace(arg=(fresh + n, kind(r))) for n, r in enumerate(dict.fromkeys((*inside, *sums)))}
    fresh += len(own)
    first = with_memory(body, self.tiles, own_memory(root, self.tiles))
    first = first.substitute({self.read: self._through(fresh)}).substitute(own)
    first = substitute_simplified(first, {self.tiles: number(0)}).end(*[own[r] for r in inside])
    left = (extent(self.tiles) or 0) - 1
    rest = UOp.range(left, *self.tiles.arg) if left > 1 else number(0)  # a loop of one tile is none
    others = body.substitute({filled: filled.src[0].after(first)})
    others = substitute_simplified(others, {self.tiles: rest + 1})
    loops = [rest if r is self.tiles else r for r in self.end.src[1:]]
    return root.substitute({self.end: others.end(*[r for r in loops if r.op is Ops.RANGE])})

  def _through(self, fresh: int) -> UOp:
    """The value, read back from local memory that it has just been left in."""
    filled, place = self.read.src[0].src
    memory = filled.src[0]
    (lanes,) = [r for r in place.ranges if kind(r) is AxisType.VECTOR]
    vector = lanes.replace(arg=(fresh, kind(lanes)))
    value, at = (u.substitute({lanes: vector}) for u in (self.value, place))
    loops = in_order(r for r in value.ranges if r is not vector)
    return memory.after(memory.after(*loops).index(at).store(value).end(vector)).index(place).load()


def _in_order(value: UOp, lanes: UOp) -> bool:
  """Whether what a value is computed from is read along the lanes, with no gates that change from step to step."""
  loads = [u.src[0] for u in value.toposort if u.op is Ops.LOAD]
  steps = {stride(index.src[1], lanes) for index in loads}
  return 1 in steps and steps <= {0, 1} and not any(kind(r) in STEPS for r in _gates(value))


def _masked(effect: UOp, read: UOp) -> bool:
  """Whether something else than what is read decides whether it is needed. A tile that does not need it would pack
  nothing (see `skip_masked_sums`); if no other tile needs it, nothing would be known to come after the first one."""
  wheres = [u for u in effect.toposort if u.op is Ops.WHERE]
  return any(read in u.toposort and read not in u.src[0].toposort for u in wheres)


def _once(end: UOp, tiles: UOp, filled: UOp) -> bool:
  """Whether the first tile is computed once for each panel, where that matters: results that go on from what is there
  do so once (see `k_blocking`). It is computed again where the loop over tiles is around one over panels."""
  ordered = any(kind(r) is AxisType.ORDER for r in end.src[1:])
  behind = end.src[end.src.index(tiles) + 1 :]
  return not ordered or not any(r in filled.ranges for r in behind)


def _gates(u: UOp) -> set[UOp]:
  """The loops that decide whether something is read or written."""
  return {r for index in u.toposort if index.op is Ops.INDEX for gate in gates_of(index) for r in gate.ranges}


def _apart(place: UOp, loops: list[UOp]) -> bool:
  """Whether each iteration of loops has a place of its own."""
  behind = 1
  for step, size in sorted((stride(place, r) or 0, extent(r) or 0) for r in loops):
    if step < behind or not size:
      return False
    behind = step * size
  return True
