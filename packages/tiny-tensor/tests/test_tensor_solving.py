"""Linear equations, determinants and factors of matrices: against NumPy, in bounds that the condition number gives."""

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


def conditioned(n: int, condition: float) -> Any:
  """A matrix with singular values from 1 down to 1 / condition."""
  rng = np.random.default_rng(n)
  u, v = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
  return (u * np.geomspace(1, 1 / condition, n) @ v).astype(np.float32)


def positive(n: int, condition: float) -> Any:
  u = np.linalg.qr(np.random.default_rng(n).standard_normal((n, n)))[0]
  return (u * np.geomspace(1, 1 / condition, n) @ u.T).astype(np.float32)


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
def test_solve_of_ill_conditioned_matrices(condition: float) -> None:
  """The residual is as small as for any matrix, and the error at most condition times as great."""
  n = 8
  a, b = conditioned(n, condition), data(n, 2)
  x = Tensor(a).solve(Tensor(b)).numpy().astype(np.float64)
  size = np.linalg.norm(a, 2) * np.linalg.norm(x, 2)
  assert np.linalg.norm(a @ x - b, 2) <= 4 * n * EPS * size
  exact = np.linalg.solve(a.astype(np.float64), b)
  assert np.linalg.norm(x - exact, 2) <= 4 * n * EPS * condition * np.linalg.norm(exact, 2)


@pytest.mark.parametrize("condition", [1.0, 1e5])
def test_cholesky_of_ill_conditioned_matrices(condition: float) -> None:
  a = positive(6, condition)
  lower = Tensor(a).cholesky().numpy()
  np.testing.assert_array_equal(lower, np.tril(lower))
  assert np.linalg.norm(lower.astype(np.float64) @ lower.T - a, 2) <= 6 * EPS


def test_qr_and_lstsq_of_ill_conditioned_matrices() -> None:
  a, b = conditioned(7, 1e4)[:, :4], data(7, 2)
  q, r = (t.numpy().astype(np.float64) for t in Tensor(a).qr())
  assert np.linalg.norm(q @ r - a, 2) <= 20 * EPS and np.linalg.norm(q.T @ q - np.eye(7), 2) <= 20 * EPS
  np.testing.assert_array_equal(r, np.triu(r))
  exact = np.linalg.lstsq(a.astype(np.float64), b, rcond=None)[0]
  got = Tensor(a).lstsq(Tensor(b)).numpy()
  assert np.linalg.norm(got - exact) <= 1e4 * 30 * EPS * np.linalg.norm(exact)


@pytest.mark.parametrize("shape", [(6, 3), (3, 3), (3, 6), (2, 5, 3), (2, 3, 4)])
def test_lstsq(shape: tuple[int, ...]) -> None:
  a, b = data(*shape), data(*shape[:-1], 2)
  expected = np.linalg.pinv(a.astype(np.float64)) @ b
  np.testing.assert_allclose(Tensor(a).lstsq(Tensor(b)).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (2, 3, 3), (2, 1, 3, 3), (0, 0)])
def test_inverse_and_det(shape: tuple[int, ...]) -> None:
  a = data(*shape)
  wide = a.astype(np.float64)
  np.testing.assert_allclose(Tensor(a).det().numpy(), np.linalg.det(wide), rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(Tensor(a).inverse().numpy(), np.linalg.inv(wide), rtol=1e-4, atol=1e-4)


def test_rows_are_exchanged_where_they_must_be() -> None:
  a = np.array([[0, 2, 0], [0, 0, 3], [4, 0, 0]], np.float32)
  assert Tensor(a).det().item() == 24
  np.testing.assert_allclose(Tensor(a).inverse().numpy(), np.linalg.inv(a), rtol=1e-6)
  assert Tensor(a[[1, 0, 2]]).det().item() == -24
  small = np.array([[1e-20, 1], [1, 1]], np.float32)
  np.testing.assert_allclose(Tensor(small).solve(Tensor([1.0, 2.0])).numpy(), [1, 1], rtol=1e-6)


def test_shapes_and_dtypes_of_solve() -> None:
  a = data(2, 3, 3)
  for b in (data(3), data(2, 3), data(3, 4), data(2, 3, 1), data(5, 1, 3, 2)):
    vectors = b.ndim == 1 or b.shape == (2, 3)
    expected = np.linalg.solve(a, b[..., None])[..., 0] if vectors else np.linalg.solve(a, b)
    got = Tensor(a).solve(Tensor(b))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-3, atol=1e-4)
  assert Tensor(a).double().solve(Tensor(data(3)).double()).dtype.name == "float64"
  assert Tensor(a).half().inverse().dtype.name == "float16"
  assert Tensor([[2, 1], [1, 1]]).inverse().tolist() == [[1, -1], [-1, 2]]


@pytest.mark.parametrize("value", [np.zeros((2, 2)), [[1.0, 2.0], [2.0, 4.0]]])
def test_singular_matrices(value: Any) -> None:
  a = Tensor(np.array(value, np.float32))
  assert a.det().item() == 0
  assert not np.isfinite(a.inverse().numpy()).any()
  assert np.isnan(Tensor([[1.0, 2.0], [2.0, 1.0]]).cholesky().numpy()[1, 1])


def test_few_kernels_whatever_the_size() -> None:
  def kernels(make: Callable[[Tensor], Tensor], n: int) -> int:
    return len({item.ast for item in make(Tensor(positive(n, 10))).schedule()})

  makes: list[Callable[[Tensor], Tensor]] = [Tensor.inverse, Tensor.det, Tensor.cholesky, lambda a: a.qr()[0]]
  for make in makes:
    assert kernels(make, 12) <= 7 and kernels(make, 7) <= 7


def test_second_derivatives() -> None:
  """Of log det, whose first derivative is the inverse, transposed."""
  a = positive(3, 4.0)
  x = Tensor(a, requires_grad=True)
  first = x.det().log().gradient(x)[0]
  weight = data(3, 3)
  second = (first * Tensor(weight)).sum().gradient(x)[0].numpy()
  inverse = np.linalg.inv(a.astype(np.float64))
  np.testing.assert_allclose(first.numpy(), inverse.T, rtol=1e-4)
  np.testing.assert_allclose(second, -(inverse @ weight @ inverse).T, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n", [31, 32, 33])
def test_matrices_of_several_blocks(n: int) -> None:
  """float64, whose blocks have 16 rows: elimination, substitution, factors."""
  a, b = data(n, n).astype(np.float64), data(n, 5).astype(np.float64)
  x = Tensor(a).solve(Tensor(b)).numpy()
  np.testing.assert_allclose(a @ x, b, atol=1e-10)
  packed, pivots = Tensor(a).lu_factor()
  p, lower, upper = (t.numpy() for t in packed.lu_unpack(pivots))
  np.testing.assert_allclose(p @ lower @ upper, a, atol=1e-12)
  np.testing.assert_allclose(Tensor(upper).solve_triangular(Tensor(b), upper=True).numpy(), np.linalg.solve(upper, b))
  even = a @ a.T + np.eye(n)
  lower = Tensor(np.tril(even)).cholesky().numpy()
  np.testing.assert_allclose(lower @ lower.T, even, atol=1e-11)


def test_matrices_on_several_devices() -> None:
  a = data(4, 3, 3)
  for axis in (0, 1, None):
    x = Tensor(a).shard(("REF", "REF:1"), axis)
    assert x.det().device == ("REF", "REF:1")
    np.testing.assert_allclose(x.inverse().numpy(), np.linalg.inv(a), rtol=1e-3, atol=1e-4)
  piece = Tensor(a).shard(("REF", "REF:1"), 0).inverse().uop.sharding
  assert piece is not None and piece.bounds == (0, 2, 4)


def test_derivatives_of_factors() -> None:
  """Of log det, by Cholesky's factor and by the pivots: the inverse."""
  a = positive(4, 4.0)
  x = Tensor(a, requires_grad=True)
  inverse = np.linalg.inv(a.astype(np.float64))
  by_root = (x.cholesky().diagonal().log() * 2).sum().gradient(x)[0].numpy()
  np.testing.assert_allclose(by_root, inverse, rtol=1e-4, atol=1e-4)
  np.testing.assert_allclose(x.slogdet()[1].gradient(x)[0].numpy(), inverse.T, rtol=1e-4, atol=1e-4)
  lower = Tensor(np.tril(a), requires_grad=True)
  first = lower.solve_triangular(Tensor(data(4, 1)), upper=False).sum().gradient(lower)[0]
  np.testing.assert_array_equal(np.triu(first.numpy(), 1), 0)


WRONG: list[tuple[Callable[[], Any], str]] = [
  (lambda: Tensor.ones(2, 3).inverse(), r"inverse takes square matrices, got shape \(2, 3\)"),
  (lambda: Tensor.ones(3).det(), r"det takes square"),
  (lambda: Tensor.rand(2, 3).cholesky(), "cholesky takes square"),
  (lambda: Tensor.rand(2, 2).solve(Tensor.rand(3, 1)), r"as many rows, got b of shape \(3, 1\)"),
  (lambda: Tensor.ones(2, 2).inverse(), "singular"),
  (lambda: Tensor.rand(2, 2).lstsq(Tensor.rand(3, 1)), "as many rows"),
  (lambda: Tensor.rand(2).qr(), "matrices"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_errors(call: Callable[[], Any], message: str) -> None:
  with pytest.raises(ValueError, match=message):
    call()
