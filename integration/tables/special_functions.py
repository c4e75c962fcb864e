"""Chebyshev coefficients of special functions: `--write` makes packages/tiny-tensor's module of them anew.

Each function below is smooth on an interval: what is left of a special function when its zeros, its growth, its
logarithm or its oscillation are taken away (Abramowitz & Stegun, "Handbook of Mathematical Functions", chapters 6, 9
and 10; for the incomplete gamma function DLMF 8.12). mpmath evaluates them with 50 digits. Without an argument this
says whether the module has the same numbers, and fails where it has others.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mpmath as mp

MODULE = Path(__file__).parents[2] / "packages/tiny-tensor/src/tiny_tensor/special/tables.py"
Function = Callable[[Any], Any]

HEAD = '''"""Chebyshev series of what special functions are made of (`bessel.py`, `incomplete_gamma.py`).

Made by integration/tables/special_functions.py, where the functions stand, with 50 digits; it also compares them.
"""

from tiny_tensor.special.chebyshev import Series

# first zeros, and what rounding took from them
'''

NODES = 64
TOLERANCE = mp.mpf("2e-16")  # relative to the largest coefficient: what is below it does not count in float64
DIGITS = 1 << 8  # a coefficient has the digits that say it to so small a part of what counts
WIDTH = 120  # of a line
ORDERS = 11  # terms of the expansion for large a of the incomplete gamma function
LEAST = 20  # what a counts as large for float64; TEMME[k] is multiplied by a power of 1/a
POWERS = 120  # of a Taylor series of radius 2√π, on [-1, 1]


def coefficients(f: Function, low: Any, high: Any, least: Any = None) -> list[float]:
  """Chebyshev coefficients of `f` on [low, high], up to the last that is not below `least`, in digits that count."""
  angles = [mp.pi * (2 * i + 1) / (2 * NODES) for i in range(NODES)]
  values = [f(low + (high - low) * (mp.cos(a) + 1) / 2) for a in angles]
  out = [2 * mp.fsum(v * mp.cos(a * k) for v, a in zip(values, angles, strict=True)) / NODES for k in range(NODES)]
  out[0] /= 2
  least = TOLERANCE * max(map(abs, out)) if least is None else least
  assert max(map(abs, out[-4:])) < least, "not smooth enough for so few nodes"
  return [shortest(c, least / DIGITS) for c in out[: 1 + max(k for k in range(NODES) if abs(out[k]) >= least)]]


def shortest(number: Any, error: Any) -> float:
  """The float of the fewest digits that is this near to a number."""
  near = (float(mp.nstr(number, digits)) for digits in range(1, 17))
  return next((f for f in near if abs(f - number) <= error), float(number))


# *** Bessel functions, for x up to 4 by u = x², beyond by u = (4/x)² ***


def near_j(order: int, u: Any) -> Any:
  """J/x^order without its first zero, which is below 4."""
  x = mp.sqrt(u)
  return mp.besselj(order, x) / x**order / (u - mp.besseljzero(order, 1) ** 2)


def far_jy(order: int, part: str, u: Any) -> Any:
  """P and Q·x/4 of √(πx/2)·J = P cos χ - Q sin χ and √(πx/2)·Y = P sin χ + Q cos χ, χ = x - π/4 - order·π/2."""
  x = 4 / mp.sqrt(u)
  chi, root = x - mp.pi / 4 - order * mp.pi / 2, mp.sqrt(mp.pi * x / 2)
  j, y, c, s = root * mp.besselj(order, x), root * mp.bessely(order, x), mp.cos(chi), mp.sin(chi)
  return j * c + y * s if part == "p" else (y * c - j * s) * x / 4


def near_y(order: int, u: Any) -> Any:
  """(Y - 2/π log(x) J)·x^order."""
  x = mp.sqrt(u)
  return (mp.bessely(order, x) - 2 / mp.pi * mp.log(x) * mp.besselj(order, x)) * x**order


def near_i(order: int, u: Any) -> Any:
  """I/x^order."""
  x = mp.sqrt(u)
  return mp.besseli(order, x) / x**order


def near_k(order: int, u: Any) -> Any:
  """(K ± log(x/2) I)·x^order."""
  x = mp.sqrt(u)
  return (mp.besselk(order, x) + (-1) ** order * mp.log(x / 2) * mp.besseli(order, x)) * x**order


def far_k(order: int, t: Any) -> Any:
  """K·exp(x)·√x for x = 2/t."""
  x = 2 / t
  return mp.besselk(order, x) * mp.exp(x) * mp.sqrt(x)


# *** Airy functions and their derivatives; ζ = 2/3 |x|^(3/2) ***

AIRY_LOW, AIRY_MIDDLE, AIRY_HIGH = mp.mpf("-3.5"), mp.mpf(-1), mp.mpf("1.5")


def zeta(x: Any) -> Any:
  """ζ."""
  return 2 * abs(x) * mp.sqrt(abs(x)) / 3


def from_zeta(z: Any) -> Any:
  """|x|."""
  return mp.cbrt((z * 3 / 2) ** 2)


def low_airy(derivative: int, x: Any) -> Any:
  """Ai, without its first zero, or Ai'."""
  return mp.airyai(x, derivative=derivative) / (1 if derivative else x - mp.airyaizero(1))


def far_airy(derivative: int, t: Any) -> Any:
  """Ai or Ai' times exp(ζ) and x^(±1/4), for ζ = 1/t."""
  x = from_zeta(1 / t)
  return mp.airyai(x, derivative=derivative) * mp.exp(1 / t) * x ** (mp.mpf(1 - 2 * derivative) / 4)


def swinging_airy(derivative: int, part: str, u: Any) -> Any:
  """P and Q·ζ/ζ₀ by u = (ζ₀/ζ)², ζ₀ that of -3.5, χ = ζ - π/4:
  √π z^(1/4) Ai(-z) = P cos χ + Q sin χ, √π z^(-1/4) Ai'(-z) = P sin χ - Q cos χ.
  """
  scale = 1 / mp.sqrt(u)
  z = zeta(AIRY_LOW) * scale
  x, c, s = from_zeta(z), mp.cos(z - mp.pi / 4), mp.sin(z - mp.pi / 4)
  root = mp.sqrt(mp.pi) * x ** (mp.mpf(1 - 2 * derivative) / 4)
  a, b = root * mp.airyai(-x, derivative=derivative), root * mp.airybi(-x, derivative=derivative)
  if part == "p":
    return a * s + b * c if derivative else a * c - b * s
  return (b * s - a * c if derivative else a * s + b * c) * scale


# *** the gamma function ***


def log_gamma(x: Any) -> Any:
  """log Γ(1 + x)/x."""
  return mp.loggamma(1 + x) / x


def stirling(t: Any) -> Any:
  """z·(log Γ(z) - (z - 1/2) log z + z - log(2π)/2) for z = 1/t."""
  z = 1 / t
  with mp.extradps(20):
    return z * (mp.loggamma(z) - (z - mp.mpf(1) / 2) * mp.log(z) + z - mp.log(2 * mp.pi) / 2)


def log_rest(x: Any) -> Any:
  """(log(1 + x) - x)/x²."""
  with mp.extradps(20):
    return (mp.log1p(x) - x) / x**2


def temme() -> list[list[Any]]:
  """Taylor coefficients of c₀, c₁ … in η, DLMF 8.12.11 and 8.12.12, where η²/2 = μ - log(1 + μ)."""
  # μ(η): of η (1 + μ) = μ μ'
  mu = [mp.mpf(0), mp.mpf(1)]
  for n in range(2, POWERS + 1):
    others = mp.fsum(mu[i] * (n + 1 - i) * mu[n + 1 - i] for i in range(2, n))
    mu.append((mu[n - 1] - others) / (n + 1))
  inverse = [mp.mpf(1)]  # η/μ
  for n in range(1, POWERS):
    inverse.append(-mp.fsum(mu[i + 1] * inverse[n - i] for i in range(1, n + 1)))
  # Γ(z) = √(2π/z) (z/e)^z Σ g z^-k
  logs = [mp.bernoulli(k + 1) / (k * (k + 1)) if k % 2 else mp.mpf(0) for k in range(1, ORDERS + 1)]
  g = [mp.mpf(1)]
  for n in range(1, ORDERS):
    g.append(mp.fsum(i * logs[i - 1] * g[n - i] for i in range(1, n + 1)) / n)
  out = [inverse[1:]]
  for k in range(1, ORDERS):
    slope = [i * c for i, c in enumerate(out[-1])][1:]
    # the first terms, over η, cancel
    out.append([s + (-1) ** k * g[k] * i for s, i in zip(slope[1:], inverse[1:])])
  return out


def tables() -> dict[str, list[tuple[Any, Any, list[float]]]]:
  """Name → (low, high, coefficients), several for a name that is a list."""
  found: dict[str, tuple[Function, Any, Any]] = {}
  for n in (0, 1):
    found |= {f"J{n}": (partial(near_j, n), 0, 16), f"Y{n}": (partial(near_y, n), 0, 16)}
    found |= {f"P{n}": (partial(far_jy, n, "p"), 0, 1), f"Q{n}": (partial(far_jy, n, "q"), 0, 1)}
    found |= {f"I{n}": (partial(near_i, n), 0, 4), f"K{n}": (partial(near_k, n), 0, 4)}
    found[f"K{n}_FAR"] = (partial(far_k, n), 0, 1)
  for n, name in enumerate(("AIRY", "AIRY_SLOPE")):
    found[f"{name}_LOW"] = (partial(low_airy, n), AIRY_LOW, AIRY_MIDDLE)
    found[f"{name}_HIGH"] = (partial(mp.airyai, derivative=n), AIRY_MIDDLE, AIRY_HIGH)
    found[f"{name}_FAR"] = (partial(far_airy, n), 0, 1 / zeta(AIRY_HIGH))
    found |= {f"{name}_{part.upper()}": (partial(swinging_airy, n, part), 0, 1) for part in "pq"}
  found |= {"LOG_GAMMA": (log_gamma, 0, 1), "STIRLING": (stirling, 0, 1)}
  found["LOG_REST"] = (log_rest, mp.mpf("-0.4"), mp.mpf("0.6"))
  made = {name: [(low, high, coefficients(f, mp.mpf(low), mp.mpf(high)))] for name, (f, low, high) in found.items()}
  terms = []
  for k, taylor in enumerate(temme()):
    f = partial(mp.polyval, taylor[::-1])
    terms.append((-1, 1, coefficients(f, mp.mpf(-1), mp.mpf(1), TOLERANCE / 48 * mp.mpf(LEAST) ** k)))
  return made | {"TEMME": terms}


def zeros() -> dict[str, Any]:
  """The first zeros that are taken out."""
  return {"J0_ZERO": mp.besseljzero(0, 1), "J1_ZERO": mp.besseljzero(1, 1), "AIRY_ZERO": mp.airyaizero(1)}


def module() -> str:
  """The module's text."""
  parts = [HEAD]
  with mp.workdps(50):
    made = tables()
    parts += [f"{name} = ({float(z)!r}, {float(z - float(z))!r})\n" for name, z in zeros().items()]
  for name, several in made.items():
    texts = []
    for low, high, values in several:
      lines = textwrap.fill(", ".join(map(repr, values)), WIDTH, initial_indent="  ", subsequent_indent="  ")
      texts.append(f"Series({float(low)!r}, {float(high)!r}, (\n{lines},\n))")
    joined = texts[0] if len(texts) == 1 else "(\n" + "".join(f"{text},\n" for text in texts) + ")"
    parts.append(f"{name} = {joined}  # fmt: skip\n")
  return "".join(parts)


def main(arguments: list[str]) -> None:
  """Compare, or `--write`."""
  if arguments == ["--write"]:
    MODULE.write_text(module(), encoding="utf-8")
  elif arguments:
    sys.exit(f"usage: python {sys.argv[0]} [--write]")
  elif MODULE.read_text(encoding="utf-8") != module():
    sys.exit(f"{MODULE} differs from what mpmath {mp.__version__} gives: see what --write changes")


if __name__ == "__main__":
  main(sys.argv[1:])
