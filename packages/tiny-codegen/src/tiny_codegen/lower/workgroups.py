"""Pass: GLOBAL, LOCAL and GROUP loops become the hardware counters of a device with workgroups.

What threads share of a REDUCE is in `workgroup_reduce.py`; what all of them have, one stores.
"""

from __future__ import annotations

import math

from tiny_codegen.errors import KernelError
from tiny_codegen.kernel.dependences import loops_around
from tiny_codegen.kernel.expressions import all_of
from tiny_codegen.kernel.loops import CLOSERS, extent, in_order, kind, own_loops, size_of
from tiny_codegen.kernel.memory import in_register, nbytes_of, space_of
from tiny_codegen.kernel.threads import HardwareAxis, check_workgroup, counters, global_axes, on_hardware, thread_axes
from tiny_codegen.lower.workgroup_reduce import SharedReduces
from tiny_codegen.target import Target
from tiny_uop import Accumulate, AddrSpace, AxisType, Ops, UOp
from tiny_uop.graph import memory_of, rebuild

RECOMPUTED = 16
"""Iterations of a reduction that each workgroup may do again rather than wait for others."""


def lower_workgroups(root: UOp, target: Target) -> UOp:
  """The kernel without GLOBAL, LOCAL and GROUP loops. Raises KernelError for workgroups that the target cannot have."""
  if not target.has_local:
    return root
  if reason := check_workgroup(root, target):
    raise KernelError(reason)
  axes = thread_axes(root)
  reduces = SharedReduces(_store_once(root, axes), axes, target)
  root = reduces.through_memory()
  if reason := _too_much_memory(root, target):
    raise KernelError(reason)
  root = reduces.exchanged(root)
  names = counters(global_axes(root), target.limits.max_global, "gidx")
  names |= reduces.counters(counters(axes, target.limits.max_local, "lidx"))

  def open_loops(_: UOp, u: UOp) -> UOp | None:
    if u.op in CLOSERS and any(r.op is not Ops.RANGE for r in u.src[1:]):
      return u.src[0].end(*own_loops(u))
    return None

  return rebuild(root.substitute(names), open_loops)


def globals_from_loops(root: UOp, target: Target) -> UOp:
  """Output loops that are around all effects as GLOBAL loops: one workgroup per iteration. A loop over which a
  reduction would be computed again and again stays a loop.
  """
  if not target.has_local or not root.src or any(e.op is not Ops.END for e in root.src):
    return root
  reduces = [u for u in root.toposort if u.op is Ops.REDUCE and _length(u) > RECOMPUTED]
  chosen: list[UOp] = []
  for loop in root.src[0].src[1:]:
    if kind(loop) is not AxisType.LOOP or loop.src[0].ranges or not all(loop in e.src[1:] for e in root.src):
      continue
    again = any(loop not in reduce.ranges for reduce in reduces)
    if not again and on_hardware([(r,) for r in in_order([*chosen, loop])], target.limits.max_global) is not None:
      chosen.append(loop)
  return root.substitute({r: UOp.range(r.src[0], r.arg[0], AxisType.GLOBAL) for r in chosen})


def _length(reduce: UOp) -> int:
  return math.prod(max(size_of(r), 1) for r in reduce.src[1:])


def _too_much_memory(root: UOp, target: Target) -> str:
  total = sum(nbytes_of(u) for u in root.toposort if u.op is Ops.ALLOC and space_of(u) is AddrSpace.LOCAL)
  if total <= target.limits.shared_memory:
    return ""
  return f"{total} bytes of local memory for a workgroup, the target has {target.limits.shared_memory}"


def _store_once(root: UOp, axes: list[HardwareAxis]) -> UOp:
  """What does not depend on an axis of threads, all of them have: the first one writes it. One that accumulates does so
  in each iteration of the loops around it, and in no others."""
  around = loops_around(root)
  groups = global_axes(root)

  def change(u: UOp, new: UOp) -> UOp | None:
    if u.op is Ops.STORE and isinstance(u.arg, Accumulate) and not in_register(u):
      return _gated_to_first(new, [axis for axis in (*axes, *groups) if set(axis).isdisjoint(around.get(u, ()))])
    if u.op is Ops.STORE and memory_of(u.src[0]).op is Ops.PARAM:
      return _gated_to_first(new, [axis for axis in axes if u.ranges.isdisjoint(axis)])
    return None

  return rebuild(root, change)


def _gated_to_first(store: UOp, axes: list[HardwareAxis]) -> UOp:
  pointer, offset, *gates = store.src[0].src
  more = [axis[0].eq(0) for axis in axes if extent(axis[0]) != 1]
  return store.replace(src=(pointer.index(offset, all_of([*gates, *more])), store.src[1])) if more else store
