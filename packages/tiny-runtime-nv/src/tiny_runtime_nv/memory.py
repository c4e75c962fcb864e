"""Allocations, and copies between them and the host."""

from __future__ import annotations

import ctypes
from typing import Any

from tiny_runtime.handles import AddressedMemory
from tiny_runtime_nv.driver import NO_TIME, Driver

PIECE = 4 << 20
"""Bytes of a copy that are on their way at once. The memory they pass through cannot be swapped out, so the GPU reads
and writes it by itself, while this processor copies the piece before or after."""


Memory = AddressedMemory
"""One allocation."""


class Staging:
  """Two pieces of the host's memory that copies take turns with, each with the event of its last use."""

  def __init__(self, driver: Driver, stream: Any) -> None:
    self.driver, self.stream = driver, stream
    self.address: int = driver.new("cuMemHostAlloc", 2 * PIECE, 0)
    whole = memoryview((ctypes.c_char * (2 * PIECE)).from_address(self.address)).cast("B")
    self.pieces = [(self.address, whole[:PIECE]), (self.address + PIECE, whole[PIECE:])]
    self.events = [driver.new("cuEventCreate", NO_TIME) for _ in self.pieces]
    self.turn = 0

  def write(self, address: int, data: memoryview) -> None:
    """Copy bytes to the device, in the order of the stream. They may change on return."""
    for start in range(0, data.nbytes, PIECE):
      part = data[start : start + PIECE]
      (place, view), event = self.pieces[self.turn], self.events[self.turn]
      self.driver("cuEventSynchronize", event)
      view[: len(part)] = part
      self.driver("cuMemcpyHtoDAsync_v2", address + start, place, len(part), self.stream)
      self.driver("cuEventRecord", event, self.stream)
      self.turn ^= 1

  def read(self, address: int, out: memoryview) -> None:
    """Copy bytes from the device, when the stream has come to that."""
    waiting: list[tuple[int, memoryview]] = []
    for start in range(0, out.nbytes, PIECE):
      part = out[start : start + PIECE]
      self.driver("cuEventSynchronize", self.events[self.turn])
      self.driver("cuMemcpyDtoHAsync_v2", self.pieces[self.turn][0], address + start, len(part), self.stream)
      self.driver("cuEventRecord", self.events[self.turn], self.stream)
      waiting.append((self.turn, part))
      self.turn ^= 1
      if len(waiting) == len(self.pieces):
        self._fetch(*waiting.pop(0))
    for turn, part in waiting:
      self._fetch(turn, part)

  def _fetch(self, turn: int, part: memoryview) -> None:
    self.driver("cuEventSynchronize", self.events[turn])
    part[:] = self.pieces[turn][1][: len(part)]

  def close(self) -> None:
    """Give it back, when no copy is under way."""
    for event in self.events:
      self.driver("cuEventDestroy_v2", event)
    self.pieces = []
    self.driver("cuMemFreeHost", self.address)
