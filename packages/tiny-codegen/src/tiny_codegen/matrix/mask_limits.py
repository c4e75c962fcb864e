"""How far the sum of a tile goes whose terms a mask of positions hides: no further than any of its rows needs.

The mask `k < row + 1` of causal attention, in steps of 32 for tiles of 128 rows `step * 32 + k < tile * 128 + row + 1`,
can hold only where `step * 32 < tile * 128 + 128`: there are no more steps than that. All threads of a workgroup have
to take as many, so loops that the limit depends on are not for threads (`check_workgroup`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tiny_codegen.kernel.expressions import number, stride
from tiny_codegen.kernel.loops import extent, kind
from tiny_uop import AxisType, Ops, UOp, simplify


def limited_loops(loops: Sequence[UOp], tile: Collection[UOp], masks: Sequence[UOp]) -> dict[UOp, UOp]:
  """For each of the `loops` of a sum that a mask ends early, the same with fewer iterations; `tile` are the loops over
  what is computed together."""
  changes: dict[UOp, UOp] = {}
  for mask in masks:
    for loop in loops:
      size = extent(loop)
      most = _most(mask, loop, tile) if loop not in tile and loop not in changes and size is not None else None
      if size is not None and most is not None and most.ranges.isdisjoint(loops):
        needed = simplify(most.maximum(number(0)).minimum(number(size)))
        if extent(shorter := UOp.range(needed, *loop.arg)) != size:
          changes[loop] = shorter
  return changes


def _most(mask: UOp, loop: UOp, tile: Collection[UOp]) -> UOp | None:
  """The iterations after which a mask holds nowhere in a tile; None where that is unknown."""
  if mask.op is not Ops.CMPLT or mask.src[0].dtype.kind != "index":
    return None
  left, right = mask.src
  step = stride(simplify(left - right), loop)
  if step is None or step <= 0:
    return None
  limit = simplify(right - left + loop * step)  # loop * step < limit
  for inside in sorted(limit.ranges & set(tile), key=lambda r: int(r.arg[0])):
    by, size = stride(limit, inside), extent(inside)
    if by is None or size is None:
      return None
    limit = simplify(limit.substitute({inside: number(size - 1 if by > 0 else 0)}))
  if any(kind(r) is not AxisType.LOOP for r in limit.ranges):
    return None
  return simplify((limit + (step - 1)) // step)
