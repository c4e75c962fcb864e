"""Copies between the host and the device's memory, by way of memory that both see."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tiny_runtime.hcq.hardware import Work
from tiny_runtime.hcq.host_ring import HostRing
from tiny_runtime.hcq.timeline import Timeline

ALIGNMENT = 64
"""A copy begins at the same place of so many bytes on both sides, which lets the device take wide steps."""


class Staging:
  """`copy` gives what copies bytes from one address to another, `submit` has it done."""

  def __init__(
    self, ring: HostRing, timeline: Timeline, copy: Callable[[int, int, int], Sequence[Work]],
    submit: Callable[[Sequence[Work]], int],
  ) -> None:  # fmt: skip
    self.ring, self.timeline, self.copy, self.submit = ring, timeline, copy, submit
    self.piece = ring.part_bytes - ALIGNMENT

  def write(self, address: int, data: memoryview) -> None:
    """Copy bytes to the device, in the order of the queue. They may change on return."""
    for start in range(0, data.nbytes, self.piece):
      part = data[start : start + self.piece]
      place, view = self.ring.take(part.nbytes, ALIGNMENT, (address + start) % ALIGNMENT)
      view[:] = part
      self.submit(self.copy(address + start, place, part.nbytes))

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
