"""MNIST, Fashion-MNIST and CIFAR, from files written here in their formats; damaged ones are refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_server import Site, serving

from tiny_tensor import Context, Tensor, nn
from tiny_tensor.nn.datasets import cifar, idx_load, mnist

Array = Any
TYPES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}


@pytest.fixture(autouse=True)
def _on_the_reference_device(tmp_path: Path) -> Iterator[None]:
  with Context(DEVICE="REF", TINY_CACHE=str(tmp_path / "cache")):
    yield


def idx(array: Array) -> bytes:
  head = bytes([0, 0, TYPES[str(array.dtype)], array.ndim]) + b"".join(struct.pack(">I", s) for s in array.shape)
  return head + bytes(array.astype(array.dtype.newbyteorder(">")).tobytes())


def digits(seed: int = 0, train: int = 5, test: int = 3) -> dict[str, Array]:
  chance = np.random.default_rng(seed)
  return {
    "train-images-idx3-ubyte": chance.integers(0, 256, (train, 28, 28), dtype=np.uint8),
    "train-labels-idx1-ubyte": chance.integers(0, 10, train, dtype=np.uint8),
    "t10k-images-idx3-ubyte": chance.integers(0, 256, (test, 28, 28), dtype=np.uint8),
    "t10k-labels-idx1-ubyte": chance.integers(0, 10, test, dtype=np.uint8),
  }


def check_digits(found: tuple[Tensor, ...], arrays: dict[str, Array]) -> None:
  for t, (name, array) in zip(found, arrays.items(), strict=True):
    expected = array[:, None] if "images" in name else array
    assert t.device == "REF" and t.dtype.name == "uint8"
    np.testing.assert_array_equal(t.numpy(), expected)


# *** IDX ***


@pytest.mark.parametrize("dtype", TYPES)
def test_idx_of_every_type(dtype: str, tmp_path: Path) -> None:
  array = (np.arange(24).reshape(2, 3, 4) - 5).astype(dtype)
  for name, content in (("plain", idx(array)), ("packed", gzip.compress(idx(array)))):
    (tmp_path / name).write_bytes(content)
    found = idx_load(tmp_path / name)
    assert found.dtype.name == dtype
    np.testing.assert_array_equal(found.to("REF").numpy(), array)


GOOD = idx(np.zeros((2, 3), dtype=np.uint8))
BROKEN = {
  "empty": (b"", "ends at byte 0, in its header"),
  "another format": (b"PK\3\4" + bytes(40), "begins with 50 4b 03 04"),
  "unknown type": (b"\0\0\x0a\1" + bytes(40), "begins with 00 00 0a 01"),
  "cut in the header": (GOOD[:9], "ends at byte 9, in its header"),
  "cut": (GOOD[:-1], r"shape \(2, 3\) of uint8 ends at byte 18, the file has 17"),
  "appended": (GOOD + b"x", "ends at byte 18, the file has 19"),
  "a shape that lies": (b"\0\0\x08\3" + b"\xff" * 12, "more than"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_idx_that_is_broken(name: str, tmp_path: Path) -> None:
  content, message = BROKEN[name]
  path = tmp_path / "broken.idx"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=f"broken.idx' is not a valid IDX file: .*{message}"):
    idx_load(path)
  path.write_bytes(gzip.compress(content))
  with pytest.raises(ValueError, match="broken.idx' is not a valid IDX file"):
    idx_load(path)


def test_idx_packed_that_is_cut_or_a_bomb(tmp_path: Path) -> None:
  path = tmp_path / "x.gz"
  path.write_bytes(gzip.compress(GOOD)[:-4])
  with pytest.raises(ValueError, match="no whole gzip file"):
    idx_load(path)
  path.write_bytes(gzip.compress(GOOD + bytes(1 << 26)))
  with pytest.raises(ValueError, match="ends at byte 18, more follows"):
    idx_load(path)


# *** MNIST ***


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_from_a_folder(packed: bool, tmp_path: Path) -> None:
  arrays = digits()
  for name, array in arrays.items():
    (tmp_path / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(idx(array)) if packed else idx(array))
  check_digits(mnist(source=tmp_path), arrays)
  check_digits(nn.datasets.mnist("REF", fashion=True, source=str(tmp_path)), arrays)


def test_mnist_from_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
  arrays = {"MNIST_URL": digits(1), "FASHION_URL": digits(2)}
  with serving(Site()) as site:
    for n, (where, sets) in enumerate(arrays.items()):
      site.files |= {f"/{n}/{name}.gz": gzip.compress(idx(a), mtime=0) for name, a in sets.items()}
      monkeypatch.setattr(nn.datasets, where, f"{site.url}/{n}/")
    check_digits(mnist(), arrays["MNIST_URL"])
    check_digits(mnist(fashion=True), arrays["FASHION_URL"])
    assert len(site.requests) == 8
    check_digits(mnist(), arrays["MNIST_URL"])
    assert len(site.requests) == 8, "the second time they are here"
    name = "t10k-labels-idx1-ubyte.gz"
    right = hashlib.sha256(site.files[f"/0/{name}"]).hexdigest()
    check_digits(mnist(sha256={name: right}), arrays["MNIST_URL"])
    with pytest.raises(ValueError, match=rf"{name}' has the SHA-256 digest {right}"):
      mnist(sha256={name: "0" * 64})


CHANGES: dict[str, tuple[str, Callable[[Array], Array], str]] = {
  "fewer labels": ("train-labels-idx1-ubyte", lambda a: a[:-1], r"shape \(4,\) for 5 images"),
  "a wrong label": ("t10k-labels-idx1-ubyte", lambda a: np.array([1, 10, 2], np.uint8), "label 10 at place 1"),
  "no images": ("train-images-idx3-ubyte", lambda a: a[0], "expected images"),
  "numbers": ("train-images-idx3-ubyte", lambda a: a.astype(np.int32), "int32 .* expected images"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_mnist_that_does_not_fit_together(name: str, tmp_path: Path) -> None:
  file, change, message = CHANGES[name]
  arrays = digits()
  for key, array in arrays.items():
    (tmp_path / key).write_bytes(idx(change(array) if key == file else array))
  with pytest.raises(ValueError, match=message):
    mnist(source=tmp_path)
  (tmp_path / file).unlink()
  with pytest.raises(FileNotFoundError, match=file):
    mnist(source=tmp_path)


# *** CIFAR ***


def images(count: int, seed: int) -> tuple[Array, Array, Array]:
  """(pixels, fine labels, coarse labels)."""
  chance = np.random.default_rng(seed)
  fine = chance.integers(0, 10, count, dtype=np.uint8)
  return chance.integers(0, 256, (count, 3072), dtype=np.uint8), fine, fine // 5


SETS = {10: [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"], 100: ["train", "test"]}


def cifar_files(classes: int, python: bool, protocol: int = 2) -> dict[str, bytes]:
  files = {}
  for seed, name in enumerate(SETS[classes]):
    pixels, fine, coarse = images(2, seed)
    if python:
      labels = {b"labels": fine.tolist()}
      if classes == 100:
        labels = {b"fine_labels": fine.tolist(), b"coarse_labels": coarse.tolist()}
      files[name] = pickle.dumps({b"batch_label": b"x", b"data": pixels, **labels}, protocol)
    else:
      heads = [fine] if classes == 10 else [coarse, fine]
      files[f"{name}.bin"] = np.concatenate([*[h[:, None] for h in heads], pixels], 1).tobytes()
  return {**files, "readme.html": b"<p>"}


def archive(files: dict[str, bytes], mode: str) -> bytes:
  out = io.BytesIO()
  with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
    for name, content in files.items():
      info = tarfile.TarInfo(f"cifar/{name}")
      info.size = len(content)
      tar.addfile(info, io.BytesIO(content))
  return out.getvalue()


def check_images(found: tuple[Tensor, ...], classes: int, coarse: bool = False) -> None:
  every = [images(2, seed) for seed in range(len(SETS[classes]))]
  for (x, y), group in (((found[0], found[1]), every[:-1]), ((found[2], found[3]), every[-1:])):
    assert x.device == y.device == "REF" and x.dtype.name == y.dtype.name == "uint8"
    np.testing.assert_array_equal(x.numpy(), np.concatenate([p for p, _, _ in group]).reshape(-1, 3, 32, 32))
    np.testing.assert_array_equal(y.numpy(), np.concatenate([c if coarse else f for _, f, c in group]))


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("version", ["binary", "protocol 0", "protocol 2", "protocol 5"])
def test_cifar_from_a_folder_and_an_archive(classes: int, version: str, tmp_path: Path) -> None:
  files = cifar_files(classes, version != "binary", int(version[-1]) if version != "binary" else 2)
  (folder := tmp_path / "files").mkdir()
  for name, content in files.items():
    (folder / name).write_bytes(content)
  check_images(cifar(source=folder, classes=classes), classes)
  for mode in ("w", "w:gz"):
    (packed := tmp_path / "cifar.tar").write_bytes(archive(files, mode))
    check_images(cifar(classes=classes, source=packed), classes)
  if classes == 100:
    check_images(cifar(source=folder, classes=100, coarse=True), 100, coarse=True)


def test_cifar_from_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
  content = archive(cifar_files(100, False), "w:gz")
  with serving(Site({"/cifar-100-binary.tar.gz": content})) as site:
    monkeypatch.setattr(nn.datasets, "CIFAR_URL", site.url + "/cifar-{}-binary.tar.gz")
    check_images(cifar(classes=100, sha256=hashlib.sha256(content).hexdigest()), 100)
    with pytest.raises(FileNotFoundError, match="404"):
      cifar(classes=10)


def test_a_python_2_pickle(tmp_path: Path) -> None:
  """As the published files are written: arrays of `numpy.core`, elements as text, protocol 2."""
  raw = bytes(range(256)) * 12
  text = b"T" + struct.pack("<I", len(raw)) + raw
  pickled = (
    b"\x80\x02}q\x00(U\x04dataq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85U\x01b\x87R"
    b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    + text
    + b"tbU\x06labels]K\x07au."
  )
  for name in SETS[10]:
    (tmp_path / name).write_bytes(pickled)
  x, y, _, _ = cifar(source=tmp_path)
  assert x.shape == (5, 3, 32, 32) and bytes(x[4].flatten().tolist()) == raw and y.tolist() == [7] * 5


def other(files: dict[str, bytes], name: str, content: bytes) -> dict[str, bytes]:
  return {**files, name: content}


class Evil:
  def __reduce__(self) -> tuple[Any, ...]:
    return print, ("run",)


DAMAGE: dict[str, tuple[bool, Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
  "cut": (False, lambda f: other(f, "data_batch_2.bin", f["data_batch_2.bin"][:-1]), "breaks off at byte 3073"),
  "empty": (False, lambda f: other(f, "data_batch_2.bin", b""), "has no images"),
  "a wrong label": (False, lambda f: other(f, "test_batch.bin", b"\x0a" + bytes(3072)), "label 10 for image 0"),
  "a pickle that runs": (True, lambda f: other(f, "test_batch", pickle.dumps(Evil(), 2)), "asks for '.*print'"),
  "no dict": (True, lambda f: other(f, "test_batch", pickle.dumps([1], 2)), "no array 'data'"),
  "no labels": (
    True,
    lambda f: other(f, "test_batch", pickle.dumps({b"data": images(1, 0)[0]}, 2)),
    "no list 'labels'",
  ),
  "a cut pickle": (True, lambda f: other(f, "test_batch", f["test_batch"][:500]), "'test_batch' is not a file"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_cifar_that_is_damaged(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  python, damage, message = DAMAGE[name]
  for file, content in damage(cifar_files(10, python)).items():
    (tmp_path / file).write_bytes(content)
  with pytest.raises(ValueError, match=message):
    cifar(source=tmp_path)
  assert capsys.readouterr().out == ""


def test_cifar_that_is_not_there(tmp_path: Path) -> None:
  with pytest.raises(FileNotFoundError, match="data_batch_1"):
    cifar(source=tmp_path)
  with pytest.raises(ValueError, match="CIFAR-20"):
    cifar(classes=20)
  with pytest.raises(ValueError, match="coarse"):
    cifar(coarse=True)
