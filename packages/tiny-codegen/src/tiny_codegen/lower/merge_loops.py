"""Pass: neighbouring loops that walk through memory as one become one loop.

Loops i and j < n for which every address moves by n times as much with i as with j are a single loop over i*n + j. It
is longer, so more of it can be vectorised and shared between threads.

The scheduler has done so for its own kernels (`flatten_loops` in tiny-sched's `kernel_loops.py`, so that equal kernels
are one object). This pass is for kernels from elsewhere, and for loops that only `simplify` made mergeable.
"""

from __future__ import annotations

from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import LOOP_LISTS, extent, kind, replace_loop
from tiny_codegen.lower.simplify import drop_single
from tiny_uop import AxisType, GroupOp, Ops, UOp, simplify

DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD})


def merge_loops(root: UOp) -> UOp:
  """The kernel with loops merged where that leaves no new division behind, and loops of one iteration dropped."""
  root = drop_single(root)
  refused: set[tuple[UOp, UOp]] = set()
  while (pair := _next_pair(root, refused)) is not None:
    merged = _merge(root, *pair)
    if merged is None:
      refused.add(pair)
    else:
      root = merged
  return root


def _next_pair(root: UOp, refused: set[tuple[UOp, UOp]]) -> tuple[UOp, UOp] | None:
  closers = [u for u in root.toposort if u.op in LOOP_LISTS]
  offsets = [u.src[1] for u in root.toposort if u.op is Ops.INDEX]
  for closer in closers:
    for outer, inner in zip(closer.src[1:], closer.src[2:]):
      if (outer, inner) not in refused and _mergeable(outer, inner, closers, offsets):
        return outer, inner
  return None


def _mergeable(outer: UOp, inner: UOp, closers: list[UOp], offsets: list[UOp]) -> bool:
  size = extent(inner)
  alike = kind(outer) is kind(inner) and kind(outer) in (AxisType.LOOP, AxisType.REDUCE, AxisType.ORDER)
  if size is None or not alike or outer in inner.src[0].ranges:
    return False
  for closer in closers:
    loops = closer.src[1:]
    if (outer in loops or inner in loops) and (closer.op is Ops.STAGE or (outer, inner) not in zip(loops, loops[1:])):
      return False
  for offset in offsets:
    if outer in offset.ranges or inner in offset.ranges:
      small = stride(offset, inner)
      if small is None or stride(offset, outer) != small * size:
        return False
  return True


def _merge(root: UOp, outer: UOp, inner: UOp) -> UOp | None:
  size = inner.src[0]
  whole = UOp.range(simplify(outer.src[0] * size), outer.arg[0], kind(outer))
  merged = simplify(replace_loop(replace_loop(root, inner, whole % size), outer, whole // size, (whole,)))
  return merged if _divisions(merged) <= _divisions(root) else None


def _divisions(root: UOp) -> int:
  return sum(u.op in DIVISIONS and u.dtype.kind == "index" for u in root.toposort if u.op in GroupOp.Binary)
