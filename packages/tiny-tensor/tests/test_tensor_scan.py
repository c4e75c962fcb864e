"""Long cumulative sums, products and extrema, and their gradients, in blocks; on the reference device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor
from tiny_tensor.func import jvp, vmap


@pytest.fixture(autouse=True, params=["threads", "rows"])
def _on_the_reference_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  """In blocks as threads take them, and row by row as a device without workgroups does."""
  if request.param == "rows":
    monkeypatch.setattr("tiny_tensor.sequence.has_groups", lambda place: False)
    monkeypatch.setattr("tiny_tensor.methods.scan.BLOCK", 32)
  with Context(DEVICE="REF"):
    yield


@pytest.mark.parametrize("length", [17, 24, 256, 300])
def test_lengths(length: int) -> None:
  a = np.random.default_rng(length).standard_normal((2, length)).astype(np.float32)
  np.testing.assert_allclose(Tensor(a).cumsum(1).numpy(), a.cumsum(1), rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(Tensor(a.T.copy()).cumsum(0).numpy(), a.cumsum(1).T, rtol=1e-4, atol=1e-5)
  np.testing.assert_array_equal(Tensor(a).cummax(1)[0].numpy(), np.maximum.accumulate(a, 1))
  b = 1 + a[:, :40] / 100
  np.testing.assert_allclose(Tensor(b).cumprod(1).numpy(), b.cumprod(1), rtol=1e-5)
  i = np.random.default_rng(length).integers(-9, 9, length, dtype=np.int32)
  np.testing.assert_array_equal(Tensor(i).cumsum(0).numpy(), i.cumsum())


@pytest.mark.parametrize("shape", [(8, 16), (11, 37), (2, 9, 3)])
def test_many_rows(shape: tuple[int, ...]) -> None:
  """Rows side by side, several columns in a step; and rows and columns that are left."""
  a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
  np.testing.assert_allclose(Tensor(a).cumsum(1).numpy(), a.cumsum(1), rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(Tensor(a).cumprod(1).numpy(), a.cumprod(1), rtol=1e-4, atol=1e-6)
  expected = np.logaddexp.accumulate(a, 1)
  np.testing.assert_allclose(Tensor(a).logcumsumexp(1).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_gradient() -> None:
  a = np.random.default_rng(0).standard_normal(40).astype(np.float32)
  weights = np.arange(40, dtype=np.float32)
  x = Tensor(a, requires_grad=True)
  (x.cumsum(0) * Tensor(weights)).sum().backward()
  assert x.grad is not None
  np.testing.assert_allclose(x.grad.numpy(), weights[::-1].cumsum()[::-1], rtol=1e-5)


def test_derivatives_of_products_and_extrema() -> None:
  """With a zero among the factors; an extremum has that of where it was last met."""
  a = np.linspace(-1, 2, 20)
  a[7] = 0.0
  x = Tensor(a, requires_grad=True)
  first = x.cumprod(0).sum().gradient(x)[0]
  matrix = np.array([[np.prod(np.delete(a[: i + 1], j)) if j <= i else 0 for j in range(20)] for i in range(20)])
  np.testing.assert_allclose(first.numpy(), matrix.sum(0), atol=1e-12)
  step = 1e-6
  either = []
  for sign in (1, -1):
    y = Tensor(a + sign * step * np.arange(20), requires_grad=True)
    either.append(y.cumprod(0).sum().gradient(y)[0].numpy())
  second = (first * Tensor(np.arange(20.0))).sum().gradient(x)[0].numpy()
  # the Hessian is symmetric: its product with a vector is a derivative in that direction
  np.testing.assert_allclose(second, (either[0] - either[1]) / (2 * step), rtol=1e-4, atol=1e-6)
  b = Tensor(np.array([1.0, 3.0, 2.0, 3.0] * 5), requires_grad=True)
  expected = [1.0, *[2.0 if i % 2 else 0.0 for i in range(1, 19)], 1.0]
  assert b.cummax(0)[0].sum().gradient(b)[0].tolist() == expected
  assert (b * -1).cummin(0)[0].sum().gradient(b)[0].tolist() == [-e for e in expected]
  twice = (b.cummax(0)[0] ** 2).sum().gradient(b)[0].sum().gradient(b)[0]
  assert twice.tolist() == [2 * e for e in expected]
  _, tangent = jvp(lambda x: x.cummax(0)[0], (b,), (Tensor(np.arange(20.0)),))
  assert tangent.tolist() == [0, *[i if i % 2 else i - 1 for i in range(1, 20)]]
  rows = Tensor(np.random.default_rng(0).standard_normal((3, 2, 20)))
  mapped = vmap(lambda x: x.cummax(1)[0])(rows)
  np.testing.assert_array_equal(mapped.numpy(), np.maximum.accumulate(rows.numpy(), 2))


def check_extrema(a: np.ndarray[Any, Any]) -> None:
  """Of `(outer, n, inner)` along n, against what NumPy finds for each element."""
  for name, sign in (("cummax", 1), ("cummin", -1)):
    values, places = (t.numpy() for t in getattr(Tensor(a), name)(1))
    ordered = a.astype(np.float64) * sign
    for where in np.ndindex(*a.shape):
      line = ordered[where[0], : where[1] + 1, where[2]]
      best = np.isnan(line) if np.isnan(line).any() else line == line.max()
      assert places[where] == (last := np.flatnonzero(best)[-1])
      element = a[where[0], last, where[2]]
      assert values[where].tobytes() == element.tobytes(), (values[where], element)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(2, 50, 1), (2, 35, 3), (1, 20, 9), (1, 17, 35)])
def test_extrema_are_elements_and_where_they_were_last_met(shape: tuple[int, ...], dtype: str) -> None:
  rng = np.random.default_rng(3)
  a = (rng.integers(0, 12, shape) - (0 if dtype in ("bool", "uint16") else 6)).astype(dtype)
  if dtype.startswith("float"):
    a = np.where(rng.random(shape) < 0.1, -0.0, a).astype(dtype)
    a[0, 3:5] = -np.inf
    a[-1, 11, ::2] = a[-1, 14] = np.nan
  check_extrema(a)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_extrema_of_lines_that_rise(dtype: str) -> None:
  """Vectors of which all elements are new maxima, or all but the first, or some; equal ones, both zeros, NaN."""
  ramp = np.arange(16) / (2 if dtype == "float32" else 1)
  blocks = [
    ramp - 20,
    ramp - 4,
    np.zeros(16),
    ramp + 4,
    ramp + 1,
    ramp + 15,
    np.r_[ramp[:8], ramp[:8]] + 30,
    ramp + 60,
    ramp,
  ]
  a = np.stack([np.concatenate(blocks), np.concatenate(blocks[::-1])])[..., None].astype(dtype)
  if dtype == "float32":
    a[:, 34:48:3] = -0.0
    a[0, 127] = a[1, 100] = np.nan
  check_extrema(a)
  check_extrema(np.ascontiguousarray(a[:, :-9]))


def test_errors_are_no_larger_than_those_of_numpy() -> None:
  a = (np.random.default_rng(1).random(4096) - 0.5).astype(np.float32) + np.float32(0.1)
  exact = np.cumsum(a.astype(np.float64))
  ours, theirs = (np.abs(got - exact).max() for got in (Tensor(a).cumsum(0).numpy(), np.cumsum(a)))
  assert ours <= theirs
