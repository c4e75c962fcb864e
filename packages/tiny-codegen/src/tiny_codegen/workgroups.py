"""Pass: GLOBAL, LOCAL and GROUP loops become the hardware counters of a device with workgroups.

A REDUCE over a GROUP loop leaves a partial result per thread in shared memory; after a barrier every thread adds them
up, and one stores.
"""

from __future__ import annotations

from tiny_codegen.loops import CLOSERS, extent, in_order, kind, loops_of, next_alloc_id, next_loop_id, rebuild
from tiny_codegen.render.base import Capabilities
from tiny_codegen.stage import COUNTERS, REPLICATED, loops_around, row_major
from tiny_uop import AddrSpace, AxisType, Ops, UOp, dtypes


def lower_workgroups(root: UOp, capabilities: Capabilities) -> UOp:
  """The kernel without GLOBAL, LOCAL and GROUP loops."""
  if not capabilities.has_local:
    return root
  root = _share_reduces(root)
  loops = [r for r in loops_of(root).values() if kind(r) in COUNTERS]
  names: dict[UOp, UOp] = {}
  for wanted, prefix in ((frozenset({AxisType.GLOBAL}), "gidx"), (COUNTERS - {AxisType.GLOBAL}, "lidx")):
    for place, loop in enumerate([r for r in loops if kind(r) in wanted]):
      names[loop] = UOp.special(loop.src[0], f"{prefix}{place}")

  def open_loops(u: UOp) -> UOp | None:
    if u.op in CLOSERS and any(r.op is Ops.SPECIAL for r in u.src[1:]):
      return u.src[0].end(*[r for r in u.src[1:] if r.op is Ops.RANGE])
    return None

  return rebuild(root.substitute(names), open_loops)


def globals_from_loops(root: UOp, capabilities: Capabilities) -> UOp:
  """Up to three output loops that are around all effects as GLOBAL loops: one workgroup per iteration."""
  if not capabilities.has_local or not root.src or any(e.op is not Ops.END for e in root.src):
    return root
  common = [r for r in root.src[0].src[1:] if kind(r) is AxisType.LOOP and all(r in e.src[1:] for e in root.src)]
  chosen = [
    r for r in common if not r.src[0].ranges and (size := extent(r)) is not None and size <= capabilities.max_global[0]
  ]
  return root.substitute({r: UOp.range(r.src[0], r.arg[0], AxisType.GLOBAL) for r in chosen[:3]})


def _share_reduces(root: UOp) -> UOp:
  loop_id, alloc_id = next_loop_id(root), next_alloc_id(root)
  done: dict[UOp, UOp] = {}
  first: list[UOp] = []
  for u in root.toposort:
    new = u.with_src(tuple([done[s] for s in u.src]))
    if u.op is Ops.REDUCE and any(kind(r) is AxisType.GROUP for r in u.src[1:]):
      new = _share(new, loop_id, alloc_id)
      first += [r for r in u.src[1:] if kind(r) is AxisType.GROUP]
      loop_id, alloc_id = loop_id + 8, alloc_id + 1
    done[u] = new
  return done[root] if not first else _store_once(done[root], first)


def _share(reduce: UOp, loop_id: int, alloc_id: int) -> UOp:
  op, loops = reduce.arg[0], reduce.src[1:]
  threads = tuple([r for r in loops if kind(r) is AxisType.GROUP])
  partial = reduce.src[0].reduce(op, *[r for r in loops if r not in threads])
  others = in_order(r for r in partial.ranges if kind(r) in REPLICATED and r not in threads)
  places = (
    *[r for r in others if kind(r) is not AxisType.VECTOR],
    *threads,
    *[r for r in others if kind(r) is AxisType.VECTOR],
  )
  sizes = tuple([int(r.src[0].arg) for r in places])
  total = 1
  for size in sizes:
    total *= size
  memory = UOp.alloc(alloc_id, reduce.dtype.ptr(total, AddrSpace.LOCAL))
  around = loops_around(partial, places)
  ready = memory.after(UOp(Ops.BARRIER, dtypes.void, tuple(around))) if around else memory
  written = ready.index(row_major(places, sizes)).store(partial).barrier()
  again = {r: UOp.range(r.src[0], loop_id + i, AxisType.REDUCE) for i, r in enumerate(threads)}
  read = memory.after(written).index(row_major(tuple([again.get(r, r) for r in places]), sizes)).load()
  return read.reduce(op, *again.values())


def _store_once(root: UOp, threads: list[UOp]) -> UOp:
  """Every thread of a group has the result: the first one writes it."""
  gate = UOp.const(dtypes.bool, True)
  for thread in dict.fromkeys(threads):
    gate = gate & thread.eq(0)

  def change(u: UOp) -> UOp | None:
    if u.op is not Ops.STORE or not _is_output(u):
      return None
    place = u.src[0]
    return u.replace(
      src=(place.src[0].index(place.src[1], place.src[2] & gate if len(place.src) > 2 else gate), u.src[1])
    )

  return rebuild(root, change)


def _is_output(store: UOp) -> bool:
  pointer = store.src[0].src[0]
  while pointer.op is Ops.AFTER:
    pointer = pointer.src[0]
  return pointer.op is Ops.PARAM
