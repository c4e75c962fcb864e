"""Chebyshev approximation: coefficients computed from the C library's functions, evaluated on tensors.

A function that is smooth on an interval is a sum of Chebyshev polynomials whose coefficients fall geometrically, so
that a few give full precision (Trefethen, "Approximation Theory and Approximation Practice", 2013, chapters 3 and 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeVar

from tiny_tensor.base import TensorBase
from tiny_uop.records import dataclass

E = TypeVar("E", bound=TensorBase)


# relative to the largest coefficient
_TOLERANCE = {32: 1e-8, 64: 2e-16}


@cache
def coefficients(f: Callable[[float], float], low: float, high: float, tolerance: float) -> tuple[float, ...]:
  """Chebyshev coefficients of `f`, smooth on [low, high], up to where they stay below `tolerance` times the largest."""
  n = 48
  # of multiples of π/2n, all in the first turn: those of large angles would be less exact
  cosines = [math.cos(math.pi * m / (2 * n)) for m in range(4 * n)]
  values = [f(low + (high - low) * (cosines[2 * i + 1] + 1) / 2) for i in range(n)]
  out = [2 / n * math.fsum(v * cosines[(2 * i + 1) * k % (4 * n)] for i, v in enumerate(values)) for k in range(n)]
  out[0] /= 2
  least = tolerance * max(map(abs, out))
  # two, since every other one may be 0; what comes behind is noise
  small = (k for k in range(1, n - 1) if max(abs(out[k]), abs(out[k + 1])) < least)
  return tuple(out[: next(small, n)])


@cache
def powers(f: Callable[[float], float], low: float, high: float, tolerance: float) -> tuple[float, ...]:
  """The same polynomial by powers of x, lowest first; if 0 is not in the interval, by those of
  y = (2x - low - high)/(high - low).
  """
  c = coefficients(f, low, high, tolerance)
  scale, shift = (2 / (high - low), -(high + low) / (high - low)) if low <= 0 <= high else (1.0, 0.0)
  return by_powers(c, scale, shift)


def by_powers(c: tuple[float, ...], scale: float = 1.0, shift: float = 0.0) -> tuple[float, ...]:
  """The sum of Chebyshev polynomials of y = scale·x + shift with these coefficients by powers of x, lowest first."""
  size = len(c)
  total, before, now = [0.0] * size, [1.0, *[0.0] * size], [shift, scale, *[0.0] * size]
  for k, weight in enumerate(c):
    total = [t + weight * p for t, p in zip(total, before if k == 0 else now)]
    if k:
      # T(k+1) = 2·y·T(k) - T(k-1)
      up = [0.0, *now]
      before, now = now, [2 * (shift * p + scale * u) - q for p, u, q in zip(now, up, before)]
  return tuple(total)


@dataclass(frozen=True, eq=False)
class Series:
  """A sum of Chebyshev polynomials on [low, high], with enough coefficients for float64."""

  low: float
  high: float
  coefficients: tuple[float, ...]

  def __call__(self, x: E, least: float | None = None) -> E:
    """Its values, to the precision of x's dtype where they are about as large everywhere; terms below `least` are left
    out, by default those that are small against the largest.
    """
    if least is None:
      least = _TOLERANCE[x.dtype.bits] * max(map(abs, self.coefficients))
    middle = x * (2 / (self.high - self.low)) - (self.high + self.low) / (self.high - self.low)
    return horner(_truncated(self, least), middle)


@cache
def _truncated(series: Series, least: float) -> tuple[float, ...]:
  """Powers of a series without what is small and comes last."""
  last = max((k for k, c in enumerate(series.coefficients) if abs(c) >= least), default=0)
  return by_powers(series.coefficients[: last + 1])


def horner(c: tuple[float, ...], x: E) -> E:
  """The polynomial with these coefficients, lowest first."""
  out = x.const_like(c[-1])
  for value in reversed(c[:-1]):
    out = out * x + value
  return out


def polynomial(f: Callable[[float], float], low: float, high: float, x: E) -> E:
  """`f(x)` for x in [low, high], to the precision of x's dtype where f is about as large everywhere."""
  c = powers(f, low, high, _TOLERANCE[x.dtype.bits])
  return horner(c, x if low <= 0 <= high else x * (2 / (high - low)) - (high + low) / (high - low))


def odd(rest: Callable[[float], float], most: float, x: E, slope: float = 1.0) -> E:
  """x·(slope + u·rest(u)) with u = x², for |x| <= most: as x and what is added to it, so that little is rounded
  twice.
  """
  u = x * x
  more = u * horner(powers(rest, 0.0, most * most, _TOLERANCE[x.dtype.bits]), u)
  return x + x * (more if slope == 1.0 else more + (slope - 1))


def series(terms: Iterable[float]) -> Callable[[float], float]:
  """u → Σ terms[k]·u^k."""
  found = tuple(terms)
  return lambda u: math.fsum(t * u**k for k, t in enumerate(found))


# (f(√u)/√u - slope)/u of odd functions, made once: the cache of coefficients goes by the function. 30 terms are enough
_K = range(30)
asin_rest = series(math.comb(2 * k + 2, k + 1) / (4 ** (k + 1) * (2 * k + 3)) for k in _K)
atan_rest = series((-1) ** (k + 1) / (2 * k + 3) for k in _K)
sinh_rest = series(1 / math.factorial(2 * k + 3) for k in _K)
erf_rest = series((-1) ** (k + 1) * 2 / math.sqrt(math.pi) / (math.factorial(k + 1) * (2 * k + 3)) for k in _K)
# the derivative of sin(x)/x, over x, of u = x²
sinc_rest = series((-1) ** (k + 1) * (2 * k + 2) / math.factorial(2 * k + 3) for k in _K)
# (exp(r) - 1 - r)/r²
exponential_rest = series(1 / math.factorial(k + 2) for k in _K)


def erfc_scaled_log(z: float) -> float:
  """log(erfc(z)·exp(z²))."""
  return math.log(math.erfc(z)) + z * z
