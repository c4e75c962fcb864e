"""Functions of matrices `(…, n, n)` or `(…, m, n)` that are made of the decompositions: torch.linalg's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tiny_tensor.autograd.custom_gradient import with_gradient
from tiny_tensor.base import DTypeLike, Operand
from tiny_tensor.linalg.derivatives import OfPseudoInverse
from tiny_tensor.linalg.solving import LOWER, UPPER, equations, square_size
from tiny_tensor.shapes import Shape, normalize_axes, normalize_axis
from tiny_uop import dtypes, prod

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor


def inv(a: Tensor) -> Tensor:
  """`inverse`."""
  return a.inverse()


def logdet(a: Tensor) -> Tensor:
  """The logarithm of the determinant: NaN where that is negative, -inf at 0."""
  sign, size = a.slogdet()
  return (sign < 0).where(math.nan, size)


def matrix_power(a: Tensor, n: int) -> Tensor:
  """The product of `n` copies, or of -n copies of the inverse; the identity for 0."""
  size = square_size(a, "matrix_power")
  if n < 0:
    return a.inverse().matrix_power(-n)
  out: Tensor | None = None
  square = a
  while n:
    if n & 1:
      out = square if out is None else out.matmul(square)
    n >>= 1
    square = square.matmul(square) if n else square
  return a.eye(size, dtype=a.dtype, device=a.device).broadcast_to(a.shape) if out is None else out


def multi_dot(a: Tensor, *others: Tensor) -> Tensor:
  """The product of several matrices; the first and the last may be vectors."""
  out = a
  for t in others:
    out = out.matmul(t)
  return out


def matrix_exp(a: Tensor) -> Tensor:
  """e to the power of matrices: the Taylor series of a fraction 2⁻ᵏ of them, squared k times (scaling and squaring,
  Moler & Van Loan, 2003). k is that which a matrix needs, at most 10: for norms up to 1000.
  """
  n = square_size(a, "matrix_exp")
  x, dtype = a._with_precision()
  if 0 in a.shape:
    return a
  size = x.detach().abs().sum(-1).max(-1).reshape((*x.shape[:-2], 1, 1))
  times = (size.maximum(1.0).log2().ceil()).clamp(0, 10).contiguous()
  small = (x * (times * -1).exp2()).contiguous()
  one = a.eye(n, dtype=x.dtype, device=a.device)
  out = one.broadcast_to(x.shape)
  for k in range(12 if x.dtype.bits == 32 else 18, 0, -1):
    out = (small.matmul(out) * (1 / k) + one).contiguous()
  for k in range(10):
    out = (times > k).where(out.matmul(out), out).contiguous()
  return out._as_dtype(dtype)


# *** by singular values ***


def svdvals(a: Tensor) -> Tensor:
  """Singular values, descending."""
  return a.svd(False)[1]


def _cutoff(a: Tensor, shape: Shape, atol: Operand | None, rtol: Operand | None) -> Tensor:
  """Of singular values (descending), what counts as 0: the larger of `atol` and `rtol` times the largest; by default
  rtol is max(m, n) times the precision of the dtype, or 0 where there is an atol.
  """
  eps = 2.0 ** (-52 if a.dtype.bits == 64 else -23)
  absolute = a._operand(0.0 if atol is None else atol)
  relative = a._operand(rtol if rtol is not None else max(map(int, shape[-2:])) * eps)
  if rtol is None and atol is not None:
    relative = (absolute > 0).where(0.0, relative)
  largest = a.detach()._select_axis(a.ndim - 1, 0, 1).squeeze(-1)
  return absolute._as_dtype(a.dtype).maximum(largest * relative._as_dtype(a.dtype)).unsqueeze(-1)


def _from_lower(a: Tensor) -> Tensor:
  """The symmetric matrices with these lower triangles."""
  return a.tril() + a.tril(-1).transpose(-2, -1)


def pinv(a: Tensor, rtol: Operand | None = None, *, atol: Operand | None = None, hermitian: bool = False) -> Tensor:
  """The pseudo-inverse (Moore–Penrose) of `(…, m, n)`: `(…, n, m)`. What counts as 0 says `cutoff`. Of matrices
  that are `hermitian` only the lower triangle is read.
  """
  if hermitian:
    return _from_lower(a).pinv(rtol, atol=atol)
  if 0 in a.shape:
    return a._as_float().transpose(-2, -1)
  x, dtype = a._with_precision()
  u, s, vt = x.detach().svd(False)
  keep = s > _cutoff(s, a.shape, atol, rtol)
  inverse = keep.where(keep.where(s, 1.0).reciprocal(), 0)
  out = (vt.transpose(-2, -1) * inverse.unsqueeze(-2)).matmul(u.transpose(-2, -1)).contiguous()
  own = with_gradient((out.uop,), (x.uop,), OfPseudoInverse(a._wrap), "pinv")[0]
  return x._derive(own)._as_dtype(dtype)


def matrix_rank(
  a: Tensor,
  tol: Operand | None = None,
  *,
  atol: Operand | None = None,
  rtol: Operand | None = None,
  hermitian: bool = False,
) -> Tensor:
  """How many singular values are not 0, by `cutoff` (or greater than `tol`). Of matrices that are `hermitian` only
  the lower triangle is read.
  """
  if hermitian:
    return _from_lower(a).matrix_rank(tol, atol=atol, rtol=rtol)
  if min(int(s) for s in a.shape[-2:]) == 0:
    return a._filled(a.shape[:-2], 0, dtypes.int32)
  s = a.detach().svdvals()
  return (s > _cutoff(s, a.shape, atol if tol is None else tol, 0.0 if tol is not None else rtol)).sum(-1)


def nuclear_norm(
  a: Tensor, axes: tuple[int, int] = (-2, -1), keepdim: bool = False, dtype: DTypeLike | None = None
) -> Tensor:
  """The sum of singular values."""
  return a.matrix_norm("nuc", axes, keepdim, dtype)


def matrix_norm(
  matrix: Tensor,
  ord: float | str = "fro",
  dim: Sequence[int] = (-2, -1),
  keepdim: bool = False,
  dtype: DTypeLike | None = None,
) -> Tensor:
  """Norms of matrices: "fro", "nuc" (the sum of singular values), ±2 (the greatest, the least of them), ±1 (of the
  sums of columns), ±infinity (of those of rows).
  """
  a, b = (normalize_axis(d, matrix.ndim) for d in dim)
  if a == b:
    raise ValueError(f"matrix_norm needs two different axes, got {tuple(dim)}")
  x = matrix._as_float(dtype)
  if ord == "fro":
    return x.vector_norm(2, (a, b), keepdim)
  if ord in ("nuc", 2, -2):
    s = x.movedim((a, b), (-2, -1)).svdvals()
    out = s.sum(-1) if ord == "nuc" else s.max(-1) if ord == 2 else s.min(-1)
  elif ord in (1, -1, math.inf, -math.inf):
    assert not isinstance(ord, str)
    summed, chosen = (a, b) if abs(ord) == 1 else (b, a)
    sums = x.abs().sum(summed, keepdim=True)
    out = _squeeze_axes(sums.max(chosen, keepdim=True) if ord > 0 else sums.min(chosen, keepdim=True), (a, b))
  else:
    raise ValueError(f"matrix_norm: ord must be 'fro', 'nuc', ±1, ±2 or ±inf, got {ord!r}")
  return out.reshape([1 if i in (a, b) else s for i, s in enumerate(matrix.shape)]) if keepdim else out


def _squeeze_axes(a: Tensor, axes: Sequence[int]) -> Tensor:
  """Without these axes of size 1."""
  gone = normalize_axes(tuple(axes), a.ndim)
  return a.reshape([s for i, s in enumerate(a.shape) if i not in gone])


def cond(a: Tensor, p: float | str | None = None) -> Tensor:
  """How much a matrix magnifies errors: the greatest over the least singular value, or by other norms the product of
  that of the matrix and that of its inverse.
  """
  if p in (None, 2, -2):
    s = a.svdvals()
    high, low = s.max(-1), s.min(-1)
    return low / high if p == -2 else high / low
  assert p is not None
  return a.matrix_norm(p) * a.inverse().matrix_norm(p)


# *** triangular factors ***


def solve_triangular(
  matrix: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
  """x with `matrix @ x = b` (or `x @ matrix = b` unless `left`); only the upper or the lower triangle is read, with
  `unitriangular` ones for its diagonal.
  """
  n = square_size(matrix, "solve_triangular")
  a = matrix.triu(1) if upper else matrix.tril(-1)
  one = matrix.eye(n, dtype=matrix.dtype, device=matrix.device)
  a = a + (one if unitriangular else one * matrix)
  if not left:
    return equations(a.transpose(-2, -1), b.transpose(-2, -1), LOWER if upper else UPPER).transpose(-2, -1)
  return equations(a, b.reshape((*(1,) * (a.ndim - b.ndim), *b.shape)), UPPER if upper else LOWER)


def cholesky_solve(b: Tensor, L: Tensor, upper: bool = False) -> Tensor:
  """x with `(L Lᵀ) x = b`; L is upper triangular with `upper`, and the matrix LᵀL then."""
  a = L.triu().transpose(-2, -1) if upper else L.tril()
  return equations(a.transpose(-2, -1), equations(a, b, LOWER), UPPER)


def cholesky_inverse(a: Tensor, upper: bool = False) -> Tensor:
  """The inverse of `a aᵀ`, for a lower triangular matrix, or of `aᵀ a` for an upper one."""
  n = square_size(a, "cholesky_inverse")
  return a.eye(n, dtype=a.dtype, device=a.device).broadcast_to(a.shape).cholesky_solve(a, upper)


def tensorinv(a: Tensor, ind: int = 2) -> Tensor:
  """The inverse for tensordot: the first `ind` axes and the rest, which multiply to one size, change places."""
  if ind <= 0:
    raise ValueError(f"tensorinv: ind must be positive, got {ind}")
  front, back = a.shape[:ind], a.shape[ind:]
  if prod(front) != prod(back):
    raise ValueError(f"tensorinv: axes {front} and {back} of shape {a.shape} differ in size")
  return a.reshape((prod(front), prod(back))).inverse().reshape((*back, *front))


def tensorsolve(tensor: Tensor, b: Tensor, dims: Sequence[int] | None = None) -> Tensor:
  """x with `tensordot(tensor, x, x.ndim) = b`; `dims` are moved to the end first."""
  a = tensor if dims is None else tensor.movedim(tuple(dims), tuple(range(tensor.ndim - len(dims), tensor.ndim)))
  unknown = a.shape[b.ndim :]
  return a.reshape((b.numel(), prod(unknown))).solve(b.ravel()).reshape(unknown)


def vander(a: Tensor, N: int | None = None) -> Tensor:
  """Powers 0 to N-1 (by default as many as elements) of the last axis, as a new last axis."""
  if a.ndim == 0:
    return a.reshape((1,)).vander(N)
  count = int(a.shape[-1]) if N is None else N
  powers = [a.const_like(1)]
  for _ in range(count - 1):
    powers.append(powers[-1] * a)
  return powers[0].stack(*powers[1:], dim=-1) if count else a.unsqueeze(-1)._select_axis(a.ndim, 0, 0)
