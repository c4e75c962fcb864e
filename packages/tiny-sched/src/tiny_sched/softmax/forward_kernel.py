"""The kernel of a sum weighted by a softmax: a block of rows at a time, over blocks of columns, in near memory.

A sum weighted by a softmax and the size of blocks go in; out comes a kernel that stores the sum, and if gradients want
them, the maximum and the sum of the weights of each row.

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

Milakov & Gimelshein, Online normalizer calculation for softmax, 2018; Rabe & Staats, Self-attention does not need O(n²)
memory, 2021; Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

import math

from tiny_sched.index import Index, flatten, simplify
from tiny_sched.softmax.block_loops import BlockLoops, Running, Turn
from tiny_sched.softmax.blocks import Block
from tiny_sched.softmax.weighted_sum import WeightedSum, extent, row_place
from tiny_uop import AxisType, DType, KernelInfo, Ops, Shape, UOp


def kernel_of_blocks(
  w: WeightedSum, block: Block, dtype: DType, index: Index, shape: Shape, statistics: bool = False
) -> UOp:
  """The kernel that stores the sum, of type `dtype`, at each `index` of a result of that shape in PARAM 0; what it is
  made of are the PARAMs behind it. With `statistics`, PARAM 0 has the maximum of each row and PARAM 1 the sum of its
  weights, at `row_place`, and the sum is in PARAM 2, if it has values."""
  return _Forward(w, block, statistics).kernel(dtype, index, shape)


class _Forward(BlockLoops):
  """The kernel of the forward pass; a method for each of its steps."""

  def __init__(self, w: WeightedSum, block: Block, statistics: bool) -> None:
    super().__init__(w, block)
    many, self.size = self.many, math.prod(map(extent, w.columns))
    peaks, sums, self.scales = self.near(many), self.near(many), self.near(many)
    results = None if w.values is None else self.near(self.size * many)
    self.scores = self.near(self.wide * many)
    narrow = w.dtype if w.values is None else self.as_kept(w.values).dtype
    self.narrow = narrow if narrow is w.rounded else w.dtype
    """The type in which weights are multiplied with values: that of these, where the graph rounds to it."""
    self.factors = self.scores if self.narrow is w.dtype else self.near(self.wide * many, self.narrow)
    self.first = 2 if statistics else 0
    """The number of the PARAM with the sum."""
    self.nothing, self.zero = UOp.const(w.dtype, -math.inf), UOp.const(w.dtype, 0)
    self.peaks = self.filled(peaks, many, self.nothing)
    self.sums = self.filled(sums, many, self.zero)
    self.results = None if results is None else self.filled(results, self.size * many, self.zero)

  def kernel(self, dtype: DType, index: Index, shape: Shape) -> UOp:
    w, turn = self.w, self.turns()
    scored, masks = self.scored(turn)
    peaked = self.peaked(turn, scored)
    weights = self.weighted(scored, peaked)
    summed = self.summed(turn, weights, peaked)
    if w.of_pairs is not None or self.factors is not self.scores:
      weights = self.multiplied(turn, summed, masks)
    if self.results is None:
      effect = self.kept(summed.end(turn.loop))
    else:
      done = UOp.group(summed, self.mixed(self.results, turn, weights, peaked)).end(turn.loop)
      effect = self.stored(self.results, done, dtype, index, shape)
      if self.first:
        effect = UOp.group(effect, self.kept(done))
    name = f"softmax_{math.prod(map(extent, w.rows))}x{extent(w.lane)}x{self.size}_r{extent(w.j)}"
    return UOp.sink(effect.end(*self.around), arg=KernelInfo(name))

  def scored(self, turn: Turn) -> tuple[UOp, dict[UOp, UOp]]:
    """(near memory with the scores of a block, that with masks of its pairs)."""
    w, many = self.w, self.many
    sides = {u: self.sides(u, turn) for u in w.sums()}
    j, i = self.loop(self.wide), self.loop(many)
    inner: dict[UOp, UOp] = {}
    for u, (mine, theirs) in sides.items():
      term = self.loop(u.src[1].src[0], AxisType.REDUCE)
      inner[u] = (mine(i, term) * theirs(j, term)).reduce(Ops.ADD, term)
    masks = {u: self.transposed(u, turn) for u in w.across()}
    inner |= {u: mask.index(j * many + i).load() for u, mask in masks.items()}
    score = self.at(w.score.substitute(inner), self.row(i), turn.column + j)
    if (counts := self.counts(turn, j)) is not None:
      score = counts.where(score, self.nothing)
    filled = self.scores.after(turn.loop).index(j * many + i).store(score).end(j, i)
    return self.scores.after(filled), masks

  def peaked(self, turn: Turn, scored: UOp) -> UOp:
    """The maximum of each row so far, and the scale that what was made with the one before takes."""
    i, term = self.loop(self.many), self.loop(self.wide, AxisType.REDUCE)
    peak = self.peaks.at(turn, i)
    before = peak.load()
    after = before.maximum(scored.index(term * self.many + i).load().reduce(Ops.MAX, term))
    scale = (before - _finite(after)).alu(self.w.weight.op)
    return UOp.group(self.scales.after(turn.loop).index(i).store(scale), peak.store(after)).end(i)

  def weighted(self, scored: UOp, peaked: UOp) -> UOp:
    """Near memory with weights in the places of scores."""
    j, i = self.loop(self.wide), self.loop(self.many)
    cell = scored.index(j * self.many + i)
    peak = self.peaks.memory.after(peaked).index(i).load()
    weight = (cell.load() - _finite(peak)).alu(self.w.weight.op)
    return self.scores.after(cell.store(weight).end(j, i))

  def summed(self, turn: Turn, weights: UOp, peaked: UOp) -> UOp:
    """The sum of the weights of each row so far."""
    i, term = self.loop(self.many), self.loop(self.wide, AxisType.REDUCE)
    cell, scale = self.sums.at(turn, i), self.scales.after(peaked).index(i).load()
    added = weights.index(term * self.many + i).load().reduce(Ops.ADD, term)
    return cell.store(cell.load() * scale + added).end(i)

  def multiplied(self, turn: Turn, summed: UOp, masks: dict[UOp, UOp]) -> UOp:
    """Near memory with weights as values are multiplied with: times a factor that each pair has, which their sum is
    without, and rounded."""
    j, i = self.loop(self.wide), self.loop(self.many)
    place = j * self.many + i
    value = self.scores.after(summed).index(place).load()
    if (factor := self.w.of_pairs) is not None:
      known = {u: mask.index(place).load() for u, mask in masks.items()}
      value = value * self.at(factor.substitute(known), self.row(i), turn.column + j)
    rounded = value if value.dtype is self.narrow else value.cast(self.narrow)
    return self.factors.after(self.factors.after(summed).index(place).store(rounded).end(j, i))

  def mixed(self, results: Running, turn: Turn, weights: UOp, peaked: UOp) -> UOp:
    """The results of each row so far: values times weights."""
    w, many = self.w, self.many
    assert w.values is not None
    read = self.of_columns(w.values, w.columns, turn)
    columns = {c: self.loop(c.src[0]) for c in w.columns}
    i, term = self.loop(many), self.loop(self.wide, AxisType.REDUCE)
    cell = results.at(turn, self.offset(columns) * many + i)
    value = read(term, self.offset(columns))
    added = (self.widened(weights.index(term * many + i).load()) * value).reduce(Ops.ADD, term)
    scale = self.scales.after(peaked).index(i).load()
    return cell.store(cell.load() * scale + added).end(*columns.values(), i)

  def stored(self, results: Running, done: UOp, dtype: DType, index: Index, shape: Shape) -> UOp:
    """The results of a block of rows, with what is outside of the sum."""
    w, many = self.w, self.many
    columns, i = {c: self.loop(c.src[0]) for c in w.columns}, self.loop(many)
    value = results.memory.after(done).index(self.offset(columns) * many + i).load()
    if w.outside is not None:
      known = {w.maximum: self.peaks.memory.after(done).index(i).load()}
      if w.total is not None:
        known[w.total] = self.sums.memory.after(done).index(i).load()
      value = value * self.at(w.outside.substitute(known | columns), self.row(i))
    if w.where is not None:
      value = self.at(w.where.substitute(columns), self.row(i)).where(value, self.zero)
    target = simplify(self.at(flatten(index, shape).substitute(columns), self.row(i)))
    out = UOp.param(self.first, dtype.ptr(math.prod([int(s) for s in shape])))
    stored = out.index(target).store(value if value.dtype is dtype else value.cast(dtype))
    return stored.end(i, *columns.values())

  def kept(self, done: UOp) -> UOp:
    """The maximum and the sum of each row."""
    w, i = self.w, self.loop(self.many)
    rows = math.prod(map(extent, (*w.rows, w.lane)))
    place = simplify(self.at(row_place(w), self.row(i)))
    kept = [
      UOp.param(n, w.dtype.ptr(rows)).index(place).store(held.memory.after(done).index(i).load())
      for n, held in ((0, self.peaks), (1, self.sums))
    ]
    return UOp.group(*kept).end(i)


def _finite(peak: UOp) -> UOp:
  """What is subtracted of a score: 0 where none has counted."""
  return peak.ne(-math.inf).where(peak, UOp.const(peak.dtype, 0))
