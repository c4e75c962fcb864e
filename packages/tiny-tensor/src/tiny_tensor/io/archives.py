"""The files in zip and tar archives as tensors of bytes: where they are not compressed, as views."""

import bz2
import itertools
import lzma
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tiny_tensor.io.files import as_bytes, tensor_at, whole_bytes
from tiny_tensor.io.tar_members import members, unpacked
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes

# APPNOTE.TXT of PKWARE: 4.3.7 the header in front of a file, 4.3.12 its entry in the directory, 4.3.16 the end of that
_LOCAL = struct.Struct("<4s5H3I2H")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_LOCATOR, _END64 = struct.Struct("<4sIQI"), struct.Struct("<4sQ2H2I4Q")  # 4.3.15, 4.3.14: large numbers
_STORED, _DEFLATED, _BZIP2, _LZMA = 0, 8, 12, 14
_LARGE = 0xFFFFFFFF  # the number is in an extra field


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
  for entry in _directory(data):
    name, at = entry.name, entry.at
    if name in found:
      raise ValueError(f"the zip archive has {name!r} twice, the second at byte {at}")
    begin = _content(data, entry)
    packed = data[begin : begin + entry.packed]
    spans.append((at, begin + entry.packed, name))
    if entry.method == _STORED:
      if entry.size != entry.packed:
        raise ValueError(f"{entry} is stored, yet of {entry.size} bytes in {entry.packed}")
      found[name] = ArchiveFile(at, packed, t, begin)
    else:
      left -= entry.size
      if left < 0:
        raise ValueError(
          f"{entry} unpacks to {entry.size} bytes: the {len(data)} bytes of the archive become more than {most}"
        )
      found[name] = ArchiveFile(at, memoryview(_unpacked(packed, entry)))
  spans.sort()
  for (_, end, name), (begin, _, other) in itertools.pairwise(spans):
    if begin < end:
      raise ValueError(
        f"{name!r} ends at byte {end} of the zip archive, {other!r} begins at byte {begin}: they overlap"
      )
  return found


class _Entry(NamedTuple):
  """An entry of the directory: name, offset of the header, method of packing, sizes in bytes, checksum."""

  name: str
  at: int
  method: int
  packed: int
  size: int
  checksum: int

  def __str__(self) -> str:
    return f"{self.name!r} at byte {self.at} of the zip archive"


def _directory(data: memoryview) -> Iterator[_Entry]:
  """The entries of the directory."""
  begin, end, count, shift = _directory_place(data)
  at = begin
  for _ in range(count):
    if at + _ENTRY.size > end:
      raise ValueError(f"not a valid zip archive: its directory ends at byte {end}, in the entry at byte {at}")
    magic, _, _, flags, method, _, _, checksum, packed, size, name, extra, comment, _, _, _, offset = (
      _ENTRY.unpack_from(data, at)
    )
    if magic != b"PK\x01\x02":
      raise ValueError(f"not a valid zip archive: expected an entry of its directory at byte {at}, found {magic!r}")
    text = at + _ENTRY.size
    if text + name + extra + comment > end:
      raise ValueError(f"not a valid zip archive: the entry at byte {at} ends after its directory, at byte {end}")
    raw = bytes(data[text : text + name])
    try:
      named = raw.decode("utf-8" if flags & 0x800 else "cp437")
    except UnicodeDecodeError as error:
      raise ValueError(f"not a valid zip archive: the name at byte {text} is no UTF-8: {error}") from None
    if _LARGE in (packed, size, offset):
      packed, size, offset = _large(data, text + name, text + name + extra, [size, packed, offset], at)
    if flags & 1:
      raise ValueError(f"{named!r} at byte {offset + shift} of the zip archive is encrypted")
    yield _Entry(named, offset + shift, method, packed, size, checksum)
    at = text + name + extra + comment
  if at != end:
    raise ValueError(f"not a valid zip archive: its directory has {count} entries to byte {at}, expected {end}")


def _directory_place(data: memoryview) -> tuple[int, int, int, int]:
  """(begin, end, entries) of the directory, and what all offsets lack: something may precede an archive."""
  size = len(data)
  tail = bytes(data[max(size - _END.size - 0xFFFF, 0) :])
  at = len(tail)
  while (at := tail.rfind(b"PK\x05\x06", 0, at)) >= 0:  # a comment, which may have the same letters, comes last
    if at + _END.size <= len(tail):
      _, disk, first, here, count, length, offset, comment = _END.unpack_from(tail, at)
      if at + _END.size + comment == len(tail):
        break
  else:
    raise ValueError(f"not a valid zip archive of {size} bytes: it has no end of a directory")
  end = size - len(tail) + at
  before = end - _LOCATOR.size
  if before >= 0 and bytes(data[before : before + 4]) == b"PK\x06\x07":
    # the larger record lies before its locator; where it claims to be does not count what precedes the archive
    end = before - _END64.size
    if end < 0 or bytes(data[end : end + 4]) != b"PK\x06\x06":
      raise ValueError(f"not a valid zip archive: expected the end of a directory at byte {end}")
    _, _, _, _, disk, first, here, count, length, offset = _END64.unpack_from(data, end)
  if disk or first or here != count:
    raise ValueError("not a valid zip archive: it is a part of one in several files")
  begin = end - length
  if begin < offset or begin < 0:
    raise ValueError(f"not a valid zip archive: a directory of {length} bytes at byte {offset} ends at byte {end}")
  if count * _ENTRY.size > length:
    raise ValueError(f"not a valid zip archive: a directory of {length} bytes has no {count} entries")
  return begin, end, count, begin - offset


def _large(data: memoryview, at: int, end: int, numbers: list[int], entry: int) -> tuple[int, int, int]:
  """(packed, size, offset), those that do not fit in 32 bits from the extra fields (4.5.3)."""
  while at + 4 <= end:
    kind, length = struct.unpack_from("<2H", data, at)
    at += 4
    if kind == 1 and at + length <= end:
      wanted = [i for i, number in enumerate(numbers) if number == _LARGE]
      if length < 8 * len(wanted):
        break
      for place, i in enumerate(wanted):
        (numbers[i],) = struct.unpack_from("<Q", data, at + 8 * place)
      return numbers[1], numbers[0], numbers[2]
    at += length
  raise ValueError(f"not a valid zip archive: the entry at byte {entry} lacks its large numbers")


def _content(data: memoryview, entry: _Entry) -> int:
  """The offset of a file's content, after its header."""
  at = entry.at
  if at + _LOCAL.size > len(data):
    raise ValueError(f"{entry}: it lies outside of its {len(data)} bytes")
  fields = _LOCAL.unpack_from(data, at)
  if fields[0] != b"PK\x03\x04":
    raise ValueError(f"{entry}: expected the header of a file, found {fields[0]!r}")
  if fields[2] & 1:
    raise ValueError(f"{entry} is encrypted")
  begin = at + _LOCAL.size + int(fields[-2]) + int(fields[-1])
  if begin + entry.packed > len(data):
    raise ValueError(f"{entry} ends at byte {begin + entry.packed}, the archive has {len(data)} bytes: it is truncated")
  return begin


def _unpacked(packed: memoryview, entry: _Entry) -> bytes:
  try:
    engine, rest = _engine(packed, entry)
    content: bytes = engine.decompress(rest, entry.size + 1)
  except (zlib.error, lzma.LZMAError, OSError, EOFError, struct.error) as error:
    raise ValueError(f"{entry} cannot be unpacked: {type(error).__name__}: {error}") from None
  if len(content) != entry.size:
    raise ValueError(f"{entry} unpacks to {len(content)} bytes or more, expected {entry.size}")
  if not engine.eof and entry.method != _LZMA:  # whose streams need not have an end
    raise ValueError(f"{entry} cannot be unpacked: it does not end after {entry.size} bytes")
  if zlib.crc32(content) != entry.checksum:
    raise ValueError(f"{entry} cannot be unpacked: its checksum is another than stated")
  return content


def _engine(packed: memoryview, entry: _Entry) -> tuple[Any, memoryview]:
  """The decompressor for a file, and the bytes that it gets."""
  if entry.method == _DEFLATED:
    return zlib.decompressobj(-zlib.MAX_WBITS), packed
  if entry.method == _BZIP2:
    return bz2.BZ2Decompressor(), packed
  if entry.method != _LZMA:
    raise ValueError(f"{entry} is packed by method {entry.method}: known are deflate (8), bzip2 (12) and LZMA (14)")
  _, length, first, window = struct.unpack_from("<2HBI", packed)  # 5.8.8; nothing is looked for beyond the output
  high, lc = divmod(first, 9)
  pb, lp = divmod(high, 5)
  options = {"id": lzma.FILTER_LZMA1, "lc": lc, "lp": lp, "pb": pb, "dict_size": max(min(window, entry.size), 4096)}
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
