"""Choice of optimisations for a kernel that goes on with what it has left in memory of its own.

Such a kernel is a list of loop nests inside of common loops, as that of a softmax's weighted sum
(`tiny_sched.softmax.forward_kernel`): some fill near memory, others read it. What runs before what is fixed, so a
nest is looked at by itself. Its iterations are independent if each reads, of what the nest writes, the one element that
it writes itself. Then

1. a loop along which it stores neighbours becomes lanes, several vectors wide, and, where it reads along one loop and
   stores along another, squares are transposed in registers;
2. of a sum of products, as many iterations of another loop are written out as make a register tile;
3. threads share the common loops as one.

Nests that are not independent, and kernels without common loops, stay as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator

from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import extent, kind, size_of
from tiny_codegen.kernel.memory import space_of
from tiny_codegen.opt.apply import OptList
from tiny_codegen.target import Target
from tiny_uop import AddrSpace, AxisType, Ops, Opt, OptOps, UOp
from tiny_uop.graph import memory_of

WIDE = 4
"""Vectors side by side: with TILE_ROWS rows, what is read for them is read once for that many products."""
TILE_ROWS = 4
SQUARE = 16


def choose_near_memory(root: UOp, target: Target) -> tuple[tuple[Opt, ...], UOp]:
  """The optimisations of a kernel with memory of its own, for a processor; and the kernel with them applied."""
  chosen = OptList(root, target)
  if target.vector_bits:
    for nest in nests(root):
      _tile(chosen, nest)
  if target.has_threads:
    _share(chosen)
  return tuple(chosen.opts), chosen.root


def has_near_memory(root: UOp) -> bool:
  """Whether a kernel has memory of its own, and combines with what is there in no other way than by a LOAD."""
  nodes = root.toposort
  return any(space_of(u) is AddrSpace.LOCAL and u.op is Ops.ALLOC for u in nodes) and not any(
    u.op is Ops.STORE and u.arg is not None for u in nodes
  )


def nests(root: UOp) -> Iterator[UOp]:
  """The ENDs around nothing but STOREs, with independent iterations."""
  for u in root.toposort:
    if u.op is Ops.END and all(s.op is Ops.STORE for s in stores_of(u)) and is_independent(u):
      yield u


def stores_of(nest: UOp) -> tuple[UOp, ...]:
  """The effects of a nest."""
  return nest.src[0].src if nest.src[0].op is Ops.GROUP else (nest.src[0],)


def nodes_of(nest: UOp) -> list[UOp]:
  """What a nest computes in its iterations. What memory comes after has been before."""
  found: dict[UOp, None] = {}
  stack = [s.src[1] for s in stores_of(nest)]
  while stack:
    if (u := stack.pop()) not in found:
      found[u] = None
      stack.extend(u.src[1:] if u.op is Ops.INDEX else u.src)
  return list(found)


def is_independent(nest: UOp) -> bool:
  """Whether each iteration reads, of what the nest writes, only the element that it writes."""
  stores, loops = stores_of(nest), frozenset(nest.src[1:])
  places = {memory_of(s.src[0]): s.src[0].src[1] for s in stores}
  if len(places) < len(stores):
    return False
  for store in stores:
    steps = [(stride(store.src[0].src[1], r), size_of(r)) for r in loops]
    reach = 1
    for step, size in sorted((step or 0, size) for step, size in steps):
      if step < reach:  # no place of its own for each iteration
        return False
      reach = step * size
  loads = [u for u in nodes_of(nest) if u.op is Ops.LOAD and not loops.isdisjoint(u.ranges)]
  return all(places.get(memory_of(u.src[0]), u.src[0].src[1]) is u.src[0].src[1] for u in loads)


def _tile(chosen: OptList, nest: UOp) -> None:
  stores, loops = stores_of(nest), [r for r in nest.src[1:] if kind(r) is AxisType.LOOP]
  across = next((r for r in loops if all(stride(s.src[0].src[1], r) == 1 for s in stores)), None)
  if across is None or extent(across) is None:
    return
  lanes = min(chosen.target.lanes(s.src[1].dtype) for s in stores)
  # powers of two, down to a quarter of a vector: three vectors side by side are taken apart into numbers
  amounts = [WIDE * lanes >> n for n in range(5)]
  amount = next((n for n in amounts if n > 1 and size_of(across) % n == 0), 0)
  if not amount:
    return
  others = [r for r in loops if r is not across]
  nodes = nodes_of(nest)
  turned = next((r for r in others if _is_turned(nodes, across, r)), None)
  if turned is not None and size_of(turned) % SQUARE == 0 and size_of(across) % SQUARE == 0:
    chosen.take(Opt(OptOps.VECTOR, across.arg[0], SQUARE), Opt(OptOps.UPCAST, turned.arg[0], SQUARE))
    return
  chosen.take(Opt(OptOps.VECTOR, across.arg[0], amount))
  rows = max(1, TILE_ROWS * WIDE * lanes // amount) if amount < WIDE * lanes else TILE_ROWS
  sums = [u for u in nodes if u.op is Ops.REDUCE and across in u.ranges]
  for loop in reversed(others):
    count = next((n for n in range(min(rows, 8), 1, -1) if size_of(loop) % n == 0), 0)
    if count and extent(loop) and any(loop in u.ranges for u in sums):
      chosen.take(Opt(OptOps.UPCAST, loop.arg[0], count))
      return


def _is_turned(nodes: list[UOp], across: UOp, loop: UOp) -> bool:
  """Whether a nest without sums reads along a loop what it stores along another."""
  loads = [u for u in nodes if u.op is Ops.LOAD and across in u.ranges]
  sums = any(u.op is Ops.REDUCE for u in nodes)
  return not sums and bool(loads) and all(stride(u.src[0].src[1], loop) == 1 for u in loads)


def _share(chosen: OptList) -> None:
  """THREAD on the common loops, as one."""
  ends = chosen.root.src
  if len(ends) != 1 or ends[0].op is not Ops.END or ends[0].src[0].op is not Ops.END:
    return
  outer = list(ends[0].src[1:])
  if not all(kind(r) is AxisType.LOOP and extent(r) is not None for r in outer):
    return
  numbers = [r.arg[0] for r in outer]
  merges = [Opt(OptOps.MERGE, a, b) for a, b in zip(numbers[-2::-1], numbers[:0:-1])]
  if not (merges and chosen.take(*merges, Opt(OptOps.THREAD, numbers[0], 0))):
    chosen.take(Opt(OptOps.THREAD, numbers[0], 0))
