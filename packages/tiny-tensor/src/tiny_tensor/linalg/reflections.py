"""Q and R by Householder's reflections (1958), in one kernel, by blocks I - V T Vᵀ (Schreiber & Van Loan, 1989)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tiny_tensor.autograd.custom_gradient import Grads, with_gradient
from tiny_tensor.linalg.orthogonal import size
from tiny_tensor.linalg.solving import LOWER, UPPER, equations, solved
from tiny_tensor.linalg.triangles import TILE, Triangles, cut, padded, up, width_of
from tiny_tensor.sequence import Array, called
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor


class Reflections(Triangles):
  """Steps over strips of a matrix, and next to it of Q. `vectors` are strips of V, `blocks` T and its transpose for
  each panel, `near` a tile of VᵀA and of T times that, transposed: `(batch, 2, width, width)`."""

  def __init__(self, arrays: tuple[Array, ...], threads: int, work: int) -> None:
    super().__init__(arrays, threads, work)
    self.vectors, self.blocks, self.near = work + 1, work + 2, work + 3

  def dot(self, b: UOp, strip: UOp, v: UOp | int, array: int, column: UOp | int) -> UOp:
    """The product of column v of V and a column of strips, from `strip` on."""
    i, lane = self.terms(self.strips - strip), self.all_lanes(self.width)
    left = self.load(self.vectors, b, strip + i, v, lane)
    return (left * self.load(array, b, strip + i, column, lane)).reduce(Ops.ADD, i, lane)

  def factor_panel(self, b: UOp, panel: UOp) -> None:
    """The columns of a panel become those of R, and V and T are what made them so."""
    width = self.width
    with self.loop(width) as k:
      column = panel * width + k
      tau = self.reflection(b, panel, k)
      with self.loop(width - 1 - k) as j:
        product = self.keep(self.dot(b, panel, column, self.work, column + 1 + j) * tau)
        i, lane = self.range(self.strips - panel), self.lanes(width)
        place = (b, panel + i, column + 1 + j, lane)
        value = self.element(*place) - product * self.load(self.vectors, b, panel + i, column, lane)
        self.store(self.work, place, value, i, lane)
      # T, a column further: -tau T Vᵀv
      with self.loop(k) as j:
        self.store(self.near, (b, 0, j, 0), self.dot(b, panel, panel * width + j, self.vectors, column))
      row, j = self.range(k), self.terms(k)
      value = self.load(self.blocks, b, panel, 0, row, j) * self.load(self.near, b, 0, j, 0)
      self.store(self.near, (b, 1, 0, row), value.reduce(Ops.ADD, j) * tau * -1, row)
      self.store(self.near, (b, 1, 0, k), tau)
      row = self.range(width)
      value = (row > k).where(self.zero, self.load(self.near, b, 1, 0, row))
      self.store(self.blocks, (b, panel, 0, row, k), value, row)
      row = self.range(width)
      value = (row > k).where(self.zero, self.load(self.near, b, 1, 0, row))
      self.store(self.blocks, (b, panel, 1, k, row), value, row)

  def reflection(self, b: UOp, panel: UOp, k: UOp) -> UOp:
    """tau, once V has the vector that leaves of a column only the element in row k of its strip, and the column has
    that."""
    width, column = self.width, panel * self.width + k

    def rest(i: UOp, lane: UOp) -> UOp:
      value = self.element(b, panel + i, column, lane)
      return ((panel + i) * width + lane > column).where(value, self.zero)

    i, lane = self.terms(self.strips - panel), self.all_lanes(width)
    head = self.keep(self.element(b, panel, column, k))
    most = self.keep(size(rest(i, lane)).reduce(Ops.MAX, i, lane).maximum(size(head)))
    scale = self.keep(most.eq(self.zero).where(most.const_like(1), most))  # nothing overflows
    i, lane = self.terms(self.strips - panel), self.all_lanes(width)
    part = rest(i, lane) / scale
    square = self.keep((part * part).reduce(Ops.ADD, i, lane))
    none = square.eq(self.zero)
    length = ((head / scale) * (head / scale) + square).sqrt() * scale
    new = self.keep(none.where(head, (head < self.zero).where(length, length * -1)))  # away from it: nothing cancels
    tau = self.keep(none.where(self.zero, (new - head) / none.where(new.const_like(1), new)))
    divisor = self.keep(none.where(head.const_like(1), head - new))
    i, lane = self.range(self.strips - panel), self.lanes(width)
    row = (panel + i) * width + lane
    value = row.eq(column).where(head.const_like(1), rest(i, lane) / divisor)
    self.store(self.vectors, (b, panel + i, column, lane), value, i, lane)
    i, lane = self.range(self.strips - panel), self.lanes(width)
    row = (panel + i) * width + lane
    value = self.element(b, panel + i, column, lane)
    value = row.eq(column).where(new, (row > column).where(self.zero, value))
    self.store(self.work, (b, panel + i, column, lane), value, i, lane)
    return tau

  def reflect(self, b: UOp, panel: UOp, start: UOp | int, tiles: UOp, transposed: int) -> None:
    """A panel's reflections of other columns, the first one first or, where T is `transposed`, last."""
    width = self.width
    with self.loop(tiles, AxisType.LOOP) as tile:
      first = start + tile * TILE
      if self.thread is None:
        pair, one, c = self.range(width // 2), self.written(2), self.written(TILE)
        k = pair * 2 + one
        product = self.dot(b, panel, panel * width + k, self.work, first + c)
        self.store(self.near, (b, 0, c, k), product, pair, one, c)
      else:
        k, c = self.thread, self.range(TILE)
        self.store(self.near, (b, 0, c, k), self.dot(b, panel, panel * width + k, self.work, first + c), c, k)
      c, k, j = self.written(TILE), self.lanes(width), self.terms(width)
      value = self.load(self.blocks, b, panel, 1 - transposed, j, k) * self.load(self.near, b, 0, c, j)
      self.store(self.near, (b, 1, c, k), value.reduce(Ops.ADD, j), c, k)
      i, c, lane, k = self.range(self.strips - panel), self.written(TILE), self.lanes(width), self.terms(width)
      change = self.load(self.vectors, b, panel + i, panel * width + k, lane) * self.load(self.near, b, 1, c, k)
      place = (b, panel + i, first + c, lane)
      self.store(self.work, place, self.element(*place) - change.reduce(Ops.ADD, k), i, c, lane)

  def orthogonal(self, b: UOp, panels: int, first: int) -> None:
    """The columns from `first` on become those of Q."""
    count = self.columns - first
    i, c, lane = self.range(self.strips), self.range(count), self.lanes(self.width)
    one = (i * self.width + lane).eq(c).where(self.zero.const_like(1), self.zero)
    self.store(self.work, (b, i, first + c, lane), one, i, c, lane)
    with self.loop(panels) as step:
      panel = step * -1 + (panels - 1)
      start = panel * self.width
      self.reflect(b, panel, start + first, (start * -1 + count) // TILE, 0)


@cache
def reflecting(arrays: tuple[Array, ...], threads: int) -> UOp:
  """(Q, R, strips, V, T, a tile) of a matrix."""
  s = Reflections(arrays, threads, 2)
  columns, panels = s.shapes[1][2], s.shapes[4][1]
  with s.loop(s.shapes[0][0], AxisType.GLOBAL) as b:
    s.fill(b, 6, 0)
    with s.loop(panels) as panel:
      s.factor_panel(b, panel)
      behind = (panel + 1) * s.width
      s.reflect(b, panel, behind, (behind * -1 + columns) // TILE, 1)
    s.orthogonal(b, panels, columns)
    s.empty(b, 0, columns)
    s.empty(b, 1, 0)
  return s.kernel("qr")


def reflected(a: Tensor, complete: bool) -> tuple[Tensor, Tensor]:
  """(Q `(…, m, q)`, R `(…, q, n)`) of `(…, m, n)`, q = m if `complete`, else the lesser of m and n."""
  m, n = (int(s) for s in a.shape[-2:])
  width, steps = width_of(m, a), min(m, n)
  size = m if complete else steps
  rows, columns, inner = up(m, width), up(n, width), up(size, width)
  x = padded(a, rows, columns)
  batch, panels, strips = int(x.shape[0]), up(steps, width) // width, rows // width
  shapes = (
    (rows, inner), (rows, columns), (strips, columns + inner, width), (strips, panels * width, width),
    (panels, 2, width, width), (2, width, width),
  )  # fmt: skip
  q, r, *_ = called(reflecting, width, tuple([((batch, *shape), a.dtype) for shape in shapes]), x)
  return cut(q, a, m, size), cut(r, a, size, n)


@dataclass(frozen=True)
class OfReflections:
  """The derivative of (Q, R), with copyltu(M) the symmetric matrix that has the lower triangle of M:
  (gQ + Q copyltu(R gRᵀ - gQᵀ Q)) R⁻ᵀ (Walter & Lehmann, "Algorithmic differentiation of linear algebra functions",
  2010). Of a wide matrix, the columns behind the square are Qᵀ A₂. What completes Q has the derivative of the space.
  """

  wrap: Callable[[UOp], Any]

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    a, q, r = (self.wrap(u) for u in (inputs[0], *results))
    into_q, into_r = (t.zeros_like() if g is None else self.wrap(g) for t, g in zip((q, r), gs))
    m, n = (int(s) for s in a.shape[-2:])
    k, into_r = min(m, n), into_r.triu()
    rest, into_rest = q[..., k:], into_q[..., k:]
    q, into_q, square = q[..., :k], into_q[..., :k], r[..., :k, :k]
    if rest.shape[-1]:
      into_q = into_q - rest.matmul(into_rest.transpose(-2, -1).matmul(q))
    if n > k:
      into_q = into_q + a[..., k:].matmul(into_r[..., k:].transpose(-2, -1))
    middle = square.matmul(into_r[..., :k, :k].transpose(-2, -1)) - into_q.transpose(-2, -1).matmul(q)
    total = into_q + q.matmul(middle.tril() + middle.tril(-1).transpose(-2, -1))
    out = solved(square, total.transpose(-2, -1), UPPER).transpose(-2, -1)
    return ((out if n == k else out.cat(q.matmul(into_r[..., k:]), dim=-1)).uop,)


def qr(a: Tensor, mode: str = "complete") -> tuple[Tensor, Tensor]:
  """(Q `(…, m, m)`, R `(…, m, n)`) with Q orthogonal and R upper triangular, by Householder reflections (1958). With
  mode "reduced" only the first min(m, n) columns of Q and rows of R.

  Derivatives need the first min(m, n) columns to be independent. Raises ValueError for another mode or no matrices.
  """
  if mode not in ("complete", "reduced"):
    raise ValueError(f"mode must be 'complete' or 'reduced', got {mode!r}")
  if a.ndim < 2:
    raise ValueError(f"qr takes matrices, got shape {a.shape}")
  x, dtype = a._with_precision()
  m, n = int(a.shape[-2]), int(a.shape[-1])
  if 0 in a.shape:
    k = m if mode == "complete" else min(m, n)
    one = a.eye(m, k, dtype=dtype, device=a.device).broadcast_to((*a.shape[:-2], m, k))
    return one, a._filled((*a.shape[:-2], k, n), 0, dtype)
  found = [t.uop for t in reflected(x.detach(), mode == "complete")]
  q, r = with_gradient(found, (x.uop,), OfReflections(a._wrap), "qr")
  return x._derive(q)._as_dtype(dtype), x._derive(r)._as_dtype(dtype)


def lstsq(a: Tensor, b: Tensor) -> Tensor:
  """x `(…, n, k)` that makes `a @ x` closest to `b` `(…, m, k)`, or for m < n the smallest that solves it; by qr.

  Matrices `(…, m, n)` have full rank, else x has inf or NaN. Raises ValueError for shapes that do not fit.
  """
  if a.ndim < 2 or b.ndim < 2 or a.shape[-2] != b.shape[-2]:
    raise ValueError(f"lstsq takes matrices with as many rows as b, got shapes {a.shape} and {b.shape}")
  if int(a.shape[-2]) >= int(a.shape[-1]):
    q, r = a.qr("reduced")
    return equations(r, q.transpose(-2, -1).matmul(b._as_float()), UPPER)
  q, r = a.transpose(-2, -1).qr("reduced")
  return q.matmul(equations(r.transpose(-2, -1), b, LOWER))
