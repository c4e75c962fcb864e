"""One process: nothing is exchanged, and all results are what this rank has."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_dist.groups.protocol import Group, Unusable
from tiny_dist.start import Start


class LocalGroup:
  """The group of one rank."""

  rank = 0
  size = 1

  def all_gather(self, out: memoryview, data: memoryview, counts: Sequence[int]) -> None:
    """See `Group`."""
    out[:] = data

  def all_to_all(
    self, out: memoryview, received: Sequence[int], data: memoryview, sent: Sequence[int]
  ) -> None:  # fmt: skip
    """See `Group`."""
    out[:] = data

  def broadcast(self, data: memoryview, root: int) -> None:
    """See `Group`."""

  def send(self, data: memoryview, to: int) -> None:
    """See `Group`. There is nobody: ValueError."""
    raise ValueError(f"send to rank {to} of a group of one rank")

  def recv(self, data: memoryview, of: int) -> None:
    """See `Group`. There is nobody: ValueError."""
    raise ValueError(f"recv from rank {of} of a group of one rank")

  def all_reduce(self, data: memoryview, dtype: str, op: str) -> None:
    """See `Group`."""

  def reduce_scatter(self, out: memoryview, data: memoryview, dtype: str, op: str, counts: Sequence[int]) -> None:
    """See `Group`."""
    out[:] = data

  def barrier(self) -> None:
    """See `Group`."""

  def split(self, ranks: Sequence[int]) -> Group:
    """See `Group`."""
    return self

  def abort(self, code: int) -> None:
    """See `Group`."""
    raise SystemExit(code)

  def close(self) -> None:
    """See `Group`."""


class _Local:
  def probe(self, start: Start) -> str:
    """See `Fabric`."""
    if start.size > 1:
      raise Unusable(f"it has one rank, and {start.launcher} has started {start.size} processes")
    return "one process"

  def open(self, start: Start) -> Group:
    """See `Fabric`."""
    self.probe(start)
    return LocalGroup()


FABRIC = _Local()
"""The entry point."""
