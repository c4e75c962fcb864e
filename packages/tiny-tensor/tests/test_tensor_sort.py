"""sort, argsort and topk against NumPy's stable sort, on the reference device; and the networks themselves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, dtypes
from tiny_tensor.methods.sorting_network import Record, merge_slices, sort_slices
from tiny_uop import UOp, evaluate

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


# *** networks: by the zero-one principle, what sorts zeros and ones sorts everything (Knuth, volume 3, 5.3.4) ***


def run(network: Any, bits: tuple[int, ...]) -> list[int]:
  items: list[Record] = [(UOp.const(dtypes.int32, bit),) for bit in bits]
  network(items)
  return [int(evaluate(item[0], {})) for item in items]  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_networks_sort(size: int) -> None:
  for bits in itertools.product((0, 1), repeat=size):
    assert run(sort_slices, bits) == sorted(bits)
  for ones, start in itertools.product(range(size + 1), range(size)):
    bitonic = tuple(int((n - start) % size < ones) for n in range(size))
    assert run(merge_slices, bitonic) == sorted(bitonic)


def test_comparisons() -> None:
  """As many as Batcher's have."""
  items: list[Record] = [(UOp.variable(f"x{n}", 0, 9, dtypes.int32),) for n in range(16)]
  sort_slices(items)
  compared = {u for item in items for u in item[0].toposort if u.op.name == "CMPLT"}
  assert len(compared) == 63
