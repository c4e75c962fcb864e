"""NumPy's files against NumPy, and headers that lie."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_tensor import Context, Tensor, dtypes
from tiny_tensor.nn.state import npy_load, npy_save, npz_load, npz_save

DTYPES = [
  "bool",
  "int8",
  "uint8",
  "int16",
  "uint16",
  "int32",
  "uint32",
  "int64",
  "uint64",
  "float16",
  "float32",
  "float64",
]
BASE: Any = np.arange(6).reshape(2, 3) - 2


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def same(t: Tensor, array: Any) -> None:
  assert t.dtype.name == array.dtype.name
  np.testing.assert_array_equal(t.numpy(), array)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_both_ways(tmp_path: Path, name: str) -> None:
  for array in (BASE.astype(name), BASE.astype(np.dtype(name).newbyteorder(">"))):
    np.save(tmp_path / "a.npy", array)
    same(npy_load(tmp_path / "a.npy"), array)
  npy_save(Tensor(BASE.astype(name)), tmp_path / "b.npy")
  back = np.load(tmp_path / "b.npy")
  assert (back.dtype, back.shape) == (np.dtype(name), (2, 3))
  np.testing.assert_array_equal(back, BASE.astype(name))


@pytest.mark.parametrize(
  "array",
  [
    np.float32(2.5), np.zeros((0, 3), np.int32), np.asfortranarray(BASE), np.arange(24).reshape(2, 3, 4).T,
    np.asfortranarray(BASE.astype(">f4")), np.zeros((0, 3), ">i4"), np.arange(5)[::2],
  ],
)  # fmt: skip
def test_shapes_and_orders(tmp_path: Path, array: Any) -> None:
  np.save(tmp_path / "a.npy", array)
  same(npy_load(tmp_path / "a.npy"), np.asarray(array))
  npy_save(Tensor(np.ascontiguousarray(array)).reshape(np.shape(array)), tmp_path / "a.npy")
  np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_is_mapped(tmp_path: Path, version: tuple[int, int]) -> None:
  with (tmp_path / "a.npy").open("wb") as file:
    np.lib.format.write_array(file, BASE, version)
  loaded = npy_load(tmp_path / "a.npy")
  assert str(loaded.device).startswith("DISK:")
  same(loaded, BASE)


@pytest.mark.parametrize("compressed", [False, True])
def test_archives_both_ways(tmp_path: Path, compressed: bool) -> None:
  arrays: dict[str, Any] = {"a": BASE.astype(np.float32), "b/c": BASE.T, "none": np.zeros(0), "one": np.array(True)}
  (np.savez_compressed if compressed else np.savez)(tmp_path / "a.npz", **arrays)
  loaded = npz_load(tmp_path / "a.npz")
  assert list(loaded) == list(arrays)
  for name, t in loaded.items():
    same(t, arrays[name])
  npz_save(loaded, tmp_path / "b.npz", compressed=compressed)
  with np.load(tmp_path / "b.npz") as back:
    assert back.files == list(arrays)
    for name, array in arrays.items():
      np.testing.assert_array_equal(back[name], array)


def test_saving_is_all_or_nothing(tmp_path: Path) -> None:
  path = tmp_path / "a.npz"
  npz_save({"x": Tensor([1.0])}, path)
  before = path.read_bytes()
  with pytest.raises(TypeError, match="'y' is bfloat16"):
    npz_save({"x": Tensor([5.0]), "y": Tensor([1.0], dtype=dtypes.bfloat16)}, path)
  with pytest.raises(RuntimeError):
    npz_save({"x": Tensor([5.0]), "y": Tensor([1.0, 2.0]).to("NOWHERE")}, path)
  with pytest.raises(TypeError, match="fp8e4m3"):
    npy_save(Tensor([1.0], dtype=dtypes.fp8e4m3), path)
  assert (path.read_bytes(), os.listdir(tmp_path)) == (before, ["a.npz"])


def npy(header: str | bytes, data: bytes = bytes(8), version: int = 1, length: int | None = None) -> bytes:
  text = header.encode() if isinstance(header, str) else header
  count = len(text) if length is None else length
  return b"\x93NUMPY" + bytes([version, 0]) + count.to_bytes(2 if version == 1 else 4, "little") + text + data


def header(descr: Any = "<f4", order: Any = False, shape: Any = (2,)) -> str:
  return repr({"descr": descr, "fortran_order": order, "shape": shape})


LIES = [
  ("empty", b"", "at byte 0"),
  ("another format", b"PK\x03\x04" + bytes(40), "PK"),
  ("version", npy(header(), version=4), "version 4"),
  ("length", npy(header(), length=9000), "claims 9000 bytes"),
  ("huge length", npy(header(), version=2, length=(1 << 32) - 1), "claims 4294967295"),
  ("code", npy("__import__('os').system('echo')"), "no Python literal"),
  ("nested", npy("[" * 5000), "no Python literal"),
  ("no text", npy(b"\xff\xfe"), "no Python literal"),
  ("no dict", npy("[1, 2]"), "must have descr"),
  ("a field missing", npy("{'descr': '<f4'}"), "must have descr"),
  ("objects", npy(header("|O")), "pickles"),
  ("structure", npy(header([("a", "<f4")])), "expected numbers"),
  ("complex", npy(header("<c8")), "<c8"),
  ("text", npy(header("<U2")), "<U2"),
  ("no order of bytes", npy(header("f4")), "'f4'"),
  ("negative", npy(header(shape=(-2,))), "shape"),
  ("true as size", npy(header(shape=(True, 2))), "shape"),
  ("shape is a list", npy(header(shape=[2])), "shape"),
  ("order is a number", npy(header(order=1)), "fortran_order 1"),
  ("truncated", npy(header(), bytes(7)), "takes 8 bytes, there are 7"),
  ("oversized", npy(header(), bytes(9)), "takes 8 bytes, there are 9"),
  ("huge shape", npy(header(shape=(1 << 62, 4))), "there are 8"),
]


@pytest.mark.parametrize(("content", "message"), [x[1:] for x in LIES], ids=[x[0] for x in LIES])
def test_headers_that_lie(tmp_path: Path, content: bytes, message: str) -> None:
  path = tmp_path / "broken.npy"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message) as caught:
    npy_load(path)
  assert "broken.npy" in str(caught.value)
  with zipfile.ZipFile(tmp_path / "broken.npz", "w") as archive:
    archive.writestr("x.npy", content)
  with pytest.raises(ValueError, match=r"broken\.npz.*'x\.npy'"):
    npz_load(tmp_path / "broken.npz")


def test_archives_of_something_else(tmp_path: Path) -> None:
  with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
    archive.writestr("readme", b"text")
  with pytest.raises(ValueError, match="'readme'"):
    npz_load(tmp_path / "a.npz")


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
  np.save(tmp_path / "a.npy", np.array([{}, None]), allow_pickle=True)
  with pytest.raises(ValueError, match="pickles"):
    npy_load(tmp_path / "a.npy")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_files_are_errors_or_tensors(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
  content = bytearray(npy(header()))
  for at, byte in changes:
    content[at % len(content)] = byte
  (tmp_path / "a.npy").write_bytes(content)
  try:
    assert npy_load(tmp_path / "a.npy").numel() <= 8
  except ValueError as error:
    assert "a.npy" in str(error)
