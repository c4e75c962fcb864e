"""Fourier transforms of a few small lengths on the reference device; `integration/tests/test_fft.py` has all."""

from collections.abc import Iterator

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, fft


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


@pytest.mark.parametrize("n", [1, 7, 12, 16])  # of one number, a prime, a product, a power of two
def test_small_lengths(n: int) -> None:
  x = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
  real, imaginary = fft.rfft(Tensor(x))
  np.testing.assert_allclose(real.numpy() + 1j * imaginary.numpy(), np.fft.rfft(x), atol=1e-5)
  np.testing.assert_allclose(fft.irfft((real, imaginary), n).numpy(), x, atol=1e-5)
