"""Captured graphs: calls over a list of memories, any of which can be replaced, as one command buffer."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Protocol

from tiny_runtime import Binary, GraphCopy, GraphKernel
from tiny_runtime_metal.memory import Memory
from tiny_runtime_metal.programs import Call, Program
from tiny_uop import ParamInfo, UOp, dtypes

SHOWN = 4
THREADS = 256
# a blit would do, but its places and sizes have to be multiples of 4 on a Mac
SOURCE = """\
#include <metal_stdlib>
using namespace metal;

kernel void tiny_copy_bytes(device uchar* p0 [[buffer(0)]], device const uchar* p1 [[buffer(1)]], \
constant long* integers [[buffer(2)]], uint3 gid [[threadgroup_position_in_grid]], \
uint3 lid [[thread_position_in_threadgroup]]) {
  const long place = (long)gid.x * 256 + lid.x;
  if (place < integers[0]) p0[place] = p1[place];
}
"""
ONE = UOp.const(dtypes.index, 1)
COPY = Binary(
  SOURCE.encode(), "copy_bytes", (ONE,) * 3, (ONE,) * 3,
  tuple(ParamInfo(slot, dtypes.uint8, 1, slot == 0, slot == 1) for slot in range(2)), ("bytes",), ONE, ONE, SOURCE,
)  # fmt: skip
"""A kernel that copies bytes from any place to any other, in groups of `THREADS`."""


class Allocates(Protocol):
  """A device, as far as it has memory."""

  def alloc(self, nbytes: int) -> Memory: ...

  def free(self, memory: Memory) -> None: ...


class Spare:
  """Memory of a graph's own, for copies whose source and target overlap."""

  def __init__(self, device: Allocates) -> None:
    self.device = device
    self.memory: Memory | None = None

  def at_least(self, nbytes: int) -> Memory:
    """So many bytes. They are given back with this object."""
    if self.memory is None or self.memory.nbytes < nbytes:
      self.memory = self.device.alloc(nbytes)
      weakref.finalize(self, self.device.free, self.memory)
    return self.memory


class Graph:
  """What `make_graph` prepares. Raises ValueError for calls that do not fit."""

  def __init__(
    self, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[Memory], copier: Program | None, spare: Spare
  ) -> None:
    self.calls, self.memories, self.copier, self.spare = list(calls), list(memories), copier, spare
    self.as_calls()

  @property
  def names(self) -> str:
    """The kernels, some of them if there are many."""
    found = list(dict.fromkeys(call.program.name for call in self.calls if isinstance(call, GraphKernel)))
    more = f" and {len(found) - SHOWN} others" if len(found) > SHOWN else ""
    return f"kernels {', '.join(found[:SHOWN])}{more}"

  def as_calls(self) -> list[Call]:
    """The calls with the memories that they use now. Raises ValueError for memory that does not fit."""
    made = []
    for call in self.calls:
      made += [self._kernel(call)] if isinstance(call, GraphKernel) else self._copy(call)
    return made

  def _kernel(self, call: GraphKernel) -> Call:
    buffers = [(self.memories[position], offset) for position, offset in call.buffers]
    made = Call(call.program, buffers, call.integers, call.global_size, call.local_size)
    made.check()
    return made

  def _copy(self, call: GraphCopy) -> list[Call]:
    (to, target), (of, source) = call.target, call.source
    written, read = (self.memories[to], target), (self.memories[of], source)
    for memory, offset in (written, read):
      memory.at(offset, call.nbytes)
    if written[0] is not read[0] or abs(target - source) >= call.nbytes:
      return [self._bytes(written, read, call.nbytes)]
    apart = (self.spare.at_least(call.nbytes), 0)
    return [self._bytes(apart, read, call.nbytes), self._bytes(written, apart, call.nbytes)]

  def _bytes(self, target: tuple[Memory, int], source: tuple[Memory, int], nbytes: int) -> Call:
    assert self.copier is not None
    return Call(self.copier, [target, source], [nbytes], (-(-nbytes // THREADS), 1, 1), (THREADS, 1, 1))
