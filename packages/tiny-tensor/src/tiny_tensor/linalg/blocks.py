"""Reflections applied to rows in blocks of products: I - W T Wᵀ (Schreiber & Van Loan, 1989). Two kernels.

What a condensed form of a matrix has left of it are reflections 1 - tau w wᵀ, their vectors in rows: that of row k is 0
before column k. Those of a matrix are a side; a matrix may have two, from the left and from the right.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from tiny_tensor.linalg.triangles import TILE
from tiny_tensor.sequence import Array, Sequence, called
from tiny_uop import AxisType, Ops, UOp

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor


@cache
def blocking(arrays: tuple[Array, ...], threads: int, sides: int, factor: int) -> UOp:
  """(Tᵀ of each panel of as many reflections as it has rows, products of vectors) of reflections, whose tau stand in
  the numbers' rows from `factor` on. Row j of Tᵀ is tau_j on the diagonal, and before it the rows above times the
  products of vector j with theirs, times -tau_j."""
  s = Sequence(arrays, threads)
  (batch, every, width, _), _, (_, _, rows), _ = s.shapes
  zero, panels = UOp.const(arrays[0][1], 0), every // sides
  with s.loop(batch * every, AxisType.GLOBAL) as which:
    b, panel = which // every, which % every
    side, first, strip = panel // panels, panel * width, panel % panels
    j, four, i = s.range(width // TILE) if s.thread is None else s.thread, s.written(TILE), s.range(width)
    other, lane = s.terms(rows // width - strip), s.all_lanes(width)
    own = j if s.thread is not None else j * TILE + four
    column = (strip + other) * width + lane
    product = (s.load(2, b, first + own, column) * s.load(2, b, first + i, column)).reduce(Ops.ADD, other, lane)
    s.store(1, (b, panel, i, own), product, *((i, j, four) if s.thread is None else (i, j)))
    with s.loop(width) as n:
      tau = s.keep(s.load(3, b, factor + side, strip * width + n))
      lane, term = s.lanes(width), s.terms(n)
      known = (s.load(1, b, panel, term, n) * s.load(0, b, panel, term, lane)).reduce(Ops.ADD, term) * tau * -1
      s.store(0, (b, panel, n, lane), (lane < n).where(known, lane.eq(n).where(tau, zero)), lane)
  return s.kernel("reflection_blocks")


@cache
def applying(arrays: tuple[Array, ...], threads: int, sides: int) -> UOp:
  """(rows after all reflections of their side, products) of rows, reflections and `blocking`'s Tᵀ: each tile of rows by
  itself, and of the reflections the last one first."""
  s = Sequence(arrays, threads)
  (batch, every, rows), *_, (_, _, _, width) = s.shapes
  strips, tiles, some = rows // width, every // width, min(2 * TILE, width)
  with s.loop(batch * tiles, AxisType.GLOBAL) as which:
    b, tile = which // tiles, which % tiles
    side, first = tile // strips, tile * width

    def product(panel: UOp, r: UOp, k: UOp) -> UOp:
      i, lane = s.terms(strips - panel), s.all_lanes(width)
      column = (panel + i) * width + lane
      vector = s.load(3, b, (side * strips + panel) * width + k, column)
      return (s.load(0, b, first + r, column) * vector).reduce(Ops.ADD, i, lane)

    r, i, lane = s.range(width), s.range(strips), s.lanes(width)
    place = (b, first + r, i * width + lane)
    s.store(0, place, s.load(2, *place), r, i, lane)
    with s.loop(strips) as step:
      panel = strips - 1 - step
      if s.thread is None:
        four, two, r, k = s.written(TILE), s.written(2), s.range(width // TILE), s.range(width // 2)
        value = product(panel, r * TILE + four, k * 2 + two)
        s.store(1, (b, tile, 0, (r * TILE + four) * width + k * 2 + two), value, r, k, four, two)
      else:
        r = s.range(width)
        s.store(1, (b, tile, 0, r * width + s.thread), product(panel, r, s.thread), r, s.thread)
      r, four, k, j = s.range(width // some), s.written(some), s.lanes(width), s.terms(width)
      value = s.load(1, b, tile, 0, (r * some + four) * width + j) * s.load(4, b, side * strips + panel, j, k)
      s.store(1, (b, tile, 1, (r * some + four) * width + k), value.reduce(Ops.ADD, j), r, four, k)
      r, i, four, lane, k = (
        s.range(width // some), s.range(strips - panel), s.written(some), s.lanes(width), s.terms(width),
      )  # fmt: skip
      place = (b, first + r * some + four, (panel + i) * width + lane)
      vector = s.load(3, b, (side * strips + panel) * width + k, place[2])
      change = (s.load(1, b, tile, 1, (r * some + four) * width + k) * vector).reduce(Ops.ADD, k)
      s.store(0, place, s.load(0, *place) - change, r, i, four, lane)
  return s.kernel("reflected_rows")


def reflected_rows(target: Tensor, vectors: Tensor, numbers: Tensor, factor: int, width: int) -> Tensor:
  """Rows `(batch, sides·n, n)`, each v as H₀ H₁ … v, where H are the reflections of its side: `vectors` of the same
  shape, and their tau in the rows of `numbers` `(batch, …, n + width)` from `factor` on. n is a multiple of `width`."""
  batch, every, n = (int(s) for s in target.shape)
  sides, dtype = every // n, target.dtype
  square = ((batch, every // width, width, width), dtype)
  blocks, _ = called(partial(blocking, sides=sides, factor=factor), width, (square, square), vectors, numbers)
  results = ((batch, every, n), dtype), ((batch, every // width, 2, width * width), dtype)
  return called(partial(applying, sides=sides), width, results, target, vectors, blocks)[0]
