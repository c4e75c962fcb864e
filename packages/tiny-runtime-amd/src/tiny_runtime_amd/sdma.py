"""The DMA engines (SDMA): packets that copy bytes, and a queue of such, by which copies run beside kernels.

Sources, from memory: Linux's `vega10_sdma_pkt_open.h` and `sdma_v6_0_0_pkt_open.h` (fields of packets), `sdma_v4_0.c`
to `sdma_v7_0.c` (how they are filled in), and the copies of ROCm's runtime (`amd_blit_sdma.cpp`), which pads the end of
the ring, since a packet is in one piece.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress

from tiny_runtime.hcq import Kind
from tiny_runtime_amd.arch import Arch
from tiny_runtime_amd.gpus import Gpu
from tiny_runtime_amd.kfd import MOST_PERCENT, PRIORITY, SDMA, KFDError
from tiny_runtime_amd.memory import Memories

NOP, COPY, FENCE, POLL, TIMESTAMP = 0, 1, 5, 8, 13
"""Operations, in the lowest byte of a packet's first word; the next byte says more."""
GET_GLOBAL = 2 << 8
"""The clock that packets of other queues give times of, too."""
UNCACHED = 3 << 16
"""From SDMA 5 (RDNA) on: a fence is written past the caches."""
MEMORY, EQUAL = 1 << 31, 3 << 28
INTERVAL, FOREVER = 10, 0xFFF << 16
"""Between two looks at a place, in cycles; how often it is looked at."""
RING = 1 << 20
"""Bytes of the ring."""
READ, WRITTEN = 0, 64
"""Where the ring's pointers are in their page: bytes, counted without end."""
Words = list[int]


def most_bytes(arch: Arch) -> int:
  """That a packet copies: its count has 22 bits on SDMA 4 (CDNA), 30 on SDMA 6 and 7 (RDNA 3 and 4)."""
  return 1 << (22 if arch.major == 9 else 30)


def _address(address: int) -> Words:
  return [address & 0xFFFFFFFF, address >> 32]


def copies(arch: Arch, target: int, source: int, nbytes: int) -> list[Words]:
  """Packets that copy bytes, at any addresses; they do not overlap."""
  most = most_bytes(arch)
  return [
    [COPY, min(most, nbytes - at) - 1, 0, *_address(source + at), *_address(target + at)]
    for at in range(0, nbytes, most)
  ]


def fence(arch: Arch, place: int, value: int) -> Words:
  """32 bits are written, once all copies before are done."""
  return [FENCE | (0 if arch.major == 9 else UNCACHED), *_address(place), value]


def poll(place: int, value: int) -> Words:
  """The packets behind begin when 32 bits have this value."""
  return [POLL | MEMORY | EQUAL, *_address(place), value, 0xFFFFFFFF, INTERVAL | FOREVER]


def timestamp(place: int) -> Words:
  """The clock is written to 64 bits, at a multiple of 32 bytes."""
  return [TIMESTAMP | GET_GLOBAL, *_address(place)]


class SDMAQueue:
  """A queue of a DMA engine. `doorbell` gives the word for an offset that KFD tells. Raises KFDError where Linux gives
  none, OutOfMemory."""

  def __init__(
    self, memories: Memories, gpu: Gpu, doorbell: Callable[[int], memoryview], pause: Callable[[], None]
  ) -> None:
    self.memories, self.kfd, self.pause = memories, memories.kfd, pause
    self.ring, self.pointers = memories.allocate(RING, Kind.HOST), memories.allocate(4096, Kind.HOST)
    assert self.ring.view is not None and self.pointers.view is not None
    self.words, self.places = self.ring.view.cast("I"), self.pointers.view.cast("Q")
    self.written = 0
    """Words, without end."""
    try:
      made = self.kfd(
        "CREATE_QUEUE", ring_base_address=self.ring.address, ring_size=self.ring.nbytes, gpu_id=gpu.gpu_id,
        write_pointer_address=self.pointers.address + WRITTEN, read_pointer_address=self.pointers.address + READ,
        queue_type=SDMA, queue_percentage=MOST_PERCENT, queue_priority=PRIORITY,
      )  # fmt: skip
    except KFDError:
      self._release()
      raise
    self.number, self.doorbell = made.queue_id, doorbell(made.doorbell_offset)

  def put(self, packets: Sequence[Words]) -> None:
    """Hand packets to the engine. Waits where there is no room: those before must be able to end."""
    for packet in packets:
      if (room := len(self.words) - self.written % len(self.words)) < len(packet):
        self._write([NOP] * room)
      self._write(packet)
    self._tell()

  def _write(self, words: Words) -> None:
    while len(self.words) - (self.written - self.places[READ // 8] // 4) < len(words):
      self._tell()
      self.pause()
    place = self.written % len(self.words)
    self.words[place : place + len(words)] = memoryview(array("I", words))
    self.written += len(words)

  def _tell(self) -> None:
    self.places[WRITTEN // 8] = 4 * self.written
    self.doorbell[0] = 4 * self.written

  def _release(self) -> None:
    self.words, self.places = self.words[:0], self.places[:0]
    for block in (self.ring, self.pointers):
      self.memories.release(block)

  def close(self) -> None:
    """Destroy it. Its memory goes with the others'."""
    with suppress(KFDError):
      self.kfd("DESTROY_QUEUE", queue_id=self.number)
