"""Long cumulative sums, products and extrema, and their gradients, by slices of blocks; on the reference device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tiny_tensor import Context, Tensor
from tiny_uop import Ops


@pytest.fixture(autouse=True)
def _by_slices_on_the_reference_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  monkeypatch.setattr("tiny_tensor.methods.scan.MANY", 0)
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


def test_gradient() -> None:
  a = np.random.default_rng(0).standard_normal(40).astype(np.float32)
  weights = np.arange(40, dtype=np.float32)
  x = Tensor(a, requires_grad=True)
  (x.cumsum(0) * Tensor(weights)).sum().backward()
  assert x.grad is not None
  np.testing.assert_allclose(x.grad.numpy(), weights[::-1].cumsum()[::-1], rtol=1e-5)


def test_as_many_operations_as_elements() -> None:
  scanned, total = Tensor(np.ones((4, 16), np.float32))._scan_slices(Ops.ADD)
  added = [u for u in scanned.uop.toposort if u.op is Ops.ADD and u.dtype.kind == "float"]
  assert len(added) == 15
  np.testing.assert_array_equal(scanned.numpy(), np.tile(np.arange(1, 17), (4, 1)))
  np.testing.assert_array_equal(total.numpy(), [16] * 4)


def test_errors_are_no_larger_than_those_of_numpy() -> None:
  a = (np.random.default_rng(1).random(4096) - 0.5).astype(np.float32) + np.float32(0.1)
  exact = np.cumsum(a.astype(np.float64))
  ours, theirs = (np.abs(got - exact).max() for got in (Tensor(a).cumsum(0).numpy(), np.cumsum(a)))
  assert ours <= theirs
