"""The device's memory: what was freed is used again for what is about as large."""

from __future__ import annotations

from collections import defaultdict

from tiny_runtime.errors import OutOfMemory
from tiny_runtime.handles import AddressedMemory
from tiny_runtime.hcq.hardware import Block, Hardware, Kind
from tiny_runtime.hcq.timeline import Timeline

PAGE = 4096
STEPS = 16
"""Sizes between two powers of two."""


class Memory(AddressedMemory):
  """One allocation: a handle of the contract."""

  __slots__ = ("block",)

  def __init__(self, block: Block, nbytes: int) -> None:
    super().__init__(block.address, nbytes)
    self.block = block


class Pool:
  """Memory of kind DEVICE. What is freed may be used again at once: whatever uses it then is done after all that used
  it before, since there is one queue."""

  def __init__(self, hardware: Hardware, timeline: Timeline) -> None:
    self.hardware, self.timeline = hardware, timeline
    self.free_blocks: defaultdict[int, list[Block]] = defaultdict(list)
    self.held: set[Memory] = set()

  def alloc(self, nbytes: int) -> Memory:
    """Raises OutOfMemory."""
    size = rounded(nbytes)
    if blocks := self.free_blocks[size]:
      block = blocks.pop()
    else:
      block = self._new(nbytes, size)
    memory = Memory(block, nbytes)
    self.held.add(memory)
    return memory

  def _new(self, nbytes: int, size: int) -> Block:
    info = self.hardware.info
    if nbytes > info.memory > 0:
      raise OutOfMemory(f"{info.name}: {nbytes} bytes asked for, it has {info.memory}")
    try:
      return self.hardware.allocate(size, Kind.DEVICE)
    except OutOfMemory:
      self.trim()
    try:
      return self.hardware.allocate(-(-nbytes // PAGE) * PAGE, Kind.DEVICE)
    except OutOfMemory as error:
      used = sum(memory.nbytes for memory in self.held)
      raise OutOfMemory(f"{error}; {used} bytes are in use by this device's buffers") from error

  def free(self, memory: Memory) -> None:
    """Take memory back. Raises ValueError if it was."""
    memory.at(0, memory.nbytes)
    memory.address = 0
    self.held.discard(memory)
    memory.block.last = self.timeline.submitted  # any of them may use it
    self.free_blocks[memory.block.nbytes].append(memory.block)

  def trim(self) -> None:
    """Give what is not in use back to the driver, once nothing runs that may use it."""
    self.timeline.wait(self.timeline.submitted)
    self.timeline.collect()
    while self.free_blocks:
      for block in self.free_blocks.popitem()[1]:
        self.hardware.release(block)


def rounded(nbytes: int) -> int:
  """The size of the block for so many bytes: a sixteenth more at most, or to the next page."""
  step = max(PAGE, (1 << nbytes.bit_length() - 1) // STEPS)
  return -(-nbytes // step) * step
