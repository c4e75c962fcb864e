"""Handles for plugins: memory that is an address, and programs that take words."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_runtime.binary import Binary

WORD = (1 << 64) - 1


class AddressedMemory:
  """One allocation at an address, which is 0 once it has been freed."""

  __slots__ = ("__weakref__", "address", "nbytes")

  def __init__(self, address: int, nbytes: int) -> None:
    self.address, self.nbytes = address, nbytes

  def at(self, offset: int, nbytes: int) -> int:
    """The address of byte `offset`. Raises ValueError if `nbytes` from there are not in here, or it was freed."""
    if not self.address:
      raise ValueError(f"this memory of {self.nbytes} bytes was freed")
    if not 0 <= offset <= offset + nbytes <= self.nbytes:
      raise ValueError(f"bytes [{offset}, {offset + nbytes}) are outside this memory of {self.nbytes} bytes")
    return self.address + offset


class ProgramOfWords:
  """A loaded kernel whose arguments are words of 64 bits: addresses, then integers."""

  def __init__(self, binary: Binary) -> None:
    self.name = binary.entry
    self.needs = [p.size * p.dtype.itemsize for p in binary.params]
    """Bytes of each buffer."""
    self.integers = len(binary.variables)

  def words_of(self, buffers: Sequence[tuple[AddressedMemory, int]], integers: Sequence[int]) -> list[int]:
    """The arguments of a launch. Raises ValueError for those that do not fit the kernel."""
    if len(buffers) != len(self.needs) or len(integers) != self.integers:
      raise ValueError(
        f"kernel {self.name} takes {len(self.needs)} buffers and {self.integers} integers, not {len(buffers)} and "
        f"{len(integers)}"
      )
    words = [memory.at(offset, nbytes) for (memory, offset), nbytes in zip(buffers, self.needs)]
    return words + [integer & WORD for integer in integers]
