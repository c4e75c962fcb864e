"""Sums over the pairs of a softmax as expressions of what has memory, all at the counters of one softmax.

A sum of the graph and where its expression ends go in (`Cut`); out comes what it multiplies for each pair (`Term`), in
which equal factors of two sums are one node. `Inputs` has the nodes that such expressions read.
"""

from __future__ import annotations

from typing import NamedTuple

from tiny_sched.conditions import together
from tiny_sched.index import Index, flatten, largest_size, simplify
from tiny_sched.lowering import ElementAccess
from tiny_sched.recompute_cost import lowered
from tiny_sched.softmax.candidates import ENDS
from tiny_sched.softmax.online_softmax import MOST_STEPS, canonical, factors_of, reads
from tiny_sched.softmax.weighted_sum import PairSum, WeightedSum, product
from tiny_sched.views import is_reinterpretation
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.graph import memory_of

FIRST = 1 << 20
"""PARAMs of inputs, until the number of results is known; and loops of results."""


class Inputs:
  """The nodes that kernels read, each with the number of its PARAM until that of the results is known."""

  def __init__(self) -> None:
    self.numbers: dict[UOp, int] = {}

  def load(self, node: UOp, place: UOp, gate: UOp | None = None) -> UOp:
    """An element of a node, where its memory has it."""
    number = self.numbers.setdefault(node, FIRST + len(self.numbers))
    return UOp.param(number, node.dtype.ptr(largest_size(node.shape))).index(simplify(place), gate).load()

  def is_read(self, load: UOp, *nodes: UOp) -> bool:
    """Whether a LOAD is of the memory of one of these nodes."""
    return memory_of(load.src[0]).arg in [self.numbers.get(node) for node in nodes]

  def bound(self, kernel: UOp, results: int) -> tuple[UOp, list[UOp]]:
    """The kernel with its PARAMs numbered after those of the results, and their nodes."""
    params = {u.arg: u for u in kernel.toposort if u.op is Ops.PARAM and u.arg >= FIRST}
    nodes = [node for node, number in self.numbers.items() if number in params]
    changes = {
      params[self.numbers[node]]: UOp.param(results + n, node.dtype.ptr(largest_size(node.shape)))
      for n, node in enumerate(nodes)
    }
    return kernel.substitute(changes), nodes


class Cut(NamedTuple):
  """Where the expression of a sum ends."""

  memory: frozenset[UOp]
  """What has memory, besides what always has."""
  inside: frozenset[UOp]
  """The reductions that are a part of it; others have memory."""

  def element(self, u: UOp, inputs: Inputs) -> tuple[UOp, Index] | None:
    """(an element of a sum, the counters of the sum's elements)."""

    def is_end(node: UOp) -> bool:
      if node in self.memory or node.op is Ops.REDUCE:
        return node in self.memory or (node not in self.inside and reads(node))
      return node.op in ENDS or is_reinterpretation(node)

    def value_at(access: ElementAccess, _: int) -> UOp:
      return inputs.load(access.node, flatten(access.index, access.node.shape), access.gate)

    found = lowered(u, is_end, value_at, MOST_STEPS)
    return None if found is None else found[:2]


class Term(NamedTuple):
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
    """Whether values depend on the counter of the sum only, and there are such for loops that pairs have not."""
    other = w.lane if self.over_columns else w.j
    floats = [f for f in self.factors if f.dtype.kind != "bool"]
    if not floats or (self.columns and not self.values):
      return False
    return all(other not in v.ranges for v in self.values)

  def pair_sum(self, u: UOp, w: WeightedSum) -> PairSum:
    """What a kernel computes of it, for the sum `u` of the graph."""
    found = product([f for f in self.factors if f.dtype.kind != "bool"], w.dtype)
    values = product(self.values, w.dtype)
    assert found is not None
    conditions = [f for f in self.factors if f.dtype.kind == "bool"]
    if conditions:
      found = together(conditions).where(found, UOp.const(w.dtype, 0))
    return PairSum(found, values, self.columns, self.over_columns, self.place, u.shape, u.dtype)


def term_of(element: tuple[UOp, Index] | None, w: WeightedSum, weight: UOp | None = None) -> Term | None:
  """A sum over pairs at the counters of a softmax; None where it is none, or its weight is no factor."""
  if element is None:
    return None
  value, place = hoisted(canonical(element[0])), element[1]
  if value.op is not Ops.REDUCE or value.arg[0] is not Ops.ADD or len(value.src) != 2:
    return None
  term, k = value.src
  factors = factors_of(term)
  of_pairs = {r for f in factors for s in f.toposort if s.op is Ops.REDUCE for r in s.ranges}
  loops = sorted([r for r in place if r.op is Ops.RANGE], key=lambda r: r.arg[0])
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
    return Term(left, tuple(values), tuple(own), over_columns, tuple([i.substitute(places) for i in place]))
  return None


def hoisted(value: UOp) -> UOp:
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
