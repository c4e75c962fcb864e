"""What handles of the model of NVIDIA's driver stand for: streams whose work waits, events, calls, graphs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpu_model.ptx import Module
from tiny_runtime_nv.driver import CopyNode

INVALID = 1


class Status(Exception):
  """A function ends with this status."""


class Misuse(Exception):
  """A function was called as the manual says that it must not be."""


@dataclass
class Stream:
  """Work that waits to be done, in order."""

  work: list[Callable[[], None]] = field(default_factory=list)

  def run(self, until: Event | None = None) -> None:
    """Do what waits; with an event, up to where it was recorded."""
    while self.work and (until is None or until.pending):
      self.work.pop(0)()


@dataclass
class Event:
  stream: Stream | None = None
  pending: int = 0
  """How many times it was recorded, but not reached."""
  at: float | None = None


@dataclass
class Call:
  """A kernel with its arguments, or a copy."""

  module: Module | None
  words: list[int] = field(default_factory=list)
  grid: tuple[int, int, int] = (0, 0, 0)
  block: tuple[int, int, int] = (0, 0, 0)
  shared: int = 0
  """Bytes of shared memory that it gives to each block."""
  copy: tuple[int, int, int] = (0, 0, 0)
  enabled: bool = True


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
