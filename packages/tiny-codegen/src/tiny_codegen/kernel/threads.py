"""The threads of a workgroup: which loops they run, and the hardware counters that tell them apart.

Loops that never meet can be run by the same threads: in a softmax those that add up a row (GROUP) then divide its
elements (LOCAL). So an axis of a workgroup is a list of loops of one extent, of which no value is inside of two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiny_codegen.errors import KernelError
from tiny_codegen.kernel.loops import CLOSERS, THREADS, extent, in_order, kind, loops_of, size_of
from tiny_codegen.target import Target
from tiny_uop import AxisType, Ops, UOp

COUNTERS = THREADS | {AxisType.GLOBAL}
HARDWARE_AXES = 3

HardwareAxis = tuple[UOp, ...]


def thread_axes(root: UOp) -> list[HardwareAxis]:
  """The LOCAL and GROUP loops of a kernel, those together that the same threads run."""
  inside_of: dict[UOp, set[UOp]] = {}
  for u in root.toposort:
    inside = u.src[0].ranges.union(u.src[1:]) if u.op in CLOSERS else u.ranges
    together = [r for r in inside if r.op is Ops.RANGE and kind(r) in THREADS]
    for loop in together:
      inside_of.setdefault(loop, set()).update(together)
  axes: list[HardwareAxis] = []
  for loop in in_order(inside_of):
    for place, axis in enumerate(axes):
      if extent(axis[0]) == extent(loop) and inside_of[loop].isdisjoint(axis):
        axes[place] = (*axis, loop)
        break
    else:
      axes.append((loop,))
  return axes


def global_axes(root: UOp) -> list[HardwareAxis]:
  """The GLOBAL loops of a kernel, each of which has an axis of its own."""
  return [(r,) for r in loops_of(root).values() if kind(r) is AxisType.GLOBAL]


def on_hardware(axes: Sequence[HardwareAxis], limits: Sequence[int]) -> list[list[HardwareAxis]] | None:
  """The axes spread over the three that hardware has, within its limits: the first has those that are left over, the
  first of them fastest. None where they do not fit."""
  places: list[list[HardwareAxis]] = [[] for _ in range(HARDWARE_AXES)]
  for axis in axes:
    size = size_of(axis[0])
    free = next((p for p in range(HARDWARE_AXES) if not places[p] and size <= limits[p]), None)
    if free is None:
      known = all(extent(a[0]) is not None for a in (*places[0], axis))
      if not known or size * math.prod(size_of(a[0]) for a in places[0]) > limits[0]:
        return None
    places[free or 0].append(axis)
  return places


def strides(axes: Sequence[HardwareAxis], limits: Sequence[int]) -> dict[UOp, int]:
  """How many threads of a workgroup lie between neighbours along each loop, where the first counter runs fastest."""
  found: dict[UOp, int] = {}
  step = 1
  for axis in (a for shared in on_hardware(axes, limits) or () for a in shared):
    found |= dict.fromkeys(axis, step)
    step *= size_of(axis[0])
  return found


def counters(axes: Sequence[HardwareAxis], limits: Sequence[int], prefix: str) -> dict[UOp, UOp]:
  """What takes the place of each loop: a SPECIAL, or where several axes share one of the hardware's, a part of it.

  Raises KernelError where the axes do not fit the hardware.
  """
  places = on_hardware(axes, limits)
  if places is None:
    sizes = [a[0].src[0].render() for a in axes]
    raise KernelError(f"loops of {' × '.join(sizes)} iterations do not fit the hardware's {'×'.join(map(str, limits))}")
  found: dict[UOp, UOp] = {}
  for number, shared in enumerate(places):
    if not shared:
      continue
    total = shared[0][0].src[0]
    for axis in shared[1:]:
      total = total * axis[0].src[0]
    rest = UOp.special(total, f"{prefix}{number}")
    for place, axis in enumerate(shared):
      size = axis[0].src[0]
      value = rest % size if place + 1 < len(shared) else rest
      rest = rest // size
      found |= dict.fromkeys(axis, value)
  return found


def check_workgroup(root: UOp, target: Target) -> str:
  """Why a kernel's workgroups are too large for a target; empty if they are not."""
  axes = thread_axes(root)
  threads = math.prod(size_of(a[0]) for a in axes)
  if threads > target.limits.max_workgroup:
    return f"{threads} threads in a workgroup, the target has up to {target.limits.max_workgroup}"
  if on_hardware(axes, target.limits.max_local) is None:
    sizes = "×".join(str(size_of(a[0])) for a in axes)
    return f"workgroups of {sizes} threads, the target has up to {'×'.join(map(str, target.limits.max_local))}"
  for loop in (r for u in root.toposort if u.op is Ops.MMA for r in u.ranges if r.op is Ops.RANGE):
    if any(kind(r) in THREADS for r in loop.src[0].ranges):
      return f"loop {loop.arg[0]} is around a tensor core's instruction, and not all threads have as many iterations"
  return ""


def refilling_loops(value: UOp, inside: Sequence[UOp]) -> list[UOp]:
  """The loops that local memory is filled again in each iteration of. Hardware counters are no loops."""
  return in_order(r for r in value.ranges.difference(inside) if kind(r) not in COUNTERS)
