"""The device half of CUDA: one stream that keeps the order of launches and copies, memory from the driver's pool.

None of it is used before a device is opened. The context is the device's primary one, which other libraries in this
process share; the stream and all that is in it are our own.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tiny_runtime import Binary, Capabilities, DeviceInfo, DeviceLost, GraphCopy, GraphKernel, OutOfMemory, Unavailable
from tiny_runtime_nv.arch import PTX, Arch
from tiny_runtime_nv.cuda_errors import ENDS_PROCESS, LOST, OUT_OF_MEMORY, TOO_LARGE, lost, not_opened
from tiny_runtime_nv.cuda_graph import Graph
from tiny_runtime_nv.driver import KEEP_BYTES, NO_TIME, NON_BLOCKING, POOLS_SUPPORTED, Driver, DriverError
from tiny_runtime_nv.memory import Memory, Staging
from tiny_runtime_nv.peers import copy_within, let_in, wait_for
from tiny_runtime_nv.programs import Program, three
from tiny_uop import dtypes
from tiny_uop.updates import GPU_UPDATES

MOST_THREADS = 1024


class CUDADevice:
  """GPU number `ordinal` of the driver's; `index` is its number among those that can be used. Raises Unavailable."""

  def __init__(self, driver: Driver, ordinal: int, arch: Arch, index: int = 0) -> None:
    self.driver, self.name = driver, f"CUDA:{index}" if index else "CUDA"
    self.lost: DeviceLost | None = None
    self.process_ends = False
    """It was lost by an error after which the driver does nothing more for this process."""
    self.allocated: set[Memory] = set()
    self.started: deque[str] = deque(maxlen=64)
    """Kernels since the device was last known to be well."""
    self.unused: deque[tuple[str, Any]] = deque()
    """What nobody holds any more, with the function that destroys it: when nothing runs that may need it."""
    self.context: Any = None
    try:
      self.ordinal = driver.new("cuDeviceGet", ordinal, kind=ctypes.c_int)
      if not driver.new("cuDeviceGetAttribute", POOLS_SUPPORTED, self.ordinal, kind=ctypes.c_int):
        raise Unavailable(f"{self.name} has no pools of memory, which this plugin allocates from", "Use another device")
      memory = driver.new("cuDeviceTotalMem_v2", self.ordinal, kind=ctypes.c_size_t)
      self.context = driver.new("cuDevicePrimaryCtxRetain", self.ordinal)
      driver("cuCtxSetCurrent", self.context)
      self.stream = driver.new("cuStreamCreate", NON_BLOCKING)
      self.pool = driver.new("cuDeviceGetDefaultMemPool", self.ordinal)
      # what is freed stays in the pool, for the next allocation
      driver("cuMemPoolSetAttribute", self.pool, KEEP_BYTES, ctypes.byref(ctypes.c_uint64((1 << 64) - 1)))
      self.staging = Staging(driver, self.stream)
      self.clocks = [driver.new("cuEventCreate", 0) for _ in range(2)]
      self.progress = driver.new("cuEventCreate", NO_TIME)
      """Where the stream was when another device was to wait for it."""
    except DriverError as error:
      if self.context is not None:
        driver.functions["cuDevicePrimaryCtxRelease_v2"](self.ordinal)
      raise not_opened(error, self.name) from error
    names = frozenset(d.name for d in dtypes.all)
    capabilities = Capabilities(
      dtypes=names,
      local_memory=arch.shared_memory,
      max_local_size=MOST_THREADS,
      atomics=GPU_UPDATES,
      fused_multiply_add=True,
      native=(PTX,),
      graphs=True,
      graph_times=True,
      peers=True,
      stream="cuda",
    )
    self.info = DeviceInfo(self.name, str(arch), memory, capabilities)

  @contextmanager
  def _doing(self, action: str) -> Iterator[None]:
    """What an action of ours is called in errors: raises those of the contract in place of the driver's."""
    self._enter()
    try:
      yield
    except DriverError as error:
      raise self._error(error, action) from error

  def _enter(self) -> None:
    """Let this thread use the context, whatever it used before. Raises DeviceLost, again, once it is."""
    if self.lost is not None:
      raise DeviceLost(str(self.lost))
    if status := self.driver.functions["cuCtxSetCurrent"](self.context):
      raise self._error(self.driver.error("cuCtxSetCurrent", status), "entering")

  def enter_stream(self) -> int:
    """See the capability `Streamed`."""
    self._enter()
    return int(getattr(self.stream, "value", self.stream))

  def address_of(self, memory: Memory) -> int:
    """See the capability `Streamed`."""
    return int(memory.address)

  def _error(self, error: DriverError, action: str) -> Exception:
    """The error of the contract; the driver's own where it says that this plugin made a mistake."""
    if error.status in LOST:
      self.lost = lost(error, f"{self.name}: {action}", self.started)
      self.process_ends = error.status in ENDS_PROCESS
      return self.lost
    if error.status == OUT_OF_MEMORY:
      return OutOfMemory(f"{self.name}: {action}: {error}; {self._free()}")
    return DriverError(f"{self.name}: {action}: {error}", error.status, error.name)

  def _free(self) -> str:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    self.driver.functions["cuMemGetInfo_v2"](ctypes.byref(free), ctypes.byref(total))
    ours = sum(memory.nbytes for memory in self.allocated)
    return f"{free.value} of {total.value} bytes are free, and {ours} are in use by this device's buffers"

  # *** memory ***

  def alloc(self, nbytes: int) -> Memory:
    """New memory, from the pool. Raises OutOfMemory."""
    if nbytes > self.info.memory:  # which the driver may call an invalid value
      raise OutOfMemory(f"{self.name}: {nbytes} bytes asked for, it has {self.info.memory}")
    with self._doing(f"allocating {nbytes} bytes"):
      try:
        address = self.driver.new("cuMemAllocAsync", nbytes, self.stream, kind=ctypes.c_uint64)
      except DriverError as error:
        if error.status != OUT_OF_MEMORY:
          raise
        # what is to be freed may not be, yet, and what is free may be in pieces
        self._wait()
        self.driver("cuMemPoolTrimTo", self.pool, 0)
        address = self.driver.new("cuMemAllocAsync", nbytes, self.stream, kind=ctypes.c_uint64)
    memory = Memory(address, nbytes)
    self.allocated.add(memory)
    return memory

  def free(self, memory: Memory) -> None:
    """Give memory back, after all launches so far."""
    address = memory.at(0, memory.nbytes)
    self.allocated.discard(memory)
    memory.address = 0
    if self.lost is None:  # else all of it is gone already
      with self._doing(f"freeing {memory.nbytes} bytes"):
        self.driver("cuMemFreeAsync", address, self.stream)

  def write(self, memory: Memory, offset: int, data: memoryview) -> None:
    """Copy `data` in."""
    address = memory.at(offset, data.nbytes)
    if data.nbytes:
      with self._doing(f"writing {data.nbytes} bytes"):
        self.staging.write(address, data.cast("B"))

  def read(self, memory: Memory, offset: int, out: memoryview) -> None:
    """Fill `out`."""
    address = memory.at(offset, out.nbytes)
    if out.nbytes:
      with self._doing(f"reading {out.nbytes} bytes"):
        self.staging.read(address, out.cast("B"))
        self.started.clear()

  # *** other devices ***

  def reaches(self, source: CUDADevice) -> bool:
    """See the capability `Peers`. The devices may be one GPU that was opened twice."""
    with self._doing(f"asking whether {source.name} is reached"):
      return source.ordinal == self.ordinal or let_in(self, source)

  def copy_from(
    self, memory: Memory, offset: int, source: CUDADevice, source_memory: Memory, source_offset: int, nbytes: int,
    wait: bool,
  ) -> float | None:  # fmt: skip
    """See the capability `Peers`. The copy is in this device's stream; `source`'s waits for it."""
    target, origin = memory.at(offset, nbytes), source_memory.at(source_offset, nbytes)
    what = f"copying {nbytes} bytes from {source.name}"
    if source is not self:
      wait_for(self, source, what)
    with self._doing(what):
      if wait:
        self._clock(0, what)
      if source.ordinal == self.ordinal:
        copy_within(self, target, origin, nbytes)
      else:
        self.driver("cuMemcpyPeerAsync", target, self.context, origin, source.context, nbytes, self.stream)
      seconds = self._seconds(what) if wait else None
    if source is not self:
      wait_for(source, self, what)
    return seconds

  # *** programs ***

  def load(self, binary: Binary) -> Program:
    """Have the driver assemble the PTX. Raises CompileError with its log."""
    with self._doing(f"loading kernel {binary.entry}"):
      program = Program(self.driver, binary)
    weakref.finalize(program, self.unused.append, ("cuModuleUnload", program.module)).atexit = False
    return program

  def launch(
    self,
    program: Program,
    buffers: Sequence[tuple[Memory, int]],
    integers: Sequence[int],
    global_size: tuple[int, ...],
    local_size: tuple[int, ...],
    wait: bool,
  ) -> float | None:
    """Put a kernel into the stream: `global_size` blocks of `local_size` threads. With `wait`, the seconds that the
    device counted. Raises ValueError for arguments that do not fit the program, and sizes that the device refuses."""
    program.pass_in(buffers, integers)
    if 0 in global_size:
      return 0.0 if wait else None
    self._enter()
    self.started.append(program.name)
    if wait:
      self._clock(0, program.name)
    grid, block = three(global_size), three(local_size)
    status = self.driver.functions["cuLaunchKernel"](
      program.function, *grid, *block, program.shared, self.stream, program.parameters, None
    )
    if status in TOO_LARGE:
      text = self.driver.error("cuLaunchKernel", status)
      raise ValueError(f"kernel {program.name}, {grid} blocks of {block} threads: {text}; {program.limits()}")
    if status:
      raise self._error(self.driver.error("cuLaunchKernel", status), f"kernel {program.name}")
    return self._seconds(program.name) if wait else None

  def _clock(self, number: int, what: str) -> None:
    with self._doing(what):
      self.driver("cuEventRecord", self.clocks[number], self.stream)

  def _seconds(self, what: str) -> float:
    """The time since the first clock, once the device has come to here."""
    self._clock(1, what)
    with self._doing(what):
      self.driver("cuEventSynchronize", self.clocks[1])
      self._done()
      return float(self.driver.new("cuEventElapsedTime", *self.clocks, kind=ctypes.c_float)) * 1e-3

  # *** graphs ***

  def make_graph(self, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[Memory]) -> Graph:
    """See the capability `Graphs`. Raises ValueError for what `launch` would refuse."""
    with self._doing(f"preparing a graph of {len(calls)} calls"):
      graph = Graph(self.driver, self.context, calls, memories, self.alloc)
    weakref.finalize(graph, _drop, self.unused, graph.handles, graph.apart).atexit = False
    return graph

  def run_graph(
    self,
    graph: Graph,
    memories: Sequence[tuple[int, Memory]],
    kernels: Sequence[tuple[int, GraphKernel]],
    wait: bool,
  ) -> float | None:
    """See the capability `Graphs`."""
    if memories or kernels:
      with self._doing("changing a graph"):
        graph.change(memories, kernels)
    self._enter()
    executable = graph.plain
    if wait:
      with self._doing(f"preparing a graph of {len(graph.calls)} calls with clocks"):
        executable = graph.with_clocks()
      self._clock(0, "a graph")
    self.started.extend(graph.names)
    if status := self.driver.functions["cuGraphLaunch"](executable.handle, self.stream):
      raise self._error(self.driver.error("cuGraphLaunch", status), f"a graph of {len(graph.calls)} calls")
    if not wait:
      return None
    seconds = self._seconds("a graph")
    with self._doing("reading the times of a graph"):
      graph.read_clocks()
    return seconds

  def graph_times(self, graph: Graph) -> list[tuple[float, float]]:
    """See the capability `GraphTimes`."""
    return graph.times

  # *** waiting, and the end ***

  def sync(self) -> None:
    """Wait for all launches."""
    with self._doing("waiting"):
      self._wait()

  def _wait(self) -> None:
    self.driver("cuStreamSynchronize", self.stream)
    self._done()

  def _done(self) -> None:
    """All that was in the stream is done: what was in use there, and is held by nobody, goes."""
    self.started.clear()
    while self.unused:
      function, handle = self.unused.popleft()
      if function == "free":
        self.free(handle)
      else:
        self.driver(function, handle)

  def close(self) -> None:
    """Wait, and give everything back. A device that was lost is reset, so that it can be opened again, unless only a
    new process can do that."""
    if self.context is None:
      return
    call = self.driver.functions  # from here on, what fails has failed before
    try:
      if self.lost is None:
        self.sync()
    except DeviceLost:
      pass
    if self.lost is None:
      for memory in list(self.allocated):
        self.free(memory)
      self.staging.close()
      for event in (*self.clocks, self.progress):
        call["cuEventDestroy_v2"](event)
      call["cuStreamSynchronize"](self.stream)
      call["cuStreamDestroy_v2"](self.stream)
      call["cuMemPoolTrimTo"](self.pool, 0)
    elif not self.process_ends:
      call["cuDevicePrimaryCtxReset_v2"](self.ordinal)
    self.context = None
    call["cuCtxSetCurrent"](None)
    call["cuDevicePrimaryCtxRelease_v2"](self.ordinal)


def _drop(unused: deque[tuple[str, Any]], handles: list[tuple[str, Any]], apart: dict[int, Memory]) -> None:
  """What a graph had is not used any more."""
  unused.extend(reversed(handles))  # events are of use to what was made later
  unused.extend([("free", memory) for memory in apart.values()])
