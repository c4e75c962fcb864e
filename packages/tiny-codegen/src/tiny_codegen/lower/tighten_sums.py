"""Pass: a sum goes only over the part of its loop that a comparison of positions lets through, as a causal mask does.

In `REDUCE(WHERE(k < end, value, 0), k)` what is not let through adds nothing. Over the rows and lanes of a register
tile `end` takes a few values; up to the least of them no condition is needed, and after the greatest there is nothing.
So the sum becomes two: one over what all rows and lanes have, and one, with the condition, over the few that only some
of them have. `first < k` is the same from the other side, and so are greatest values, of which -infinity adds nothing.
"""

from __future__ import annotations

from tiny_codegen.kernel.expressions import clauses, number, stride
from tiny_codegen.kernel.loops import extent, kind, next_loop_id, substitute_simplified, synchronised_loops
from tiny_codegen.lower.simplify import is_masked
from tiny_codegen.lower.skip_masked_sums import bound
from tiny_uop import AxisType, Ops, UOp, simplify
from tiny_uop.records import dataclass

TWO_LOOPS = 8  # iterations from which on two loops are worth it


@dataclass(frozen=True)
class Part:
  """What is let through of a loop: all that is below a limit, or from it on. The limit is `least`, or up to `spread`
  more for some of the rows and lanes."""

  loop: UOp
  below: bool
  least: UOp
  spread: int


def tighten_sums(root: UOp) -> UOp:
  """The kernel with sums over what their masks let through."""
  for total in [u for u in root.toposort if u.op is Ops.REDUCE]:
    part = _part(total) if is_masked(total) and _alone(root, total) else None
    if part is not None:
      root = root.substitute({total: _cut(total, part, next_loop_id(root))})
  return root


def _alone(root: UOp, total: UOp) -> bool:
  """Whether nothing else goes through the loops of a sum, and threads do not meet in them: some would never come."""
  own = frozenset(total.src[1:])
  closing = (Ops.REDUCE, Ops.END, Ops.AFTER)
  return not any(
    u.op in closing and u is not total and own.intersection(u.src[1:]) for u in root.toposort
  ) and own.isdisjoint(synchronised_loops(root))


def _part(total: UOp) -> Part | None:
  """The part of a loop that a clause of the mask lets through, if it is the same for all rows and lanes but for few
  iterations; None if there is none."""
  compared = [c for c in clauses(total.src[0].src[0]) if c.op is Ops.CMPLT and c.src[0].dtype.kind == "index"]
  parts = (_part_of(clause, loop, frozenset(total.src[1:])) for clause in compared for loop in total.src[1:])
  return next((part for part in parts if part is not None), None)


def _part_of(clause: UOp, loop: UOp, summed: frozenset[UOp]) -> Part | None:
  size = extent(loop)
  if size is None or size < TWO_LOOPS or kind(loop) is not AxisType.REDUCE:
    return None
  left, right = clause.src
  step = stride(simplify(left - right), loop)
  if not step:
    return None
  below, step = step > 0, abs(step)
  # loop * step < limit, or limit - 1 < loop * step
  limit = simplify(right - left + loop * step) if below else simplify(left - right + loop * step + 1)
  if limit.ranges & summed:
    return None
  low, high = bound(limit, least=True), bound(limit, least=False)
  if low is None or high is None or (between := simplify(high - low)).op is not Ops.CONST:
    return None
  spread = -(-int(between.arg) // step)
  return Part(loop, below, simplify((low + (step - 1)) // step), spread) if 0 <= spread <= size // 4 else None


def _cut(total: UOp, part: Part, fresh: int) -> UOp:
  """The sum of two sums, in the order of the loop."""
  loop, size = part.loop, extent(part.loop)
  assert size is not None
  masked, value = total.src[0], total.src[0].src[1]
  rest = tuple([r for r in total.src[1:] if r is not loop])
  some = simplify(part.least.maximum(number(0)).minimum(number(size - part.spread)))
  few = UOp.range(number(part.spread), fresh, AxisType.REDUCE)
  if part.below:
    many = UOp.range(some, fresh + 1, AxisType.REDUCE)
    place = many
  else:  # from the end, so that bounds of the place are plain to see
    many = UOp.range(simplify(number(size - part.spread) - some), fresh + 1, AxisType.REDUCE)
    place = number(size - 1) - many
  only_clause = masked.src[0].op is not Ops.AND
  sums = [_over(value if only_clause else masked, loop, place, many, rest, total)]
  if part.spread:
    sums.append(_over(masked, loop, some + few, few, rest, total))
  return sums[0] if len(sums) == 1 else sums[0].alu(total.arg[0], sums[1])


def _over(value: UOp, loop: UOp, place: UOp, new: UOp, rest: tuple[UOp, ...], total: UOp) -> UOp:
  """A value summed over another loop, from which the old one's place follows."""
  return total.replace(src=(substitute_simplified(value, {loop: place}), new, *rest))
