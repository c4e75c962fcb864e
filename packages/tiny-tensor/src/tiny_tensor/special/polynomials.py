"""Orthogonal polynomials, by their recurrences (Abramowitz & Stegun, "Handbook of Mathematical Functions", chapter 22).

The degree `n` of all of them is a number or a Tensor, of which fractions are cut off; below 0 the result is 0, as in
PyTorch. Of a Tensor the largest element is looked at: it says how many steps the graph has, so that under `vmap` and in
`TinyJit` it has to be a number. float16 and bfloat16 are computed in float32. Everything has a gradient in x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tiny_tensor.base import Operand, TensorBase
from tiny_uop import dtypes
from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor

MOST_STEPS = 1024  # a graph with more takes long to compile
MOST_CHEBYSHEV_STEPS = 32  # beyond, Chebyshev's polynomials are cosines


@dataclass(frozen=True)
class Family:
  """Polynomials p, of which the first is 1: the second, and p(k+1) of x, p(k), p(k-1) and k. `angle` says how
  Chebyshev's are made of the angle whose cosine |x| is: with p(|x|), and its value for -|x| but for the sign.
  """

  name: str
  second: Callable[[Any], Any]
  following: Callable[[Any, Any, Any, int], Any]
  angle: tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]] | None = None


def _twice(x: Any, p: Any, before: Any, k: int) -> Any:
  return x * 2 * p - before


def _sines(m: Tensor, half: Tensor, bounded: Tensor) -> Tensor:
  """sin(m·t)/sin(t), or of hyperbolic sines where not `bounded`; m at t = 0."""
  zero = half.eq(0)
  t = zero.where(1.0, half)
  inner = (t * m).sin() / t.sin()
  outer = (t * m).sinh() / t.sinh()
  return zero.where(m, bounded.where(inner, outer))


def _cosine(m: Tensor, t: Tensor, bounded: Tensor) -> Tensor:
  return bounded.where((t * m).cos(), (t * m).cosh())


def _first(n: Any, t: Any) -> Any:
  return _cosine(n, t[0], t[1])


def _second(n: Any, t: Any) -> Any:
  return _sines(n + 1, t[0], t[1])


def _third(n: Any, t: Any) -> Any:
  return _cosine(n + 0.5, t[0], t[1]) / _cosine(n * 0 + 0.5, t[0], t[1])


def _fourth(n: Any, t: Any) -> Any:
  return _sines(n * 2 + 1, t[0] * 0.5, t[1])


def _method(doc: str, family: Family, shifted: bool = False) -> Callable[[Tensor, Operand], Tensor]:
  def polynomial(x: Tensor, n: Operand) -> Tensor:
    return _polynomial(x, n, family, shifted)

  polynomial.__doc__ = doc
  return polynomial


T = Family("T", lambda x: x, _twice, (_first, _first))
U = Family("U", lambda x: x * 2, _twice, (_second, _second))
V = Family("V", lambda x: x * 2 - 1, _twice, (_third, _fourth))
W = Family("W", lambda x: x * 2 + 1, _twice, (_fourth, _third))
H = Family("H", lambda x: x * 2, lambda x, p, before, k: x * 2 * p - before * (2 * k))
HE = Family("He", lambda x: x, lambda x, p, before, k: x * p - before * k)
L = Family("L", lambda x: x * -1 + 1, lambda x, p, before, k: ((x * -1 + (2 * k + 1)) * p - before * k) / (k + 1))
P = Family("P", lambda x: x, lambda x, p, before, k: (x * p * (2 * k + 1) - before * k) / (k + 1))

chebyshev_polynomial_t = _method("T, of the first kind: T(cos t) = cos(n·t).", T)
chebyshev_polynomial_u = _method("U, of the second kind: U(cos t) = sin((n + 1)·t)/sin(t).", U)
chebyshev_polynomial_v = _method("V, of the third kind: V(cos t) = cos((n + 1/2)·t)/cos(t/2).", V)
chebyshev_polynomial_w = _method("W, of the fourth kind: W(cos t) = sin((n + 1/2)·t)/sin(t/2).", W)
shifted_chebyshev_polynomial_t = _method("T at 2x - 1.", T, shifted=True)
shifted_chebyshev_polynomial_u = _method("U at 2x - 1.", U, shifted=True)
shifted_chebyshev_polynomial_v = _method("V at 2x - 1.", V, shifted=True)
shifted_chebyshev_polynomial_w = _method("W at 2x - 1.", W, shifted=True)
hermite_polynomial_h = _method("H, Hermite's polynomials of physicists, orthogonal with the weight exp(-x²).", H)
hermite_polynomial_he = _method("He, Hermite's polynomials of probability, orthogonal with the weight exp(-x²/2).", HE)
laguerre_polynomial_l = _method("L, Laguerre's polynomials.", L)
legendre_polynomial_p = _method("P, Legendre's polynomials.", P)


def _polynomial(self: Tensor, n: Operand, family: Family, shifted: bool = False) -> Tensor:
  x, dtype = self._with_precision()
  if not isinstance(n, TensorBase):
    n = int(n)
    degree, most = None, n
  else:
    order = self._operand(n)
    order = order.trunc()._as_dtype(dtypes.int32) if dtypes.is_float(order.dtype) else order._as_dtype(dtypes.int32)
    x, degree = x._broadcasted(order, match_dtype=False)
    dtype = dtypes.promote(dtype, n.dtype) if dtypes.is_float(n.dtype) else dtype
    x = x if x.dtype.bits >= dtype.bits else x._as_dtype(dtype)
    most = int(order.max().item()) if order.numel() != 0 else 0
  x = x * 2 - 1 if shifted else x
  if family.angle is not None and most > MOST_CHEBYSHEV_STEPS:
    out = _of_angle(x, x.const_like(most) if degree is None else degree._as_dtype(x.dtype), family)
    if degree is not None:
      out = (degree < 0).where(0.0, degree.eq(0).where(1.0, out))  # 1 of infinities and NaN, too
    return out._as_dtype(dtype)
  if most > MOST_STEPS:
    raise ValueError(f"a polynomial {family.name} of degree {most} is a graph of as many steps: {MOST_STEPS} at most")
  before, now = x.const_like(0.0), x.const_like(1.0)
  out = (now if most >= 0 else before) if degree is None else degree.eq(0).where(now, before)
  for k in range(most):
    before, now = now, family.second(x) if k == 0 else family.following(x, now, before, k)
    out = now if degree is None else degree.eq(k + 1).where(now, out)
  return out._as_dtype(dtype)


def _of_angle(x: Tensor, n: Tensor, family: Family) -> Tensor:
  assert family.angle is not None
  size = x.abs()
  bounded = size <= 1
  t = bounded.where(bounded.where(size, 1.0).acos(), bounded.where(1.0, size).acosh())
  odd = ((n * 0.5).trunc() * 2).ne(n)
  right, left = family.angle
  value = right(n, (t, bounded))
  turned = value if right is left else left(n, (t, bounded))
  out = (x < 0).where(odd.where(turned * -1, turned), value)
  return x.isnan().where(math.nan, out)
