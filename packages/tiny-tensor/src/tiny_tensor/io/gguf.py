"""Model files in the GGUF format (github.com/ggml-org/ggml, docs/gguf.md): metadata, then tensors of ggml's formats."""

import math
import struct
from pathlib import Path
from typing import Any

from tiny_tensor.io.files import as_bytes, check_shape, first_repeated, part_of, valid, whole_bytes
from tiny_tensor.io.ggml import GGMLBlocks, data_size, decoded, format_of
from tiny_tensor.tensor import Tensor

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_DEEPEST = 8  # arrays of arrays; the format has no limit, and no known file more than one
_MOST_AXES = 4
_LEAST_ENTRY, _LEAST_TENSOR = 13, 24  # bytes: a count in the header that cannot be true is refused before it is used


class _Reader:
  """Numbers and text from the header of a file. ValueError, with the offset, where they do not fit."""

  def __init__(self, data: memoryview) -> None:
    self.data, self.at = data, 0

  def take(self, size: int, what: str) -> memoryview:
    """The next bytes."""
    begin, left = self.at, len(self.data) - self.at
    if size > left:
      raise ValueError(f"{what} at byte {begin} takes {size} bytes, {left} are left: the file is truncated or lies")
    self.at += size
    return self.data[begin : begin + size]

  def numbers(self, code: str, count: int, what: str) -> list[Any]:
    """The next `count` numbers of a type of struct's."""
    raw = self.take(count * struct.calcsize(f"<{code}"), what)
    if code == "?" and max(raw, default=0) > 1:
      raise ValueError(f"{what} at byte {self.at - len(raw)}: a bool is 0 or 1")
    return list(struct.unpack(f"<{count}{code}", raw))

  def number(self, code: str, what: str) -> int:
    """The next number."""
    return int(self.numbers(code, 1, what)[0])

  def text(self, what: str) -> str:
    """A length and as many bytes."""
    at = self.at
    raw = self.take(self.number("Q", f"the length of {what}"), what)
    try:
      return str(raw, "utf-8")
    except UnicodeDecodeError as error:
      raise ValueError(f"{what} at byte {at} is no UTF-8: {error}") from None

  def texts(self, count: int, what: str) -> list[str]:
    """So many texts. Vocabularies have 100,000: each is sliced here, and asked for by `text` if that fails."""
    data, at, found, length = self.data, self.at, [], struct.Struct("<Q").unpack_from
    try:
      for _ in range(count):
        begin = at + 8
        end = begin + length(data, at)[0]
        if end > len(data):
          break
        found.append(str(data[begin:end], "utf-8"))
        at = end
    except (struct.error, UnicodeDecodeError):
      pass
    self.at = at
    return found + [self.text(what) for _ in range(count - len(found))]

  def value(self, kind: int, what: str, depth: int = 0) -> Any:
    """A value of a type of GGUF's."""
    at = self.at
    if kind in _NUMBERS:
      return self.numbers(_NUMBERS[kind], 1, what)[0]
    if kind == _STRING:
      return self.text(what)
    if kind != _ARRAY or depth >= _DEEPEST:
      raise ValueError(
        f"{what} at byte {at} is of the unknown type {kind}" if kind != _ARRAY else f"{what} is too deep"
      )
    inner, count = self.number("I", what), self.number("Q", what)
    if inner in _NUMBERS:
      return self.numbers(_NUMBERS[inner], count, what)
    if count * 8 > len(self.data) - self.at:  # a text or an array takes at least that
      raise ValueError(
        f"{what} at byte {at} has {count} elements, more than fit in the {len(self.data)} bytes of the file"
      )
    if inner == _STRING:
      return self.texts(count, what)
    return [self.value(inner, what, depth + 1) for _ in range(count)]


def gguf_load(file: str | Path | Tensor) -> tuple[dict[str, Any], dict[str, Tensor]]:
  """(metadata, tensors by name) of a GGUF file of version 2 or 3, given by its path or as a tensor of its bytes.

  Plain numbers are views of the mapped file, quantised ones graphs that make float32 of it: nothing is read until it is
  used. Shapes are PyTorch's, slowest axis first: ggml's turned around. Raises ValueError, with the name of the file
  and the offset, where it is truncated, contradicts itself or holds formats that are not read here.
  """
  whole = as_bytes(file)
  with valid("GGUF", file):
    metadata, places = _read(whole)
    return metadata, {name: decoded(whole, offset, shape, kind) for name, (shape, kind, offset) in places.items()}


def gguf_blocks(file: str | Path | Tensor) -> tuple[dict[str, Any], dict[str, GGMLBlocks]]:
  """As `gguf_load`, with the tensors as they lie in the file: bytes, shape and format.

  For programs that compute with the blocks themselves. Nothing is read until it is used.
  """
  whole = as_bytes(file)
  with valid("GGUF", file):
    metadata, places = _read(whole)
  blocks = {}
  for name, (shape, kind, offset) in places.items():
    size = data_size(name, shape, kind)
    blocks[name] = GGMLBlocks(part_of(whole, offset, size, (size,)), shape, format_of(kind))
  return metadata, blocks


def _read(whole: Tensor) -> tuple[dict[str, Any], dict[str, tuple[tuple[int, ...], int, int]]]:
  """The metadata, and of each tensor its shape, type and place in the file."""
  reader = _Reader(whole_bytes(whole))
  if (magic := bytes(reader.take(4, "the magic number"))) != b"GGUF":
    raise ValueError(f"it begins with {magic!r}, expected b'GGUF'")
  version = reader.number("I", "the version")
  if version not in (2, 3):
    hint = "; it is of a big-endian machine" if version in (2 << 24, 3 << 24) else ""
    raise ValueError(f"it is of version {version}, expected 2 or 3{hint}")
  tensors, entries = reader.number("Q", "the count of tensors"), reader.number("Q", "the count of metadata")
  if tensors * _LEAST_TENSOR + entries * _LEAST_ENTRY > len(reader.data):
    raise ValueError(f"{tensors} tensors and {entries} entries of metadata do not fit in {len(reader.data)} bytes")
  metadata: dict[str, Any] = {}
  for _ in range(entries):
    at, key = reader.at, reader.text("a key")
    if key in metadata:
      raise ValueError(f"key {key!r} at byte {at} occurs twice")
    metadata[key] = reader.value(reader.number("I", f"the type of {key!r}"), f"the value of {key!r}")
  infos = [_tensor_info(reader) for _ in range(tensors)]
  alignment = metadata.get("general.alignment", 32)
  if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
    raise ValueError(f"general.alignment is {alignment!r}, expected a power of two")
  start = -(-reader.at // alignment) * alignment
  _check_places(infos, start, alignment, len(reader.data))
  return metadata, {name: (shape, kind, start + offset) for name, shape, kind, offset in infos}


def _tensor_info(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
  """(name, shape, type, offset) of a tensor."""
  at, name = reader.at, reader.text("the name of a tensor")
  axes = reader.number("I", f"the axes of {name!r}")
  if axes > _MOST_AXES:
    raise ValueError(f"tensor {name!r} at byte {at} has {axes} axes, expected {_MOST_AXES} at most")
  shape = tuple(reversed(reader.numbers("Q", axes, f"the shape of {name!r}")))
  check_shape(f"tensor {name!r} at byte {at}", shape)
  kind = reader.number("I", f"the type of {name!r}")
  return name, shape, kind, reader.number("Q", f"the offset of {name!r}")


def _check_places(infos: list[tuple[str, tuple[int, ...], int, int]], start: int, alignment: int, size: int) -> None:
  """Checks where tensors claim to lie, in data that begins at byte `start` of a file of `size` bytes."""
  if len({info[0] for info in infos}) != len(infos):
    raise ValueError(f"tensor {first_repeated(info[0] for info in infos)!r} occurs twice")
  last, before = 0, ""
  for name, shape, kind, offset in sorted(infos, key=lambda info: (info[3], math.prod(info[1]))):
    end = offset + data_size(name, shape, kind)
    if offset % alignment:
      raise ValueError(f"tensor {name!r} begins at byte {start + offset}, which is not aligned to {alignment}")
    if offset < last:
      raise ValueError(f"tensor {name!r} begins at byte {start + offset}, before {before!r} ends at {start + last}")
    if start + end > size:
      raise ValueError(f"tensor {name!r} ends at byte {start + end}, the file has {size}: it is truncated or lies")
    last, before = end, name
