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
change places, and D[i] = l[i] · Σ_c g[i, c] · out[i, c]. Where nobody wants out, as of a loss whose value is not asked
for, the kernel of the forward pass makes Σ_j exp(s - m) · v for D alone.

Where a term is 0 by a mask, it is 0 whatever infinities are multiplied there. Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from tiny_sched.conditions import together
from tiny_sched.index import Index, flatten, largest_size, simplify
from tiny_sched.room import Room, RoomOf, room_of_node
from tiny_sched.softmax import candidates
from tiny_sched.softmax.blocks import block_of, block_of_gradients, has_heads
from tiny_sched.softmax.candidates import EXPONENTIALS, elementwise_below, may_be_weighted
from tiny_sched.softmax.forward_kernel import kernel_of_blocks
from tiny_sched.softmax.gradient_kernel import kernel_of_gradients
from tiny_sched.softmax.online_softmax import canonical, dear_factors, factors_of, makes_pairs, scores_of, weighted_sum
from tiny_sched.softmax.terms import Cut, Inputs, Term, hoisted, term_of
from tiny_sched.softmax.weighted_sum import PairSum, WeightedSum, extent, product, row_place
from tiny_sched.work import tracker
from tiny_uop import AxisType, GroupOp, Ops, Shape, UOp, value_nodes
from tiny_uop.graph import users_of


def gradients_in_blocks(sink: UOp, room_of: RoomOf) -> UOp:
  """The graph with kernels of blocks for each sum weighted by a softmax whose gradients are taken, where that pays."""
  nodes = value_nodes(sink)
  users = users_of(nodes)
  changes: dict[UOp, UOp] = {}
  found = [(u, room_of_node(u, room_of)) for u in nodes if may_be_weighted(u)]
  weighted = [(u, room) for u, room in found if room.local_memory is not None]
  for is_computed in (True, False):
    for u, room in weighted:
      sums = _sums_around(u, users, is_computed)
      if sums is not None and sums.maximum not in changes:
        changes |= _attention(sums, room) or {}
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


class _Sums(NamedTuple):
  """The reductions of a graph that are a softmax's and its gradients'."""

  weighted: UOp | None
  """out; None where only gradients are wanted."""
  maximum: UOp
  total: UOp
  dot: UOp
  """D."""
  gradients: tuple[UOp, ...]
  """What else is summed over pairs."""
  scores: frozenset[UOp]
  """The reductions that `weighted` has inside, or without it `dot`."""
  pairs: frozenset[UOp]
  """The sums with an element for each pair."""
  held: frozenset[UOp]
  """What gets memory: factors that are dear to compute."""


class _Forward(NamedTuple):
  """A softmax's weighted sum, and the kernel that computes it with what its rows have."""

  w: WeightedSum
  shape: Shape
  results: tuple[UOp, ...]
  """CALLs that give the sum, the maximum of each row and the sum of its weights."""


def _attention(sums: _Sums, room: Room) -> dict[UOp, UOp] | None:
  """What becomes of a sum weighted by a softmax and of its gradients; None where all better stays as it is."""
  inputs = Inputs()
  if (forward := _forward(sums, inputs, room)) is None:
    return None
  if (gradients := _gradients(sums, forward, inputs, room)) is None:
    return None
  rows = (sums.weighted, sums.maximum, sums.total)
  made = {r: call.reshape(r.shape) for r, call in zip(rows, forward.results) if r is not None}
  return made | gradients


def _sums_around(u: UOp, users: dict[UOp, list[UOp]], is_computed: bool) -> _Sums | None:
  """What the graph makes of the scores that a sum has inside, which is out, or D where out is not computed; None where
  that is anything but gradients."""
  scores = scores_of(u)
  reached = _reached([s for s in scores or () if makes_pairs(s)], users)
  if scores is None or reached is None or len(reached[1]) != 3:
    return None
  results, rows = reached
  others = [r for r in results if r is not u]
  pairs = _sums_of_pairs(results, rows)
  also = _reached(pairs, users)
  if not others or also is None or {*also[0]} != {*results} or {*also[1]} != {*rows}:
    return None
  maximum = next((r for r in rows if r.arg[0] is Ops.MAX), None)
  total = next((r for r in rows if r.arg[0] is Ops.ADD and r.src[0].op in EXPONENTIALS), None)
  if maximum is None or total is None:
    return None
  dot = next(r for r in rows if r is not maximum and r is not total)
  if u not in (results if is_computed else (dot,)):
    return None
  held = frozenset([f for r in results for f in dear_factors(r, pairs | frozenset(rows), 0)])
  return _Sums(u if is_computed else None, maximum, total, dot, tuple(others), scores, pairs, held)


def _forward(sums: _Sums, inputs: Inputs, room: Room) -> _Forward | None:
  """The kernel of the sum that leaves what rows have in memory; None where there is none, or it does not pay."""
  u = sums.dot if sums.weighted is None else sums.weighted
  found = Cut(sums.held, sums.scores).element(u, inputs)
  if found is not None and u is sums.dot:
    found = _results_of_dot(*found)
  if found is None:
    return None
  value, index = found
  w = weighted_sum(canonical(value), [r for r in index if r.op is Ops.RANGE])
  if w is None or w.where is not None or u.dtype is not w.dtype or (w.total is None and u is not sums.dot):
    return None
  if any(r.dtype is not w.dtype for r in (sums.maximum, sums.total, sums.dot)):
    return None
  if (block := block_of(w, room)) is None:
    return None
  shape = (*u.shape, *[extent(c) for c in index[len(u.shape) :]])
  kernel, read = inputs.bound(kernel_of_blocks(w, block, u.dtype, index, shape, statistics=True), 3)
  results = [UOp(Ops.CALL, u.dtype, (kernel, UOp(Ops.DEVICE, arg=u.device), *read), n) for n in range(3)]
  return _Forward(w, shape, tuple(results))


def _results_of_dot(value: UOp, index: Index) -> tuple[UOp, Index] | None:
  """An element of Σ_j p · v, at its counters, c last, where one of D = Σ_j p · Σ_c g · v is given: then D is Σ_c g of
  it. Where a row's condition makes D 0, the sum goes on as if it held."""
  value = hoisted(canonical(value))
  if value.op is not Ops.REDUCE or len(value.src) != 2:
    return None
  term, j = value.src
  factors = [f for f in factors_of(term) if f.dtype.kind != "bool" or j in f.ranges]
  inside = [f for f in factors if f.op is Ops.REDUCE and j in f.ranges]
  if len(inside) != 1 or len(inside[0].src) != 2:
    return None
  k = inside[0].src[1]
  c = UOp.range(k.src[0], len(index), AxisType.REDUCE)
  values = [f.substitute({k: c}) for f in factors_of(inside[0].src[0]) if j in f.ranges]
  made = product([f for f in [*factors, *values] if f is not inside[0] and f.dtype.kind != "bool"], value.dtype)
  if made is None or any(f.dtype.kind == "bool" for f in values):
    return None
  if conditions := [f for f in factors if f.dtype.kind == "bool"]:
    made = together(conditions).where(made, made.const_like(0))
  return made.reduce(Ops.ADD, j), (*index, c)


def _gradients(sums: _Sums, forward: _Forward, inputs: Inputs, room: Room) -> dict[UOp, UOp] | None:
  """What kernels of blocks compute of each gradient; None where one of them is no sum that they can."""
  w, rows = forward.w, (sums.maximum, sums.total, sums.dot)
  cut = Cut(sums.held.union(rows), sums.pairs)
  own = term_of(cut.element(sums.dot if sums.weighted is None else sums.weighted, inputs), w)
  weight = next((f for f in own.factors if f.op in EXPONENTIALS), None) if own is not None else None
  by_row, total = [term_of(cut.element(r, inputs), w, weight) for r in (sums.dot, sums.total)]
  if own is None or weight is None or by_row is None or total is None or total.factors != (weight,):
    return None
  sum_of_weights = inputs.load(sums.total, flatten(total.place, sums.total.shape))
  if not _are_in_place((*own.factors, sum_of_weights), w, inputs, rows[:2]):
    return None
  found = {r: term_of(cut.element(r, inputs), w, weight) for r in sums.gradients}
  terms = {r: t for r, t in found.items() if t is not None and t.is_separable(w)}
  if not own.over_columns or not by_row.over_columns or len(terms) != len(found):
    return None
  gradients = {r: t.pair_sum(r, w) for r, t in terms.items()}
  turned = replace(w, lane=w.j, j=w.lane)
  if sums.weighted is None:
    dot = _dot_of(by_row, forward, inputs)
  else:
    dot = _dot_of_results(own, by_row, sums, turned, inputs)
  if dot is None or any(turned.sides(s) is None for s in _sums_of(gradients)):
    return None
  of_row = {inputs.load(sums.dot, flatten(by_row.place, sums.dot.shape)): dot}
  made: dict[UOp, UOp] = {}
  device, apart = UOp(Ops.DEVICE, arg=sums.maximum.device), bool(room.local_memory) or not has_heads(w)
  for lanes, part in _parts(w, turned, gradients, apart):
    wanted = list(part.values())
    if (size := block_of_gradients(lanes, _sums_of(gradients), wanted, room)) is None:
      return None
    kernel, read = inputs.bound(kernel_of_gradients(lanes, size, _sums_of(part), wanted, of_row), len(part))
    if sums.dot in read or not frozenset(UOp.sink(*read).toposort).isdisjoint(sums.gradients):
      return None
    made |= {r: UOp(Ops.CALL, r.dtype, (kernel, device, *read), n).reshape(r.shape) for n, r in enumerate(part)}
  return made


def _are_in_place(values: Sequence[UOp], w: WeightedSum, inputs: Inputs, rows: Sequence[UOp]) -> bool:
  """Whether what rows have is read where the kernel of the forward pass leaves it, and is no more than that."""
  loads = [u for f in values for u in f.toposort if u.op is Ops.LOAD and inputs.is_read(u, *rows)]
  size, place = math.prod(map(extent, (*w.rows, w.lane))), simplify(row_place(w))
  return (
    all(any(inputs.is_read(u, row) for u in loads) for row in rows)
    and all(u.src[0].src[1] is place for u in loads)
    and all(largest_size(row.shape) == size for row in rows)
  )


def _dot_of_results(own: Term, dot: Term, sums: _Sums, w: WeightedSum, inputs: Inputs) -> UOp | None:
  """D, made of a row's results, as the graph has these; `w` has keys as lanes."""
  (c,) = own.columns if len(own.columns) == 1 else (None,)
  assert sums.weighted is not None
  inside = [f for f in dot.factors if f.op is Ops.REDUCE]
  if c is None or len(inside) != 1 or dot.values or (sides := w.sides(inside[0])) is None:
    return None
  k = inside[0].src[1]
  mine, theirs = [Counter([f for f in t.factors if f.dtype.kind != "bool"]) for t in (own, dot)]
  conditions = [{f for f in t.factors if f.dtype.kind == "bool"} for t in (own, dot)]
  divisor = [*(mine - theirs).elements()]
  values = product(own.values, w.dtype)
  more = list(conditions[1] - conditions[0])  # results that are 0 where a row says so, whatever was summed
  if [*(theirs - mine).elements()] != inside or not conditions[0] <= conditions[1] or len(divisor) != 1:
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
  read = [u for u in over.toposort if u.op is Ops.LOAD]
  if not read or not all(inputs.is_read(u, sums.total) for u in read) or w.lane in over.ranges:
    return None  # a row has it: the sum of its weights, or 1 where that is 0
  out = inputs.load(sums.weighted, flatten(own.place, sums.weighted.shape).substitute({c: k}))
  value = (sides[1] * (out if out.dtype is w.dtype else out.cast(w.dtype))).reduce(Ops.ADD, k) * over.src[1]
  return together(more).where(value, value.const_like(0)) if more else value


def _dot_of(dot: Term, forward: _Forward, inputs: Inputs) -> UOp | None:
  """D, made of a row's results, as the kernel of the forward pass leaves them."""
  inside, j = [f for f in dot.factors if f.op is Ops.REDUCE], forward.w.j
  if len(inside) != 1 or dot.values or (sides := forward.w.sides(inside[0])) is None:
    return None
  k = inside[0].src[1]
  out = inputs.load(forward.results[0], flatten((*dot.place, k), forward.shape))
  value = (sides[0] * out).reduce(Ops.ADD, k)
  more = [f for f in dot.factors if f.dtype.kind == "bool" and j not in f.ranges]
  return together(more).where(value, value.const_like(0)) if more else value


def _parts(
  w: WeightedSum, turned: WeightedSum, gradients: dict[UOp, PairSum], apart: bool
) -> list[tuple[WeightedSum, Gradients]]:
  """The gradients that a kernel makes, and what its lanes are: all with keys as lanes, or where blocks are to be
  `apart`, or none is for keys, those of queries by themselves with queries as lanes, so that no kernel goes on with the
  results of another block."""
  if not apart and not all(g.over_lanes for g in gradients.values()):
    return [(turned, gradients)]
  of_keys = {r: g for r, g in gradients.items() if not g.over_lanes}
  of_queries = {r: replace(g, over_lanes=False) for r, g in gradients.items() if g.over_lanes}
  return [(lanes, part) for lanes, part in ((turned, of_keys), (w, of_queries)) if part]


def _sums_of(gradients: Gradients) -> list[UOp]:
  """The sums of pairs that gradients are made of."""
  values = gradients.values()
  return list(dict.fromkeys([s for g in values for s in g.coefficient.toposort if s.op is Ops.REDUCE]))


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
