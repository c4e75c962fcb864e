"""Sums that are weighted by a softmax, in one kernel that never holds all of the weights.

Attention looks up

    out[i, c] = Σ_j exp(s[i, j] - m[i]) · v[j, c] / Σ_j exp(s[i, j] - m[i])      where m[i] = max_j s[i, j]

Where s is made by a sum itself, as q·k is, it would get memory: as much as there are pairs (i, j). This pass finds such
sums in the graph, by their structure, and puts a kernel of blocks (`forward_kernel.py`) in the place of each. What s is
made of besides does not matter: scales, biases, masks, windows, a cap, heads that share keys.

A sum is recognised in the form that a kernel would have, an expression of loads and loops: movement is index arithmetic
there, and whatever the graph calls things, the score that is summed and the one whose maximum is subtracted are one
expression. It has to be

    Σ_j exp(score - max_j score) · factors

where a factor has j (the values; masks and dropout, which may also have i) or has not (the division by the sum).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tiny_sched.conditions import conjuncts, together
from tiny_sched.index import ZERO, flatten, largest_size, simplify
from tiny_sched.lowering import ElementAccess
from tiny_sched.recompute_cost import lowered
from tiny_sched.room import RoomOf, room_of_node
from tiny_sched.softmax import candidates
from tiny_sched.softmax.blocks import block_of, has_own_products
from tiny_sched.softmax.candidates import ENDS, EXPONENTIALS, elementwise_below, may_be_weighted
from tiny_sched.softmax.forward_kernel import kernel_of_blocks
from tiny_sched.softmax.weighted_sum import WeightedSum, product
from tiny_sched.value_rules import tidy
from tiny_sched.views import is_reinterpretation
from tiny_sched.work import tracker
from tiny_uop import AxisType, DType, GroupOp, Ops, UOp, dtypes, value_nodes
from tiny_uop.graph import users_of
from tiny_uop.shape import same_size

MOST_STEPS = 4000
"""Of taking an expression apart: a score is there for its weight, its maximum and its sum."""
CHEAP = 4
"""Operations on an element that is used in many places, which may well be done again in each."""


def sums_in_blocks(sink: UOp, room_of: RoomOf) -> UOp:
  """The graph with a kernel of blocks for each sum weighted by a softmax, where that pays."""
  nodes = value_nodes(sink)
  users = users_of(nodes)
  calls = dict([call for u in nodes if may_be_weighted(u) and (call := _in_blocks(u, users, room_of)) is not None])
  if not calls:
    return sink
  done: dict[UOp, UOp] = {}
  for u in nodes:  # what a kernel reads may be made of the results of others
    new = calls.get(u, u)
    done[u] = new.with_src(tuple([done.get(s, s) for s in new.src]))
    if new is not u:
      done[u] = done[u].reshape(u.shape)
  if tracker.places is not None:
    tracker.rewritten(done, done[sink])
  return done[sink]


def dear_factors(u: UOp, scores: frozenset[UOp], most: int = CHEAP) -> set[UOp]:
  """What gets memory, since each block of rows would compute it again, which takes more than so many operations: keys
  with a rotary embedding, and the like."""
  held = set[UOp]()
  for reduce in (u, *scores):
    for factor in _factor_nodes(reduce.src[0], most == 0):
      below = list(elementwise_below(factor))
      uses = largest_size(reduce.src[0].shape) // max(largest_size(factor.shape), 1)
      dear = sum(node.op in GroupOp.Elementwise for node in below) > most and uses >= CHEAP
      if dear and scores.isdisjoint(below):
        held.add(factor)
  return held


def _factor_nodes(u: UOp, whole: bool) -> Iterator[UOp]:
  """The factors of a product of floats in a tensor graph, without movement around them, and without casts; with
  `whole`, casts of what no weights are in are a part of a factor."""
  while u.op in GroupOp.Movement or (u.op is Ops.CAST and not (whole and _is_rounded(u))):
    u = u.src[0]
  if u.op is Ops.MUL or u.op is Ops.WHERE:
    for s in u.src:
      yield from _factor_nodes(s, whole)
  elif u.dtype.kind == "float":
    yield u


def _is_rounded(u: UOp) -> bool:
  """Whether a CAST makes floats of floats that are no weights."""
  return u.src[0].dtype.kind == "float" and not any(s.op in EXPONENTIALS for s in elementwise_below(u))


def reads(u: UOp) -> bool:
  """Whether a reduction is of anything in memory."""
  below = list(elementwise_below(u.src[0]))
  return any(s.op in ENDS for s in below) or any(reads(s) for s in below if s.op is Ops.REDUCE)


def _in_blocks(u: UOp, users: dict[UOp, list[UOp]], room_of: RoomOf) -> tuple[UOp, UOp] | None:
  """(what a kernel of blocks computes, its CALL) for a sum, rounded where that is all that is done with it; None where
  it is not weighted by a softmax, or better stays."""
  if (room := room_of_node(u, room_of)).local_memory is None:
    return None
  scores = scores_of(u)
  if scores is None or not _only_for(scores, u, users):
    return None
  inputs: dict[UOp, int] = {}
  held = dear_factors(u, scores)

  def is_end(node: UOp) -> bool:
    if node in held:
      return True
    if node.op is Ops.REDUCE:
      return node not in scores and reads(node)  # a count of positions needs no loop
    return node.op in ENDS or is_reinterpretation(node)

  def value_at(access: ElementAccess, _: int) -> UOp:
    slot = inputs.setdefault(access.node, len(inputs) + 1)
    pointer = UOp.param(slot, access.node.dtype.ptr(largest_size(access.node.shape)))
    return pointer.index(simplify(flatten(access.index, access.node.shape)), access.gate).load()

  found = lowered(u, is_end, value_at, MOST_STEPS)
  if found is None:
    return None
  value, index, _ = found
  weighted = weighted_sum(canonical(value), [r for r in index if r.op is Ops.RANGE])
  if weighted is None or weighted.values is None or (block := block_of(weighted, room)) is None:
    return None
  if not block.shared and has_own_products(weighted):
    return None
  last = u
  while len(users.get(last, ())) == 1 and (user := users[last][0]).op in (Ops.RESHAPE, Ops.CAST):
    if user.dtype.kind != "float":
      break
    last = user
  kernel = kernel_of_blocks(weighted, block, last.dtype, index, u.shape)
  return last, UOp(Ops.CALL, last.dtype, (kernel, UOp(Ops.DEVICE, arg=u.device), *inputs), 0)


def scores_of(u: UOp) -> frozenset[UOp] | None:
  """The reductions that a weighted sum has inside: maxima and sums of its rows, and those that make a score of each
  pair of a row and a column; None where there are none of these."""
  length = u.src[0].shape[u.arg[1][0]]
  rows, pairs = set[UOp](), set[UOp]()
  stack, seen = [u.src[0]], set[UOp]()
  while stack:
    for node in elementwise_below(stack.pop()):
      if node.op is not Ops.REDUCE or node in seen:
        continue
      seen.add(node)
      summed = [node.src[0].shape[axis] for axis in node.arg[1]]
      if len(summed) == 1 and same_size(summed[0], length) and _may_be_row(node):
        rows.add(node)
        stack.append(node.src[0])
      elif node.arg[0] is Ops.ADD and largest_size(node.shape) >= candidates.LEAST_SCORES and makes_pairs(node):
        pairs.add(node)
        stack.append(node.src[0])
  return frozenset(rows | pairs) if rows and pairs else None


def _may_be_row(u: UOp) -> bool:
  """Whether a reduction may be a maximum of scores, or a sum of weights."""
  return u.arg[0] is Ops.MAX or is_sum_of_weights(u)


def is_sum_of_weights(u: UOp) -> bool:
  """Whether a node is a sum of exponentials, and of nothing that is made of them."""
  if u.op is not Ops.REDUCE or u.arg[0] is not Ops.ADD:
    return False
  term = u.src[0]
  while term.op in GroupOp.Movement:
    term = term.src[0]
  return term.op in EXPONENTIALS


def makes_pairs(u: UOp) -> bool:
  """Whether a sum of products has more elements than what it is made of."""
  product = u.src[0]
  while product.op in GroupOp.Movement:
    product = product.src[0]
  if product.op is not Ops.MUL:
    return False
  return all(_distinct(s) * 2 <= largest_size(u.shape) for s in product.src)


def _distinct(u: UOp) -> int:
  """How many elements a view shows, at most: those of what is expanded. Where some are 0, those of what is not."""
  least = largest_size(u.shape)
  while u.op in GroupOp.Movement or u.op is Ops.CAST or (u.op is Ops.WHERE and _is_zero(u.src[2].base)):
    u = u.src[1] if u.op is Ops.WHERE else u.src[0]
    least = min(least, largest_size(u.shape))
  return least


def _only_for(inside: frozenset[UOp], u: UOp, users: dict[UOp, list[UOp]]) -> bool:
  """Whether nothing but a sum uses what is made of the scores of pairs, so that none of them needs memory."""
  cone = set(value_nodes(u))
  stack = [r for r in inside if not _may_be_row(r)]
  seen = set(stack)
  while stack:
    for user in users.get(stack.pop(), ()):
      if user not in cone:
        return False
      if user is not u and user not in seen:
        seen.add(user)
        stack.append(user)
  return True


# *** from the value of an element to a weighted sum ***


def canonical(value: UOp) -> UOp:
  """The value with the loops of each REDUCE numbered by how many REDUCEs are inside: two that differ in nothing but
  their counters are one node."""
  done: dict[UOp, UOp] = {}
  height: dict[UOp, int] = {}
  for u in value.toposort:
    new = u.with_src(tuple([done[s] for s in u.src]))
    height[u] = max([height[s] for s in u.src], default=0)
    if u.op is Ops.REDUCE:
      height[u] += 1
      named = {r: UOp.range(r.src[0], height[u] * 1000 + n, AxisType.REDUCE) for n, r in enumerate(new.src[1:])}
      new = new.substitute(named)
    done[u] = new
  return done[value]


def weighted_sum(value: UOp, loops: Sequence[UOp]) -> WeightedSum | None:
  """What a value, at the counters `loops` of the output, is a softmax's weighted sum of; None where it is none."""
  if value.op is not Ops.REDUCE or value.arg[0] is not Ops.ADD or len(value.src) != 2:
    return None
  term, j = value.src
  wide = dtypes.promote(value.dtype, dtypes.float32)
  exponentials = [f for f in factors_of(term) if f.op in EXPONENTIALS]
  if len(exponentials) != 1 or (found := _less_maximum(exponentials[0], j)) is None:
    return None
  weight, (score, maximum) = exponentials[0], found
  rows = [r for r in loops if r in maximum.ranges]
  columns = [r for r in loops if r not in maximum.ranges]
  others = [f for f in factors_of(term) if f is not weight]
  total = next((t for f in others for t in f.toposort if _is_total(t, weight, j)), None)
  conditions = [f for f in others if f.dtype.kind == "bool"]
  outside = [f for f in others if j not in f.ranges and f not in conditions]
  inside = [f for f in others if j in f.ranges and f not in conditions]
  if maximum.dtype is not wide or weight.dtype is not wide or any(r not in loops for r in maximum.ranges):
    return None
  if any(
    r.op is Ops.REDUCE and r not in (maximum, total) and not _below(r, (maximum, total))
    for f in outside
    for r in f.toposort
  ) or any(r.op is Ops.REDUCE for f in [*inside, *conditions] for r in f.toposort):
    return None
  for lane in sorted(rows, key=lambda r: (-int(r.src[0].vmax), r.arg[0])):
    of_pairs = [f for f in inside if lane in f.ranges]
    values = [f for f in inside if lane not in f.ranges]
    of_terms = [c for c in conditions if j in c.ranges]
    if any(not f.ranges.isdisjoint(columns) for f in [*of_pairs, *of_terms]):
      continue
    # those dropped at random are so whatever their row is; it is 0/0 by other masks only
    masks = [c for term in of_terms for c in conjuncts(term) if not any(u.op is Ops.THREEFRY for u in c.toposort)]
    if masks and not any(_always(together(masks), j, seen) for seen in (ZERO, lane)):
      continue  # a row of which no term counts is 0, whatever its weights are
    one, zero = UOp.const(wide, 1), UOp.const(wide, 0)
    of_pairs += [c.where(one, zero) for c in of_terms]
    kept = [c for c in conditions if j not in c.ranges]
    made = WeightedSum(
      tuple([r for r in rows if r is not lane]), lane, tuple(columns), j, score, maximum, total, weight,
      product(of_pairs, wide), product(values, wide), product(outside, wide), together(kept) if kept else None, wide,
      _rounded(term, weight),
    )  # fmt: skip
    if made.is_separable():
      return made
  return None


def _rounded(term: UOp, weight: UOp) -> DType | None:
  """The narrowest type that a weight is rounded to on its way."""
  casts = [u.dtype for u in term.toposort if u.op is Ops.CAST and u.dtype.kind == "float" and weight in u.toposort]
  narrow = min(casts, key=lambda t: t.itemsize, default=weight.dtype)
  return narrow if narrow.itemsize < weight.dtype.itemsize else None


def _always(condition: UOp, j: UOp, seen: UOp) -> bool:
  """Whether a condition holds at one counter in all rows."""
  holds = simplify(condition.substitute({j: seen}))
  return holds.op is Ops.CONST and bool(holds.arg)


def _below(u: UOp, roots: Sequence[UOp | None]) -> bool:
  return any(root is not None and u in root.toposort for root in roots)


def factors_of(u: UOp) -> list[UOp]:
  """The factors of a product of floats; rounding to fewer bits on the way is left out. Where a term is 0 otherwise, its
  condition is one of them."""
  if u.op is Ops.MUL:
    return [*factors_of(u.src[0]), *factors_of(u.src[1])]
  if u.op is Ops.FDIV and not _is_one(u.src[0]):
    return [*factors_of(u.src[0]), u.const_like(1) / u.src[1]]
  if u.op is Ops.CAST and u.src[0].dtype.kind == "float":
    return factors_of(u.src[0])
  if u.op is Ops.WHERE and (_is_zero(u.src[1]) or _is_zero(u.src[2])):
    condition, yes, no = u.src
    if _is_zero(no):
      return [condition, *factors_of(yes)]
    return [tidy(condition.logical_not()), *factors_of(no)]
  return [u]


def _is_one(u: UOp) -> bool:
  return u.op is Ops.CONST and type(u.arg) is not tuple and u.arg == 1


def _is_zero(u: UOp) -> bool:
  return u.op is Ops.CONST and type(u.arg) is not tuple and u.arg == 0


def _less_maximum(weight: UOp, j: UOp) -> tuple[UOp, UOp] | None:
  """(score, maximum) of the exponential of a score less the maximum of all scores."""
  exponent = weight.src[0]
  if exponent.op is not Ops.ADD:
    return None
  for score, less in (exponent.src, exponent.src[::-1]):
    if less.op is not Ops.MUL or less.src[1].op is not Ops.CONST or less.src[1].arg != -1:
      continue
    maximum = _unless_nothing(less.src[0])
    if maximum.op is Ops.REDUCE and maximum.arg[0] is Ops.MAX and _over(maximum, j, score):
      return score, maximum
  return None


def _unless_nothing(u: UOp) -> UOp:
  """The maximum where another number takes the place of one that is -inf: 0 is subtracted then, as kernels do."""
  if u.op is not Ops.WHERE or u.src[0].op is not Ops.CMPNE:
    return u
  (maximum, infinite), yes, no = u.src[0].src, *u.src[1:]
  is_infinite = infinite.op is Ops.CONST and infinite.arg == -math.inf
  return yes if yes is maximum and is_infinite and _is_zero(no) else u


def _is_total(u: UOp, weight: UOp, j: UOp) -> bool:
  return u.op is Ops.REDUCE and u.arg[0] is Ops.ADD and _over(u, j, weight)


def _over(reduce: UOp, j: UOp, value: UOp) -> bool:
  """Whether a reduction is one of a value at another counter. In which order summands are depends on their counters,
  until they are sorted again."""
  if len(reduce.src) != 2 or reduce.src[1].src[0] is not j.src[0]:
    return False
  found = reduce.src[0].substitute({reduce.src[1]: j})
  return found is value or simplify(found) is simplify(value)
