"""One GPU, as the base for devices with hardware queues wants it (`tiny_runtime.hcq.Hardware`)."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from contextlib import suppress

from tiny_runtime import Binary, Capabilities, DeviceInfo, DeviceLost, OutOfMemory, Unavailable
from tiny_runtime.hcq import Block, Command, Kind, Timeline, Transfer
from tiny_runtime_nv.arch import CUBIN, PTX
from tiny_runtime_nv.kernel_driver import commands as words
from tiny_runtime_nv.kernel_driver.channel import ORDER, Channel
from tiny_runtime_nv.kernel_driver.commands import COMPUTE, COPY, Encoder, methods
from tiny_runtime_nv.kernel_driver.interrupts import Interrupts
from tiny_runtime_nv.kernel_driver.kernels import NVKernel, Windows
from tiny_runtime_nv.kernel_driver.memory import Memories
from tiny_runtime_nv.kernel_driver.prepared import Arena, Prepared
from tiny_runtime_nv.kernel_driver.process import Gpu, Process
from tiny_runtime_nv.kernel_driver.resource_manager import RMError
from tiny_runtime_nv.kernel_driver.tables import constant, structure
from tiny_runtime_nv.kernel_driver.uvm import UVM
from tiny_uop import dtypes
from tiny_uop.updates import GPU_UPDATES

MOST_THREADS = 1024
WINDOW = 4 << 30
"""Bytes, and alignment, of the addresses at which threads see shared memory, and local memory."""
ANSWER = 10.0
"""Seconds in which a GPU that is opened has to do nothing."""
WARP, PAIR_UNIT, LOCAL_UNIT = 32, 0x8000, 0x20000
"""Threads of a warp; local memory of a pair of multiprocessors, and of all, is a multiple of so many bytes."""
EVERY_PROCESSOR = 0xFF


class NVHardware:
  """The GPU, with a channel of its own. Raises Unavailable, and gives back what it had."""

  argument_alignment = 256
  new_fence, done_fence = bytes(16), (1).to_bytes(16, "little")

  def __init__(self, process: Process, gpu: Gpu, index: int = 0) -> None:
    name = f"NV:{index}" if index else "NV"
    self.process, self.gpu, self.name, self.manager, self.system = process, gpu, name, process.manager, process.system
    capabilities = Capabilities(
      dtypes=frozenset(d.name for d in dtypes.all), local_memory=gpu.arch.shared_memory, max_local_size=MOST_THREADS,
      atomics=GPU_UPDATES, fused_multiply_add=True, graphs=True, graph_times=True, peers=True, trims=True,
      native=(CUBIN, PTX),
    )  # fmt: skip
    self.info = DeviceInfo(name, str(gpu.arch), gpu.memory, capabilities)
    self.uvm: UVM | None = None
    self.memories: Memories | None = None
    self.channel: Channel | None = None
    self.interrupts: Interrupts | None = None
    self.space = self.windows_at = self.local_bytes = 0
    self.local: Block | None = None
    self.connected: set[int] = set()
    """GPUs whose memory this one can use, by the driver's number."""
    self.before: list[int] = []
    """Words that come before the next submission."""
    self.last: Prepared | None = None
    try:
      self._open()
    except OutOfMemory as error:
      self.close(lost=False)
      what = "`nvidia-smi` shows which have it"
      raise Unavailable(f"{name} has no memory left for another program: {error}", what) from error
    except OSError as error:
      self.close(lost=False)
      raise Unavailable(f"{name} cannot be opened: {error}", "`dmesg | grep -i nvrm` says more") from error
    except BaseException:
      self.close(lost=False)
      raise

  def _open(self) -> None:
    manager, gpu = self.manager, self.gpu
    self.uvm = UVM(manager)
    how = "IS_EXTERNALLY_OWNED", "ENABLE_PAGE_FAULTING"
    space = structure("NV_VASPACE_ALLOCATION_PARAMETERS")(
      flags=sum(constant(f"NV_VASPACE_ALLOCATION_FLAGS_{flag}") for flag in how)
    )
    self.space = manager.alloc(gpu.device, "FERMI_VASPACE_A", space)
    self.uvm.register(self.process.uuid(gpu), self.space)
    self.memories = Memories(manager, self.uvm, gpu.device, self.process.code, self.name)
    self.channel = Channel(manager, self.uvm, self.memories, gpu, self.space)
    self.windows_at = self.system.reserve(3 * WINDOW)
    first = -(-self.windows_at // WINDOW) * WINDOW
    self.windows = Windows(first, first + WINDOW)
    self.arena = Arena(self.memories, self.channel.completed)
    self.encoder = Encoder(self.channel.address(ORDER), gpu.generation.action, self.process.code.has)
    with suppress(OSError):  # the host sleeps then
      self.interrupts = Interrupts(manager, gpu)
    self._begin()

  def _begin(self) -> None:
    """Tell the channel of its engines and windows, and see whether it does that."""
    channel, windows = self._channel, self.windows
    self.before += [
      *methods(COMPUTE, "SET_OBJECT", constant(self.gpu.generation.compute)),
      *methods(COPY, "SET_OBJECT", constant(self.gpu.copy)),
      *methods(COMPUTE, "SET_SHADER_SHARED_MEMORY_WINDOW_A", windows.shared >> 32, windows.shared),
      *methods(COMPUTE, "SET_SHADER_LOCAL_MEMORY_WINDOW_A", windows.local >> 32, windows.local),
      *words.new_code(),
    ]
    channel.submit(self._before(), self._make_room)
    until = time.monotonic() + ANSWER
    while not channel.completed():
      try:
        self.pause(1e-3)
      except DeviceLost as error:
        raise Unavailable(f"{self.name} fails at once: {error}", "`dmesg | grep -i nvrm` says more") from error
      if time.monotonic() > until:
        what = "Another program may keep it busy: `nvidia-smi`. Else `dmesg | grep -i nvrm` says more"
        raise Unavailable(f"{self.name} takes a queue, but does nothing that is put into it", what)
    channel.count_anew()

  def _before(self) -> list[tuple[int, int]]:
    """Where the words are that come before the next submission, and how many; nothing if there are none."""
    if not self.before:
      return []
    address, view = self.arena.take(4 * len(self.before))
    view.cast("I")[: len(self.before)] = memoryview(array("I", self.before))
    self.arena.retired.append((self.submitted + 1, address, view))
    count = len(self.before)
    self.before.clear()
    return [(address, count)]

  @property
  def submitted(self) -> int:
    """Submissions so far."""
    return self._channel.submitted - self._channel.base

  @property
  def _channel(self) -> Channel:
    assert self.channel is not None
    return self.channel

  # *** memory, kernels ***

  def allocate(self, nbytes: int, kind: Kind) -> Block:
    """See Hardware."""
    assert self.memories is not None
    return self.memories.allocate(nbytes, kind)

  def release(self, block: Block) -> None:
    """See Hardware."""
    assert self.memories is not None
    self.memories.release(block)

  def kernel(self, binary: Binary) -> NVKernel:
    """See Hardware."""
    kernel = NVKernel.of(binary, self.gpu.arch, self.gpu.generation, self.windows)
    if kernel.local > self.local_bytes:
      self._more_local(kernel)
    return kernel

  def _more_local(self, kernel: NVKernel) -> None:
    """Local memory for a kernel that needs more than those before, for every thread that may run at once."""
    gpu = self.gpu
    pair = -(-kernel.local * WARP * gpu.warps * gpu.processors // PAIR_UNIT) * PAIR_UNIT
    block = self.allocate(-(-pair * gpu.pairs // LOCAL_UNIT) * LOCAL_UNIT, Kind.DEVICE)
    Timeline(self).wait(self.submitted)
    self.before += [
      *methods(COMPUTE, "SET_SHADER_LOCAL_MEMORY_A", block.address >> 32, block.address),
      *methods(COMPUTE, "SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A", pair >> 32, pair, EVERY_PROCESSOR),
    ]
    if self.local is not None:
      self.release(self.local)
    self.local, self.local_bytes = block, kernel.local

  def copies(self, target: int, source: int, nbytes: int) -> list[Transfer]:
    """See Hardware."""
    most = words.LONGEST_COPY
    return [Transfer(target + at, source + at, min(most, nbytes - at)) for at in range(0, nbytes, most)]

  # *** other GPUs ***

  def reaches(self, source: NVHardware) -> bool:
    """See PeerHardware: whether the driver finds a way (NVLink, or PCIe that lets one GPU use another's memory)."""
    if source.gpu.gpu_id == self.gpu.gpu_id:
      return True
    assert self.uvm is not None
    if source.gpu.gpu_id not in self.connected and self.uvm.connect(self.process.uuid(source.gpu)):
      self.connected.add(source.gpu.gpu_id)
    return source.gpu.gpu_id in self.connected

  def share(self, block: Block, source: NVHardware) -> None:
    """See PeerHardware. A process has the same addresses on all GPUs."""
    assert self.uvm is not None and source.memories is not None
    source.memories.share(block, self.uvm)

  # *** the queue ***

  def prepare(self, commands: Sequence[Command]) -> Prepared:
    """See Hardware."""
    return Prepared(self.arena, self.encoder, commands)

  def replace(self, prepared: Prepared, index: int, command: Command) -> None:
    """See Hardware."""
    prepared.replace(index, command)

  def submit(self, prepared: Prepared, timed: bool) -> None:
    """See Hardware."""
    if timed != prepared.timed:
      Timeline(self).wait(prepared.last)
      prepared.with_times(timed)
    places = [*self._before(), *([self._channel.begin] if timed else []), prepared.place]
    self._channel.submit(places, self._make_room)
    prepared.last, self.last = self.submitted, prepared

  def _make_room(self) -> None:
    self.pause(1e-4)

  def completed(self) -> int:
    """See Hardware."""
    return self._channel.completed()

  def pause(self, seconds: float) -> None:
    """See Hardware."""
    channel, interrupts = self._channel, self.interrupts
    channel.check()
    if interrupts is None or not interrupts.come:
      self.system.pause(seconds)
      return
    channel.ask()
    owed = not channel.answered
    if interrupts.wait(seconds):
      interrupts.missed = 0
    elif owed and channel.answered:
      interrupts.missed += 1

  def seconds(self) -> float:
    """See Hardware."""
    return self.times()[-1][1]

  def times(self) -> list[tuple[float, float]]:
    """See TimedHardware. A command begins when the one before it is done."""
    assert self.last is not None
    begin = self._channel.began()
    ends = [max(0, stamp - begin) / 1e9 for stamp in self.last.stamps()]
    return list(zip([0.0, *ends], ends))

  def close(self, lost: bool) -> None:
    """See Hardware."""
    self.last = None
    if self.interrupts is not None:
      self.interrupts.close()
      self.interrupts = None
    if self.channel is not None:
      self.channel.close()
      self.channel = None
    if self.memories is not None:
      self.memories.close()
      self.memories = None
    if self.uvm is not None:
      self.uvm.close()
      self.uvm = None
    if self.space:
      with suppress(RMError):
        self.manager.free(self.space, self.gpu.device)
      self.space = 0
    if self.windows_at:
      self.system.unmap(self.windows_at, 3 * WINDOW)
      self.windows_at = 0
