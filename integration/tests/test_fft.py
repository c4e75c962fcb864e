"""Fourier transforms against NumPy: lengths, norms, axes, cut and filled up; gradients; how many steps they take."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_tensor import Context, Tensor, fft, func
from tiny_tensor.fft import _factor


@pytest.fixture(autouse=True, scope="module")
def _on_the_cpu() -> Iterator[None]:
  with Context(DEVICE="CPU"):
    yield


def drawn(*shape: int, seed: int = 0) -> tuple[Any, tuple[Tensor, Tensor]]:
  rng = np.random.default_rng(seed)
  x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
  x = x.astype(np.complex64)
  return x, (Tensor(x.real.copy()), Tensor(x.imag.copy()))


def close(ours: Any, theirs: Any) -> None:
  made = ours[0].numpy() + 1j * ours[1].numpy() if isinstance(ours, tuple) else ours.numpy()
  assert made.shape == theirs.shape
  np.testing.assert_allclose(made, theirs, atol=3e-6 * max(1.0, float(np.abs(theirs).max(initial=0))))


# one product, two steps, three, a prime factor, primes by Bluestein, and what is left of one
LENGTHS = [1, 2, 3, 7, 30, 64, 97, 128, 360, 521, 1024, 2 * 521]
MORE = [pytest.param(n, marks=pytest.mark.nightly) for n in (16, 65, 211, 1000, 1031, 4096, 3 * 769)]


@pytest.mark.parametrize("n", [*LENGTHS, *MORE])
def test_lengths(n: int) -> None:
  x, pair = drawn(2, n)
  close(fft.fft(pair), np.fft.fft(x))
  close(fft.ifft(pair), np.fft.ifft(x))
  close(fft.rfft(pair[0]), np.fft.rfft(x.real))
  half = x[:, : n // 2 + 1]
  parts = tuple(p[:, : n // 2 + 1] for p in pair)
  close(fft.irfft(parts, n), np.fft.irfft(half, n))  # type: ignore[arg-type]


@settings(max_examples=15, deadline=None)
@given(
  st.lists(st.integers(1, 9), min_size=1, max_size=3), st.sampled_from(["backward", "ortho", "forward"]), st.data()
)
def test_axes_sizes_and_norms(shape: list[int], norm: Any, data: st.DataObject) -> None:
  x, pair = drawn(*shape)
  axis = data.draw(st.integers(-len(shape), len(shape) - 1))
  n = data.draw(st.none() | st.integers(1, 12))
  close(fft.fft(pair, n, axis, norm), np.fft.fft(x, n, axis, norm))
  close(fft.ifft(pair, n, axis, norm), np.fft.ifft(x, n, axis, norm))
  close(fft.rfft(pair[0], n, axis, norm), np.fft.rfft(x.real, n, axis, norm))
  close(fft.fft(pair[1], n, axis, norm), np.fft.fft(x.imag, n, axis, norm))
  if n is not None or shape[axis] > 1:
    close(fft.irfft(pair, n, axis, norm), np.fft.irfft(x, n, axis, norm))


MANY: dict[str, Callable[[Any, Any, Any], Any]] = {
  "fftn": lambda m, x, real: m.fftn(x),
  "ifftn": lambda m, x, real: m.ifftn(x, norm="ortho"),
  "rfftn": lambda m, x, real: m.rfftn(real),
  "irfftn": lambda m, x, real: m.irfftn(x),
  "fft2": lambda m, x, real: m.fft2(x),
  "ifft2": lambda m, x, real: m.ifft2(x, axes=(0, 2)),
  "rfft2": lambda m, x, real: m.rfft2(real, (5, 8)),
  "irfft2": lambda m, x, real: m.irfft2(x, (5, 7), norm="forward"),
  "sizes": lambda m, x, real: m.fftn(x, (3, 9), axes=(1, 2)),
  "real, sizes": lambda m, x, real: m.rfftn(real, (3, 9), axes=(2, 0)),
  "real inverse, sizes": lambda m, x, real: m.irfftn(x, (3, 9), axes=(2, 0)),
}


@pytest.mark.parametrize("name", MANY)
def test_several_axes(name: str) -> None:
  x, pair = drawn(4, 5, 6)
  close(MANY[name](fft, pair, pair[0]), MANY[name](np.fft, x, x.real))


def test_frequencies_and_shifts() -> None:
  for n in (1, 4, 5):
    np.testing.assert_allclose(fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5), rtol=1e-6)
    np.testing.assert_allclose(fft.rfftfreq(n, 0.5).numpy(), np.fft.rfftfreq(n, 0.5), rtol=1e-6)
  x, pair = drawn(4, 5)
  for ours, theirs in ((fft.fftshift, np.fft.fftshift), (fft.ifftshift, np.fft.ifftshift)):
    close(ours(pair), theirs(x))
    close(ours(pair[0], 1), theirs(x.real, 1))
    close(ours(pair, (0,)), theirs(x, (0,)))


def test_dtypes() -> None:
  x = np.random.default_rng(1).standard_normal(521)
  re, im = fft.fft(Tensor(x))
  assert re.dtype.name == "float64"
  np.testing.assert_allclose(re.numpy() + 1j * im.numpy(), np.fft.fft(x), atol=1e-11)
  assert (
    fft.rfft(Tensor([1, 2, 3]))[0].dtype.name == fft.rfft(Tensor([1.0], dtype="float16"))[0].dtype.name == "float32"
  )


@pytest.mark.parametrize("n", [6, 128, 521])
def test_gradients(n: int) -> None:
  """A transform is linear: the gradient of <c, fft(x)> is the adjoint of c, which NumPy's conjugates give."""
  x, pair = drawn(n)
  c, (c_re, c_im) = drawn(n, seed=1)
  re, im = (p.requires_grad_() for p in pair)
  made = fft.fft((re, im))
  (made[0] * c_re + made[1] * c_im).sum().backward()
  adjoint = np.conj(np.fft.fft(np.conj(c)))
  assert re.grad is not None and im.grad is not None
  close((re.grad, im.grad), adjoint)
  real = Tensor(x.real.copy(), requires_grad=True)
  back = fft.irfft(fft.rfft(real), n)
  (back * c_re).sum().backward()
  assert real.grad is not None
  close(real.grad, c.real)


def test_vmap() -> None:
  x, pair = drawn(3, 8)
  close(func.vmap(lambda a: fft.rfft(a)[1])(pair[0]), np.fft.rfft(x.real).imag)


@pytest.mark.parametrize("n, most", [(1024, 2 * 32), (4096, 2 * 64), (1 << 18, 3 * 64)])
def test_a_value_takes_few_products(n: int, most: int) -> None:
  sizes, rest = [], n
  while rest > 1:
    sizes.append(_factor(rest))
    rest //= sizes[-1]
  assert sum(sizes) <= most


def test_what_is_refused() -> None:
  x = Tensor.ones(4)
  with pytest.raises(ValueError, match="norm must be"):
    fft.fft(x, norm="both")
  with pytest.raises(IndexError, match="axis 1 of an argument with 1 axes"):
    fft.fft(x, axis=1)
  with pytest.raises(TypeError, match="rfft takes a real Tensor"):
    fft.rfft((x, x))  # type: ignore[arg-type]
  with pytest.raises(TypeError, match="a pair of the real"):
    fft.fft([1.0, 2.0])  # type: ignore[arg-type]
  with pytest.raises(ValueError, match="at least one value, got n=0"):
    fft.fft(x, 0)
  with pytest.raises(ValueError, match="2 sizes for 1 axes"):
    fft.fftn(x, (2, 2), (0,))
