"""Temporaries of a captured graph share memory: those that are not needed at the same time get the same place.

The scheduler has planned the temporaries inside of each schedule (tiny-sched's `memory_plan.py`): its arenas come here
as one buffer each. What is planned here lies between: buffers that one schedule of the captured function writes and
another reads. Graphs that are never replayed at the same time may have one `Arena`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tiny_runtime.buffer import Buffer
from tiny_runtime.execution.launch import Launch
from tiny_uop import DType, dtypes
from tiny_uop.locks import shared_lock

ALIGNMENT = 128
"""Bytes; what kernels for vectors and for GPUs like, and a multiple of every type's size."""

Lifetime = tuple[int, int]
"""The first and the last launch that use a buffer."""


class Arena:
  """Memory for the temporaries of captured graphs that are replayed one after the other: one buffer on each device, as
  large as the largest of them needs. Its lock lets one replay in at a time, of whichever of them."""

  def __init__(self) -> None:
    self.lock = shared_lock()
    self.busy = False
    """Whether a replay is under way. In the thread that has the lock, another must not begin."""
    self._buffers: dict[str, Buffer] = {}

  @property
  def nbytes(self) -> int:
    """Bytes on all devices."""
    return sum(buffer.nbytes for buffer in self._buffers.values())

  def of(self, device: str, size: int = 0) -> Buffer:
    """The memory on a device, of `size` bytes at least. What has too few is freed; graphs that have it must `move`."""
    buffer = self._buffers.get(device)
    if buffer is None or buffer.nbytes < size:
      if buffer is not None:
        buffer.free()
      buffer = self._buffers[device] = Buffer(device, size, dtypes.uint8)
      buffer.temporaries = True
    return buffer

  def release(self) -> None:
    """Give the memory back until the next replay."""
    for buffer in self._buffers.values():
      buffer.release()


def share_memory(launches: Sequence[Launch], temporaries: Collection[Buffer], arena: Arena) -> list[Buffer]:
  """Give the temporaries of each device places in the memory of an arena, in all launches, and free what they had.
  Gives the buffers of the arena that are used.

  They must be written by the first launch that uses them, and looked at by nothing but the launches.
  """
  lifetimes: dict[Buffer, Lifetime] = {}
  for n, launch in enumerate(launches):
    for buffer in launch.buffers:
      if buffer.base in temporaries:
        lifetimes[buffer.base] = (lifetimes.get(buffer.base, (n, n))[0], n)
  offsets: dict[Buffer, int] = {}
  used = []
  for device in sorted({buffer.device for buffer in lifetimes}):
    mine = {buffer: (buffer.nbytes, life) for buffer, life in lifetimes.items() if buffer.device == device}
    places, size = plan(mine)
    offsets |= places
    used.append(arena.of(device, size))
  _place(launches, {buffer: (arena.of(buffer.device), offset) for buffer, offset in offsets.items()})
  for buffer in lifetimes:
    buffer.free()
  return used


def move(launches: Sequence[Launch], used: Sequence[Buffer], arena: Arena) -> list[Buffer]:
  """Put the buffers that an arena has now in the place of those that it had, which launches use. Gives them."""
  new = [arena.of(buffer.device) for buffer in used]
  _place(launches, {old: (buffer, 0) for old, buffer in zip(used, new)})
  return new


def _place(launches: Sequence[Launch], places: dict[Buffer, tuple[Buffer, int]]) -> None:
  """Replace buffers, and views of them, by parts of others that begin at a byte."""
  views: dict[tuple[Buffer, int, int, DType], Buffer] = {}  # a model of many layers has the same ones in each
  for launch in launches:
    for slot, buffer in enumerate(launch.buffers):
      if (found := places.get(buffer.base)) is not None:
        place = found[0], found[1] + buffer.offset, buffer.size, buffer.dtype
        launch.buffers[slot] = views.get(place) or views.setdefault(place, found[0].view(*place[1:]))


def plan(needs: dict[Buffer, tuple[int, Lifetime]]) -> tuple[dict[Buffer, int], int]:
  """The offset of each buffer, given its bytes and lifetime; and the bytes that all of them need.

  The largest first, each at the lowest place that is free for as long as it lives: "greedy by size" in Pisarchyk and
  Lee, Efficient Memory Management for Deep Neural Net Inference, 2020.
  """
  placed: list[tuple[int, int, Lifetime]] = []
  offsets: dict[Buffer, int] = {}
  for buffer, (nbytes, life) in sorted(needs.items(), key=lambda item: -item[1][0]):
    size = -(-max(1, nbytes) // ALIGNMENT) * ALIGNMENT
    start = _lowest(size, (span for span in placed if span[2][0] <= life[1] and life[0] <= span[2][1]))
    placed.append((start, start + size, life))
    offsets[buffer] = start
  return offsets, max((end for _, end, _ in placed), default=0)


def _lowest(size: int, taken: Iterable[tuple[int, int, Lifetime]]) -> int:
  start = 0
  for begin, end, _ in sorted(taken):
    if begin - start >= size:
      break
    start = max(start, end)
  return start
