"""What a sum weighted by a softmax is, and what its gradients are sums of.

What the passes find in a graph (`online_softmax.py`, `gradients.py`) goes in, as expressions of loads and loops. What
comes out are answers for who makes a kernel of it: which sums a score is made of, which of their factors belong to rows
and which to columns, and where what a row has is in memory. Dao et al., FlashAttention, 2022, has the names of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tiny_sched.conditions import linear
from tiny_sched.index import Index, flatten
from tiny_uop import DType, Ops, Shape, UOp
from tiny_uop.records import dataclass


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
  rounded: DType | None = None
  """The type that weights are rounded to before they multiply values."""

  def sums(self) -> list[UOp]:
    """The sums that a score is made of."""
    return [u for u in self.score.toposort if u.op is Ops.REDUCE]

  def is_separable(self) -> bool:
    """Whether scores are made by sums of products, of a side that only rows have and one that only columns have."""
    if not self.sums():
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
  values: UOp | None
  """What it is multiplied with, which only the counter of the sum has; None: coefficients are summed as they are."""
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


def extent(loop: UOp) -> int:
  """The number of iterations, at most."""
  return int(loop.src[0].vmax)


def row_place(w: WeightedSum) -> UOp:
  """Where the statistics of a row are."""
  loops = sorted((*w.rows, w.lane), key=lambda r: r.arg[0])
  return flatten(tuple(loops), tuple(map(extent, loops)))


def as_read(u: UOp) -> UOp:
  """An element of memory before it is widened, where a value is no more than that."""
  return u.src[0] if u.op is Ops.CAST and is_read(u.src[0]) and u.src[0].dtype.kind == "float" else u


def is_read(u: UOp) -> bool:
  """Whether a value is an element of memory as it is."""
  return u.op is Ops.LOAD
