"""Parts of the readers and writers of model files: mapped files, tensors in them, tensors as files, whole writes."""

import io
import math
import os
import re
import sys
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import Repr
from typing import IO, TYPE_CHECKING

from tiny_runtime import Device, buffer_of
from tiny_runtime.whole_files import written_whole
from tiny_tensor.base import is_whole, only_stored
from tiny_tensor.capturing import check_readable
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, Ops, UOp, dtypes

if TYPE_CHECKING:
  from _typeshed import ReadableBuffer, WriteableBuffer


MOST_AXES = 64
_MOST_INDEX = (1 << 63) - 1
_MOST_ROWS = 1 << 24
_NEWLINE = re.compile(b"\n")  # which is searched for in memory without a copy of it


class BytesReader(io.RawIOBase):
  """Bytes as a binary file to read, without a copy."""

  def __init__(self, data: memoryview) -> None:
    self._data, self._at = data, 0

  def readable(self) -> bool:
    """True."""
    return True

  def seekable(self) -> bool:
    """True."""
    return True

  def read(self, size: int | None = -1) -> bytes:
    """The next `size` bytes, fewer at the end; all that are left where `size` is negative or None."""
    left = max(len(self._data) - self._at, 0)
    count = left if size is None or size < 0 else min(size, left)
    self._at += count
    return bytes(self._data[self._at - count : self._at])

  def readinto(self, buffer: "WriteableBuffer") -> int:
    """Fills `buffer` from here on; gives back how many bytes that were."""
    out = memoryview(buffer).cast("B")
    data = self.read(len(out))
    out[: len(data)] = data
    return len(data)

  def readline(self, size: int | None = -1) -> bytes:
    """Up to and with the next newline."""
    start = self._at
    limit = len(self._data) if size is None or size < 0 else min(len(self._data), start + size)
    if (found := _NEWLINE.search(self._data, start, limit)) is not None:
      limit = found.end()
    return self.read(max(limit - start, 0))

  def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
    """Moves to a position and gives it back. Raises io.UnsupportedOperation, which is a ValueError and an OSError, for
    one before the beginning."""
    at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._data)}[whence]
    if at < 0:
      raise io.UnsupportedOperation(f"cannot seek to byte {at}, before the beginning")
    self._at = at
    return at

  def tell(self) -> int:
    """The position."""
    return self._at

  def write(self, data: "ReadableBuffer") -> int:
    """Raises io.UnsupportedOperation: it is for reading."""
    raise io.UnsupportedOperation(f"a {type(self).__name__} is for reading")


class TensorIO(BytesReader):
  """A tensor of bytes as a binary file to read, as in `zipfile.ZipFile(TensorIO(t))`."""

  def __init__(self, t: Tensor) -> None:
    if t.ndim != 1 or t.dtype is not dtypes.uint8:
      raise ValueError(f"TensorIO needs a 1-d tensor of uint8, got {t.dtype.name} of shape {t.shape}")
    super().__init__(whole_bytes(t))
    self._tensor = t  # keeps what is read


def whole_bytes(t: Tensor) -> memoryview:
  """All bytes of a tensor of uint8: of a mapped file, the mapping itself; as long as the tensor is kept."""
  if is_whole(t.uop) and 0 not in t.shape:
    return buffer_of(t.uop.base).look()
  return t._read_copy()[0]


def stored_bytes(t: Tensor) -> tuple[memoryview, object]:
  """The bytes of the elements in order, and what has to be kept for as long as they are looked at.

  Of a part of a mapped file it is the mapping, of which nothing is read yet; others are computed.
  """
  if 0 in t.shape:
    return memoryview(b""), None
  uop, begin = t.uop, 0
  while uop.op in (Ops.RESHAPE, Ops.BITCAST) or (uop.op is Ops.SHRINK and len(uop.shape) == 1):
    if uop.op is Ops.SHRINK:
      begin += int(uop.arg[0]) * uop.dtype.itemsize
    uop = uop.src[0]
  if uop.op is Ops.BUFFER and only_stored(uop):
    return buffer_of(uop).look()[begin : begin + t.nbytes()], uop
  buffer, size, _ = t._computed()
  return (memoryview(b"") if buffer is None else buffer.look()[:size]), buffer


def map_file(fn: str | Path) -> Tensor:
  """The bytes of a file, mapped: nothing is read until it is used. Raises FileNotFoundError."""
  if sys.byteorder != "little":
    raise RuntimeError("model files are little-endian and this machine is not")
  path = Path(fn).absolute()
  size = path.stat().st_size
  return Tensor(UOp.new_buffer(f"DISK:{path}", size, dtypes.uint8)) if size else Tensor.empty(0, dtype=dtypes.uint8)


def as_bytes(file: Tensor | str | Path) -> Tensor:
  """The bytes of a file that is given by its path, mapped, or as a tensor, which is given back. Raises ValueError for a
  tensor that is no vector of uint8."""
  if not isinstance(file, Tensor):
    return map_file(file)
  if file.ndim != 1 or file.dtype is not dtypes.uint8:
    raise ValueError(f"a file as a tensor is a vector of uint8, got {file.dtype.name} of shape {file.shape}")
  return file


def called(file: Tensor | str | Path) -> str:
  """The name in errors of a file that is given by its path or as a tensor."""
  return "the tensor" if isinstance(file, Tensor) else repr(str(Path(file).absolute()))


def in_memory(t: Tensor) -> Tensor:
  """Itself, or its (lazy) copy on the default device if it is on a device that only stores."""
  return t.to(Device.DEFAULT) if only_stored(t.uop) else t


@contextmanager
def valid(kind: str, file: Tensor | str | Path) -> Iterator[None]:
  """For the block that reads a file: its ValueErrors say which file is not a valid one of a kind."""
  try:
    yield
  except ValueError as error:
    raise ValueError(f"{called(file)} is not a valid {kind} file: {error}") from None


def are_sizes(values: object, kind: type = tuple) -> bool:
  """Whether what a file holds is a tuple (or another `kind`) of numbers that are 0 or more."""
  return isinstance(values, kind) and all(type(v) is int and v >= 0 for v in values)  # type: ignore[attr-defined]


def byteswapped(raw: bytes, size: int) -> bytes:
  """Elements of `size` bytes with the bytes of each in the other order."""
  words = array({1: "B", 2: "H", 4: "I", 8: "Q"}[size], raw)
  words.byteswap()
  return words.tobytes()


class _Short(Repr):
  """Of what a file holds a few letters: it can be nested without end, and be in itself many times."""

  def repr_instance(self, x: object, level: int) -> str:
    """Of what is no number the name of its class, where `reprlib` asks the object."""
    if isinstance(x, (bytes, bytearray)):
      return repr(bytes(x[: self.maxstring]))
    return repr(x) if x is None or isinstance(x, (bool, float)) else f"a {type(x).__name__}"

  repr_OrderedDict = Repr.repr_dict  # it is found by the name of the class


short = _Short().repr


def first_repeated(names: Iterable[str]) -> str:
  """The first of the names that was there before."""
  seen: set[str] = set()
  for name in names:
    if name in seen:
      return name
    seen.add(name)
  raise ValueError("no name is repeated")


def check_shape(what: str, shape: tuple[int, ...]) -> int:
  """The count of elements of a shape that a file claims, of numbers that are 0 or more; `what` begins the error.

  ValueError for more than 64 axes, as in NumPy; and for a shape without elements, which needs no bytes of the file, and
  yet has a size that no index reaches, or of which `tolist` would be long: more than 2²⁴ rows.
  """
  if len(shape) > MOST_AXES:
    raise ValueError(f"{what} has {len(shape)} axes, expected {MOST_AXES} at most")
  if 0 not in shape:
    return math.prod(shape)
  rows = math.prod(shape[: shape.index(0)])
  if rows > _MOST_ROWS or max(shape) > _MOST_INDEX:
    raise ValueError(
      f"{what} has the shape {short(shape)}, which holds nothing in {short(rows)} rows: expected {_MOST_ROWS} at most, "
      f"and sizes of {_MOST_INDEX} at most"
    )
  return 0


def tensor_at(whole: Tensor, offset: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
  """A tensor that lies in the bytes `whole` from `offset` on, all of which are there. A view if its place is aligned,
  else a lazy copy."""
  count = math.prod(shape)
  if not count:
    return Tensor.empty(*shape, dtype=dtype, device=whole.device)
  size = count * dtype.itemsize
  if dtype is dtypes.bool:  # any other byte but 0 is true; the bits of a bool are 0 or 1
    return in_memory(part_of(whole, offset, size, shape)).ne(0)
  if offset % dtype.itemsize:  # copy the bytes, then see them as numbers
    whole, offset = in_memory(part_of(whole, offset, size, (size,))), 0
  return part_of(whole, offset, size, shape, dtype)


def from_bytes(raw: bytes, dtype: DType, shape: tuple[int, ...], device: str | None = None) -> Tensor:
  """A tensor of the bytes of its elements in order, which may be none."""
  if not raw:
    return Tensor.empty(*shape, dtype=dtype, device=device)
  return Tensor(raw, dtype=dtype, device=device).reshape(shape)


def part_of(flat: Tensor, begin: int, count: int, shape: tuple[int, ...], dtype: DType | None = None) -> Tensor:
  """`flat[begin : begin + count].bitcast(dtype).reshape(shape)`, where that is right, without asking what an index can
  be: models have thousands of tensors."""
  uop = flat.uop
  if count != uop.shape[0]:
    uop = UOp(Ops.SHRINK, uop.dtype, (uop,), (begin, begin + count))
  if dtype is not None and dtype is not uop.dtype:
    uop = UOp(Ops.BITCAST, dtype, (uop,))
    count = count * flat.dtype.itemsize // dtype.itemsize
  if shape != (count,):
    uop = UOp(Ops.RESHAPE, uop.dtype, (uop,), shape)
  return flat._derive(uop)


def known_shape(t: Tensor) -> tuple[int, ...]:
  """The shape of a tensor in numbers. Raises ValueError for a symbolic one."""
  if not all(isinstance(s, int) for s in t.shape):
    raise ValueError(f"a tensor of symbolic shape {t.shape} cannot be saved: shrink it to a known shape first")
  return tuple(int(s) for s in t.shape)


def write_tensor(file: IO[bytes], t: Tensor) -> None:
  """Writes the elements of a tensor in order."""
  check_readable("writing a Tensor to a file")
  data, keeper = stored_bytes(t)
  file.write(data)
  del keeper


@contextmanager
def saved_to(fn: str | Path) -> Iterator[IO[bytes]]:
  """A file to write that appears as `fn` whole or not at all. Raises FileNotFoundError where the folder does not
  exist."""
  path = Path(fn)
  if not path.parent.exists():
    raise FileNotFoundError(f"cannot save to {str(path)!r}: the folder {str(path.parent)!r} does not exist")
  with written_whole(path) as file:
    yield file
