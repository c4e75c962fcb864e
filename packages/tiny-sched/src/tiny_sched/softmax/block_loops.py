"""The loops and the near memory of a kernel of blocks: what the forward pass and the gradients have in common.

A sum weighted by a softmax and the size of blocks go in. Out come the parts that kernels are put together of: the loops
around a block of rows, those over blocks of columns that a mask leaves, values at the rows and columns of a block, and
near memory that is filled with one side of scores.

An iteration of an inner loop reads what other iterations of the loops before have left. The kernel IR says that with
AFTERs: memory after the loop that fills it, or inside of the loop that goes on with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from tiny_sched.conditions import conjuncts, interval_of, linear
from tiny_sched.index import ZERO, flatten, simplify, unflatten
from tiny_sched.softmax.blocks import Block
from tiny_sched.softmax.weighted_sum import WeightedSum, as_read, extent, is_read
from tiny_uop import AddrSpace, AxisType, DType, Ops, UOp

Element = Callable[[UOp, UOp], UOp]


class Turn(NamedTuple):
  """An iteration of the loop over blocks of columns."""

  loop: UOp
  column: UOp
  """The first column of the block."""
  new: UOp
  """The first of these that no block before has: the last block begins where it has as many as others."""


class Running(NamedTuple):
  """Memory that one block of columns after another goes on with."""

  memory: UOp
  filled: UOp
  """What fills it before the first."""

  def at(self, turn: Turn, place: UOp) -> UOp:
    """An element, as the block of columns before has left it."""
    return self.memory.after(self.filled, turn.loop).index(place)


class BlockLoops:
  """The loops and the near memory of one kernel."""

  def __init__(self, w: WeightedSum, block: Block) -> None:
    self.w = w
    self.ids, self.memories = count(), count()
    self.fills: dict[UOp, UOp] = {}
    """Near memory with what columns have, by its elements."""
    self.many, self.wide, self.shared = block.rows, block.columns, block.shared
    self.within = w.j.src[0].op is Ops.CONST and extent(w.j) >= self.wide
    """Whether no block of columns has some past the end."""
    self.rows = {r: self.loop(r.src[0]) for r in w.rows}
    self.block = self.loop(-(-extent(w.lane) // self.many))
    self.around = [*self.rows.values(), self.block]

  def loop(self, size: UOp | int, kind: AxisType = AxisType.LOOP) -> UOp:
    return UOp.range(size, next(self.ids), kind)

  def near(self, size: int, dtype: DType | None = None) -> UOp:
    """Memory of the kernel's own."""
    return UOp.alloc(next(self.memories), (dtype or self.w.dtype).ptr(size, AddrSpace.LOCAL))

  def as_kept(self, value: UOp) -> UOp:
    """A value as near memory has it: threads that share it have what is in memory as it is there, so that tensor cores
    can multiply it."""
    return as_read(value) if self.shared else value

  def widened(self, value: UOp) -> UOp:
    """A value of near memory to compute with."""
    return value if value.dtype is self.w.dtype else value.cast(self.w.dtype)

  def at(self, value: UOp, row: UOp | None = None, column: UOp | None = None) -> UOp:
    """A value of a block. Past the end of the columns, the last one is read once more."""
    places = dict(self.rows)
    if row is not None:
      places[self.w.lane] = row
    if column is not None:
      read = any(u.op is Ops.LOAD and self.w.j in u.ranges for u in value.toposort)
      places[self.w.j] = column if self.within or not read else column.minimum(self.w.j.src[0] - 1)
    return value.substitute(places)

  def row(self, lane: UOp | int) -> UOp:
    """The row of a lane."""
    size = extent(self.w.lane)
    first = self.block * self.many
    return simplify(first if size % self.many == 0 else first.minimum(size - self.many)) + lane

  def bounds(self) -> tuple[UOp, UOp]:
    """(first block of columns, number of blocks) that a mask leaves for a block of rows."""
    w, start, stop = self.w, ZERO, self.w.j.src[0]
    mask = _mask(w.score)
    bound = [c for c in conjuncts(simplify(mask)) if w.j in c.ranges] if mask is not None else []
    for c in bound:
      found = interval_of([c], w.j)
      if found is None or found.point is not None:
        continue
      # over a block, only what is linear in the row has its ends at those of the block
      edges = [e for e in (found.start, found.stop) if linear(e, w.lane) is not None]
      edges = [e for e in edges if not any(u.op is Ops.LOAD for u in e.toposort)]
      if found.start in edges:
        start = start.maximum(self.edge(found.start)[0])
      if found.stop in edges:
        stop = stop.minimum(self.edge(found.stop)[1])
    start, stop = simplify(start), simplify(stop)
    first = simplify(start // self.wide)
    return first, simplify(((stop + (self.wide - 1)) // self.wide - first).maximum(0))

  def turns(self) -> Turn:
    """The loop over blocks of columns."""
    first, blocks = self.bounds()
    loop = self.loop(blocks)
    new, size = simplify(first + loop) * self.wide, extent(self.w.j)
    over = self.within and size % self.wide > 0
    return Turn(loop, new.minimum(size - self.wide) if over else new, new)

  def counts(self, turn: Turn, j: UOp) -> UOp | None:
    """Whether a column of the block is one, and one that no block before has; None where all are."""
    if self.within:
      return None if turn.new is turn.column else turn.column + j >= turn.new
    return turn.column + j < self.w.j.src[0]

  def edge(self, of_row: UOp) -> tuple[UOp, UOp]:
    """(the least, the largest) of what is linear in the row, over a block of rows."""
    first, last = [self.at(of_row, self.row(n)) for n in (0, self.many - 1)]
    grows = simplify(last - first)
    if grows.vmin >= 0:
      return first, last
    return (last, first) if grows.vmax <= 0 else (first.minimum(last), first.maximum(last))

  def offset(self, columns: dict[UOp, UOp]) -> UOp:
    """Where the results at these counters of `columns` are."""
    return flatten(tuple(columns.values()), tuple([extent(c) for c in columns]))

  def sides(self, u: UOp, turn: Turn) -> tuple[Element, Element]:
    """(the rows' side of a sum at a row and a term, the columns' side at a column and a term)."""
    found, (term,) = self.w.sides(u), u.src[1:]
    assert found is not None
    mine = self.as_kept(found[0])
    memory = self.near(extent(term) * self.many, mine.dtype)
    inner, i = self.loop(term.src[0]), self.loop(self.many)
    value = self.at(mine.substitute({term: inner}), self.row(i))
    store = memory.after(*self.around).index(inner * self.many + i).store(value)
    filled = memory.after(store.end(inner, i))

    def element(row: UOp, place: UOp) -> UOp:
      return self.widened(filled.index(place * self.many + row).load())

    return element, self.of_columns(found[1], (term,), turn)

  def transposed(self, u: UOp, turn: Turn) -> UOp:
    """Near memory with an element of memory for each pair of a block, in the order of the scores."""
    memory = UOp.alloc(next(self.memories), u.dtype.ptr(self.wide * self.many, AddrSpace.LOCAL))
    j, i = self.loop(self.wide), self.loop(self.many)
    value = self.at(u, self.row(i), turn.column + j)
    return memory.after(memory.after(turn.loop).index(j * self.many + i).store(value).end(j, i))

  def of_columns(self, value: UOp, loops: tuple[UOp, ...], turn: Turn) -> Element:
    """An element of what only columns have, at a column of the block and at an offset in the other loops: as it is in
    memory, or computed into near memory for each block, once for all that use it."""
    sizes, value = tuple(map(extent, loops)), self.as_kept(value)

    def element(j: UOp, offset: UOp) -> UOp:
      return self.at(value.substitute(dict(zip(loops, unflatten(offset, sizes)))), None, turn.column + j)

    if is_read(value) and not self.shared:
      return element
    size = math.prod(sizes)
    key = simplify(value.substitute({c: UOp.range(c.src[0], n, AxisType.REDUCE) for n, c in enumerate(loops)}))
    if (filled := self.fills.get(key)) is None:
      memory, j, inner = self.near(size * self.wide, value.dtype), self.loop(self.wide), self.loop(size)
      store = memory.after(turn.loop).index(j * size + inner).store(element(j, inner))
      self.fills[key] = filled = memory.after(store.end(j, inner))
    return lambda j, offset: self.widened(filled.index(j * size + offset).load())

  def filled(self, memory: UOp, size: int, value: UOp) -> Running:
    """Memory with that value in each element, once for each block of rows."""
    i = self.loop(size)
    return Running(memory, memory.after(*self.around).index(i).store(value).end(i))


def _mask(score: UOp) -> UOp | None:
  """Where a score is not -inf, as far as a mask says so."""
  if score.op is not Ops.WHERE:
    return None
  condition, yes, no = score.src
  if no.op is Ops.CONST and no.arg == -math.inf:
    return condition
  return condition.logical_not() if yes.op is Ops.CONST and yes.arg == -math.inf else None
