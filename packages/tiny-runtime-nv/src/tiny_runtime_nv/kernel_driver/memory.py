"""Memory that a GPU and this process have at the same addresses: allocated, mapped, given back."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass, field

from tiny_runtime import DeviceLost, OutOfMemory
from tiny_runtime.hcq import Block, Kind
from tiny_runtime.hcq.system import FreshAddresses
from tiny_runtime_nv.kernel_driver.resource_manager import CONTROL_FILE, ResourceManager, RMError
from tiny_runtime_nv.kernel_driver.tables import constant, flags, structure
from tiny_runtime_nv.kernel_driver.uvm import UVM

PAGE, LARGE = 4096, 2 << 20
LOWEST, LOW_END, STEP = 0x10_0000_0000, 1 << 40, 64 << 20
"""The host's memory is where addresses have 40 bits, which is all that channels and semaphores have room for before
Hopper. Where there is something already, it is tried so many bytes further."""
ON_GPU = flags("NVOS32_ATTR", LOCATION="VIDMEM", PHYSICALITY="ALLOW_NONCONTIGUOUS")
OF_HOST = flags("NVOS32_ATTR", LOCATION="PCI", PHYSICALITY="NONCONTIGUOUS", COHERENCY="CACHED", PAGE_SIZE="4KB")
SMALL_PAGES, LARGE_PAGES = flags("NVOS32_ATTR", PAGE_SIZE="4KB"), flags("NVOS32_ATTR", PAGE_SIZE="HUGE")
ATTRIBUTES_2 = flags("NVOS32_ATTR2", ZBC="PREFER_NO_ZBC", GPU_CACHEABLE="YES")
LARGE_2 = flags("NVOS32_ATTR2", PAGE_SIZE_HUGE="2MB")
ALIGNED = constant("NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE") | constant("NVOS32_ALLOC_FLAGS_MAP_NOT_REQUIRED")


@dataclass(slots=True)
class Held:
  """What a block is made of: the resource manager's handle, and addresses that were reserved for it (none, for
  code)."""

  handle: int
  reserved: int
  reserved_bytes: int
  mapped: list[UVM] = field(default_factory=list)
  """The address spaces that it is in."""


class Memories:
  """Allocations of one device, children of its object `device`."""

  def __init__(self, manager: ResourceManager, uvm: UVM, device: int, code: FreshAddresses, name: str) -> None:
    self.manager, self.uvm, self.device, self.code, self.name = manager, uvm, device, code, name
    self.system = manager.system
    self.blocks: set[Block] = set()
    self.lowest = LOWEST

  def allocate(self, nbytes: int, kind: Kind) -> Block:
    """Raises OutOfMemory."""
    large = nbytes >= LARGE and kind is not Kind.HOST
    unit = LARGE if large else PAGE
    size = -(-nbytes // unit) * unit
    try:
      reserved, reserved_bytes, address = self._addresses(size, kind, unit)
    except OSError as error:
      raise OutOfMemory(f"{self.name}: no addresses for {nbytes} bytes: {error}") from error
    handle = 0
    try:
      handle = self._object(size, kind, large)
      if kind is Kind.HOST:
        self.manager.map(CONTROL_FILE, self.device, handle, size, address)
      self.uvm.map(address, size, handle)
    except OSError as error:
      if handle:
        with suppress(RMError):
          self.manager.free(handle, self.device)
      if reserved:
        self.system.unmap(reserved, reserved_bytes)
      if isinstance(error, RMError) and error.out_of_memory:
        raise OutOfMemory(f"{self.name}: {nbytes} bytes asked for: {error}") from error
      if isinstance(error, RMError) and error.lost:
        raise DeviceLost(str(error)) from error
      raise
    view = memoryview((ctypes.c_char * size).from_address(address)).cast("B") if kind is Kind.HOST else None
    block = Block(address, size, kind, view, Held(handle, reserved, reserved_bytes, [self.uvm]))
    self.blocks.add(block)
    return block

  def share(self, block: Block, uvm: UVM) -> None:
    """Let another GPU of the process use a block of this one's, too, at the same addresses. Raises OutOfMemory,
    RMError."""
    held: Held = block.handle
    if any(other is uvm for other in held.mapped):
      return
    try:
      uvm.map(block.address, block.nbytes, held.handle)
    except RMError as error:
      if error.out_of_memory:
        raise OutOfMemory(f"{self.name}: no room to map {block.nbytes} bytes to another GPU: {error}") from error
      raise
    held.mapped.append(uvm)

  def _object(self, size: int, kind: Kind, large: bool) -> int:
    params = structure("NV_MEMORY_ALLOCATION_PARAMS")(
      owner=self.manager.root, type=constant("NVOS32_TYPE_IMAGE"), size=size, alignment=LARGE if large else PAGE,
      flags=ALIGNED, attr2=0 if kind is Kind.HOST else ATTRIBUTES_2 | (LARGE_2 if large else 0),
      attr=OF_HOST if kind is Kind.HOST else ON_GPU | (LARGE_PAGES if large else SMALL_PAGES),
    )  # fmt: skip
    name = "NV01_MEMORY_SYSTEM" if kind is Kind.HOST else "NV01_MEMORY_LOCAL_USER"
    return self.manager.alloc(self.device, name, params)

  def _addresses(self, size: int, kind: Kind, unit: int) -> tuple[int, int, int]:
    """(begin, bytes) of what is reserved for it alone, and the address to use."""
    if kind is Kind.CODE:
      return 0, 0, self.code.take(size, unit)
    if kind is Kind.HOST:
      begin = self._low(size)
      return begin, size, begin
    nbytes = size + unit - PAGE
    begin = self.system.reserve(nbytes)
    return begin, nbytes, -(-begin // unit) * unit

  def _low(self, size: int) -> int:
    """Addresses of 40 bits."""
    for _ in range((LOW_END - LOWEST) // STEP):
      if self.lowest + size > LOW_END:
        self.lowest = LOWEST
      try:
        begin = self.system.reserve(size, self.lowest)
      except FileExistsError:
        self.lowest += STEP
        continue
      self.lowest += size
      return begin
    raise OSError(f"nothing is free below {LOW_END:#x}")

  def release(self, block: Block) -> None:
    """Give memory back, which nothing uses any more."""
    held: Held = block.handle
    self.blocks.discard(block)
    block.view = None
    for uvm in held.mapped:
      uvm.unmap(block.address)
    self.manager.free(held.handle, self.device)
    if held.reserved:
      self.system.unmap(held.reserved, held.reserved_bytes)

  def close(self) -> None:
    """Give everything back. What the driver refuses then it has taken already, with a GPU that failed."""
    for block in list(self.blocks):
      with suppress(RMError):
        self.release(block)
