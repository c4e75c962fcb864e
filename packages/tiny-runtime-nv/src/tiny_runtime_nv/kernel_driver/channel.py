"""A channel of a GPU: the ring in which it is told of pushbuffers, what it writes when it has done them, and its
errors."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence

from tiny_runtime import DeviceLost
from tiny_runtime.hcq import Block, Kind
from tiny_runtime_nv.kernel_driver import commands
from tiny_runtime_nv.kernel_driver.faults import in_words
from tiny_runtime_nv.kernel_driver.memory import Memories
from tiny_runtime_nv.kernel_driver.process import Gpu
from tiny_runtime_nv.kernel_driver.resource_manager import ResourceManager, RMError
from tiny_runtime_nv.kernel_driver.tables import constant, structure
from tiny_runtime_nv.kernel_driver.uvm import UVM

ENTRIES, ENTRY = 4096, 8
TAIL_WORDS = 16
TAILS = ENTRIES // 5
"""A submission is up to five entries: what comes before it, the time, prepared words, a tail of its own that says that
it is done, and an interrupt."""
USERD = ENTRIES * ENTRY
ERRORS = 8192
"""Bytes of the channel's error notifier; the first 16 tell of the first error."""
ERROR = struct.Struct("<QIHH")
"""NvNotification: nanoseconds, number, more, status."""
RESOURCES = 64 << 20
"""Addresses that a channel has for what it needs itself."""
TIMELINE, ORDER, BEGAN, BEGIN, INTERRUPT = 0, 32, 48, 64, 128
"""Beside each other: the number of submissions that are done, the word for order between engines, and when the last
submission that was timed began; the words that write this, and those that interrupt the host."""


class Channel:
  """A channel with a compute engine and a copy engine. Raises OSError, OutOfMemory."""

  def __init__(self, manager: ResourceManager, uvm: UVM, memories: Memories, gpu: Gpu, space: int) -> None:
    self.manager, self.uvm, self.memories, self.gpu, self.space = manager, uvm, memories, gpu, space
    self.system = manager.system
    self.ring, self.tails, self.errors, self.state = (
      memories.allocate(nbytes, Kind.HOST) for nbytes in (USERD + 4096, TAILS * TAIL_WORDS * 4, ERRORS, 4096)
    )
    for block in (self.ring, self.tails, self.errors, self.state):
      _bytes(block)[:] = bytes(block.nbytes)
    self.entries = _bytes(self.ring)[:USERD].cast("Q")
    self.put = _bytes(self.ring)[USERD + structure("Nvc36fControl").GPPut.offset :][:4].cast("I")
    self.done = _bytes(self.state)[TIMELINE : TIMELINE + 8].cast("Q")
    self.tail_words = _bytes(self.tails).cast("I")
    self.begin = self._keep(BEGIN, commands.release(self.address(BEGAN), 0, stamp=True))
    """Where words are that write the time, and how many."""
    self.interrupt = self._keep(INTERRUPT, commands.interrupt())
    """Words that interrupt the host."""
    self.submitted = self.base = self.written = self.asked = 0
    self.group = self.channel = self.usermode = self.doorbells = self.resources = 0
    self.failed: str | None = None
    try:
      self._create()
    except BaseException:
      self.close()
      raise

  def _create(self) -> None:
    manager, gpu = self.manager, self.gpu
    engine = constant("NV2080_ENGINE_TYPE_GR0")
    self.group = manager.alloc(
      gpu.device, "KEPLER_CHANNEL_GROUP_A",
      structure("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS")(hVASpace=self.space, engineType=engine),
    )  # fmt: skip
    share = manager.alloc(
      self.group, "FERMI_CONTEXT_SHARE_A",
      structure("NV_CTXSHARE_ALLOCATION_PARAMETERS")(
        hVASpace=self.space, flags=constant("NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC")
      ),
    )  # fmt: skip
    params = structure("NV_CHANNEL_ALLOC_PARAMS")(
      hObjectError=self.errors.handle.handle, gpFifoOffset=self.ring.address, gpFifoEntries=ENTRIES,
      hContextShare=share, engineType=engine,
    )  # fmt: skip
    params.hUserdMemory[0], params.userdOffset[0] = self.ring.handle.handle, USERD
    self.channel = manager.alloc(self.group, gpu.channel, params)
    manager.alloc(self.channel, gpu.generation.compute)
    manager.alloc(self.channel, gpu.copy)
    token = structure("NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS")()
    manager.control(self.channel, "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN", token)
    self.token = token.workSubmitToken
    self.resources = self.system.reserve(RESOURCES)
    self.uvm.register_channel(self.channel, self.resources, RESOURCES)
    schedule = structure("NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS")(bEnable=1)
    manager.control(self.group, "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", schedule, older=(2,))
    self.usermode = manager.alloc(gpu.subdevice, gpu.usermode)
    size = constant("NVC361_NV_USERMODE__SIZE")
    self.doorbells = manager.map(gpu.path, gpu.subdevice, self.usermode, size)

  def _keep(self, place: int, words: list[int]) -> tuple[int, int]:
    """Put words into the channel's state, to be submitted again and again: their address and how many."""
    _bytes(self.state)[place : place + 4 * len(words)] = memoryview(array("I", words)).cast("B")
    return self.address(place), len(words)

  def address(self, place: int) -> int:
    """Of something in the channel's state."""
    return self.state.address + place

  def completed(self) -> int:
    """Submissions that are done."""
    return int(self.done[0]) - self.base

  def count_anew(self) -> None:
    """From 0, when all submissions so far are done."""
    self.base = self.submitted

  def submit(self, places: Sequence[tuple[int, int]], make_room: Callable[[], None]) -> None:
    """Let words be done, at (address, number) each, one after the other, and count that. `make_room` is called until
    there is room."""
    while self.submitted - int(self.done[0]) >= TAILS - 1:
      make_room()
    self.submitted += 1
    tail = commands.release(self.address(TIMELINE), self.submitted, idle=True, stamp=True)
    slot = self.submitted % TAILS * TAIL_WORDS
    self.tail_words[slot : slot + len(tail)] = memoryview(array("I", tail))
    self._enter((*places, (self.tails.address + 4 * slot, len(tail))))

  def ask(self) -> None:
    """Let the host be interrupted when all submissions so far are done."""
    if self.asked < self.submitted:
      self.asked = self.submitted
      self._enter((self.interrupt,))

  @property
  def answered(self) -> bool:
    """Whether all submissions are done that an interrupt was asked for."""
    return int(self.done[0]) >= self.asked

  def _enter(self, places: Sequence[tuple[int, int]]) -> None:
    """Put words into the ring, and tell the GPU."""
    for address, count in places:
      self.entries[self.written % ENTRIES] = address | count << 42
      self.written += 1
    self.put[0] = self.written % ENTRIES
    self.system.ring(self.doorbells + constant("NVC361_NOTIFY_CHANNEL_PENDING"), self.token)

  def began(self) -> int:
    """When the last submission with `begin` before it began: nanoseconds of the GPU's clock."""
    return int.from_bytes(_bytes(self.state)[BEGAN + 8 : BEGAN + 16], "little")

  def check(self) -> None:
    """Raises DeviceLost if the driver says that the channel failed."""
    _, number, _, status = ERROR.unpack_from(_bytes(self.errors))
    if status and self.failed is None:
      params = structure("NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS")()
      try:
        self.manager.control(self.channel, "NV906F_CTRL_CMD_GET_MMU_FAULT_INFO", params)
      except RMError:
        pass
      text = bytes(params.faultString).partition(b"\0")[0].decode(errors="replace")
      self.failed = in_words(number, params.addrHi << 32 | params.addrLo, params.faultType, text)
    if self.failed is not None:
      raise DeviceLost(self.failed)

  def close(self) -> None:
    """Give it back. Its memory is that of the device."""
    if self.channel:
      try:
        self.uvm.unregister_channel(self.channel)
      except RMError:
        pass  # where it was never registered, or failed
    if self.doorbells:
      self.system.unmap(self.doorbells, constant("NVC361_NV_USERMODE__SIZE"))
    for handle, parent in ((self.usermode, self.gpu.subdevice), (self.group, self.gpu.device)):
      if handle:
        try:
          self.manager.free(handle, parent)
        except RMError:
          pass
    if self.resources:
      self.system.unmap(self.resources, RESOURCES)
    self.channel = self.doorbells = self.usermode = self.group = self.resources = 0


def _bytes(block: Block) -> memoryview:
  assert block.view is not None
  return block.view
