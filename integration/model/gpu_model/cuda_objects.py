"""What handles of the model of NVIDIA's driver stand for: streams whose work waits, events, calls, graphs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpu_model.ptx import Kernel
from tiny_runtime_nv.driver import CopyNode

INVALID = 1


class Status(Exception):
  """A function ends with this status."""


class Misuse(Exception):
  """A function was called as the manual says that it must not be."""


@dataclass(eq=False)
class Gpu:
  """One GPU with its primary context and its pool, whose handles are `context` and `pool`."""

  ordinal: int
  memory: int
  retained: int = 0
  broken: int = 0
  """The status of everything, after a fault."""
  allocations: dict[int, Any] = field(default_factory=dict)
  pinned: dict[int, Any] = field(default_factory=dict)
  readers: set[int] = field(default_factory=set)
  """Ordinals of the other GPUs that may use the pool's memory."""

  @property
  def context(self) -> int:
    """A handle."""
    return 0xC00 + self.ordinal

  @property
  def pool(self) -> int:
    """A handle."""
    return 0xB00 + self.ordinal

  @property
  def used(self) -> int:
    """Bytes that are allocated."""
    return sum(map(len, self.allocations.values()))


@dataclass(eq=False)
class Stream:
  """Work that waits to be done, in order."""

  gpu: Gpu
  work: list[Callable[[], None]] = field(default_factory=list)

  def run(self, until: Mark | None = None) -> None:
    """Do what waits; with a mark, up to that."""
    while self.work and (until is None or until.at is None):
      self.work.pop(0)()


@dataclass(eq=False)
class Mark:
  """Where an event was recorded, and when the stream came there."""

  stream: Stream
  at: float | None = None


@dataclass
class Event:
  """`mark` is where it was recorded last."""

  mark: Mark | None = None


@dataclass
class Call:
  """A kernel with its arguments, a copy, or the recording of an event."""

  kernel: Kernel | None
  words: list[int] = field(default_factory=list)
  grid: tuple[int, int, int] = (0, 0, 0)
  block: tuple[int, int, int] = (0, 0, 0)
  shared: int = 0
  """Bytes of shared memory that it gives to each block."""
  copy: tuple[int, int, int] = (0, 0, 0)
  enabled: bool = True
  event: Event | None = None


@dataclass(eq=False)
class CallGraph:
  """A graph, or one that can be launched: then `made_from` is the graph whose nodes name its own."""

  nodes: dict[int, Call] = field(default_factory=dict)
  made_from: CallGraph | None = None


def copy_of(place: int) -> Call:
  """The copy that a structure describes."""
  node = CopyNode.from_address(place)
  if (node.srcMemoryType, node.dstMemoryType, node.Height, node.Depth) != (2, 2, 1, 1):
    raise Misuse("a copy that is not of one row of the device's memory")
  if not 0 < node.WidthInBytes <= min(node.srcPitch, node.dstPitch, 2**31 - 1):
    raise Status(INVALID)
  return Call(None, copy=(node.dstDevice, node.srcDevice, node.WidthInBytes))


def refused(error: Exception, count: int, options: int, values: int) -> None:
  """Write why a module cannot be loaded to where the caller wants the log."""
  kinds = (ctypes.c_int * count).from_address(options)
  given = (ctypes.c_void_p * count).from_address(values)
  found = dict(zip(kinds, given))
  text = str(error).encode()[: (found[6] or 1) - 1] + b"\0"
  ctypes.memmove(found[5] or 0, text, len(text))


def store(place: int, kind: Any, value: Any) -> None:
  """Write a result to where the caller wants it."""
  kind.from_address(place).value = value


def void(value: object) -> None:
  """For work whose result nobody wants."""
