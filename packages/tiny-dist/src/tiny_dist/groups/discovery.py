"""Which fabrics are installed (entry points `tiny_dist.groups.v1`), and which of them serves here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

from tiny_dist.groups.protocol import Fabric, Group, Unusable
from tiny_dist.start import Start

ENTRY_POINTS = "tiny_dist.groups.v1"
"""The group of entry points; its number is that of the protocol."""
_ORDER = ("local", "mpi", "nccl")  # ours, the quickest to say no first; those of others come before them


class Found(NamedTuple):
  """An installed fabric."""

  name: str
  distribution: str
  fabric: Fabric | None
  says: str
  """What is used, or why it cannot be."""
  usable: bool


def fabrics() -> list[EntryPoint]:
  """The entry points, in the order in which they are tried."""
  found = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
  return sorted(found.values(), key=lambda e: (_ORDER.index(e.name) + 1 if e.name in _ORDER else 0, e.name))


def probed(start: Start) -> Iterator[Found]:
  """Each installed fabric with what it says. A plugin that fails is a row, too."""
  for entry in fabrics():
    distribution = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "?"
    fabric: Fabric | None = None
    try:
      fabric = entry.load()
      yield Found(entry.name, distribution, fabric, fabric.probe(start), True)
    except Unusable as error:
      yield Found(entry.name, distribution, fabric, str(error), False)
    except Exception as error:
      yield Found(entry.name, distribution, fabric, f"it fails: {type(error).__name__}: {error}", False)


def opened(start: Start, name: str = "") -> tuple[str, Group]:
  """(name, group) of the fabric `name`, or of the first that can be used here. Raises Unusable, with the reasons of
  all."""
  reasons = []
  for entry in fabrics():
    if name in ("", entry.name):
      try:
        return entry.name, entry.load().open(start)
      except Unusable as error:
        reasons.append(f"{entry.name}: {error}")
  if name and not reasons:
    known = ", ".join(entry.name for entry in fabrics()) or "none"
    raise Unusable(f"no package provides the group {name!r}; there are {known}")
  if not reasons:
    raise Unusable("no group is installed: tiny-dist is imported from sources that pip has not installed")
  raise Unusable(f"no group can be used by rank {start.rank} of {start.size}:\n  " + "\n  ".join(reasons))
