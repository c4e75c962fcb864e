"""What handles and numbers of the model of KFD stand for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

GPU_ID = 0x4A2B


def ticks() -> int:
  """The GPU's clock: 100 MHz."""
  return time.perf_counter_ns() // 10


class Refusal(Exception):
  """A request ends with this number of errno."""

  @property
  def number(self) -> int:
    """It."""
    return int(self.args[0])


class Misuse(Exception):
  """A request, or a packet, is as the manual says that it must not be."""


@dataclass
class Buffer:
  """Memory. `seen`: the host has mapped it."""

  handle: int
  address: int
  size: int
  flags: int
  mapped: bool = False
  seen: bool = False

  @property
  def executable(self) -> bool:
    """Whether code may be in it."""
    return bool(self.flags >> 30 & 1)


@dataclass
class Event:
  """What can be waited for; `data` once it is set."""

  kind: int
  data: bytes | None = None


@dataclass(eq=False)
class Queue:
  """A queue. `slot`: of its doorbell in the process's; `places`: the buffers that it is made of."""

  number: int
  ring: int
  ring_bytes: int
  write_pointer: int
  read_pointer: int
  slot: int
  places: set[int] = field(default_factory=set)
  doorbell: int = 0
  taken: int = 0
  stopped: bool = False
  ended: bool = True
  """The last packet that was taken signalled that all is done."""
