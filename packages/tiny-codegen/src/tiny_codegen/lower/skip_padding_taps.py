"""Sums over a window that leave out what lies in padding.

A window that slides over an image with padding reads zeros beyond its edge: rows that `0 <= y + tap - padding < height`
does not hold for. In `REDUCE(weight * LOAD(INDEX(image, …, gate)), tap)` they add nothing, so that the loop over taps
may begin with the first that is inside and end with the last, and the gate goes. Of 3 × 3 taps over images of 7 × 7
that is a tenth of all work. As with other libraries, a weight that is infinite does not meet zeros of padding then.

What is known of a gate is gone once its operand is in local memory, so the pass `stage` asks before that, and shortens
the loops after. Where taps and places are both written out (`UNROLL`, `UPCAST`), a term gets its gate as a condition,
`WHERE(gate, term, 0)`, which is true or false once it is written out: the pass `unroll` then has no term for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from functools import lru_cache, reduce

from tiny_codegen.kernel.expressions import number, stride, terms
from tiny_codegen.kernel.loops import extent, in_order, kind, next_loop_id, size_of, substitute_simplified
from tiny_codegen.kernel.memory import gates_of
from tiny_codegen.lower.reduce import identity
from tiny_codegen.target import Target
from tiny_uop import AxisType, Ops, UOp, dtypes, evaluate, simplify
from tiny_uop.records import dataclass

TRUE = UOp.const(dtypes.bool, True)
AROUND = frozenset({AxisType.LOOP, AxisType.THREAD})
"""Loops that a sum is in: a register tile has all of its rows and lanes in one sum."""
WRITTEN_OUT = frozenset({AxisType.UPCAST})
"""Loops that a sum is in which has each of their iterations as a sum of its own."""
MOST_TAPS = 16  # of a loop; of longer ones, as gradients of weights have them, too little is outside
SPARE = 7  # registers besides accumulators: a loop that may have no iterations keeps some of these in others around it
PLACES = 1024  # of which it is counted how much of a window is inside


@dataclass(frozen=True)
class Inside:
  """Which iterations of a loop are inside of the image: from the first on, and before the last. `gates` say so."""

  first: UOp
  last: UOp
  gates: tuple[UOp, ...]

  @property
  def count(self) -> UOp:
    """How many there are."""
    return simplify((self.last - self.first).maximum(number(0)))


def has_room(accumulators: int, target: Target) -> bool:
  """Whether registers have room for so many accumulators of a sum whose loops are shorten_loops."""
  return accumulators + SPARE <= target.vector_registers


def steps_inside(root: UOp, target: Target) -> dict[UOp, Inside]:
  """By loops of sums: what is to be left of them."""
  sums = [u for u in root.toposort if u.op is Ops.REDUCE]
  loops = [r for u in sums for r in u.src[1:]]
  alone = [(u, r) for u in sums if has_room(_accumulators(u, target), target) for r in u.src[1:] if loops.count(r) == 1]
  return {loop: inside for total, loop in alone if (inside := _inside(total, loop)) is not None}


def share_inside(total: UOp, loop: UOp, tile: Collection[UOp]) -> tuple[float, tuple[UOp, ...]]:
  """(which part of the iterations of a loop is left, the gates that go), if `tile` are the loops of a register tile."""
  inside = _inside(total, loop, tile)
  return (1.0, ()) if inside is None else (_mean(inside.count) / int(loop.src[0].arg), inside.gates)


@lru_cache(maxsize=8)
def _mean(count: UOp) -> float:
  """The mean of a number over the loops that it depends on, at the largest values of variables."""
  around, largest = in_order(count.ranges), {v: int(v.vmax) for v in count.variables}
  places = itertools.product(*[range(size_of(r)) for r in around])
  counts = [evaluate(count, {**largest, **dict(zip(around, place))}) for place in itertools.islice(places, PLACES)]
  return sum(int(n) for n in counts if isinstance(n, int)) / len(counts)


def shorten_loops(root: UOp, found: Mapping[UOp, Inside]) -> UOp:
  """The kernel with the loops of sums from the first to the last iteration that is needed."""
  for loop, inside in found.items():
    fresh = next_loop_id(root)
    for total in [u for u in root.toposort if u.op is Ops.REDUCE and loop in u.src[1:]]:
      part = UOp.range(inside.count, fresh, AxisType.REDUCE)
      value = total.src[0].substitute(dict.fromkeys(inside.gates, TRUE))
      value = substitute_simplified(value, {loop: inside.first + part})
      loops = tuple([part if r is loop else r for r in total.src[1:]])
      root = root.substitute({total: total.replace(src=(value, *loops))})
  return root


def only_taps_inside(root: UOp) -> UOp:
  """The kernel with conditions for terms of sums whose taps and places are written out."""
  changes = {}
  for total in [u for u in root.toposort if u.op is Ops.REDUCE and u.arg[0] is Ops.ADD]:
    taps = [r for r in total.src[1:] if kind(r) is AxisType.UNROLL]
    inside = [
      clause
      for load in _factors(total.src[0])
      for clause in gates_of(load)
      if any(_limit(clause, tap, load.src[0].src[1], frozenset(total.src[1:]), WRITTEN_OUT) for tap in taps)
    ]
    if inside:
      value = total.src[0]
      term = reduce(UOp.__and__, inside).where(value, identity(Ops.ADD, value.dtype))
      changes[total] = total.replace(src=(term, *total.src[1:]))
  return root.substitute(changes) if changes else root


def _accumulators(total: UOp, target: Target) -> int:
  """Vector registers that a sum takes for all rows and lanes of its tile."""
  rows, lanes = (
    math.prod(extent(r) or 1 for r in total.ranges if kind(r) is what) for what in (AxisType.UPCAST, AxisType.VECTOR)
  )
  return rows * -(-lanes // target.lanes(total.dtype))


def _inside(total: UOp, loop: UOp, tile: Collection[UOp] = ()) -> Inside | None:
  """What is left of a loop; None if all of it."""
  size = extent(loop)
  if total.arg[0] is not Ops.ADD or kind(loop) is not AxisType.REDUCE or size is None or size > MOST_TAPS:
    return None
  first, last, gates = number(0), number(size), []
  for load in _factors(total.src[0]):
    for clause in gates_of(load):
      limit = _limit(clause, loop, load.src[0].src[1], frozenset((*total.src[1:], *tile)))
      if limit is not None:
        from_there, place = limit
        first, last = (first.maximum(place), last) if from_there else (first, last.minimum(place))
        gates.append(clause)
  if not gates:
    return None
  return Inside(simplify(first.minimum(number(size))), simplify(last.maximum(number(0))), tuple(gates))


def _factors(term: UOp) -> list[UOp]:
  """The loads, as they are or staged, of which a term is a product, and which are zero where their gate says so."""
  if term.op is Ops.MUL:
    return [load for s in term.src for load in _factors(s)]
  if term.op is Ops.STAGE or (term.op is Ops.CAST and term.dtype.kind == term.src[0].dtype.kind == "float"):
    return _factors(term.src[0])
  zero = term.op is Ops.LOAD and (len(term.src) == 1 or term.src[1] is identity(Ops.ADD, term.dtype))
  return [term] if zero else []


def _limit(
  clause: UOp, loop: UOp, address: UOp, others: frozenset[UOp], kinds: Collection[AxisType] = AROUND
) -> tuple[bool, UOp] | None:
  """(whether a clause holds from an iteration on, not before it; which one), for a clause about where along an axis
  of an image a window reads: with the position the address moves, with all loops (of some kinds) in the same
  proportion. A mask of another kind hides terms, but these may be anything: zero times infinity is none of ours to
  leave out. None for those."""
  negated = clause.op is Ops.CMPNE and clause.src[1] is TRUE
  compared = clause.src[0] if negated else clause
  if compared.op is not Ops.CMPLT or compared.src[0].dtype.kind != "index":
    return None
  left, right = compared.src
  position = simplify(left - right)
  if merged := _counters(position, others):
    position, address = position.substitute(merged), address.substitute(merged)
  step = stride(position, loop)
  outside = position.ranges - {loop}
  if not step or not outside or outside & others or any(kind(r) not in kinds for r in outside):
    return None
  moved = stride(address, loop)
  for around in outside:
    by, far = stride(position, around), stride(address, around)
    if by is None or far is None or moved is None or by * moved != far * step:
      return None
  # the clause is step * loop + rest < 0, or that it is not
  rest, before = simplify(position - loop * step), (step > 0) is not negated
  if merged:
    rest = rest.substitute({counter: value for value, counter in merged.items()})
  return not before, simplify(-(rest // step) if step > 0 else rest // -step + 1)


def _counters(position: UOp, others: frozenset[UOp]) -> dict[UOp, UOp]:
  """Of two loops that have been merged, each counter is a quotient or a remainder of the one that is left: by those of
  a position, loops that stand for them."""
  found: dict[UOp, UOp] = {}
  for term in terms(position):
    value = term.src[0] if term.op is Ops.MUL and term.src[1].op is Ops.CONST else term
    if value.op in (Ops.FLOORDIV, Ops.FLOORMOD) and value.ranges and not value.ranges & others and value.vmin == 0:
      first = max(r.arg[0] for r in position.ranges) + 1
      found[value] = UOp.range(int(value.vmax) + 1, first + len(found), kind(in_order(value.ranges)[0]))
  return found
