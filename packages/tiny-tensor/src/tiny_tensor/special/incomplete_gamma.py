"""Functions of two numbers of the gamma family. float16 and bfloat16 are computed in float32.

The incomplete gamma functions: a series for small x, a continued fraction for large x, and where `a` is large and x not
far from it Temme's uniform expansion (DLMF 8.7.1, 8.9.2, 8.12; N. Temme, "The asymptotic expansion of the incomplete
gamma functions", SIAM J. Math. Anal. 10, 1979). The zeta function by Euler and Maclaurin's sum (DLMF 25.11.5).
Errors are stated in units of the last place of 1 (eps: 1.2e-7 in float32, 2.2e-16 in float64); a test measures them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tiny_tensor.autograd.custom_gradient import precise_pair
from tiny_tensor.special import series, table
from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor


@dataclass(frozen=True)
class Effort:
  """How many terms a dtype takes."""

  large: int  # from here on `a` is large
  rising: int  # of the series
  alternating: int  # of that for small `a`
  fraction: int  # of the continued fraction
  least: float  # what counts in Temme's expansion
  sum: int  # of zeta's sum, before its rest is
  rest: int  # an expansion of so many terms


EFFORT = {32: Effort(8, 26, 12, 18, 5e-9, 6, 4), 64: Effort(20, 50, 20, 66, 0.0, 10, 9)}
SMALL = 1.5  # the continued fraction is slow below
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)


# *** incomplete gamma functions ***


def _incomplete(a: Tensor, x: Tensor, upper: bool) -> Tensor:
  inside = (a > 0) & (x > 0) & a.isfinite() & x.isfinite()
  value = _ratio(inside.where(a, 1.0), inside.where(x, 1.0), upper)
  none, all_ = (a.eq(math.inf) | x.eq(0)), (x.eq(math.inf) | a.eq(0))
  legal = (a >= 0) & (x >= 0) & (none & all_).logical_not()
  ends = none.where(x.const_like(float(upper)), x.const_like(float(not upper)))
  return inside.where(value, legal.where(ends, math.nan))


def _ratio(a: Tensor, x: Tensor, upper: bool) -> Tensor:
  """P or Q for positive, finite numbers."""
  effort = EFFORT[a.dtype.bits]
  large = a >= effort.large
  exponent = _exponent(a, x)
  uniform = large & (exponent.abs() <= a * 0.5)
  low = large.where(x < a, x < (a + 1).maximum(SMALL))
  height = _height(a, x, exponent)
  # P by its series
  b, y = low.where(a, 1.0), low.where(x, 1.0)
  series = b.const_like(1.0)
  for k in range(effort.rising, 0, -1):
    series = series * (y / (b + k)) + 1
  rising = height * series
  # Q by the continued fraction
  b, y = low.where(1.0, a), low.where(2.0, x)
  rest = y - b + (2 * effort.fraction + 1)
  for k in range(effort.fraction, 0, -1):
    rest = y - b + (2 * k - 1) + (b * -1 + k) * (rest.reciprocal() * -k)
  falling = height * b / rest
  if upper:
    tiny = low & (a < 1) & (x < SMALL)
    lower_part = tiny.where(_small_rest(tiny.where(a, 1.0), tiny.where(x, 1.0), effort.alternating), rising * -1 + 1)
    out = low.where(lower_part, falling)
  else:
    out = low.where(rising, falling * -1 + 1)
  return uniform.where(_uniform(uniform.where(a, effort.large), uniform.where(x, effort.large), upper), out)


def _exponent(a: Tensor, x: Tensor) -> Tensor:
  """a·(log(x/a) - x/a + 1), which is 0 at x = a and negative elsewhere."""
  mu = (x - a) / a
  rest = series("LOG_REST")
  near = (mu > rest.low) & (mu < rest.high)
  inner, ratio = near.where(mu, 0.0), near.where(1.0, x / a)
  return a * near.where(inner * inner * rest(inner), ratio.log() - ratio + 1)


def _height(a: Tensor, x: Tensor, exponent: Tensor) -> Tensor:
  """x^a e^-x/Γ(a + 1)."""
  small = a < 1
  b, c = small.where(a, 0.5), small.where(1.0, a)
  first = (b * x.log() - x - b * series("LOG_GAMMA")(b)).exp()
  t = c.reciprocal()
  return small.where(first, (exponent - series("STIRLING")(t) * t).exp() * (t * (0.5 / math.pi)).sqrt())


def _small_rest(a: Tensor, x: Tensor, terms: int) -> Tensor:
  """Q for a < 1 and small x, both terms of which are small where `a` is."""
  total = x.const_like(0.0)
  for k in range(terms, 0, -1):  # Σ (-x)^k/(k! (a + k)), from the inside
    total = ((a + k).reciprocal() + total) * x * (-1 / k)
  power = a * (x.log() - series("LOG_GAMMA")(a))
  return (power.expm1() + a * power.exp() * total) * -1


def _uniform(a: Tensor, x: Tensor, upper: bool) -> Tensor:
  """Temme's expansion: half of erfc(∓η √(a/2)) and a rest, which is a series in 1/a of functions of η."""
  exponent = _exponent(a, x)
  eta = (exponent * -2 / a).sqrt()
  eta = (x < a).where(eta * -1, eta)
  t, effort = a.reciprocal(), EFFORT[a.dtype.bits]
  rest: Tensor | None = None
  for k, term in reversed(list(enumerate(table("TEMME")))):
    least = effort.least * effort.large**k
    if max(map(abs, term.coefficients)) >= least:
      value = term(eta, least)
      rest = value if rest is None else rest * t + value
  assert rest is not None
  rest = rest * exponent.exp() * (t * (0.5 / math.pi)).sqrt()
  argument = eta * (a * 0.5).sqrt()
  return argument.erfc() * 0.5 + rest if upper else (argument * -1).erfc() * 0.5 - rest


def _igamma_slope(y: Tensor, x: Tensor, a: Tensor) -> Tensor:
  """x^(a-1) e^-x/Γ(a), the slope of P in x."""
  inside = (a > 0) & (x > 0) & a.isfinite() & x.isfinite()
  b, at = inside.where(a, 1.0), inside.where(x, 1.0)
  value = b / at * _height(b, at, _exponent(b, at))
  first = (a < 1).where(math.inf, a.eq(1).where(1.0, x.const_like(0.0)))  # at x = 0
  edges = (x.eq(0) & (a > 0)).where(first, x.const_like(0.0))
  return inside.where(value, (x.isnan() | a.isnan() | (x < 0) | (a < 0)).where(math.nan, edges))


@precise_pair(None, _igamma_slope)
def igamma(a: Tensor, other: Tensor) -> Tensor:
  """P(a, x), the lower incomplete gamma function over Γ(a), for x = `other`; NaN for negative ones.

  From 0 at x = 0 to 1 at x = inf; 0 at a = inf, 1 at a = 0. Relative error: 30 eps, and 2 eps for each factor of e
  that it is below 1. It has a gradient in x; wanting one in `a` is a RuntimeError.
  """
  return _incomplete(a, other, False)


@precise_pair(None, lambda y, x, a: _igamma_slope(y, x, a) * -1)
def igammac(a: Tensor, other: Tensor) -> Tensor:
  """Q(a, x) = 1 - P(a, x), accurate where that is small: as `igamma`."""
  return _incomplete(a, other, True)


# *** zeta ***


@precise_pair(None, lambda y, q, s: (s + 1).zeta(q) * s * -1)
def zeta(s: Tensor, other: Tensor) -> Tensor:
  """Hurwitz' zeta function Σ (q + k)^-s, k = 0, 1 …, for q = `other`.

  inf at s = 1 and where q is 0 or a negative whole number; NaN for s < 1, and for negative q unless s is whole.
  Relative error: 8 eps, and 2 eps times s·|log q|. It has a gradient in q; wanting one in s is a
  RuntimeError.
  """
  q = other
  ahead, whole = q > 0, s.eq(s.trunc())
  part = q - q.floor()
  legal = (s > 1) & (ahead | whole) & s.isfinite() & q.isfinite()
  power = legal.where(s, 2.0)
  first = _zeta_ahead(power, legal.where(ahead.where(q, part.eq(0).where(1.0, part)), 1.0))
  # the sum over all whole k, less what lies before q
  behind = legal & ahead.logical_not()
  before = behind.where(q, 0.0)
  sign = ((power * 0.5).trunc() * 2).ne(power).where(-1.0, s.const_like(1.0))
  turned = _zeta_ahead(power, behind.where(part * -1 + 1, 1.0)) - _zeta_ahead(power, before * -1 + 1)
  out = ahead.where(first, first + sign * turned)
  pole = s.eq(1) | ((s > 1) & (q <= 0) & part.eq(0))
  far = (q.eq(math.inf) & (s > 1)) | (s.eq(math.inf) & (q > 1))
  ends = far.where(
    s.const_like(0.0), s.eq(math.inf).where(q.eq(1).where(1.0, (q > 0).where(math.inf, s * math.nan)), math.nan)
  )
  return (s.isnan() | q.isnan()).where(math.nan, pole.where(math.inf, legal.where(out, ends)))


def _zeta_ahead(s: Tensor, q: Tensor) -> Tensor:
  """For s > 1 and q > 0: some terms, and the rest from `a` on by Euler and Maclaurin."""
  effort = EFFORT[s.dtype.bits]
  a = q + effort.sum
  total = (q.log2() * s * -1).exp2()
  for k in range(1, effort.sum):
    total = total + ((q + k).log2() * s * -1).exp2()
  # where s is many times `a`, the rest is nothing beside the first term
  counts = s < a * 6
  p = counts.where(s, 2.0)
  t = a.reciprocal()
  ratio = p * t
  series, factor = ratio * (BERNOULLI[0] / 2), ratio
  for j in range(2, effort.rest + 1):
    factor = factor * ((p + (2 * j - 3)) * t) * ((p + (2 * j - 2)) * t)
    series = series + factor * (BERNOULLI[j - 1] / math.factorial(2 * j))
  rest = (a.log2() * p * -1).exp2() * (a / (p - 1) + series + 0.5)
  return total + counts.where(rest, 0.0)
