"""Pass: GLOBAL, LOCAL and GROUP loops become the hardware counters of a device with workgroups.

What threads share of a REDUCE is in `shared_reduce.py`; what all of them have, one stores.
"""

from __future__ import annotations

import math

from tiny_codegen.errors import KernelError
from tiny_codegen.loops import CLOSERS, extent, in_order, kind, rebuild
from tiny_codegen.render.base import Capabilities
from tiny_codegen.shared_reduce import SharedReduces
from tiny_codegen.threads import Axis, check_workgroup, counters, global_axes, on_hardware, thread_axes
from tiny_uop import AddrSpace, AxisType, Ops, PtrDType, UOp

RECOMPUTED = 16
"""Iterations of a reduction that each workgroup may do again rather than wait for others."""


def lower_workgroups(root: UOp, capabilities: Capabilities) -> UOp:
  """The kernel without GLOBAL, LOCAL and GROUP loops. Raises KernelError for workgroups that the target cannot have."""
  if not capabilities.has_local:
    return root
  if reason := check_workgroup(root, capabilities):
    raise KernelError(reason)
  axes = thread_axes(root)
  reduces = SharedReduces(_store_once(root, axes), axes, capabilities)
  root = reduces.through_memory()
  if reason := _too_much_memory(root, capabilities):
    raise KernelError(reason)
  root = reduces.exchanged(root)
  names = counters(global_axes(root), capabilities.max_global, "gidx")
  names |= reduces.counters(counters(axes, capabilities.max_local, "lidx"))

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
