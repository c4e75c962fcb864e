"""How large the data caches of one core are, as the operating system tells."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

SYSFS = Path("/sys/devices/system/cpu")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

Levels = dict[int, int]
"""Bytes that one core has of each level: what it shares with other cores is divided."""


@cache
def host_caches() -> str:
  """Bytes of the levels 1, 2 and 3 that one core of this machine has, as `Arch.caches` (`49152,2097152,16777216`; a
  level that is not there is 0). Empty if the system does not tell: then the compiler assumes what is usual.

  It is the first processor that counts; on machines with different cores others may have less.
  """
  readers: dict[str, Callable[[], Levels]] = {
    "linux": linux_levels,
    "darwin": darwin_levels,
    "win32": windows_levels,
  }
  try:
    levels = readers[sys.platform]() if sys.platform in readers else {}
  except (OSError, ValueError, AttributeError, struct.error):
    levels = {}
  return written(levels)


def written(levels: Levels) -> str:
  """The text of `Arch.caches`; empty without a first or second level."""
  return ",".join([str(levels.get(level, 0)) for level in (1, 2, 3)]) if levels.get(1) and levels.get(2) else ""


def linux_levels(folder: Path = SYSFS) -> Levels:
  """From sysfs. Raises OSError or ValueError where it is not as expected."""
  threads = count((folder / "cpu0/topology/thread_siblings_list").read_text())
  levels: Levels = {}
  for index in sorted((folder / "cpu0/cache").glob("index*")):
    level, kind, size, shared = [
      (index / name).read_text().strip() for name in ("level", "type", "size", "shared_cpu_list")
    ]
    if kind != "Instruction":
      levels[int(level)] = size_of(size) // max(count(shared) // threads, 1)
  return levels


def size_of(text: str) -> int:
  """Bytes of `48K`."""
  digits = text.rstrip("KMG")
  return int(digits) * UNITS[text[len(digits) :]]


def count(processors: str) -> int:
  """How many processors a list as `0-3,8` has."""
  return len(members(processors))


def members(processors: str) -> list[int]:
  """The numbers of a list as `0-3,8`; it may be empty."""
  spans = [span.partition("-") for span in processors.strip().split(",") if span]
  return [number for first, _, last in spans for number in range(int(first), int(last or first) + 1)]


def darwin_levels(value: Callable[[str], int] | None = None) -> Levels:
  """From sysctl; on Apple silicon of the fast cores, which share their second level."""
  value = value or sysctl
  fast = "hw.perflevel0." if value("hw.perflevel0.l1dcachesize") else "hw."
  levels = {level: value(f"{fast}{name}") for level, name in ((1, "l1dcachesize"), (2, "l2cachesize"))}
  levels[2] //= max(value(f"{fast}cpusperl2"), 1)
  levels[3] = value(f"{fast}l3cachesize") // max(value(f"{fast}cpusperl3") or value("hw.physicalcpu"), 1)
  return levels


def sysctl(name: str) -> int:
  """A number that the macOS kernel knows; 0 if it does not."""
  number, size = ctypes.c_uint64(0), ctypes.c_size_t(8)
  library = ctypes.CDLL(None)
  failed = library.sysctlbyname(name.encode(), ctypes.byref(number), ctypes.byref(size), None, ctypes.c_size_t(0))
  return 0 if failed else number.value  # little-endian: four bytes of a smaller number are its value too


CORES, CACHES = 0, 2  # RelationProcessorCore, RelationCache
INSTRUCTION = 1


def windows_levels(records: bytes | None = None) -> Levels:
  """From GetLogicalProcessorInformationEx."""
  records = windows_records() if records is None else records
  masks: list[int] = []  # of each core: its threads
  found: list[tuple[int, int, int]] = []
  for relation, body in windows_bodies(records):
    if relation == CORES:
      masks.append(int.from_bytes(body[24:32], "little"))
    elif relation == CACHES:
      level, size, kind = body[0], *struct.unpack_from("<II", body, 4)
      if kind != INSTRUCTION:
        found.append((level, size, int.from_bytes(body[32:40], "little")))
  levels: Levels = {}
  for level, size, mask in found:
    if mask & 1:
      levels[level] = size // max(sum(bool(mask & core) for core in masks), 1)
  return levels


def windows_bodies(records: bytes) -> Iterator[tuple[int, bytes]]:
  """(relation, the rest) of each SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX."""
  at = 0
  while at < len(records):
    relation, size = struct.unpack_from("<II", records, at)
    if size < 8:
      raise ValueError(f"a record of {size} bytes, expected 8 at least")
    yield relation, records[at + 8 : at + size]
    at += size


def windows_records() -> bytes:
  """What the system tells about all processors. Raises OSError if it does not."""
  kernel = ctypes.CDLL("kernel32")
  size, everything = ctypes.c_uint32(0), 0xFFFF
  kernel.GetLogicalProcessorInformationEx(everything, None, ctypes.byref(size))
  buffer = ctypes.create_string_buffer(size.value)
  if not kernel.GetLogicalProcessorInformationEx(everything, buffer, ctypes.byref(size)):
    raise OSError("GetLogicalProcessorInformationEx failed")
  return buffer.raw[: size.value]
