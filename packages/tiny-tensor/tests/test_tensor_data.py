"""Tensors from Python data, values back to Python, and what is refused."""

from __future__ import annotations

import array
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, dtypes


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


@pytest.mark.parametrize(
  ("value", "dtype", "shape"),
  [
    (True, dtypes.bool, ()),
    (3, dtypes.int32, ()),
    (2.5, dtypes.float32, ()),
    ([True, False], dtypes.bool, (2,)),
    ([1, True], dtypes.int32, (2,)),
    ([[1, 2.5], [3, 4]], dtypes.float32, (2, 2)),
    ([], dtypes.float32, (0,)),
    ([[], []], dtypes.float32, (2, 0)),
    (((1,), (2,)), dtypes.int32, (2, 1)),
    (b"ab", dtypes.uint8, (2,)),
    (np.float64(2.5), dtypes.float64, ()),
    (np.zeros((2, 3), np.int16), dtypes.int16, (2, 3)),
    (np.zeros((2, 3))[:, ::2], dtypes.float64, (2, 2)),
    (None, dtypes.float32, (0,)),
  ],
)
def test_inference(value: Any, dtype: Any, shape: tuple[int, ...]) -> None:
  t = Tensor(value)
  assert t.dtype is dtype and t.shape == shape
  if value is not None and not isinstance(value, bytes):
    np.testing.assert_array_equal(t.numpy(), np.array(value, dtype=dtype.name))


@pytest.mark.parametrize("dtype", dtypes.all)
def test_every_dtype_goes_there_and_back(dtype: Any) -> None:
  values = [True, False] if dtype is dtypes.bool else [0, 1, 3, 112]
  t = Tensor(values, dtype=dtype)
  assert t.dtype is dtype and t.tolist() == values and t.sum().item() is not None


def test_arrays_of_another_byte_order() -> None:
  assert Tensor(np.array([1, 2, 300], dtype=">i4")).tolist() == [1, 2, 300]


def test_bytes_with_a_dtype() -> None:
  assert Tensor(array.array("i", [1, -2]).tobytes(), dtype="int32").tolist() == [1, -2]
  with pytest.raises(ValueError, match="3 bytes"):
    Tensor(b"abc", dtype="int16")


def test_files(tmp_path: Path) -> None:
  path = tmp_path / "numbers"
  path.write_bytes(np.arange(6, dtype=np.float32).tobytes())
  t = Tensor(path)
  assert t.device == f"DISK:{path}" and t.shape == (24,) and t.dtype is dtypes.uint8
  assert t.to("REF").bitcast("float32").tolist() == [0, 1, 2, 3, 4, 5]
  with pytest.raises(FileNotFoundError):
    Tensor(tmp_path / "missing")


def test_values() -> None:
  t = Tensor([[1, 2], [3, 4]])
  assert t.tolist() == [[1, 2], [3, 4]] and Tensor(3.5).item() == 3.5 and Tensor([[True]]).item() is True
  view = t.data()
  assert view.shape == (2, 2) and view[1, 0] == 3 and view.format == "i"
  assert len(t) == 2 and t.numel() == 4 and t.nbytes() == 16 and t.element_size() == 4 and t.size(1) == 2
  assert [row.tolist() for row in t] == [[1, 2], [3, 4]]
  assert "(2, 2) int32" in repr(t)
  assert Tensor([math.nan, math.inf]).isnan().tolist() == [True, False]


def test_numpy_gives_a_copy_that_can_be_written() -> None:
  t = Tensor([1.0, 2.0]).realize()
  a = t.numpy()
  a[0] = 5
  assert t.tolist() == [1, 2]


@pytest.mark.parametrize(
  ("make", "error", "words"),
  [
    (lambda: Tensor([[1, 2], [3]]), ValueError, r"ragged.*\(2,\).*\(1,\)"),
    (lambda: Tensor([1, "a"]), TypeError, "str 'a'"),
    (lambda: Tensor("abc"), TypeError, "str"),
    (lambda: Tensor({}), TypeError, "dict"),
    (lambda: Tensor([2**40]), OverflowError, "1099511627776.*int32"),
    (lambda: Tensor([1], dtype="float33"), ValueError, "float33"),
    (lambda: Tensor([1], dtype="void"), ValueError, "void"),
    (lambda: Tensor([1], dtype=3), TypeError, "3"),  # type: ignore[arg-type]
    (lambda: Tensor(np.zeros(2, np.complex64)), TypeError, "complex64"),
    (lambda: Tensor([1], device="no device!"), ValueError, "no device!"),
    (lambda: Tensor([1, 2]).item(), ValueError, r"\(2,\)"),
    (lambda: Tensor.zeros(0).item(), ValueError, r"\(0,\)"),
    (lambda: bool(Tensor([1])), TypeError, "truth"),
    (lambda: len(Tensor(1)), TypeError, "0-d"),
    (lambda: Tensor([1, 2]) + Tensor([1, 2, 3]), ValueError, r"\(2,\), \(3,\)"),
    (lambda: Tensor([1, 2]).add("a"), TypeError, "str"),  # type: ignore[arg-type]
    (lambda: Tensor([1, 2])[2], IndexError, "index 2.*axis 0.*size 2"),
    (lambda: Tensor([1, 2])[0, 0], IndexError, "2.*1 axes"),
    (lambda: Tensor([1, 2])[..., ...], IndexError, "ellipsis"),
    (lambda: Tensor([1, 2])[1.5], IndexError, "1.5"),
    (lambda: Tensor([1, 2])["a"], IndexError, "'a'"),
    (lambda: Tensor([1, 2])[::0], ValueError, "zero"),
    (lambda: Tensor([1, 2])[Tensor([0.5])], IndexError, "float32"),
    (lambda: Tensor([1, 2])[Tensor([True, False, True])], IndexError, r"\(3,\)"),
    (lambda: Tensor.zeros(2, 3).reshape(4), ValueError, r"\(2, 3\).*4"),
    (lambda: Tensor.zeros(2, 3).reshape(-1, 4), ValueError, "6"),
    (lambda: Tensor.zeros(2, 3).permute(0, 0), ValueError, r"\(0, 0\)"),
    (lambda: Tensor.zeros(2, 3).expand(4, 3), ValueError, r"\(2, 3\)"),
    (lambda: Tensor.zeros(2, 3).sum(2), IndexError, "axis 2"),
    (lambda: Tensor.zeros(2, 3).sum((0, 0)), ValueError, "twice"),
    (lambda: Tensor.zeros(0).max(), ValueError, "no elements"),
    (lambda: Tensor.zeros(2, 3) @ Tensor.zeros(2, 3), ValueError, r"\(2, 3\).*3 and 2"),
    (lambda: Tensor(1.0) @ Tensor(1.0), ValueError, "axis"),
    (lambda: Tensor.zeros(1, 3, 4, 4).conv2d(Tensor.zeros(2, 2, 3, 3)), ValueError, "3 channels"),
    (lambda: Tensor.zeros(1, 1, 2, 2).conv2d(Tensor.zeros(1, 1, 3, 3)), ValueError, r"\(3, 3\).*\(2, 2\)"),
    (lambda: Tensor.zeros(2).cat(Tensor.zeros(2, 2)), ValueError, r"\(2,\), \(2, 2\)"),
    (lambda: Tensor([True]) - Tensor([True]), TypeError, "bool"),
    (lambda: Tensor([1.0]) & 1, TypeError, "float32"),
    (lambda: Tensor([1.0]) << 1, TypeError, "float32"),
    (lambda: Tensor.einsum("ij,jk->il", Tensor.zeros(2, 3), Tensor.zeros(3, 4)), ValueError, "'il'"),
    (lambda: Tensor.einsum("ij,jk->ik", Tensor.zeros(2, 3), Tensor.zeros(4, 4)), ValueError, "3 and 4"),
    (lambda: Tensor.zeros(3).bitcast("float64"), ValueError, "12 bytes"),
    (lambda: Tensor.zeros(-1), ValueError, "-1"),
    (lambda: Tensor.zeros(2, 1.5), TypeError, "1.5"),
    (lambda: Tensor.arange(0, 3, 0), ValueError, "step"),
    (lambda: Tensor.zeros(3).topk(4), ValueError, "k=4"),
    (lambda: Tensor.zeros(3).dropout(1.5), ValueError, "1.5"),
    (lambda: Tensor.zeros(3).pad((1, 1), mode="mirror"), ValueError, "mirror"),
    (lambda: Tensor.zeros(2, 2).cross_entropy(Tensor([0, 1, 2])), ValueError, r"\(3,\)"),
    (lambda: Tensor.zeros(2, 2).cross_entropy(Tensor([0, 1]), reduction="avg"), ValueError, "avg"),
    (lambda: Tensor.rand(3, dtype="int32"), TypeError, "int32"),
    (lambda: Tensor.randint(3, low=5, high=5), ValueError, "5 and 5"),
    (lambda: Tensor.zeros(2, 6).rearrange("a (b c) -> a b c", b=4), ValueError, "6"),
  ],
)
def test_errors_name_the_values(make: Any, error: type[Exception], words: str) -> None:
  with pytest.raises(error, match=words):
    make()


def test_scalars_are_weak() -> None:
  assert (Tensor([1], dtype="int8") + 1).dtype is dtypes.int8
  assert (Tensor([1], dtype="int8") + 1.5).dtype is dtypes.float32
  assert (Tensor([1.0], dtype="float16") * 2.5).dtype is dtypes.float16
  assert (Tensor([True]) + 1).dtype is dtypes.int32 and (Tensor([True]) + True).dtype is dtypes.bool
  assert (Tensor([1], dtype="int32") + Tensor([1], dtype="float16")).dtype is dtypes.float16
  assert (Tensor([1], dtype="uint8") + Tensor([1], dtype="int8")).dtype is dtypes.int16
  assert (Tensor([1, 2]) / 2).tolist() == [0.5, 1.0] and (2 - Tensor([1, 2])).tolist() == [1, 0]


def test_import_is_light() -> None:
  code = "import sys, tiny_tensor; print(sorted({'numpy', 'tiny_codegen', 'llvmlite', 'torch'} & set(sys.modules)))"
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
  assert done.stdout.strip() == "[]"


def test_numpy_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setitem(sys.modules, "numpy", None)
  with pytest.raises(ImportError, match=r"pip install 'tiny-tensor\[numpy\]'"):
    Tensor([1]).numpy()
