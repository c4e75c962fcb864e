"""What a device has for a kernel: the scheduler knows no more of it than this, and its name."""

from __future__ import annotations

from collections.abc import Callable

from tiny_uop import UOp
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class Room:
  """What a device has for a kernel."""

  local_memory: int | None = None
  """Bytes that threads of a workgroup share; 0: no workgroups, and threads have a cache each; None: unknown."""
  threads: int = 0
  """How many threads share a kernel where there are no workgroups; 0: few, or nobody knows."""


RoomOf = Callable[[str], Room]
"""What a device has, by its name."""


def unknown(device: str) -> Room:
  """What a device has of which nobody knows more than its name."""
  return Room()


def room_of_node(u: UOp, room_of: RoomOf) -> Room:
  """What the device of a node has; nothing that anybody knows where there is not one."""
  return room_of(u.device) if isinstance(u.device, str) else Room()
