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
for, the kernel of the forward pass makes Σ_j exp(s - m) · v for D alone, and where no D is wanted either (the gradient
of v by itself) m and l alone. Where g is the same for all rows, as of a loss that is a sum, so is Σ_c g[c] · v[j, c]:
it is computed once (`_once`), and D is a weighted sum of it, a forward kernel with one value per key.

Where a term is 0 by a mask, it is 0 whatever infinities are multiplied there. Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from tiny_sched.conditions import together
from tiny_sched.index import Index, flatten, known, largest_size, simplify
from tiny_sched.movement import repeated_axes
from tiny_sched.recompute_cost import NO_VALUE
from tiny_sched.room import Room, RoomOf, room_of_node
from tiny_sched.softmax import candidates
from tiny_sched.softmax.blocks import block_of, block_of_gradients, has_heads
from tiny_sched.softmax.candidates import EXPONENTIALS, elementwise_below, may_be_weighted
from tiny_sched.softmax.forward_kernel import kernel_of_blocks
from tiny_sched.softmax.gradient_kernel import kernel_of_gradients
from tiny_sched.softmax.online_softmax import (
  canonical,
  dear_factors,
  factors_of,
  is_sum_of_weights,
  makes_pairs,
  scores_of,
  weighted_sum,
)
from tiny_sched.softmax.terms import Cut, Inputs, Term, hoisted, term_of
from tiny_sched.softmax.weighted_sum import PairSum, WeightedSum, extent, product, row_place
from tiny_sched.work import tracker
from tiny_uop import AxisType, GroupOp, Ops, Shape, UOp, value_nodes
from tiny_uop.graph import users_of


def gradients_in_blocks(sink: UOp, room_of: RoomOf) -> UOp:
  """The graph with kernels of blocks for each sum weighted by a softmax whose gradients are taken, where that pays."""
  before = value_nodes(sink)
  if not any(map(is_sum_of_weights, before)):
    return sink
  told = _once(before)
  nodes = value_nodes(told[sink])
  users = users_of(nodes)
  changes: dict[UOp, UOp] = {}
  for u in nodes:
    if is_sum_of_weights(u) and may_be_weighted(u) and (room := room_of_node(u, room_of)).local_memory is not None:
      sums = _sums_around(u, users)
      changes |= (_attention(sums, room) if sums is not None else None) or {}
  if not changes:
    return sink
  done = _rebuilt(told[sink], changes)
  if tracker.places is not None:
    tracker.rewritten({u: done[told[u]] for u in before if told[u] in done}, done[told[sink]])
  return done[told[sink]]


def _once(nodes: Sequence[UOp]) -> dict[UOp, UOp]:
  """What becomes of each node of a graph where sums that are the same along an axis, as those over values alone are for
  all rows where the gradient of a result is a number, are computed for one place of it."""
  done: dict[UOp, UOp] = {}
  repeated: dict[UOp, frozenset[int]] = {}
  for u in nodes:
    done[u] = new = u.with_src(tuple([done.get(s, s) for s in u.src]))
    if u.op in NO_VALUE:
      continue
    ones = [axis for axis, size in enumerate(u.shape) if known(size) == 1]
    repeated[u] = axes = repeated_axes(u, repeated).union(ones)
    if u.op is Ops.REDUCE and u.arg[0] is Ops.ADD:
      same = [axis for axis in sorted(axes.difference(u.arg[1])) if known(u.shape[axis]) != 1]
      if same:
        one = new.src[0].shrink([(0, 1) if axis in same else (0, size) for axis, size in enumerate(new.src[0].shape)])
        done[u] = one.reduce_axes(*u.arg).expand(u.shape)
  return done


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

  results: tuple[UOp, ...]
  """What is summed over pairs: out, where it is wanted, and gradients."""
  maximum: UOp
  total: UOp
  dot: UOp | None
  """D; None where no gradient of a score is wanted."""
  scores: frozenset[UOp]
  """The reductions that weights, divided by their sum, have inside."""
  pairs: frozenset[UOp]
  """The sums with an element for each pair."""
  held: frozenset[UOp]
  """What gets memory: factors that are dear to compute."""


class _Forward(NamedTuple):
  """A softmax's weighted sum, and the kernel that computes it with what its rows have."""

  w: WeightedSum
  weighted: UOp | None
  """The sum of the graph that it computes; None where the sum is for D alone, or there is none."""
  shape: Shape
  results: tuple[UOp, ...]
  """CALLs that give the maximum of each row, the sum of its weights, and the sum, if there is one."""


def _attention(sums: _Sums, room: Room) -> dict[UOp, UOp] | None:
  """What becomes of a sum weighted by a softmax and of its gradients; None where all better stays as it is."""
  inputs = Inputs()
  if (forward := _forward(sums, inputs, room)) is None:
    return None
  made = {r: call.reshape(r.shape) for r, call in zip((sums.maximum, sums.total), forward.results)}
  if forward.weighted is not None:
    made[forward.weighted] = forward.results[2].reshape(forward.weighted.shape)
  if sums.dot is not None and sums.dot is not forward.weighted and _is_weighted(sums.dot, sums):
    if (dot := _kernel_of(sums, sums.dot, sums.dot, inputs, room)) is None:
      return None
    made[sums.dot] = dot.results[2].reshape(sums.dot.shape)
  gradients = _gradients(sums, made, forward, inputs, room)
  return None if gradients is None else made | gradients


def _sums_around(total: UOp, users: dict[UOp, list[UOp]]) -> _Sums | None:
  """What the graph makes of the scores that a sum of weights has inside; None where that is anything but sums over
  rows or columns."""
  scores = scores_of(total)
  reached = _reached([s for s in scores or () if makes_pairs(s)], users)
  if scores is None or reached is None:
    return None
  results, rows = reached
  pairs = _sums_of_pairs(results, rows)
  also = _reached(pairs, users)
  if not results or also is None or {*also[0]} != {*results} or {*also[1]} != {*rows}:
    return None
  maximum = next((r for r in rows if r.arg[0] is Ops.MAX), None)
  dots = [r for r in rows if r is not maximum and r is not total]
  if maximum is None or total not in rows or len(dots) > 1:
    return None
  held = frozenset([f for r in (*results, *dots) for f in dear_factors(r, pairs | frozenset(rows), 0)])
  return _Sums(tuple(results), maximum, total, dots[0] if dots else None, scores | {total}, pairs, held)


def _is_weighted(u: UOp, sums: _Sums) -> bool:
  """Whether nothing of pairs but weights is in a sum."""
  below = {node for node in elementwise_below(u.src[0]) if node.op is Ops.REDUCE}
  return sums.dot not in below and below.isdisjoint(sums.pairs - sums.scores)


def _forward(sums: _Sums, inputs: Inputs, room: Room) -> _Forward | None:
  """The kernel of a sum that leaves what rows have in memory: of results, where the graph has them, or of D, or of
  weights alone; None where there is none, or it does not pay."""
  for u in sums.results:
    if _is_weighted(u, sums) and (made := _kernel_of(sums, u, u, inputs, room)) is not None:
      return None if len(sums.results) == 1 else made  # one sum alone needs no more than its own kernel
  if sums.dot is None:
    return _kernel_of(sums, sums.total, None, inputs, room)
  return _kernel_of(sums, sums.dot, sums.dot if _is_weighted(sums.dot, sums) else None, inputs, room)


def _kernel_of(sums: _Sums, u: UOp, weighted: UOp | None, inputs: Inputs, room: Room) -> _Forward | None:
  """The kernel of a sum, which is `weighted`, or D, of which it computes what that is made of, or that of weights."""
  found = Cut(sums.held, sums.scores | sums.pairs).element(u, inputs)
  if found is not None and weighted is None and u is not sums.total:
    found = _results_of_dot(*found)
  if found is None:
    return None
  value, index = found
  w = weighted_sum(canonical(value), [r for r in index if r.op is Ops.RANGE])
  if w is None or w.where is not None or u.dtype is not w.dtype or (w.values is None) is not (u is sums.total):
    return None
  if any(r is not None and r.dtype is not w.dtype for r in (sums.maximum, sums.total, sums.dot)):
    return None
  if (block := block_of(w, room)) is None:
    return None
  shape = (*u.shape, *[extent(c) for c in index[len(u.shape) :]])
  count = 2 if w.values is None else 3
  kernel, read = inputs.bound(kernel_of_blocks(w, block, u.dtype, index, shape, statistics=True), count)
  results = [UOp(Ops.CALL, u.dtype, (kernel, UOp(Ops.DEVICE, arg=u.device), *read), n) for n in range(count)]
  return _Forward(w, weighted, shape, tuple(results))


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


def _gradients(
  sums: _Sums, made: Collection[UOp], forward: _Forward, inputs: Inputs, room: Room
) -> dict[UOp, UOp] | None:
  """What kernels of blocks compute of each sum that is not `made` yet; None where one of them is no sum that they
  can."""
  w, own = forward.w, forward.weighted
  cut = Cut(sums.held.union([r for r in (sums.maximum, sums.total, sums.dot) if r is not None]), sums.pairs)
  total = term_of(cut.element(sums.total, inputs), w)
  if total is None or len(total.factors) != 1 or total.values or total.factors[0].op not in EXPONENTIALS:
    return None
  (weight,) = total.factors
  sum_of_weights = inputs.load(sums.total, flatten(total.place, sums.total.shape))
  wanted = [r for r in sums.results if r not in made]
  terms = {r: t for r in wanted if (t := term_of(cut.element(r, inputs), w, weight)) is not None and t.is_separable(w)}
  read = [f for t in terms.values() for f in (*t.factors, sum_of_weights)]
  if len(terms) != len(wanted) or not _are_in_place(read, w, inputs, (sums.maximum, sums.total)):
    return None
  gradients = {r: t.pair_sum(r, w) for r, t in terms.items()}
  turned = replace(w, lane=w.j, j=w.lane)
  of_row: dict[UOp, UOp] = {}
  if sums.dot is not None and sums.dot not in made:
    by_row = term_of(cut.element(sums.dot, inputs), w, weight)
    if by_row is None or not by_row.over_columns:
      return None
    if own is None:
      dot = _dot_of(by_row, forward, inputs)
    else:
      dot = _dot_of_results(term_of(cut.element(own, inputs), w, weight), by_row, own, sums.total, turned, inputs)
    if dot is None:
      return None
    of_row[inputs.load(sums.dot, flatten(by_row.place, sums.dot.shape))] = dot
  return _calls(sums, w, turned, gradients, of_row, inputs, room)


def _calls(
  sums: _Sums, w: WeightedSum, turned: WeightedSum, gradients: Gradients, of_row: dict[UOp, UOp], inputs: Inputs,
  room: Room,
) -> dict[UOp, UOp] | None:  # fmt: skip
  """The kernels of gradients; None where they do not pay."""
  if any(turned.sides(s) is None for s in _sums_of(gradients)):
    return None
  made: dict[UOp, UOp] = {}
  device, apart = UOp(Ops.DEVICE, arg=sums.maximum.device), bool(room.local_memory) or not has_heads(w)
  for lanes, part in _parts(w, turned, gradients, apart):
    wanted = list(part.values())
    if (size := block_of_gradients(lanes, _sums_of(gradients), wanted, room)) is None:
      return None
    kernel, read = inputs.bound(kernel_of_gradients(lanes, size, _sums_of(part), wanted, of_row), len(part))
    if (of_row and sums.dot in read) or not frozenset(UOp.sink(*read).toposort).isdisjoint(gradients):
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


def _dot_of_results(
  own: Term | None, dot: Term, weighted: UOp, total: UOp, w: WeightedSum, inputs: Inputs
) -> UOp | None:
  """D, made of a row's results, as the graph has these in `weighted`; `w` has keys as lanes."""
  inside = [f for f in dot.factors if f.op is Ops.REDUCE]
  if own is None or not own.over_columns or len(own.columns) != 1 or len(inside) != 1 or dot.values:
    return None
  (c,), (pair,) = own.columns, inside
  k = pair.src[1]
  if len(pair.src) != 2 or k.src[0] is not c.src[0]:
    return None
  mine = [*own.factors, *[simplify(f.substitute({c: k})) for f in own.values]]
  theirs = [*[f for f in dot.factors if f is not pair], *factors_of(pair.src[0])]
  floats = [Counter([f for f in factors if f.dtype.kind != "bool"]) for factors in (mine, theirs)]
  divisor, gradient = [*(floats[0] - floats[1]).elements()], [*(floats[1] - floats[0]).elements()]
  conditions = [{f for f in factors if f.dtype.kind == "bool"} for factors in (mine, theirs)]
  more = list(conditions[1] - conditions[0])  # results that are 0 where a row says so, whatever was summed
  if len(divisor) != 1 or not conditions[0] <= conditions[1]:
    return None
  (over,), of_row = divisor, product(gradient, w.dtype)
  if of_row is None or any(w.lane in f.ranges for f in (*gradient, *more, over)):
    return None
  if over.op is not Ops.FDIV or over.src[0] is not over.const_like(1) or any(k in f.ranges for f in more):
    return None
  read = [u for u in over.toposort if u.op is Ops.LOAD]
  if not read or not all(inputs.is_read(u, total) for u in read):
    return None  # a row has it: the sum of its weights, or 1 where that is 0
  out = inputs.load(weighted, flatten(own.place, weighted.shape).substitute({c: k}))
  value = (of_row * (out if out.dtype is w.dtype else out.cast(w.dtype))).reduce(Ops.ADD, k) * over.src[1]
  return together(more).where(value, value.const_like(0)) if more else value


def _dot_of(dot: Term, forward: _Forward, inputs: Inputs) -> UOp | None:
  """D, made of a row's results, as the kernel of the forward pass leaves them."""
  inside, j = [f for f in dot.factors if f.op is Ops.REDUCE], forward.w.j
  if len(inside) != 1 or dot.values or (sides := forward.w.sides(inside[0])) is None:
    return None
  k = inside[0].src[1]
  out = inputs.load(forward.results[2], flatten((*dot.place, k), forward.shape))
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
      if user in seen:
        continue
      seen.add(user)
      if user.op is Ops.REDUCE:
        if largest_size(user.src[0].shape) not in pairs or not _comes_back(user, starts, users):
          results[user] = None
          continue
        rows[user] = None
      elif user.op not in GroupOp.Elementwise and user.op not in GroupOp.Movement:
        return None
      stack.append(user)
  return list(results), list(rows)


def _comes_back(u: UOp, starts: Collection[UOp], users: dict[UOp, list[UOp]]) -> bool:
  """Whether a reduction is used together with what is made of pairs, as what a row has is."""
  stack, seen = [u], {u}
  while stack:
    for user in users.get(stack.pop(), ()):
      if user.op is Ops.REDUCE:
        if not {*elementwise_below(user.src[0])}.isdisjoint(starts):
          return True
      elif user not in seen and (user.op in GroupOp.Elementwise or user.op in GroupOp.Movement):
        seen.add(user)
        stack.append(user)
  return False


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
