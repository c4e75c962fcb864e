"""The device half: buffers that the processor sees too, programs that the driver compiles, launches in one queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tiny_runtime import Binary, Capabilities, DeviceInfo, GraphCopy, GraphKernel, OutOfMemory
from tiny_runtime_metal.arch import ATOMICS, MSL, Arch
from tiny_runtime_metal.errors import check_finished
from tiny_runtime_metal.graph import COPY, Graph, Spare
from tiny_runtime_metal.memory import Memory
from tiny_runtime_metal.messages import Handle, Messages
from tiny_runtime_metal.programs import Call, Program, load_program
from tiny_uop import dtypes

SHARED_STORAGE = 0  # MTLResourceStorageModeShared: processor and GPU see the same bytes
IN_FLIGHT = 48
"""Command buffers that may be unfinished; a queue blocks at 64."""


class MetalDevice:
  """One GPU with a command queue, which runs what it is given in order."""

  def __init__(self, messages: Messages, handle: Handle, arch: Arch, index: int = 0) -> None:
    """Takes over `handle`, an MTLDevice."""
    self.messages, self.handle, self.arch = messages, handle, arch
    family = arch.family
    capabilities = Capabilities(
      # types that the language lacks are emulated, but for double
      dtypes=frozenset(d.name for d in dtypes.all if d is not dtypes.float64),
      local_memory=family.threadgroup_memory,
      max_local_size=family.threads,
      atomics=ATOMICS,
      fused_multiply_add=True,
      native=(MSL,),
      host_mapped=True,
      graphs=True,
    )
    self.name = f"METAL:{index}" if index else "METAL"
    memory = messages.send(handle, "recommendedMaxWorkingSetSize")
    self.info = DeviceInfo(self.name, str(arch), memory, capabilities)
    self.largest = messages.send(handle, "maxBufferLength")
    self.used = 0
    self.queue: Handle = messages.send(handle, "newCommandQueue")
    self.pending: deque[tuple[Handle, str]] = deque()
    """Command buffers that were not waited for, each with what is in it."""
    self.copier: Program | None = None
    """The kernel that copies bytes, once a graph has needed it."""

  def alloc(self, nbytes: int) -> Memory:
    """New memory. Raises OutOfMemory."""
    # the system would give more than the GPU can use at once, and end the process then
    free = self.info.memory - self.used
    if nbytes > min(free, self.largest):
      raise OutOfMemory(f"{nbytes} bytes asked for, {free} of {self.info.memory} are free, {self.largest} in one piece")
    handle = self.messages.send(self.handle, "newBufferWithLength:options:", nbytes, SHARED_STORAGE)
    if not handle:
      raise OutOfMemory(f"{nbytes} bytes asked for: Metal gives no buffer of this size, {self.used} bytes are in use")
    self.used += nbytes
    return Memory(handle, self.messages.send(handle, "contents"), nbytes)

  def free(self, memory: Memory) -> None:
    """Release memory. Command buffers hold what they use until they are done."""
    memory.at(0, memory.nbytes)
    self.used -= memory.nbytes
    self.messages.send(memory.handle, "release")
    memory.handle = memory.address = 0

  def write(self, memory: Memory, offset: int, data: memoryview) -> None:
    """Copy `data` in."""
    memory.at(offset, data.nbytes)
    self.sync()
    memory.bytes()[offset : offset + data.nbytes] = data.cast("B")

  def read(self, memory: Memory, offset: int, out: memoryview) -> None:
    """Fill `out`."""
    memory.at(offset, out.nbytes)
    self.sync()
    out.cast("B")[:] = memory.bytes()[offset : offset + out.nbytes]

  def view(self, memory: Memory) -> memoryview:
    """See the capability `host_mapped`."""
    memory.at(0, memory.nbytes)
    return memory.bytes()

  def load(self, binary: Binary) -> Program:
    """Have the source compiled. Raises CompileError with it and what the driver's compiler says."""
    return load_program(self.messages, self.handle, self.arch, binary)

  def launch(
    self,
    program: Program,
    buffers: Sequence[tuple[Memory, int]],
    integers: Sequence[int],
    global_size: tuple[int, ...],
    local_size: tuple[int, ...],
    wait: bool,
  ) -> float | None:
    """Commit a kernel: `global_size` threadgroups of `local_size` threads. With `wait`, the seconds that the GPU
    counted. Raises ValueError for arguments that do not fit the program."""
    call = Call(program, buffers, integers, global_size, local_size)
    call.check()
    return self.submit([call], f"kernel {program.name}", wait)

  def make_graph(self, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[Memory]) -> Graph:
    """See the capability `Graphs`. Raises ValueError for what `launch` would refuse."""
    if self.copier is None and any(isinstance(call, GraphCopy) for call in calls):
      self.copier = load_program(self.messages, self.handle, self.arch, COPY)
    return Graph(calls, memories, self.copier, Spare(self))

  def run_graph(
    self,
    graph: Graph,
    memories: Sequence[tuple[int, Memory]],
    kernels: Sequence[tuple[int, GraphKernel]],
    wait: bool,
  ) -> float | None:
    """See the capability `Graphs`: all calls are one command buffer."""
    for position, memory in memories:
      graph.memories[position] = memory
    for index, kernel in kernels:
      graph.calls[index] = kernel
    return self.submit(graph.as_calls(), f"a captured graph with {graph.names}", wait)

  def submit(self, calls: Sequence[Call], what: str, wait: bool) -> float | None:
    """Commit calls as one command buffer, called `what` if it fails. With `wait`, the seconds that the GPU took."""
    calls = [call for call in calls if 0 not in call.groups]
    if not calls:
      return 0.0 if wait else None
    while len(self.pending) >= IN_FLIGHT:
      self._wait_for_first()
    send = self.messages.send
    with self.messages.pool():
      command: Handle = send(send(self.queue, "commandBuffer"), "retain")
      encoder: Handle = send(command, "computeCommandEncoder")
      for call in calls:
        call.encode(self.messages, encoder)
      send(encoder, "endEncoding")
      send(command, "commit")
    self.pending.append((command, what))
    if not wait:
      return None
    while len(self.pending) > 1:
      self._wait_for_first()
    return self._wait_for_first()

  def _wait_for_first(self) -> float:
    """The seconds that the oldest command buffer took. Raises what `check_finished` does."""
    command, what = self.pending.popleft()
    try:
      with self.messages.pool():
        self.messages.send(command, "waitUntilCompleted")
        check_finished(self.messages, command, f"{what} on {self.name}")
        begin, end = (float(self.messages.send(command, which)) for which in ("GPUStartTime", "GPUEndTime"))
      return end - begin
    finally:
      self.messages.send(command, "release")

  def sync(self) -> None:
    """Wait for all launches."""
    while self.pending:
      self._wait_for_first()

  def close(self) -> None:
    """Wait, and let go of the queue and the device."""
    if not self.handle:
      return
    try:
      self.sync()
    finally:
      self.copier = None
      for handle in (self.queue, self.handle):
        self.messages.send(handle, "release")
      self.queue = self.handle = 0
