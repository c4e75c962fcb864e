"""The files in zip and tar archives as tensors of bytes: where they are not compressed, as views."""

import bz2
import contextlib
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from tiny_tensor.nn.files import TensorIO, as_bytes, whole_bytes
from tiny_tensor.tensor import Tensor

_PIECE = 1 << 20  # bytes unpacked at a time
_PACKED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}

_LOCAL = struct.Struct("<4s5H3I2H")  # the header in front of each file of a zip archive; APPNOTE.TXT, 4.3.7


def most_unpacked(packed: int) -> int:
  """So many bytes may be unpacked of an archive of `packed` bytes: a model's numbers do not shrink to a hundredth."""
  return max(1 << 30, 100 * packed)


def zip_extract(t: Tensor | str | Path, *, limit: int | None = None) -> dict[str, Tensor]:
  """The files of a zip archive, given as a path or a tensor of uint8, by name. Stored files are views, others are
  unpacked now, up to `limit` bytes in all (None: a hundred times the archive, 1 GiB at least).

  Raises ValueError, with the offset, where the archive contradicts itself: files that overlap, lie outside of it, have
  a header that is none, or unpack to another size or checksum than stated.
  """
  places = zip_places(as_bytes(t), limit)
  return {name: data[begin : begin + size] for name, (data, begin, size) in places.items()}


def zip_places(t: Tensor, limit: int | None = None) -> dict[str, tuple[Tensor, int, int]]:
  """`zip_extract`, as (the tensor a file lies in, where it begins in it, its size)."""
  try:
    archive = zipfile.ZipFile(TensorIO(t))
  except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError, OverflowError) as error:
    raise ValueError(f"not a valid zip archive of {t.numel()} bytes: {error}") from None
  data = whole_bytes(t)
  found: dict[str, tuple[Tensor, int, int]] = {}
  spans: list[tuple[int, int, str]] = []
  left = most = most_unpacked(len(data)) if limit is None else limit
  for info in archive.infolist():
    begin = _content(data, info)
    spans.append((info.header_offset, begin + info.compress_size, info.filename))
    if info.filename in found:
      raise ValueError(f"the zip archive has {info.filename!r} twice, the second at byte {info.header_offset}")
    if info.compress_type == zipfile.ZIP_STORED:
      if info.file_size != info.compress_size:
        raise ValueError(
          f"{info.filename!r} at byte {info.header_offset} of the zip archive is stored, "
          f"yet of {info.file_size} bytes in {info.compress_size}"
        )
      found[info.filename] = (t, begin, info.file_size)
    else:
      left -= info.file_size
      if left < 0:
        raise ValueError(
          f"{info.filename!r} at byte {info.header_offset} of the zip archive unpacks to {info.file_size} bytes: "
          f"the {len(data)} bytes of the archive become more than {most}"
        )
      found[info.filename] = (Tensor(_unpacked(archive, info)), 0, info.file_size)
  spans.sort()
  for (_, end, name), (begin, _, other) in zip(spans, spans[1:], strict=False):
    if begin < end:
      raise ValueError(
        f"{name!r} ends at byte {end} of the zip archive, {other!r} begins at byte {begin}: they overlap"
      )
  return found


def _content(data: memoryview, info: zipfile.ZipInfo) -> int:
  """Where the content of a file begins, after its header."""
  at = info.header_offset
  place = f"{info.filename!r} at byte {at} of the zip archive"
  if at < 0 or at + _LOCAL.size > len(data):
    raise ValueError(f"{place}: it lies outside of its {len(data)} bytes")
  fields = _LOCAL.unpack_from(data, at)
  if fields[0] != b"PK\x03\x04":
    raise ValueError(f"{place}: expected the header of a file, found {fields[0]!r}")
  if fields[2] & 1:
    raise ValueError(f"{place} is encrypted")
  begin = at + _LOCAL.size + int(fields[-2]) + int(fields[-1])
  if begin + info.compress_size > len(data):
    raise ValueError(
      f"{place} ends at byte {begin + info.compress_size}, the archive has {len(data)} bytes: it is truncated"
    )
  return begin


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
  place = f"{info.filename!r} at byte {info.header_offset} of the zip archive"
  try:
    with archive.open(info) as file:
      content = file.read(info.file_size)
  except Exception as error:  # zlib.error, lzma's, EOFError, BadZipFile, …: all say that it cannot be unpacked
    raise ValueError(f"{place} cannot be unpacked: {type(error).__name__}: {error}") from None
  if len(content) != info.file_size:
    raise ValueError(f"{place} unpacks to {len(content)} bytes, expected {info.file_size}")
  return content


class _Unpacking(io.RawIOBase):
  """A compressed file to read from the beginning, that ends with an error after `limit` bytes."""

  def __init__(self, file: IO[bytes], packed: int, limit: int) -> None:
    self._file, self._packed, self._limit = file, packed, limit
    self._count = 0

  def readable(self) -> bool:
    """True."""
    return True

  def read(self, size: int = -1) -> bytes:
    """The next bytes."""
    data = self._file.read(min(size, _PIECE) if size >= 0 else _PIECE)
    self._count += len(data)
    if self._count > self._limit:
      raise ValueError(f"the {self._packed} bytes of the archive unpack to more than {self._limit}")
    return data


def tar_extract(t: Tensor | str | Path, *, limit: int | None = None) -> dict[str, Tensor]:
  """The files of a tar archive, given as a path or a tensor of uint8, by name: as views, or unpacked if the whole is
  compressed, up to `limit` bytes in all (None: a hundred times the archive, 1 GiB at least).

  Links and devices are left out. Raises ValueError, with the offset, for a damaged archive.
  """
  t = as_bytes(t)
  found: dict[str, Tensor] = {}
  head, source = bytes(whole_bytes(t)[:6]), TensorIO(t)
  opener = next((o for magic, o in _PACKED.items() if head.startswith(magic)), None)
  try:
    with contextlib.ExitStack() as stack:
      if opener is None:
        archive = stack.enter_context(tarfile.open(fileobj=source, mode="r:"))
      else:
        most = most_unpacked(t.nbytes()) if limit is None else limit
        unpacking = _Unpacking(opener(source), t.nbytes(), most)
        archive = stack.enter_context(tarfile.open(fileobj=unpacking, mode="r|"))
      for member in archive:
        if not member.isreg():
          continue
        if opener is not None:
          content = archive.extractfile(member)
          found[member.name] = Tensor((content or io.BytesIO()).read())
        elif member.offset_data + member.size > t.numel():
          raise ValueError(
            f"{member.name!r} at byte {member.offset_data} takes {member.size} bytes, the archive has {t.numel()}"
          )
        else:
          found[member.name] = t[member.offset_data : member.offset_data + member.size]
  except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
    raise ValueError(f"not a valid tar archive of {t.numel()} bytes: {error}") from None
  return found
