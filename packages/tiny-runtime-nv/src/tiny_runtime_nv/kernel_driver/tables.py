"""The kernel driver's structures, numbers, methods and descriptions of launches; `tables/generate.py` made the
tables of NVIDIA's headers. Names are those of the headers.

    structure("NVOS21_PARAMETERS")(hClass=constant("NV01_ROOT_CLIENT"))
    word("LAUNCH_DMA", DATA_TRANSFER_TYPE="NON_PIPELINED", FLUSH_ENABLE=1)
    qmd_layout("4.0").fields["REGISTER_COUNT"]
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "tables"
TYPES: dict[str, Any] = {
  "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "i32": ctypes.c_int32,
}  # fmt: skip


@dataclass(frozen=True)
class Field:
  """Bits `low` to `high` of a word or of words in a row; of an array, the next is `stride` bits on. `values` are those
  that have names."""

  low: int
  high: int
  stride: int = 0
  values: dict[str, int] | None = None

  def number(self, value: int | str) -> int:
    """A value as the field holds it. Raises KeyError for a name that it does not have, OverflowError for what does not
    fit."""
    number = (self.values or {})[value] if isinstance(value, str) else value
    if not 0 <= number < 1 << self.high - self.low + 1:
      raise OverflowError(f"{value} does not fit into bits {self.high}:{self.low}")
    return number


@dataclass(frozen=True)
class Layout:
  """A structure of bits: `words` of 32 bits, and where its fields are."""

  words: int
  fields: dict[str, Field]

  @cached_property
  def shifts(self) -> dict[str, int]:
    """The last bits that fields are without, by names without that ending: 4 of NAME_SHIFTED4."""
    found = (re.fullmatch(r"(\w+)_SHIFTED(\d)", name) for name in self.fields)
    return {match[1]: int(match[2]) for match in found if match}


def _rows(name: str) -> Iterator[tuple[list[str], list[list[str]]]]:
  """The rows of a table, each with those under it."""
  head: list[str] = []
  under: list[list[str]] = []
  for line in (FOLDER / f"{name}.txt").read_text().splitlines():
    if line.startswith(" "):
      under.append(line.split())
      continue
    if head:
      yield head, under
    head, under = line.split(), []
  yield head, under


def _field(row: list[str]) -> Field:
  bits, _, stride = row[1].partition("+")
  high, low = map(int, bits.split(":"))
  values = {name: int(number) for name, number in (part.split("=") for part in row[2:])}
  return Field(low, high, int(stride or 0), values)


@cache
def _structures() -> dict[str, list[list[str]]]:
  return {head[0]: under for head, under in _rows("structures")}


@cache
def structure(name: str) -> Any:
  """The ctypes structure of a name. Raises KeyError."""
  fields = []
  for field, _, kind in _structures()[name]:
    base, _, count = kind.partition("[")
    made = TYPES[base] if base in TYPES else structure(base)
    fields.append((field, made * int(count.rstrip("]")) if count else made))
  return type(name, (ctypes.Structure,), {"_fields_": fields})


@cache
def _constants() -> dict[str, str]:
  return {name: value for (name, value), _ in _rows("constants")}


@cache
def constant(name: str) -> int:
  """A number by its name. Raises KeyError."""
  return int(_constants()[name], 0)


def flags(prefix: str, **fields: str) -> int:
  """A word of flags: `flags("NVOS32_ATTR", LOCATION="PCI")`. Raises KeyError."""
  word = 0
  for field, value in fields.items():
    low = int(_constants()[f"{prefix}_{field}"].split(":")[1])
    word |= constant(f"{prefix}_{field}_{value}") << low
  return word


@cache
def _methods() -> dict[str, tuple[int, dict[str, Field]]]:
  found = {}
  for (_, name, offset), under in _rows("methods"):
    found[name] = int(offset, 0), {row[0].removeprefix(f"{name}_"): _field(row) for row in under}
  return found


def method(name: str) -> int:
  """Where a method is. Raises KeyError."""
  return _methods()[name][0]


def word(name: str, **fields: int | str) -> int:
  """What a method is given, of fields and values by name. Raises KeyError, OverflowError."""
  known = _methods()[name][1]
  made = 0
  for field, value in fields.items():
    made |= known[field].number(value) << known[field].low
  return made


@cache
def qmd_layout(version: str) -> Layout:
  """The structure that describes a launch (queue meta data), of a version. Raises KeyError."""
  for (name, _, words), under in _rows("qmd"):
    if name == version:
      return Layout(int(words), {row[0]: _field(row) for row in under})
  raise KeyError(version)
