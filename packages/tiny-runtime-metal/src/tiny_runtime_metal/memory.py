"""Allocations, which the processor and the GPU both see."""

from __future__ import annotations

import ctypes

from tiny_runtime.handles import AddressedMemory
from tiny_runtime_metal.messages import Handle


class Memory(AddressedMemory):
  """One allocation, which processor and GPU see at addresses of their own."""

  __slots__ = ("handle",)

  def __init__(self, handle: Handle, address: int, nbytes: int) -> None:
    super().__init__(address, nbytes)
    self.handle = handle
    """0 once it has been freed."""

  def bytes(self) -> memoryview:
    """All of it, as the processor sees it."""
    return memoryview((ctypes.c_char * self.nbytes).from_address(self.address)).cast("B")
