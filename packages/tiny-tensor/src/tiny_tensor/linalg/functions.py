"""Functions of matrices `(…, n, n)` or `(…, m, n)` that are made of the decompositions: torch.linalg's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from tiny_tensor.autograd.custom_gradient import with_gradient
from tiny_tensor.base import DTypeLike, Operand
from tiny_tensor.linalg.derivatives import OfPseudoInverse
from tiny_tensor.linalg.rotations import LinalgMixin
from tiny_tensor.shapes import Shape, normalize_axes, normalize_axis
from tiny_uop import dtypes, prod


class MatrixMixin(LinalgMixin):
  """Inverses, powers, norms, ranks and factors."""

  __slots__ = ()

  def inv(self) -> Self:
    """`inverse`."""
    return self.inverse()

  def slogdet(self) -> tuple[Self, Self]:
    """(sign of the determinant, logarithm of its magnitude), from the pivots: without overflow. 0 and -inf for
    singular matrices.
    """
    n = self.square_size("slogdet")
    x, dtype = self.with_precision()
    if n == 0:
      return x.filled(x.shape[:-2], 1).as_dtype(dtype), x.filled(x.shape[:-2], 0).as_dtype(dtype)
    # rows scaled to a largest element of 1, so that nothing overflows
    size = x.detach().abs().max(-1, keepdim=True)
    size = size.eq(0).where(1.0, size)
    q, r = (x / size).qr()
    pivots = r.diagonal(0, -2, -1)
    # the determinant of an orthogonal matrix is 1 or -1
    sign = q.detach().det().sign() * pivots.detach().sign().prod(-1)
    return sign.as_dtype(dtype), (pivots.abs().log() + size.squeeze(-1).log()).sum(-1).as_dtype(dtype)

  def logdet(self) -> Self:
    """The logarithm of the determinant: NaN where that is negative, -inf at 0."""
    sign, size = self.slogdet()
    return (sign < 0).where(math.nan, size)

  def matrix_power(self, n: int) -> Self:
    """The product of `n` copies, or of -n copies of the inverse; the identity for 0."""
    size = self.square_size("matrix_power")
    if n < 0:
      return self.inverse().matrix_power(-n)
    out: Self | None = None
    square = self
    while n:
      if n & 1:
        out = square if out is None else out.matmul(square)
      n >>= 1
      square = square.matmul(square) if n else square
    return self.eye(size, dtype=self.dtype, device=self.device).broadcast_to(self.shape) if out is None else out

  def multi_dot(self, *others: Self) -> Self:
    """The product of several matrices; the first and the last may be vectors."""
    out = self
    for t in others:
      out = out.matmul(t)
    return out

  def matrix_exp(self) -> Self:
    """e to the power of matrices: the Taylor series of a fraction 2⁻ᵏ of them, squared k times (scaling and squaring,
    Moler & Van Loan, 2003). k is that which a matrix needs, at most 10: for norms up to 1000.
    """
    n = self.square_size("matrix_exp")
    x, dtype = self.with_precision()
    if 0 in self.shape:
      return self
    size = x.detach().abs().sum(-1).max(-1).reshape((*x.shape[:-2], 1, 1))
    times = (size.maximum(1.0).log2().ceil()).clamp(0, 10).contiguous()
    small = (x * (times * -1).exp2()).contiguous()
    one = self.eye(n, dtype=x.dtype, device=self.device)
    out = one.broadcast_to(x.shape)
    for k in range(12 if x.dtype.bits == 32 else 18, 0, -1):
      out = (small.matmul(out) * (1 / k) + one).contiguous()
    for k in range(10):
      out = (times > k).where(out.matmul(out), out).contiguous()
    return out.as_dtype(dtype)

  # *** by singular values ***

  def svdvals(self) -> Self:
    """Singular values, descending."""
    return self.svd(False)[1]

  def cutoff(self, shape: Shape, atol: Operand | None, rtol: Operand | None) -> Self:
    """Of singular values (descending), what counts as 0: the larger of `atol` and `rtol` times the largest; by default
    rtol is max(m, n) times the precision of the dtype, or 0 where there is an atol.
    """
    eps = 2.0 ** (-52 if self.dtype.bits == 64 else -23)
    absolute = self.operand(0.0 if atol is None else atol)
    relative = self.operand(rtol if rtol is not None else max(map(int, shape[-2:])) * eps)
    if rtol is None and atol is not None:
      relative = (absolute > 0).where(0.0, relative)
    largest = self.detach().select_axis(self.ndim - 1, 0, 1).squeeze(-1)
    return absolute.as_dtype(self.dtype).maximum(largest * relative.as_dtype(self.dtype)).unsqueeze(-1)

  def from_lower(self) -> Self:
    """The symmetric matrices with these lower triangles."""
    return self.tril() + self.tril(-1).transpose(-2, -1)

  def pinv(self, rtol: Operand | None = None, *, atol: Operand | None = None, hermitian: bool = False) -> Self:
    """The pseudo-inverse (Moore–Penrose) of `(…, m, n)`: `(…, n, m)`. What counts as 0 says `cutoff`. Of matrices
    that are `hermitian` only the lower triangle is read.
    """
    if hermitian:
      return self.from_lower().pinv(rtol, atol=atol)
    if 0 in self.shape:
      return self.as_float().transpose(-2, -1)
    x, dtype = self.with_precision()
    u, s, vt = x.detach().svd(False)
    keep = s > s.cutoff(self.shape, atol, rtol)
    inverse = keep.where(keep.where(s, 1.0).reciprocal(), 0)
    out = (vt.transpose(-2, -1) * inverse.unsqueeze(-2)).matmul(u.transpose(-2, -1)).contiguous()
    own = with_gradient((out.uop,), (x.uop,), OfPseudoInverse(self.wrap), "pinv")[0]
    return x.derive(own).as_dtype(dtype)

  def matrix_rank(
    self,
    tol: Operand | None = None,
    *,
    atol: Operand | None = None,
    rtol: Operand | None = None,
    hermitian: bool = False,
  ) -> Self:
    """How many singular values are not 0, by `cutoff` (or greater than `tol`). Of matrices that are `hermitian` only
    the lower triangle is read.
    """
    if hermitian:
      return self.from_lower().matrix_rank(tol, atol=atol, rtol=rtol)
    if min(int(s) for s in self.shape[-2:]) == 0:
      return self.filled(self.shape[:-2], 0, dtypes.int32)
    s = self.detach().svdvals()
    return (s > s.cutoff(self.shape, atol if tol is None else tol, 0.0 if tol is not None else rtol)).sum(-1)

  def nuclear_norm(
    self, axes: tuple[int, int] = (-2, -1), keepdim: bool = False, dtype: DTypeLike | None = None
  ) -> Self:
    """The sum of singular values."""
    return self.matrix_norm("nuc", axes, keepdim, dtype)

  def matrix_norm(
    self,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
  ) -> Self:
    """Norms of matrices: "fro", "nuc" (the sum of singular values), ±2 (the greatest, the least of them), ±1 (of the
    sums of columns), ±infinity (of those of rows).
    """
    a, b = (normalize_axis(d, self.ndim) for d in dim)
    if a == b:
      raise ValueError(f"matrix_norm needs two different axes, got {tuple(dim)}")
    x = self.as_float(dtype)
    if ord == "fro":
      return x.vector_norm(2, (a, b), keepdim)
    if ord in ("nuc", 2, -2):
      s = x.movedim((a, b), (-2, -1)).svdvals()
      out = s.sum(-1) if ord == "nuc" else s.max(-1) if ord == 2 else s.min(-1)
    elif ord in (1, -1, math.inf, -math.inf):
      assert not isinstance(ord, str)
      summed, chosen = (a, b) if abs(ord) == 1 else (b, a)
      sums = x.abs().sum(summed, keepdim=True)
      out = (sums.max(chosen, keepdim=True) if ord > 0 else sums.min(chosen, keepdim=True)).squeeze_axes((a, b))
    else:
      raise ValueError(f"matrix_norm: ord must be 'fro', 'nuc', ±1, ±2 or ±inf, got {ord!r}")
    return out.reshape([1 if i in (a, b) else s for i, s in enumerate(self.shape)]) if keepdim else out

  def squeeze_axes(self, axes: Sequence[int]) -> Self:
    """Without these axes of size 1."""
    gone = normalize_axes(tuple(axes), self.ndim)
    return self.reshape([s for i, s in enumerate(self.shape) if i not in gone])

  def cond(self, p: float | str | None = None) -> Self:
    """How much a matrix magnifies errors: the greatest over the least singular value, or by other norms the product of
    that of the matrix and that of its inverse.
    """
    if p in (None, 2, -2):
      s = self.svdvals()
      high, low = s.max(-1), s.min(-1)
      return low / high if p == -2 else high / low
    assert p is not None
    return self.matrix_norm(p) * self.inverse().matrix_norm(p)

  # *** triangular factors ***

  def solve_triangular(self, b: Self, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Self:
    """x with `self @ x = b` (or `x @ self = b` unless `left`); only the upper or the lower triangle is read, with
    `unitriangular` ones for its diagonal.
    """
    n = self.square_size("solve_triangular")
    a = self.triu(1) if upper else self.tril(-1)
    one = self.eye(n, dtype=self.dtype, device=self.device)
    a = a + (one if unitriangular else one * self)
    if not left:
      return a.transpose(-2, -1).solve(b.transpose(-2, -1)).transpose(-2, -1)
    return a.solve(b.reshape((*(1,) * (a.ndim - b.ndim), *b.shape)))

  def cholesky_solve(self, L: Self, upper: bool = False) -> Self:
    """x with `(L Lᵀ) x = self`; L is upper triangular with `upper`, and the matrix LᵀL then."""
    a = L.triu() if upper else L.tril()
    return (a.transpose(-2, -1).matmul(a) if upper else a.matmul(a.transpose(-2, -1))).solve(self)

  def cholesky_inverse(self, upper: bool = False) -> Self:
    """The inverse of `self selfᵀ`, for a lower triangular matrix, or of `selfᵀ self` for an upper one."""
    n = self.square_size("cholesky_inverse")
    return self.eye(n, dtype=self.dtype, device=self.device).broadcast_to(self.shape).cholesky_solve(self, upper)

  def tensorinv(self, ind: int = 2) -> Self:
    """The inverse for tensordot: the first `ind` axes and the rest, which multiply to one size, change places."""
    if ind <= 0:
      raise ValueError(f"tensorinv: ind must be positive, got {ind}")
    front, back = self.shape[:ind], self.shape[ind:]
    if prod(front) != prod(back):
      raise ValueError(f"tensorinv: axes {front} and {back} of shape {self.shape} differ in size")
    return self.reshape((prod(front), prod(back))).inverse().reshape((*back, *front))

  def tensorsolve(self, b: Self, dims: Sequence[int] | None = None) -> Self:
    """x with `tensordot(self, x, x.ndim) = b`; `dims` are moved to the end first."""
    a = self if dims is None else self.movedim(tuple(dims), tuple(range(self.ndim - len(dims), self.ndim)))
    unknown = a.shape[b.ndim :]
    return a.reshape((b.numel(), prod(unknown))).solve(b.ravel()).reshape(unknown)

  def vander(self, N: int | None = None) -> Self:
    """Powers 0 to N-1 (by default as many as elements) of the last axis, as a new last axis."""
    if self.ndim == 0:
      return self.reshape((1,)).vander(N)
    count = int(self.shape[-1]) if N is None else N
    powers = [self.const_like(1)]
    for _ in range(count - 1):
      powers.append(powers[-1] * self)
    return powers[0].stack(*powers[1:], dim=-1) if count else self.unsqueeze(-1).select_axis(self.ndim, 0, 0)
