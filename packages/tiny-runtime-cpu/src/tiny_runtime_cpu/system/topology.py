"""Where processors are: which are threads of one core, which cores are near which memory, and how fast they are."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tiny_runtime_cpu.system import MOST_PROCESSORS
from tiny_runtime_cpu.system.caches import members, sysctl

SYSTEM = Path("/sys/devices/system")
POSITIONS = 256
"""Of processors among each other: what a byte holds."""
FASTEST = 1024
"""The capacity of a core as Linux counts it, where all are equally fast."""
SLOW = 512
"""That of an efficiency core of x86, whose capacity Linux does not tell: roughly."""


class Place(NamedTuple):
  """Of a processor; sorted, those are neighbours that share most. `slowness` is its capacity as Linux counts it, less
  than 0, so that fast ones come first."""

  node: int = 0
  slowness: int = -FASTEST
  core: int = 0
  number: int = 0


@cache
def places() -> dict[int, Place]:
  """Of all processors of this machine, by number; none where the system does not tell."""
  return linux_places() if sys.platform == "linux" else {}


def linux_places(folder: Path = SYSTEM) -> dict[int, Place]:
  """From sysfs (Linux, Documentation/ABI/stable/sysfs-devices-node, testing/sysfs-devices-system-cpu). What is missing
  there, as nodes in some containers, is taken to be all the same."""
  nodes: dict[int, int] = {}
  for path in folder.glob("node/node[0-9]*/cpulist"):
    nodes |= dict.fromkeys(members(path.read_text()), int(path.parent.name.removeprefix("node")))
  efficient = members(_text(folder.parent / "cpu_atom/cpus"))
  found = {}
  for path in folder.glob("cpu/cpu[0-9]*"):
    number = int(path.name.removeprefix("cpu"))
    core = min(members(_text(path / "topology/thread_siblings_list")), default=number)
    capacity = int(_text(path / "cpu_capacity") or (SLOW if number in efficient else FASTEST))
    found[number] = Place(nodes.get(number, 0), -capacity, core, number)
  return found


def _text(path: Path) -> str:
  try:
    return path.read_text().strip()
  except OSError:
    return ""


def neighbours(processors: Iterable[int], known: dict[int, Place] | None = None) -> list[int]:
  """Processors with those next to each other that share a core, then a kind of core, then memory."""
  known = places() if known is None else known
  return sorted(processors, key=lambda number: known.get(number, Place(number=number)))


def nodes_of_memory(known: dict[int, Place] | None = None) -> tuple[int, bytes]:
  """How many nodes of memory the pool tells apart, and for each of 1024 processors its position among all of them, from
  0 to 255: neighbours have neighbouring ones, and node n of N those from 256 n / N on."""
  known = places() if known is None else known
  listed: dict[int, list[int]] = {}
  for number in neighbours(known, known):
    listed.setdefault(known[number].node, []).append(number)
  positions = bytearray(MOST_PROCESSORS)
  for n, numbers in enumerate(listed.values()):
    first, end = (-(-POSITIONS * m // len(listed)) for m in (n, n + 1))
    for k, number in enumerate(numbers):
      positions[number % MOST_PROCESSORS] = first + k * (end - first) // len(numbers)
  return len(listed), bytes(positions)


def shared_out(processors: Iterable[int], workers: int, known: dict[int, Place] | None = None) -> dict[int, int]:
  """The worker that each of some processors belongs to, neighbours to one; none has processors of two sockets, as long
  as there are others behind it."""
  known, given = places() if known is None else known, dict[int, int]()
  listed = neighbours(processors, known)
  first: dict[int, int] = {}
  for n, number in enumerate(listed):
    worker = n * workers // len(listed)
    node = known.get(number, Place()).node
    if first.setdefault(worker, node) != node and worker + 1 < workers:
      worker += 1
      first.setdefault(worker, node)
    given[number] = worker
  return given


def are_uneven(processors: Iterable[int], known: dict[int, Place] | None = None) -> bool:
  """Whether some of these are slower than others: efficiency cores beside performance cores."""
  if sys.platform == "darwin" and known is None:
    return sysctl("hw.nperflevels") > 1
  known = places() if known is None else known
  return len({known[number].slowness for number in processors if number in known}) > 1
