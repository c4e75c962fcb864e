"""Staging: an operand is copied into near memory for a tile of loops, in the order in which it will be read.

`STAGE(x, a, b)` says that the values of `x` over loops a and b are computed once, at the loop level of the other
loops that `x` depends on. Lowered, it is an ALLOC, loops of its own that fill it, and a LOAD where `x` was used. On a
CPU this is packing for the cache, on a GPU a shared-memory tile; where `x` is an expression it is im2col or
dequantise-once.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiny_codegen.errors import KernelError
from tiny_codegen.loops import in_order, kind, next_alloc_id, next_loop_id, number
from tiny_codegen.render.base import Capabilities
from tiny_uop import AddrSpace, AxisType, GroupOp, Ops, UOp, dtypes, simplify

# what a node inside these loops is written out for, or shared with: near memory has a place for each iteration
REPLICATED = frozenset({AxisType.UPCAST, AxisType.UNROLL, AxisType.VECTOR, AxisType.LOCAL, AxisType.GROUP})
THREADS = frozenset({AxisType.LOCAL, AxisType.GROUP})
COUNTERS = THREADS | {AxisType.GLOBAL}


def stage_operand(root: UOp, slot: int, tile: tuple[UOp, ...]) -> UOp | None:
  """The kernel with a STAGE over `tile` around the largest expressions that read PARAM `slot` alone; None if none
  depends on the tile.
  """
  reads: dict[UOp, frozenset[int]] = {}
  users: dict[UOp, list[UOp]] = {}
  for u in root.toposort:
    own = frozenset({u.arg}) if u.op is Ops.PARAM else frozenset()
    reads[u] = own.union(*[reads[s] for s in u.src])
    for s in u.src:
      users.setdefault(s, []).append(u)

  def operand(u: UOp) -> bool:
    return (u.op is Ops.LOAD or u.op in GroupOp.Elementwise) and reads[u] == {slot} and u.dtype.kind != "index"

  changes: dict[UOp, UOp] = {}
  for u, above in users.items():
    # not the value that is stored or an address: what is read from near memory has to be used in a computation
    if operand(u) and not all(operand(user) for user in above) and not any(user.op is Ops.INDEX for user in above):
      loops = tuple([r for r in tile if r in u.ranges])
      if loops:
        changes[u] = u.stage(*loops)
  return root.substitute(changes) if changes else None


def lower_stage(root: UOp, capabilities: Capabilities) -> UOp:
  """The kernel without STAGE."""
  loop_id, alloc_id = next_loop_id(root), next_alloc_id(root)
  done: dict[UOp, UOp] = {}
  for u in root.toposort:
    new = u.with_src(tuple([done[s] for s in u.src]))
    if u.op is Ops.STAGE:
      tile = Tile.of(new, loop_id)
      new = tile.fill(new.src[0], alloc_id, capabilities)
      loop_id, alloc_id = loop_id + len(tile.loops), alloc_id + 1
    done[u] = new
  return done[root]


def row_major(counters: tuple[UOp, ...], sizes: tuple[int, ...]) -> UOp:
  """The offset of a place in a box of `sizes`, last axis adjacent."""
  offset = number(0)
  for counter, size in zip(counters, sizes):
    offset = offset * size + counter
  return simplify(offset)


def loops_around(value: UOp, inside: tuple[UOp, ...]) -> list[UOp]:
  """The loops that near memory is filled again in each iteration of. Hardware counters are no loops."""
  return in_order(r for r in value.ranges.difference(inside) if kind(r) not in COUNTERS)


@dataclass(frozen=True)
class Tile:
  """The loops that a staged value is kept for, and the loops that compute it."""

  loops: tuple[UOp, ...]
  filling: tuple[UOp, ...]
  sizes: tuple[int, ...]

  @staticmethod
  def of(stage: UOp, loop_id: int) -> Tile:
    value = stage.src[0]
    listed = [r for r in stage.src[1:] if r in value.ranges]
    extra = [r for r in in_order(value.ranges) if kind(r) in REPLICATED and r not in listed]
    lanes = [r for r in extra if kind(r) is AxisType.VECTOR]
    loops = (*[r for r in extra if r not in lanes], *listed, *lanes)
    filling = []
    for place, loop in enumerate(loops):
      same = AxisType.VECTOR if kind(loop) is AxisType.VECTOR else AxisType.LOOP
      # threads of a workgroup each fill their own part
      filling.append(loop if kind(loop) in THREADS else UOp.range(loop.src[0], loop_id + place, same))
    return Tile(tuple(loops), tuple(filling), tuple([max(int(r.src[0].vmax), 1) for r in loops]))

  def fill(self, value: UOp, alloc_id: int, capabilities: Capabilities) -> UOp:
    """The value read back from near memory that has been filled."""
    if not self.loops:
      return value
    total = 1
    for size in self.sizes:
      total *= size
    available = capabilities.shared_memory_bytes
    if total * value.dtype.itemsize > available > 0:
      raise KernelError(
        f"a STAGE of {total} × {value.dtype} does not fit into {available} bytes of near memory: use a smaller tile"
      )
    memory = UOp.alloc(alloc_id, value.dtype.ptr(total, AddrSpace.LOCAL))
    around = loops_around(value, self.loops)
    computed = value.substitute({a: b for a, b in zip(self.loops, self.filling) if a is not b})
    shared = any(kind(r) in THREADS for r in self.loops)
    # the threads that still read the last tile have to be through before it is overwritten
    ready = memory.after(UOp(Ops.BARRIER, dtypes.void, tuple(around))) if shared and around else memory.after(*around)
    stored = ready.index(row_major(self.filling, self.sizes)).store(computed)
    filled = stored.end(*[r for r in self.filling if kind(r) not in THREADS])
    return memory.after(filled.barrier() if shared else filled).index(row_major(self.loops, self.sizes)).load()
