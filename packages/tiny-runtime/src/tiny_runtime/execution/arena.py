"""Temporaries of a captured graph share memory: those that are not needed at the same time get the same place.

The scheduler has planned the temporaries inside of each schedule (tiny-sched's `memory_plan.py`): its arenas come here
as one buffer each. What is planned here lies between: buffers that one schedule of the captured function writes and
another reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tiny_runtime.buffer import Buffer
from tiny_runtime.execution.launch import Launch
from tiny_uop import DType, dtypes

ALIGNMENT = 128
"""Bytes; what kernels for vectors and for GPUs like, and a multiple of every type's size."""

Lifetime = tuple[int, int]
"""The first and the last launch that use a buffer."""


def share_memory(launches: Sequence[Launch], temporaries: Collection[Buffer]) -> None:
  """Give the temporaries of each device places in one new buffer, in all launches, and free what they had.

  They must be written by the first launch that uses them, and looked at by nothing but the launches.
  """
  lifetimes: dict[Buffer, Lifetime] = {}
  for n, launch in enumerate(launches):
    for buffer in launch.buffers:
      if buffer.base in temporaries:
        lifetimes[buffer.base] = (lifetimes.get(buffer.base, (n, n))[0], n)
  for device in {buffer.device for buffer in lifetimes}:
    mine = {buffer: life for buffer, life in lifetimes.items() if buffer.device == device}
    if len(mine) > 1:
      _share(launches, mine)


def _share(launches: Sequence[Launch], lifetimes: dict[Buffer, Lifetime]) -> None:
  offsets, size = plan({buffer: (buffer.nbytes, life) for buffer, life in lifetimes.items()})
  arena = Buffer(next(iter(lifetimes)).device, size, dtypes.uint8)
  arena.temporaries = True
  views: dict[tuple[int, int, DType], Buffer] = {}  # a model of many layers has the same ones in each
  for launch in launches:
    for slot, buffer in enumerate(launch.buffers):
      if (offset := offsets.get(buffer.base)) is not None:
        place = offset + buffer.offset, buffer.size, buffer.dtype
        launch.buffers[slot] = views.get(place) or views.setdefault(place, arena.view(*place))
  for buffer in lifetimes:
    buffer.free()


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
