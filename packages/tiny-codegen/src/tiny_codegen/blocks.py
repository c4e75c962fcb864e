"""Pass: long sums of floats are summed in blocks, so that rounding errors grow with the logarithm of their length.

An accumulator that n terms are added to one after the other is off by up to n roundings. Here a long loop becomes
blocks of blocks, each with an accumulator of its own (pairwise summation with more than pairs: N. J. Higham, "Accuracy
and Stability of Numerical Algorithms", 2002, section 4.2). The loops of register tiles have accumulators enough
already. What goes through the same loop as such a sum does so in the same blocks.
"""

from __future__ import annotations

import math
from collections import Counter

from tiny_codegen.loops import extent, kind, next_loop_id, number, substitute_simplified
from tiny_uop import AxisType, Ops, UOp

LONG = 128  # iterations that one accumulator may take
MOST_TOGETHER = 8  # sums in one loop


def sum_in_blocks(root: UOp) -> UOp:
  """The kernel with long sums of floats in blocks."""
  reduces = [u for u in root.toposort if u.op is Ops.REDUCE]
  together = Counter([u.src[1:] for u in reduces])
  sums = {u.src[1:] for u in reduces if u.arg[0] is Ops.ADD and u.dtype.kind == "float"}
  products = {u.src[1:] for u in reduces if u.src[0].op is Ops.MMA}
  wanted = {loops for loops in sums - products if together[loops] <= MOST_TOGETHER}
  if not any(_is_long(loops) for loops in wanted):
    return root
  blocks = Blocks(next_loop_id(root))
  done: dict[UOp, UOp] = {}
  for u in root.toposort:
    new = u.with_src(tuple([done[s] for s in u.src]))
    done[u] = blocks.of(new) if u.op is Ops.REDUCE and u.src[1:] in wanted and _is_long(u.src[1:]) else new
  return done[root]


def _is_long(loops: tuple[UOp, ...]) -> bool:
  sizes = [extent(r) or 0 for r in loops]  # one that is not known counts as none
  return math.prod(sizes) > LONG and bool(loops) and all(kind(r) is AxisType.REDUCE for r in loops)


class Blocks:
  """Loops cut into blocks, the same for all sums over a loop."""

  def __init__(self, fresh: int) -> None:
    self.fresh = fresh
    self.cut: dict[UOp, tuple[UOp, UOp, UOp | None]] = {}

  def of(self, reduce: UOp) -> UOp:
    """The sum with an accumulator for each level of its loops, and two for a long loop."""
    value, op = reduce.src[0], reduce.arg[0]
    for loop in reversed(reduce.src[1:]):
      value = self.over(value, loop, op)
    return value

  def over(self, value: UOp, loop: UOp, op: Ops) -> UOp:
    """The sum over one loop: of blocks, and of what fills none."""
    if (extent(loop) or 0) <= LONG:
      return value.reduce(op, loop)
    if loop not in self.cut:
      self.cut[loop] = self.parts(loop)
    blocks, block, rest = self.cut[loop]
    size = int(block.src[0].arg)
    whole = self.over(substitute_simplified(value, {loop: blocks * size + block}).reduce(op, block), blocks, op)
    if rest is None:
      return whole
    start = int(blocks.src[0].arg) * size
    return whole.alu(op, substitute_simplified(value, {loop: rest + start}).reduce(op, rest))

  def parts(self, loop: UOp) -> tuple[UOp, UOp, UOp | None]:
    """(the loop over blocks, the one inside a block, the one over the rest)."""
    count = extent(loop) or 0
    size = 32 if count < 2048 else 64
    sizes = [count // size, size, count % size]
    made = [UOp.range(number(s), self.fresh + i, AxisType.REDUCE) for i, s in enumerate(sizes)]
    self.fresh += len(made)
    return made[0], made[1], made[2] if sizes[2] else None
