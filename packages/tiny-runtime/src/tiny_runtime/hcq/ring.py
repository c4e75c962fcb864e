"""A ring of slots of one size, which the host fills and the hardware empties."""

from __future__ import annotations

from collections.abc import Callable, Iterator


class Ring:
  """Slots that are numbered without end; slot n is at place n % `slots`. `read` gives the first one that the hardware
  has not taken yet, `pause` waits for it to take some."""

  def __init__(
    self, view: memoryview, slot_bytes: int, read: Callable[[], int], pause: Callable[[], None], written: int = 0
  ) -> None:
    self.view, self.slot_bytes, self.slots = view, slot_bytes, view.nbytes // slot_bytes
    if self.slots < 1 or self.slots & self.slots - 1:
      raise ValueError(f"a ring has a power of two of slots, not {self.slots}")
    self.read, self.pause = read, pause
    self.written = written
    """The number of the next slot."""

  def pieces(self, count: int) -> Iterator[tuple[int, int]]:
    """Room for `count` slots, as (number of the first, how many), each as it is free: a piece does not go over the end
    of the ring. Who is given one fills it, and tells the hardware, before the next."""
    while count:
      place = self.written % self.slots
      size = min(count, self.slots - place)
      while (free := self.slots - (self.written - self.read())) < min(size, self.slots // 2):
        self.pause()
      size = min(size, free)
      first, self.written = self.written, self.written + size
      yield first, size
      count -= size

  def at(self, number: int, count: int = 1) -> memoryview:
    """The bytes of slots that are next to each other."""
    begin = number % self.slots * self.slot_bytes
    return self.view[begin : begin + count * self.slot_bytes]
