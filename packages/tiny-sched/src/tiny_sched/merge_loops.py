"""Two nested loops that all addresses count through as one become one: fewer loops, and longer.

Loops i (outer) and j (inner, extent n) merge where every index expression has them as c*n*i + c*j. With m = n*i + j
that is c*m, so the merged kernel is the old one with i = 0 and j = m.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tiny_sched.index import ZERO, known
from tiny_sched.memo import memoised, simplify
from tiny_uop import Ops, UOp

Terms = dict[UOp, int]


def _terms(u: UOp, loops: frozenset[UOp]) -> Terms | None:
  """The coefficient of each loop in an expression that is linear in them; None where it is not."""
  terms: Terms = {}
  stack = [(u, 1)]
  while stack:
    node, factor = stack.pop()
    if node in loops:
      terms[node] = terms.get(node, 0) + factor
    elif node.op is Ops.ADD:
      stack.extend((s, factor) for s in node.src)
    elif node.op is Ops.MUL and node.src[1].op is Ops.CONST:
      stack.append((node.src[0], factor * int(node.src[1].arg)))
    elif not node.ranges.isdisjoint(loops):
      return None
  return terms


def _roots(nodes: Sequence[UOp]) -> Iterator[UOp]:
  """Expressions of dtype index as other nodes use them, whole."""
  for u in nodes:
    if u.dtype.kind == "index" and u.op in (Ops.ADD, Ops.MUL, Ops.RANGE):
      continue  # part of a longer expression
    if u.op in (Ops.REDUCE, Ops.END):
      yield from (s for s in u.src[:1] if s.dtype.kind == "index")
    else:
      yield from (s for s in u.src if s.dtype.kind == "index")


def _mergeable(outer: UOp, inner: UOp, forms: Sequence[Terms]) -> bool:
  size = known(inner.src[0])
  if size is None or known(outer.src[0]) is None:
    return False
  return all(form.get(outer, 0) == form.get(inner, 0) * size for form in forms)


@memoised
def merge_loops(body: UOp) -> UOp:
  """The kernel body with loops merged, output loops and those of each reduction."""
  while True:
    nodes = body.toposort
    owners = [u for u in nodes if u.op in (Ops.REDUCE, Ops.END) and len(u.src) > 2]
    loops = frozenset(r for u in owners for r in u.src[1:])
    # MUL by something other than a constant hides its loops: such an expression is no sum of terms
    forms = [_terms(root, loops) for root in dict.fromkeys(_roots(nodes))]
    bad = {r for root, form in zip(dict.fromkeys(_roots(nodes)), forms) if form is None for r in root.ranges}
    linear = [f for f in forms if f is not None]
    pair = next((p for u in owners for p in zip(u.src[1:-1], u.src[2:])
                 if not bad.intersection(p) and _mergeable(*p, linear)), None)  # fmt: skip
    if pair is None:
      return body
    body = _merged(body, *pair)


def _merged(body: UOp, outer: UOp, inner: UOp) -> UOp:
  """The body with `outer` at 0 and `inner` running over both."""
  size = int(outer.src[0].arg) * int(inner.src[0].arg)
  whole = UOp.range(size, inner.arg[0], inner.arg[1])
  done: dict[UOp, UOp] = {outer: ZERO, inner: whole}
  for u in body.toposort:
    if u in done:
      continue
    if u.op in (Ops.REDUCE, Ops.END):
      src = (done[u.src[0]], *[done[r] for r in u.src[1:] if r is not outer])
    else:
      src = tuple([done[s] for s in u.src])
    new = u.with_src(src)
    done[u] = simplify(new) if new is not u and u.dtype.kind == "index" and u.op in (Ops.ADD, Ops.MUL) else new
  return done[body]
