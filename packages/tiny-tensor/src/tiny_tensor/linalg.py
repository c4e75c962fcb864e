"""Decompositions of matrices."""

from __future__ import annotations

from typing import Self

from tiny_tensor.solving import SolveMixin
from tiny_uop import dtypes


class LinalgMixin(SolveMixin):
  """svd and the Newton–Schulz iteration, over the last two axes."""

  __slots__ = ()

  def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
    """(U, S, Vᵀ) with S descending, by one-sided Jacobi rotations (Hestenes, 1958) of pairs of columns in round-
    robin order.

    `full_matrices` completes U and V to square matrices.
    """
    if self.ndim < 2:
      raise ValueError(f"svd takes matrices, got shape {self.shape}")
    m, n = int(self.shape[-2]), int(self.shape[-1])
    if m < n:
      u, s, vt = self.transpose(-2, -1).svd(full_matrices)
      return vt.transpose(-2, -1), s, u.transpose(-2, -1)
    a = self.as_float().contiguous()
    v = (a.zeros_like().select_axis(a.ndim - 2, 0, n) + self.eye(n, dtype=a.dtype, device=self.device)).contiguous()
    sweeps = 5 + max(n, 2).bit_length() if a.dtype != dtypes.float64 else 8 + max(n, 2).bit_length()
    even = n + n % 2
    players = list(range(even))
    for _ in range(sweeps if n > 1 else 0):
      for _ in range(even - 1):
        pairs = [(players[i], players[even - 1 - i]) for i in range(even // 2)]
        partner = list(range(n))
        for i, j in pairs:
          if max(i, j) < n:
            partner[i], partner[j] = j, i
        a, v = a.rotated_with(v, partner)
        players = [players[0], players[-1], *players[1:-1]]
    norms = a.square().sum(-2).sqrt()
    s, order = norms.sort(-1, descending=True)
    columns = order.unsqueeze(-2)
    a, v = a.gather(-1, columns.broadcast_to(a.shape)), v.gather(-1, columns.broadcast_to(v.shape))
    u = a / (s > 0).where(s, 1.0).unsqueeze(-2)
    # what is missing of an orthonormal basis: columns of singular values 0, and those behind
    q = u.qr()[0]
    u = (s > 0).unsqueeze(-2).where(u, q.select_axis(q.ndim - 1, 0, n))
    if full_matrices and m > n:
      u = u.cat(q.select_axis(q.ndim - 1, n, m), dim=-1)
    return u, s, v.transpose(-2, -1)

  def rotated_with(self, v: Self, partner: list[int]) -> tuple[Self, Self]:
    """Columns made orthogonal to their partners' by rotations in the plane of both; `v` is rotated alike."""
    n = len(partner)
    index = type(self)(partner, device=self.device, dtype=dtypes.int32)  # type: ignore[call-arg]
    first = index > self.count_up(n)
    paired = index != self.count_up(n)
    own = self.square().sum(-2)
    other, theirs = own.columns(index), self.columns(index)
    product = (self * theirs).sum(-2)
    ratio = (other - own) / product.eq(0).where(1.0, product * 2)
    sign = (ratio > 0).where(1.0, (ratio < 0).where(-1.0, first.where(1.0, -1.0)))
    tangent = sign / (ratio.abs() + (ratio.square() + 1).sqrt())
    tangent = (paired & product.ne(0)).where(tangent, 0.0)
    c = (tangent.square() + 1).rsqrt().contiguous()
    s = (c * tangent).contiguous()
    rotated = [t * c.unsqueeze(-2) - t.columns(index) * s.unsqueeze(-2) for t in (self, v)]
    return rotated[0].contiguous(), rotated[1].contiguous()

  def columns(self, index: Self) -> Self:
    """Elements along the last axis, reordered."""
    return self.gather_axes([(self.ndim - 1, index)], False)

  def newton_schulz(self, steps: int, params: tuple[float, ...], eps: float = 1.0e-7) -> Self:
    """An odd matrix polynomial applied `steps` times to the normalised matrix: drives singular values to one
    another.

    x ← params[0]·x + params[1]·(x xᵀ) x + params[2]·(x xᵀ)² x + …
    """
    if self.ndim < 2:
      raise ValueError(f"newton_schulz takes matrices, got shape {self.shape}")
    x = self / (self.square().sum((-2, -1), keepdim=True).sqrt() + eps)
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
