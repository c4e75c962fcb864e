"""Choice of optimisations for a kernel that goes on with what it has left in memory of its own, with workgroups.

Such a kernel is written as loops in order (see `near_memory.py`): common loops, and in them loop nests that fill and
read near memory one after the other, as that of a softmax's weighted sum (`tiny_sched.softmax.forward_kernel`). Here

1. each iteration of the common loops is a workgroup's, and near memory is what its threads share;
2. of a nest that is a sum of products subgroups have tiles of a tensor core that takes its types, or else each thread
   has a register tile; of others a vector where it stores neighbours;
3. the loops of a nest that are left become one, which all threads share: as many iterations at a time as there are
   threads;
4. nests that fill near memory from what is read are left to the pass `stage`, which has all threads fill it together;
5. between two nests, and before the next iteration of a loop around them, all threads wait (BARRIER).

Where a nest's iterations are not independent, the kernel stays as it is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import extent, kind, loops_of, size_of
from tiny_codegen.kernel.memory import gates_of, space_of
from tiny_codegen.kernel.threads import on_hardware
from tiny_codegen.opt.apply import OptList
from tiny_codegen.opt.near_memory import is_independent, nodes_of, stores_of
from tiny_codegen.staging.cooperative_fill import is_fill
from tiny_codegen.target import Target
from tiny_uop import AddrSpace, AxisType, Ops, Opt, OptOps, UOp, dtypes
from tiny_uop.graph import memory_of, rebuild

TILE = 4
"""Columns of a thread's register tile: a vector of float32."""
TILE_ROWS = (4, 8, 5, 6, 3, 2, 7, 1)
"""Rows, the best first."""
MOST_THREADS = 256
LEAST_THREADS = 32
STEPS = 4
"""Of a sum of products, that are written out."""


def choose_workgroup_memory(root: UOp, target: Target) -> tuple[Opt, ...]:
  """The optimisations of a kernel with memory of its own that is written as loops in order."""
  nests = nests_in_order(root)
  products = [n for n in nests if _is_product(n)]
  if not products or common_loops(root, target) is None:
    return ()
  shared = _shared(root, target, nests, products, True) if target.tensor_cores else ()
  return shared or _shared(root, target, nests, products, False)


def _shared(root: UOp, target: Target, nests: Sequence[UOp], products: Sequence[UOp], cores: bool) -> tuple[Opt, ...]:
  """The optimisations with which threads share all nests, on tensor cores or not; none where they cannot."""
  chosen = OptList(root, target)
  on_cores = {nest: tiles for nest in products if cores and (tiles := _tensor_core(chosen, nest)) is not None}
  lanes = subgroup_of(chosen.root)
  threads = _threads(products, target) if lanes is None else lanes * _subgroups(products, on_cores, lanes, target)
  for nest in nests:
    if not (
      _share_tiles(chosen, on_cores[nest], threads) if nest in on_cores else _share(chosen, nest, threads, lanes)
    ):
      return ()
  return tuple(chosen.opts)


def _threads(products: Sequence[UOp], target: Target) -> int:
  """The threads of a workgroup: as many as have something to do in each product, if there are such."""
  largest = max(math.prod([size_of(r) for r in nest.src[1:]]) for nest in products)
  wanted = max(1 << max(largest // TILE**2, 1).bit_length() - 1, LEAST_THREADS)
  most = min(wanted, MOST_THREADS, target.limits.max_workgroup, target.limits.max_local[0])
  counts = [most >> n for n in range(most.bit_length()) if most >> n >= min(LEAST_THREADS, most)]
  even = (n for n in counts if all(tile_of(nest, n, target) is not None for nest in products))
  return next(even, most)


def subgroup_of(root: UOp) -> int | None:
  """The threads of a tensor core that a kernel uses; None where it uses none."""
  return next((u.arg.threads for u in root.toposort if u.op is Ops.MMA), None)


def _tensor_core(chosen: OptList, nest: UOp) -> dict[int, int] | None:
  """The loops over tiles, with their sizes, of a nest whose sum of products a tensor core does now; None where none
  takes its types and sizes, or another than the kernel's other products have: threads are shared in one way."""
  sums, across = [u for u in _sums(nest) if _is_product_of(u, nest)], _across(nest)
  others = [r for r in nest.src[1:] if r is not across]
  if len(sums) != 1 or across is None or len(others) != 1:
    return None
  lanes = subgroup_of(chosen.root)
  for place, core in enumerate(chosen.target.tensor_cores):
    if core.shared is not None or lanes not in (None, core.threads):
      continue
    if chosen.take(Opt(OptOps.TC, sums[0].src[1].arg[0], (place, others[0].arg[0], across.arg[0]))):
      n, m, _ = core.dims
      return {others[0].arg[0]: size_of(others[0]) // m, across.arg[0]: size_of(across) // n}
  return None


def _subgroups(products: Sequence[UOp], tiles: dict[UOp, dict[int, int]], lanes: int, target: Target) -> int:
  """How many subgroups of a workgroup have tiles, each as many; and all of their threads as many vectors of what is
  stored, so that none is idle, which would read beside those that write."""
  most = min(MOST_THREADS, target.limits.max_workgroup, target.limits.max_local[0]) // lanes
  vectors = [math.prod([size_of(r) for r in nest.src[1:]]) // TILE for nest in products]
  even = [n // lanes if n % lanes == 0 else 1 for n in vectors]
  return math.gcd(1 << most.bit_length() - 1, *even, *[math.prod(t.values()) for t in tiles.values()])


def _share_tiles(chosen: OptList, tiles: dict[int, int], threads: int) -> bool:
  """The tiles of a tensor core for all subgroups."""
  subgroups = threads // (subgroup_of(chosen.root) or 1)
  rest = [n for n, size in tiles.items() if size > 1]
  merges = [Opt(OptOps.MERGE, a, b) for a, b in zip(rest[-2::-1], rest[:0:-1])]
  return subgroups == 1 or chosen.take(*merges, Opt(OptOps.LOCAL, rest[0], subgroups))


def nests_in_order(root: UOp) -> list[UOp]:
  """The nests whose iterations threads may share, but for those that `stage` shares; none if there are others."""
  fills = {u.src[1] for u in root.toposort if is_copy(u)}
  read = {memory_of(u.src[0]) for u in root.toposort if u.op is Ops.LOAD}
  found: list[UOp] = []
  for u in root.toposort:
    if u.op is not Ops.END or u in fills:
      continue
    stores = stores_of(u)
    if any(s.op is Ops.STORE for s in stores):
      results = all(s.op is Ops.STORE and memory_of(s.src[0]) not in read for s in stores)
      if not results and not (all(s.op is Ops.STORE for s in stores) and is_independent(u)):
        return []
      found.append(u)
  return found


def is_copy(u: UOp) -> bool:
  """Whether a node is near memory that is filled with what is made of memory."""
  if not is_fill(u):
    return False
  value = u.src[1].src[0].src[1]
  near = any(s.op is Ops.LOAD and space_of(s.src[0]) is AddrSpace.LOCAL for s in value.toposort)
  return not near and all(s.op is not Ops.REDUCE for s in value.toposort)


def common_loops(root: UOp, target: Target) -> tuple[UOp, ...] | None:
  """The loops around all that a kernel does, each of whose iterations is a workgroup's (without any there is one); None
  where that cannot be."""
  if len(root.src) != 1:
    return None
  loops = [r for end in _path(root) for r in end.src[1:]]
  if any(kind(r) is not AxisType.LOOP or r.src[0].ranges for r in loops):
    return None
  return tuple(loops) if on_hardware([(r,) for r in loops], target.limits.max_global) is not None else None


def _path(root: UOp) -> list[UOp]:
  """The ENDs around everything, outermost first."""
  found, u = [], root.src[0]
  while u.op is Ops.END and any(s.op is not Ops.STORE for s in stores_of(u)):
    found.append(u)
    u = u.src[0]
  return found


def _is_product(nest: UOp) -> bool:
  """Whether a nest has a sum of products, over loops of its own."""
  return any(_is_product_of(u, nest) for u in _sums(nest))


def _is_product_of(u: UOp, nest: UOp) -> bool:
  return len(u.ranges.intersection(nest.src[1:])) > 1


def _sums(nest: UOp) -> list[UOp]:
  return [u for u in nodes_of(nest) if u.op is Ops.REDUCE]


def _across(nest: UOp) -> UOp | None:
  """The loop along which a nest stores neighbours."""
  return next((r for r in nest.src[1:] if all(stride(s.src[0].src[1], r) == 1 for s in stores_of(nest))), None)


def tile_of(nest: UOp, threads: int, target: Target) -> tuple[Opt, ...] | None:
  """The register tile of a thread in a sum of products, with which so many threads all have as many tiles."""
  across = _across(nest)
  down = next((r for r in nest.src[1:] if r is not across and any(r in u.ranges for u in _sums(nest))), None)
  if across is None or down is None or size_of(across) % TILE or target.max_vector_lanes < TILE:
    return None
  total = math.prod([size_of(r) for r in nest.src[1:]]) // TILE
  for rows in TILE_ROWS:
    if size_of(down) % rows == 0 and total // rows % threads == 0:
      wide = Opt(OptOps.VECTOR, across.arg[0], TILE)
      return (wide, Opt(OptOps.UPCAST, down.arg[0], rows)) if rows > 1 else (wide,)
  return None


def _share(chosen: OptList, nest: UOp, threads: int, subgroup: int | None) -> bool:
  """A register tile, or a vector, for each thread, and the rest for all of them: those of a `subgroup`, and all
  subgroups, where tensor cores have such."""
  if any(extent(r) is None or kind(r) is not AxisType.LOOP for r in nest.src[1:]):
    return False
  left, across = {r.arg[0]: size_of(r) for r in nest.src[1:]}, _across(nest)
  tile = tile_of(nest, threads, chosen.target) if _is_product(nest) else None
  if tile is None:
    lanes = chosen.target.max_vector_lanes >= TILE
    vectors = across is not None and len(left) > 1 and size_of(across) % TILE == 0 and lanes
    tile = (Opt(OptOps.VECTOR, across.arg[0], TILE),) if vectors and across is not None else ()
  if not chosen.take(*tile):
    return False
  for opt in tile:
    left[opt.axis or 0] //= opt.arg if isinstance(opt.arg, int) else 1
  for u in _sums(nest):
    if _is_product(nest) and size_of(u.src[1]) % STEPS == 0:
      chosen.take(Opt(OptOps.UNROLL, u.src[1].arg[0], STEPS))
  rest = [n for n, size in left.items() if size > 1]
  if not rest:
    return False
  total = math.prod([left[n] for n in rest])
  merges = [Opt(OptOps.MERGE, a, b) for a, b in zip(rest[-2::-1], rest[:0:-1])]
  padding = [Opt(OptOps.PADTO, rest[0], threads)] if total % threads else []
  counts = [threads] if subgroup in (None, threads) else [subgroup, threads // subgroup]
  return chosen.take(*merges, *padding, *[Opt(OptOps.LOCAL, rest[0], n) for n in counts])


# *** barriers ***


def is_in_order(root: UOp) -> bool:
  """Whether a kernel says nothing of threads."""
  loops = all(kind(r) in (AxisType.LOOP, AxisType.REDUCE) for r in loops_of(root).values())
  return loops and all(u.op not in (Ops.BARRIER, Ops.SHUFFLE) for u in root.toposort)


def in_workgroups(root: UOp, common: Sequence[UOp]) -> UOp:
  """The kernel whose `common` loops are workgroups, and whose threads wait for each other where one nest of loops comes
  after another."""
  root = root.substitute({r: UOp.range(r.src[0], r.arg[0], AxisType.GLOBAL) for r in common})

  def change(_: UOp, u: UOp) -> UOp | None:
    if u.op is Ops.LOAD and space_of(u.src[0]) is AddrSpace.LOCAL:
      return _clamped(u)
    if u.op is not Ops.AFTER or space_of(u) is not AddrSpace.LOCAL or is_copy(u):
      return None
    loops = [s for s in u.src[1:] if s.op is Ops.RANGE and kind(s) is not AxisType.GLOBAL]
    effects = [s for s in u.src[1:] if s.op is not Ops.RANGE]
    waits = [UOp(Ops.BARRIER, dtypes.void, (r,)) for r in loops]
    return u.src[0].after(*[s if s.op is Ops.BARRIER else s.barrier() for s in effects], *waits)

  return rebuild(root, change)


def _clamped(load: UOp) -> UOp:
  """A load of near memory, in a sum, by threads that have nothing to do, and so may load what the last thread does:
  without gates all of a thread's loads have one address, and their offsets are constants."""
  pointer, place, *_ = load.src[0].src
  gates = gates_of(load)
  ends = {
    c.src[0]: c.src[1] for c in gates if c.op is Ops.CMPLT and c.src[0].op is Ops.RANGE and c.src[1].op is Ops.CONST
  }
  # what a nest writes it reads at one place only: a sum is of what others have written before
  if len(ends) < len(gates) or not gates or all(kind(r) is not AxisType.REDUCE for r in place.ranges):
    return load
  return pointer.index(place.substitute({r: r.minimum(end - 1) for r, end in ends.items()})).load(dtype=load.dtype)
