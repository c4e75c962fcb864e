"""NumPy's scalars and arrays next to tensors, as operands, indices and arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from tiny_tensor import Context, Tensor, dtypes

np: Any = numpy  # its scalars are no Python numbers to a type checker


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


SCALARS = [np.float32(2), np.float64(2), np.float16(2), np.longdouble(2), np.int64(2), np.uint8(2), np.True_]
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.lt, operator.eq]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: type(s).__name__)
def test_a_numpy_scalar_is_a_python_number(scalar: Any) -> None:
  number = bool(scalar) if isinstance(scalar, np.bool_) else int(scalar) if isinstance(scalar, np.integer) else 2.0
  for dtype in ("float32", "float16", "int8"):
    t = Tensor([1, 2, 3], dtype=dtype)
    for op in OPERATORS:
      for got, expected in ((op(t, scalar), op(t, number)), (op(scalar, t), op(number, t))):
        assert isinstance(got, Tensor) and got.uop is expected.uop, "the same graph, so the same dtype"


def test_an_array_has_a_dtype_that_counts() -> None:
  t = Tensor([1.0, 2.0])
  for array in (np.array(2.0), np.array([2.0, 3.0])):
    for got in (t + array, array + t, t.maximum(array), Tensor([True, False]).where(array, t)):
      assert isinstance(got, Tensor) and got.dtype is dtypes.float64
  assert (np.array([0.0, 3.0]) < t).tolist() == [True, False] and (t == np.array([1.0, 0.0])).tolist() == [True, False]
  row = np.array([3.0, 4.0], np.float32)
  for product in (t @ row, row @ t):
    assert isinstance(product, Tensor) and product.item() == 11
  with pytest.raises(TypeError, match="Tensor, got list"):
    [1.0] @ t  # type: ignore[arg-type]
  array = np.array([1.0, 2.0])
  with pytest.raises(TypeError, match="__array_ufunc__"):
    array += t  # which would be computed by NumPy


CALLS: dict[str, tuple[Callable[[], Any], Any]] = {
  "full": (lambda: Tensor.full((2,), np.float32(3)), [3.0, 3.0]),
  "full, 0-d": (lambda: Tensor.full((2,), np.array(3)), [3, 3]),
  "full_like": (lambda: Tensor([1.0]).full_like(np.int64(3)), [3.0]),
  "arange": (lambda: Tensor.arange(np.int64(1), np.int8(4)), [1, 2, 3]),
  "linspace": (lambda: Tensor.linspace(np.float32(0), np.int64(1), np.int64(3)), [0.0, 0.5, 1.0]),
  "eye": (lambda: Tensor.eye(np.int64(2)), [[1.0, 0.0], [0.0, 1.0]]),
  "shape": (lambda: Tensor.zeros(np.int64(1), np.int32(2)).reshape(np.int64(2)), [0.0, 0.0]),
  "axis": (lambda: Tensor([[1, 2]]).sum(np.int64(1)), [3]),
  "clamp": (lambda: Tensor([1.0, 3.0]).clamp(np.float32(1.5), np.int64(2)), [1.5, 2.0]),
  "where": (lambda: Tensor([True, False]).where(np.float32(1), np.int64(0)), [1.0, 0.0]),
  "masked_fill": (lambda: Tensor([1.0]).masked_fill(Tensor([True]), np.float64(9)), [9.0]),
  "pad": (lambda: Tensor([1.0]).pad((1, 0), value=np.float32(5)), [5.0, 1.0]),
  "roll": (lambda: Tensor([1, 2, 3]).roll(np.int64(1)), [3, 1, 2]),
  "topk": (lambda: Tensor([1, 2, 3]).topk(np.int64(2))[0], [3, 2]),
  "a list": (lambda: Tensor([np.float32(2), 1, np.array(3)]), [2.0, 1.0, 3.0]),
  "an index": (lambda: Tensor([1, 2, 3])[np.int64(-1)], 3),
  "an index, 0-d": (lambda: Tensor([1, 2, 3])[np.array(1)], 2),
  "a slice": (lambda: Tensor([1, 2, 3])[np.int64(1) : np.uint8(3)], [2, 3]),
  "a list of indices": (lambda: Tensor([1, 2, 3])[[np.int64(0), np.int64(2)]], [1, 3]),
  "a mask": (lambda: Tensor([1, 2, 3])[np.array([True, False, True])], [1, 3]),
}


@pytest.mark.parametrize("name", CALLS)
def test_wherever_a_python_number_is_taken(name: str) -> None:
  call, expected = CALLS[name]
  assert call().tolist() == expected and call().dtype in (dtypes.int32, dtypes.float32)


@pytest.mark.parametrize("mask", [True, False])
def test_a_mask_without_axes(mask: bool) -> None:
  a = np.arange(6).reshape(2, 3)
  for key in (mask, (mask, 1), (slice(None), mask), (Ellipsis, mask), (mask, slice(1))):
    for bool_ in (mask, np.bool_(mask), Tensor(mask)):
      index = tuple(bool_ if k is mask else k for k in key) if isinstance(key, tuple) else bool_
      got, expected = Tensor(a)[index], a[key]
      assert got.shape == expected.shape and got.tolist() == expected.tolist()
  with pytest.raises(IndexError, match="next to index tensors"):
    Tensor(a)[mask, [0, 1]]
  t = Tensor(a).contiguous()
  t[Tensor(mask)] = 7
  assert t.tolist() == ([[7] * 3] * 2 if mask else a.tolist())


def test_writing() -> None:
  t = Tensor([1.0, 2.0, 3.0])
  t[np.int64(0)] = np.float32(5)
  t[np.array(1)] = np.float64(6)
  t += np.float32(1)
  assert t.tolist() == [6, 7, 4]


def test_dtypes_of_numpy() -> None:
  for dtype in (np.float16, np.dtype("int8"), bool, np.bool_):
    assert Tensor([1, 0], dtype=dtype).dtype.name == Tensor([2]).cast(dtype).dtype.name == np.dtype(dtype).name
  with pytest.raises(ValueError, match="complex64"):
    Tensor([1], dtype=np.complex64)
  for wrong in (int, float):
    with pytest.raises(TypeError, match="dtype or its name"):
      Tensor([1], dtype=wrong)  # type: ignore[arg-type]


def test_refused() -> None:
  t = Tensor([1.0, 2.0])
  for index in (np.int64(2), np.array(-3)):
    with pytest.raises(IndexError, match="out of range for axis 0 of size 2"):
      t[index]
  for value in (np.complex64(1), np.str_("a")):
    with pytest.raises(TypeError, match="NumPy dtype"):
      t + value
  with pytest.raises(TypeError, match="__array_ufunc__"):
    np.sin(t)


def test_arrays_of_tensors() -> None:
  t = Tensor([[1.5, 2.5]])
  for array in (np.asarray(t), np.array(t), np.asarray(t, dtype="float32"), t.__array__()):
    assert array.dtype == np.float32 and array.tolist() == [[1.5, 2.5]]
    array[0, 0] = 9
  assert t.tolist() == [[1.5, 2.5]] and np.asarray(t, dtype=np.int8).tolist() == [[1, 2]]
  assert np.asarray(Tensor([1.5], dtype="bfloat16")).dtype == np.float32
  with pytest.raises(ValueError, match="from_dlpack"):
    t.__array__(copy=False)
  assert np.stack([t, t]).shape == (2, 1, 2) and np.allclose(t, [[1.5, 2.5]])


def test_buffers_of_tensors() -> None:
  t = Tensor([[1, 2, 3], [4, 5, 6]], dtype="int16")
  view: Any = t.__buffer__(0)
  assert (view.format, view.shape, view.tolist()) == ("h", (2, 3), [[1, 2, 3], [4, 5, 6]])
  view[0, 0] = 9
  assert t[0, 0].item() == 1 and t.data().readonly
  assert Tensor.zeros(0, 2).data().tolist() == []
  with pytest.raises(TypeError, match="bfloat16.*bitcast"):
    Tensor([1.0], dtype="bfloat16").data()


def test_half_precision_in_a_memoryview() -> None:
  t = Tensor([1.5, -2.0], dtype="float16")
  try:
    assert t.data().tolist() == [1.5, -2.0]  # from Python 3.12 on
  except TypeError as error:
    assert "Python 3.12" in str(error) and t.bitcast("uint16").data().tolist() == [0x3E00, 0xC000]
