"""Data in and out: what is copied, and that copies are independent. NumPy only makes the arrays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tiny_runtime import GlobalCounters
from tiny_tensor import Context, Tensor, TinyJit, dtypes

SIZES = (5, 1 << 16)
"""Elements: few, whose copies for the host are ordinary memory, and many, for which it is that of the device."""


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32", "float64"])
def test_there_and_back(size: int, dtype: str) -> None:
  array = (np.arange(size) % 7).astype(dtype)
  tensor = Tensor(array)
  assert tensor.dtype.name == dtype and tensor.shape == (size,)
  assert np.array_equal(tensor.numpy(), array) and tensor.numpy().dtype == array.dtype
  assert tensor.tolist() == array.tolist()
  if dtype != "float16":  # memoryview knows it only from Python 3.12 on
    assert tensor.data().tolist() == array.tolist()


@pytest.mark.parametrize("size", SIZES)
def test_layouts(size: int) -> None:
  array = np.arange(2 * size, dtype="int32").reshape(2, size)
  for view in (array.T, array[:, ::-1], array[::2], array.astype(">i4"), array[None].transpose(2, 0, 1)):
    assert np.array_equal(Tensor(view).numpy(), view)
  array.flags.writeable = False
  assert np.array_equal(Tensor(array).numpy(), array)
  for raw in (bytes(size), bytearray(b"\1" * size), memoryview(bytes(range(250)) * size)[::250]):
    assert Tensor(raw).tolist() == list(raw)
  assert Tensor(array.tobytes(), dtype=dtypes.int32).tolist() == array.reshape(-1).tolist()
  assert Tensor(array, dtype=dtypes.float32).numpy().tolist() == array.astype("float32").tolist()
  with pytest.raises(ValueError, match="no whole number of int32"):
    Tensor(bytes(4 * size + 1), dtype=dtypes.int32)


@pytest.mark.parametrize("size", SIZES)
def test_arrays_and_tensors_change_independently(size: int) -> None:
  array = np.zeros(size, dtype="int32")
  tensor = Tensor(array)
  array[:] = 1
  first, view = tensor.numpy(), tensor.data()
  assert first[0] == 0 and view[0] == 0
  first[:] = 2
  assert tensor.tolist()[0] == 0 and view.readonly
  tensor.assign(tensor + 3).realize()
  assert (tensor.tolist()[0], first[-1], view[size - 1]) == (3, 2, 0)


@pytest.mark.parametrize("size", SIZES)
def test_arrays_outlive_their_tensor(size: int) -> None:
  gc.collect()
  before = GlobalCounters.mem_used
  array, view = Tensor(np.full(size, 7, dtype="int32")).numpy(), Tensor(np.full(size, 8, dtype="int32")).data()
  part = array[1:3]
  others = [Tensor(np.full(size, n, dtype="int32")).realize() for n in range(8)]  # would take memory that was freed
  assert (array == 7).all() and view.tolist() == [8] * size
  del array, view, others
  assert part.tolist() == [7, 7]
  del part
  gc.collect()
  assert GlobalCounters.mem_used == before


@pytest.mark.parametrize("size", SIZES)
def test_replays_begin_with_the_data_again(size: int) -> None:
  data = np.zeros(size, dtype="int32")

  @TinyJit
  def f(x: Tensor) -> Tensor:
    start = Tensor(data).realize()
    return start.assign(start + x).realize()

  results: list[Any] = [f(Tensor([n]).realize()).numpy()[[0, -1]].tolist() for n in range(5)]
  assert results == [[n, n] for n in range(5)]


def test_sharding_over_one_device_is_moving() -> None:
  t = Tensor([1, 2, 3], device="HOST")
  assert t.shard(("REF",), axis=0).tolist() == [1, 2, 3] and t.shard("REF").device == "REF"
  assert t.shard_like(Tensor([1], device="REF")).device == "REF" and t.device == "HOST"
  assert t.shard_(["REF"]) is t and t.device == "REF"
  with pytest.raises(IndexError, match="axis 1 of a tensor of 1 axes"):
    t.shard(("REF",), axis=1)
  with pytest.raises(ValueError, match="needs a device"):
    t.shard(())
