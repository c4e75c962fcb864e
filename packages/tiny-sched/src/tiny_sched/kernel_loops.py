"""Loops of a kernel: split where a counter is taken apart, flattened where all addresses count through two as one.

Split: where a kernel has `r // a` or `r % a` of a counter r below n, and a divides n, r is `outer * a + inner`, and the
loop becomes two. Loops over the output are split only where rows stay long enough for vectors: a few divisions cost
less than stores that are apart. Where one factor of a sum of products has a value for each remainder, as the filter of
a transposed convolution has, and the other one for each quotient, they are split at any length, and also where r is
counted from a constant: each phase is a convolution of its own then.

Flatten: loops i (outer) and j (inner, extent n) become one where every index expression has them as c*n*i + c*j. With
m = n*i + j that is c*m, so the flattened kernel is the old one with i = 0 and j = m.
Done here so that kernels which differ only in how their shapes were cut are one object in the cache. The pass
`merge_loops` of tiny-codegen (`lower/merge_loops.py`) does the same for kernels from anywhere, after it has told ORDER
loops from others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tiny_sched.index import ZERO, known, memoised, simplify
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.graph import rebuild

Terms = dict[UOp, int]
SHORTEST_ROW = 16
_DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD)


def _cut(nodes: Sequence[UOp]) -> tuple[UOp, int] | None:
  """(loop, where to cut it): the smallest divisor by which a counter is divided."""
  found: dict[UOp, int] = {}
  phases = _phases(nodes)
  for u in nodes:
    if u.op in _DIVISIONS and u.src[1].op is Ops.CONST and (loop := _counter(u.src[0])) is not None:
      divisor = int(u.src[1].arg)
      size = known(loop.src[0]) if u.src[0] is loop or loop in phases else None
      least = 2 if loop.arg[1] is AxisType.REDUCE or loop in phases else SHORTEST_ROW
      if size is not None and least <= divisor < size and size % divisor == 0:
        found[loop] = min(found.get(loop, divisor), divisor)
  return next(iter(found.items()), None)


def _counter(u: UOp) -> UOp | None:
  """The loop that an expression counts, from zero or from a constant; None if it is none."""
  counter = u.src[0] if u.op is Ops.ADD and u.src[1].op is Ops.CONST else u
  return counter if counter.op is Ops.RANGE else None


def _phases(nodes: Sequence[UOp]) -> frozenset[UOp]:
  """The loops of results of which a sum of products has one factor for each remainder."""
  found: set[UOp] = set()
  for u in nodes:
    if u.op is Ops.REDUCE and u.arg[0] is Ops.ADD and u.src[0].op is Ops.MUL:
      divided = [
        {(c, v.op) for v in s.toposort if v.op in _DIVISIONS and (c := _counter(v.src[0])) is not None}
        for s in u.src[0].src
      ]
      for a, b in (divided, divided[::-1]):
        found |= {r for r, op in a if op is Ops.FLOORMOD and (r, Ops.FLOORDIV) in b and r not in u.src[1:]}
  return frozenset(found)


@memoised
def split_loops(body: UOp) -> UOp:
  """The kernel body with such loops in two."""
  while (cut := _cut(body.toposort)) is not None:
    loop, inside = cut
    free = 1 + max(u.arg[0] for u in body.toposort if u.op is Ops.RANGE)
    outer = UOp.range(int(loop.src[0].arg) // inside, free, loop.arg[1])
    inner = UOp.range(inside, free + 1, loop.arg[1])
    body = _with_loops(body, {loop: outer * inside + inner}, {loop: (outer, inner)})
  return body


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
    used = u.src[:1] if u.op in (Ops.REDUCE, Ops.END) else u.src
    yield from (s for s in used if s.dtype.kind == "index")


def _mergeable(outer: UOp, inner: UOp, forms: Sequence[Terms]) -> bool:
  size = known(inner.src[0])
  if size is None or known(outer.src[0]) is None:
    return False
  return all(form.get(outer, 0) == form.get(inner, 0) * size for form in forms)


@memoised
def flatten_loops(body: UOp) -> UOp:
  """The kernel body with loops flattened, output loops and those of each reduction."""
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
    outer, inner = pair
    whole = UOp.range(int(outer.src[0].arg) * int(inner.src[0].arg), inner.arg[0], inner.arg[1])
    body = _with_loops(body, {outer: ZERO, inner: whole}, {outer: (), inner: (whole,)})


def _with_loops(body: UOp, counters: Mapping[UOp, UOp], loops: Mapping[UOp, tuple[UOp, ...]]) -> UOp:
  """The body with values in the place of loop counters, and other loops in the lists of REDUCE and END."""

  def change(u: UOp, new: UOp) -> UOp:
    if u in counters:
      return counters[u]
    if u.op in (Ops.REDUCE, Ops.END):
      return u.with_src((new.src[0], *[r for old in u.src[1:] for r in loops.get(old, (old,))]))
    return simplify(new) if new is not u and (u.dtype.kind == "index" or u.op is Ops.INDEX) else new

  return rebuild(body, change)
