"""Memory that a GPU and this process have in common addresses: allocated, mapped, given back."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass

from tiny_runtime import OutOfMemory
from tiny_runtime.hcq import Block, Kind
from tiny_runtime_amd.gpus import Gpu
from tiny_runtime_amd.kfd import COHERENT, EXECUTABLE, GTT, NO_SUBSTITUTE, VRAM, WRITABLE, KFDError, out_of_memory
from tiny_runtime_amd.process import Process

PAGE, LARGE = 4096, 2 << 20
"""Memory of LARGE bytes and more begins at a multiple of that, so that the GPU can map it in large pages."""
FLAGS = {
  Kind.DEVICE: VRAM | NO_SUBSTITUTE | WRITABLE,
  Kind.CODE: VRAM | NO_SUBSTITUTE | WRITABLE | EXECUTABLE,
  # code in it is that of the kernels that copy other code to where it belongs
  Kind.HOST: GTT | COHERENT | WRITABLE | EXECUTABLE,
}


@dataclass(slots=True)
class Held:
  """What a block is made of: KFD's handle, and addresses that were reserved for it (none, for code)."""

  handle: int
  reserved: int
  reserved_bytes: int


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
    handle = 0
    try:
      made = self.kfd(
        "ALLOC_MEMORY_OF_GPU", va_addr=address, size=size, gpu_id=self.gpu.gpu_id, flags=FLAGS[kind]
      )  # fmt: skip
      handle = made.handle
      view = self._host_view(address, size, made.mmap_offset) if kind is Kind.HOST else None
      self._map("MAP_MEMORY_TO_GPU", handle)
    except OSError as error:
      if handle:
        self.kfd("FREE_MEMORY_OF_GPU", handle=handle)
      if reserved:
        self.system.unmap(reserved, reserved_bytes)
      if isinstance(error, KFDError) and out_of_memory(error):
        raise OutOfMemory(f"{self.name}: {nbytes} bytes asked for, of {self.gpu.memory}: {error}") from error
      raise
    block = Block(address, size, kind, view, Held(handle, reserved, reserved_bytes))
    self.blocks.add(block)
    return block

  def _addresses(self, size: int, kind: Kind) -> tuple[int, int, int]:
    """(begin, bytes) of what is reserved for it alone, and the address to use."""
    if kind is Kind.CODE:
      return 0, 0, self.process.code_addresses(size)
    alignment = LARGE if size >= LARGE else PAGE
    nbytes = size + alignment - PAGE
    begin = self.system.reserve(nbytes)
    return begin, nbytes, -(-begin // alignment) * alignment

  def _host_view(self, address: int, size: int, offset: int) -> memoryview:
    self.system.map(self.render, size, offset, address)
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")

  def _map(self, request: str, handle: int) -> None:
    ids = (ctypes.c_uint32 * 1)(self.gpu.gpu_id)
    self.kfd(request, handle=handle, device_ids_array_ptr=ctypes.addressof(ids), n_devices=1)

  def release(self, block: Block) -> None:
    """Give memory back, which nothing uses any more."""
    held: Held = block.handle
    self.blocks.discard(block)
    block.view = None
    self._map("UNMAP_MEMORY_FROM_GPU", held.handle)
    self.kfd("FREE_MEMORY_OF_GPU", handle=held.handle)
    if held.reserved:
      self.system.unmap(held.reserved, held.reserved_bytes)

  def close(self) -> None:
    """Give everything back. What KFD refuses then it has taken already, with a GPU that failed."""
    for block in list(self.blocks):
      with suppress(KFDError):
        self.release(block)
