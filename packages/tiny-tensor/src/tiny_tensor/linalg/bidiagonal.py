"""Singular values and vectors of square matrices: Golub and Kahan's bidiagonal form (1965), then QR steps.

The form is computed by one thread. The rotations of U and those of V are two parts, which both compute the steps. Then
the vectors are reflected. Golub & Van Loan, "Matrix computations", 8.6; the shift's formula is that of Demmel & Kahan
(1990).
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from tiny_tensor.linalg.blocks import reflected_rows
from tiny_tensor.linalg.orthogonal import KEPT, STEPS, Orthogonal, size
from tiny_tensor.linalg.triangles import TILE, cut, padded, up, width_of
from tiny_tensor.sequence import Array, Index, called
from tiny_uop import AxisType, Ops, UOp, dtypes

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor

DIAGONAL, BESIDE, LEFT_TAU, RIGHT_TAU, PRODUCT = range(5)  # rows of numbers
PLACE, LEFT_COSINE, LEFT_SINE, RIGHT_COSINE, RIGHT_SINE = range(5)  # rows of rotations
SIDES, NUMBERS, ROTATIONS = range(3)  # arrays, of which SIDES has two matrices for each: of what is left, and right
APART = 64  # rows of matrices whose sides are worth two parts


class Bidiagonal(Orthogonal):
  """Steps over a matrix, and rows that become its singular vectors."""

  def reflect_column(self, b: UOp, k: UOp) -> None:
    """Column k becomes 0 below the diagonal: a reflection of the rows from k on."""
    width, first, below = self.width, k // self.width, self.rows + k
    j = self.range(self.rows - k)
    self.store(SIDES, (b, k, k + j), self.load(SIDES, b, below + j, k), j)
    tau = self.reflector(b, SIDES, k, k, DIAGONAL, LEFT_TAU, k)
    first = (k + 1) // width
    i, j, lane = self.range(self.strips - first), self.terms(self.rows - k), self.lanes(width)
    column = (first + i) * width + lane
    product = (self.load(SIDES, b, k, k + j) * self.load(SIDES, b, below + j, column)).reduce(Ops.ADD, j)
    self.store(NUMBERS, (b, PRODUCT, column), (column > k).where(product * tau, self.zero), i, lane)
    j, i, lane = self.range(self.rows - k), self.range(self.strips - first), self.lanes(width)
    place = (b, below + j, (first + i) * width + lane)
    change = self.load(SIDES, b, k, k + j) * self.number_of(b, PRODUCT, place[2])
    self.store(SIDES, place, self.load(SIDES, *place) - change, j, i, lane)

  def reflect_row(self, b: UOp, k: UOp) -> None:
    """Row k becomes 0 behind the element next to the diagonal: a reflection of the columns behind k."""
    own = self.rows + k
    tau = self.reflector(b, SIDES, own, k + 1, BESIDE, RIGHT_TAU, k)
    width, first = self.width, (k + 1) // self.width
    with self.loop((self.rows - k - 1 + TILE - 1) // TILE, AxisType.LOOP) as j:
      one, i, lane = self.written(TILE), self.terms(self.strips - first), self.all_lanes(width)
      row, column = 2 * self.rows - 1 - (j * TILE + one), (first + i) * width + lane
      product = (self.load(SIDES, b, row, column) * self.load(SIDES, b, own, column)).reduce(Ops.ADD, i, lane)
      self.store(NUMBERS, (b, PRODUCT, one), (row > own).where(product * tau, self.zero), one)
      i, one, lane = self.range(self.strips - first), self.written(TILE), self.lanes(width)
      place = (b, 2 * self.rows - 1 - (j * TILE + one), (first + i) * width + lane)
      change = self.number_of(b, PRODUCT, one) * self.load(SIDES, b, own, place[2])
      self.store(SIDES, place, self.load(SIDES, *place) - change, i, one, lane)

  def solve(self, b: UOp, small: UOp, matrix: UOp, sides: tuple[Index, ...]) -> None:
    """The diagonal becomes the singular values, of either sign, and the rows of `sides` their vectors."""
    n = self.size
    at = self.variable(UOp.const(dtypes.int32, n - 1))  # whose singular value is sought
    kept = self.variable(UOp.const(dtypes.int32, 0))  # rotations
    with self.loop(STEPS * n), self.where(self.get(at) >= 0):
      last = self.keep(self.get(at))
      first = self.keep(self.start(b, last, small))
      with self.where((last <= 0) | (self.get(kept) > (KEPT - 1) * n)):
        count = self.whole(self.get(kept), KEPT * self.rows)
        for side in sides:
          cosines = LEFT_COSINE + side * (RIGHT_COSINE - LEFT_COSINE)
          self.rotate(b, count, cosines, SIDES, matrix, side * self.rows)
        self.put(kept, UOp.const(dtypes.int32, 0))
      with self.where(last <= first):
        self.put(at, last - 1)
      with self.where(last > first):
        self.sweep(
          b, self.whole(first, n - 1), self.whole(last, n - 1), self.whole(self.get(kept), (KEPT - 1) * self.rows)
        )
        self.put(kept, self.get(kept) + last - first)

  def start(self, b: UOp, last: UOp, small: UOp) -> UOp:
    """The number of the first row that hangs together with row `last`: before it stands next to nothing."""
    i, lane = self.terms(self.strips), self.all_lanes(self.width)
    number, tied = self.coupled(b, DIAGONAL, BESIDE, small, i, lane)
    return ((number < last) & ~tied).where(number + 1, 0).reduce(Ops.MAX, i, lane)

  def sweep(self, b: UOp, first: UOp, last: UOp, kept: UOp) -> None:
    """An implicit QR step from row `first` to row `last`."""

    def diagonal(place: UOp) -> UOp:
      return self.number_of(b, DIAGONAL, place)

    def beside(place: UOp) -> UOp:
      return self.number_of(b, BESIDE, place)

    shift, leading = self.shift(b, last), self.keep(diagonal(first))
    none = self.keep(leading.eq(self.zero).where(self.one, leading))
    part = leading - shift * (shift / none)  # of (leading² - shift²) / leading
    x, y = self.variable(leading.eq(self.zero).where(self.zero, part)), self.variable(beside(first))
    with self.loop(last - first) as step:
      i = first + step
      cosine, sine, length = self.rotation(self.keep(self.get(x)), self.keep(self.get(y)))
      before = self.whole(i.cast(dtypes.int32) - 1, self.size)
      self.store(NUMBERS, (b, BESIDE, before), step.eq(0).where(beside(before), length), only=step > 0)
      own, across, behind = self.keep(diagonal(i)), self.keep(beside(i)), self.keep(diagonal(i + 1))
      rest, below = self.keep(cosine * across - sine * own), self.keep(cosine * behind)
      other, sine2, length = self.rotation(self.keep(cosine * own + sine * across), self.keep(sine * behind))
      self.store(NUMBERS, (b, DIAGONAL, i), length)
      further = self.keep(other * rest + sine2 * below)
      self.store(NUMBERS, (b, DIAGONAL, i + 1), other * below - sine2 * rest)
      following = self.keep((i + 1 < last).where(beside(i + 1), self.zero))
      self.put(x, further)
      self.put(y, sine2 * following)
      inner = i + 1 < last
      self.store(NUMBERS, (b, BESIDE, i + 1), inner.where(other * following, beside(i + 1)), only=inner)
      for row, value in ((RIGHT_COSINE, cosine), (RIGHT_SINE, sine), (LEFT_COSINE, other), (LEFT_SINE, sine2)):
        self.store(ROTATIONS, (b, row, kept + step), value)
      self.store(ROTATIONS, (b, PLACE, kept + step), i.cast(self.zero.dtype))
    self.store(NUMBERS, (b, BESIDE, self.whole(last.cast(dtypes.int32) - 1, self.size)), self.get(x))

  def shift(self, b: UOp, last: UOp) -> UOp:
    """The least singular value of the last two rows, [f g; 0 h]."""
    before = self.whole(last.cast(dtypes.int32) - 1, self.size)
    f, g = self.keep(size(self.number_of(b, DIAGONAL, before))), self.keep(self.number_of(b, BESIDE, before))
    h = self.keep(size(self.number_of(b, DIAGONAL, last)))
    both = self.keep(((f + h) * (f + h) + g * g).sqrt() + ((f - h) * (f - h) + g * g).sqrt())
    return self.keep(both.eq(self.zero).where(self.zero, f * 2 * (h / both.eq(self.zero).where(self.one, both))))


@cache
def bidiagonal(arrays: tuple[Array, ...], threads: int, matrix: int) -> UOp:
  """(reflections from the left, and from the right; the two diagonals and other numbers) of a matrix."""
  s = Bidiagonal(arrays, threads, matrix, arrays[SIDES][0][2], NUMBERS)
  source = 2
  with s.loop(s.shapes[SIDES][0], AxisType.GLOBAL) as b:
    s.fill(b, SIDES, source, s.rows)
    row, i, lane = s.range(s.rows), s.range(s.strips), s.lanes(s.width)
    s.store(SIDES, (b, row, i * s.width + lane), s.zero, row, i, lane)
    with s.loop(matrix - 1) as k:
      s.reflect_column(b, k)
      s.reflect_row(b, k)
    s.store(NUMBERS, (b, DIAGONAL, matrix - 1), s.load(SIDES, b, s.rows + matrix - 1, matrix - 1))
  return s.kernel("bidiagonal")


@cache
def rotating(arrays: tuple[Array, ...], threads: int, matrix: int) -> UOp:
  """(left and right vectors, singular values, rotations) of a bidiagonal form. The numbers of each part are its own."""
  (batch, _, rows), parts = arrays[SIDES][0], arrays[NUMBERS][0][1] // (BESIDE + 1)
  own = tuple([((batch * parts, shape[1] // parts, shape[2]), dtype) for shape, dtype in arrays[NUMBERS:-1]])
  s = Bidiagonal((arrays[SIDES], *own, arrays[-1]), threads, matrix, rows, NUMBERS)
  with s.loop(batch * parts, AxisType.GLOBAL) as part:
    b, sides = part // parts, (part % parts,) if parts > 1 else (0, 1)
    for side in sides:
      s.identity(b, SIDES, side * s.rows)
    s.copied(part, ROTATIONS + 1, b, BESIDE + 1)
    s.solve(part, s.zero.const_like(2.0 ** (-53 if s.zero.dtype.bits == 64 else -24)), b, sides)
  return s.kernel("singular")


def singular(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
  """(U in rows, singular values `(…, n)` in no order and of either sign, V in rows) of `(…, n, n)` whose elements are
  at most about 1."""
  n = int(a.shape[-1])
  width = width_of(n, a)
  rows = up(n, width)
  x = padded(a, rows, rows)
  batch, dtype, parts = int(x.shape[0]), a.dtype, 2 if n >= APART else 1
  both = ((batch, 2 * rows, rows), dtype)
  form = both, ((batch, PRODUCT + 1, rows + width), dtype)
  vectors, numbers = called(partial(bidiagonal, matrix=n), width, form, x)
  own = ((batch, parts * (BESIDE + 1), rows + width), dtype), ((batch, parts * (RIGHT_SINE + 1), KEPT * rows), dtype)
  sides, found, _ = called(partial(rotating, matrix=n), width, (both, *own), numbers)
  sides = reflected_rows(sides, vectors, numbers, LEFT_TAU, width)
  values = found._select_axis(1, DIAGONAL, DIAGONAL + 1)._select_axis(2, 0, n)
  u, v = (sides._select_axis(1, side * rows, (side + 1) * rows) for side in range(2))
  return cut(u, a, n, n), values.reshape(a.shape[:-1]), cut(v, a, n, n)
