"""Kernels of triangular factors: elimination, substitution, Cholesky's. One kernel each, in blocks.

A matrix lies in strips of `width` rows, a strip column after column: `(strips, columns, width)`. A step of elimination
factors a panel of as many columns as a strip has rows, exchanges rows of the other columns, and subtracts a product of
the panel and the rows of its strip from the strips below (right-looking; Golub & Van Loan, "Matrix computations", 3.2).
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from tiny_tensor.sequence import Array, Sequence, called
from tiny_uop import AxisType, Ops, UOp, dtypes

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor

TILE = 4  # columns that are computed side by side
BYTES = 128  # of a strip's column: two vectors of the widest kind


class Triangles(Sequence):
  """Steps of elimination and substitution. Array `work` has strips: `(batch, strips, columns, width)`."""

  def __init__(self, arrays: tuple[Array, ...], threads: int, work: int) -> None:
    super().__init__(arrays, threads)
    self.work = work
    _, self.strips, self.columns, self.width = self.shapes[work]
    self.zero = UOp.const(arrays[work][1], 0)

  def element(self, b: UOp, strip: UOp | int, column: UOp | int, lane: UOp | int) -> UOp:
    """An element of the strips."""
    return self.load(self.work, b, strip, column, lane)

  def fill(self, b: UOp, source: int, first: int) -> None:
    """Rows of an array `(batch, rows, columns)` into strips, from column `first` on."""
    i, c, lane = self.range(self.strips), self.range(self.shapes[source][2]), self.lanes(self.width)
    value = self.load(source, b, i * self.width + lane, c)
    self.store(self.work, (b, i, c + first, lane), value, i, c, lane)

  def empty(self, b: UOp, target: int, first: int, lower: bool = False) -> None:
    """Strips, from column `first` on, into rows of an array `(batch, rows, columns)`; 0 above the diagonal where only
    the `lower` triangle counts."""
    count = self.shapes[target][2]
    block = self.width if count % self.width == 0 else TILE
    i, c, r, lane = self.range(self.strips), self.range(count // block), self.range(self.width), self.lanes(block)
    if self.thread is not None:
      c, lane = self.range(count), self.lanes(self.width)
      place, row = c, lane
    else:
      place, row = c * block + lane, r
    value = self.element(b, i, place + first, row)
    if lower:
      value = (place > i * self.width + row).where(self.zero, value)
    loops = (i, c, lane) if self.thread is not None else (i, c, r, lane)
    self.store(target, (b, i * self.width + row, place), value, *loops)

  def below(self, b: UOp, strip: UOp, column: UOp, kept: UOp) -> None:
    """Column `column` of the strips from `strip` on, below the row of the same number, divided by `kept`."""
    i, lane = self.range(self.strips - strip), self.lanes(self.width)
    value = self.element(b, strip + i, column, lane)
    lower = (strip + i) * self.width + lane > column
    self.store(self.work, (b, strip + i, column, lane), lower.where(value / kept, value), i, lane, only=lower)

  def rest_of_panel(self, b: UOp, strip: UOp, k: UOp) -> None:
    """The columns of a panel behind its k-th, less that one times the elements of its row: which are those of its own
    column where the factors are symmetric."""
    column = strip * self.width + k
    i, j, lane = self.range(self.strips - strip), self.range(self.width - 1 - k), self.lanes(self.width)
    lower = (strip + i) * self.width + lane > column
    factor = lower.where(self.element(b, strip + i, column, lane), self.zero)
    across = self.element(b, strip, column, k + 1 + j) if self.symmetric else self.element(b, strip, column + 1 + j, k)
    value = self.element(b, strip + i, column + 1 + j, lane)
    self.store(self.work, (b, strip + i, column + 1 + j, lane), value - factor * across, i, j, lane, only=lower)

  symmetric = False

  def products(self, b: UOp, rows: UOp, strip: UOp, panel: UOp, tiles: UOp, first: UOp, *loops: UOp) -> None:
    """Strip `strip` less the panel's part of it times the rows of strip `rows`, or in a symmetric matrix the rows that
    the columns are, in `tiles` of columns from `first` on."""
    c, lane, k = self.written(TILE), self.lanes(self.width), self.terms(self.width)
    column = first + tiles * TILE + c
    left = self.element(b, strip, panel * self.width + k, lane)
    if self.symmetric:
      right = self.element(b, column // self.width, panel * self.width + k, column % self.width)
    else:
      right = self.element(b, rows, column, k)
    value = self.element(b, strip, column, lane)
    self.store(self.work, (b, strip, column, lane), value - (left * right).reduce(Ops.ADD, k), *loops, tiles, c, lane)

  def eliminate(self, b: UOp, pivots: int, pivot: bool, left: bool) -> None:
    """Strips become L and U, and what stands right of the matrix L⁻¹ P of itself. `left`: L's rows are exchanged, too,
    where a later pivot exchanges them."""
    width, steps = self.width, self.shapes[pivots][1]
    with self.loop(steps // width) as panel:
      first = panel * width
      with self.loop(width) as k:
        self.take_pivot(b, pivots, panel, k, pivot)
        value = self.element(b, panel, first + k, k)
        self.below(b, panel, first + k, value.eq(self.zero).where(value.const_like(1), value))
        self.rest_of_panel(b, panel, k)
      behind = first + width
      count = self.columns - behind
      if pivot:
        self.exchange_rows(b, pivots, panel, behind, count)
        if left:
          self.exchange_rows(b, pivots, panel, 0, first)
      with self.loop(count // TILE, AxisType.LOOP) as tile, self.loop(width) as k:
        c, lane = self.written(TILE), self.lanes(width)
        column = behind + tile * TILE + c
        factor = (lane > k).where(self.element(b, panel, first + k, lane), self.zero)
        value = self.element(b, panel, column, lane) - factor * self.element(b, panel, column, k)
        self.store(self.work, (b, panel, column, lane), value, c, lane, only=lane > k)
      i = self.range(self.strips - 1 - panel)
      self.products(b, panel, panel + 1 + i, panel, self.range(count // TILE), behind, i)

  def take_pivot(self, b: UOp, pivots: int, panel: UOp, k: UOp, pivot: bool) -> None:
    """The row of the greatest element of a column, its own or below, is noted and exchanged within the panel."""
    width, column = self.width, panel * self.width + k
    if not pivot:
      self.store(pivots, (b, column), column.cast(dtypes.int32))
      return

    def sizes(i: UOp, lane: UOp) -> UOp:
      value = self.element(b, panel + i, column, lane)
      size = (value < self.zero).where(value * -1, value)
      return ((panel + i) * width + lane < column).where(value.const_like(-1), size)

    i, lane = self.terms(self.strips - panel), self.all_lanes(width)
    most = self.keep(sizes(i, lane).reduce(Ops.MAX, i, lane))
    i, lane = self.terms(self.strips - panel), self.all_lanes(width)
    row, none = ((panel + i) * width + lane).cast(dtypes.int32) * -1, UOp.const(dtypes.int32, dtypes.min(dtypes.int32))
    # not by equality: of NaN there is none
    less = (sizes(i, lane) < most) | ((panel + i) * width + lane < column)
    self.store(pivots, (b, column), less.where(none, row).reduce(Ops.MAX, i, lane) * -1)
    self.exchange_rows(b, pivots, panel, panel * width, UOp.const(dtypes.index, width), k)

  def exchange_rows(
    self, b: UOp, pivots: int, panel: UOp, start: UOp | int, count: UOp, only: UOp | None = None
  ) -> None:
    """The exchanges that a panel's pivots stand for, or `only` one of them, in `count` columns."""
    together = self.thread is not None  # threads take a column each
    with self.loop((count + self.width - 1) // self.width if together else count, AxisType.LOOP) as c:
      column = start + (c * self.width + self.lanes(self.width) if together else c)
      inside = column < start + count if together else None
      read = column.minimum(start + count - 1) if together else column  # what the last one reads: none is another's
      with self.loop(self.width if only is None else 1) as n:
        k = n if only is None else only
        other = self.number(pivots, b, panel * self.width + k, below=self.strips * self.width)
        strip, lane = other // self.width, other % self.width
        one, two = self.keep(self.element(b, panel, read, k)), self.keep(self.element(b, strip, read, lane))
        self.store(self.work, (b, panel, column, k), two, only=inside)
        self.store(self.work, (b, strip, column, lane), one, only=inside)

  def substitute(self, b: UOp, first: int) -> None:
    """The columns from `first` on become U⁻¹ of themselves, from the last row up."""
    width, tiles = self.width, (self.columns - first) // TILE
    with self.loop(self.strips) as step:
      strip = step * -1 + (self.strips - 1)
      with self.loop(tiles, AxisType.LOOP) as tile, self.loop(width) as n:
        k, c, lane = n * -1 + (width - 1), self.written(TILE), self.lanes(width)
        column, own = first + tile * TILE + c, strip * width + k
        place, value = (b, strip, column, lane), self.element(b, strip, column, lane)
        found = self.element(b, strip, column, k) / self.element(b, strip, own, k)
        if self.thread is not None:  # one writes what the others are to read
          self.store(self.work, place, value / self.element(b, strip, own, k), c, lane, only=lane.eq(k))
          value, found = self.element(*place), self.element(b, strip, column, k)
        above = value - self.element(b, strip, own, lane) * found
        self.store(self.work, place, (lane < k).where(above, lane.eq(k).where(found, value)), c, lane, only=lane < k)
      i = self.range(strip)
      self.products(b, strip, i, strip, self.range(tiles), UOp.const(dtypes.index, first), i)

  def cholesky(self, b: UOp) -> None:
    """The lower triangle of symmetric strips becomes L with L Lᵀ = A."""
    with self.loop(self.strips) as panel:
      with self.loop(self.width) as k:
        column = panel * self.width + k
        root = self.keep(self.element(b, panel, column, k).sqrt())
        self.store(self.work, (b, panel, column, k), root)
        self.below(b, panel, column, root)
        self.rest_of_panel(b, panel, k)
      i = self.range(self.strips - 1 - panel)
      tiles = self.range((i + 1) * (self.width // TILE))
      self.products(b, panel, panel + 1 + i, panel, tiles, (panel + 1) * self.width, i)


# *** kernels ***


@cache
def eliminating(arrays: tuple[Array, ...], threads: int, pivot: bool) -> UOp:
  """(L and U in one, pivots, strips) of a matrix."""
  s = Triangles(arrays, threads, 2)
  with s.loop(s.shapes[0][0], AxisType.GLOBAL) as b:
    s.fill(b, 3, 0)
    s.eliminate(b, 1, pivot, True)
    s.empty(b, 0, 0)
  return s.kernel("lu")


@cache
def solving(arrays: tuple[Array, ...], threads: int, size: int) -> UOp:
  """(the solutions, strips, and pivots or nothing) of equations with a matrix of `size` rows, padded, and right-hand
  sides. Without pivots the matrix is an upper triangle."""
  s = Triangles(arrays, threads, 1)
  *_, a, right = range(len(arrays))
  square = s.shapes[a][2]
  with s.loop(s.shapes[0][0], AxisType.GLOBAL) as b:
    s.fill(b, a, 0)
    s.fill(b, right, square)
    if size < square:
      i = s.range(square - size)
      s.store(1, (b, (i + size) // s.width, i + size, (i + size) % s.width), s.zero.const_like(1), i)
    if a == 3:
      s.eliminate(b, 2, True, False)
    s.substitute(b, square)
    s.empty(b, 0, square)
  return s.kernel("solve" if a == 3 else "substitute")


@cache
def rooting(arrays: tuple[Array, ...], threads: int) -> UOp:
  """(L, strips) of a symmetric matrix."""
  s = Triangles(arrays, threads, 1)
  s.symmetric = True
  with s.loop(s.shapes[0][0], AxisType.GLOBAL) as b:
    s.fill(b, 2, 0)
    s.cholesky(b)
    s.empty(b, 0, 0, lower=True)
  return s.kernel("cholesky")


@cache
def permuting(arrays: tuple[Array, ...], threads: int) -> UOp:
  """Where each row is after exchanges."""
  s = Sequence(arrays, 0)
  (batch, rows), (_, steps) = s.shapes
  with s.loop(batch, AxisType.GLOBAL) as b:
    i = s.range(rows)
    s.store(0, (b, i), i.cast(dtypes.int32), i)
    with s.loop(steps) as k:
      other = s.number(1, b, k, below=rows)
      one, two = s.keep(s.load(0, b, k)), s.keep(s.load(0, b, other))
      s.store(0, (b, k), two)
      s.store(0, (b, other), one)
  return s.kernel("permutation")


# *** over tensors ***


def padded(a: Tensor, rows: int, columns: int) -> Tensor:
  """Matrices `(…, m, n)` as `(batch, rows, columns)` with zeros behind."""
  m, n = (int(s) for s in a.shape[-2:])
  flat = a.reshape((-1, m, n))
  return flat if (m, n) == (rows, columns) else flat.pad(((0, 0), (0, rows - m), (0, columns - n)))


def cut(a: Tensor, like: Tensor, rows: int, columns: int) -> Tensor:
  """`padded` undone: matrices of this size, with the leading axes of `like`."""
  return a._select_axis(1, 0, rows)._select_axis(2, 0, columns).reshape((*like.shape[:-2], rows, columns))


def width_of(n: int, a: Tensor) -> int:
  """Rows of a strip of matrices with `n` rows: all of them where they are few."""
  return max(min(BYTES // a.dtype.itemsize, 1 << (n - 1).bit_length()), TILE)


def up(n: int, unit: int) -> int:
  """The next multiple."""
  return -(-n // unit) * unit


def eliminated(a: Tensor, pivot: bool) -> tuple[Tensor, Tensor]:
  """(L and U in one `(…, m, n)`; the row that each step exchanged with its own, from 0, int32 `(…, min(m, n))`)."""
  m, n = (int(s) for s in a.shape[-2:])
  width, steps = width_of(m, a), min(m, n)
  rows, columns = up(m, width), up(n, width)
  x = padded(a, rows, columns)
  batch = int(x.shape[0])
  packed = ((batch, rows, columns), a.dtype)
  pivots, strips = ((batch, up(steps, width)), dtypes.int32), ((batch, rows // width, columns, width), a.dtype)
  found = called(partial(eliminating, pivot=pivot), width, (packed, pivots, strips), x)
  return cut(found[0], a, m, n), found[1]._select_axis(1, 0, steps).reshape((*a.shape[:-2], steps))


def equated(a: Tensor, b: Tensor, upper: bool) -> Tensor:
  """a⁻¹ b for matrices `(…, n, n)`, of which only the `upper` triangle counts if it says so, and `(…, n, k)`."""
  n, k = (int(s) for s in b.shape[-2:])
  width = width_of(n, a)
  rows, right = up(n, width), up(k, TILE)
  x, y = padded(a, rows, rows), padded(b, rows, right)
  batch = int(x.shape[0])
  results = [((batch, rows, right), a.dtype), ((batch, rows // width, rows + right, width), a.dtype)]
  pivots = [] if upper else [((batch, rows), dtypes.int32)]
  return cut(called(partial(solving, size=n), width, (*results, *pivots), x, y)[0], b, n, k)


def root(a: Tensor) -> Tensor:
  """L with L Lᵀ = a, for symmetric matrices `(…, n, n)`, of which the lower triangle is read."""
  n = int(a.shape[-1])
  width = width_of(n, a)
  rows = up(n, width)
  x = padded(a, rows, rows)
  batch = int(x.shape[0])
  strips = ((batch, rows // width, rows, width), a.dtype)
  return cut(called(rooting, width, (((batch, rows, rows), a.dtype), strips), x)[0], a, n, n)


def permuted(pivots: Tensor, rows: int) -> Tensor:
  """Which of `rows` rows is where, int32 `(…, rows)`, after exchanges `(…, k)`, counted from 0."""
  flat = pivots.reshape((-1, pivots.shape[-1]))
  found = called(permuting, 0, (((int(flat.shape[0]), rows), dtypes.int32),), flat)[0]
  return found.reshape((*pivots.shape[:-1], rows))
