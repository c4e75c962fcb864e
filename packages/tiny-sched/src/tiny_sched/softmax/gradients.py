"""Gradients of sums that are weighted by a softmax, in kernels that never hold what there is of each pair.

Where gradients are taken of attention, out = P·v with P = exp(s - m)/l, the graph has, besides it,

    dP[i, j] = Σ_c g[i, c] · v[j, c]
    D[i]     = Σ_j dP[i, j] · exp(s[i, j] - m[i])
    dv[j, c] = Σ_i P[i, j] · g[i, c]
    dk[j, d] = Σ_i dS[i, j] · q[i, d]        dq[i, d] = Σ_j dS[i, j] · k[j, d]

where dS is made of s, dP, and what a row has (m, l, D), one pair at a time; how in detail does not matter. This pass
looks at all that the graph makes of the scores. Where it ends in such sums over one of the two counters, the kernel of
the forward pass (`forward_kernel.py`) leaves m and l of each row in memory too, and one kernel (`gradient_kernel.py`)
makes all other sums, or two where there are few heads, or workgroups. D needs no sum over pairs: sums over j and c
change places, and D[i] = l[i] · Σ_c g[i, c] · out[i, c].

Where a term is 0 by a mask, it is 0 whatever infinities are multiplied there. Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tiny_sched.conditions import together
from tiny_sched.index import Index, flatten, largest_size, simplify
from tiny_sched.lowering import ElementAccess
from tiny_sched.recompute_cost import lowered
from tiny_sched.softmax import candidates
from tiny_sched.softmax.blocks import block_of, block_of_gradients, has_heads
from tiny_sched.softmax.candidates import ENDS, EXPONENTIALS, elementwise_below, may_be_weighted
from tiny_sched.softmax.forward_kernel import kernel_of_blocks
from tiny_sched.softmax.gradient_kernel import kernel_of_gradients
from tiny_sched.softmax.online_softmax import (
  MOST_STEPS,
  canonical,
  dear_factors,
  factors_of,
  makes_pairs,
  reads,
  scores_of,
  weighted_sum,
)
from tiny_sched.softmax.weighted_sum import PairSum, WeightedSum, product, row_place
from tiny_sched.views import is_reinterpretation
from tiny_sched.work import tracker
from tiny_uop import AxisType, GroupOp, Ops, UOp, value_nodes
from tiny_uop.graph import memory_of, users_of

if TYPE_CHECKING:
  from tiny_sched.passes import LocalMemory

FIRST = 1 << 20
"""PARAMs of inputs, until the number of results is known; and loops of results."""


def gradients_in_blocks(sink: UOp, local_memory: LocalMemory) -> UOp:
  """The graph with kernels of blocks for each sum weighted by a softmax whose gradients are taken, where that pays."""
  nodes = value_nodes(sink)
  users = users_of(nodes)
  changes: dict[UOp, UOp] = {}
  for u in nodes:
    if isinstance(u.device, str) and may_be_weighted(u) and (room := local_memory(u.device)) is not None:
      changes |= _Attention(u, users, room).changes() or {}
  if not changes:
    return sink
  done = _rebuilt(sink, changes)
  if tracker.places is not None:
    tracker.rewritten({u: done[u] for u in nodes if u in done}, done[sink])
  return done[sink]


def _rebuilt(sink: UOp, changes: dict[UOp, UOp]) -> dict[UOp, UOp]:
  """What becomes of each node where `changes`, which are made of the old ones, take the places of some."""
  done: dict[UOp, UOp] = {}
  stack = [sink]
  while stack:
    u = stack[-1]
    new = changes.get(u, u)
    if u in done:
      stack.pop()
    elif missing := [s for s in new.src if s not in done]:
      stack.extend(missing)
    else:
      done[u] = new.with_src(tuple([done[s] for s in new.src]))
      stack.pop()
  return done


Gradients = dict[UOp, PairSum]
"""What a kernel computes for each sum of the graph."""


class _Term(NamedTuple):
  """A sum over pairs, at the counters of the softmax: what is multiplied for each pair."""

  factors: tuple[UOp, ...]
  """Of what a pair has, and its row, and its column."""
  values: tuple[UOp, ...]
  """Those with loops of the result that pairs have not."""
  columns: tuple[UOp, ...]
  over_columns: bool
  """Whether it is over the columns of the softmax, for each row."""
  place: Index
  """Where an element of the result is."""

  def is_separable(self, w: WeightedSum) -> bool:
    """Whether there are values, and they depend on the counter of the sum only."""
    other = w.lane if self.over_columns else w.j
    floats = [f for f in self.factors if f.dtype.kind != "bool"]
    return bool(self.values) and bool(floats) and all(other not in v.ranges for v in self.values)


class _Attention:
  """A sum weighted by a softmax, and what else is made of its scores."""

  def __init__(self, u: UOp, users: dict[UOp, list[UOp]], room: int) -> None:
    self.u, self.users, self.room = u, users, room
    self.inputs: dict[UOp, int] = {}
    self.ends: frozenset[UOp] = frozenset()
    """What has memory: factors that are dear to compute; and at last what a row has."""
    self.inside: frozenset[UOp] = frozenset()
    """Reductions that a sum has inside."""

  def changes(self) -> dict[UOp, UOp] | None:
    """What becomes of the sums; None where there are no gradients, or all better stays as it is."""
    u = self.u
    scores = scores_of(u)
    reached = _reached([s for s in scores or () if makes_pairs(s)], self.users)
    if scores is None or reached is None or len(reached[1]) != 3 or u not in reached[0]:
      return None
    results, rows = reached
    others = [r for r in results if r is not u]
    pairs = _sums_of_pairs(results, rows)
    also = _reached(pairs, self.users)
    if not others or also is None or {*also[0]} != {*results} or {*also[1]} != {*rows}:
      return None
    self.inside = scores
    self.ends = held = frozenset([f for r in results for f in dear_factors(r, pairs | frozenset(rows), 0)])
    if (found := self.value_of(u)) is None:
      return None
    w = weighted_sum(canonical(found[0]), [r for r in found[1] if r.op is Ops.RANGE])
    if w is None or w.total is None or w.where is not None or u.dtype is not w.dtype:
      return None
    if (block := block_of(w, self.room)) is None:
      return None
    maximum = next((r for r in rows if r.op is Ops.REDUCE and r.arg[0] is Ops.MAX), None)
    total = next((r for r in rows if r.arg[0] is Ops.ADD and r.src[0].op in EXPONENTIALS), None)
    if maximum is None or total is None or any(r.dtype is not w.dtype for r in rows):
      return None
    dot = next(r for r in rows if r is not maximum and r is not total)
    forward, inputs = self.bound(kernel_of_blocks(w, block, u.dtype, found[1], u.shape, statistics=True), 3)
    device = UOp(Ops.DEVICE, arg=u.device)
    made = {
      r: UOp(Ops.CALL, u.dtype, (forward, device, *inputs), n).reshape(r.shape)
      for n, r in enumerate((u, maximum, total))
    }

    self.inside, self.ends = pairs, held | frozenset(rows)
    own = self.term(u, w, None)
    weight = next((f for f in own.factors if f.op in EXPONENTIALS), None) if own is not None else None
    if own is None or weight is None or not own.over_columns or not self.are_in_place(own, w, maximum, total):
      return None
    by_row = self.term(dot, w, weight)
    terms = {r: t for r in others if (t := self.term(r, w, weight)) is not None and t.is_separable(w)}
    if by_row is None or not by_row.over_columns or len(terms) != len(others):
      return None
    turned = replace(w, lane=w.j, j=w.lane)
    gradients = [_pair_sum(r, t, w) for r, t in terms.items()]
    sums = _sums_of(gradients)
    of_row = self.dot_of_results(own, by_row, dot, total, turned)
    if of_row is None or any(turned.sides(s) is None for s in sums):
      return None
    apart = self.room > 0 or not has_heads(w)
    for lanes, part in _parts(w, turned, dict(zip(terms, gradients)), apart):
      wanted = list(part.values())
      if (size := block_of_gradients(lanes, sums, wanted, self.room)) is None:
        return None
      kernel, inputs = self.bound(kernel_of_gradients(lanes, size, _sums_of(wanted), wanted, of_row), len(part))
      if dot in inputs or not frozenset(UOp.sink(*inputs).toposort).isdisjoint(others):
        return None
      for n, r in enumerate(part):
        made[r] = UOp(Ops.CALL, r.dtype, (kernel, device, *inputs), n).reshape(r.shape)
    return made

  def are_in_place(self, own: _Term, w: WeightedSum, *rows: UOp) -> bool:
    """Whether what rows have is read where the kernel of the forward pass leaves it, and is no more than that."""
    slots, place = {self.inputs.get(r) for r in rows}, simplify(row_place(w))
    loads = [u for f in own.factors for u in f.toposort if u.op is Ops.LOAD and memory_of(u.src[0]).arg in slots]
    size = math.prod([int(r.src[0].vmax) for r in (*w.rows, w.lane)])
    return (
      {memory_of(u.src[0]).arg for u in loads} == slots
      and all(u.src[0].src[1] is place for u in loads)
      and all(largest_size(r.shape) == size for r in rows)
    )

  def value_of(self, u: UOp) -> tuple[UOp, Index] | None:
    """(an element of a sum, the counters of the sum's elements)."""

    def is_end(node: UOp) -> bool:
      if node in self.ends or node.op is Ops.REDUCE:
        return node in self.ends or (node not in self.inside and reads(node))
      return node.op in ENDS or is_reinterpretation(node)

    def value_at(access: ElementAccess, _: int) -> UOp:
      return self.pointer(access.node).index(simplify(flatten(access.index, access.node.shape)), access.gate).load()

    found = lowered(u, is_end, value_at, MOST_STEPS)
    return None if found is None else found[:2]

  def pointer(self, node: UOp) -> UOp:
    slot = self.inputs.setdefault(node, FIRST + len(self.inputs))
    return UOp.param(slot, node.dtype.ptr(largest_size(node.shape)))

  def bound(self, kernel: UOp, results: int) -> tuple[UOp, list[UOp]]:
    """The kernel with its PARAMs numbered after those of the results, and their nodes."""
    params = {u.arg: u for u in kernel.toposort if u.op is Ops.PARAM and u.arg >= FIRST}
    nodes = [node for node, slot in self.inputs.items() if slot in params]
    changes = {
      params[self.inputs[node]]: UOp.param(results + n, node.dtype.ptr(largest_size(node.shape)))
      for n, node in enumerate(nodes)
    }
    return kernel.substitute(changes), nodes

  def term(self, u: UOp, w: WeightedSum, weight: UOp | None) -> _Term | None:
    """The sum over pairs at the counters of a softmax; None where its weight is no factor."""
    if (found := self.value_of(u)) is None:
      return None
    value = _hoisted(canonical(found[0]))
    if value.op is not Ops.REDUCE or value.arg[0] is not Ops.ADD or len(value.src) != 2:
      return None
    term, k = value.src
    factors = factors_of(term)
    of_pairs = {r for f in factors for s in f.toposort if s.op is Ops.REDUCE for r in s.ranges}
    loops = sorted([r for r in found[1] if r.op is Ops.RANGE], key=lambda r: r.arg[0])
    columns = [r for r in loops if r not in of_pairs]
    mine = [*[r for r in loops if r in of_pairs], k]
    rows = sorted((*w.rows, w.lane), key=lambda r: r.arg[0])
    for over_columns in (True, False):
      theirs = [*rows, w.j] if over_columns else [*[w.j if r is w.lane else r for r in rows], w.lane]
      if len(theirs) != len(mine) or any(a.src[0] is not b.src[0] for a, b in zip(mine, theirs)):
        continue
      own = [UOp.range(c.src[0], FIRST + n, AxisType.REDUCE) for n, c in enumerate(columns)]
      places = dict(zip([*mine, *columns], [*theirs, *own]))
      moved = [simplify(f.substitute(places)) for f in factors]
      if weight is not None and weight not in moved:
        continue
      values = [f for f in moved if not f.ranges.isdisjoint(own)]
      left = tuple([f for f in moved if f not in values])
      return _Term(left, tuple(values), tuple(own), over_columns, tuple([i.substitute(places) for i in found[1]]))
    return None

  def dot_of_results(self, own: _Term, dot: _Term, node: UOp, total: UOp, w: WeightedSum) -> dict[UOp, UOp] | None:
    """How what a row has of gradients is made of its results; `w` has keys as lanes."""
    (c,) = own.columns if len(own.columns) == 1 else (None,)
    sums = [f for f in dot.factors if f.op is Ops.REDUCE]
    if c is None or len(sums) != 1 or dot.values or (sides := w.sides(sums[0])) is None:
      return None
    k = sums[0].src[1]
    mine, theirs = [Counter([f for f in t.factors if f.dtype.kind != "bool"]) for t in (own, dot)]
    conditions = [{f for f in t.factors if f.dtype.kind == "bool"} for t in (own, dot)]
    divisor = [*(mine - theirs).elements()]
    values = product(own.values, w.dtype)
    more = list(conditions[1] - conditions[0])  # results that are 0 where a row says so, whatever was summed
    if [*(theirs - mine).elements()] != sums or not conditions[0] <= conditions[1] or len(divisor) != 1:
      return None
    if any(w.lane in c.ranges for c in more):
      return None
    if k.src[0] is not c.src[0] or values is None:
      return None
    if simplify(values.substitute({c: k})) is not sides[0]:
      return None
    (over,) = divisor
    if over.op is not Ops.FDIV or over.src[0] is not over.const_like(1):
      return None
    read = {memory_of(u.src[0]).arg for u in over.toposort if u.op is Ops.LOAD}
    if read != {self.inputs[total]} or w.lane in over.ranges:
      return None  # a row has it: the sum of its weights, or 1 where that is 0
    out = self.pointer(self.u).index(simplify(flatten(own.place, self.u.shape).substitute({c: k}))).load()
    value = (sides[1] * (out if out.dtype is w.dtype else out.cast(w.dtype))).reduce(Ops.ADD, k) * over.src[1]
    if more:
      value = together(more).where(value, UOp.const(w.dtype, 0))
    held = self.pointer(node).index(simplify(flatten(dot.place, node.shape))).load()
    return {held: value}


def _parts(
  w: WeightedSum, turned: WeightedSum, gradients: dict[UOp, PairSum], apart: bool
) -> list[tuple[WeightedSum, Gradients]]:
  """The gradients that a kernel makes, and what its lanes are: all with keys as lanes, or where blocks are to be
  `apart`, those of queries by themselves with queries as lanes, so that no kernel goes on with the results of another
  block."""
  if not apart:
    return [(turned, gradients)]
  of_keys = {r: g for r, g in gradients.items() if not g.over_lanes}
  of_queries = {r: replace(g, over_lanes=False) for r, g in gradients.items() if g.over_lanes}
  return [(lanes, part) for lanes, part in ((turned, of_keys), (w, of_queries)) if part]


def _sums_of(gradients: Sequence[PairSum]) -> list[UOp]:
  """The sums of pairs that gradients are made of."""
  return list(dict.fromkeys([s for g in gradients for s in g.coefficient.toposort if s.op is Ops.REDUCE]))


def _pair_sum(u: UOp, t: _Term, w: WeightedSum) -> PairSum:
  """What a kernel computes of a sum over pairs."""
  found = product([f for f in t.factors if f.dtype.kind != "bool"], w.dtype)
  values = product(t.values, w.dtype)
  assert found is not None and values is not None
  conditions = [f for f in t.factors if f.dtype.kind == "bool"]
  if conditions:
    found = together(conditions).where(found, UOp.const(w.dtype, 0))
  return PairSum(found, values, t.columns, t.over_columns, t.place, u.shape, u.dtype)


def _hoisted(value: UOp) -> UOp:
  """The value with conditions that a sum inside does not depend on outside of it."""
  done: dict[UOp, UOp] = {}
  for u in value.toposort:
    done[u] = new = u.with_src(tuple([done[s] for s in u.src]))
    if u is value or u.op is not Ops.REDUCE or u.arg[0] is not Ops.ADD or u.dtype.kind != "float":
      continue
    factors = factors_of(new.src[0])
    free = [f for f in factors if f.dtype.kind == "bool" and f.ranges.isdisjoint(new.src[1:])]
    left = product([f for f in factors if f not in free], u.dtype)
    if free and left is not None and all(f.dtype.kind == "float" or f in free for f in factors):
      done[u] = together(free).where(new.with_src((left, *new.src[1:])), UOp.const(u.dtype, 0))
  return done[value]


def _reached(starts: Collection[UOp], users: dict[UOp, list[UOp]]) -> tuple[list[UOp], list[UOp]] | None:
  """(the sums that what is made of pairs ends in, the reductions of what pairs have); None where it ends in others."""
  results: dict[UOp, None] = {}
  rows: dict[UOp, None] = {}
  pairs = {largest_size(s.shape) for s in starts}
  stack, seen = list(starts), set(starts)
  while stack:
    for user in users.get(stack.pop(), ()):
      if user.op is Ops.REDUCE and largest_size(user.src[0].shape) not in pairs:
        results[user] = None
      elif user.op is Ops.REDUCE or user.op in GroupOp.Elementwise or user.op in GroupOp.Movement:
        if user not in seen:
          seen.add(user)
          stack.append(user)
          if user.op is Ops.REDUCE:
            rows[user] = None
      else:
        return None
  return list(results), list(rows)


def _sums_of_pairs(results: Sequence[UOp], rows: Sequence[UOp]) -> frozenset[UOp]:
  """The sums that results are made of, with what rows have, that have an element for each pair."""
  found: set[UOp] = set()
  stack, seen = [*results], {*results}
  while stack:
    for node in elementwise_below(stack.pop().src[0]):
      if node.op is not Ops.REDUCE or node in seen:
        continue
      seen.add(node)
      if node in rows:
        stack.append(node)
      elif node.arg[0] is Ops.ADD and largest_size(node.shape) >= candidates.LEAST_SCORES and makes_pairs(node):
        found.add(node)
  return frozenset(found)
