"""Decompositions of matrices by rotations in the plane of two rows or columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tiny_tensor.autograd.custom_gradient import with_gradient
from tiny_tensor.linalg.derivatives import OfEigenvectors, OfSingularVectors
from tiny_tensor.linalg.solving import square_size
from tiny_uop import dtypes

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor


def round_robin(n: int) -> Iterator[list[int]]:
  """Pairings of n players, after which each has met each once: whom each one meets, itself where it is left over."""
  even = n + n % 2
  players = list(range(even))
  for _ in range(even - 1):
    partner = list(range(n))
    for i, j in zip(players, reversed(players), strict=True):
      if max(i, j) < n:
        partner[i] = j
    yield partner
    players = [players[0], players[-1], *players[1:-1]]


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
  found = _by_columns(x.detach().contiguous())
  values = tuple([t.uop for t in found])
  u, s, vt = (x._derive(own) for own in with_gradient(values, (x.uop,), OfSingularVectors(a._wrap), "svd"))
  if full_matrices and m > n:
    q = found[0].qr()[0]
    u = u.cat(q._select_axis(q.ndim - 1, n, m), dim=-1)
  return u._as_dtype(dtype), s._as_dtype(dtype), vt._as_dtype(dtype)


def _by_columns(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
  """`svd` of detached `(…, m, n)`, m at least n, without what completes U."""
  n, a = int(x.shape[-1]), x
  v = (a.zeros_like()._select_axis(a.ndim - 2, 0, n) + x.eye(n, dtype=a.dtype, device=x.device)).contiguous()
  for partner in _sweeps(a, n):
    index = type(x)(partner, device=x.device, dtype=dtypes.int32)
    c, s = _rotation(a.square().sum(-2), (a * _columns(a, index)).sum(-2), index)
    a, v = _rotated(a, index, c, s).contiguous(), _rotated(v, index, c, s).contiguous()
  norms = a.square().sum(-2).sqrt()
  s, order = norms.sort(-1, descending=True)
  columns = order.unsqueeze(-2)
  a, v = a.gather(-1, columns.broadcast_to(a.shape)), v.gather(-1, columns.broadcast_to(v.shape))
  u = a / (s > 0).where(s, 1.0).unsqueeze(-2)
  # columns of singular values 0 are what is missing of an orthonormal basis
  q = u.qr()[0]
  u = (s > 0).unsqueeze(-2).where(u, q._select_axis(q.ndim - 1, 0, n))
  return u.contiguous(), s.contiguous(), v.transpose(-2, -1).contiguous()


def eigh(matrix: Tensor, UPLO: str = "L") -> tuple[Tensor, Tensor]:
  """(eigenvalues `(…, n)`, ascending; eigenvectors as columns of `(…, n, n)`) of symmetric matrices `(…, n, n)`, of
  which only the lower triangle is read, or the upper one with UPLO "U". By Jacobi's rotations (1846), in round-robin
  order.

  The gradient is that of symmetric matrices; that of eigenvectors is infinite or NaN where eigenvalues are equal.
  Raises ValueError where the matrices are not square.
  """
  n = square_size(matrix, "eigh")
  if UPLO not in ("L", "U"):
    raise ValueError(f"UPLO must be 'L' or 'U', got {UPLO!r}")
  x, dtype = matrix._with_precision()
  a = x.detach()
  a = a.tril() + a.tril(-1).transpose(-2, -1) if UPLO == "L" else a.triu() + a.triu(1).transpose(-2, -1)
  a = a.contiguous()
  one = matrix.eye(n, dtype=x.dtype, device=matrix.device)
  v = one.broadcast_to(a.shape).contiguous()
  for partner in _sweeps(a, n):
    index = type(matrix)(partner, device=matrix.device, dtype=dtypes.int32)
    off = (a._count_up(n).unsqueeze(-1) == index).where(a, 0).sum(-2)
    c, s = _rotation(a.diagonal(0, -2, -1), off, index)
    # columns, then rows
    a = _rotated(_rotated(a, index, c, s).transpose(-2, -1), index, c, s).contiguous()
    v = _rotated(v, index, c, s).contiguous()
  w, order = a.diagonal(0, -2, -1).contiguous().sort(-1)
  v = v.gather(-1, order.unsqueeze(-2).broadcast_to(v.shape))
  values = (w.contiguous().uop, v.contiguous().uop)
  found = with_gradient(values, (x.uop,), OfEigenvectors(matrix._wrap), "eigh")
  return x._derive(found[0])._as_dtype(dtype), x._derive(found[1])._as_dtype(dtype)


def eigvalsh(a: Tensor, UPLO: str = "L") -> Tensor:
  """The eigenvalues that `eigh` gives."""
  return a.eigh(UPLO)[0]


def _sweeps(a: Tensor, n: int) -> Iterator[list[int]]:
  """The pairings of as many rounds as rotations of `n` rows need in this dtype: they converge quadratically."""
  for _ in range(max(n, 2).bit_length() + (5 if a.dtype != dtypes.float64 else 8) if n > 1 else 0):
    yield from round_robin(n)


def _rotation(a: Tensor, product: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
  """(cosine, sine) `(…, n)` of the rotations of pairs that make `product`, the elements off the diagonal, 0. Itself
  is the diagonal; `index (n,)` says who is a pair.
  """
  n = int(a.shape[-1])
  paired, first = index != a._count_up(n), index > a._count_up(n)
  ratio = (_columns(a, index) - a) / product.eq(0).where(1.0, product * 2)
  sign = (ratio > 0).where(1.0, (ratio < 0).where(-1.0, first.where(1.0, -1.0)))
  tangent = sign / (ratio.abs() + (ratio.square() + 1).sqrt())
  tangent = (paired & product.ne(0)).where(tangent, 0.0)
  c = (tangent.square() + 1).rsqrt().contiguous()
  return c, (c * tangent).contiguous()


def _rotated(a: Tensor, index: Tensor, c: Tensor, s: Tensor) -> Tensor:
  """Columns rotated with their partners."""
  return a * c.unsqueeze(-2) - _columns(a, index) * s.unsqueeze(-2)


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


def _columns(a: Tensor, index: Tensor) -> Tensor:
  """Elements along the last axis, reordered."""
  return a._gather_axes([(a.ndim - 1, index)], False)


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
