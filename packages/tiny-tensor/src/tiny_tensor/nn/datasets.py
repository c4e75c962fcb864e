"""Data sets as tensors: MNIST and Fashion-MNIST (IDX files), CIFAR-10 and CIFAR-100 (records, or Python's pickles).

From the network, or from files that are here; a file is trusted with nothing. The digests of the published files are
not built in: give `sha256` where they have to be the ones you know.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from tiny_tensor.io.archives import most_unpacked, tar_extract
from tiny_tensor.io.download import fetch, gunzipped
from tiny_tensor.io.files import TensorIO, byteswapped, check_shape, from_bytes, map_file, tensor_at, valid, whole_bytes
from tiny_tensor.io.numpy_pickles import NUMPY_NAMES
from tiny_tensor.io.pickles import PickleReader
from tiny_tensor.nn.loader import DataLoader
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes

__all__ = ["DataLoader", "cifar", "idx_load", "mnist"]

MNIST_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"
FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-{}-binary.tar.gz"

_IDX_TYPES = {
  0x08: dtypes.uint8, 0x09: dtypes.int8, 0x0B: dtypes.int16, 0x0C: dtypes.int32, 0x0D: dtypes.float32,
  0x0E: dtypes.float64,
}  # fmt: skip
_MOST = 1 << 35  # bytes of an IDX file

Four = tuple[Tensor, Tensor, Tensor, Tensor]


# *** IDX ***


def idx_load(fn: str | Path) -> Tensor:
  """The array in an IDX file (yann.lecun.com/exdb/mnist), packed with gzip or not: of bytes in an unpacked file a view
  of the mapped file. Raises ValueError, with the file and the offset, where it is no whole and valid one."""
  path = Path(fn)
  with path.open("rb") as file:
    packed = file.read(2) == b"\x1f\x8b"
  with valid("IDX", path):
    return _packed_idx(path) if packed else _idx(map_file(path), path.stat().st_size)


def _idx_header(head: bytes) -> tuple[DType, tuple[int, ...], int] | None:
  """(dtype, shape, size of the whole file) from its first bytes; None if these are not all of the header."""
  if len(head) < 4:
    return None
  if head[:2] != b"\0\0" or head[2] not in _IDX_TYPES:
    raise ValueError(f"it begins with {head[:4].hex(' ')}, expected 00 00, a type (08, 09, 0b to 0e) and the axes")
  start = 4 + 4 * head[3]
  if len(head) < start:
    return None
  shape = tuple(int.from_bytes(head[at : at + 4], "big") for at in range(4, start, 4))
  size = start + check_shape("its array", shape) * _IDX_TYPES[head[2]].itemsize
  if size > _MOST:
    raise ValueError(f"its header claims shape {shape}, {size} bytes: more than {_MOST}")
  return _IDX_TYPES[head[2]], shape, size


def _packed_idx(path: Path) -> Tensor:
  content, header = bytearray(), None
  with path.open("rb") as file:
    for piece in gunzipped(file, min(_MOST, most_unpacked(path.stat().st_size)), "its content"):
      content += piece
      header = header or _idx_header(bytes(content[:1028]))
      if header is not None and len(content) > header[2]:
        raise ValueError(f"its header says that it ends at byte {header[2]}, more follows")
  return _idx(Tensor(bytes(content), device="HOST") if content else Tensor.empty(0, dtype=dtypes.uint8), len(content))


def _idx(whole: Tensor, size: int) -> Tensor:
  """The array in `whole`, the `size` bytes of an IDX file."""
  header = _idx_header(bytes(whole_bytes(whole)[:1028]))
  if header is None:
    raise ValueError(f"it ends at byte {size}, in its header")
  dtype, shape, expected = header
  if size != expected:
    raise ValueError(f"shape {shape} of {dtype.name} ends at byte {expected}, the file has {size}")
  start = expected - math.prod(shape) * dtype.itemsize
  if dtype.itemsize == 1:
    return tensor_at(whole, start, dtype, shape)
  # the files are big-endian
  return from_bytes(byteswapped(bytes(whole_bytes(whole)[start:]), dtype.itemsize), dtype, shape)


def mnist(
  device: str | None = None,
  fashion: bool = False,
  *,
  source: str | Path | None = None,
  sha256: Mapping[str, str] | None = None,
  progress: bool | None = None,
) -> Four:
  """MNIST or, with `fashion`, Fashion-MNIST, on `device`: (images, labels, test images, test labels), uint8, images of
  shape (n, 1, rows, columns); published are 60000 and 10000 of 28 × 28.

  `source` is a folder with the four files, packed or not, or the URL of one; `sha256` has the digests of files by name
  (`{"train-images-idx3-ubyte.gz": "…"}`). Raises ValueError for damaged files, and what `fetch` raises.
  """
  place = source or (FASHION_URL if fashion else MNIST_URL)
  digests = sha256 or {}
  parts: list[Tensor] = []
  for group in ("train", "t10k"):
    names = (f"{group}-images-idx3-ubyte", f"{group}-labels-idx1-ubyte")
    images, labels = (idx_load(_idx_file(place, name, digests, progress)) for name in names)
    if images.ndim != 3 or images.dtype is not dtypes.uint8:
      raise ValueError(f"{names[0]!r} has {images.dtype.name} of shape {images.shape}, expected images of bytes")
    if labels.shape != images.shape[:1] or labels.dtype is not dtypes.uint8:
      raise ValueError(f"{names[1]!r} has {labels.dtype.name} of shape {labels.shape} for {images.shape[0]} images")
    _check_labels(bytes(whole_bytes(labels)) if labels.numel() else b"", 10, names[1])
    parts += [images.reshape(images.shape[0], 1, *images.shape[1:]).to(device), labels.to(device)]
  return parts[0], parts[1], parts[2], parts[3]


def _idx_file(place: str | Path, name: str, digests: Mapping[str, str], progress: bool | None) -> Path:
  """One of the files of a folder, or of a URL."""
  packed = f"{name}.gz"
  if "://" in str(place):
    url = f"{str(place).rstrip('/')}/{packed}"
    return fetch(url, sha256=digests.get(packed), progress=progress)
  for found in (Path(place) / packed, Path(place) / name):
    if found.is_file():
      return fetch(str(found), sha256=digests.get(found.name))
  raise FileNotFoundError(f"the folder {str(place)!r} has neither {packed!r} nor {name!r}")


def _check_labels(labels: bytes, classes: int, name: str, place: str = "at place") -> None:
  if max(labels, default=0) >= classes:
    at = next(i for i, label in enumerate(labels) if label >= classes)
    raise ValueError(f"{name!r} has the label {labels[at]} {place} {at}, expected 0 to {classes - 1}")


# *** CIFAR ***

_PIXELS = 3 * 32 * 32


def cifar(
  device: str | None = None,
  classes: int = 10,
  *,
  coarse: bool = False,
  source: str | Path | None = None,
  sha256: str | None = None,
  progress: bool | None = None,
) -> Four:
  """CIFAR-10 or CIFAR-100 on `device`: (images, labels, test images, test labels), uint8, images of shape
  (n, 3, 32, 32); published are 50000 and 10000. `coarse` gives the 20 superclasses of CIFAR-100.

  `source` is the published archive (tar, packed or not; "binary" or "python" version), its path or URL, or a folder
  with its files; `sha256` the digest of the archive. Raises ValueError for damaged files, and what `fetch` raises.
  """
  if classes not in (10, 100):
    raise ValueError(f"there are CIFAR-10 and CIFAR-100, not CIFAR-{classes}")
  if coarse and classes == 10:
    raise ValueError("CIFAR-10 has no coarse labels: they are CIFAR-100's")
  place = source or CIFAR_URL.format(classes)
  if Path(place).is_dir():
    files = {path.name: map_file(path) for path in Path(place).iterdir() if path.is_file()}
  else:
    archive = tar_extract(map_file(fetch(str(place), sha256=sha256, progress=progress)))
    files = {name.rpartition("/")[2]: content for name, content in archive.items()}
  train = [f"data_batch_{i}" for i in range(1, 6)] if classes == 10 else ["train"]
  parts: list[Tensor] = []
  for names in (train, ["test_batch" if classes == 10 else "test"]):
    found = [_cifar_file(files, name, classes, coarse) for name in names]
    images, labels = (Tensor(b"".join(piece), device="HOST") for piece in zip(*found, strict=True))
    parts += [images.reshape(-1, 3, 32, 32).to(device), labels.to(device)]
  return parts[0], parts[1], parts[2], parts[3]


def _cifar_file(files: Mapping[str, Tensor], name: str, classes: int, coarse: bool) -> tuple[bytes, bytes]:
  """(pixels, labels) of one file, which there may be as records or as a pickle."""
  # (label bytes of a record, the one that counts), and the key of a pickle
  kinds, key = ((1, 0), "labels") if classes == 10 else ((2, 0), "coarse_labels") if coarse else ((2, 1), "fine_labels")
  records = f"{name}.bin"
  if records not in files and name not in files:
    raise FileNotFoundError(f"CIFAR-{classes} has neither {records!r} nor {name!r} in {', '.join(sorted(files))}")
  if records in files:
    name = records
    pixels, labels = _records(whole_bytes(files[name]), name, *kinds)
  else:
    pixels, labels = _pickled(files[name], name, key)
  if not labels:
    raise ValueError(f"{name!r} has no images")
  _check_labels(labels, 20 if coarse else classes, name, "for image")
  return pixels, labels


def _records(content: memoryview, name: str, labels: int, which: int) -> tuple[bytes, bytes]:
  """(pixels, labels) of records: `labels` bytes, of which `which` counts, and the pixels."""
  size = labels + _PIXELS
  if len(content) % size:
    whole = len(content) // size * size
    raise ValueError(
      f"{name!r} has {len(content)} bytes, no whole number of records of {size}: it breaks off at byte {whole}"
    )
  pixels = b"".join(content[at + labels : at + size] for at in range(0, len(content), size))
  return pixels, bytes(content[which::size])


def _pickled(content: Tensor, name: str, key: str) -> tuple[bytes, bytes]:
  """(pixels, labels) of a pickled dict with `data` and lists of labels."""
  try:
    found = PickleReader(TensorIO(content), NUMPY_NAMES).load()
  except ValueError as error:
    raise ValueError(f"{name!r} is not a file of CIFAR's Python version: {error}") from None
  named = (
    {str(k, "latin1") if isinstance(k, bytes) else k: v for k, v in found.items()} if isinstance(found, dict) else {}
  )
  data, labels = named.get("data"), named.get(key)
  if not isinstance(data, Tensor) or data.dtype is not dtypes.uint8 or data.shape[1:] != (_PIXELS,):
    raise ValueError(f"{name!r} has no array 'data' of bytes of shape (n, {_PIXELS})")
  if (
    not isinstance(labels, list)
    or len(labels) != data.shape[0]
    or not all(type(v) is int and 0 <= v < 256 for v in labels)
  ):
    raise ValueError(f"{name!r} has no list {key!r} of {data.shape[0]} labels")
  return bytes(whole_bytes(data.flatten())), bytes(labels)
