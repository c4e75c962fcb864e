"""The kernel of gradients: a block of columns of the softmax as lanes, over blocks of its rows.

The sums that pairs are made of and the sums over pairs that are wanted go in, as `gradients.py` finds them; out comes a
kernel that stores the latter, and computes the former again.

For each block of columns j there are, in near memory, the columns' side of each sum of pairs (keys and values,
transposed) and the results of columns, acc. Then for each block of rows i

    s[i, j]   = Σ_d q[i, d] · k[j, d],  dP[i, j] = Σ_c g[i, c] · v[j, c]
    P[i, j], dS[i, j] = coefficients           in their places, from s, dP and what the row has
    acc[c, j] = acc[c, j] + Σ_i P[i, j] · g[i, c], and Σ_i dS[i, j] · q[i, d]
    dq[i, d]  = dq[i, d] + Σ_j dS[i, j] · k[j, d]                     in the result itself

so that each pair is looked at once. Other blocks of columns go on with dq, so threads share the other loops only.
Where all results are for lanes, which may be the softmax's rows as well, each block is by itself. Those of workgroups
are: what columns have is filled into the memory that threads share.

Dao et al., FlashAttention, 2022; Dao, FlashAttention-2, 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiny_sched.index import ZERO, flatten, simplify
from tiny_sched.softmax.block_loops import BlockLoops, Element, Running, Turn
from tiny_sched.softmax.blocks import Block
from tiny_sched.softmax.weighted_sum import PairSum, WeightedSum, extent
from tiny_uop import AxisType, KernelInfo, Ops, UOp


def kernel_of_gradients(
  w: WeightedSum, block: Block, sums: Sequence[UOp], results: Sequence[PairSum], of_rows: dict[UOp, UOp]
) -> UOp:
  """The kernel that stores results in PARAMs from 0 on. `w` has keys as lanes, and queries as its other counter;
  `of_rows` are expressions of queries that coefficients have, and how each is made. Where all results are for lanes,
  which may be queries as well, threads may share blocks of them."""
  return _Gradients(w, block, results).kernel(sums, of_rows)


class _Gradients(BlockLoops):
  """The kernel of gradients; a method for each of its steps."""

  def __init__(self, w: WeightedSum, block: Block, results: Sequence[PairSum]) -> None:
    super().__init__(w, block)
    self.results = results
    self.outs = [UOp.param(n, r.dtype.ptr(math.prod([int(s) for s in r.shape]))) for n, r in enumerate(results)]
    self.heads = list(self.rows.values())
    self.apart = not any(r.over_lanes for r in results)
    """Whether no block of columns goes on with another's results, so that each is by itself."""
    self.zero = UOp.const(w.dtype, 0)

  def kernel(self, sums: Sequence[UOp], of_rows: dict[UOp, UOp]) -> UOp:
    w = self.w
    over_lanes = [n for n, r in enumerate(self.results) if r.over_lanes]
    of_lanes = [n for n, r in enumerate(self.results) if not r.over_lanes]
    running = {n: self.begun(n) for n in over_lanes} | {n: self.held(self.results[n]) for n in of_lanes}
    turn = self.turns()
    made = {u: self.of_row(value, turn) for u, value in of_rows.items()}
    ready = self.coefficients(turn, sums, made)
    effects = [
      (self.added_to_rows if r.over_lanes else self.added_to_lanes)(r, running[n], turn, ready[r.coefficient])
      for n, r in enumerate(self.results)
    ]
    done = UOp.group(*effects).end(turn.loop)
    group = UOp.group(*[self.stored(n, running[n].memory.after(done)) for n in of_lanes])
    name = f"softmax_gradients_{math.prod(map(extent, w.rows))}x{extent(w.j)}x{extent(w.lane)}"
    effect = group.end(*self.around) if self.apart else group.end(self.block).end(*self.heads)
    return UOp.sink(effect, arg=KernelInfo(name))

  def begun(self, n: int) -> Running:
    """A result that is summed over lanes, in its own place: 0 before the first block of lanes."""
    r = self.results[n]
    columns, j = {c: self.loop(c.src[0]) for c in r.columns}, self.loop(extent(self.w.j))
    cell = self.outs[n].after(*self.heads).index(self.target(r, columns, None, j))
    return Running(self.outs[n], cell.store(self.zero).end(j, *columns.values()))

  def held(self, r: PairSum) -> Running:
    """Near memory for a result that lanes have: 0 at first."""
    size = math.prod(map(extent, r.columns)) * self.many
    return self.filled(self.near(size), size, self.zero)

  def coefficients(self, turn: Turn, sums: Sequence[UOp], made: dict[UOp, Element]) -> dict[UOp, UOp]:
    """Near memory with each coefficient of the pairs of a block: first what the sums of pairs are, and in their places
    what is made of them."""
    many, wide = self.many, self.wide
    sides = {u: self.sides(u, turn) for u in sums}
    coefficients = list(dict.fromkeys([r.coefficient for r in self.results]))
    pairs = [self.near(wide * many) for _ in range(max(len(sums), len(coefficients)))]
    before = []
    for u, memory in zip(sums, pairs):
      mine, theirs = sides[u]
      j, i, term = self.loop(wide), self.loop(many), self.loop(u.src[1].src[0], AxisType.REDUCE)
      value = (mine(i, term) * theirs(j, term)).reduce(Ops.ADD, term)
      before.append(memory.after(turn.loop).index(j * many + i).store(value).end(j, i))
    j, i = self.loop(wide), self.loop(many)
    known = {u: memory.after(*before).index(j * many + i).load() for u, memory in zip(sums, pairs)}
    known |= {u: element(j, i) for u, element in made.items()}
    values = [self.at(c.substitute(known), self.row(i), turn.column + j) for c in coefficients]
    if (counts := self.counts(turn, j)) is not None:
      values = [counts.where(value, self.zero) for value in values]
    stores = [memory.after(*before, turn.loop).index(j * many + i).store(value) for value, memory in zip(values, pairs)]
    finished = UOp.group(*stores).end(j, i)
    return {c: memory.after(finished) for c, memory in zip(coefficients, pairs)}

  def added_to_rows(self, r: PairSum, running: Running, turn: Turn, coefficient: UOp) -> UOp:
    """What a block adds to a result that is summed over lanes."""
    columns = {c: self.loop(c.src[0]) for c in r.columns}
    j, i = self.loop(self.wide), self.loop(self.many, AxisType.REDUCE)
    coefficient = self.of_new_rows(coefficient)
    value = coefficient.index(j * self.many + i).load()
    if r.values is not None:
      value = value * self.at(r.values.substitute(columns), self.row(i))
    cell = running.at(turn, self.target(r, columns, None, turn.column + j))
    return cell.store(cell.load() + value.reduce(Ops.ADD, i)).end(j, *columns.values())

  def of_new_rows(self, coefficient: UOp) -> UOp:
    """A coefficient without lanes that the block before has as well, as the last one may."""
    if extent(self.w.lane) % self.many == 0:
      return coefficient
    memory, j, i = self.near(self.wide * self.many), self.loop(self.wide), self.loop(self.many)
    value = (self.row(i) >= self.block * self.many).where(coefficient.index(j * self.many + i).load(), self.zero)
    return memory.after(memory.after(coefficient).index(j * self.many + i).store(value).end(j, i))

  def added_to_lanes(self, r: PairSum, running: Running, turn: Turn, coefficient: UOp) -> UOp:
    """What a block adds to a result that lanes have."""
    columns = {c: self.loop(c.src[0]) for c in r.columns}
    i, j = self.loop(self.many), self.loop(self.wide, AxisType.REDUCE)
    value = coefficient.index(j * self.many + i).load()
    if r.values is not None:
      value = value * self.of_columns(r.values, r.columns, turn)(j, self.offset(columns))
    cell = running.at(turn, self.offset(columns) * self.many + i)
    return cell.store(cell.load() + value.reduce(Ops.ADD, j)).end(*columns.values(), i)

  def stored(self, n: int, memory: UOp) -> UOp:
    """A result that lanes have, from near memory to its place."""
    r = self.results[n]
    columns, i = {c: self.loop(c.src[0]) for c in r.columns}, self.loop(self.many)
    value = memory.index(self.offset(columns) * self.many + i).load()
    return self.outs[n].index(self.target(r, columns, self.row(i), None)).store(value).end(i, *columns.values())

  def of_row(self, value: UOp, turn: Turn) -> Element:
    """What queries have, which are lanes or the other counter, at a column and a lane of a block: in near memory."""
    w, around = self.w, self.around if self.apart else self.heads
    if w.lane in value.ranges:
      memory, i = self.near(self.many), self.loop(self.many)
      mine = memory.after(memory.after(*around).index(i).store(self.at(value, self.row(i))).end(i))
      return lambda _, lane: mine.index(lane).load()
    # of all columns, or where threads share that memory of one block
    size, first = (self.wide, turn.column) if self.shared else (extent(w.j), ZERO)
    memory, j = self.near(size), self.loop(size)
    ready = memory.after(*around, turn.loop) if self.shared else memory.after(*around)
    theirs = memory.after(ready.index(j).store(self.at(value, None, first + j)).end(j))
    return lambda column, _: theirs.index(column if self.shared else turn.column + column).load()

  def target(self, r: PairSum, columns: dict[UOp, UOp], row: UOp | None, column: UOp | None) -> UOp:
    """Where an element of a result is."""
    return simplify(self.at(flatten(r.index, r.shape).substitute(columns), row, column))
