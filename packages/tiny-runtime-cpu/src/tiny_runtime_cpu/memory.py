"""Memory for buffers: aligned blocks in size classes, kept for reuse when freed."""

from __future__ import annotations

import ctypes
import mmap
import threading

from tiny_runtime import OutOfMemory
from tiny_runtime_cpu.host import memory_bytes

ALIGNMENT = 64
SMALL = 64 << 10
"""Blocks up to this size are cut from shared slabs; larger ones are mappings of their own, aligned to pages."""
_SLAB = 1 << 20
_HUGE = 4 << 20  # from here on, ask the system for huge pages: fewer TLB misses


class Block:
  """One allocation. `address` is None once it is freed, so that a launch that still uses it fails."""

  __slots__ = ("address", "nbytes", "size", "start", "view")

  def __init__(self, start: int, size: int, view: memoryview) -> None:
    self.address: int | None = None
    self.nbytes = 0
    self.start = start
    self.size = size
    self.view = view

  def __repr__(self) -> str:
    return (
      f"Block({self.nbytes} bytes, freed)"
      if self.address is None
      else f"Block({self.nbytes} bytes at {self.address:#x})"
    )


def size_class(nbytes: int) -> int:
  """Bytes set aside for an allocation: rounded up to one of four steps per power of two, so at most 25 % are lost."""
  step = max(ALIGNMENT, 1 << max(0, nbytes - 1).bit_length() - 3) if nbytes > ALIGNMENT else ALIGNMENT
  size = -(-nbytes // step) * step
  return size if size <= SMALL else -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _map(size: int) -> tuple[int, memoryview]:
  """New zeroed pages; they are given back when the memoryview goes."""
  if hasattr(mmap, "MAP_PRIVATE"):
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
  else:
    area = mmap.mmap(-1, size)
  if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
    try:
      area.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
      pass  # a kernel without huge pages
  return ctypes.addressof(ctypes.c_char.from_buffer(area)), memoryview(area)


class Allocator:
  """Gives out blocks and takes them back. Freed blocks are reused for the same size class; the large ones are returned
  to the system when they come to more than `keep` bytes, or when the system has no more. Safe to use from several
  threads."""

  def __init__(self, limit: int = 0, keep: int = 1 << 30) -> None:
    """`limit`: bytes after which `alloc` raises OutOfMemory; 0 means the machine's memory."""
    self.limit = limit or memory_bytes()
    self.keep = keep
    self.used = 0
    self.cached = 0
    self._free: dict[int, list[Block]] = {}
    self._slab: memoryview | None = None
    self._slab_start = self._slab_offset = 0
    self._lock = threading.Lock()

  def alloc(self, nbytes: int) -> Block:
    """A block of at least `nbytes`, contents undefined, aligned to 64 bytes. Raises OutOfMemory."""
    if nbytes < 1:
      raise ValueError(f"cannot allocate {nbytes} bytes: the size must be at least 1")
    size = size_class(nbytes)
    with self._lock:
      free = self._free.get(size)
      if free:
        block = free.pop()
        if size > SMALL:
          self.cached -= size
      else:
        if self.limit and self.used + size > self.limit:
          raise self._out_of_memory(nbytes, "more than the limit")
        block = self._small(size) if size <= SMALL else self._large(size, nbytes)
      self.used += size
    block.address = block.start
    block.nbytes = nbytes
    return block

  def free(self, block: Block) -> None:
    """Take a block back. Raises ValueError if it has been freed."""
    with self._lock:
      if block.address is None:
        raise ValueError(f"{block!r} was already freed")
      block.address = None
      self.used -= block.size
      # a new object: whoever still holds the old one must not see the next user's memory through it
      self._free.setdefault(block.size, []).append(Block(block.start, block.size, block.view))
      if block.size > SMALL:
        self.cached += block.size
        if self.cached > self.keep:
          self._trim()

  def trim(self) -> None:
    """Return free large blocks to the system."""
    with self._lock:
      self._trim()

  def _trim(self) -> None:
    self._free = {size: blocks for size, blocks in self._free.items() if size <= SMALL}
    self.cached = 0

  def _small(self, size: int) -> Block:
    if self._slab is None or self._slab_offset + size > _SLAB:
      # the rest of the old slab is lost, at most 1/16 of it
      try:
        self._slab_start, self._slab = _map(_SLAB)
      except (OSError, ValueError) as error:
        raise self._out_of_memory(size, str(error)) from None
      self._slab_offset = 0
    offset = self._slab_offset
    self._slab_offset += size
    return Block(self._slab_start + offset, size, self._slab[offset : offset + size])

  def _large(self, size: int, nbytes: int) -> Block:
    for attempt in range(2):
      try:
        start, view = _map(size)
        return Block(start, size, view)
      except (OSError, ValueError, OverflowError, MemoryError) as error:
        if attempt:
          raise self._out_of_memory(nbytes, str(error)) from None
        self._trim()
    raise AssertionError("unreachable")

  def _out_of_memory(self, nbytes: int, why: str) -> OutOfMemory:
    return OutOfMemory(
      f"CPU: cannot allocate {nbytes} bytes ({why}): {self.used} of {self.limit} bytes are in use; "
      "free some buffers or use smaller ones"
    )
