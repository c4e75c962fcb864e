"""Allocations, which the processor and the GPU both see."""

from __future__ import annotations

import ctypes

from tiny_runtime_metal.messages import Handle


class Memory:
  """One allocation."""

  def __init__(self, handle: Handle, address: int, nbytes: int) -> None:
    self.handle = handle
    """0 once it has been freed."""
    self.address = address
    self.nbytes = nbytes

  def check(self, offset: int, nbytes: int) -> None:
    """Raises ValueError for bytes that are not in here, and for memory that was freed."""
    if not self.handle:
      raise ValueError(f"this memory of {self.nbytes} bytes was freed")
    if not 0 <= offset <= offset + nbytes <= self.nbytes:
      raise ValueError(f"bytes [{offset}, {offset + nbytes}) are outside this memory of {self.nbytes} bytes")

  def bytes(self) -> memoryview:
    """All of it, as the processor sees it."""
    return memoryview((ctypes.c_char * self.nbytes).from_address(self.address)).cast("B")
