"""Pass: a sum is not computed for a register tile that uses it in no lane.

`WHERE(condition, f(REDUCE), other)` needs the sum where the condition holds, as the scores of causal attention do. If
the condition compares positions, its bounds over the lanes and rows of a tile say whether it can hold anywhere in
there; where it cannot, the loop of the sum gets no iterations.
"""

from __future__ import annotations

from collections.abc import Collection

from tiny_codegen.kernel.expressions import all_of, number, stride
from tiny_codegen.kernel.loops import IN_TILE, extent, in_order, kind, synchronised_loops
from tiny_uop import AxisType, GroupOp, Ops, UOp, simplify
from tiny_uop.graph import users_of

# what is written out or a vector: all of its iterations are one step of the loops around it
LEAST_ITERATIONS = 16  # iterations that are worth a comparison


def skip_masked_sums(root: UOp) -> UOp:
  """The kernel with loops of sums that run only where a lane of their tile needs the result."""
  changes, synchronised = {}, synchronised_loops(root)
  for total, condition in _conditions(root).items():
    loop = total.src[1]
    if not synchronised.isdisjoint(total.src[1:]):
      continue  # of the threads that wait for each other in there, some would never come
    size = extent(loop)
    possible = _possible(condition, frozenset(total.src[1:]))
    if size is not None and size >= LEAST_ITERATIONS and kind(loop) is AxisType.REDUCE and possible is not None:
      changes[loop] = UOp.range(simplify(possible.where(number(size), number(0))), loop.arg[0], AxisType.REDUCE)
  return root.substitute(changes) if changes else root


def _conditions(root: UOp) -> dict[UOp, UOp]:
  """Sums that only one side of a WHERE uses, where its condition holds; no other sum goes through their loops."""
  users, found = users_of(root.toposort), {}
  for total in users:
    loops = total.src[1:]
    if total.op is not Ops.REDUCE or not loops or any(_closed_elsewhere(r, total, users) for r in loops):
      continue
    u, using = total, users[total]
    while len(using) == 1 and using[0].op in GroupOp.Elementwise and using[0].op is not Ops.WHERE:
      u, using = using[0], users[using[0]]
    if len(using) == 1 and using[0].op is Ops.WHERE and using[0].src.index(u) == 1 and using[0].src.count(u) == 1:
      found[total] = using[0].src[0]
  return found


def _closed_elsewhere(loop: UOp, total: UOp, users: dict[UOp, list[UOp]]) -> bool:
  return any(u.op in (Ops.REDUCE, Ops.END) and u is not total and loop in u.src[1:] for u in users[loop])


def _possible(condition: UOp, own: frozenset[UOp]) -> UOp | None:
  """Whether a comparison of positions can hold in any iteration of the loops inside a tile; None if that is unknown."""
  if condition.op is Ops.AND:
    return all_of(p for p in (_possible(s, own) for s in condition.src) if p is not None)
  if condition.op is not Ops.CMPLT or condition.src[0].dtype.kind != "index" or condition.ranges & own:
    return None
  low, high = bound(condition.src[0], least=True), bound(condition.src[1], least=False)
  if low is None or high is None or not any(kind(r) not in IN_TILE for r in condition.ranges):
    return None
  return low < high


def bound(position: UOp, least: bool, tile: Collection[UOp] | None = None) -> UOp | None:
  """The least or greatest value that a position has over the loops inside a register tile, or over those of another
  one; None if it is not linear in them."""
  for loop in in_order(r for r in position.ranges if (kind(r) in IN_TILE if tile is None else r in tile)):
    step, size = stride(position, loop), extent(loop)
    if step is None or size is None:
      return None
    position = position.substitute({loop: number(0 if (step > 0) is least else size - 1)})
  return simplify(position)
