"""Medians, quantiles, products of vectors and tensors, distances: against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def data(*shape: int) -> Any:
  return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("k", [1, 3])
def test_kthvalue(k: int, dim: int) -> None:
  a = data(3, 4)
  values, places = Tensor(a).kthvalue(k, dim)
  np.testing.assert_array_equal(values.numpy(), np.sort(a, dim).take(k - 1, dim))
  np.testing.assert_array_equal(places.numpy(), np.argsort(a, dim).take(k - 1, dim))
  assert Tensor(a).kthvalue(k, dim, keepdim=True)[0].shape == tuple(
    1 if i == dim % 2 else s for i, s in enumerate((3, 4))
  )


def test_median() -> None:
  a = data(4, 5)
  assert Tensor(a).median().item() == np.sort(a, None)[9]
  values, places = Tensor(a).median(1)
  np.testing.assert_array_equal(values.numpy(), np.median(a, 1))
  np.testing.assert_array_equal(places.numpy(), np.argsort(a, 1)[:, 2])
  a[2, 3] = np.nan
  values, places = Tensor(a).median(1, keepdim=True)
  np.testing.assert_array_equal(values.numpy(), np.median(a, 1, keepdims=True))
  assert places[2, 0].item() == 3
  assert Tensor([4, 1, 3, 2]).median().item() == 2
  assert Tensor(7.0).median().item() == 7


def test_gradient_of_a_median_that_is_nan() -> None:
  x = Tensor([[3.0, math.nan, math.nan], [1.0, 5.0, 2.0]], requires_grad=True)
  x.median(1)[0].sum().backward()
  assert x.grad is not None
  assert x.grad.tolist() == [[0, 1, 0], [0, 0, 1]]  # as PyTorch has it


@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantile(how: Any) -> None:
  a = data(6, 5)
  for q, dim, keep in ((0.3, None, False), (1.0, 1, True), ([0.25, 0.5, 0.9], 0, False), ([0.0, 0.7], 1, True)):
    got = Tensor(a).quantile(q, dim, keep, how)
    expected = np.quantile(a.astype(np.float64), q, dim, method=how, keepdims=keep)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6, err_msg=f"{q} {dim}")


def test_quantile_of_nan_infinity_and_one() -> None:
  a = np.array([[1, np.nan, 2], [np.inf, np.inf, 0]], np.float32)
  np.testing.assert_array_equal(Tensor(a).quantile(0.75, 1).numpy(), [np.nan, np.inf])
  assert Tensor(3.0).quantile(0.2).item() == 3


def test_gradients_of_ranks() -> None:
  x = Tensor([3.0, 1.0, 2.0, 5.0], requires_grad=True)
  median = x.median()
  (median * 2 + x.quantile(0.5) * 4 + x.kthvalue(4)[0]).backward()
  assert x.grad is not None
  assert x.grad.tolist() == [2, 0, 4, 1]


PRODUCTS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
  "outer": (lambda a, b: a.outer(b), np.outer, ((3,), (4,))),
  "cross": (lambda a, b: a.cross(b), np.cross, ((4, 3), (1, 3))),
  "cross 0": (lambda a, b: a.cross(b, 0), lambda a, b: np.cross(a, b, axis=0), ((3, 2), (3, 2))),
  "kron": (lambda a, b: a.kron(b), np.kron, ((2, 3), (4, 2))),
  "kron 3": (lambda a, b: a.kron(b), np.kron, ((2, 3), (2, 1, 2))),
  "trace": (lambda a: a.trace(), np.trace, ((3, 5),)),
  "tensordot": (lambda a, b: a.tensordot(b), np.tensordot, ((2, 3, 4), (3, 4, 5))),
  "tensordot 0": (lambda a, b: a.tensordot(b, 0), lambda a, b: np.tensordot(a, b, 0), ((2, 3), (4,))),
  "tensordot lists": (
    lambda a, b: a.tensordot(b, ([2, 0], [1, -1])),
    lambda a, b: np.tensordot(a, b, ([2, 0], [1, -1])),
    ((2, 3, 4), (5, 4, 2)),
  ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
  ours, theirs, shapes = PRODUCTS[name]
  arrays = [data(*s) for s in shapes]
  got, expected = ours(*map(Tensor, arrays)), theirs(*arrays)
  assert got.shape == expected.shape
  np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [0, 1, 2, 3.5, math.inf])
def test_cdist(p: float) -> None:
  a, b = data(2, 3, 4), data(1, 5, 4)
  a[0, 1] = b[0, 2]
  expected = np.linalg.norm(a[:, :, None] - b[:, None], p, axis=-1)
  x = Tensor(a, requires_grad=True)
  got = x.cdist(Tensor(b), p)
  np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)
  if p >= 1:
    got.sum().backward()
    assert x.grad is not None and np.isfinite(x.grad.numpy()).all()


def test_as_strided() -> None:
  a = data(4, 6)
  for size, stride, offset in (
    ((3, 3), (1, 2), 1),
    ((2, 2, 2), (0, 7, 1), 0),
    ((5,), (-4,), 20),
    ((), (), 7),
    ((0, 2), (9, 9), 99),
  ):
    steps = tuple(s * a.itemsize for s in stride)
    expected = np.lib.stride_tricks.as_strided(a.ravel()[offset:], size, steps)
    np.testing.assert_array_equal(Tensor(a).as_strided(size, stride, offset).numpy(), expected)


def test_atan2_and_log1p() -> None:
  edges = np.array([0.0, -0.0, 1, -1, 2.5, -1e-30, 1e30, np.inf, -np.inf, np.nan], np.float32)
  y, x = (t.ravel() for t in np.meshgrid(edges, edges))
  got = Tensor(y).atan2(Tensor(x)).numpy()
  np.testing.assert_allclose(got, np.arctan2(y, x), rtol=1e-6)
  np.testing.assert_array_equal(np.signbit(got), np.signbit(np.arctan2(y, x)))
  a = np.array([0.0, 1e-10, -1e-10, 0.3, -0.9, -1, -2, 1e20, np.inf, np.nan], np.float32)
  with np.errstate(all="ignore"):
    np.testing.assert_allclose(Tensor(a).log1p().numpy(), np.log1p(a), rtol=1e-6)


WRONG: list[tuple[Callable[[], Any], str]] = [
  (lambda: Tensor([1.0]).kthvalue(2), "k=2 must be between 1 and 1"),
  (lambda: Tensor.zeros(2, 0).median(1), r"no elements"),
  (lambda: Tensor([1.0]).quantile(1.5), r"\[0, 1\], got 1.5"),
  (lambda: Tensor([1.0]).quantile(0.5, interpolation="odd"), "'odd'"),
  (lambda: Tensor([1.0]).outer(Tensor([[1.0]])), r"\(1, 1\)"),
  (lambda: Tensor([1.0]).cross(Tensor([1.0])), r"vectors of 3"),
  (lambda: Tensor([1.0]).trace(), "matrix"),
  (lambda: Tensor.ones(2, 3).tensordot(Tensor.ones(3, 2)), "differ in size"),
  (lambda: Tensor.ones(2, 3).tensordot(Tensor.ones(2, 3), 3), "dims=3"),
  (lambda: Tensor.ones(2, 3).cdist(Tensor.ones(2, 4)), "rows of one size"),
  (lambda: Tensor.ones(2, 3).as_strided((2, 3), (3, 1), 1), "reach from 1 to 6"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_errors(call: Callable[[], Any], message: str) -> None:
  with pytest.raises(ValueError, match=message):
    call()


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("n", [2, 7])  # fewer rows than columns, and more
def test_distances_without_gradients(p: float, n: int) -> None:
  a, b = data(2, 1, n, 4), data(3, 5, 4)
  a[0, 0, 0], a[1, 0, 1, 2] = b[1, 2], np.nan
  apart = np.abs(a[..., :, None, :] - b[..., None, :, :])
  expected = (apart != 0).sum(-1) if p == 0 else apart.max(-1) if math.isinf(p) else (apart**p).sum(-1) ** (1 / p)
  got = Tensor(a).cdist(Tensor(b), p).numpy()
  np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
  assert Tensor.zeros(3, 0).cdist(Tensor.zeros(2, 0), p).tolist() == [[0.0, 0.0]] * 3
