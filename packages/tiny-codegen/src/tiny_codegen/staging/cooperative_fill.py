"""How local memory is filled: by loops of its own, which the threads of a workgroup share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiny_codegen.kernel.expressions import all_of, number, stride
from tiny_codegen.kernel.loops import THREADS, extent, in_order, kind
from tiny_codegen.kernel.memory import gate_of, space_of
from tiny_codegen.kernel.threads import HardwareAxis, refilling_loops
from tiny_uop import AddrSpace, AxisType, Ops, UOp, dtypes, simplify
from tiny_uop.graph import memory_of

MOST_UNROLLED = 8  # reads of a thread


def filled(
  memory: UOp, offset: UOp, value: UOp, loops: Sequence[UOp], threads: Sequence[HardwareAxis], gate: UOp | None = None
) -> UOp:
  """Local memory once `value` is at `offset` for all iterations of `loops` for which a gate holds. `threads` are the
  axes of the workgroup: those that the value does not depend on would all write all of it, so they share the work."""
  around = refilling_loops(value, loops)
  # the threads that still read the last tile have to be through before it is overwritten
  ready = memory.after(UOp(Ops.BARRIER, dtypes.void, tuple(around))) if threads and around else memory.after(*around)
  changes, needed = _divided(
    in_reading_order([r for r in loops if kind(r) is AxisType.LOOP], value),
    [axis for axis in threads if value.ranges.isdisjoint(axis)],
  )
  offset, value = (simplify(u.substitute(changes)) for u in (offset, value))
  gates = [u for u in (needed, None if gate is None else simplify(gate.substitute(changes))) if u is not None]
  store = ready.index(offset, all_of(gates)).store(value)
  places = [*[changes.get(loop, loop) for loop in loops], *([] if needed is None else [needed])]
  inside = list(dict.fromkeys([r for u in places for r in in_order(u.ranges)]))
  own = in_reading_order([r for r in inside if kind(r) not in THREADS], value)
  done = store.end(*[r for r in inside if kind(r) in THREADS], *own)
  return memory.after(done.barrier() if threads else done)


def is_fill(u: UOp) -> bool:
  """Whether a node is local memory with a fill that the threads of a workgroup do not share yet."""
  if u.op is not Ops.AFTER or u.src[0].op is not Ops.ALLOC or len(u.src) != 2 or u.src[1].op is not Ops.END:
    return False
  store = u.src[1].src[0]
  return space_of(u) is AddrSpace.LOCAL and store.op is Ops.STORE and memory_of(store.src[0]) is u.src[0]


def shared_fill(u: UOp, threads: Sequence[HardwareAxis]) -> UOp:
  """The same local memory, filled by all threads together."""
  end = u.src[1]
  place, value = end.src[0].src
  return filled(u.src[0], place.src[1], value, end.src[1:], threads, gate_of(place))


def in_reading_order(loops: list[UOp], value: UOp) -> list[UOp]:
  """Loops so that what is read comes from one place in memory after the other: large strides outside. Writes to near
  memory are out of order then, but that is near."""
  loads = [u for u in value.toposort if u.op is Ops.LOAD]
  steps = {r: stride(loads[-1].src[0].src[1], r) if loads else None for r in loops}
  return loops if None in steps.values() else sorted(loops, key=lambda r: -abs(steps[r] or 0))


def _divided(loops: list[UOp], idle: Sequence[HardwareAxis]) -> tuple[dict[UOp, UOp], UOp | None]:
  """What takes the place of loops so that threads share their iterations, neighbours next to each other, and the
  condition, if there is one, that the threads meet which have something to do.

  All loops are one long loop, of which the threads take as many iterations at a time as there are threads; the first
  of them, where there are more threads than iterations. Where that does not come out even each axis of threads shares
  one loop, if there is one that it divides; of an axis that shares none, the first thread does it all.
  """
  sizes, counts = [extent(r) for r in loops], [extent(axis[0]) for axis in idle]
  amount, total = math.prod([n or 0 for n in counts]), math.prod([n or 0 for n in sizes])
  if not idle or not amount or not total:
    return {}, None
  if total % amount and total > amount:
    return _each_divided(loops, idle)
  thread, step = number(0), 1
  for axis, count in zip(idle, counts):  # the first axis is the one whose threads are neighbours
    thread, step = thread + axis[0] * step, step * (count or 1)
  times = max(total // amount, 1)
  needed = simplify(thread < total) if total < amount else None
  thread = thread if needed is None else thread.minimum(total - 1)
  # written out, so that all of them are on their way at once
  rest = AxisType.UPCAST if times <= MOST_UNROLLED else AxisType.LOOP
  place = thread if times == 1 else UOp.range(times, loops[0].arg[0], rest) * amount + thread
  changes: dict[UOp, UOp] = {}
  for loop, size in zip(loops[:0:-1], sizes[:0:-1]):
    assert size is not None
    changes[loop], place = simplify(place % size), simplify(place // size)
  return ({**changes, loops[0]: simplify(place)} if loops else {}), needed


def _each_divided(loops: list[UOp], idle: Sequence[HardwareAxis]) -> tuple[dict[UOp, UOp], UOp | None]:
  changes: dict[UOp, UOp] = {}
  needed: list[UOp] = []
  left = {r: r for r in loops}
  for axis in idle:
    amount = extent(axis[0]) or 0
    fitting = [r for r in loops if (size := extent(left[r])) is not None and size % amount == 0]
    if not fitting:
      needed.append(axis[0].eq(0))
      continue
    loop = fitting[-1]
    whole = left[loop]
    rest = UOp.range(int(whole.src[0].arg) // amount, *loop.arg)
    part = simplify((rest if extent(rest) != 1 else number(0)) * amount + axis[0])
    changes[loop] = simplify(changes.get(loop, loop).substitute({whole: part}))
    left[loop] = rest
  return changes, all_of(needed)
