"""`DataLoader`: every item once, in the order that was asked for; the thread behind it and its end."""

from __future__ import annotations

import gc
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, TinyJit
from tiny_tensor.nn.datasets import DataLoader

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10, dtype=np.uint8)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield
  assert not running(), "a thread of a DataLoader outlives its loop"


def running() -> list[threading.Thread]:
  return [t for t in threading.enumerate() if t.name.startswith("DataLoader")]


def lists(loader: DataLoader) -> list[Any]:
  return [[t.tolist() for t in batch] if isinstance(batch, tuple) else batch.tolist() for batch in loader]


@pytest.mark.parametrize("prefetch", [0, 1, 2, 50])
@pytest.mark.parametrize(
  "made", [lambda a: a, lambda a: Tensor(a), lambda a: Tensor(a) * 1], ids=["array", "tensor", "lazy"]
)
def test_batches_in_order(prefetch: int, made: Any) -> None:
  loader = DataLoader((made(X), made(Y)), 4, prefetch=prefetch)
  assert len(loader) == 3
  for _ in range(2):
    assert lists(loader) == [[X[i : i + 4].tolist(), Y[i : i + 4].tolist()] for i in (0, 4, 8)]
  assert len(dropped := DataLoader(X, 4, drop_last=True)) == 2 and lists(dropped) == [X[:4].tolist(), X[4:8].tolist()]
  (x, y), *_ = loader
  assert (x.dtype.name, y.dtype.name, x.device, x.shape) == ("float32", "uint8", "REF", (4, 2))


def test_a_mapped_file_and_another_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  (tmp_path / "x").write_bytes(X.tobytes())
  rows = Tensor(tmp_path / "x")[8:72].bitcast("float32").reshape(8, 2)
  with monkeypatch.context() as patch:
    patch.setattr(Tensor, "_computed", None)  # which would copy all of the file
    loader = DataLoader(rows, 4, device="HOST")
  batches = list(loader)
  assert [b.tolist() for b in batches] == [X[1:5].tolist(), X[5:9].tolist()] and batches[0].device == "HOST"


def test_shuffling_takes_every_item_once() -> None:
  loader = DataLoader((X, Y), 3, shuffle=True, seed=5)
  epochs = [lists(loader) for _ in range(3)]
  for epoch in epochs:
    places = [y for _, ys in epoch for y in ys]
    assert sorted(places) == list(range(10)) and places != sorted(places)
    assert all(x == X[y].tolist() for xs, ys in epoch for x, y in zip(xs, ys, strict=True))
  assert epochs[0] != epochs[1] != epochs[2]
  again = DataLoader((X, Y), 3, shuffle=True, seed=5, prefetch=0)
  again.epoch = 1
  assert lists(again) == epochs[1], "an epoch follows from the seed and its number"
  assert lists(DataLoader((X, Y), 3, shuffle=True, seed=6)) != epochs[0]


def test_shuffling_without_a_seed_follows_manual_seed() -> None:
  def epochs() -> list[Any]:
    Tensor.manual_seed(4)
    loader = DataLoader(Y, 10, shuffle=True)
    return [lists(loader) for _ in range(2)]

  first = epochs()
  assert epochs() == first and first[0] != first[1]


def test_all_orders_are_as_likely() -> None:
  loader = DataLoader(np.arange(3), 3, shuffle=True, seed=0)
  counts: dict[tuple[int, ...], int] = {}
  for epoch in range(1200):
    order = tuple(loader.order(epoch))
    counts[order] = counts.get(order, 0) + 1
  assert len(counts) == 6 and sum((c - 200) ** 2 / 200 for c in counts.values()) < 20.5  # χ², one in a thousand


class Squares:
  """Items made by Python."""

  def __init__(self, broken: int = -1) -> None:
    self.broken, self.asked = broken, [0]

  def __len__(self) -> int:
    return 10

  def __getitem__(self, i: int) -> Any:
    self.asked.append(i)
    if i == self.broken:
      raise KeyError(f"item {i}")
    return np.full((2,), i, np.int32), float(i * i), [i, i + 1], Tensor([i, 7])


def test_items_that_python_makes() -> None:
  batches = list(DataLoader(Squares(), 5))
  assert [[t.shape for t in batch] for batch in batches] == [[(5, 2), (5,), (5, 2), (5, 2)]] * 2
  array, number, nested, tensor = batches[1]
  assert array.dtype.name == "int32" and array[:, 0].tolist() == [5, 6, 7, 8, 9]
  assert number.tolist() == [25.0, 36.0, 49.0, 64.0, 81.0] and nested[0].tolist() == [5, 6]
  assert tensor[1].tolist() == [6, 7]
  assert lists(DataLoader([Y], 10)) == [Y.tolist()]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_reaches_the_loop(prefetch: int) -> None:
  seen = []
  with pytest.raises(KeyError, match="item 6") as caught:
    for _, number, *_ in DataLoader(Squares(broken=6), 2, prefetch=prefetch):
      seen.append(number.tolist())
  assert seen == [[0, 1], [4, 9], [16, 25]], "the batches before it come first"
  assert "__getitem__" in "".join(traceback.format_tb(caught.value.__traceback__)), "it says where it was raised"


def test_a_loop_that_is_left() -> None:
  for _ in DataLoader(X, 1):
    assert running()
    break
  gc.collect()
  assert not running()
  with pytest.raises(ZeroDivisionError):
    for _ in DataLoader(X, 1):
      1 / 0  # noqa: B018
  gc.collect()
  iterator = iter(DataLoader(X, 1))
  next(iterator)
  del iterator
  gc.collect()
  iter(DataLoader(X, 1))  # never asked for a batch: no thread


def test_no_more_than_asked_is_gathered_ahead() -> None:
  items = Squares()
  iterator = iter(DataLoader(items, 1, prefetch=2))
  next(iterator)
  next(iterator)
  for _ in range(3):  # whatever the thread still does, it cannot go further
    assert max(items.asked) <= 4
  assert len(list(iterator)) == 8 and max(items.asked) == 9


def test_two_loops_over_one_loader() -> None:
  loader = DataLoader(Y, 4)
  assert [(a.tolist()[0], b.tolist()[0]) for a in loader for b in loader][:4] == [(0, 0), (0, 4), (0, 8), (4, 0)]


def test_under_a_jit() -> None:
  step: TinyJit[[Tensor], Tensor] = TinyJit(lambda x: (x * 2).sum().realize())
  sums = [step(batch).item() for batch in DataLoader(X, 2, shuffle=True, seed=1)]
  assert sum(sums) == 2 * X.sum() and step.captured


def test_what_is_no_data_set() -> None:
  with pytest.raises(ValueError, match=r"as many rows each, got \[10, 9\]"):
    DataLoader((X, Y[:9]))
  with pytest.raises(TypeError, match="int"):
    DataLoader(3)
  with pytest.raises(ValueError, match="batch"):
    DataLoader(X, 0)
  with pytest.raises(ValueError, match="no axes"):
    DataLoader(np.float32(1))
  assert lists(DataLoader(X[:0], 3)) == [] and lists(DataLoader(X[:, :0], 5)) == [[[]] * 5] * 2
