"""The kernel of a sum weighted by a softmax: a block of rows at a time, over blocks of columns, in near memory.

For each block of rows i (whose counter becomes lanes of vectors) there are, in near memory, the rows' side of each
score (the queries, transposed), the running maximum m and sum l of each row, and the running results acc. Then for each
block of columns j, as in the papers below:

    s[j, i]   = score                                  from the rows' side, and the columns as they are in memory
    m'[i]     = max(m[i], max_j s[j, i])
    scale[i]  = exp(m[i] - m'[i])                      what was made with the maximum before is made smaller
    p[j, i]   = exp(s[j, i] - m'[i])
    l[i]      = l[i] · scale[i] + Σ_j p[j, i]
    acc[c, i] = acc[c, i] · scale[i] + Σ_j v[j, c] · p[j, i]

and at last out[i, c] = acc[c, i] · factors. Nothing is transposed but the rows' side, once, and the result, once; keys
and values are read where they are, an element at a time for all rows of a block. Memory is that of the results.

A score that a mask turns into -inf counts for nothing, and blocks that a mask drops for all of their rows are left out.
Where all scores of a row are -inf, so is its maximum, and 0 is subtracted instead: its sums stay 0 until it has a score
that counts. One that never has is 0/0, as in the formula.

An iteration of an inner loop reads what other iterations of the loops before have left. The kernel IR says that with
AFTERs: memory after the loop that fills it, or inside of the loop that goes on with it.

Milakov & Gimelshein, Online normalizer calculation for softmax, 2018; Rabe & Staats, Self-attention does not need O(n²)
memory, 2021; Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from tiny_sched.conditions import conjuncts, interval_of, linear
from tiny_sched.index import ZERO, Index, flatten, simplify, unflatten
from tiny_uop import AddrSpace, AxisType, DType, GroupOp, KernelInfo, Ops, Shape, UOp, dtypes
from tiny_uop.records import dataclass

ROWS = {64: 1.0, 48: 1.02, 32: 1.05}
"""Rows of a block, and how long each then takes: 64 are four vectors of most processors side by side. Fewer than the
least would leave lanes and sums side by side without work."""
COLUMNS = range(32, 97, 4)
"""Columns of a block: with their sides of a score, they stay in the first level cache."""
LEAST_SCORES = 1 << 16
"""Scores of one head, from which on this pays: fewer stay in a cache between the kernels that make and read them."""
LEAST_TIMES = 16
"""Terms of a score, at least: cheaper ones may well be made again."""
NEAR = 1 << 17
"""Bytes of near memory: a good part of a second level cache is left for keys and values."""
SQUARE = 16
"""Masks of pairs are transposed in squares."""
CHEAP = 32
"""Operations on an element of the columns' side, or of the values, which each block of rows does again."""
LEAST_HEADS = 8
"""Rows of scores that have nothing to do with each other, from which on one kernel makes all gradients: what it adds up
over the columns it adds up one after another, so that threads share nothing but these. With fewer there are two, one
for each side of a pair, which compute scores twice and whose threads share blocks as well."""


@dataclass(frozen=True)
class Block:
  """Rows and columns that a kernel looks at together."""

  rows: int
  columns: int
  shared: bool = False
  """Whether threads of a workgroup do, for whom what columns have is filled into the memory that they share."""


WORKGROUPS = tuple([Block(n, m, True) for n, m in ((64, 64), (64, 32), (32, 32), (32, 16), (16, 16))])
"""Blocks of workgroups, the best first: of larger ones each reads less memory for its work."""


@dataclass(frozen=True)
class WeightedSum:
  """Σ_j exp(score - max_j score) · of_pairs · values · outside, at the counters of the loops."""

  rows: tuple[UOp, ...]
  """The loops of the output that scores depend on, but for the `lane`."""
  lane: UOp
  """The loop over rows of which blocks are made: neither values nor the columns' side of a score depend on it."""
  columns: tuple[UOp, ...]
  """The loops of the output that only values depend on."""
  j: UOp
  """The loop of the sum."""
  score: UOp
  maximum: UOp
  """max_j score, a REDUCE."""
  total: UOp | None
  """Σ_j exp(score - maximum), a REDUCE, where a factor has it."""
  weight: UOp
  of_pairs: UOp | None
  values: UOp | None
  outside: UOp | None
  where: UOp | None
  """Where a result is not 0."""
  dtype: DType
  """The type that all is computed in."""

  def sums(self) -> list[UOp]:
    """The sums that a score is made of."""
    return [u for u in self.score.toposort if u.op is Ops.REDUCE]

  def is_separable(self) -> bool:
    """Whether scores are made by sums of products, of a side that only rows have and one that only columns have."""
    if not self.sums() or self.values is None:
      return False
    return all(
      u.arg[0] is Ops.ADD and len(u.src) == 2 and u.dtype is self.dtype and self.j in u.ranges and self.sides(u)
      for u in self.sums()
    )

  def across(self) -> list[UOp]:
    """Elements of memory that have both counters, and rows far apart: masks and biases of pairs."""
    values = [v for v in (self.score, self.of_pairs) if v is not None]
    loads = [u for v in values for u in v.toposort if u.op is Ops.LOAD and {self.lane, self.j} <= u.ranges]
    steps = {u: linear(u.src[0].src[1], self.lane) for u in loads}
    return [u for u, step in steps.items() if step is None or step[0] != 1]

  def sides(self, u: UOp) -> tuple[UOp, UOp] | None:
    """(the rows' side, the columns' side) of the products of a sum."""
    mine: list[UOp] = []
    theirs: list[UOp] = []
    for f in _product_of(u.src[0], self.dtype):
      if self.lane in f.ranges and self.j in f.ranges:
        return None
      (theirs if self.j in f.ranges else mine).append(f)
    of_rows, of_columns = product(mine, self.dtype), product(theirs, self.dtype)
    return None if of_rows is None or of_columns is None else (of_rows, of_columns)


@dataclass(frozen=True)
class PairSum:
  """Σ coefficient · values over one counter of pairs, the lane (`over_lanes`) or the other, for each of the other."""

  coefficient: UOp
  """What a pair has: an expression of the sums of pairs and of what its row and its column have."""
  values: UOp
  columns: tuple[UOp, ...]
  """The loops of the result that only values depend on."""
  over_lanes: bool
  index: Index
  shape: Shape
  dtype: DType


def _product_of(u: UOp, dtype: DType) -> Iterator[UOp]:
  """The factors of a product, each in that type."""
  if u.op is Ops.MUL:
    for s in u.src:
      yield from _product_of(s, dtype)
  elif u.op is Ops.CAST and u.src[0].op is Ops.MUL and u.src[0].dtype.kind == "float":
    yield from _product_of(u.src[0], dtype)
  else:
    yield u if u.dtype is dtype else u.cast(dtype)


def product(factors: Sequence[UOp], dtype: DType) -> UOp | None:
  """The product in one type; None of nothing."""
  found: UOp | None = None
  for f in factors:
    wide = f if f.dtype is dtype else f.cast(dtype)
    found = wide if found is None else found * wide
  return found


def block_of(w: WeightedSum, local_memory: int) -> Block | None:
  """The blocks of a kernel that is worth its while on a device with so much memory for a workgroup (0: none, and
  threads have a cache each): there are rows enough, near memory holds a block, and what each block does again is
  cheap. None where it is not."""
  long, wide = _extent(w.lane), _extent(w.j)
  if w.values is None or long * wide < LEAST_SCORES:
    return None
  sides = [(_extent(u.src[1]), *pair) for u in w.sums() if (pair := w.sides(u)) is not None]
  cheap = _work(w.values) <= CHEAP and all(_work(u) <= CHEAP for *_, u in sides)
  if not cheap or min(terms for terms, *_ in sides) < LEAST_TIMES:
    return None
  size = math.prod(map(_extent, w.columns))
  terms, theirs = sum(n for n, *_ in sides), [(size, w.values), *[(n, u) for n, _, u in sides]]

  def near(block: Block) -> int:
    """Bytes of near memory."""
    filled = sum(n for n, u in theirs if block.shared or not _is_read(u))
    return ((size + block.columns + terms + 3) * block.rows + filled * block.columns) * w.dtype.itemsize

  if any(u.dtype in (dtypes.bfloat16, dtypes.float16) for u in w.values.toposort) and local_memory:
    return None  # tensor cores multiply these
  if local_memory:
    fitting = [b for b in WORKGROUPS if b.rows <= long and b.columns <= wide and near(b) <= local_memory]
    return next((b for b in fitting if 2 * near(b) <= local_memory), fitting[0] if fitting else None)
  if any(u.dtype is dtypes.bfloat16 for value in (w.score, w.values) for u in value.toposort):
    return None  # processors have instructions for its products, which want them side by side
  if long < min(ROWS) or wide < min(COLUMNS):
    return None
  block = Block(rows_of_block(long), columns_of_block(wide))
  if w.across() and (w.j.src[0].op is not Ops.CONST or wide % block.columns or block.columns % SQUARE):
    return None
  return block if near(block) <= NEAR else None


def rows_of_block(size: int) -> int:
  """How many of so many rows a block has. The last one begins where it has as many, and computes some rows again."""
  return min((n for n in ROWS if n <= size), key=lambda n: -(-size // n) * n * ROWS[n])


def columns_of_block(size: int) -> int:
  """How many of so many columns a block has: hardly any are past the end."""
  return min(COLUMNS, key=lambda n: (-(-size // n) * n, n % SQUARE != 0, abs(n - 64)))


def _is_read(u: UOp) -> bool:
  """Whether a value is an element of memory as it is."""
  return u.op is Ops.LOAD


def _work(u: UOp) -> int:
  """Operations per element."""
  return sum(node.op in GroupOp.Elementwise and node.dtype.kind == "float" for node in u.toposort) + 99 * any(
    node.op in GroupOp.Transcendental for node in u.toposort
  )


def _extent(loop: UOp) -> int:
  """The number of iterations, at most."""
  return int(loop.src[0].vmax)


def kernel_of_blocks(
  w: WeightedSum, block: Block, dtype: DType, index: Index, shape: Shape, statistics: bool = False
) -> UOp:
  """The kernel that stores the sum, of type `dtype`, at each `index` of a result of that shape in PARAM 0; what it is
  made of are the other PARAMs. With `statistics`, PARAM 1 has the maximum of each row and PARAM 2 the sum of its
  weights, at `row_place`."""
  return _Blocks(w, block).kernel(dtype, index, shape, statistics)


def row_place(w: WeightedSum) -> UOp:
  """Where the statistics of a row are."""
  loops = sorted((*w.rows, w.lane), key=lambda r: r.arg[0])
  return flatten(tuple(loops), tuple(map(_extent, loops)))


def fits_gradients(w: WeightedSum, sums: Sequence[UOp], results: Sequence[PairSum]) -> bool:
  """Whether a kernel of gradients is worth its while; `w` has keys as lanes. Unlike the forward kernel's, its blocks
  have no iterations past an end, or done again: each is added."""
  long, wide = _extent(w.lane), _extent(w.j)
  rows, columns = rows_of_block(long), columns_of_block(wide)
  if any(r.src[0].op is not Ops.CONST for r in (*w.rows, w.lane, w.j)) or long % rows or wide % columns:
    return False
  if long * wide < LEAST_SCORES:
    return False
  sides = [(_extent(u.src[1]), *pair) for u in sums if (pair := w.sides(u)) is not None]
  held = sum(n for n, *_ in sides) + sum(math.prod(map(_extent, r.columns)) for r in results if not r.over_lanes)
  held += columns * max(len(sums), len({r.coefficient for r in results}))
  return (
    len(sides) == len(sums)
    and all(_is_read(u) for *_, u in sides)
    and all(_is_read(r.values) and r.dtype is w.dtype for r in results)
    and all(n >= LEAST_TIMES for n, *_ in sides)
    and (held * rows + wide) * w.dtype.itemsize <= NEAR
  )


def has_heads(w: WeightedSum) -> bool:
  """Whether threads have enough to do where they share nothing but heads."""
  return math.prod(map(_extent, w.rows)) >= LEAST_HEADS


def kernel_of_gradients(
  w: WeightedSum, sums: Sequence[UOp], results: Sequence[PairSum], of_rows: dict[UOp, UOp]
) -> UOp:
  """The kernel that stores results in PARAMs from 0 on. `w` has keys as lanes, and queries as its other counter;
  `of_rows` are expressions of queries that coefficients have, and how each is made. Where all results are for lanes,
  which may be queries as well, threads may share blocks of them."""
  block = Block(rows_of_block(_extent(w.lane)), columns_of_block(_extent(w.j)))
  return _Gradients(w, block).gradients(sums, results, of_rows)


Element = Callable[[UOp, UOp], UOp]


class _Blocks:
  """The loops and the near memory of one kernel."""

  def __init__(self, w: WeightedSum, block: Block) -> None:
    self.w = w
    self.ids, self.memories = count(), count()
    self.many, self.wide, self.shared = block.rows, block.columns, block.shared
    self.whole = w.j.src[0].op is Ops.CONST and _extent(w.j) % self.wide == 0
    """Whether no block of columns has some past the end."""
    self.rows = {r: self.loop(r.src[0]) for r in w.rows}
    self.block = self.loop(-(-_extent(w.lane) // self.many))
    self.around = [*self.rows.values(), self.block]

  def loop(self, extent: UOp | int, kind: AxisType = AxisType.LOOP) -> UOp:
    return UOp.range(extent, next(self.ids), kind)

  def near(self, size: int) -> UOp:
    """Memory of the kernel's own."""
    return UOp.alloc(next(self.memories), self.w.dtype.ptr(size, AddrSpace.LOCAL))

  def at(self, value: UOp, row: UOp | None = None, column: UOp | None = None) -> UOp:
    """A value of a block. Past the end of the columns, the last one is read once more."""
    places = dict(self.rows)
    if row is not None:
      places[self.w.lane] = row
    if column is not None:
      read = any(u.op is Ops.LOAD and self.w.j in u.ranges for u in value.toposort)
      places[self.w.j] = column.minimum(self.w.j.src[0] - 1) if read and not self.whole else column
    return value.substitute(places)

  def row(self, lane: UOp | int) -> UOp:
    """The row of a lane."""
    size = _extent(self.w.lane)
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

  def edge(self, of_row: UOp) -> tuple[UOp, UOp]:
    """(the least, the largest) of what is linear in the row, over a block of rows."""
    first, last = [self.at(of_row, self.row(n)) for n in (0, self.many - 1)]
    grows = simplify(last - first)
    if grows.vmin >= 0:
      return first, last
    return (last, first) if grows.vmax <= 0 else (first.minimum(last), first.maximum(last))

  def kernel(self, dtype: DType, index: Index, shape: Shape, statistics: bool) -> UOp:
    w, many, wide = self.w, self.many, self.wide
    size = math.prod(map(_extent, w.columns))
    peaks, sums, scales = self.near(many), self.near(many), self.near(many)
    results, scores = self.near(size * many), self.near(wide * many)
    nothing, zero = UOp.const(w.dtype, -math.inf), UOp.const(w.dtype, 0)

    fresh = [self.filled(peaks, many, nothing), self.filled(sums, many, zero), self.filled(results, size * many, zero)]
    first, blocks = self.bounds()
    turn = self.loop(blocks)
    column = simplify(first + turn) * wide
    sides = {u: self.sides(u, column, turn) for u in w.sums()}

    # scores
    j, i = self.loop(wide), self.loop(many)
    inner: dict[UOp, UOp] = {}
    for u, (memory, theirs) in sides.items():
      term = self.loop(u.src[1].src[0], AxisType.REDUCE)
      other = theirs(j, term)
      inner[u] = (memory.index(term * many + i).load() * other).reduce(Ops.ADD, term)
    masks = {u: self.transposed(u, column, turn) for u in w.across()}
    inner |= {u: mask.index(j * many + i).load() for u, mask in masks.items()}
    score = self.at(w.score.substitute(inner), self.row(i), column + j)
    if not self.whole:
      score = (column + j < w.j.src[0]).where(score, nothing)
    scored = scores.after(scores.after(turn).index(j * many + i).store(score).end(j, i))

    # their maximum, and what it makes of what there is
    i, term = self.loop(many), self.loop(wide, AxisType.REDUCE)
    before = peaks.after(fresh[0], turn).index(i).load()
    after = before.maximum(scored.index(term * many + i).load().reduce(Ops.MAX, term))
    scale = scales.after(turn).index(i).store((before - _finite(after)).alu(w.weight.op))
    peaked = UOp.group(scale, peaks.after(fresh[0], turn).index(i).store(after)).end(i)

    # weights
    j, i = self.loop(wide), self.loop(many)
    cell = scored.index(j * many + i)
    weight = (cell.load() - _finite(peaks.after(peaked).index(i).load())).alu(w.weight.op)
    weighted = scores.after(cell.store(weight).end(j, i))

    # sums
    i, term = self.loop(many), self.loop(wide, AxisType.REDUCE)
    cell, factor = sums.after(fresh[1], turn).index(i), scales.after(peaked)
    added = weighted.index(term * many + i).load().reduce(Ops.ADD, term)
    summed = cell.store(cell.load() * factor.index(i).load() + added).end(i)
    if w.of_pairs is not None:
      j, i = self.loop(wide), self.loop(many)
      cell = scores.after(summed).index(j * many + i)
      known = {u: mask.index(j * many + i).load() for u, mask in masks.items()}
      more = self.at(w.of_pairs.substitute(known), self.row(i), column + j)
      weighted = scores.after(cell.store(cell.load() * more).end(j, i))

    # results
    assert w.values is not None
    read = self.of_columns(w.values, w.columns, column, turn)
    columns = {c: self.loop(c.src[0]) for c in w.columns}
    i, term = self.loop(many), self.loop(wide, AxisType.REDUCE)
    cell = results.after(fresh[2], turn).index(self.offset(columns) * many + i)
    value = read(term, self.offset(columns))
    added = (weighted.index(term * many + i).load() * value).reduce(Ops.ADD, term)
    mixed = cell.store(cell.load() * factor.index(i).load() + added).end(*columns.values(), i)

    done = UOp.group(summed, mixed).end(turn)
    columns, i = {c: self.loop(c.src[0]) for c in w.columns}, self.loop(many)
    value = results.after(done).index(self.offset(columns) * many + i).load()
    if w.outside is not None:
      known = {w.maximum: peaks.after(done).index(i).load()}
      if w.total is not None:
        known[w.total] = sums.after(done).index(i).load()
      value = value * self.at(w.outside.substitute(known | columns), self.row(i))
    if w.where is not None:
      value = self.at(w.where.substitute(columns), self.row(i)).where(value, zero)
    target = simplify(self.at(flatten(index, shape).substitute(columns), self.row(i)))
    out = UOp.param(0, dtype.ptr(math.prod([int(s) for s in shape])))
    stored = out.index(target).store(value if value.dtype is dtype else value.cast(dtype))
    name = f"softmax_{math.prod(map(_extent, w.rows))}x{_extent(w.lane)}x{size}_r{_extent(w.j)}"
    effect = stored.end(i, *columns.values())
    if statistics:
      i, many_rows = self.loop(many), math.prod(map(_extent, (*w.rows, w.lane)))
      place = simplify(self.at(row_place(w), self.row(i)))
      kept = [
        UOp.param(n, w.dtype.ptr(many_rows)).index(place).store(memory.after(done).index(i).load())
        for n, memory in ((1, peaks), (2, sums))
      ]
      effect = UOp.group(effect, UOp.group(*kept).end(i))
    return UOp.sink(effect.end(*self.around), arg=KernelInfo(name))

  def offset(self, columns: dict[UOp, UOp]) -> UOp:
    return flatten(tuple(columns.values()), tuple([_extent(c) for c in columns]))

  def sides(self, u: UOp, column: UOp, turn: UOp) -> tuple[UOp, Element]:
    """(near memory with the rows' side of a sum, the columns' side at a column and a term)."""
    found, (term,) = self.w.sides(u), u.src[1:]
    assert found is not None
    memory = self.near(_extent(term) * self.many)
    inner, i = self.loop(term.src[0]), self.loop(self.many)
    value = self.at(found[0].substitute({term: inner}), self.row(i))
    filled = memory.after(*self.around).index(inner * self.many + i).store(value).end(inner, i)
    return memory.after(filled), self.of_columns(found[1], (term,), column, turn)

  def transposed(self, u: UOp, column: UOp, turn: UOp) -> UOp:
    """Near memory with an element of memory for each pair of a block, in the order of the scores."""
    memory = UOp.alloc(next(self.memories), u.dtype.ptr(self.wide * self.many, AddrSpace.LOCAL))
    j, i = self.loop(self.wide), self.loop(self.many)
    value = self.at(u, self.row(i), column + j)
    return memory.after(memory.after(turn).index(j * self.many + i).store(value).end(j, i))

  def of_columns(self, value: UOp, loops: tuple[UOp, ...], column: UOp, turn: UOp) -> Element:
    """An element of what only columns have, at a column of the block and at an offset in the other loops: as it is in
    memory, or computed into near memory for each block."""
    sizes = tuple(map(_extent, loops))
    if _is_read(value) and not self.shared:
      return lambda j, offset: self.at(value.substitute(dict(zip(loops, unflatten(offset, sizes)))), None, column + j)
    size = math.prod(sizes)
    memory, j, inner = self.near(size * self.wide), self.loop(self.wide), self.loop(size)
    made = self.at(value.substitute(dict(zip(loops, unflatten(inner, sizes)))), None, column + j)
    filled = memory.after(memory.after(turn).index(j * size + inner).store(made).end(j, inner))
    return lambda j, offset: filled.index(j * size + offset).load()

  def filled(self, memory: UOp, size: int, value: UOp) -> UOp:
    i = self.loop(size)
    return memory.after(*self.around).index(i).store(value).end(i)


class _Gradients(_Blocks):
  """The kernel of gradients: a block of columns of the softmax as lanes, over blocks of its rows.

  For each block of columns j there are, in near memory, the columns' side of each sum of pairs (keys and values,
  transposed) and the results of columns, acc. Then for each block of rows i

      s[i, j]   = Σ_d q[i, d] · k[j, d],  dP[i, j] = Σ_c g[i, c] · v[j, c]
      P[i, j], dS[i, j] = coefficients           in their places, from s, dP and what the row has
      acc[c, j] = acc[c, j] + Σ_i P[i, j] · g[i, c], and Σ_i dS[i, j] · q[i, d]
      dq[i, d]  = dq[i, d] + Σ_j dS[i, j] · k[j, d]                     in the result itself

  so that each pair is looked at once. Other blocks of columns go on with dq, so threads share the other loops only.
  """

  def gradients(self, sums: Sequence[UOp], results: Sequence[PairSum], of_rows: dict[UOp, UOp]) -> UOp:
    w, many, wide = self.w, self.many, self.wide
    zero, size, heads = UOp.const(w.dtype, 0), _extent(w.j), list(self.rows.values())
    apart = not any(r.over_lanes for r in results)
    once = self.around if apart else heads  # a block that does not go on with another's results is by itself
    outs = [UOp.param(n, r.dtype.ptr(math.prod([int(s) for s in r.shape]))) for n, r in enumerate(results)]

    # once for all blocks
    made = {u: self.of_row(value, once) for u, value in of_rows.items()}
    begun: dict[int, UOp] = {}
    for n, r in enumerate(results):
      if r.over_lanes:
        columns, j = {c: self.loop(c.src[0]) for c in r.columns}, self.loop(size)
        cell = outs[n].after(*heads).index(self.target(r, columns, None, j))
        begun[n] = cell.store(zero).end(j, *columns.values())

    # once for a block of columns
    sizes = {n: math.prod(map(_extent, r.columns)) for n, r in enumerate(results) if not r.over_lanes}
    held = {n: self.near(size * many) for n, size in sizes.items()}
    fresh = {n: self.filled(memory, sizes[n] * many, zero) for n, memory in held.items()}
    first, blocks = self.bounds()
    turn = self.loop(blocks)
    column = simplify(first + turn) * wide
    sides = {u: self.sides(u, column, turn) for u in sums}

    # what the sums of pairs are, and what is made of them
    coefficients = list(dict.fromkeys([r.coefficient for r in results]))
    pairs = [self.near(wide * many) for _ in range(max(len(sums), len(coefficients)))]
    before = []
    for u, memory in zip(sums, pairs):
      mine, theirs = sides[u]
      j, i, term = self.loop(wide), self.loop(many), self.loop(u.src[1].src[0], AxisType.REDUCE)
      value = (mine.index(term * many + i).load() * theirs(j, term)).reduce(Ops.ADD, term)
      before.append(memory.after(turn).index(j * many + i).store(value).end(j, i))
    j, i = self.loop(wide), self.loop(many)
    known = {u: memory.after(*before).index(j * many + i).load() for u, memory in zip(sums, pairs)} | made
    stores = [
      memory.after(*before, turn).index(j * many + i).store(self.at(c.substitute(known), self.row(i), column + j))
      for c, memory in zip(coefficients, pairs)
    ]
    finished = UOp.group(*stores).end(j, i)
    ready = {c: memory.after(finished) for c, memory in zip(coefficients, pairs)}

    # results
    effects = []
    for n, r in enumerate(results):
      columns = {c: self.loop(c.src[0]) for c in r.columns}
      coefficient = ready[r.coefficient]
      if r.over_lanes:
        j, i = self.loop(wide), self.loop(many, AxisType.REDUCE)
        value = coefficient.index(j * many + i).load() * self.at(r.values.substitute(columns), self.row(i))
        cell = outs[n].after(begun[n], turn).index(self.target(r, columns, None, column + j))
        effects.append(cell.store(cell.load() + value.reduce(Ops.ADD, i)).end(j, *columns.values()))
      else:
        i, j = self.loop(many), self.loop(wide, AxisType.REDUCE)
        value = coefficient.index(j * many + i).load() * self.at(r.values.substitute(columns), None, column + j)
        place = flatten(tuple(columns.values()), tuple(map(_extent, r.columns))) * many + i
        cell = held[n].after(fresh[n], turn).index(place)
        effects.append(cell.store(cell.load() + value.reduce(Ops.ADD, j)).end(*columns.values(), i))
    done = UOp.group(*effects).end(turn)
    stored = []
    for n, memory in held.items():
      r = results[n]
      columns, i = {c: self.loop(c.src[0]) for c in r.columns}, self.loop(many)
      place = flatten(tuple(columns.values()), tuple(map(_extent, r.columns))) * many + i
      value = memory.after(done).index(place).load()
      stored.append(outs[n].index(self.target(r, columns, self.row(i), None)).store(value).end(i, *columns.values()))
    name = f"softmax_gradients_{math.prod(map(_extent, w.rows))}x{size}x{_extent(w.lane)}"
    group = UOp.group(*stored)
    return UOp.sink(group.end(*self.around) if apart else group.end(self.block).end(*heads), arg=KernelInfo(name))

  def of_row(self, value: UOp, around: Sequence[UOp]) -> UOp:
    """An element of near memory with what queries have, which are lanes or the other counter."""
    w = self.w
    if w.lane in value.ranges:
      memory, i = self.near(_extent(w.lane)), self.loop(self.many)
      counter, place, made = w.lane, self.row(i), self.at(value, self.row(i))
    else:
      memory, i = self.near(_extent(w.j)), self.loop(_extent(w.j))
      counter, place, made = w.j, i, self.at(value, None, i)
    return memory.after(memory.after(*around).index(place).store(made).end(i)).index(counter).load()

  def target(self, r: PairSum, columns: dict[UOp, UOp], row: UOp | None, column: UOp | None) -> UOp:
    """Where an element of a result is."""
    return simplify(self.at(flatten(r.index, r.shape).substitute(columns), row, column))


def _finite(peak: UOp) -> UOp:
  """What is subtracted of a score: 0 where none has counted."""
  return peak.ne(-math.inf).where(peak, UOp.const(peak.dtype, 0))


def _mask(score: UOp) -> UOp | None:
  """Where a score is not -inf, as far as a mask says so."""
  if score.op is not Ops.WHERE:
    return None
  condition, yes, no = score.src
  if no.op is Ops.CONST and no.arg == -math.inf:
    return condition
  return condition.logical_not() if yes.op is Ops.CONST and yes.arg == -math.inf else None
