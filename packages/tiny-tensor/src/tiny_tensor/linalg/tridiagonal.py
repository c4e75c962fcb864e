"""Eigenvalues and -vectors of symmetric matrices: Householder's tridiagonal form, then QL steps. One kernel.

Golub & Van Loan, "Matrix computations", 8.3.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from tiny_tensor.linalg.orthogonal import KEPT, STEPS, Orthogonal
from tiny_tensor.linalg.triangles import TILE, cut, padded, up, width_of
from tiny_tensor.sequence import Array, called
from tiny_uop import AxisType, Ops, UOp, dtypes

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor

DIAGONAL, BESIDE, TAU, PARTNER, PRODUCT = range(5)  # rows of numbers
PLACE, COSINE, SINE = range(3)  # rows of rotations
MATRIX, VECTORS, NUMBERS, ROTATIONS, SOURCE = range(5)  # arrays


class Tridiagonal(Orthogonal):
  """Steps over a symmetric matrix and rows that become its eigenvectors."""

  def reflect(self, b: UOp, k: UOp) -> None:
    """Row and column k become 0 but next to the diagonal: the rows behind it, less v wᵀ + w vᵀ with
    w = p - (pᵀv tau / 2) v and p = tau A v."""
    self.store(NUMBERS, (b, DIAGONAL, k), self.load(MATRIX, b, k, k))
    tau = self.reflector(b, MATRIX, k, k + 1, BESIDE, TAU, k)
    width, first = self.width, (k + 1) // self.width
    count, tiles = self.strips - first, (self.rows - k - 1 + TILE - 1) // TILE

    def own(array: int, row: UOp | int) -> UOp:
      return self.load(array, b, row, (first + i) * width + lane)

    j, one, i, lane = self.range(tiles), self.written(TILE), self.terms(count), self.all_lanes(width)
    row = self.rows - 1 - (j * TILE + one)
    product = (own(MATRIX, row) * own(MATRIX, k)).reduce(Ops.ADD, i, lane) * tau
    self.store(NUMBERS, (b, PRODUCT, row), product, j, one)
    i, lane = self.terms(count), self.all_lanes(width)
    share = self.keep((own(NUMBERS, PRODUCT) * own(MATRIX, k)).reduce(Ops.ADD, i, lane) * tau / self.two)
    i, lane = self.range(count), self.lanes(width)
    column = (first + i) * width + lane
    value = (column > k).where(own(NUMBERS, PRODUCT) - own(MATRIX, k) * share, self.zero)
    self.store(NUMBERS, (b, PARTNER, column), value, i, lane)
    j, i, one, lane = self.range(tiles), self.range(count), self.written(TILE), self.lanes(width)
    row = self.rows - 1 - (j * TILE + one)
    left = (row > k).where(self.load(MATRIX, b, k, row), self.zero)
    right = (row > k).where(self.number_of(b, PARTNER, row), self.zero)
    value = own(MATRIX, row) - (left * own(NUMBERS, PARTNER) + right * own(MATRIX, k))
    self.store(MATRIX, (b, row, (first + i) * width + lane), value, j, i, one, lane)

  def solve(self, b: UOp, small: UOp) -> None:
    """The diagonal becomes the eigenvalues, the rows their vectors."""
    at = self.variable(UOp.const(dtypes.int32, 0))  # whose eigenvalue is sought
    kept = self.variable(UOp.const(dtypes.int32, 0))  # rotations
    n = self.size
    with self.loop(STEPS * n), self.where(self.get(at) < n):
      first = self.keep(self.get(at))
      last = self.keep(self.end(b, first, small))
      with self.where((first >= n - 1) | (self.get(kept) > (KEPT - 1) * n)):
        self.rotate(b, VECTORS, self.whole(self.get(kept), KEPT * self.rows), COSINE)
        self.put(kept, UOp.const(dtypes.int32, 0))
      with self.where(last <= first):
        self.put(at, first + 1)
      with self.where(last > first):
        self.sweep(b, self.whole(first, n - 1), self.whole(last, n - 1), self.whole(self.get(kept), KEPT * self.rows))
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
  """(what is left of a matrix, its eigenvectors in rows, eigenvalues and other numbers, rotations)."""
  s = Tridiagonal(arrays, threads, matrix, MATRIX, NUMBERS)
  with s.loop(s.shapes[MATRIX][0], AxisType.GLOBAL) as b:
    s.fill(b, SOURCE)
    with s.loop(matrix - 1) as k:
      s.reflect(b, k)
    s.store(NUMBERS, (b, DIAGONAL, matrix - 1), s.load(MATRIX, b, matrix - 1, matrix - 1))
    s.multiply(b, VECTORS, MATRIX, TAU, 1)
    s.solve(b, s.zero.const_like(2.0 ** (-53 if s.zero.dtype.bits == 64 else -24)))
  return s.kernel("tridiagonal")


def eigen(a: Tensor) -> tuple[Tensor, Tensor]:
  """(eigenvalues `(…, n)`, in no order; eigenvectors in the rows of `(…, n, n)`) of symmetric matrices whose elements
  are at most about 1."""
  n = int(a.shape[-1])
  width = width_of(n, a)
  rows = up(n, width)
  x = padded(a, rows, rows)
  batch, dtype = int(x.shape[0]), a.dtype
  square = ((batch, rows, rows), dtype)
  results = square, square, ((batch, PRODUCT + 1, rows + width), dtype), ((batch, SINE + 1, KEPT * rows), dtype)
  found = called(partial(tridiagonal, matrix=n), width, results, x)
  values = found[NUMBERS]._select_axis(1, DIAGONAL, DIAGONAL + 1)._select_axis(2, 0, n)
  return values.reshape(a.shape[:-1]), cut(found[VECTORS], a, n, n)
