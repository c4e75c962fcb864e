"""Memory that a GPU and this process have in common addresses: allocated, mapped, given back."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass, field

from tiny_runtime import OutOfMemory
from tiny_runtime.hcq import Block, Kind
from tiny_runtime_amd.gpus import Gpu
from tiny_runtime_amd.kfd import (
  COHERENT,
  EVENT_PAGE,
  EVENT_SIGNAL,
  EXECUTABLE,
  GTT,
  NO_SUBSTITUTE,
  VRAM,
  WRITABLE,
  KFDError,
  out_of_memory,
)
from tiny_runtime_amd.process import Process

PAGE, LARGE = 4096, 2 << 20
"""Memory of LARGE bytes and more begins at a multiple of that, so that the GPU can map it in large pages."""
FLAGS = {
  Kind.DEVICE: VRAM | NO_SUBSTITUTE | WRITABLE,
  Kind.CODE: VRAM | NO_SUBSTITUTE | WRITABLE | EXECUTABLE,
  # executable, for the one kernel that copies code into memory of kind CODE: that kernel runs from here
  Kind.HOST: GTT | COHERENT | WRITABLE | EXECUTABLE,
}


@dataclass(slots=True)
class Held:
  """What a block is made of: KFD's handle, addresses that were reserved for it (none, for code), and the GPUs that can
  use it, by `gpu_id`."""

  handle: int
  reserved: int
  reserved_bytes: int
  mapped: list[int] = field(default_factory=list)


class Memories:
  """Allocations of one device."""

  def __init__(self, process: Process, gpu: Gpu, name: str) -> None:
    self.process, self.kfd, self.system, self.gpu, self.name = process, process.kfd, process.system, gpu, name
    self.render = process.render(gpu)
    self.blocks: set[Block] = set()

  def allocate(self, nbytes: int, kind: Kind) -> Block:
    """Raises OutOfMemory."""
    size = -(-nbytes // PAGE) * PAGE
    try:
      reserved, reserved_bytes, address = self._addresses(size, kind)
    except OSError as error:
      raise OutOfMemory(f"{self.name}: no addresses for {nbytes} bytes: {error}") from error
    held = Held(0, reserved, reserved_bytes)
    try:
      made = self.kfd(
        "ALLOC_MEMORY_OF_GPU", va_addr=address, size=size, gpu_id=self.gpu.gpu_id, flags=FLAGS[kind]
      )  # fmt: skip
      held.handle = made.handle
      view = self._host_view(address, size, made.mmap_offset) if kind is Kind.HOST else None
      self._map(held, self.gpu)
    except OSError as error:
      if held.handle:
        self.kfd("FREE_MEMORY_OF_GPU", handle=held.handle)
      if reserved:
        self.system.unmap(reserved, reserved_bytes)
      if isinstance(error, KFDError) and out_of_memory(error):
        raise OutOfMemory(f"{self.name}: {nbytes} bytes asked for, of {self.gpu.memory}: {error}") from error
      raise
    block = Block(address, size, kind, view, held)
    self.blocks.add(block)
    return block

  def event_page(self) -> tuple[int, int] | None:
    """Address and handle of the memory that GPUs write to when they interrupt, mapped to this one too. There is one for
    as long as the process lives, and KFD is told before it makes an event of its own. None where it refuses, as where
    another library in the process did it."""
    page = self.process.event_page
    if page is None and not self.process.asked_for_events:
      self.process.asked_for_events = True
      try:
        page = self.allocate(EVENT_PAGE, Kind.HOST)
      except OutOfMemory:
        return None
      try:
        handle = page.handle.handle
        event = self.kfd("CREATE_EVENT", event_page_offset=handle, event_type=EVENT_SIGNAL, node_id=self.gpu.node)
        self.kfd("DESTROY_EVENT", event_id=event.event_id)
      except KFDError:
        self.release(page)
        return None
      self.blocks.discard(page)
      self.process.event_page = page
    if page is None:
      return None
    self.share(page, self.gpu)
    return page.address, page.handle.handle

  def share(self, block: Block, gpu: Gpu) -> None:
    """Let another GPU of the process use a block of this one's too, at the same addresses. Raises OutOfMemory."""
    held: Held = block.handle
    if gpu.gpu_id in held.mapped:
      return
    try:
      self._map(held, gpu)
    except KFDError as error:
      if out_of_memory(error):
        raise OutOfMemory(f"{self.name}: no room to map {block.nbytes} bytes to another GPU: {error}") from error
      raise

  def _addresses(self, size: int, kind: Kind) -> tuple[int, int, int]:
    """(begin, bytes) of what is reserved for it alone, and the address to use."""
    if kind is Kind.CODE:
      return 0, 0, self.process.code.take(size)
    alignment = LARGE if size >= LARGE else PAGE
    nbytes = size + alignment - PAGE
    begin = self.system.reserve(nbytes)
    return begin, nbytes, -(-begin // alignment) * alignment

  def _host_view(self, address: int, size: int, offset: int) -> memoryview:
    self.system.map(self.render, size, offset, address)
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")

  def _map(self, held: Held, gpu: Gpu) -> None:
    self._request("MAP_MEMORY_TO_GPU", held.handle, [gpu.gpu_id])
    held.mapped.append(gpu.gpu_id)

  def _request(self, name: str, handle: int, gpus: list[int]) -> None:
    ids = (ctypes.c_uint32 * len(gpus))(*gpus)
    self.kfd(name, handle=handle, device_ids_array_ptr=ctypes.addressof(ids), n_devices=len(gpus))

  def release(self, block: Block) -> None:
    """Give memory back, which nothing uses any more."""
    held: Held = block.handle
    self.blocks.discard(block)
    block.view = None
    self._request("UNMAP_MEMORY_FROM_GPU", held.handle, held.mapped)
    self.kfd("FREE_MEMORY_OF_GPU", handle=held.handle)
    if held.reserved:
      self.system.unmap(held.reserved, held.reserved_bytes)

  def close(self) -> None:
    """Give everything back. What KFD refuses then it has taken already, with a GPU that failed."""
    for block in list(self.blocks):
      with suppress(KFDError):
        self.release(block)
