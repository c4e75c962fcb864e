"""One GPU, as the base for devices with hardware queues wants it (`tiny_runtime.hcq.Hardware`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

from tiny_runtime import Binary, Capabilities, CompileError, DeviceInfo, DeviceLost, OutOfMemory, Unavailable
from tiny_runtime.contract import Recording
from tiny_runtime.hcq import Block, Command, Dispatch, Kind, Timeline, Transfer, Work
from tiny_runtime_amd import aql
from tiny_runtime_amd.arch import FORM, Arch
from tiny_runtime_amd.faults import Faults
from tiny_runtime_amd.gpus import Gpu
from tiny_runtime_amd.kernels import AMDKernel, Copier, copy_binaries
from tiny_runtime_amd.kfd import KFD, KFDError
from tiny_runtime_amd.memory import Memories
from tiny_runtime_amd.process import Process
from tiny_runtime_amd.queue import AQLQueue, Mixed
from tiny_runtime_amd.recorder import Recorder
from tiny_runtime_amd.scratch import scratch_for
from tiny_uop import dtypes
from tiny_uop.updates import GPU_UPDATES

MOST_THREADS = 1024
LEAST_BY_ENGINE = 64 << 10
"""Bytes of a copy that a DMA engine makes; kernels make smaller ones."""
ANSWER = 10.0
"""Seconds in which a GPU that is opened has to do nothing."""
SCRATCH_SHARE = 8
"""Private memory takes an eighth of all at most."""
CLOCKS_APART = 2e-3
"""Seconds that two readings of the clocks are apart at least."""


class AMDHardware:
  """The GPU, with a queue of its own. Raises Unavailable, and gives back what it had."""

  argument_alignment = 64
  new_fence, done_fence = aql.signal(1), aql.signal(0)

  def __init__(self, process: Process, gpu: Gpu, arch: Arch, index: int = 0) -> None:
    name = f"AMD:{index}" if index else "AMD"
    self.process, self.gpu, self.arch = process, gpu, arch
    capabilities = Capabilities(
      dtypes=frozenset(d.name for d in dtypes.all), local_memory=arch.local_memory, max_local_size=MOST_THREADS,
      atomics=GPU_UPDATES, fused_multiply_add=True, graphs=True, graph_times=True, peers=True, trims=True,
      recordings=True, native=(FORM,),
    )  # fmt: skip
    self.info = DeviceInfo(name, str(arch), gpu.memory, capabilities)
    self.memories = Memories(process, gpu, name)
    self.faults: Faults | None = None
    self.queue: AQLQueue | None = None
    self.submitted = self.private_bytes = 0
    self.scratch: Block | None = None
    try:
      self.faults = Faults(process.kfd, gpu, self.memories.event_page())
      self.queue = AQLQueue(self.memories, gpu, self.faults)
      with suppress(KFDError, OutOfMemory):  # kernels copy then
        self.queue.use_engines(arch)
      self.copier = Copier(*[self._in_place(binary) for binary in copy_binaries(arch)])
      self.clock = Clock(process.kfd, gpu)
      self._answers(name)
    except OutOfMemory as error:
      self.close(lost=False)
      raise Unavailable(
        f"{name} has no memory left for another program: {error}", "`rocm-smi` shows which have it"
      ) from error
    except KFDError as error:
      self.close(lost=False)
      raise Unavailable(f"{name} cannot be opened: {error}", "`dmesg | grep -e kfd -e amdgpu` says more") from error
    except BaseException:
      self.close(lost=False)
      raise

  def _in_place(self, binary: Binary) -> AMDKernel:
    """A kernel whose code stays in the host's memory: it is what copies that of others."""
    kernel = self.kernel(binary)
    block = self.allocate(len(kernel.image), Kind.HOST)
    assert block.view is not None
    block.view[: len(kernel.image)] = kernel.image
    kernel.address = block.address
    return kernel

  def _answers(self, name: str) -> None:
    """Let it do nothing, and see whether it does."""
    what = "End this process: after a fault on a GPU, Linux lets it use that GPU no more. Else `dmesg` says more"
    self.submit(self._queue.nothing(), False)
    until = time.monotonic() + ANSWER
    try:
      while not self.completed():
        if time.monotonic() > until:
          raise Unavailable(f"{name} takes a queue, but does nothing that is put into it", what)
        self.pause(1e-3)
    except DeviceLost as error:
      raise Unavailable(f"{name} fails at once: {error}", what) from error
    self._queue.count_anew()
    self.submitted = 0

  @property
  def _queue(self) -> AQLQueue:
    assert self.queue is not None
    return self.queue

  # *** memory, kernels ***

  def allocate(self, nbytes: int, kind: Kind) -> Block:
    """See Hardware."""
    return self.memories.allocate(nbytes, kind)

  def release(self, block: Block) -> None:
    """See Hardware."""
    self.memories.release(block)

  def kernel(self, binary: Binary) -> AMDKernel:
    """See Hardware."""
    kernel = AMDKernel.of(binary)
    if (size := kernel.descriptor.subgroup_size) != self.arch.subgroup_size:
      raise CompileError(f"kernel {kernel.name} is for waves of {size} threads", binary.source)
    if kernel.descriptor.private_bytes > self.private_bytes:
      self._more_scratch(kernel, binary)
    return kernel

  def _more_scratch(self, kernel: AMDKernel, binary: Binary) -> None:
    """Private memory for a kernel that needs more than those before."""
    private = kernel.descriptor.private_bytes
    try:
      scratch = scratch_for(self.arch, self.gpu, private, self.gpu.memory // SCRATCH_SHARE)
    except ValueError as error:
      raise CompileError(f"kernel {kernel.name}: {error}", binary.source) from error
    block = self.allocate(scratch.nbytes, Kind.DEVICE)
    Timeline(self).wait(self.submitted)
    self._queue.use_scratch(block, scratch)
    if self.scratch is not None:
      self.release(self.scratch)
    self.scratch, self.private_bytes = block, scratch.lane_bytes

  def copies(self, target: int, source: int, nbytes: int) -> Sequence[Work]:
    """See Hardware. A DMA engine has its price, in packets and in waiting."""
    if self._queue.engines and nbytes >= LEAST_BY_ENGINE:
      return [Transfer(target, source, nbytes)]
    return self.copier(target, source, nbytes)

  # *** other GPUs ***

  def reaches(self, source: AMDHardware) -> bool:
    """See PeerHardware: whether Linux lists a way (xGMI, or PCIe that lets one GPU use another's memory), and it can be
    gone."""
    if source.gpu.gpu_id == self.gpu.gpu_id:
      return True
    if source.gpu.node not in self.gpu.links:
      return False
    try:
      block = source.allocate(1, Kind.DEVICE)
    except OutOfMemory:
      return False
    try:
      self.share(block, source)
      return True
    except (KFDError, OutOfMemory):
      return False
    finally:
      source.release(block)

  def share(self, block: Block, source: AMDHardware) -> None:
    """See PeerHardware. A process has the same addresses on all GPUs."""
    source.memories.share(block, self.gpu)

  # *** the queue ***

  def prepare(self, commands: Sequence[Command]) -> bytearray | Mixed:
    """See Hardware."""
    return self._queue.prepare(commands)

  def replace(self, prepared: bytearray | Mixed, index: int, command: Command) -> None:
    """See Hardware."""
    self._queue.replace(prepared, index, command)

  def submit(self, prepared: bytearray | Mixed, timed: bool) -> None:
    """See Hardware."""
    self._queue.submit(prepared, timed)
    self.submitted += 1

  def completed(self) -> int:
    """See Hardware."""
    return self._queue.completed()

  def pause(self, seconds: float) -> None:
    """See Hardware."""
    assert self.faults is not None
    self._queue.check()
    self.faults.pause(seconds)

  def seconds(self) -> float:
    """See Hardware."""
    return self._queue.ticks() / self.clock.frequency

  def times(self) -> list[tuple[float, float]]:
    """See TimedHardware."""
    begins, ends = self._queue.spans()
    zero, second = begins[0], self.clock.frequency
    return [(max(0, begin - zero) / second, max(0, end - zero) / second) for begin, end in zip(begins, ends)]

  # *** recording ***

  @cached_property
  def recorder(self) -> Recorder:
    """What has the GPU record launches, with memory of its own. Raises OutOfMemory."""
    return Recorder(self.memories, self.gpu, self.arch)

  def prepare_recorded(self, dispatch: Dispatch) -> bytearray | Mixed:
    """See RecordingHardware."""
    self.recorder.prepare()
    return self._queue.prepare([self.recorder.start, dispatch, self.recorder.stop])

  def recording(self, binary: Binary, read: Callable[[int, int], bytes]) -> Recording:
    """See RecordingHardware."""
    (_, begin, _), (_, end, _) = self._queue.spans()
    seconds = max(0, end - begin) / self.clock.frequency
    return self.recorder.read(binary.entry, binary.code, seconds, read)

  def close(self, lost: bool) -> None:
    """See Hardware."""
    if self.queue is not None:
      self.queue.close()
      self.queue = None
    if self.faults is not None:
      self.faults.close()
      self.faults = None
    self.memories.close()


class Clock:
  """The rate of the GPU's clock, against that of the system."""

  def __init__(self, kfd: KFD, gpu: Gpu) -> None:
    self.kfd, self.gpu = kfd, gpu
    self.begin = self._read()
    self.known = 0.0

  def _read(self) -> tuple[int, float]:
    found = self.kfd("GET_CLOCK_COUNTERS", gpu_id=self.gpu.gpu_id)
    return found.gpu_clock_counter, found.system_clock_counter / found.system_clock_freq

  @property
  def frequency(self) -> float:
    """Ticks in a second."""
    if not self.known:
      now = self._read()
      if now[1] - self.begin[1] < CLOCKS_APART:
        time.sleep(CLOCKS_APART)
        now = self._read()
      self.known = (now[0] - self.begin[0]) / (now[1] - self.begin[1])
    return self.known
