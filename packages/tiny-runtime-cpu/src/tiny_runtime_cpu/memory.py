"""Memory for buffers: aligned blocks in size classes, kept for reuse when freed."""

from __future__ import annotations

import ctypes
import mmap
from collections import OrderedDict, deque
from itertools import islice

from tiny_runtime import OutOfMemory, system
from tiny_runtime_cpu.host import memory_bytes
from tiny_uop.locks import shared_lock

ALIGNMENT = 64
SMALL = 64 << 10
"""Blocks up to this size are cut from shared slabs; larger ones are mappings of their own, aligned to pages."""
WARM = 1 << 30
"""Bytes of free large blocks that the system may not take."""
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
  view = system.new_pages(size, huge=size >= _HUGE)
  return system.address_of(view), view


class FreeBlocks:
  """Large blocks that nobody uses, by size and in the order in which they were freed.

  The youngest `warm` bytes of them stay as they are. The pages of older ones the system may take when it runs short of
  memory; until then they are as warm. Beyond `most` bytes, the oldest are returned.
  """

  def __init__(self, warm: int, most: int) -> None:
    self.warm, self.most = warm, most
    self.nbytes = 0
    self._by_size: dict[int, deque[Block]] = {}
    self._order: OrderedDict[int, Block] = OrderedDict()
    """By address, the oldest first. Those that the system may take come before the others."""
    self._lent: set[int] = set()
    """Addresses of blocks whose pages the system may take."""
    self._warm_nbytes = 0

  def pop(self, size: int) -> Block | None:
    """The block of this size that was freed last, if there is one."""
    blocks = self._by_size.get(size)
    if not blocks:
      return None
    block = blocks.pop()
    self._forget(block)
    return block

  def push(self, block: Block) -> None:
    """Take a block."""
    self._by_size.setdefault(block.size, deque()).append(block)
    self._order[block.start] = block
    self.nbytes += block.size
    self._warm_nbytes += block.size
    self.shrink(self.most)
    if self._warm_nbytes > self.warm:
      self._lend()

  def shrink(self, nbytes: int) -> None:
    """Return the oldest until at most so many bytes are left."""
    while self.nbytes > nbytes:
      oldest = next(iter(self._order.values()))
      self._by_size[oldest.size].popleft()
      self._forget(oldest)

  def _forget(self, block: Block) -> None:
    del self._order[block.start]
    self.nbytes -= block.size
    if block.start in self._lent:
      self._lent.remove(block.start)
    else:
      self._warm_nbytes -= block.size

  def _lend(self) -> None:
    for block in islice(self._order.values(), len(self._lent), None):
      if self._warm_nbytes <= self.warm:
        return
      system.lend(block.view)
      self._lent.add(block.start)
      self._warm_nbytes -= block.size


class Allocator:
  """Gives out blocks and takes them back. Freed blocks are reused for the same size class: a new page costs more than
  most kernels spend on it. Safe to use from several threads."""

  def __init__(self, limit: int = 0, keep: int = 0) -> None:
    """`limit`: bytes after which `alloc` raises OutOfMemory; 0 means the machine's memory. `keep`: bytes of large
    blocks to keep for reuse; 0 means a quarter of `limit`."""
    self.limit = limit or memory_bytes()
    keep = keep or max(WARM, self.limit // 4)
    self.used = 0
    self._large = FreeBlocks(min(WARM, keep), keep)
    self._small: dict[int, list[Block]] = {}
    self._slab: memoryview | None = None
    self._slab_start = self._slab_offset = 0
    self._lock = shared_lock()
    self._busy = False
    """Whether the thread that has the lock is in the middle of changing the lists of free blocks."""
    self._late: deque[Block] = deque()
    """Blocks that came back meanwhile, by a finaliser or signal handler in that thread."""

  @property
  def cached(self) -> int:
    """Bytes of large blocks that are kept for reuse."""
    return self._large.nbytes

  def alloc(self, nbytes: int) -> Block:
    """A block of at least `nbytes`, contents undefined, aligned to 64 bytes. Raises OutOfMemory."""
    if nbytes < 1:
      raise ValueError(f"cannot allocate {nbytes} bytes: the size must be at least 1")
    size = size_class(nbytes)
    with self._lock:
      if self._busy:
        block = self._around(size, nbytes)
      else:
        self._busy = True
        try:
          block = self._find(size) or self._make(size, nbytes)
        finally:
          self._busy = False
      self.used += size
    block.address = block.start
    block.nbytes = nbytes
    return block

  def adopt(self, data: memoryview) -> Block:
    """Memory of someone else as a block: of size 0, as nothing was set aside for it."""
    block = Block(ctypes.addressof(ctypes.c_char.from_buffer(data)), 0, data)
    block.address, block.nbytes = block.start, data.nbytes
    return block

  def free(self, block: Block) -> None:
    """Take a block back. Raises ValueError if it has been freed."""
    with self._lock:
      if block.address is None:
        raise ValueError(f"{block!r} was already freed")
      block.address = None
      if not block.size:
        block.view = memoryview(b"")
        return
      self.used -= block.size
      # a new object: whoever still holds the old one must not see the next user's memory through it
      self._late.append(Block(block.start, block.size, block.view))
      if not self._busy:
        self._busy = True
        try:
          self._take_late()
        finally:
          self._busy = False

  def trim(self) -> None:
    """Return free large blocks to the system."""
    with self._lock:
      if not self._busy:
        self._busy = True
        try:
          self._take_late()
          self._large.shrink(0)
        finally:
          self._busy = False

  def after_fork(self) -> None:
    """In a forked child: a thread that it does not have may have been in the middle. What it had is lost."""
    if self._busy:
      self._busy = False
      self._large, self._small, self._slab = FreeBlocks(self._large.warm, self._large.most), {}, None

  def _take_late(self) -> None:
    for _ in range(len(self._late)):  # not those that come meanwhile: they may be as many again
      block = self._late.popleft()
      if block.size > SMALL:
        self._large.push(block)
      else:
        self._small.setdefault(block.size, []).append(block)

  def _around(self, size: int, nbytes: int) -> Block:
    """A block that is in no list yet."""
    if self.limit and self.used + size > self.limit:
      raise self._out_of_memory(nbytes, "more than the limit")
    try:
      start, view = _map(max(size, mmap.PAGESIZE))
    except (OSError, ValueError, OverflowError, MemoryError) as error:
      raise self._out_of_memory(nbytes, str(error)) from None
    return Block(start, size, view[:size])

  def _find(self, size: int) -> Block | None:
    if size > SMALL:
      return self._large.pop(size)
    free = self._small.get(size)
    return free.pop() if free else None

  def _make(self, size: int, nbytes: int) -> Block:
    if self.limit:
      if self.used + size > self.limit:
        raise self._out_of_memory(nbytes, "more than the limit")
      self._large.shrink(self.limit - self.used - size)
    return self._cut(size) if size <= SMALL else self._map(size, nbytes)

  def _cut(self, size: int) -> Block:
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

  def _map(self, size: int, nbytes: int) -> Block:
    for attempt in range(2):
      try:
        start, view = _map(size)
        return Block(start, size, view)
      except (OSError, ValueError, OverflowError, MemoryError) as error:
        if attempt:
          raise self._out_of_memory(nbytes, str(error)) from None
        self._large.shrink(0)
    raise AssertionError("unreachable")

  def _out_of_memory(self, nbytes: int, why: str) -> OutOfMemory:
    return OutOfMemory(
      f"CPU: cannot allocate {nbytes} bytes ({why}): {self.used} of {self.limit} bytes are in use; "
      "free some buffers or use smaller ones"
    )
