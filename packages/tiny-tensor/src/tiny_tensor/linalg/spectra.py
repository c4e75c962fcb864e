"""Singular values, eigenvalues of symmetric matrices, their vectors; and what approximates them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_tensor.autograd.custom_gradient import with_gradient
from tiny_tensor.linalg.bidiagonal import singular
from tiny_tensor.linalg.derivatives import OfEigenvectors, OfSingularVectors
from tiny_tensor.linalg.solving import square_size
from tiny_tensor.linalg.tridiagonal import eigen

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor


def svd(a: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
  """(U, S, Vᵀ) with S descending, by a bidiagonal form and QR steps.

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
  found = _square_first(x.detach().contiguous())
  values = tuple([t.uop for t in found])
  u, s, vt = (x._derive(own) for own in with_gradient(values, (x.uop,), OfSingularVectors(a._wrap), "svd"))
  if full_matrices and m > n:
    q = found[0].qr()[0]
    u = u.cat(q._select_axis(q.ndim - 1, n, m), dim=-1)
  return u._as_dtype(dtype), s._as_dtype(dtype), vt._as_dtype(dtype)


def _square_first(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
  """`svd` of detached `(…, m, n)`, m at least n, without what completes U; of R, where there are more rows."""
  scale = x.abs().max((-2, -1), keepdim=True)
  scale = scale.eq(0).where(1.0, scale)
  n = int(x.shape[-1])
  q, r = (x / scale).qr("reduced") if int(x.shape[-2]) > n else (None, x / scale)
  u, values, vt = singular(r.contiguous())
  s, order = values.abs().sort(-1, descending=True)
  rows = order.unsqueeze(-1).broadcast_to(vt.shape)
  u = u.gather(-2, rows).transpose(-2, -1)
  vt = ((values < 0).where(-1.0, 1.0).unsqueeze(-1) * vt).gather(-2, rows)
  u = u if q is None else q.matmul(u.contiguous())
  return u.contiguous(), (s * scale.squeeze(-1)).contiguous(), vt.contiguous()


def eigh(matrix: Tensor, UPLO: str = "L") -> tuple[Tensor, Tensor]:
  """(eigenvalues `(…, n)`, ascending; eigenvectors as columns of `(…, n, n)`) of symmetric matrices `(…, n, n)`, of
  which only the lower triangle is read, or the upper one with UPLO "U". By a tridiagonal form, QL steps and, from 129
  rows on, divide and conquer.

  The gradient is that of symmetric matrices; that of eigenvectors is infinite or NaN where eigenvalues are equal.
  Raises ValueError where the matrices are not square.
  """
  square_size(matrix, "eigh")
  if UPLO not in ("L", "U"):
    raise ValueError(f"UPLO must be 'L' or 'U', got {UPLO!r}")
  x, dtype = matrix._with_precision()
  if 0 in matrix.shape:
    return x._filled(matrix.shape[:-1], 0, dtype), x._as_dtype(dtype)
  a = x.detach()
  a = a.tril() + a.tril(-1).transpose(-2, -1) if UPLO == "L" else a.triu() + a.triu(1).transpose(-2, -1)
  scale = a.abs().max((-2, -1), keepdim=True)
  scale = scale.eq(0).where(1.0, scale)
  w, rows = eigen((a / scale).contiguous())
  values = ((w * scale.squeeze(-1)).contiguous().uop, rows.transpose(-2, -1).contiguous().uop)
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
