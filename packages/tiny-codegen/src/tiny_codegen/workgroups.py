"""Pass: GLOBAL, LOCAL and GROUP loops become the hardware counters of a device with workgroups.

A REDUCE over a GROUP loop leaves a partial result per thread in shared memory; after a barrier every thread adds them
up, and one stores.
"""

from __future__ import annotations

import math

from tiny_codegen.errors import KernelError
from tiny_codegen.filling import loops_around
from tiny_codegen.loops import CLOSERS, extent, in_order, kind, next_alloc_id, next_loop_id, rebuild
from tiny_codegen.render.base import Capabilities
from tiny_codegen.stage import REPLICATED, row_major
from tiny_codegen.threads import Axis, check_workgroup, counters, global_axes, on_hardware, thread_axes
from tiny_uop import AddrSpace, AxisType, Ops, PtrDType, UOp, dtypes

RECOMPUTED = 16
"""Iterations of a reduction that each workgroup may do again rather than wait for others."""


def lower_workgroups(root: UOp, capabilities: Capabilities) -> UOp:
  """The kernel without GLOBAL, LOCAL and GROUP loops. Raises KernelError for workgroups that the target cannot have."""
  if not capabilities.has_local:
    return root
  root = _share_reduces(root)
  if reason := check_workgroup(root, capabilities) or _too_much_memory(root, capabilities):
    raise KernelError(reason)
  axes = thread_axes(root)
  root = _store_once(root, axes)
  names = counters(global_axes(root), capabilities.max_global, "gidx")
  names |= counters(axes, capabilities.max_local, "lidx")

  def open_loops(u: UOp) -> UOp | None:
    if u.op in CLOSERS and any(r.op is not Ops.RANGE for r in u.src[1:]):
      return u.src[0].end(*[r for r in u.src[1:] if r.op is Ops.RANGE])
    return None

  return rebuild(root.substitute(names), open_loops)


def globals_from_loops(root: UOp, capabilities: Capabilities) -> UOp:
  """Output loops that are around all effects as GLOBAL loops: one workgroup per iteration. A loop over which a
  reduction would be computed again and again stays a loop.
  """
  if not capabilities.has_local or not root.src or any(e.op is not Ops.END for e in root.src):
    return root
  reduces = [u for u in root.toposort if u.op is Ops.REDUCE and _length(u) > RECOMPUTED]
  chosen: list[UOp] = []
  for loop in root.src[0].src[1:]:
    if kind(loop) is not AxisType.LOOP or loop.src[0].ranges or not all(loop in e.src[1:] for e in root.src):
      continue
    again = any(loop not in reduce.ranges for reduce in reduces)
    if not again and on_hardware([(r,) for r in in_order([*chosen, loop])], capabilities.max_global) is not None:
      chosen.append(loop)
  return root.substitute({r: UOp.range(r.src[0], r.arg[0], AxisType.GLOBAL) for r in chosen})


def _length(reduce: UOp) -> int:
  return math.prod(max(int(r.src[0].vmax), 1) for r in reduce.src[1:])


def _too_much_memory(root: UOp, capabilities: Capabilities) -> str:
  pointers = [u.dtype for u in root.toposort if u.op is Ops.ALLOC]
  near = [d for d in pointers if isinstance(d, PtrDType) and d.space is AddrSpace.LOCAL]
  total = sum(d.size * d.base.itemsize for d in near)
  if total <= capabilities.shared_memory_bytes:
    return ""
  return f"{total} bytes of near memory for a workgroup, the target has {capabilities.shared_memory_bytes}"


def _share_reduces(root: UOp) -> UOp:
  loop_id, alloc_id = next_loop_id(root), next_alloc_id(root)
  done: dict[UOp, UOp] = {}
  for u in root.toposort:
    new = u.with_src(tuple([done[s] for s in u.src]))
    if u.op is Ops.REDUCE and any(kind(r) is AxisType.GROUP for r in u.src[1:]):
      new = _share(new, loop_id, alloc_id)
      loop_id, alloc_id = loop_id + len(u.src), alloc_id + 1
    done[u] = new
  return done[root]


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
  # the barrier closes the threads' loops: what comes after it is not inside of them
  written = ready.index(row_major(places, sizes)).store(partial).end(*threads).barrier()
  again = {r: UOp.range(r.src[0], loop_id + i, AxisType.REDUCE) for i, r in enumerate(threads)}
  read = memory.after(written).index(row_major(tuple([again.get(r, r) for r in places]), sizes)).load()
  return read.reduce(op, *again.values())


def _store_once(root: UOp, axes: list[Axis]) -> UOp:
  """What does not depend on an axis of threads, all of them have: the first one writes it."""

  def change(u: UOp) -> UOp | None:
    if u.op is not Ops.STORE or not _is_output(u):
      return None
    place, *gates = u.src[0].src[0], *u.src[0].src[2:]
    gates += [axis[0].eq(0) for axis in axes if extent(axis[0]) != 1 and u.ranges.isdisjoint(axis)]
    if len(gates) == len(u.src[0].src) - 2:
      return None
    gate = gates[0]
    for other in gates[1:]:
      gate = gate & other
    return u.replace(src=(place.index(u.src[0].src[1], gate), u.src[1]))

  return rebuild(root, change)


def _is_output(store: UOp) -> bool:
  pointer = store.src[0].src[0]
  while pointer.op is Ops.AFTER:
    pointer = pointer.src[0]
  return pointer.op is Ops.PARAM
