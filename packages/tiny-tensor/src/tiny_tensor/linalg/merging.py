"""Eigenvectors of tridiagonal matrices by divide and conquer (Cuppen, 1981): halves are solved, and merged.

Two halves differ from the whole by β v vᵀ, so that the whole has the eigenvalues of diag(d) + ρ z zᵀ, the roots of
1 + ρ Σ z²/(d - λ), and its eigenvectors are those of the halves times those of that matrix: a product. The roots are
told by their distance from the next d (Li, "Solving secular equations stably and efficiently", 1993), and the vectors
have the z for which these are the exact roots: so they are orthogonal (Gu & Eisenstat, 1995).

Equal d, and z of 0, need no rotations and no cases here: the k-th least d counts as d + k g, and z as no less than a
floor, where all of that is below rounding. Differences are (d_i - d_j) + (i - j) g: exact in all their digits.

All levels of merges have the same kernels: how long halves are is an input, 'half', and a result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

from tiny_tensor.linalg.orthogonal import size
from tiny_tensor.linalg.triangles import TILE
from tiny_tensor.sequence import Array, Sequence, called
from tiny_uop import AxisType, Ops, UOp, dtypes

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor

STEPS = 48  # for each root, at most: four are usual
# rows of facts of each d: over the norm, rank in its block, ρ z², z, the norm, ρ over it; and, by rank, d and ρ z²
VALUE, RANK, WEIGHT, PART, NORM, RHO, SORTED, SORTED_WEIGHT = range(8)
ORIGIN, NEAR, DISTANCE = range(3)  # rows of roots: the rank of the d next to it, that d, how far it is from there


class Merges(Sequence):
  """Steps over arrays whose last axis has `rows` places; blocks of two halves follow one another."""

  def __init__(self, arrays: tuple[Array, ...], threads: int, rows: int, width: int, half: int, dtype: int) -> None:
    super().__init__(arrays, threads)
    self.rows, self.width, self.strips, self.level = rows, width, rows // width, half
    self.zero = UOp.const(arrays[dtype][1], 0)
    self.one = self.zero.const_like(1)
    self.small = self.zero.const_like(2.0 ** (-53 if self.zero.dtype.bits == 64 else -24))

  def begin(self, b: UOp) -> None:
    """The length of a half is read; from it come the strips of a block, and the gap between equal d."""
    half = self.keep(self.load(self.level, b, 0).maximum(self.width).minimum(self.rows // 2))
    self.half = half.cast(dtypes.index).maximum(self.width).minimum(self.rows // 2)
    self.count = self.half * 2 // self.width
    self.gap = self.keep(self.small / (half * 2).cast(self.zero.dtype))

  def block(self, place: UOp) -> UOp:
    """The first strip of the block of a place."""
    return place // (self.half * 2) * self.count

  def place(self, first: UOp, i: UOp, lane: UOp) -> UOp:
    """A place of a block."""
    return (first + i).minimum(self.strips - 1) * self.width + lane

  def total(self, first: UOp, term: Callable[[UOp], UOp], op: Ops = Ops.ADD) -> UOp:
    """The sum of terms, given their places, over a block."""
    i, lane = self.terms(self.count), self.all_lanes(self.width)
    return self.keep(term(self.place(first, i, lane)).reduce(op, i, lane))

  def keep_index(self, value: UOp, most: int) -> UOp:
    """An index from 0 to `most` that is computed here and once."""
    return self.keep(value.cast(dtypes.int32)).cast(dtypes.index).maximum(0).minimum(most)

  def real(self, index: UOp) -> UOp:
    """An index as a number."""
    return index.cast(dtypes.int32).cast(self.zero.dtype)


@cache
def ordering(arrays: tuple[Array, ...], threads: int, width: int) -> UOp:
  """(facts, the next half) of values, vectors in rows, elements next to the diagonal, half."""
  facts, following, values, vectors, beside, half = range(6)
  batch, rows = arrays[values][0]
  s = Merges(arrays, threads, rows, width, half, values)
  with s.loop(batch, AxisType.GLOBAL) as b:
    s.begin(b)
    s.store(following, (b, 0), s.load(half, b, 0) * 2)
    with s.loop(rows // (s.half * 2)) as number:
      first = (number * s.count).minimum(s.strips - 1)
      middle = (first * width + s.half).minimum(rows - 1)
      tie = s.keep(s.load(beside, b, (middle - 1).maximum(0)))
      norm = s.total(first, lambda place: size(s.load(values, b, place)), Ops.MAX)
      norm = s.keep(norm.maximum(size(tie) * 2))
      norm = s.keep(norm.eq(s.zero).where(s.one, norm))
      rho = s.keep(size(tie) * 2 / norm)

      def part(place: UOp) -> UOp:
        return (place < middle).where(
          s.load(vectors, b, place, (middle - 1).maximum(0)),
          s.load(vectors, b, place, middle) * (tie < s.zero).where(s.one * -1, s.one),
        )

      i, lane = s.range(s.count), s.lanes(width)
      place = s.place(first, i, lane)
      s.store(facts, (b, PART, place), part(place), i, lane)
      floor = s.keep(s.small * s.gap)

      def square(place: UOp) -> UOp:
        value = s.load(facts, b, PART, place)
        return (value * value).maximum(floor)

      factor = s.keep(rho.maximum(s.small) / s.total(first, square))
      made: tuple[tuple[int, Callable[[UOp], UOp]], ...] = (
        (VALUE, lambda place: s.load(values, b, place) / norm), (SORTED, lambda place: s.load(values, b, place) / norm),
        (WEIGHT, lambda place: square(place) * factor), (NORM, lambda place: norm), (RHO, lambda place: rho),
      )  # fmt: skip
      for row, value_of in made:
        i, lane = s.range(s.count), s.lanes(width)
        place = s.place(first, i, lane)
        s.store(facts, (b, row, place), value_of(place), i, lane)
      with s.loop(s.half * 2) as one:
        own = (first * width + one).minimum(rows - 1)
        value = s.keep(s.load(facts, b, VALUE, own))

        def before(place: UOp) -> UOp:
          other = s.load(facts, b, VALUE, place)
          return ((other < value) | (other.eq(value) & (place < own))).where(s.one, s.zero)

        rank = s.keep(s.total(first, before) + s.real(first * width))
        s.store(facts, (b, RANK, own), rank)
        there = s.keep(rank.cast(dtypes.int32)).cast(dtypes.index).maximum(0).minimum(rows - 1)
        s.store(facts, (b, SORTED, there), value)
        s.store(facts, (b, SORTED_WEIGHT, there), s.load(facts, b, WEIGHT, own))
  return s.kernel("merge_order")


class Root(Merges):
  """The root of facts at place `k` of matrix `b`, told by its distance from `value`, the d of rank `origin`."""

  def start(self, facts: int, which: UOp) -> None:
    """Chooses the next d that is nearer, and between which distances from it the root is: `low`, `high`."""
    self.facts, self.b, self.k = facts, which // self.rows, which % self.rows
    self.begin(self.b)
    s, k, zero, one = self, self.k, self.zero, self.one
    self.first = s.keep_index(s.block(k), s.strips - 1)
    last = k % (s.half * 2) >= s.half * 2 - 1
    rho = s.keep(s.fact(RHO, k).maximum(s.small))
    behind = (k + 1).minimum(s.rows - 1)
    own, weight = s.keep(s.fact(SORTED, k)), s.keep(s.fact(SORTED_WEIGHT, k))
    gap = s.keep(last.where(rho, s.fact(SORTED, behind) - own + s.gap))
    other = s.keep(last.where(zero, s.fact(SORTED_WEIGHT, behind)))
    middle = s.keep(gap / 2)
    at_middle = s.total(s.first, lambda place: s.fact(WEIGHT, place) / (s.distance(place, own, s.real(k)) - middle))
    at_middle = s.keep(at_middle + one)
    below = s.keep((at_middle < zero).where(one, zero))
    right = s.keep(last.where(zero, below))  # of the middle
    is_right = zero < right
    self.origin = s.keep(s.real(k) + right)
    self.value = s.keep(is_right.where(s.fact(SORTED, behind), own))
    self.low = s.variable(is_right.where(middle * -1, (zero < below).where(middle, zero)))
    self.high = s.variable(is_right.where(zero, (zero < below).where(gap, middle)))
    self.poles = s.keep(is_right.where(gap * -1, zero)), s.keep(is_right.where(zero, gap))
    c = s.keep(at_middle + (weight - other) / middle)
    a = s.keep(is_right.where(gap * -1, gap) * c + weight + other)
    self.guess = s.quadratic(a, s.keep(is_right.where(other * -1, weight) * gap), c, gap * 2)
    self.gap_behind = gap

  def fact(self, row: int, place: UOp) -> UOp:
    """What is known of the d at a place."""
    return self.load(self.facts, self.b, row, place)

  def distance(self, place: UOp, value: UOp, rank: UOp) -> UOp:
    """From the d of a rank, which is `value`, to the d at a place."""
    return (self.fact(VALUE, place) - value) + (self.fact(RANK, place) - rank) * self.gap

  def quadratic(self, a: UOp, b: UOp, c: UOp, other: UOp) -> UOp:
    """The root of c x² - a x + b that is next to 0."""
    zero, one = self.zero, self.one
    root = self.keep((a * a - b * c * 4).maximum(zero).sqrt())
    down = c.eq(zero).where(other, (a - root) / c.eq(zero).where(one, c) / 2)
    return self.keep((zero < a).where(b * 2 / (zero < a).where(a + root, one), down))

  def between(self, found: UOp) -> UOp:
    """What is found, if it is between `low` and `high`, and else their middle."""
    inside = (self.get(self.low) < found) & (found < self.get(self.high))
    return inside.where(found, (self.get(self.low) + self.get(self.high)) / 2)

  def sums(self, t: UOp, left: bool, power: int) -> UOp:
    """Of weights over distances from t, or their squares: of those up to the root's own d, or of those behind it."""

    def term(place: UOp) -> UOp:
      apart = self.distance(place, self.value, self.origin) - t
      found = self.fact(WEIGHT, place) / apart
      mine = self.fact(RANK, place) < self.real(self.k + 1)
      return (mine if left else ~mine).where(found / apart if power == 2 else found, self.zero)

    return self.total(self.first, term)

  def improve(self, at: UOp, done: UOp) -> None:
    """One step from the distance `at`: narrows `low` and `high`."""
    s, (one_pole, other_pole) = self, self.poles
    t = s.keep(s.get(at))
    psi, psi_slope = s.sums(t, True, 1), s.sums(t, True, 2)
    phi, phi_slope = s.sums(t, False, 1), s.sums(t, False, 2)
    f = s.keep(s.one + psi + phi)
    s.put(s.low, (f < s.zero).where(t, s.get(s.low)))
    s.put(s.high, (f < s.zero).where(s.get(s.high), t))
    one_way, other_way = s.keep(one_pole - t), s.keep(other_pole - t)
    c = s.keep(f - one_way * psi_slope - other_way * phi_slope)
    a = s.keep((one_way + other_way) * f - one_way * other_way * (psi_slope + phi_slope))
    new = s.keep(t + s.quadratic(a, s.keep(one_way * other_way * f), c, s.gap_behind * 2))
    new = s.keep(s.between(new))
    enough = ~(s.small * 4 * (s.one - psi + phi) < size(f)) | new.eq(t)
    s.put(done, enough.where(UOp.const(dtypes.int32, 1), UOp.const(dtypes.int32, 0)))
    s.put(at, enough.where(t, new))


@cache
def rooting(arrays: tuple[Array, ...], threads: int, width: int) -> UOp:
  """The roots of facts, half: each by itself."""
  roots, facts, half = range(3)
  (batch, _, rows), _ = arrays[roots]
  s = Root(arrays, threads, rows, width, half, facts)
  with s.loop(batch * rows, AxisType.GLOBAL) as which:
    s.start(facts, which)
    at = s.variable(s.between(s.guess))
    done = s.variable(UOp.const(dtypes.int32, 0))
    with s.loop(STEPS), s.where(s.get(done) < 1):
      s.improve(at, done)
    s.store(roots, (s.b, ORIGIN, s.k), s.origin)
    s.store(roots, (s.b, NEAR, s.k), s.value)
    s.store(roots, (s.b, DISTANCE, s.k), s.get(at))
  return s.kernel("merge_roots")


@cache
def correcting(arrays: tuple[Array, ...], threads: int, width: int) -> UOp:
  """The z for which roots are exact (Löwner) of facts, roots, half."""
  parts, facts, roots, half = range(4)
  batch, rows = arrays[parts][0]
  s = Merges(arrays, threads, rows, width, half, facts)
  with s.loop(batch * rows, AxisType.GLOBAL) as which:
    b, own = which // rows, which % rows
    s.begin(b)
    first = s.keep_index(s.block(own), s.strips - 1)
    end = s.keep(s.real(first * width + s.half * 2 - 1))
    value, rank = s.keep(s.load(facts, b, VALUE, own)), s.keep(s.load(facts, b, RANK, own))
    rho = s.keep(s.load(facts, b, RHO, own).maximum(s.small))

    def ratio(place: UOp) -> UOp:
      k = s.real(place)
      before, shifted = k < rank, place + 1
      other = before.where(s.load(facts, b, SORTED, place), s.load(facts, b, SORTED, shifted))
      apart = (other - value) + ((k - rank) + before.where(s.zero, s.one)) * s.gap
      near, origin = s.load(roots, b, NEAR, place), s.load(roots, b, ORIGIN, place)
      distance = (near - value) + (origin - rank) * s.gap + s.load(roots, b, DISTANCE, place)
      return distance / (before | (k < end)).where(apart, rho)

    found = size(s.total(first, ratio, Ops.MUL)).sqrt()
    s.store(parts, (b, own), (s.load(facts, b, PART, own) < s.zero).where(found * -1, found))
  return s.kernel("merge_parts")


@cache
def multiplying(arrays: tuple[Array, ...], threads: int, width: int) -> UOp:
  """(values, vectors in rows, how they mix those of the halves) of facts, roots, parts, vectors of the halves, half."""
  values, vectors, mixed, facts, roots, parts, halves, half = range(8)
  batch, rows = arrays[values][0]
  some = min(2 * TILE, width)
  s = Merges(arrays, threads, rows, width, half, facts)
  with s.loop(batch * s.strips, AxisType.GLOBAL) as which:
    b, strip = which // s.strips, which % s.strips
    s.begin(b)
    first = s.keep_index(s.block(strip * width), s.strips - 1)
    with s.loop(width) as one:
      k = strip * width + one
      near, origin = s.keep(s.load(roots, b, NEAR, k)), s.keep(s.load(roots, b, ORIGIN, k))
      distance, tied = s.keep(s.load(roots, b, DISTANCE, k)), s.small < s.keep(s.load(facts, b, RHO, k))
      i, lane = s.range(s.count), s.lanes(width)
      place = s.place(first, i, lane)
      rank = s.load(facts, b, RANK, place)
      apart = (s.load(facts, b, VALUE, place) - near) + (rank - origin) * s.gap - distance
      share = s.load(parts, b, place) * (distance * -1 / apart)
      alone = (rank < s.real(k) + s.one / 2) & (s.real(k) - s.one / 2 < rank)
      s.store(mixed, (b, k, place), tied.where(share, alone.where(s.one, s.zero)), i, lane)
      norm = s.total(first, lambda place: s.load(mixed, b, k, place) * s.load(mixed, b, k, place))
      norm = s.keep(s.one / norm.sqrt())
      i, lane = s.range(s.count), s.lanes(width)
      place = s.place(first, i, lane)
      s.store(mixed, (b, k, place), s.load(mixed, b, k, place) * norm, i, lane)
      shift = (origin - s.real(first * width + s.half)) * s.gap + distance
      value = tied.where(near + shift, s.load(facts, b, SORTED, k)) * s.load(facts, b, NORM, k)
      s.store(values, (b, k), value)
    group, i, four, lane, j = (
      s.range(width // some), s.range(s.count), s.written(some), s.lanes(width), s.terms(s.half),
    )  # fmt: skip
    k, column = strip * width + group * some + four, s.place(first, i, lane)
    own = ((first + i // (s.count // 2) * (s.count // 2)) * width + j).minimum(rows - 1)
    value = (s.load(mixed, b, k, own) * s.load(halves, b, own, column)).reduce(Ops.ADD, j)
    s.store(vectors, (b, k, column), value, group, i, four, lane)
  return s.kernel("merge_vectors")


def merged(values: Tensor, vectors: Tensor, beside: Tensor, leaf: int, width: int) -> tuple[Tensor, Tensor]:
  """(eigenvalues `(batch, n)`, ascending; eigenvectors in the rows of `(batch, n, n)`) of tridiagonal matrices, from
  those of their parts of `leaf` rows, which are blocks on the diagonal of `vectors`, and do not have the elements
  `beside` the diagonal between parts: there are a power of two of parts, at least two."""
  batch, rows = (int(n) for n in values.shape)
  dtype = values.dtype
  half = values._filled((batch, 1), leaf, dtypes.int32)
  row, square, length = ((batch, rows), dtype), ((batch, rows, rows), dtype), leaf
  facts = ((batch, SORTED_WEIGHT + 1, rows + width), dtype)
  while length < rows:
    known, following = called(
      partial(ordering, width=width), width, (facts, ((batch, 1), dtypes.int32)), values, vectors, beside, half
    )
    roots = called(partial(rooting, width=width), width, (((batch, DISTANCE + 1, rows), dtype),), known, half)[0]
    parts = called(partial(correcting, width=width), width, (row,), known, roots, half)[0]
    values, vectors, _ = called(
      partial(multiplying, width=width), width, (row, square, square), known, roots, parts, vectors, half
    )
    half, length = following, length * 2
  return values, vectors
