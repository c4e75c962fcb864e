"""Eigenvectors of symmetric matrices that are solved in parts and merged, on a real device: against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Tensor

SIZE = 300  # four parts, the last one longer than what is left of the matrix


def tridiagonal(diagonal: Any, beside: Any) -> Any:
  return np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)


def with_eigenvalues(values: Any) -> Any:
  q = np.linalg.qr(np.random.default_rng(1).standard_normal((SIZE, SIZE)))[0]
  return (q * values) @ q.T


def glued() -> Any:
  """Wilkinson's matrices next to each other: eigenvalues in groups that no float32 tells apart."""
  beside = np.ones(SIZE - 1)
  beside[74::75] = 1e-6
  return tridiagonal(np.tile(np.abs(np.arange(75) - 37), 4), beside)


MATRICES: dict[str, Callable[[], Any]] = {
  "random": lambda: with_eigenvalues(np.random.default_rng(2).standard_normal(SIZE)),
  "graded": lambda: with_eigenvalues(np.geomspace(1, 1e-9, SIZE)),
  "repeated": lambda: with_eigenvalues(np.repeat([2.0, 1.0], SIZE // 2)),
  "next to each other": lambda: with_eigenvalues(1 + 1e-6 * np.random.default_rng(3).standard_normal(SIZE)),
  "rank two": lambda: with_eigenvalues(np.array([3.0, 1.0, *[0.0] * (SIZE - 2)])),
  "glued": glued,
  "graded diagonals": lambda: tridiagonal(np.geomspace(1e-20, 1, SIZE), 0.3 * np.geomspace(1e-20, 1, SIZE)[:-1]),
  "small": lambda: with_eigenvalues(1e-30 * np.random.default_rng(4).standard_normal(SIZE)),
  "large": lambda: with_eigenvalues(1e30 * np.random.default_rng(5).standard_normal(SIZE)),
}


def check(matrix: Any) -> None:
  """Values ascend, vectors are orthogonal, and they belong together, within some 20 roundings of the norm."""
  w, v = (t.numpy().astype(np.float64) for t in Tensor(matrix).eigh())
  a, eps = matrix.astype(np.float64), float(np.finfo(matrix.dtype).eps)
  exact = np.linalg.eigvalsh(a)
  norm = np.abs(exact).max()
  assert (np.diff(w) >= 0).all()
  np.testing.assert_allclose(w / norm, exact / norm, atol=40 * eps)
  np.testing.assert_allclose((a / norm) @ v, v * (w / norm), atol=20 * eps)
  np.testing.assert_allclose(v.T @ v, np.eye(len(a)), atol=80 * eps)


OFTEN = ("random", "repeated", "glued", "large")
NAMES = [name if name in OFTEN else pytest.param(name, marks=pytest.mark.nightly) for name in MATRICES]


@pytest.mark.parametrize("name", NAMES)
def test_eigenvectors_of_merged_parts(name: str) -> None:
  check(MATRICES[name]().astype(np.float32))


@pytest.mark.nightly
def test_eigenvectors_of_merged_parts_in_float64() -> None:
  check(MATRICES["repeated"]())


def test_what_is_diagonal_stays_as_it_is() -> None:
  for diagonal in (np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32), np.arange(SIZE, dtype=np.float32)):
    w, v = Tensor(np.diag(diagonal)).eigh()
    np.testing.assert_allclose(w.numpy(), diagonal, rtol=2e-7, atol=0)
    np.testing.assert_array_equal(np.abs(v.numpy()), np.eye(SIZE))


def test_nan_comes_out_and_nothing_hangs() -> None:
  a = np.eye(SIZE, dtype=np.float32)
  a[2, 1] = np.nan
  w, v = Tensor(a).eigh()
  assert np.isnan(w.numpy()).all() and np.isnan(v.numpy()).all()


def test_the_derivative_of_the_trace_is_the_identity() -> None:
  a = with_eigenvalues(np.random.default_rng(6).standard_normal(SIZE)).astype(np.float32)
  x = Tensor(np.stack([a, 2 * a]), requires_grad=True)
  x.eigvalsh().sum().backward()
  assert x.grad is not None
  np.testing.assert_allclose(x.grad.numpy(), np.stack([np.eye(SIZE, dtype=np.float32)] * 2), atol=1e-5)
