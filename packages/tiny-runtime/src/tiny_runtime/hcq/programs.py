"""Kernels that are loaded on a device. A launch gives the arguments as 64-bit words, in the order in which the kernel
finds them in memory: the address of the first byte of each buffer, then the value of each variable.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_runtime.binary import Binary
from tiny_runtime.handles import ProgramOfWords
from tiny_runtime.hcq.hardware import Block, Kernel, Launch, three
from tiny_runtime.hcq.pool import Memory


class Program(ProgramOfWords):
  """A kernel that can be launched: a handle of the contract. Its code stays for as long as this is held."""

  def __init__(self, binary: Binary, kernel: Kernel, code: Block) -> None:
    super().__init__(binary)
    self.binary = binary
    self.kernel, self.code = kernel, code

  def call(
    self, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int], global_size: Sequence[int],
    local_size: Sequence[int],
  ) -> Launch:  # fmt: skip
    """The launch with these arguments. Raises ValueError for those that do not fit the kernel."""
    words = tuple(self.words_of(buffers, integers))
    return Launch(self.kernel.variant(words), words, three(global_size), three(local_size))
