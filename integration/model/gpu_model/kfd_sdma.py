"""The DMA engine of the model: reads a queue of SDMA packets bit by bit, and moves bytes.

After Linux's headers of packets (`vega10_sdma_pkt_open.h` for SDMA 4, `sdma_v6_0_0_pkt_open.h` for SDMA 6 and 7), as
they are remembered here. It shares no code with the plugin.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from gpu_model.kfd_objects import Blocked, Misuse, Queue, ticks

if TYPE_CHECKING:
  from gpu_model.kfd import Model

LENGTHS = {1: 7, 5: 4, 8: 6, 13: 3}
"""Words of a packet, by its operation: COPY_LINEAR, FENCE, POLL_REGMEM, TIMESTAMP. A NOP says how many follow it."""


class Engine:
  """Takes packets of queues. `log` has what was moved: target, source, bytes."""

  def __init__(self, model: Model) -> None:
    self.model = model
    self.old = model.chip.startswith("gfx9")
    self.log: list[tuple[int, int, int]] = []

  def waiting(self, queue: Queue) -> bool:
    """Whether there is something that it was told of."""
    return bool(queue.doorbell) and not queue.stopped and word(queue.doorbell) > queue.taken

  def take(self, queue: Queue) -> None:
    """Take packets up to where the doorbell says, or to one that waits. Counts bytes."""
    end, written = word(queue.doorbell), word(queue.write_pointer)
    if end != written or end % 4 or not 0 < end - queue.taken <= queue.ring_bytes:
      raise Misuse(f"an engine's doorbell was rung for {end}, {written} bytes are written, {queue.taken} were taken")
    while queue.taken < end:
      place = queue.taken % queue.ring_bytes
      first = halfword(queue.ring + place)
      size = self._size(first)
      if queue.taken + size > end:
        raise Misuse(f"a packet {first:#x} of {size} bytes, of which {end - queue.taken} are written")
      if place + size > queue.ring_bytes:
        raise Misuse(f"a packet {first:#x} goes over the end of the ring")
      self._run(queue, [halfword(queue.ring + place + n) for n in range(0, size, 4)])
      queue.taken += size
      ctypes.c_uint64.from_address(queue.read_pointer).value = queue.taken

  @staticmethod
  def _size(first: int) -> int:
    operation = first & 255
    if operation == 0:
      return 4 + 4 * (first >> 16 & 0x3FFF)
    if operation not in LENGTHS:
      raise Misuse(f"a packet {first:#x} of an engine, which the model does not know")
    return 4 * LENGTHS[operation]

  def _run(self, queue: Queue, words: list[int]) -> None:
    operation = words[0] & 255
    if operation == 1:
      self._copy(queue, words)
    elif operation == 5:
      self._fence(queue, words)
    elif operation == 8:
      self._poll(queue, words)
    elif operation == 13:
      if words[0] != 13 | 2 << 8:
        raise Misuse(f"a time of another clock: {words[0]:#x}")
      ctypes.c_uint64.from_address(self._place(queue, words[1:3], 8, 32)).value = ticks()
    elif words[0] & 0xC000FFFF:
      raise Misuse(f"a NOP with other fields: {words[0]:#x}")

  def _place(self, queue: Queue, words: list[int], nbytes: int, alignment: int) -> int:
    """An address in memory that the GPU can use. Raises Misuse."""
    address = words[1] << 32 | words[0]
    if address % alignment:
      raise Misuse(f"{address:#x} is no multiple of {alignment}")
    self.model.buffer_at(queue.gpu_id, address, nbytes)
    return address

  def _copy(self, queue: Queue, words: list[int]) -> None:
    first, count, parameter = words[:3]
    if first != 1:
      raise Misuse(f"a copy of another kind: {first:#x}")
    if count >> (22 if self.old else 30) or parameter:
      raise Misuse(f"a copy of {count + 1} bytes, or with bytes exchanged: {parameter:#x}")
    source, target = (self._place(queue, words[n : n + 2], count + 1, 1) for n in (3, 5))
    if abs(source - target) <= count:
      raise Misuse("a copy to where it is from")
    self.log.append((target, source, count + 1))
    ctypes.memmove(target, source, count + 1)

  def _fence(self, queue: Queue, words: list[int]) -> None:
    if words[0] != (5 if self.old else 5 | 3 << 16):
      raise Misuse(f"a fence that goes another way to memory: {words[0]:#x}")
    place = self._place(queue, words[1:3], 4, 4)
    ctypes.c_uint32.from_address(place).value = words[3]

  def _poll(self, queue: Queue, words: list[int]) -> None:
    first, value, mask, often = words[0], *words[3:6]
    if first != 8 | 3 << 28 | 1 << 31:
      raise Misuse(f"an engine looks at a register, or for something else than equality: {first:#x}")
    if often >> 16 != 0xFFF or not often & 0xFFFF or not mask:
      raise Misuse(f"an engine that looks for a while only: {often:#x}, mask {mask:#x}")
    place = self._place(queue, words[1:3], 4, 4)
    if halfword(place) & mask != value:
      raise Blocked


def word(address: int) -> int:
  """64 bits of memory."""
  return int(ctypes.c_uint64.from_address(address).value)


def halfword(address: int) -> int:
  """32 bits of memory."""
  return int(ctypes.c_uint32.from_address(address).value)
