"""Factors of matrices and their derivatives: LU, eigenvectors, singular vectors. Against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor

EPS = float(np.finfo(np.float32).eps)


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def data(*shape: int) -> Any:
  return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5), (1, 1)])
def test_lu_is_what_it_is_made_of(shape: tuple[int, ...]) -> None:
  a = data(*shape)
  packed, pivots = Tensor(a).lu_factor()
  p, lower, upper = (t.numpy() for t in packed.lu_unpack(pivots))
  np.testing.assert_allclose(p @ lower @ upper, a, atol=20 * EPS)
  np.testing.assert_array_equal(upper, np.triu(upper))
  k = min(shape[-2:])
  assert pivots.shape == (*shape[:-2], k) and np.abs(lower).max() <= 1
  np.testing.assert_array_equal(lower[..., :k, :], np.tril(lower[..., :k, :], -1) + np.eye(k, dtype=np.float32))


def test_lu_without_pivots_and_of_singular_matrices() -> None:
  a = np.array([[0.0, 2.0], [0.0, 3.0]], np.float32)
  packed, pivots, info = Tensor(a).lu_factor_ex()
  assert packed.tolist() == a.tolist() and pivots.tolist() == [1, 2] and info.item() == 1
  with pytest.raises(ValueError, match="no pivot in step 1"):
    Tensor(a).lu_factor_ex(check_errors=True)
  plain, places = Tensor([[1.0, 2.0], [3.0, 4.0]]).lu_factor(pivot=False)
  assert plain.tolist() == [[1.0, 2.0], [3.0, -2.0]] and places.tolist() == [1, 2]
  with pytest.raises(ValueError, match="takes matrices"):
    Tensor([1.0]).lu_factor()


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_equations_by_lu(left: bool, adjoint: bool) -> None:
  a, b = data(2, 4, 4), data(4, 4)
  x = Tensor(b).lu_solve(*Tensor(a).lu_factor(), left=left, adjoint=adjoint).numpy()
  turned = np.swapaxes(a, -1, -2) if adjoint else a
  np.testing.assert_allclose(turned @ x if left else x @ turned, np.broadcast_to(b, x.shape), atol=2e-4)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_eigenvectors_of_symmetric_matrices(n: int) -> None:
  a = data(2, n, n)
  for part, even in (
    ("L", np.tril(a) + np.swapaxes(np.tril(a, -1), 1, 2)),
    ("U", np.triu(a) + np.swapaxes(np.triu(a, 1), 1, 2)),
  ):
    w, v = (t.numpy() for t in Tensor(a).eigh(part))
    np.testing.assert_allclose(w, np.linalg.eigvalsh(even), atol=20 * EPS)
    np.testing.assert_allclose(even @ v, v * w[:, None, :], atol=40 * EPS)
    np.testing.assert_allclose(np.swapaxes(v, 1, 2) @ v, np.broadcast_to(np.eye(n), v.shape), atol=20 * EPS)


def test_eigenvalues_have_a_derivative_where_they_are_equal() -> None:
  """That of tr A³ is 3 A²."""
  a = np.diag([2.0, 2.0, -1.0]).astype(np.float32)
  x = Tensor(a, requires_grad=True)
  (x.eigvalsh() ** 3).sum().backward()
  assert x.grad is not None
  np.testing.assert_allclose(x.grad.numpy(), 3 * a @ a, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 2), (2, 3, 4)])
def test_derivative_of_singular_values(shape: tuple[int, ...]) -> None:
  """That of their sum is U Vᵀ."""
  a = data(*shape)
  x = Tensor(a, requires_grad=True)
  x.svdvals().sum().backward()
  u, _, vt = np.linalg.svd(a, full_matrices=False)
  assert x.grad is not None
  np.testing.assert_allclose(x.grad.numpy(), u @ vt, atol=1e-5)


def test_derivative_of_singular_vectors() -> None:
  """U diag(s) Vᵀ is the matrix itself, whatever its derivative goes through; outside of the space of U, too."""
  a, g = data(5, 3), data(5, 3) + 1
  for full in (False, True):
    x = Tensor(a, requires_grad=True)
    u, s, vt = x.svd(full)
    ((u[:, :3] * s) @ vt * Tensor(g)).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), g, rtol=1e-4, atol=1e-4)


def test_derivative_of_a_pseudo_inverse_below_full_rank() -> None:
  """Against differences along a curve of matrices of rank 1."""
  u, v, du = data(4, 1).astype(np.float64), data(3, 1).astype(np.float64), data(4, 2)[:, :1].astype(np.float64)
  weights = data(3, 4)
  x = Tensor((u @ v.T).astype(np.float32), requires_grad=True)
  (x.pinv() * Tensor(weights)).sum().backward()
  h = 1e-5
  either = [(np.linalg.pinv((u + t * du) @ v.T, rcond=1e-8) * weights).sum() for t in (h, -h)]
  assert x.grad is not None
  assert (x.grad.numpy() * (du @ v.T)).sum() == pytest.approx((either[0] - either[1]) / (2 * h), rel=1e-3)


SPECTRA: dict[str, Callable[[int], Any]] = {
  "graded": lambda n: np.geomspace(1, 1e-6, n),
  "repeated": lambda n: np.repeat([2.0, 1.0], [n // 2, n - n // 2]),
  "rank two": lambda n: np.array([3.0, 1.0, *[0.0] * (n - 2)]),
  "nothing": lambda n: np.zeros(n),
}


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_decompositions_of_special_matrices(spectrum: str) -> None:
  """Factors are orthogonal, and their product is the matrix, whatever its rank; in float64, of several strips."""
  n = 17
  rng = np.random.default_rng(n)
  u, v = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
  values = SPECTRA[spectrum](n)
  a, even = (u * values) @ v, (u * values) @ u.T
  left, s, right = (t.numpy() for t in Tensor(a).svd())
  w, vectors = (t.numpy() for t in Tensor(even).eigh())
  q, r = (t.numpy() for t in Tensor(a).qr())
  for basis in (left, right.T, vectors, q):
    np.testing.assert_allclose(basis.T @ basis, np.eye(n), atol=1e-13)
  np.testing.assert_allclose(s, values, atol=1e-14)
  np.testing.assert_allclose(w, np.sort(values), atol=1e-14)
  np.testing.assert_allclose((left * s) @ right, a, atol=1e-14)
  np.testing.assert_allclose((vectors * w) @ vectors.T, even, atol=1e-13)
  np.testing.assert_allclose(q @ r, a, atol=1e-13)


def test_eigenvectors_of_merged_parts(monkeypatch: pytest.MonkeyPatch) -> None:
  """Parts as short as strips; those of usual size are in integration/tests/test_eigenvectors.py."""
  monkeypatch.setattr("tiny_tensor.linalg.tridiagonal.PART", 16)
  a = np.random.default_rng(0).standard_normal((17, 17))
  even = a + a.T
  w, v = (t.numpy() for t in Tensor(even).eigh())
  np.testing.assert_allclose(w, np.linalg.eigvalsh(even), atol=1e-13)
  np.testing.assert_allclose(even @ v, v * w, atol=1e-13)
  np.testing.assert_allclose(v.T @ v, np.eye(17), atol=1e-13)


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3), (2, 0, 0), (0, 2, 2)])
def test_decompositions_of_nothing(shape: tuple[int, ...]) -> None:
  a = np.zeros(shape, np.float32)
  for full in (True, False):
    assert [t.shape for t in Tensor(a).svd(full)] == [x.shape for x in np.linalg.svd(a, full_matrices=full)]
  assert [t.shape for t in Tensor(a).qr()] == [x.shape for x in np.linalg.qr(a, "complete")]
  if shape[-1] == shape[-2]:
    assert [t.shape for t in Tensor(a).eigh()] == [x.shape for x in np.linalg.eigh(a)]


@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (2, 5)])
def test_derivative_of_reflections(shape: tuple[int, int]) -> None:
  """Q R is the matrix, and Q Qᵀ of all of Q the identity, whatever their derivatives go through."""
  a, g = data(*shape), data(*shape) + 1
  for mode in ("complete", "reduced"):
    x = Tensor(a, requires_grad=True)
    q, r = x.qr(mode)
    (q.matmul(r) * Tensor(g)).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), g, rtol=1e-3, atol=1e-4)
  x = Tensor(a, requires_grad=True)
  q = x.qr()[0]
  whole = q.matmul(q.transpose(-2, -1)) * Tensor(data(shape[0], shape[0]))
  np.testing.assert_allclose(whole.sum().gradient(x)[0].numpy(), 0, atol=2e-4)
