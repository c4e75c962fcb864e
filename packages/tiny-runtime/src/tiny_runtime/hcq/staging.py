"""Memory of the host that is used in turns: for arguments, and for bytes on their way from and to the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from tiny_runtime.hcq.hardware import Block, Transfer, Work
from tiny_runtime.hcq.timeline import Timeline

PARTS = 4
ALIGNMENT = 64
"""A copy begins at the same place of so many bytes on both sides, which lets the device take wide steps."""


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


class Staging:
  """Copies between the host and the device's memory, by way of memory that both see. `copy` gives what copies bytes
  from one address to another, `submit` has it done."""

  def __init__(
    self, ring: HostRing, timeline: Timeline, copy: Callable[[int, int, int], Sequence[Work]],
    submit: Callable[[Sequence[Work]], int],
  ) -> None:  # fmt: skip
    self.ring, self.timeline, self.copy, self.submit = ring, timeline, copy, submit
    self.piece = ring.part_bytes - ALIGNMENT

  def write(self, address: int, data: memoryview, ahead: bool = False) -> None:
    """Copy bytes to the device, in the order of the queue; `ahead` of what is under way, and does not use the memory.
    They may change on return."""
    for start in range(0, data.nbytes, self.piece):
      part = data[start : start + self.piece]
      place, view = self.ring.take(part.nbytes, ALIGNMENT, (address + start) % ALIGNMENT)
      view[:] = part
      work = self.copy(address + start, place, part.nbytes)
      if ahead:
        work = [replace(item, ahead=True) if isinstance(item, Transfer) else item for item in work]
      self.submit(work)

  def read(self, address: int, out: memoryview) -> None:
    """Copy bytes from the device, when the queue has come to that. The device copies a piece while the host takes the
    one before it."""
    under_way: deque[tuple[int, memoryview, memoryview]] = deque()
    for start in range(0, out.nbytes, self.piece):
      part = out[start : start + self.piece]
      place, view = self.ring.take(part.nbytes, ALIGNMENT, (address + start) % ALIGNMENT)
      under_way.append((self.submit(self.copy(place, address + start, part.nbytes)), part, view))
      if len(under_way) > 1:
        self._fetch(*under_way.popleft())
    while under_way:
      self._fetch(*under_way.popleft())

  def _fetch(self, number: int, part: memoryview, view: memoryview) -> None:
    self.timeline.wait(number)
    part[:] = view
