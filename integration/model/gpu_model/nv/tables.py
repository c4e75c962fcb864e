"""What headers say (`tables.json`, written by `nv_tables.py`): structures in memory, methods of classes, QMDs."""

from __future__ import annotations

import ctypes
import json
from functools import cache
from pathlib import Path
from typing import Any

TABLES: dict[str, Any] = json.loads((Path(__file__).parent / "tables.json").read_text())
CONSTANTS: dict[str, int] = TABLES["constants"]
SIZES: dict[str, int] = {name: row[0] for name, row in TABLES["structures"].items()}
OLDER_HOST = {"c86f": "c56f", "c96f": "c56f", "ca6f": "c56f"}
"""The headers of later channels list what is new: the rest is as before."""


class Record:
  """A structure at an address of this process."""

  def __init__(self, name: str, address: int) -> None:
    self.name, self.address = name, address
    self.size, self.fields = TABLES["structures"][name]

  def _place(self, field: str, index: int) -> tuple[int, int]:
    offset, size, count = self.fields[field]
    if not 0 <= index < count:
      raise IndexError(f"{self.name}.{field}[{index}]")
    return self.address + offset + index * size, size

  def get(self, field: str, index: int = 0) -> int:
    """A number of it, without sign."""
    place, size = self._place(field, index)
    return int.from_bytes(ctypes.string_at(place, size), "little")

  def put(self, field: str, value: int, index: int = 0) -> None:
    """Change one."""
    place, size = self._place(field, index)
    ctypes.memmove(place, value.to_bytes(size, "little"), size)

  def at(self, field: str, index: int = 0) -> int:
    """Where a field is."""
    return self._place(field, index)[0]

  def text(self, field: str, value: str) -> None:
    """Write a C string into an array of characters."""
    place, _ = self._place(field, 0)
    data = value.encode()[: self.fields[field][2] - 1] + b"\0"
    ctypes.memmove(place, data, len(data))

  __getitem__ = get

  def __setitem__(self, field: str, value: int) -> None:
    self.put(field, value)

  def clear(self) -> None:
    """All of it is 0."""
    ctypes.memset(self.address, 0, self.size)


@cache
def methods(name: str) -> dict[int, tuple[str, dict[str, list[int]]]]:
  """The methods of a class that the model tells apart, by their place: name and fields (lowest bit, bits)."""
  found: dict[int, tuple[str, dict[str, list[int]]]] = {}
  for source in (OLDER_HOST.get(name), name):
    for method, place, fields, classes in TABLES["methods"]:
      if source in classes:
        before = found.get(place, (method, {}))[1]
        found[place] = (method, {**before, **fields})
  return found


def has_method(name: str, place: int) -> bool:
  """Whether a class has a method there."""
  runs = [run for source in (OLDER_HOST.get(name), name) if source for run in TABLES["all_methods"][source]]
  return any(first <= place <= last for first, last in runs)


def bits(word: int, field: list[int]) -> int:
  """A field of a word."""
  return word >> field[0] & (1 << field[1]) - 1


class Qmd:
  """A queue's description of a launch, taken apart."""

  def __init__(self, layout: str, data: bytes) -> None:
    self.layout, self.fields, self.number = layout, TABLES["qmd"][layout], int.from_bytes(data, "little")

  def get(self, field: str, index: int = 0) -> int:
    """A field; raises KeyError where this version has none of that name."""
    low, width, *step = self.fields[field]
    return int(self.number >> low + (step[0] * index if step else 0) & (1 << width) - 1)

  def has(self, field: str) -> bool:
    """Whether this version has it."""
    return field in self.fields

  def scaled(self, field: str, index: int = 0) -> int:
    """A field that some versions have without its low bits (`_SHIFTED4` and so on)."""
    for shift in range(9):
      name = f"{field}_SHIFTED{shift}" if shift else field
      if name in self.fields:
        return self.get(name, index) << shift
    raise KeyError(field)

  def address(self, stem: str, index: int = 0) -> int:
    """An address in two fields."""
    for tail, shift in (("", 0), ("_SHIFTED4", 4), ("_SHIFTED6", 6)):
      if f"{stem}_LOWER{tail}" in self.fields:
        return (self.get(f"{stem}_UPPER{tail}", index) << 32 | self.get(f"{stem}_LOWER{tail}", index)) << shift
    raise KeyError(stem)

  def first(self, *names: str) -> int:
    """The first of fields that there is: versions have several names for the same."""
    return self.get(next(name for name in names if name in self.fields))

  def unknown(self) -> int:
    """Bits that no field has and that are not 0, and fields that are reserved or the hardware's and not 0."""
    covered = 0
    for name, (low, width, *step) in self.fields.items():
      if "RESERVED" in name or "HW_ONLY" in name or "SPARE" in name:
        continue
      for index in range(count(name) if step else 1):
        covered |= (1 << width) - 1 << low + (step[0] * index if step else 0)
    return self.number & ~covered


def count(field: str) -> int:
  """How many there are of a field with an index."""
  if field.startswith("CONSTANT_BUFFER"):
    return 8
  if field.startswith("RELEASE"):
    return 3
  return 8 if field.startswith("TPC") else 2


def qmd_bytes(layout: str) -> int:
  """How long a QMD is: those of major version 4 and later have half as much again."""
  return 384 if layout.split("_")[1] >= "04" else 256


def layouts(compute: str) -> list[str]:
  """The layouts of a compute class, by the newest version first."""
  return [layout for _, layout in sorted(TABLES["qmd_of_class"][compute].items(), reverse=True)]
