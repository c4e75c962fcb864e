"""The files in a tar archive (POSIX.1-2024, pax; GNU tar's manual, "Basic Tar Format"), and its unpacking.

Python's `tarfile` looks at all fields of a global header for each file, and calls itself for each long name.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

from tiny_tensor.io.download import gunzipped

_BLOCK = 512
_FILES = (b"0", b"\0", b"7")
_WITHOUT_CONTENT = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, folders, pipes: whatever their size says
_SPARSE = b"GNU.sparse."  # fields of files without their zeros
_PIECE = 1 << 16  # bytes unpacked at a time
_MEMORY = 1 << 28  # bytes that LZMA may take: its strongest setting needs 65 MiB
_STREAMS: dict[bytes, Callable[[], Any]] = {
  b"BZh": bz2.BZ2Decompressor,
  b"\xfd7zXZ": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY),
}


def unpacked(data: memoryview, limit: int) -> bytes | None:
  """The contents of an archive that is packed as a whole, by gzip, bzip2 or xz; None where it is not. ValueError for a
  damaged one, and for one that unpacks to more than `limit` bytes."""
  head = bytes(data[:6])
  if head.startswith(b"\x1f\x8b"):
    pieces = gunzipped(BytesIO(data), limit, "it")
  else:
    make = next((make for magic, make in _STREAMS.items() if head.startswith(magic)), None)
    if make is None:
      return None
    pieces = _streams(data, make)
  content = bytearray()
  try:
    for piece in pieces:
      content += piece
      if len(content) > limit:
        raise ValueError(f"its {len(data)} bytes unpack to more than {limit} bytes")
  except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
    raise ValueError(f"it cannot be unpacked: {error}") from None
  return bytes(content)


def _streams(data: memoryview, make: Callable[[], Any]) -> Iterator[bytes]:
  """The contents of several streams, one after another."""
  engine = None
  for at in range(0, len(data), _PIECE):
    piece = bytes(data[at : at + _PIECE])
    while piece or (engine is not None and not engine.needs_input):
      engine = engine or make()
      yield engine.decompress(piece, _PIECE)
      piece = b""
      if engine.eof:
        piece, engine = engine.unused_data.lstrip(b"\0"), None
  if engine is not None:
    raise EOFError("it ends in the middle")


def members(data: memoryview) -> Iterator[tuple[str, int, int]]:
  """(name, where it begins, size) of each file. Links, folders and devices are left out.

  ValueError, with the offset, for a damaged archive, and for sparse files, whose zeros are not in it.
  """
  at, name, fields = 0, b"", dict[bytes, bytes]()
  everywhere: dict[bytes, bytes] = {}  # of the fields that count
  while at < len(data):
    header = bytes(data[at : at + _BLOCK])
    if not header.strip(b"\0"):
      if len(header) < _BLOCK:
        raise ValueError(f"it ends at byte {len(data)}, in the block at byte {at}")
      return
    _check(header, at)
    kind, size = header[156:157], _number(header[124:136], at)
    if kind not in (b"x", b"g", b"L", b"K"):
      size = _decimal((everywhere | fields).get(b"size"), size, at)
    begin = at + _BLOCK
    end = begin if kind in _WITHOUT_CONTENT else begin + size
    if end > len(data):
      raise ValueError(f"the file at byte {at} takes {size} bytes from byte {begin} on, the archive has {len(data)}")
    at, place = begin + -(-(end - begin) // _BLOCK) * _BLOCK, at
    if kind == b"x":
      fields = _fields(data[begin:end], begin)
    elif kind == b"g":
      everywhere |= _fields(data[begin:end], begin)
    elif kind == b"L":
      name = bytes(data[begin:end])
    elif kind != b"K":  # the long target of a link
      named = (everywhere | fields).get(b"path") or (name or _name(header)).partition(b"\0")[0]
      if kind == b"S" or _SPARSE in fields:
        raise ValueError(f"the file at byte {place} is sparse: its zeros are not in the archive")
      if kind in _FILES and not (kind == b"\0" and named.endswith(b"/")):  # so folders were marked once
        yield named.decode("utf-8", "surrogateescape"), begin, size
      name, fields = b"", {}
  if at != len(data) or not at:
    raise ValueError(f"it ends at byte {len(data)}, in a block")


def _check(header: bytes, at: int) -> None:
  if len(header) < _BLOCK:
    raise ValueError(f"it ends in the header at byte {at}")
  stated = _number(header[148:156], at)
  rest = header[:148] + header[156:]
  found = sum(rest) + 8 * ord(" ")
  if stated not in (found, found - 256 * sum(byte > 127 for byte in rest)):  # some took bytes for signed numbers
    raise ValueError(f"the header at byte {at} has the checksum {stated}, expected {found}")


def _name(header: bytes) -> bytes:
  name = header[:100].partition(b"\0")[0]
  prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
  return prefix + b"/" + name if prefix else name


def _number(field: bytes, at: int) -> int:
  """A number of a header: octal digits, or big-endian after a first byte of 128."""
  if field[0] == 0x80:
    return int.from_bytes(field[1:], "big")
  text = field.partition(b"\0")[0].strip()
  if text.strip(b"01234567"):
    raise ValueError(f"the header at byte {at} has the number {field!r}, expected octal digits")
  return int(text or b"0", 8)


def _decimal(text: bytes | None, otherwise: int, at: int) -> int:
  if text is None:
    return otherwise
  if not text.isdigit() or len(text) > 19:
    raise ValueError(f"the file at byte {at} has the size {text[:40]!r}, expected a number")
  return int(text)


def _fields(data: memoryview, begin: int) -> dict[bytes, bytes]:
  """The fields of a pax header that count for finding files. Each consists of its length, its name and its value."""
  found: dict[bytes, bytes] = {}
  text, at = bytes(data), 0
  while at < len(text) and text[at]:
    space = text.find(b" ", at, at + 20)
    length = text[at:space] if space >= 0 else b""
    end = at + int(length) if length.isdigit() else at
    if not at < end <= len(text) or text[end - 1 : end] != b"\n":
      raise ValueError(f"the field at byte {begin + at} has the length {text[at : at + 20]!r}, where no line ends")
    key, equals, value = text[space + 1 : end - 1].partition(b"=")
    if not equals:
      raise ValueError(f"the field at byte {begin + at} has no '='")
    if key in (b"path", b"size"):
      found[key] = value
    elif key.startswith(_SPARSE):
      found[_SPARSE] = value
    at = end
  return found
