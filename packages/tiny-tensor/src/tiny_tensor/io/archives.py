"""The files in zip and tar archives as tensors of bytes: where they are not compressed, as views."""

import bz2
import itertools
import lzma
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from tiny_tensor.io.files import BytesReader, as_bytes, tensor_at, whole_bytes
from tiny_tensor.io.tar_members import members, unpacked
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes

# APPNOTE.TXT of PKWARE, 4.3.7, the header in front of a file: magic, flags, lengths of its name and extra fields
_LOCAL = struct.Struct("<4s2xH18x2H")
_END = struct.Struct("<20xH")  # 4.3.16, the end of the directory: the length of the comment that follows


def most_unpacked(packed: int) -> int:
  """The limit, in bytes, of what an archive of `packed` bytes unpacks to: a model's numbers do not shrink to 1 %."""
  return max(1 << 30, 100 * packed)


class ArchiveFile:
  """A file of an archive."""

  __slots__ = ("_begin", "_whole", "at", "data")

  def __init__(self, at: int, data: memoryview, whole: Tensor | None = None, begin: int = 0) -> None:
    self.at, self.data = at, data
    """Its offset in the archive, and its bytes."""
    self._whole, self._begin = whole, begin

  def tensor(self, offset: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """The tensor that lies in it from `offset` on. See `tensor_at`."""
    if self._whole is None:
      self._whole = Tensor(bytes(self.data))
    return tensor_at(self._whole, self._begin + offset, dtype, shape)


def zip_extract(t: Tensor | str | Path, *, limit: int | None = None) -> dict[str, Tensor]:
  """The files of a zip archive, given as a path or a tensor of uint8, by name. Stored files are views, others are
  unpacked now, up to `limit` bytes in all (None: a hundred times the archive, 1 GiB at least).

  Raises ValueError, with the offset, where the archive contradicts itself: files that overlap, lie outside of it, have
  a header that is none, or unpack to another size or checksum than stated.
  """
  files = zip_files(as_bytes(t), limit)
  return {name: file.tensor(0, dtypes.uint8, (len(file.data),)) for name, file in files.items()}


def zip_files(t: Tensor, limit: int | None = None) -> dict[str, ArchiveFile]:
  """`zip_extract`, before tensors are made of them."""
  data = whole_bytes(t)
  found: dict[str, ArchiveFile] = {}
  spans: list[tuple[int, int, str]] = []
  left = most = most_unpacked(len(data)) if limit is None else limit
  for entry in _entries(data):
    name, at = entry.filename, entry.header_offset
    if name in found:
      raise ValueError(f"the zip archive has {name!r} twice, the second at byte {at}")
    begin = _content(data, entry)
    packed = data[begin : begin + entry.compress_size]
    spans.append((at, begin + entry.compress_size, name))
    if entry.compress_type == zipfile.ZIP_STORED:
      if entry.file_size != entry.compress_size:
        raise ValueError(f"{_named(entry)} is stored, yet of {entry.file_size} bytes in {entry.compress_size}")
      found[name] = ArchiveFile(at, packed, t, begin)
    else:
      left -= entry.file_size
      if left < 0:
        size = f"the {len(data)} bytes of the archive become more than {most}"
        raise ValueError(f"{_named(entry)} unpacks to {entry.file_size} bytes: {size}")
      found[name] = ArchiveFile(at, memoryview(_unpacked(packed, entry)))
  spans.sort()
  for (_, end, name), (begin, _, other) in itertools.pairwise(spans):
    if begin < end:
      raise ValueError(
        f"{name!r} ends at byte {end} of the zip archive, {other!r} begins at byte {begin}: they overlap"
      )
  return found


def _entries(data: memoryview) -> list[zipfile.ZipInfo]:
  """The entries of the directory, which Python's `zipfile` reads."""
  end = tail = max(len(data) - _END.size - 0xFFFF, 0)
  last, at = bytes(data[tail:]), len(data) - tail
  while (at := last.rfind(b"PK\x05\x06", 0, at)) >= 0:  # it takes a comment that has the same letters for the end
    end = tail + at + _END.size
    if end <= len(data) and end + _END.unpack_from(last, at)[0] == len(data):
      break
  try:
    with zipfile.ZipFile(BytesReader(data[:end])) as archive:
      return archive.infolist()
  except (zipfile.BadZipFile, NotImplementedError, OSError, UnicodeDecodeError, struct.error) as error:
    raise ValueError(f"not a valid zip archive of {len(data)} bytes: {error}") from None


def _named(entry: zipfile.ZipInfo) -> str:
  return f"{entry.filename!r} at byte {entry.header_offset} of the zip archive"


def _content(data: memoryview, entry: zipfile.ZipInfo) -> int:
  """The offset of a file's content, after its header."""
  at = entry.header_offset
  if not 0 <= at <= len(data) - _LOCAL.size:
    raise ValueError(f"{_named(entry)}: it lies outside of its {len(data)} bytes")
  magic, flags, name, extra = _LOCAL.unpack_from(data, at)
  if magic != b"PK\x03\x04":
    raise ValueError(f"{_named(entry)}: expected the header of a file, found {magic!r}")
  if (flags | entry.flag_bits) & 1:
    raise ValueError(f"{_named(entry)} is encrypted")
  begin: int = at + _LOCAL.size + name + extra
  if begin + entry.compress_size > len(data):
    end = f"ends at byte {begin + entry.compress_size}, the archive has {len(data)} bytes: it is truncated"
    raise ValueError(f"{_named(entry)} {end}")
  return begin


def _unpacked(packed: memoryview, entry: zipfile.ZipInfo) -> bytes:
  size, what = entry.file_size, _named(entry)
  try:
    engine, rest = _engine(packed, entry)
    content: bytes = engine.decompress(rest, size + 1)
  except (zlib.error, lzma.LZMAError, OSError, EOFError, struct.error) as error:
    raise ValueError(f"{what} cannot be unpacked: {type(error).__name__}: {error}") from None
  if len(content) != size:
    raise ValueError(f"{what} unpacks to {len(content)} bytes or more, expected {size}")
  if not engine.eof and entry.compress_type != zipfile.ZIP_LZMA:  # whose streams need not have an end
    raise ValueError(f"{what} cannot be unpacked: it does not end after {size} bytes")
  if zlib.crc32(content) != entry.CRC:
    raise ValueError(f"{what} cannot be unpacked: its checksum is another than stated")
  return content


def _engine(packed: memoryview, entry: zipfile.ZipInfo) -> tuple[Any, memoryview]:
  """The decompressor for a file, and the bytes that it gets."""
  method = entry.compress_type
  if method == zipfile.ZIP_DEFLATED:
    return zlib.decompressobj(-zlib.MAX_WBITS), packed
  if method == zipfile.ZIP_BZIP2:
    return bz2.BZ2Decompressor(), packed
  if method != zipfile.ZIP_LZMA:
    raise ValueError(f"{_named(entry)} is packed by method {method}: known are deflate (8), bzip2 (12) and LZMA (14)")
  _, length, first, window = struct.unpack_from("<2HBI", packed)  # 5.8.8; nothing is looked for beyond the output
  high, lc = divmod(first, 9)
  pb, lp = divmod(high, 5)
  dict_size = max(min(window, entry.file_size), 4096)
  options = {"id": lzma.FILTER_LZMA1, "lc": lc, "lp": lp, "pb": pb, "dict_size": dict_size}
  return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[options]), packed[4 + length :]


def tar_extract(t: Tensor | str | Path, *, limit: int | None = None) -> dict[str, Tensor]:
  """The files of a tar archive, given as a path or a tensor of uint8, by name: as views, or unpacked if the whole is
  compressed, up to `limit` bytes in all (None: a hundred times the archive, 1 GiB at least).

  Links and devices are left out. Raises ValueError, with the offset, for a damaged archive.
  """
  t = as_bytes(t)
  data = whole_bytes(t)
  try:
    content = unpacked(data, most_unpacked(len(data)) if limit is None else limit)
    if content is not None:
      t, data = Tensor(content), memoryview(content)
    return {name: tensor_at(t, begin, dtypes.uint8, (size,)) for name, begin, size in members(data)}
  except ValueError as error:
    raise ValueError(f"not a valid tar archive of {len(data)} bytes: {error}") from None
