"""Pass: GLOBAL, LOCAL and GROUP loops become the hardware counters of a device with workgroups. Without workgroups, a
GLOBAL loop around a whole kernel is shared by the threads of a processor.

REDUCEs over GROUP loops are shared by threads (`SharedReduces`); what all threads have, one stores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tiny_codegen.errors import KernelError
from tiny_codegen.kernel.dependences import loops_around
from tiny_codegen.kernel.expressions import all_of, row_major
from tiny_codegen.kernel.loops import (
  CLOSERS,
  REPLICATED,
  THREADS,
  dependencies_that_are_loops,
  extent,
  in_order,
  iterations,
  kind,
  next_loop_id,
  own_loops,
  substitute_simplified,
)
from tiny_codegen.kernel.memory import in_register, nbytes_of, next_alloc_id, space_of
from tiny_codegen.kernel.threads import (
  HardwareAxis,
  check_workgroup,
  counters,
  global_axes,
  on_hardware,
  refilling_loops,
  strides,
  thread_axes,
)
from tiny_codegen.target import Target
from tiny_uop import Accumulate, AddrSpace, AxisType, Ops, UOp, dtypes
from tiny_uop.graph import memory_of, rebuild

RECOMPUTED = 16
"""Iterations of a reduction that each workgroup may do again rather than wait for others."""


def lower_workgroups(root: UOp, target: Target) -> UOp:
  """The kernel without GLOBAL, LOCAL and GROUP loops. Raises KernelError for workgroups that the target cannot have."""
  if not target.has_local:
    return _shared_by_threads(root) if target.has_threads else root
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
    return dependencies_that_are_loops(u)

  return rebuild(root.substitute(names), open_loops)


def _shared_by_threads(root: UOp) -> UOp:
  """The outermost GLOBAL loop as a THREAD loop, where it is around all effects. Not where iterations accumulate in
  memory: the updates were made for one thread."""
  outermost = {end.src[1] if end.op is Ops.END else end for end in root.src}
  updates = any(u.op is Ops.STORE and isinstance(u.arg, Accumulate) and not in_register(u) for u in root.toposort)
  loop = outermost.pop()
  if outermost or updates or loop.op is not Ops.RANGE or kind(loop) is not AxisType.GLOBAL:
    return root
  return root.substitute({loop: UOp.range(loop.src[0], loop.arg[0], AxisType.THREAD)})


def globals_from_loops(root: UOp, target: Target) -> UOp:
  """Output loops that are around all effects as GLOBAL loops: one workgroup per iteration. A loop over which a
  reduction would be computed again and again stays a loop, as does one that begins when something has been written
  into memory, which is read in it.
  """
  if not target.has_local or not root.src or any(e.op is not Ops.END for e in root.src):
    return root
  reduces = [u for u in root.toposort if u.op is Ops.REDUCE and iterations(u.src[1:]) > RECOMPUTED]
  before = [s for u in root.toposort if u.op is Ops.AFTER and memory_of(u).op is Ops.PARAM for s in u.src[1:]]
  chosen: list[UOp] = []
  for loop in root.src[0].src[1:]:
    if kind(loop) is not AxisType.LOOP or loop.src[0].ranges or not all(loop in e.src[1:] for e in root.src):
      continue
    again = any(loop not in u.ranges for u in (*reduces, *before))
    if not again and on_hardware([(r,) for r in in_order([*chosen, loop])], target.limits.max_global) is not None:
      chosen.append(loop)
  return root.substitute({r: UOp.range(r.src[0], r.arg[0], AxisType.GLOBAL) for r in chosen})


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


# *** shared REDUCEs ***
# REDUCEs that the threads of a workgroup share: over loops of kind GROUP, each iteration of which is a thread's.
#
# Threads of one subgroup run in step and give each other their values (SHUFFLE): in each of log2(n) steps a thread adds
# the value of its partner, whose number differs in one bit, so that all of them end up with the same sum, to the bit.
# The subgroups' sums go through shared memory: one thread of each writes, after a barrier all threads add them up.
# Where a target has no such exchange, or not for these values, all partial sums go through shared memory.
#
# (M. Harris, "Optimizing parallel reduction in CUDA", 2007; J. Luitjens, "Faster parallel reductions on Kepler", 2014.)


MOST_UNROLLED = 8  # sums of subgroups that are added up without a loop


class SharedReduces:
  """The REDUCEs of one kernel that threads share, on their way to instructions."""

  def __init__(self, root: UOp, axes: list[HardwareAxis], target: Target) -> None:
    self.root, self.target = root, target
    self.strides = strides(axes, target.limits.max_local)
    self.loop_id, self.alloc_id = next_loop_id(root), next_alloc_id(root)
    self.parts: dict[UOp, tuple[UOp, UOp]] = {}

  def through_memory(self) -> UOp:
    """The kernel in which threads of different subgroups add up in shared memory. GROUP loops that are left in REDUCEs
    are inside of subgroups."""
    return rebuild(self.root, lambda u, new: self._shared(new) if _is_grouped(u) else None)

  def counters(self, names: Mapping[UOp, UOp]) -> dict[UOp, UOp]:
    """The numbers of threads (`names`) with those of lanes and of subgroups."""
    found = dict(names)
    for loop, (subgroup, lane) in self.parts.items():
      count = int(lane.src[0].arg)
      found |= {subgroup: names[loop] // count, lane: names[loop] % count}
    return found

  def exchanged(self, root: UOp) -> UOp:
    """The kernel without REDUCEs over GROUP loops: threads of a subgroup exchange their values."""

    def change(_: UOp, u: UOp) -> UOp | None:
      if not _is_grouped(u):
        return None
      value = u.src[0]
      for loop in u.src[1:]:
        for bit in range(int(loop.src[0].arg).bit_length() - 1):
          value = value.alu(u.arg[0], value.shuffle(self._stride(loop) << bit))
      return value

    return rebuild(root, change)

  def _stride(self, loop: UOp) -> int:
    """Threads between neighbours along a loop."""
    return self.strides[next((whole for whole, (_, lane) in self.parts.items() if lane is loop), loop)]

  def _lanes(self, loop: UOp, value: UOp) -> int:
    """How many neighbours along a loop are in one subgroup and can exchange a value; 1: none."""
    size, step, subgroup = int(loop.src[0].arg), self.strides[loop], self.target.subgroup
    scalars = value.dtype.count == 1 and value.dtype in self.target.native_dtypes
    if not scalars or step >= subgroup or size & (size - 1) or step & (step - 1):
      return 1
    return min(size, subgroup // step)

  def _shared(self, reduce: UOp) -> UOp:
    op, loops = reduce.arg[0], reduce.src[1:]
    threads = [r for r in loops if kind(r) is AxisType.GROUP]
    total = reduce.src[0].reduce(op, *[r for r in loops if r not in threads])
    lanes, subgroups = [], []
    for loop in threads:
      count = self._lanes(loop, total)
      if count == extent(loop):
        lanes.append(loop)
      elif count == 1:
        subgroups.append(loop)
      else:
        subgroup, lane = self._parts(loop, count)
        total = substitute_simplified(total, {loop: subgroup * count + lane})
        subgroups.append(subgroup)
        lanes.append(lane)
    total = total.reduce(op, *lanes)
    return self._in_memory(total, op, subgroups, lanes) if subgroups else total

  def _parts(self, loop: UOp, count: int) -> tuple[UOp, UOp]:
    """A loop of threads as a loop over subgroups and one over the lanes of each."""
    if loop not in self.parts:
      sizes = (int(loop.src[0].arg) // count, count)
      subgroup, lane = (UOp.range(size, self.loop_id + n, AxisType.GROUP) for n, size in enumerate(sizes))
      self.parts[loop], self.loop_id = (subgroup, lane), self.loop_id + 2
      self.strides |= {subgroup: self.strides[loop] * count, lane: self.strides[loop]}
    return self.parts[loop]

  def _in_memory(self, partial: UOp, op: Ops, threads: list[UOp], lanes: list[UOp]) -> UOp:
    """The sum over `threads`, of which those of `lanes` have the same values."""
    others = in_order(r for r in partial.ranges if kind(r) in REPLICATED and r not in threads)
    vectors = [r for r in others if kind(r) is AxisType.VECTOR]
    # neighbouring threads write neighbouring elements
    shared = sorted([*threads, *[r for r in others if kind(r) in THREADS]], key=lambda r: -self.strides[r])
    places = (*[r for r in others if r not in vectors and r not in shared], *shared, *vectors)
    sizes = tuple([int(r.src[0].arg) for r in places])
    memory = UOp.alloc(self.alloc_id, partial.dtype.ptr(math.prod(sizes), AddrSpace.LOCAL))
    around = refilling_loops(partial, places)
    ready = memory.after(UOp(Ops.BARRIER, dtypes.void, tuple(around))) if around else memory
    first = all_of(lane.eq(0) for lane in lanes)
    # the barrier closes the threads' loops: what comes after it is not inside of them
    written = ready.index(row_major(places, sizes), first).store(partial).end(*threads, *lanes).barrier()
    again = {r: UOp.range(r.src[0], self.loop_id + n, _adding_up(r)) for n, r in enumerate(threads)}
    self.loop_id, self.alloc_id = self.loop_id + len(threads), self.alloc_id + 1
    read = memory.after(written).index(row_major(tuple([again.get(r, r) for r in places]), sizes)).load()
    return read.reduce(op, *again.values())


def _adding_up(loop: UOp) -> AxisType:
  return AxisType.UNROLL if int(loop.src[0].arg) <= MOST_UNROLLED else AxisType.REDUCE


def _is_grouped(u: UOp) -> bool:
  return u.op is Ops.REDUCE and any(kind(r) is AxisType.GROUP for r in u.src[1:])
