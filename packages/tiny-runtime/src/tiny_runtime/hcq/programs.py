"""Loaded kernels, and their arguments as words."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_runtime.binary import Binary
from tiny_runtime.hcq.hardware import Block, Kernel, Launch, three
from tiny_runtime.hcq.pool import Memory

WORD = (1 << 64) - 1


class Program:
  """A kernel that can be launched: a handle of the contract. Its code stays for as long as this is held."""

  def __init__(self, binary: Binary, kernel: Kernel, code: Block) -> None:
    self.name, self.kernel, self.code = binary.entry, kernel, code
    self.needs = [p.size * p.dtype.itemsize for p in binary.params]
    """Bytes of each buffer."""
    self.integers = len(binary.variables)

  def call(
    self, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int], global_size: Sequence[int],
    local_size: Sequence[int],
  ) -> Launch:  # fmt: skip
    """The launch with these arguments. Raises ValueError for those that do not fit the kernel."""
    if len(buffers) != len(self.needs) or len(integers) != self.integers:
      raise ValueError(
        f"kernel {self.name} takes {len(self.needs)} buffers and {self.integers} integers, not {len(buffers)} and "
        f"{len(integers)}"
      )
    words = [memory.at(offset, nbytes) for (memory, offset), nbytes in zip(buffers, self.needs)]
    words += [integer & WORD for integer in integers]
    return Launch(self.kernel, tuple(words), three(global_size), three(local_size))
