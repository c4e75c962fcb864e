"""Where the coefficients in `tiny_codegen/decompose/coefficients.py` come from. Run it to print them: `python
tools/minimax.py` (needs mpmath).

Each polynomial p of degree n is the minimax fit of `target` on an interval: Remez's exchange algorithm (Remez 1934;
see Muller, "Elementary Functions", ch. 3) finds the p whose largest weighted error |weight(x) * (p(x) - target(x))|
is least. The weight is such that the error counts relative to the function that is finally computed. Coefficients are
then rounded to the format; the error printed is that of the rounded ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]

Real = Any  # an mpmath number
mp.mp.prec = 200


def remez(
  target: Callable[[Real], Real], weight: Callable[[Real], Real], low: Real, high: Real, degree: int
) -> list[Real]:
  """Coefficients c[0..degree] of the polynomial closest to `target`."""
  count = degree + 1
  nodes = [
    (low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (i + mp.mpf(1) / 2) / (count + 1)) for i in range(count + 1)
  ][::-1]
  coefficients: list[Real] = []
  for _ in range(30):
    rows = mp.matrix(count + 1, count + 1)
    right = mp.matrix(count + 1, 1)
    nodes = [x if abs(weight(x)) > 1e-9 else x + (high - low) / 997 for x in nodes]  # no weight, no information
    for i, x in enumerate(nodes):
      for j in range(count):
        rows[i, j] = x**j
      rows[i, count] = (-1) ** i / weight(x)
      right[i] = target(x)
    solved = mp.lu_solve(rows, right)
    coefficients, level = [solved[j] for j in range(count)], abs(solved[count])

    def error(x: Real, c: list[Real] = coefficients) -> Real:
      return weight(x) * (sum(k * x**j for j, k in enumerate(c)) - target(x))

    nodes = _extrema(error, low, high, count + 1)
    if max(abs(error(x)) for x in nodes) < level * mp.mpf("1.0001"):
      break
  return coefficients


def _extrema(error: Callable[[Real], Real], low: Real, high: Real, wanted: int) -> list[Real]:
  """The points of largest error between sign changes, on a grid refined around each."""
  steps = 600
  grid = [low + (high - low) * i / steps for i in range(steps + 1)]
  values = [error(x) for x in grid]
  found: list[tuple[Real, Real]] = []
  for i in range(steps + 1):
    before, after = max(i - 1, 0), min(i + 1, steps)
    if abs(values[i]) >= abs(values[before]) and abs(values[i]) >= abs(values[after]):
      x, step = grid[i], (high - low) / steps
      for _ in range(12):
        step /= 2
        x = max((max(low, x - step), x, min(high, x + step)), key=lambda p: abs(error(p)))
      if found and mp.sign(found[-1][1]) == mp.sign(error(x)):
        found[-1] = max(found[-1], (x, error(x)), key=lambda pair: abs(pair[1]))
      else:
        found.append((x, error(x)))
  while len(found) > wanted:
    found.pop(0 if abs(found[0][1]) < abs(found[-1][1]) else -1)
  if len(found) < wanted:
    raise ValueError(f"the error alternates {len(found)} times, expected {wanted}: raise the working precision")
  return [x for x, _ in found]


def rounded(value: Real, bits: int) -> Real:
  """`value` to `bits` significand bits, nearest."""
  if value == 0:
    return value
  mantissa, exponent = mp.frexp(value)
  return mp.nint(mantissa * 2**bits) * mp.mpf(2) ** (exponent - bits)


def fit(
  name: str,
  target: Callable[[Real], Real],
  weight: Callable[[Real], Real],
  low: Real,
  high: Real,
  degree: int,
  bits: int,
) -> None:
  """Print one polynomial and its error."""
  fixed = [rounded(c, bits) for c in remez(target, weight, low, high, degree)]
  grid = [low + (high - low) * i / 2000 for i in range(2001)]
  worst = max(abs(weight(x) * (sum(c * x**i for i, c in enumerate(fixed)) - target(x))) for x in grid)
  print(f"# error 2^{float(mp.log(worst, 2)):.1f}\n{name} = ({', '.join(float(c).hex() for c in fixed)})")


def ratio(top: Callable[[Real], Real], bottom: Callable[[Real], Real], at_zero: Real) -> Callable[[Real], Real]:
  """top/bottom with its limit at 0, where both vanish."""
  return lambda x: at_zero if abs(x) < mp.mpf(2) ** -60 else top(x) / bottom(x)


def main() -> None:
  """All polynomials."""
  mp.mp.prec = 400
  ln2, one, quarter = mp.log(2), mp.mpf(1), mp.pi / 4 * mp.mpf("1.002")
  half, natural = mp.mpf("0.501"), ln2 * mp.mpf("0.501")
  left, right = mp.sqrt(mp.mpf("0.5")) * mp.mpf("0.9999") - 1, mp.sqrt(mp.mpf(2)) * mp.mpf("1.0001") - 1
  for label, bits, degree in (("F32", 24, (4, 4, 7, 3, 2)), ("F64", 53, (9, 9, 0, 5, 5))):
    d_exp2, d_exp, d_log, d_sin, d_cos = degree
    fit(
      f"EXP2_{label}",
      ratio(lambda x: mp.expm1(x * ln2) - x * ln2, lambda x: x * x, ln2**2 / 2),
      lambda x: x * x / 2**x,
      -half,
      half,
      d_exp2,
      bits,
    )
    fit(
      f"EXP_{label}",
      ratio(lambda x: mp.expm1(x) - x, lambda x: x * x, one / 2),
      lambda x: x * x / mp.exp(x),
      -natural,
      natural,
      d_exp,
      bits,
    )
    if d_log:
      fit(f"LOG_{label}", ratio(lambda f: mp.log1p(f) - f + f * f / 2, lambda f: f**3, one / 3),
          ratio(lambda f: f**3, mp.log1p, mp.mpf(0)), left, right, d_log, bits)  # fmt: skip
      fit(f"LOG2_{label}", ratio(lambda f: (mp.log1p(f) - f) / ln2, lambda f: f * f, -one / (2 * ln2)),
          ratio(lambda f: f * f * ln2, mp.log1p, mp.mpf(0)), left, right, d_log + 1, bits)  # fmt: skip
    # in z = x*x: the polynomial sees only even powers
    fit(
      f"SIN_{label}",
      ratio(lambda z: mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1, lambda z: z, -one / 6),
      lambda z: z,
      mp.mpf(0),
      quarter**2,
      d_sin,
      bits,
    )
    fit(f"COS_{label}", ratio(lambda z: mp.cos(mp.sqrt(z)) - 1 + z / 2, lambda z: z * z, one / 24),
        lambda z: z * z / mp.cos(mp.sqrt(z)),
        mp.mpf(0), quarter**2, d_cos, bits)  # fmt: skip
  # log(1+f) = 2 s + s R(s^2) with s = f/(2+f)
  top = (right / (2 + right)) ** 2 * mp.mpf("1.001")
  fit(
    "LOG_F64",
    ratio(lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2, lambda z: z, 2 * one / 3),
    lambda z: z / 2,
    mp.mpf(0),
    top,
    6,
    53,
  )
  for label, bits, keep in (("F32", 24, (16, 16)), ("F64", 53, (33, 33, 33)), ("FUSED_F32", 24, (24, 13)),
                            ("FUSED_F64", 53, (53, 33))):  # fmt: skip
    rest, parts = mp.pi / 2, []
    for k in keep:
      # truncated, so that all parts are positive and each is a bit string of pi/2
      mantissa, exponent = mp.frexp(rest)
      parts.append(mp.floor(mantissa * 2**k) * mp.mpf(2) ** (exponent - k))
      rest -= parts[-1]
    parts.append(rounded(rest, bits))
    print(f"HALF_PI_{label} = ({', '.join(float(p).hex() for p in parts)})")
  words = _two_over_pi(40)
  print(f"TWO_OVER_PI = ({', '.join(f'0x{words >> (32 * (39 - i)) & 0xFFFFFFFF:08X}' for i in range(40))})")


def _two_over_pi(words: int) -> int:
  with mp.workprec(32 * words + 64):
    return int(mp.floor(2 / mp.pi * mp.mpf(2) ** (32 * words)))


if __name__ == "__main__":
  main()
