"""Commands in memory as the GPU reads them, and where that memory comes from. In a row: descriptions of launches (QMD),
words of each command, words of the end, time stamps."""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from tiny_runtime.hcq import Block, Command, Dispatch, Kind
from tiny_runtime_nv.kernel_driver import commands as words
from tiny_runtime_nv.kernel_driver.commands import WORDS, Encoder
from tiny_runtime_nv.kernel_driver.kernels import NVKernel
from tiny_runtime_nv.kernel_driver.memory import Memories

QMD_BYTES, BLOCK, END = 512, 4 * WORDS, 64
SLAB = 1 << 20
LEAST = 1024
MOST = (1 << 21) // WORDS - 1
"""Commands: an entry of a channel's ring counts words in 21 bits."""


class Arena:
  """Pieces of the host's memory, in powers of two, which are used again when the GPU is done with them."""

  def __init__(self, memories: Memories, completed: Callable[[], int]) -> None:
    self.memories, self.completed = memories, completed
    self.free: defaultdict[int, list[tuple[int, memoryview]]] = defaultdict(list)
    self.retired: deque[tuple[int, int, memoryview]] = deque()
    """(the submission after which nothing uses it, address, bytes). Finalisers add to it."""

  def take(self, nbytes: int) -> tuple[int, memoryview]:
    """The address and the bytes of a piece. Raises OutOfMemory."""
    done = self.completed()
    while self.retired and self.retired[0][0] <= done:
      _, address, view = self.retired.popleft()
      self.free[view.nbytes].append((address, view))
    size = max(LEAST, 1 << (nbytes - 1).bit_length())
    pieces = self.free[size]
    if not pieces:
      block: Block = self.memories.allocate(max(size, SLAB), Kind.HOST)
      assert block.view is not None
      pieces += [(block.address + at, block.view[at : at + size]) for at in range(0, block.nbytes, size)]
    return pieces.pop()


class Prepared:
  """Commands that can be submitted any number of times. Raises OutOfMemory, ValueError."""

  def __init__(self, arena: Arena, encoder: Encoder, commands: Sequence[Command]) -> None:
    self.arena, self.encoder, self.commands = arena, encoder, list(commands)
    self.last = 0
    """The last submission of it."""
    if (count := len(commands)) > MOST:
      raise ValueError(f"{count} commands are more than a submission can have: {MOST}")
    self.blocks, self.end = QMD_BYTES * count, (QMD_BYTES + BLOCK) * count
    self.marks = self.end + END
    self.address, self.view = arena.take(self.marks + words.MARK * count)
    self.view[self.end : self.end + END] = bytes(END)
    end = array("I", words.release(encoder.order, 0))
    self.end_words = len(end)
    self.view[self.end : self.end + 4 * len(end)] = memoryview(end).cast("B")
    self.timed = False
    for n in range(count):
      self._encode(n)

  def __del__(self) -> None:
    if hasattr(self, "view"):
      self.arena.retired.append((self.last, self.address, self.view))

  def _encode(self, n: int) -> None:
    command, place = self.commands[n], QMD_BYTES * n
    if isinstance(command, Dispatch):
      assert isinstance(command.kernel, NVKernel)
      made = command.kernel.launch(command.arguments, command.global_size, command.local_size)
      self.view[place : place + len(made)] = made
    self._words(n)

  def _words(self, n: int) -> None:
    mark = self.address + self.marks + words.MARK * n if self.timed else 0
    block = self.encoder.block(self.commands, n, self.address + QMD_BYTES * n, mark)
    place = self.blocks + BLOCK * n
    self.view[place : place + BLOCK] = memoryview(block).cast("B")

  def replace(self, index: int, command: Command) -> None:
    """Change one command, of the same kind."""
    self.commands[index] = command
    self._encode(index)

  def with_times(self, timed: bool) -> None:
    """Whether the time is written at which each command is done. Nothing of it is under way."""
    if timed != self.timed:
      self.timed = timed
      for n in range(len(self.commands)):
        self._words(n)

  @property
  def place(self) -> tuple[int, int]:
    """Address and number of the words."""
    return self.address + self.blocks, (self.end - self.blocks) // 4 + self.end_words

  def stamps(self) -> list[int]:
    """When each command was done: nanoseconds of the GPU's clock."""
    return [
      int.from_bytes(self.view[at + 8 : at + 16], "little")
      for at in range(self.marks, self.marks + words.MARK * len(self.commands), words.MARK)
    ]
