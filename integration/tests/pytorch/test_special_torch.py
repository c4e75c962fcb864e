"""Special functions against mpmath: errors are what the docstrings say, in float32 and float64, wherever they change
their method. And the module of their series is what the script makes.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor

mp: Any = pytest.importorskip("mpmath")  # only in the environment `oracle`, where PyTorch brings it

ROOT = Path(__file__).parents[3]
DTYPES = ("float64", "float32")


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"), mp.workdps(40):
    yield


def assert_close(found: Any, expected: list[Any], allowed: list[Any], points: Any) -> None:
  """Errors in eps, each within what is allowed for it, where the expected number is a normal one of the dtype."""
  limits = np.finfo(found.dtype)
  checked = 0
  for got, true, most, point in zip(found, expected, allowed, points, strict=True):
    if limits.tiny * 8 < abs(true) < limits.max / 2:
      error = abs(mp.mpf(float(got)) - true) / limits.eps
      assert error <= most, f"at {point!r}: {got!r}, expected {float(true)!r}, {float(error / most):.1f} times too far"
      checked += 1
  assert checked > len(expected) / 2


def wave(x: Any) -> Any:
  """The height of √(2/(πx)), and of the functions near 0."""
  return mp.sqrt(2 / (mp.pi * max(abs(x), 1)))


def relative(eps: float) -> Callable[[Any, Any], Any]:
  return lambda x, y: eps * abs(y)


def of_airy(x: Any, y: Any) -> Any:
  zeta = 2 * abs(x) ** mp.mpf(1.5) / 3
  return (5 + 1.2 * zeta) * (abs(y) if x > -3.5 else abs(x) ** mp.mpf(-0.25) / mp.sqrt(mp.pi))


def exponential(eps: float) -> Callable[[Any, Any], Any]:
  return lambda x, y: (eps + abs(x)) * abs(y)


OF_ONE: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any], bool]] = {
  "bessel_j0": (lambda x: mp.besselj(0, x), lambda x, y: 4 * wave(x), True),
  "bessel_j1": (lambda x: mp.besselj(1, x), lambda x, y: 4 * (abs(y) if abs(x) < 3.8 else wave(x)), True),
  "bessel_y0": (lambda x: mp.bessely(0, x), lambda x, y: 4 * max(abs(y), wave(x)), False),
  "bessel_y1": (lambda x: mp.bessely(1, x), lambda x, y: 4 * max(abs(y), wave(x)), False),
  "modified_bessel_i0": (lambda x: mp.besseli(0, x), exponential(50), True),
  "modified_bessel_i1": (lambda x: mp.besseli(1, x), exponential(50), True),
  "modified_bessel_k0": (lambda x: mp.besselk(0, x), exponential(7), False),
  "modified_bessel_k1": (lambda x: mp.besselk(1, x), exponential(7), False),
  "scaled_modified_bessel_k0": (lambda x: mp.besselk(0, x) * mp.exp(x), relative(7), False),
  "scaled_modified_bessel_k1": (lambda x: mp.besselk(1, x) * mp.exp(x), relative(7), False),
  "spherical_bessel_j0": (mp.sinc, lambda x, y: 2 / max(abs(x), 1), True),
  "airy_ai": (mp.airyai, of_airy, True),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one_number(name: str, dtype: str) -> None:
  f, allowed, negative = OF_ONE[name]
  rng = np.random.default_rng(0)
  ends = [1e-30, 1e-3, 1.4999, 1.5001, 2.0, 2.0001, 3.4999, 3.5001, 4.0, 4.0001, 8.0, 60.0]
  x = np.concatenate([rng.uniform(0, 10, 60), 10 ** rng.uniform(-3, 2, 40), ends])
  x = (np.concatenate([x, -x]) if negative else x).astype(dtype)
  exact = [mp.mpf(float(v)) for v in x]
  true = [f(v) for v in exact]
  assert_close(getattr(Tensor(x), name)().numpy(), true, [allowed(*p) for p in zip(exact, true, strict=True)], x)


def lower(a: Any, x: Any) -> Any:
  if x > a + 5:
    return 1 - mp.gammainc(a, x, mp.inf, regularized=True)
  return mp.hyp1f1(1, a + 1, x) * mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma(name: str, dtype: str) -> None:
  rng = np.random.default_rng(1)
  a = np.concatenate([10 ** rng.uniform(-4, 0, 40), rng.uniform(0, 25, 80), 10 ** rng.uniform(1, 3, 60)])
  x = a * np.concatenate([rng.uniform(0.2, 2.5, 100), rng.uniform(0.7, 1.4, 80)])
  x[:40] = 10 ** rng.uniform(-3, 1, 40)
  a, x = a.astype(dtype), x.astype(dtype)
  pairs = [(mp.mpf(float(v)), mp.mpf(float(w))) for v, w in zip(a, x, strict=True)]
  true = [lower(*p) if name == "igamma" else mp.gammainc(*p, mp.inf, regularized=True) for p in pairs]
  allowed = [(30 + 2 * abs(mp.log(y))) * y for y in true]
  assert_close(getattr(Tensor(a), name)(Tensor(x)).numpy(), true, allowed, list(zip(a, x, strict=True)))


def zeta(s: Any, q: Any) -> Any:
  terms = 0 if q > 0 else 1 - math.floor(q)  # which are those of a negative q, which mpmath does not take
  with mp.workdps(150):
    return mp.fsum((q + k) ** -int(s) for k in range(terms)) + mp.zeta(s, q + terms)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeta(dtype: str) -> None:
  rng = np.random.default_rng(2)
  s = np.concatenate([rng.uniform(1, 30, 60), 1 + 10 ** rng.uniform(-4, 0, 20), rng.integers(2, 9, 30)]).astype(dtype)
  q = np.concatenate([10 ** rng.uniform(-2, 3, 40), rng.uniform(0, 20, 40), rng.uniform(-9, 0, 30)]).astype(dtype)
  pairs = [(mp.mpf(float(v)), mp.mpf(float(w))) for v, w in zip(s, q, strict=True)]
  true = [zeta(*p) for p in pairs]
  allowed = [(8 + 2 * abs(v * mp.log(abs(w)))) * abs(y) for (v, w), y in zip(pairs, true, strict=True)]
  assert_close(Tensor(s).zeta(Tensor(q)).numpy(), true, allowed, list(zip(s, q, strict=True)))


@pytest.mark.nightly
def test_the_module_has_the_scripts_series() -> None:
  script = [sys.executable, str(ROOT / "integration/tables/special_functions.py")]
  done = subprocess.run(script, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
