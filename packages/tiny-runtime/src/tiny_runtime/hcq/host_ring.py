"""Memory of the host that is used in turns: for arguments, and for bytes on their way from and to the host."""

from __future__ import annotations

from tiny_runtime.hcq.hardware import Block
from tiny_runtime.hcq.timeline import Timeline

PARTS = 4


class HostRing:
  """Hands out pieces of a block of the host's memory one behind the other. It has parts; one is used again when the
  last submission that was to use it is done."""

  def __init__(self, block: Block, timeline: Timeline) -> None:
    assert block.view is not None
    self.block, self.view, self.timeline = block, block.view, timeline
    self.part_bytes = block.nbytes // PARTS
    self.last = [0] * PARTS
    """The last submission that uses each part."""
    self.part, self.used = 0, 0

  def take(self, nbytes: int, alignment: int = 16, remainder: int = 0) -> tuple[int, memoryview]:
    """Room for the next submission to use: its address, which is `remainder` more than a multiple of `alignment`, and
    the bytes. It is one's own until that is done, and `PARTS` - 1 parts are used. Raises ValueError for more than a
    part has."""
    begin = self._next(alignment, remainder)
    if begin + nbytes > self.part_bytes:
      self.part, self.used = (self.part + 1) % PARTS, 0
      begin = self._next(alignment, remainder)
      if begin + nbytes > self.part_bytes:
        raise ValueError(f"{nbytes} bytes do not fit into a part of {self.part_bytes} bytes")
      self.timeline.wait(self.last[self.part])
    self.used = begin + nbytes
    self.last[self.part] = self.timeline.next
    place = self.part * self.part_bytes + begin
    return self.block.address + place, self.view[place : place + nbytes]

  def _next(self, alignment: int, remainder: int) -> int:
    """The next place in the part, which begins at a multiple of any alignment."""
    return (self.used - remainder + alignment - 1) // alignment * alignment + remainder
