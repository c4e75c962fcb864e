"""Decompositions of matrices by rotations in the plane of two columns: one kernel."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import TYPE_CHECKING

from tiny_tensor.autograd.custom_gradient import with_gradient
from tiny_tensor.linalg.derivatives import OfEigenvectors, OfSingularVectors
from tiny_tensor.linalg.solving import square_size
from tiny_tensor.linalg.triangles import cut, padded, up, width_of
from tiny_tensor.sequence import Array, Sequence, called
from tiny_uop import AxisType, Ops, UOp, dtypes

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor


SWEEPS = 40  # at most: they converge quadratically


@cache
def rotating(arrays: tuple[Array, ...], threads: int, size: int) -> UOp:
  """(columns, one after the other, that are orthogonal to each other, and behind each that of V; squares of lengths) of
  the columns `(batch, n, size)` of a matrix, n even: V is what they have been multiplied by.

  Sweep after sweep goes over all pairs, in round-robin order, until one finds nothing to rotate.
  """
  s = Sequence(arrays, threads)
  batch, n, length = s.shapes[0]
  width, zero = s.shapes[3][1], UOp.const(arrays[0][1], 0)
  one = zero.const_like(1)
  none = zero.const_like(2.0 ** (-52 if zero.dtype.bits == 64 else -23) * math.sqrt(size) / 2)

  def dot(b: UOp, p: UOp, q: UOp) -> UOp:
    i, lane = s.terms(-(-size // width)), s.all_lanes(width)
    return (s.load(0, b, p, i * width + lane) * s.load(0, b, q, i * width + lane)).reduce(Ops.ADD, i, lane)

  def rotate(b: UOp, p: UOp, q: UOp, product: UOp) -> None:
    first, second = s.keep(s.load(1, b, p)), s.keep(s.load(1, b, q))
    ratio = s.keep((second - first) / (product * 2))
    root = (ratio * ratio + one).sqrt()
    tangent = s.keep((ratio < zero).where(one * -1 / (root - ratio), one / (root + ratio)))
    c = one / (tangent * tangent + one).sqrt()
    sine, part = s.keep(c * tangent), s.keep(c * tangent / (c + one))  # of small angles c is 1, and c² + s² more
    i, lane = s.range(length // width), s.lanes(width)
    here, there = (b, p, i * width + lane), (b, q, i * width + lane)
    x, y = s.load(0, *here), s.load(0, *there)
    along = s.at(0, *here).store(x - (y + x * part) * sine)
    across = s.at(0, *there).store(y + (x - y * part) * sine)
    s.step(UOp.group(along, across), i, lane)
    s.store(1, (b, p), first - tangent * product)
    s.store(1, (b, q), second + tangent * product)

  with s.loop(batch, AxisType.GLOBAL) as b:
    p, i, lane = s.range(n), s.range(length // width), s.lanes(width)
    place = i * width + lane
    of_v = place.eq(p + (length - up(n, width))).where(one, zero)
    value = s.at(2, b, p, place, gate=place < s.shapes[2][2]).load(zero) + of_v
    s.store(0, (b, p, place), value, p, i, lane)
    again = s.variable(UOp.const(dtypes.int32, 1))
    with s.loop(SWEEPS), s.where(s.get(again).ne(0)):
      with s.loop(n) as p:
        s.store(1, (b, p), dot(b, p, p))
      s.put(again, UOp.const(dtypes.int32, 0))
      with s.loop(n - 1) as r, s.loop(n // 2) as i:
        p, q = i.eq(0).where(UOp.const(dtypes.index, n - 1), (r + i) % (n - 1)), (r - i + (n - 1)) % (n - 1)
        product = s.keep(dot(b, p, q))
        away = (product < zero).where(product * -1, product)
        with s.where(none * s.load(1, b, p).sqrt() * s.load(1, b, q).sqrt() < away):
          s.put(again, UOp.const(dtypes.int32, 1))
          rotate(b, p, q, product)
  return s.kernel("rotations")


def orthogonalised(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
  """(a V, V, the lengths of the columns of a V) for `(…, m, n)`, V orthogonal and the columns of a V, too."""
  m, n = (int(s) for s in a.shape[-2:])
  width = width_of(m, a)
  rows, columns = up(m, width), n + n % 2
  x = padded(a.transpose(-2, -1), columns, rows)
  batch, lanes = int(x.shape[0]), a._filled((1, width), 0.0).contiguous()
  results = ((batch, columns, rows + up(columns, width)), a.dtype), ((batch, columns), a.dtype)
  both = called(partial(rotating, size=rows), width, results, x, lanes)[0]
  turned, v = cut(both, a.transpose(-2, -1), n, m), both._select_axis(2, rows, rows + n)
  turned = turned.transpose(-2, -1)
  v = v._select_axis(1, 0, n).reshape((*a.shape[:-2], n, n)).transpose(-2, -1)
  return turned, v, turned.square().sum(-2).sqrt()


def svd(a: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
  """(U, S, Vᵀ) with S descending, by one-sided Jacobi rotations (Hestenes, 1958) of pairs of columns in round-
  robin order.

  `full_matrices` completes U and V to square matrices; there is no gradient in what it adds. That of U and V is
  infinite or NaN where singular values are equal, or 0.
  """
  if a.ndim < 2:
    raise ValueError(f"svd takes matrices, got shape {a.shape}")
  m, n = int(a.shape[-2]), int(a.shape[-1])
  if m < n:
    u, s, vt = a.transpose(-2, -1).svd(full_matrices)
    return vt.transpose(-2, -1), s, u.transpose(-2, -1)
  x, dtype = a._with_precision()
  if 0 in a.shape:
    sizes = (m, m, n) if full_matrices else (m, n, n)
    shapes = (*a.shape[:-2], sizes[0], sizes[1]), (*a.shape[:-2], n), (*a.shape[:-2], n, n)
    one = a.eye(m, sizes[1], dtype=dtype, device=a.device).broadcast_to(shapes[0])
    return one, a._filled(shapes[1], 0, dtype), a._filled(shapes[2], 0, dtype)
  found = _by_columns(x.detach().contiguous())
  values = tuple([t.uop for t in found])
  u, s, vt = (x._derive(own) for own in with_gradient(values, (x.uop,), OfSingularVectors(a._wrap), "svd"))
  if full_matrices and m > n:
    q = found[0].qr()[0]
    u = u.cat(q._select_axis(q.ndim - 1, n, m), dim=-1)
  return u._as_dtype(dtype), s._as_dtype(dtype), vt._as_dtype(dtype)


def _by_columns(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
  """`svd` of detached `(…, m, n)`, m at least n, without what completes U."""
  scale = x.abs().max((-2, -1), keepdim=True)  # so that no square overflows
  scale = scale.eq(0).where(1.0, scale)
  a, v, norms = orthogonalised(x / scale)
  s, order = norms.sort(-1, descending=True)
  columns = order.unsqueeze(-2)
  a, v = a.gather(-1, columns.broadcast_to(a.shape)), v.gather(-1, columns.broadcast_to(v.shape))
  u = a / (s > 0).where(s, 1.0).unsqueeze(-2)
  # columns with squares of next to nothing, as those of values 0, are what is missing of an orthonormal basis
  some = (s > 2.0 ** (-400 if a.dtype.bits == 64 else -50)).unsqueeze(-2)
  q = some.where(u, 0).qr("reduced")[0]
  u = some.where(u, q)
  return u.contiguous(), (s * scale.squeeze(-1)).contiguous(), v.transpose(-2, -1).contiguous()


def eigh(matrix: Tensor, UPLO: str = "L") -> tuple[Tensor, Tensor]:
  """(eigenvalues `(…, n)`, ascending; eigenvectors as columns of `(…, n, n)`) of symmetric matrices `(…, n, n)`, of
  which only the lower triangle is read, or the upper one with UPLO "U". By the rotations of `svd`, of a matrix that is
  shifted so that no eigenvalue is negative.

  The gradient is that of symmetric matrices; that of eigenvectors is infinite or NaN where eigenvalues are equal.
  Raises ValueError where the matrices are not square.
  """
  n = square_size(matrix, "eigh")
  if UPLO not in ("L", "U"):
    raise ValueError(f"UPLO must be 'L' or 'U', got {UPLO!r}")
  x, dtype = matrix._with_precision()
  if 0 in matrix.shape:
    return x._filled(matrix.shape[:-1], 0, dtype), x._as_dtype(dtype)
  a = x.detach()
  a = a.tril() + a.tril(-1).transpose(-2, -1) if UPLO == "L" else a.triu() + a.triu(1).transpose(-2, -1)
  scale = a.abs().sum(-1, keepdim=True).max(-2, keepdim=True)
  scale = scale.eq(0).where(1.0, scale)
  a = (a / scale).contiguous()
  # eigenvalues from 0 up, so that they are singular values, and the vectors the same
  v = orthogonalised(a + matrix.eye(n, dtype=x.dtype, device=matrix.device))[1].contiguous()
  w, order = (v * a.matmul(v)).sum(-2).contiguous().sort(-1)
  w = w * scale.squeeze(-1)
  v = v.gather(-1, order.unsqueeze(-2).broadcast_to(v.shape))
  values = (w.contiguous().uop, v.contiguous().uop)
  found = with_gradient(values, (x.uop,), OfEigenvectors(matrix._wrap), "eigh")
  return x._derive(found[0])._as_dtype(dtype), x._derive(found[1])._as_dtype(dtype)


def eigvalsh(a: Tensor, UPLO: str = "L") -> Tensor:
  """The eigenvalues that `eigh` gives."""
  return a.eigh(UPLO)[0]


def svd_lowrank(matrix: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
  """(U `(…, m, q)`, S `(…, q)`, V `(…, n, q)`) of the greatest singular values of `(…, m, n)`, or of `matrix - M`, by a
  random projection and `niter` steps of the power iteration (Halko, Martinsson & Tropp, 2011, algorithm 5.1).

  Exact up to rounding where the rank is at most q. ValueError where q is more than the smaller of m and n.
  """
  if matrix.ndim < 2 or not 0 <= q <= min(int(s) for s in matrix.shape[-2:]):
    raise ValueError(f"svd_lowrank: q={q} must be from 0 to the smaller size of matrices, got shape {matrix.shape}")
  if niter < 0:
    raise ValueError(f"svd_lowrank: niter must not be negative, got {niter}")
  a = matrix._as_float() if M is None else matrix._as_float() - M
  if int(a.shape[-2]) < int(a.shape[-1]):
    u, s, v = a.transpose(-2, -1).svd_lowrank(q, niter)
    return v, s, u
  turned = a.transpose(-2, -1)
  basis = a.matmul(matrix.randn(int(a.shape[-1]), q, dtype=a.dtype, device=matrix.device)).qr("reduced")[0]
  for _ in range(niter):
    basis = a.matmul(turned.matmul(basis).qr("reduced")[0]).qr("reduced")[0]
  u, s, vt = basis.transpose(-2, -1).matmul(a).svd(False)
  return basis.matmul(u), s, vt.transpose(-2, -1)


def pca_lowrank(a: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
  """`svd_lowrank` of samples `(…, samples, features)`, less their mean with `center`: V are the principal directions.
  `q` is by default the least of 6 and both sizes.
  """
  if a.ndim < 2:
    raise ValueError(f"pca_lowrank takes matrices (…, samples, features), got shape {a.shape}")
  x = a._as_float()
  count = min(6, *(int(s) for s in x.shape[-2:])) if q is None else q
  return (x - x.mean(-2, keepdim=True) if center else x).svd_lowrank(count, niter)


def newton_schulz(a: Tensor, steps: int, params: tuple[float, ...], eps: float = 1.0e-7) -> Tensor:
  """An odd matrix polynomial applied `steps` times to the normalised matrix: drives singular values to one
  another.

  x ← params[0]·x + params[1]·(x xᵀ) x + params[2]·(x xᵀ)² x + …
  """
  if a.ndim < 2:
    raise ValueError(f"newton_schulz takes matrices, got shape {a.shape}")
  x = a / (a.square().sum((-2, -1), keepdim=True).sqrt() + eps)
  tall = int(x.shape[-2]) > int(x.shape[-1])
  x = x.transpose(-2, -1) if tall else x
  for _ in range(steps):
    gram = x.matmul(x.transpose(-2, -1)).contiguous()
    power, total = x, x * params[0]
    for p in params[1:]:
      power = gram.matmul(power)
      total = total + power * p
    x = total.contiguous()
  return x.transpose(-2, -1) if tall else x
