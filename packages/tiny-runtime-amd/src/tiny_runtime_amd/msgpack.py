"""MessagePack, the form that the metadata of code objects have; as much of it as LLVM writes."""

from __future__ import annotations

import struct
from typing import Any

_NUMBERS = {
  0xCC: "B",
  0xCD: "H",
  0xCE: "I",
  0xCF: "Q",
  0xD0: "b",
  0xD1: "h",
  0xD2: "i",
  0xD3: "q",
  0xCA: "f",
  0xCB: "d",
}
_SIZES = {0xD9: "B", 0xDA: "H", 0xDB: "I", 0xDC: "H", 0xDD: "I", 0xDE: "H", 0xDF: "I"}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def unpack(data: bytes) -> Any:
  """The value that bytes are. Raises ValueError where they are not exactly one."""
  value, end = _value(data, 0)
  if end != len(data):
    raise ValueError(f"{len(data) - end} bytes are left behind the value")
  return value


def _value(data: bytes, at: int) -> tuple[Any, int]:
  if at >= len(data):
    raise ValueError("the data end in the middle of a value")
  kind, at = data[at], at + 1
  if kind < 0x80 or kind >= 0xE0:
    return kind - (256 if kind >= 0xE0 else 0), at
  if kind in _CONSTANTS:
    return _CONSTANTS[kind], at
  if kind in _NUMBERS:
    return _number(data, at, _NUMBERS[kind])
  if kind >= 0xC0 and kind not in _SIZES:
    raise ValueError(f"a value of type 0x{kind:02x}, which metadata do not have")
  if kind < 0xC0:  # the size is in the byte itself
    size, kind = (kind & 0x1F, 0xD9) if kind >= 0xA0 else (kind & 0x0F, 0xDC if kind >= 0x90 else 0xDE)
  else:
    size, at = _number(data, at, _SIZES[kind])
  if kind <= 0xDB:
    if at + size > len(data):
      raise ValueError("the data end in the middle of a text")
    return data[at : at + size].decode(), at + size
  items = []
  for _ in range(size if kind <= 0xDD else 2 * size):
    item, at = _value(data, at)
    items.append(item)
  return (items if kind <= 0xDD else dict(zip(items[::2], items[1::2], strict=True))), at


def _number(data: bytes, at: int, form: str) -> tuple[Any, int]:
  size = struct.calcsize(form)
  if at + size > len(data):
    raise ValueError("the data end in the middle of a number")
  return struct.unpack_from(f">{form}", data, at)[0], at + size
