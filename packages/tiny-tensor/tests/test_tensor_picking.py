"""Elements taken, written, added and counted by index, mask, step or value: against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, dtypes


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def data(*shape: int) -> Any:
  return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


KEYS: list[Any] = [
  np.s_[::2],
  np.s_[::-1],
  np.s_[::-3],
  np.s_[1:6:2],
  np.s_[-2:1:-2],
  np.s_[:, ::3],
  np.s_[::2, ::-2],
  np.s_[::4, 1],
  np.s_[6:2:3],
  np.s_[::2, None, ::4],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_steps_are_views(key: Any) -> None:
  """What is written through a view with steps is seen in the base, and the other way around."""
  a = data(7, 5)
  t = Tensor(a.copy())
  view, expected = t[key], a[key]
  np.testing.assert_array_equal(view.numpy(), expected)
  view[...] = view * 2 + 1
  expected[...] = expected * 2 + 1
  np.testing.assert_array_equal(t.numpy(), a)
  t[...] = t * 3
  a[...] = a * 3
  np.testing.assert_array_equal(view.numpy(), expected)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_assignment_with_steps(key: Any) -> None:
  a = data(7, 5)
  t = Tensor(a.copy())
  other = t.reshape(5, 7)
  t[key] = t[key] - 4
  a[key] = a[key] - 4
  np.testing.assert_array_equal(other.numpy(), a.reshape(5, 7))
  t[key] = 8
  a[key] = 8
  np.testing.assert_array_equal(t.numpy(), a)


def test_assignment_through_steps_of_steps() -> None:
  a = np.arange(11, dtype=np.int32)
  t = Tensor(a.copy())
  t[::2][::-2][1:] = Tensor([7, 8], dtype=dtypes.int32)
  a[::2][::-2][1:] = [7, 8]
  assert t.tolist() == a.tolist()


def test_an_expanded_tensor_is_not_written_through() -> None:
  t = Tensor([1.0, 2.0])
  wide = t.reshape(1, 2).expand(2, 2)
  with pytest.raises(RuntimeError, match="same place in memory: clone"):
    wide[...] = 5
  wide = wide.clone()
  wide[...] = 5
  assert t.tolist() == [1, 2] and wide.tolist() == [[5, 5], [5, 5]]


def test_gradients_of_assignment_with_steps() -> None:
  x, v = Tensor(data(7), requires_grad=True), Tensor(data(4), requires_grad=True)
  y = x * 2
  y[::2] = v * v
  y.square().sum().backward()
  keep = np.array([0, 1, 0, 1, 0, 1, 0])
  assert x.grad is not None and v.grad is not None
  np.testing.assert_allclose(x.grad.numpy(), 8 * x.numpy() * keep, rtol=1e-5)
  np.testing.assert_allclose(v.grad.numpy(), 4 * v.numpy() ** 3, rtol=1e-5)


MASKS: list[tuple[str, Callable[[Any], Any]]] = [
  ("elements", lambda a: a > 0),
  ("rows", lambda a: a[:, 0] > 0),
  ("none", lambda a: a > 100),
  ("after a slice", lambda a: (slice(1, None), a[0] > 0)),
  ("beside an integer", lambda a: (a[:, 0] > 0, 2)),
]


@pytest.mark.parametrize(("name", "make"), MASKS, ids=[m[0] for m in MASKS])
def test_masks(name: str, make: Callable[[Any], Any]) -> None:
  a = data(5, 4)
  t = Tensor(a.copy())
  key = make(a)
  ours = tuple(Tensor(k) if isinstance(k, np.ndarray) else k for k in (key if isinstance(key, tuple) else (key,)))
  np.testing.assert_array_equal(t[ours].numpy(), a[key])
  t[ours] = t[ours] * 2
  a[key] = a[key] * 2
  t[ours] += 1
  a[key] += 1
  np.testing.assert_array_equal(t.numpy(), a)


def test_index_select() -> None:
  a, index = data(3, 4), np.array([3, 0, 0])
  np.testing.assert_array_equal(Tensor(a).index_select(1, Tensor(index)).numpy(), a[:, index])
  np.testing.assert_array_equal(Tensor(a).index_select(-2, Tensor([1])).numpy(), a[[1]])
  with pytest.raises(ValueError, match="vector of positions"):
    Tensor(a).index_select(0, Tensor([[1]]))
  with pytest.raises(TypeError, match="float32"):
    Tensor(a).index_select(0, Tensor([1.0]))


def test_take_along_dim() -> None:
  a = data(3, 4)
  order = np.argsort(a, 1)
  np.testing.assert_array_equal(Tensor(a).take_along_dim(Tensor(order), 1).numpy(), np.sort(a, 1))
  one = np.array([[2], [0], [1]])
  np.testing.assert_array_equal(Tensor(a[:1]).take_along_dim(Tensor(one), 1).numpy(), a[0][one])
  np.testing.assert_array_equal(Tensor(a).take_along_dim(Tensor([5, 0])).numpy(), a.ravel()[[5, 0]])
  with pytest.raises(ValueError, match="as many axes"):
    Tensor(a).take_along_dim(Tensor([0]), 1)


def test_scatter_add_and_index_add() -> None:
  a, v, index = data(3, 4), data(3, 6), np.array([1, 1, 3, 0, 1, 3])
  expected = a.copy()
  for k, column in enumerate(index):
    expected[:, column] += v[:, k]
  got = Tensor(a).index_add(1, Tensor(index), Tensor(v))
  np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)
  wide = Tensor(np.broadcast_to(index, (3, 6)).copy())
  np.testing.assert_allclose(Tensor(a).scatter_add(1, wide, Tensor(v)).numpy(), expected, rtol=1e-6)
  doubled = Tensor(a).index_add(1, Tensor(index), Tensor(v), alpha=2)
  np.testing.assert_allclose(doubled.numpy(), a + 2 * (expected - a), rtol=1e-5)
  with pytest.raises(ValueError, match=r"source of shape \(3, 6\)"):
    Tensor(a).index_add(1, Tensor(index), Tensor(a))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9])
def test_searchsorted(side: Any, n: int) -> None:
  a = np.sort(np.random.default_rng(n).integers(0, 6, n)).astype(np.float32)
  wanted = np.array([[-1, 0, 1.5, 2], [3, 5, 9, np.nan]], np.float32)
  got = Tensor(a).searchsorted(Tensor(wanted), side=side)
  assert got.dtype == dtypes.int32
  np.testing.assert_array_equal(got.numpy(), np.searchsorted(a, wanted, side))


def test_searchsorted_of_rows_and_of_nan() -> None:
  rows = np.sort(data(3, 5), 1)
  rows[1, 3:] = np.nan
  wanted = np.concatenate([data(3, 4), rows[:, 1:2], np.full((3, 1), np.nan, np.float32)], 1)
  for side in ("left", "right"):
    expected = [np.searchsorted(r, w, side) for r, w in zip(rows, wanted, strict=True)]
    np.testing.assert_array_equal(Tensor(rows).searchsorted(Tensor(wanted), side=side).numpy(), expected)
  assert Tensor([1, 3, 5]).searchsorted(3, right=True).item() == 2
  with pytest.raises(ValueError, match="must agree"):
    Tensor(rows).searchsorted(Tensor([1.0]))
  with pytest.raises(ValueError, match="side"):
    Tensor([1]).searchsorted(Tensor([1]), side="both")


@pytest.mark.parametrize("kind", ["int32", "float32", "uint8", "bool"])
def test_unique(kind: str) -> None:
  a = np.random.default_rng(3).integers(0, 5, (4, 5)).astype(kind)
  ours = Tensor(a).unique(return_inverse=True, return_counts=True)
  theirs = np.unique(a, return_inverse=True, return_counts=True)
  assert ours[0].dtype.name == kind
  np.testing.assert_array_equal(ours[0].numpy(), theirs[0])
  np.testing.assert_array_equal(ours[1].numpy(), theirs[1].reshape(a.shape))
  np.testing.assert_array_equal(ours[2].numpy(), theirs[2])


def test_unique_of_nothing_one_and_nan() -> None:
  empty = Tensor.zeros(0, 3).unique(return_inverse=True, return_counts=True)
  assert [t.shape for t in empty] == [(0,), (0, 3), (0,)]
  alone = Tensor(4).unique(return_inverse=True, return_counts=True)
  assert [t.tolist() for t in alone] == [[4], 0, [1]]
  values = Tensor([np.nan, 1.0, np.nan, -0.0, 0.0]).unique()
  np.testing.assert_array_equal(values.numpy(), [0, 1, np.nan, np.nan])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_unique_slices(axis: int) -> None:
  a = np.random.default_rng(0).integers(0, 2, (5, 3, 2))
  ours = Tensor(a).unique(dim=axis, return_inverse=True, return_counts=True)
  theirs = np.unique(a, axis=axis, return_inverse=True, return_counts=True)
  for got, expected in zip(ours, theirs, strict=True):
    np.testing.assert_array_equal(got.numpy(), expected.reshape(got.shape))


def test_bincount() -> None:
  a, w = np.array([3, 0, 3, 1]), np.array([0.5, 1, 2, 4], np.float32)
  assert Tensor(a).bincount().tolist() == [1, 1, 0, 2]
  assert Tensor(a).bincount(minlength=6).tolist() == [1, 1, 0, 2, 0, 0]
  np.testing.assert_array_equal(Tensor(a).bincount(Tensor(w)).numpy(), np.bincount(a, w))
  assert Tensor.zeros(0, dtype=dtypes.int32).bincount(minlength=2).tolist() == [0, 0]
  for wrong, message in ((Tensor([-1, 2]), "element -1"), (Tensor([1.0]), "float32"), (Tensor([[1]]), r"\(1, 1\)")):
    with pytest.raises(ValueError, match=message):
      wrong.bincount()


@pytest.mark.parametrize("count", [0, 1, 20, 100, 127, 128])
def test_positions_in_long_tensors(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr("tiny_tensor.methods.indexing.SHORT", 8)
  chosen = np.random.default_rng(count).permutation(128) < count
  for mask in (chosen, chosen[3:], chosen.reshape(16, 8)):
    assert Tensor(mask).nonzero().tolist() == np.argwhere(mask).tolist()
    assert Tensor(np.arange(mask.size).reshape(mask.shape))[Tensor(mask)].tolist() == np.flatnonzero(mask).tolist()
