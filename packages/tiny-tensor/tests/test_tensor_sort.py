"""sort, argsort and topk against NumPy's stable sort, on the reference device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, dtypes

Array = Any


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def order_of(a: Array, descending: bool) -> Array:
  """Stable, NaN as the greatest, as PyTorch has it."""
  ranks = np.unique(a, return_inverse=True, equal_nan=True)[1].reshape(a.shape)
  return np.argsort(-ranks if descending else ranks, -1, kind="stable")


def data(shape: tuple[int, ...], dtype: str) -> Array:
  """With many equal elements, the extremes of the dtype and, of floats, what is special."""
  rng = np.random.default_rng(sum(shape))
  a = rng.integers(0, 7, shape).astype(dtype) if dtype != "bool" else rng.integers(0, 2, shape).astype(bool)
  kind = np.dtype(dtype).kind
  special: list[Any] = []
  if kind == "f":
    a = a / 2 - 1
    special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).tiny / 4, np.finfo(dtype).max]
  elif kind in "iu":
    special = [np.iinfo(dtype).max, np.iinfo(dtype).min, np.iinfo(dtype).max]
  a.reshape(-1)[: len(special)] = special[: a.size]
  return rng.permuted(a, axis=-1).astype(dtype)


DTYPES = ["float32", "float64", "float16", "int32", "int8", "uint32", "int64", "uint64", "bool"]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str, descending: bool) -> None:
  a = data((2, 21), dtype)
  expected = order_of(a, descending)
  values, order = Tensor(a).sort(-1, descending)
  np.testing.assert_array_equal(order.numpy(), expected)
  np.testing.assert_array_equal(values.numpy(), np.take_along_axis(a, expected, -1))
  assert order.dtype is dtypes.int32 and str(values.dtype) == str(Tensor(a).dtype)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 8, 15, 16, 17, 32, 64, 100, 128])
def test_lengths(length: int) -> None:
  a = data((3, length), "int32")
  np.testing.assert_array_equal(Tensor(a).argsort().numpy(), order_of(a, False))
  np.testing.assert_array_equal(Tensor(a.T.copy()).argsort(0, True).numpy(), order_of(a, True).T)


def test_levels_of_three_digits() -> None:
  a = data((1, 300), "float32")
  np.testing.assert_array_equal(Tensor(a).argsort().numpy(), order_of(a, False))
  np.testing.assert_array_equal(Tensor(a).topk(37)[1].numpy(), order_of(a, True)[:, :37])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("length", "k"), [(1, 1), (5, 0), (5, 1), (5, 5), (16, 3), (40, 1), (40, 7), (70, 16)])
def test_topk(length: int, k: int, largest: bool) -> None:
  a = data((2, length), "float32")
  expected = order_of(a, largest)[:, :k]
  values, order = Tensor(a).topk(k, largest=largest)
  np.testing.assert_array_equal(order.numpy(), expected)
  np.testing.assert_array_equal(values.numpy(), np.take_along_axis(a, expected, -1))
  assert values.shape == order.shape == (2, k)


def test_shapes() -> None:
  a = data((3, 4, 5), "float32")
  for axis in range(3):
    np.testing.assert_array_equal(Tensor(a).sort(axis)[0].numpy(), np.sort(a, axis))
    assert Tensor(a).topk(2, axis)[0].shape == tuple(2 if i == axis else s for i, s in enumerate(a.shape))
  assert Tensor(3.0).sort()[1].item() == 0 and Tensor(np.zeros((0, 3), np.float32)).sort()[0].shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "uint64"])
def test_one_thread_after_another(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """As on a device without workgroups."""
  for name in ("methods.radix.has_groups", "sequence.has_groups"):
    monkeypatch.setattr(f"tiny_tensor.{name}", lambda place: False)
  a = data((2, 40), dtype)
  for descending in (False, True):
    np.testing.assert_array_equal(Tensor(a).argsort(-1, descending).numpy(), order_of(a, descending))


@pytest.mark.parametrize("rows", [1, 4, 5, 9])
def test_groups_of_rows_that_are_not_equally_many(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
  """Groups of as many, and the last ones of fewer or of none, each with memory of its own."""
  monkeypatch.setattr("tiny_tensor.methods.radix.GROUPS", 4)
  for name in ("methods.radix.has_groups", "sequence.has_groups"):
    monkeypatch.setattr(f"tiny_tensor.{name}", lambda place: False)
  a = data((rows, 19), "int8")
  np.testing.assert_array_equal(Tensor(a).argsort().numpy(), order_of(a, False))


def test_several_blocks_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr("tiny_tensor.methods.radix.BLOCK", 4)
  monkeypatch.setattr("tiny_tensor.methods.radix.THREADS", 2)
  a = data((2, 21), "int8")
  np.testing.assert_array_equal(Tensor(a).argsort().numpy(), order_of(a, False))


def test_equal_elements_in_different_blocks_of_long_rows() -> None:
  """topk looks at those blocks that have the least elements; equal ones are still in their order."""
  a = np.array([[5, 1, 7, 3, 1, 1, 9, 9, 0, 8, 1, 2, 7, 7, 7, 1] * 16], np.int8)
  for k in (1, 2, 5, 9):
    for largest in (False, True):
      np.testing.assert_array_equal(Tensor(a).topk(k, largest=largest)[1].numpy(), order_of(a, largest)[:, :k])
