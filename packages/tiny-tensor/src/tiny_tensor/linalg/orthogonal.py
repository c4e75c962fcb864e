"""What kernels of eigenvectors and of singular vectors are made of: reflections, products of them, kept rotations."""

from __future__ import annotations

from tiny_tensor.sequence import Array, Index, Sequence
from tiny_uop import Ops, UOp, dtypes

STEPS = 31  # for each value, at most: two are usual
KEPT = 16  # times n rotations are kept, before they are applied


class Orthogonal(Sequence):
  """Steps over square matrices of n = `size` rows, of which arrays have more: `rows` is a multiple of `width`. Array
  `numbers` `(batch, …, rows + width)` has rows of numbers; the array behind it `(batch, …, KEPT rows)` rotations, and
  in its first row of which rows they are."""

  def __init__(self, arrays: tuple[Array, ...], threads: int, size: int, rows: int, numbers: int) -> None:
    super().__init__(arrays, threads)
    self.size, self.rows, self.numbers, self.rotations = size, rows, numbers, numbers + 1
    self.width = self.shapes[numbers][2] - rows
    self.strips = rows // self.width
    self.zero = UOp.const(arrays[numbers][1], 0)
    self.one, self.two = self.zero.const_like(1), self.zero.const_like(2)

  def fill(self, b: UOp, target: int, source: int, first: int = 0) -> None:
    """The rows of `target` from `first` on are those of a matrix, and all numbers are 0."""
    row, i, lane = self.range(self.rows), self.range(self.strips), self.lanes(self.width)
    place = (row, i * self.width + lane)
    self.store(target, (b, first + row, place[1]), self.load(source, b, *place), row, i, lane)
    row, i, lane = self.range(self.shapes[self.numbers][1]), self.range(self.strips + 1), self.lanes(self.width)
    self.store(self.numbers, (b, row, i * self.width + lane), self.zero, row, i, lane)

  def identity(self, b: UOp, target: int, first: Index = 0, start: Index = 0) -> None:
    """The rows of `target` from `first` on are those of the identity, from column `start` on."""
    row, i, lane = self.range(self.rows), self.range(self.strips), self.lanes(self.width)
    column = i * self.width + lane
    self.store(target, (b, first + row, start + column), column.eq(row).where(self.one, self.zero), row, i, lane)

  def copied(self, b: UOp, source: int, of: UOp, count: int) -> None:
    """The first `count` rows of numbers are those of matrix `of` in another array."""
    row, i, lane = self.range(count), self.range(self.strips + 1), self.lanes(self.width)
    place = (row, i * self.width + lane)
    self.store(self.numbers, (b, *place), self.load(source, of, *place), row, i, lane)

  def whole(self, value: UOp, most: int) -> UOp:
    """An int32 as an index from 0 to `most`."""
    return value.cast(dtypes.index).maximum(0).minimum(most)

  def number_of(self, b: UOp, row: int, place: Index) -> UOp:
    """One of the numbers."""
    return self.load(self.numbers, b, row, place)

  def coupled(self, b: UOp, diagonal: int, beside: int, small: UOp, *loops: UOp) -> tuple[UOp, UOp]:
    """(its int32 number, whether it is) of each row that more than next to nothing ties to the one behind it: numbers
    `beside` a `diagonal`. The loops are over strips and lanes."""
    column = loops[0] * self.width + loops[1]
    around = size(self.number_of(b, diagonal, column)) + size(self.number_of(b, diagonal, column + 1))
    tied = small * around + small * small < size(self.number_of(b, beside, column))
    return column.cast(dtypes.int32), tied

  def reflector(self, b: UOp, array: int, row: UOp, head: UOp, value: int, factor: int, at: UOp) -> UOp:
    """tau of the reflection 1 - tau v vᵀ that leaves of a row, from column `head` on, only that element: which goes to
    the numbers of row `value`, as tau to those of row `factor`, in place `at`. The row becomes v, from the strip of
    column `at` on, with 0 before the head."""
    width, first = self.width, at // self.width
    count = self.strips - first

    def beyond(i: UOp, lane: UOp) -> UOp:
      column = (first + i) * width + lane
      return (column > head).where(self.load(array, b, row, column), self.zero)

    i, lane = self.terms(count), self.all_lanes(width)
    leading = self.keep(self.load(array, b, row, head))
    most = self.keep(size(beyond(i, lane)).reduce(Ops.MAX, i, lane).maximum(size(leading)))
    scale = self.keep(most.eq(self.zero).where(self.one, most))  # nothing overflows
    i, lane = self.terms(count), self.all_lanes(width)
    part = beyond(i, lane) / scale
    square = self.keep((part * part).reduce(Ops.ADD, i, lane))
    none = square.eq(self.zero)
    length = ((leading / scale) * (leading / scale) + square).sqrt() * scale
    # away from the element that is there: nothing cancels
    new = self.keep(none.where(leading, (leading < self.zero).where(length, length * -1)))
    tau = self.keep(none.where(self.zero, (new - leading) / none.where(self.one, new)))
    divisor = self.keep(none.where(self.one, leading - new))
    self.store(self.numbers, (b, value, at), new)
    self.store(self.numbers, (b, factor, at), tau)
    i, lane = self.range(count), self.lanes(width)
    column = (first + i) * width + lane
    element = column.eq(head).where(self.one, beyond(i, lane) / divisor)
    self.store(array, (b, row, column), element, i, lane)
    return tau

  def rotate(
    self, b: UOp, count: UOp, cosines: Index, target: int, matrix: UOp, first: Index = 0, start: Index = 0
  ) -> None:
    """Apply the kept rotations to pairs of rows of a matrix of `target`, from one to the next in a block of columns: it
    stays in the cache (Van Zee, van de Geijn & Quintana-Ortí, 2014). Their sines are in the row behind that of their
    cosines; the rows begin with `first`, and the columns with `start`."""
    together = max(k for k in (8, 4, 2, 1) if self.strips % k == 0)
    with self.loop(self.strips // together) as block, self.loop(count) as step:
      row = first + self.number(self.rotations, b, 0, step, below=self.size - 1)
      cosine = self.keep(self.load(self.rotations, b, cosines, step))
      sine = self.keep(self.load(self.rotations, b, cosines + 1, step))
      i, lane = self.written(together), self.lanes(self.width)
      place = start + (block * together + i) * self.width + lane
      x, y = self.load(target, matrix, row, place), self.load(target, matrix, row + 1, place)
      upper = self.at(target, matrix, row, place).store(cosine * x + sine * y)
      lower = self.at(target, matrix, row + 1, place).store(cosine * y - sine * x)
      self.step(UOp.group(upper, lower), i, lane)

  def rotation(self, x: UOp, y: UOp) -> tuple[UOp, UOp, UOp]:
    """(cosine, sine, length) of the rotation that turns (x, y) to (length, 0)."""
    length = self.keep((x * x + y * y).sqrt())
    none = length.eq(self.zero)
    divisor = self.keep(none.where(self.one, length))
    return self.keep(none.where(self.one, x / divisor)), self.keep(y / divisor), length


def size(value: UOp) -> UOp:
  """The absolute value."""
  return (value < value.const_like(0)).where(value * -1, value)
