"""Allocations on a device."""

from __future__ import annotations

from typing import Any


class Memory:
  """One allocation."""

  def __init__(self, buffer: Any, nbytes: int) -> None:
    self.buffer: Any = buffer
    """None once it has been freed."""
    self.nbytes = nbytes

  def check(self, offset: int, nbytes: int) -> None:
    """Raises ValueError for bytes that are not in here, and for memory that was freed."""
    if self.buffer is None:
      raise ValueError(f"this memory of {self.nbytes} bytes was freed")
    if not 0 <= offset <= offset + nbytes <= self.nbytes:
      raise ValueError(f"bytes [{offset}, {offset + nbytes}) are outside this memory of {self.nbytes} bytes")
