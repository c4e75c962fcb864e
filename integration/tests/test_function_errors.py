"""The functions of Tensor on the CPU, over a sample of all numbers, against NumPy in a wider type."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from ulps import BOUNDS, doubles, errors, patterns, worst

from tiny_tensor import Context, Tensor, dtypes

STRIDE = 64007  # prime: 67101 of the 2**32 numbers
SPECIAL = [0.0, -0.0, 1, -1, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 88.7, 88.8, -87.4, -103.9, -104.1]


@pytest.mark.parametrize("name", BOUNDS)
def test_float32(name: str) -> None:
  sample = np.concatenate([np.array(SPECIAL, np.float32), patterns(0, (1 << 32) // STRIDE, STRIDE)])
  found, place = worst(BOUNDS[name], sample)
  assert found <= BOUNDS[name].single, f"{name}({place!r}) is {found:.3f} ulp off"


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="long double is no wider than float64 here")
@pytest.mark.parametrize("name", BOUNDS)
def test_float64(name: str) -> None:
  found, place = worst(BOUNDS[name], np.concatenate([np.array(SPECIAL), doubles(1 << 14, 5)]))
  assert found <= BOUNDS[name].double, f"{name}({place!r}) is {found:.3f} ulp off"


@pytest.mark.parametrize(
  ("name", "dtype"), [*((name, "float16") for name in BOUNDS), *((name, "bfloat16") for name in ("exp", "sin", "tanh"))]
)
def test_narrow_floats(name: str, dtype: str) -> None:
  """They go through float32: rounding that is right but for the rare neighbours of midpoints."""
  function = BOUNDS[name]
  with Context(DEVICE="CPU"):
    x = Tensor(np.arange(1 << 16).astype(np.uint16)).bitcast(dtype)
    wide, got = x.cast("float32").numpy(), function.compute(x)
    assert got.dtype.name == dtype
    with np.errstate(all="ignore"):
      wanted = (
        Tensor(function.reference(wide.astype(np.float64)).astype(np.float32)).cast(dtype).cast("float32").numpy()
      )
    narrow = got.cast("float32").numpy()
  inside = ~((wide < function.low) | (wide > function.high))
  differ = ~((narrow == wanted) | (np.isnan(narrow) & np.isnan(wanted))) & inside
  assert differ.mean() <= 1e-3, (wide[differ][:5], narrow[differ][:5], wanted[differ][:5])


def test_a_wrong_value_is_seen() -> None:
  x = np.array([1.0, 2.0, np.nan], np.float32)
  assert errors(x, x.astype(np.float64) * (1 + 2.0**-22)).max() == 2.0
  assert np.isinf(errors(np.array([np.nan], np.float32), np.array([1.0]))).all()
  assert np.isinf(errors(np.array([np.inf], np.float32), np.array([1.0]))).all()


def test_slopes_are_those_of_the_functions() -> None:
  """First and second derivatives that functions bring themselves, against differences in float64."""
  at = np.linspace(-4.3, 4.1, 29)
  step = 1e-5
  with Context(DEVICE="CPU"):
    for function in (Tensor.tanh, Tensor.expm1, Tensor.sigmoid, Tensor.erf, Tensor.silu, Tensor.gelu, Tensor.cos):
      x = Tensor(at, requires_grad=True)
      (first,) = function(x).sum().gradient(x)
      (second,) = first.sum().gradient(x)
      values = [function(Tensor(at + d)).numpy() for d in (-step, 0, step)]
      np.testing.assert_allclose(first.numpy(), (values[2] - values[0]) / (2 * step), rtol=1e-6, atol=1e-8)
      curvature = (values[2] - 2 * values[1] + values[0]) / step**2
      np.testing.assert_allclose(second.numpy(), curvature, rtol=1e-3, atol=1e-4)


def test_halves_keep_their_gradients() -> None:
  x = Tensor(np.linspace(-3, 3, 9).astype(np.float16), requires_grad=True)
  (slope,) = x.tanh().sum().gradient(x)
  assert slope.dtype is dtypes.half
  np.testing.assert_allclose(slope.numpy(), 1 - np.tanh(x.numpy().astype(np.float64)) ** 2, atol=2e-3)
