"""Derivatives of eigenvalues, singular values and their vectors (Townsend, "Differentiating the singular value
decomposition", 2016; Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation", 2008). Those of vectors have differences of the values as divisors, and none where two are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tiny_tensor.autograd.custom_gradient import Grads
from tiny_uop import UOp
from tiny_uop.records import dataclass


def apart(values: Any) -> Any:
  """Differences `(…, n, n)` of values `(…, n)`, `v[j] - v[i]`, with infinity on the diagonal: to divide by."""
  n = int(values.shape[-1])
  same = values._count_up(n).unsqueeze(-1) == values._count_up(n)
  return same.where(float("inf"), values.unsqueeze(-2) - values.unsqueeze(-1))


def on_diagonal(values: Any) -> Any:
  """Matrices `(…, n, n)` with these diagonals."""
  n = int(values.shape[-1])
  return (values._count_up(n).unsqueeze(-1) == values._count_up(n)).where(values.unsqueeze(-1), 0)


@dataclass(frozen=True)
class OfEigenvectors:
  """The derivative of (eigenvalues w, eigenvectors V) of symmetric matrices: V X Vᵀ with the even part
  X of diag gw + (Vᵀ gV) / (wⱼ - wᵢ).
  """

  wrap: Callable[[UOp], Any]

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    w, v = (self.wrap(u) for u in results)
    middle = None if gs[0] is None else on_diagonal(self.wrap(gs[0]))
    if gs[1] is not None:
      turned = v.transpose(-2, -1).matmul(self.wrap(gs[1])) / apart(w)
      middle = turned if middle is None else middle + turned
    if middle is None:
      return (None,)
    even = (middle + middle.transpose(-2, -1)) * 0.5
    return (v.matmul(even).matmul(v.transpose(-2, -1)).uop,)


@dataclass(frozen=True)
class OfSingularVectors:
  """The derivative of (U `(…, m, k)`, s `(…, k)`, Vᵀ `(…, k, n)`), the singular values and vectors of `(…, m, n)`.

  With A(X) = (X - Xᵀ) / (sⱼ² - sᵢ²) it is U (A(Uᵀ gU) s + diag gs + s A(Vᵀ gV)) Vᵀ, and what lies outside of the
  spaces of U and V: (1 - U Uᵀ) gU s⁻¹ Vᵀ and U s⁻¹ gVᵀ (1 - V Vᵀ).
  """

  wrap: Callable[[UOp], Any]

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    u, s, vt = (self.wrap(r) for r in results)
    gu, gsv, gvt = (None if g is None else self.wrap(g) for g in gs)
    m, k, n = int(u.shape[-2]), int(s.shape[-1]), int(vt.shape[-1])
    middle = None if gsv is None else on_diagonal(gsv)
    outside = None
    for basis, g, left in (
      (u, gu, True),
      (vt.transpose(-2, -1), None if gvt is None else gvt.transpose(-2, -1), False),
    ):
      if g is None:
        continue
      turned = basis.transpose(-2, -1).matmul(g)
      skew = (turned - turned.transpose(-2, -1)) / apart(s.square())
      part = skew * s.unsqueeze(-2) if left else skew * s.unsqueeze(-1)
      middle = part if middle is None else middle + part
      if (m if left else n) > k:
        rest = (g - basis.matmul(turned)) / s.unsqueeze(-2)
        beyond = rest.matmul(vt) if left else u.matmul(rest.transpose(-2, -1))
        outside = beyond if outside is None else outside + beyond
    out = None if middle is None else u.matmul(middle).matmul(vt)
    if outside is not None:
      out = outside if out is None else out + outside
    return (None if out is None else out.uop,)


@dataclass(frozen=True)
class OfPseudoInverse:
  """The derivative of the pseudo-inverse P `(…, n, m)` of A where the rank does not change (Golub & Pereyra, 1973):
  -Pᵀ g Pᵀ + (1 - A P) gᵀ P Pᵀ + Pᵀ P gᵀ (1 - P A).
  """

  wrap: Callable[[UOp], Any]

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    assert gs[0] is not None, "a function of one result"
    a, p, g = (self.wrap(u) for u in (inputs[0], results[0], gs[0]))
    turned, g_turned = p.transpose(-2, -1), g.transpose(-2, -1)
    out = turned.matmul(g).matmul(turned) * -1
    out = out + (g_turned - a.matmul(p.matmul(g_turned))).matmul(p).matmul(turned)
    rest = g_turned - g_turned.matmul(p).matmul(a)
    return ((out + turned.matmul(p.matmul(rest))).uop,)
