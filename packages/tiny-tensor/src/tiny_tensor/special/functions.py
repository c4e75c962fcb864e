"""Special functions: of the error and gamma families. float16 and bfloat16 are computed in float32.

Smooth pieces are Chebyshev polynomials of functions that are worked out here in Python (`chebyshev.py`); the rest
are recurrences and reflections (Abramowitz & Stegun, "Handbook of Mathematical Functions", chapters 6, 7 and 9).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import add, mul
from typing import TYPE_CHECKING, Any

from tiny_tensor.autograd.custom_gradient import precise
from tiny_tensor.special import chebyshev as ap

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor


def erfcx_by_reciprocal(t: float) -> float:
  """erfc(z)·exp(z²)·z for z = 1/t, t in [0, 1], by its continued fraction."""
  if t == 0:
    return 1 / math.sqrt(math.pi)
  z, tail = 1 / t, 0.0
  for k in range(400, 0, -1):
    tail = k / 2 / (z + tail)
  return z / (z + tail) / math.sqrt(math.pi)


def erfinv_by_log(w: float) -> float:
  """erfinv(x)/x for w = -log(1 - x²) in [0, …]: smooth, where erfinv is steep."""
  if w < 1e-12:
    return math.sqrt(math.pi) / 2
  x = math.sqrt(-math.expm1(-w))
  # from the side of 1 - x, which x has lost
  rest = -math.exp(-w) / (1 + x) if w > 1 else x - 1
  from statistics import NormalDist  # late: it brings fractions and decimals along

  return -NormalDist().inv_cdf(-rest / 2) / math.sqrt(2) / x


def erfinv_by_root(s: float) -> float:
  """`erfinv_by_log` for s = √w, which grows like it."""
  return erfinv_by_log(s * s)


# asymptotic series in u = 1/z² in [0, 1/64], of the functions of z that comments name
# (log Γ(z) - (z - 1/2) log z + z - log(2π)/2)·z
stirling_rest = ap.series((1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400))
# (log z - 1/(2z) - ψ(z))·z²
digamma_rest = ap.series((1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160))
# (ψ'(z) - 1/z - 1/(2z²))·z³
trigamma_rest = ap.series((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510))

NONE = 1e-30  # in the place of 0: intervals that hold it are not scaled to [-1, 1]
FAR = 8  # from here on the series of the gamma family are good for float64


@precise(lambda y, x: (x * x * -1).exp() * (-2 / math.sqrt(math.pi)))
def erfc(x: Tensor) -> Tensor:
  """1 - erf(x), accurate where that is small."""
  size = x.abs()
  far = size >= 1
  z = far.where(size, 1.0)
  t = z.reciprocal()
  tail = (z * z * -1).exp() * ap.polynomial(erfcx_by_reciprocal, NONE, 1.0, t) * t
  out = far.where((x < 0).where(tail * -1 + 2, tail), far.where(0.0, x).erf() * -1 + 1)
  out = size.eq(math.inf).where((x < 0).where(2.0, x.const_like(0)), out)
  return x.isnan().where(x.detach(), out)


@precise(lambda y, x: x * y * 2 - 2 / math.sqrt(math.pi))
def erfcx(x: Tensor) -> Tensor:
  """erfc(x)·exp(x²), which does not become 0."""
  far = x >= 1
  t = far.where(x, 1.0).reciprocal()
  near = far.where(0.0, x)
  return far.where(ap.polynomial(erfcx_by_reciprocal, NONE, 1.0, t) * t, near.square().exp() * near.erfc())


@precise(lambda y, x: (y * y).exp() * (math.sqrt(math.pi) / 2))
def erfinv(x: Tensor) -> Tensor:
  """The inverse of erf: ±inf at ±1, NaN outside."""
  inside = x.abs() < 1
  s = inside.where(x, 0.0)
  w = (s * s * -1).log1p() * -1
  middle = w < 6
  near = ap.polynomial(erfinv_by_log, NONE, 6.0, middle.where(w, 0.0))
  root = middle.where(6.0, w).sqrt()
  far = ap.polynomial(erfinv_by_root, math.sqrt(6.0), 6.1, root)
  edge = (x < 0).where(-math.inf, x.const_like(math.inf))
  return inside.where(s * middle.where(near, far), x.abs().eq(1).where(edge, math.nan))


def ndtr(x: Tensor) -> Tensor:
  """The share of the normal distribution below x."""
  return (x._as_float() * -math.sqrt(0.5)).erfc() * 0.5


def ndtri(x: Tensor) -> Tensor:
  """The inverse of ndtr: ±inf at 0 and 1, NaN outside."""
  return (x._as_float() * 2 - 1).erfinv() * math.sqrt(2)


def log_ndtr(x: Tensor) -> Tensor:
  """log(ndtr(x)), without underflow."""
  x = x._as_float()
  low = x < -1
  t = low.where(x, -1.0) * -math.sqrt(0.5)
  tail = (t.erfcx() * 0.5).log() - t.square()
  high = (low.where(0.0, x) * math.sqrt(0.5)).erfc() * -0.5
  return low.where(tail, high.log1p())


# *** gamma ***


def _raised(z: Tensor, term: Callable[[Tensor], Tensor], join: Callable[[Any, Any], Any], none: float) -> Any:
  """(z + 8 for z below 8 else z; term(z) … term(z+7) joined, `none` from 8 on)."""
  small = z < FAR
  inner = small.where(z, 1.0)
  return small.where(z + FAR, z), small.where(reduce(join, [term(inner + k) for k in range(FAR)]), none)


@precise(lambda y, x: x.digamma())
def lgamma(x: Tensor) -> Tensor:
  """log |Γ(x)|; +inf at 0 and the negative whole numbers."""
  reflect = x < 0.5
  # Γ(x) = Γ(x + 8)/(x (x+1) … (x+7))
  z, product = _raised(reflect.where(x * -1 + 1, x), lambda x: x, mul, 1.0)
  t = z.reciprocal()
  value = (z - 0.5) * z.log() - z + 0.5 * math.log(2 * math.pi)
  value = value + ap.polynomial(stirling_rest, 0.0, 1 / FAR**2, t * t) * t - product.log()
  value = x.eq(math.inf).where(math.inf, value)
  # Γ(x) Γ(1-x) = π / sin(πx)
  part = (x - x.round()).abs()
  sine = (part * math.pi).sin()
  mirrored = sine.log() * -1 + math.log(math.pi) - value
  pole = (x <= 0) & part.eq(0)
  out = pole.where(math.inf, reflect.where(mirrored, value))
  return x.eq(-math.inf).where(math.inf, out)


@precise(lambda y, x: x.trigamma())
def digamma(x: Tensor) -> Tensor:
  """ψ, the derivative of log Γ; NaN at negative whole numbers, ∓inf at ±0."""
  reflect = x < 0.5
  z = reflect.where(x * -1 + 1, x)
  z, shift = _raised(z, lambda x: x.reciprocal(), add, 0.0)
  t = z.reciprocal()
  value = z.log() - t * 0.5 - ap.polynomial(digamma_rest, 0.0, 1 / FAR**2, t * t) * t * t - shift
  turned = (x - x.round()) * math.pi
  mirrored = value - (turned.cos() / turned.sin()) * math.pi
  pole = (x < 0) & x.eq(x.trunc())
  out = pole.where(math.nan, reflect.where(mirrored, value))
  return x.eq(0).where(x.detach().reciprocal() * -1, out)


@precise()
def trigamma(x: Tensor) -> Tensor:
  """ψ', the derivative of digamma; +inf at 0 and the negative whole numbers. For positive x by its series."""
  reflect = x < 0.5
  z = reflect.where(x * -1 + 1, x)
  z, shift = _raised(z, lambda x: x.square().reciprocal(), add, 0.0)
  t = z.reciprocal()
  value = t + t * t * 0.5 + ap.polynomial(trigamma_rest, 0.0, 1 / FAR**2, t * t) * t * t * t + shift
  # away from 0 where it is not needed: its reciprocal has derivatives
  sine = (reflect.where(x - x.round(), 0.5) * math.pi).sin()
  return reflect.where(sine.square().reciprocal() * math.pi**2 - value, value)


def polygamma(x: Tensor, n: int) -> Tensor:
  """The n-th derivative of digamma, for n 0 and 1. NotImplementedError for more."""
  if n == 0:
    return x.digamma()
  if n == 1:
    return x.trigamma()
  raise NotImplementedError(f"polygamma knows n = 0 and 1, got {n}: differentiate polygamma(1)")


def mvlgamma(x: Tensor, p: int) -> Tensor:
  """The logarithm of the multivariate gamma function of dimension `p`."""
  if p < 1:
    raise ValueError(f"mvlgamma: p must be at least 1, got {p}")
  out = x._as_float().lgamma()
  for k in range(1, p):
    out = out + (x._as_float() - k / 2).lgamma()
  return out + p * (p - 1) / 4 * math.log(math.pi)


# *** Bessel ***


def _i1_slope(y: Tensor, x: Tensor) -> Tensor:
  zero = x.eq(0)
  return zero.where(0.5, x.i0() - y / zero.where(1.0, x))


def _i1e_slope(y: Tensor, x: Tensor) -> Tensor:
  zero = x.eq(0)
  return zero.where(0.5, x.i0e() - y * (x.sign() + zero.where(1.0, x).reciprocal()))


@precise(lambda y, x: x.i1())
def i0(x: Tensor) -> Tensor:
  """The modified Bessel function of the first kind, order 0."""
  return _grown(x, _scaled_bessel(x, 0), x.abs())


@precise(lambda y, x: x.i1e() - x.sign() * y)
def i0e(x: Tensor) -> Tensor:
  """`i0(x) * exp(-|x|)`."""
  return _scaled_bessel(x, 0)


@precise(_i1_slope)
def i1(x: Tensor) -> Tensor:
  """The modified Bessel function of the first kind, order 1."""
  return _grown(x, _scaled_bessel(x, 1), x)


@precise(_i1e_slope)
def i1e(x: Tensor) -> Tensor:
  """`i1(x) * exp(-|x|)`."""
  return _scaled_bessel(x, 1)


def _grown(x: Tensor, scaled: Tensor, limit: Tensor) -> Tensor:
  """`scaled * exp(|x|)`, where the product may be finite though exp is not; `limit` at ±inf."""
  half = (x.abs() * 0.5).exp()
  return x.isinf().where(limit, scaled * half * half)


def _scaled_bessel(x: Tensor, order: int) -> Tensor:
  """`I(x) exp(-|x|)` of order 0 or 1: by |x| up to 8, by 1/|x| beyond."""
  size = x.abs()
  near = size <= 8
  f, g = BESSEL[order]
  inside = near.where(size, 0.0)
  inner = ap.polynomial(f, NONE, 8.0, inside) * (inside + 4).rsqrt()
  far = near.where(8.0, size)
  outer = ap.polynomial(g, NONE, 1 / 8, far.reciprocal()) / far.sqrt()
  outer = outer if order == 0 else (x < 0).where(outer * -1, outer)
  out = near.where(inner if order == 0 else inner * near.where(x, 0.0) / (inside + 4), outer)
  return x.isnan().where(x.detach(), out)


def _bessel(order: int, x: float) -> float:
  """I(x)·exp(-|x|)/x^order, by the series where that has no cancellation: all terms are positive."""
  term, total, k = 0.5**order, 0.0, 0
  while term > 1e-18 * total or k < 4:
    total += term
    k += 1
    term *= x * x / 4 / (k * (k + order))
  return total * math.exp(-x)


def _bessel_far(order: int, t: float) -> float:
  """I(x)·exp(-x)·√x for t = 1/x in [0, 1/8]: by the series while exp allows, then by that of large arguments."""
  if t > 1 / 300:
    return _bessel(order, 1 / t) * math.sqrt(1 / t) / t**order
  mu, term, total = 4.0 * order * order, 1.0, 1.0
  for k in range(1, 12):
    term *= -(mu - (2 * k - 1) ** 2) * t / (8 * k)
    total += term
  return total / math.sqrt(2 * math.pi)


def bessel_pair(order: int) -> tuple[Callable[[float], float], Callable[[float], float]]:
  """(`_bessel` times (4 + x)^(order + 1/2), which is about as large everywhere, `_bessel_far`) of an order."""
  return lambda x: _bessel(order, x) * (4 + x) ** (order + 0.5), lambda t: _bessel_far(order, t)


# made once: the cache of coefficients goes by the function
BESSEL = (bessel_pair(0), bessel_pair(1))
