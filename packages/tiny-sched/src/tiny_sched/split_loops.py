"""A loop whose counter is taken apart becomes two loops: the quotient is the counter of one, the remainder that of the
other.

Where a kernel has `r // a` or `r % a` of a counter r below n, and a divides n, r is `outer * a + inner`. Loops over the
output are cut only where rows stay long enough for vectors: a few divisions cost less than stores that are apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_sched.index import known
from tiny_sched.memo import memoised, simplify
from tiny_uop import AxisType, Ops, UOp

SHORTEST_ROW = 16
_DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD)


def _cut(nodes: Sequence[UOp]) -> tuple[UOp, int] | None:
  """(loop, where to cut it): the smallest divisor by which a counter is divided."""
  found: dict[UOp, int] = {}
  for u in nodes:
    if u.op in _DIVISIONS and u.src[0].op is Ops.RANGE and u.src[1].op is Ops.CONST:
      loop, divisor = u.src[0], int(u.src[1].arg)
      size = known(loop.src[0])
      least = 2 if loop.arg[1] is AxisType.REDUCE else SHORTEST_ROW
      if size is not None and least <= divisor < size and size % divisor == 0:
        found[loop] = min(found.get(loop, divisor), divisor)
  return next(iter(found.items()), None)


@memoised
def split_loops(body: UOp) -> UOp:
  """The kernel body with such loops in two."""
  while (cut := _cut(body.toposort)) is not None:
    body = _split(body, *cut)
  return body


def _split(body: UOp, loop: UOp, inside: int) -> UOp:
  nodes = body.toposort
  free = 1 + max(u.arg[0] for u in nodes if u.op is Ops.RANGE)
  outer = UOp.range(int(loop.src[0].arg) // inside, free, loop.arg[1])
  inner = UOp.range(inside, free + 1, loop.arg[1])
  done: dict[UOp, UOp] = {loop: outer * inside + inner}
  for u in nodes:
    if u in done:
      continue
    if u.op in (Ops.REDUCE, Ops.END) and loop in u.src[1:]:
      closed = [(outer, inner) if r is loop else (done[r],) for r in u.src[1:]]
      src = (done[u.src[0]], *[r for pair in closed for r in pair])
    else:
      src = tuple([done[s] for s in u.src])
    new = u.with_src(src)
    done[u] = simplify(new) if new is not u and (u.dtype.kind == "index" or u.op is Ops.INDEX) else new
  return done[body]
