"""Chebyshev approximation: coefficients computed from the C library's functions, evaluated on tensors.

A function that is smooth on an interval is a sum of Chebyshev polynomials whose coefficients fall geometrically, so
that a few give full precision (Trefethen, "Approximation Theory and Approximation Practice", 2013, chapters 3 and 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from tiny_tensor.elementwise import ElementwiseMixin

E = TypeVar("E", bound=ElementwiseMixin)


@cache
def coefficients(f: Callable[[float], float], low: float, high: float, tolerance: float) -> tuple[float, ...]:
  """Chebyshev coefficients of `f` on [low, high], those below `tolerance` times the largest dropped."""
  n = 48
  angles = [math.pi * (i + 0.5) / n for i in range(n)]
  values = [f(low + (high - low) * (math.cos(a) + 1) / 2) for a in angles]
  out = [2 / n * math.fsum(v * math.cos(k * a) for v, a in zip(values, angles, strict=True)) for k in range(n)]
  out[0] /= 2
  least = tolerance * max(map(abs, out))
  while len(out) > 1 and abs(out[-1]) < least:
    out.pop()
  return tuple(out)


def chebyshev(f: Callable[[float], float], low: float, high: float, x: E) -> E:
  """`f(x)` for x in [low, high], to the precision of x's dtype, by Clenshaw's recurrence."""
  c = coefficients(f, low, high, 1e-17 if x.dtype.bits == 64 else 1e-9)
  y = x * (2 / (high - low)) - (high + low) / (high - low)
  before, now = x.const_like(0), x.const_like(c[-1])
  for k in range(len(c) - 2, 0, -1):
    before, now = now, (y * 2) * now - before + c[k]
  return y * now - before + c[0] if len(c) > 1 else now


def erf_ratio(u: float) -> float:
  """erf(√u)/√u, an entire function of u."""
  x = math.sqrt(u)
  return math.erf(x) / x if x > 1e-8 else 2 / math.sqrt(math.pi)


def erfc_scaled_log(t: float) -> float:
  """log(erfc(z)·exp(z²)/t) for t = 2/(2+z) in (0, 1]."""
  z = 2 / t - 2
  if z < 5:
    return math.log(math.erfc(z) / t) + z * z
  # the asymptotic series of erfc (Abramowitz & Stegun 7.1.23), below 1e-16 at its smallest term
  term = total = 1.0
  for n in range(1, 25):
    term *= -(2 * n - 1) / (2 * z * z)
    total += term
  return math.log(total / (z * math.sqrt(math.pi) * t))


def _odd_ratio(f: Callable[[float], float]) -> Callable[[float], float]:
  """u → f(√u)/√u, which is smooth at 0 for an odd function with slope 1 there."""

  def ratio(u: float) -> float:
    x = math.sqrt(u)
    return f(x) / x if x > 1e-8 else 1.0

  return ratio


# made once: the cache of coefficients goes by the function
asin_ratio, atan_ratio = _odd_ratio(math.asin), _odd_ratio(math.atan)
sinh_ratio, tanh_ratio = _odd_ratio(math.sinh), _odd_ratio(math.tanh)


def log1p_ratio(x: float) -> float:
  """log(1+x)/x."""
  return math.log1p(x) / x if abs(x) > 1e-12 else 1.0
