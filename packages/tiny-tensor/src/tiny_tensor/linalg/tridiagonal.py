"""Eigenvalues and -vectors of symmetric matrices: Householder's tridiagonal form, then QL steps.

One thread computes the form, in panels. Threads share what follows: QL steps of parts, each of which has its rotations;
merges of these; reflections of the vectors. Golub & Van Loan, "Matrix computations", 8.3.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from tiny_tensor.linalg.blocks import reflected_rows
from tiny_tensor.linalg.merging import merged
from tiny_tensor.linalg.orthogonal import KEPT, STEPS, Orthogonal, size
from tiny_tensor.linalg.triangles import TILE, cut, padded, up, width_of
from tiny_tensor.sequence import Array, Index, called
from tiny_uop import AxisType, Ops, UOp, dtypes

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor

DIAGONAL, BESIDE, TAU, PRODUCT, WITH_VECTORS, WITH_PARTNERS = range(6)  # rows of numbers
PLACE, COSINE, SINE = range(3)  # rows of rotations
MATRIX, NUMBERS, ROTATIONS = range(3)  # arrays
PARTNERS = ROTATIONS
PART = 128  # rows, at most, of parts that are solved by steps


class Tridiagonal(Orthogonal):
  """Steps over a symmetric matrix and rows that become its eigenvectors."""

  def reflect(self, b: UOp, panel: UOp, k: UOp, j: UOp) -> None:
    """Row k, the j-th of its panel, becomes 0 but next to the diagonal: the rows behind it are to be what they are less
    v wᵀ + w vᵀ, with w = p - (pᵀv tau / 2) v and p = tau A v, of which row j of the partners is w."""
    width, count = self.width, self.strips - panel
    tau = self.reflector(b, MATRIX, k, k + 1, BESIDE, TAU, k)
    self.multiply(b, panel, k)
    # A is what it was when the panel began: less what its reflections so far take from it
    for row, array, first in ((WITH_VECTORS, MATRIX, panel * width), (WITH_PARTNERS, PARTNERS, 0)):
      some, four, i, lane = (
        self.range((j + TILE - 1) // TILE),
        self.written(TILE),
        self.terms(count),
        self.all_lanes(width),
      )
      column = (panel + i) * width + lane
      product = self.load(array, b, first + some * TILE + four, column) * self.load(MATRIX, b, k, column)
      self.store(NUMBERS, (b, row, some * TILE + four), product.reduce(Ops.ADD, i, lane), some, four)
    i, lane, n = self.range(count), self.lanes(width), self.terms(j)
    column = (panel + i) * width + lane
    change = self.load(MATRIX, b, panel * width + n, column) * self.number_of(b, WITH_PARTNERS, n)
    change += self.load(PARTNERS, b, n, column) * self.number_of(b, WITH_VECTORS, n)
    value = (self.number_of(b, PRODUCT, column) - change.reduce(Ops.ADD, n)) * tau
    self.store(NUMBERS, (b, PRODUCT, column), value, i, lane)
    i, lane = self.terms(count), self.all_lanes(width)
    column = (panel + i) * width + lane
    share = self.number_of(b, PRODUCT, column) * self.load(MATRIX, b, k, column)
    share = self.keep(share.reduce(Ops.ADD, i, lane) * tau / self.two)
    i, lane = self.range(count), self.lanes(width)
    column = (panel + i) * width + lane
    value = self.number_of(b, PRODUCT, column) - self.load(MATRIX, b, k, column) * share
    self.store(PARTNERS, (b, j, column), (column > k).where(value, self.zero), i, lane)

  def multiply(self, b: UOp, panel: UOp, k: UOp) -> None:
    """The product of A and row k, from the triangle below the diagonal: a tile of rows is read from memory once, for
    their own elements of the product, and for those of the columns left of the tile's strip."""
    width, rows = self.width, min(2 * TILE, self.width)
    first = (k + 1) // rows
    with self.loop(self.rows // rows - first, AxisType.ORDER) as tile:
      start = (first + tile) * rows
      strip = start // width
      one, i, lane = self.written(rows), self.terms(strip - panel + 1), self.all_lanes(width)
      column = (panel + i) * width + lane
      product = self.load(MATRIX, b, start + one, column) * self.load(MATRIX, b, k, column)
      self.store(NUMBERS, (b, PRODUCT, start + one), product.reduce(Ops.ADD, i, lane), one)
      i, lane, one = self.range(strip - panel), self.lanes(width), self.range(rows, AxisType.UNROLL)
      column = (panel + i) * width + lane
      product = self.load(MATRIX, b, start + one, column) * self.load(MATRIX, b, k, start + one)
      value = self.number_of(b, PRODUCT, column) + product.reduce(Ops.ADD, one)
      self.store(NUMBERS, (b, PRODUCT, column), value, i, lane)

  def update(self, b: UOp, panel: UOp, row: UOp | int, first: UOp, strips: UOp, terms: UOp | int, *loops: UOp) -> None:
    """What a panel's first `terms` reflections take from a row, in `strips` from the `first` one on."""
    width = self.width
    i, lane, n = self.range(strips), self.lanes(width), self.terms(terms)
    column, own = (first + i) * width + lane, panel * width + n
    change = self.load(MATRIX, b, own, row) * self.load(PARTNERS, b, n, column)
    change += self.load(PARTNERS, b, n, row) * self.load(MATRIX, b, own, column)
    value = self.load(MATRIX, b, row, column) - change.reduce(Ops.ADD, n)
    outer, inner = loops[:1], loops[1:]
    self.store(MATRIX, (b, row, column), value, *outer, i, *inner, lane)

  def reduce(self, b: UOp) -> None:
    """The matrix becomes reflections in rows, and the numbers a tridiagonal form, a panel after another (Dongarra,
    Sorensen & Hammarling, 1989)."""
    width, rows = self.width, min(2 * TILE, self.width)
    with self.loop(self.strips) as panel:
      # updates were of the lower triangle
      i, one, lane = self.range(self.strips - panel - 1), self.range(width), self.lanes(width)
      row, column = panel * width + one, (panel + 1 + i) * width + lane
      self.store(MATRIX, (b, row, column), self.load(MATRIX, b, column, row), i, one, lane)
      with self.loop((self.size - panel * width).minimum(width)) as j:
        k = panel * width + j
        self.update(b, panel, k, panel, self.strips - panel, j)
        self.store(NUMBERS, (b, DIAGONAL, k), self.load(MATRIX, b, k, k))
        with self.where(k < self.size - 1):
          self.reflect(b, panel, k, j)
      with self.loop((self.strips - panel - 1) * (width // rows), AxisType.LOOP) as tile:
        one, row = self.written(rows), (panel + 1) * width + tile * rows
        self.update(b, panel, row + one, panel + 1, row // width - panel, width, one)

  def part(self, b: UOp, source: int, matrix: UOp, first: UOp, size_of_all: int, every: int) -> None:
    """The diagonals are those of a part of a matrix, from row `first` on, without what ties it to others. Behind the
    matrix, the diagonal is greater than any eigenvalue."""

    def number(row: int, place: UOp) -> UOp:
      return self.load(source, matrix, row, place.maximum(0).minimum(every))

    i, lane = self.terms(every // self.width), self.all_lanes(self.width)
    place = i * self.width + lane
    bound = size(number(DIAGONAL, place)) + size(number(BESIDE, place)) * 2
    bound = self.keep(bound.reduce(Ops.MAX, i, lane) * 2)
    for row in (DIAGONAL, BESIDE):
      i, lane = self.range(self.strips + 1), self.lanes(self.width)
      own = i * self.width + lane
      place, last = first + own, own.eq(self.rows - 1)
      tie = last.where(size(number(BESIDE, place)), self.zero)
      tie += (own.eq(0) & (place > 0)).where(size(number(BESIDE, place - 1)), self.zero)
      value = number(row, place)
      value = (place < size_of_all).where(value - tie, bound) if row == DIAGONAL else last.where(self.zero, value)
      self.store(NUMBERS, (b, row, own), (own < self.rows).where(value, self.zero), i, lane)

  def solve(self, b: UOp, small: UOp, start: Index) -> None:
    """The diagonal becomes the eigenvalues, the rows their vectors, whose columns begin with `start`."""
    at = self.variable(UOp.const(dtypes.int32, 0))  # whose eigenvalue is sought
    kept = self.variable(UOp.const(dtypes.int32, 0))  # rotations
    n = self.size
    with self.loop(STEPS * n), self.where(self.get(at) < n):
      first = self.keep(self.get(at))
      last = self.keep(self.end(b, first, small))
      with self.where((first >= n - 1) | (self.get(kept) > (KEPT - 1) * n)):
        self.rotate(b, self.whole(self.get(kept), KEPT * self.rows), COSINE, MATRIX, b, 0, start)
        self.put(kept, UOp.const(dtypes.int32, 0))
      with self.where(last <= first):
        self.put(at, first + 1)
      with self.where(last > first):
        self.sweep(
          b, self.whole(first, n - 1), self.whole(last, n - 1), self.whole(self.get(kept), (KEPT - 1) * self.rows)
        )
        self.put(kept, self.get(kept) + last - first)

  def end(self, b: UOp, first: UOp, small: UOp) -> UOp:
    """The number of the last row that hangs together with row `first`: behind it stands next to nothing."""
    i, lane = self.terms(self.strips), self.all_lanes(self.width)
    number, tied = self.coupled(b, DIAGONAL, BESIDE, small, i, lane)
    return (~(number < first) & ~tied).where(number * -1, 1 - self.size).reduce(Ops.MAX, i, lane) * -1

  def sweep(self, b: UOp, first: UOp, last: UOp, kept: UOp) -> None:
    """An implicit QL step from row `last` to row `first`, with Wilkinson's shift."""

    def diagonal(place: UOp | int) -> UOp:
      return self.number_of(b, DIAGONAL, place)

    beside = self.keep(self.number_of(b, BESIDE, first))
    half = self.keep((diagonal(first + 1) - diagonal(first)) / (beside * 2))
    root = (half * half + self.one).sqrt()
    shifted = diagonal(last) - diagonal(first) + beside / (half + (half < self.zero).where(root * -1, root))
    ahead, p = self.variable(shifted), self.variable(self.zero)
    c, s = self.variable(self.one), self.variable(self.one)
    with self.loop(last - first) as step:
      i = last - 1 - step
      across, old = self.keep(self.number_of(b, BESIDE, i)), self.keep(self.get(c))
      cosine, sine, length = self.rotation(self.keep(self.get(ahead)), self.keep(self.get(s) * across))
      self.store(NUMBERS, (b, BESIDE, i + 1), step.eq(0).where(self.zero, length))
      right = self.keep(diagonal(i + 1) - self.get(p))
      both = self.keep((diagonal(i) - right) * sine + cosine * old * across * 2)
      self.store(NUMBERS, (b, DIAGONAL, i + 1), right + sine * both)
      self.put(ahead, cosine * both - old * across)
      self.put(p, sine * both)
      self.put(c, cosine)
      self.put(s, sine)
      self.store(ROTATIONS, (b, COSINE, kept + step), cosine)
      self.store(ROTATIONS, (b, SINE, kept + step), sine * -1)
      self.store(ROTATIONS, (b, PLACE, kept + step), i.cast(self.zero.dtype))
    self.store(NUMBERS, (b, DIAGONAL, first), self.keep(diagonal(first) - self.get(p)))  # once, by all threads
    self.store(NUMBERS, (b, BESIDE, first), self.get(ahead))


@cache
def tridiagonal(arrays: tuple[Array, ...], threads: int, matrix: int) -> UOp:
  """(reflections, the two diagonals and other numbers, partners) of a symmetric matrix."""
  s = Tridiagonal(arrays, threads, matrix, arrays[MATRIX][0][2], NUMBERS)
  with s.loop(s.shapes[MATRIX][0], AxisType.GLOBAL) as b:
    s.fill(b, MATRIX, PARTNERS + 1)
    s.reduce(b)
  return s.kernel("tridiagonal")


@cache
def rotating(arrays: tuple[Array, ...], threads: int, matrix: int) -> UOp:
  """(eigenvectors in rows, eigenvalues, rotations) of parts of a tridiagonal form, which are one after another."""
  (batch, rows, _), (every, _, columns), (_, _, given) = (shape for shape, _ in (*arrays[:2], arrays[-1]))
  parts = every // batch
  part, width = rows // parts, columns - rows // parts
  vectors = ((every, part, rows), arrays[MATRIX][1])
  s = Tridiagonal((vectors, *arrays[1:]), threads, part if parts > 1 else matrix, part, NUMBERS)
  with s.loop(every, AxisType.GLOBAL) as which:
    first = which % parts * part
    s.identity(which, MATRIX, 0, first)
    if parts > 1:
      s.part(which, ROTATIONS + 1, which // parts, first, matrix, given - width)
    else:
      s.copied(which, ROTATIONS + 1, which, BESIDE + 1)
    s.solve(which, s.zero.const_like(2.0 ** (-53 if s.zero.dtype.bits == 64 else -24)), first)
  return s.kernel("eigen")


def eigen(a: Tensor) -> tuple[Tensor, Tensor]:
  """(eigenvalues `(…, n)`, ascending; eigenvectors in the rows of `(…, n, n)`) of symmetric matrices whose elements are
  at most about 1."""
  n = int(a.shape[-1])
  width = width_of(n, a)
  rows = up(n, width)
  x = padded(a, rows, rows)
  batch, dtype, parts = int(x.shape[0]), a.dtype, 1
  while n > parts * PART:
    parts *= 2
  part = up(-(-n // parts), width)
  every = part * parts
  form = ((batch, rows, rows), dtype), ((batch, WITH_PARTNERS + 1, rows + width), dtype), ((batch, width, rows), dtype)
  vectors, numbers, _ = called(partial(tridiagonal, matrix=n), width, form, x)
  own = (
    ((batch, every, every), dtype), ((batch * parts, BESIDE + 1, part + width), dtype),
    ((batch * parts, SINE + 1, KEPT * part), dtype),
  )  # fmt: skip
  turned, found, _ = called(partial(rotating, matrix=n), width, own, numbers)
  values = found._select_axis(1, DIAGONAL, DIAGONAL + 1)._select_axis(2, 0, part).reshape((batch, every))
  if parts > 1:
    beside = numbers._select_axis(1, BESIDE, BESIDE + 1).reshape((batch, rows + width))
    values, turned = merged(values.contiguous(), turned, beside.contiguous(), part, width)
    turned = turned._select_axis(1, 0, rows)._select_axis(2, 0, rows)
  found = cut(reflected_rows(turned.contiguous(), vectors, numbers, TAU, width), a, n, n)
  values = values._select_axis(1, 0, n).reshape(a.shape[:-1])
  if parts > 1:
    return values, found
  values, order = values.sort(-1)
  return values, found.gather(-2, order.unsqueeze(-1).broadcast_to(found.shape))
