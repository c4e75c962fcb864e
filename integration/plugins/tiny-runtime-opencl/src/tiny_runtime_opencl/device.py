"""The device half: buffers, programs built by the driver, launches in one queue that keeps their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyopencl as cl

from tiny_runtime import Binary, Capabilities, DeviceInfo, GraphCopy, GraphKernel, OutOfMemory
from tiny_runtime_opencl.arch import ATOMICS
from tiny_runtime_opencl.errors import contract_error
from tiny_runtime_opencl.graph import Graph
from tiny_runtime_opencl.machine import arch_of
from tiny_runtime_opencl.memory import Memory
from tiny_runtime_opencl.programs import Program, load_program, set_arguments
from tiny_uop import dtypes


class OpenCLDevice:
  """One device with a context and a queue of its own. The queue runs what it is given in order."""

  def __init__(self, device: Any, index: int = 0) -> None:
    arch = arch_of(device)
    # types that the device lacks are emulated, but for double
    names = frozenset(d.name for d in dtypes.all if d is not dtypes.float64 or arch.fp64)
    capabilities = Capabilities(
      dtypes=names,
      local_memory=arch.local,
      max_local_size=arch.group,
      atomics=ATOMICS,
      fused_multiply_add=arch.fma,
      graphs=True,
    )
    name = f"OPENCL:{index}" if index else "OPENCL"
    self.info = DeviceInfo(name, str(arch), device.global_mem_size, capabilities)
    self.arch = arch
    self.used = 0
    with translated(f"opening {name}"):
      self.context: Any = cl.Context([device])
      self.queue: Any = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)

  def alloc(self, nbytes: int) -> Memory:
    """New memory. Raises OutOfMemory."""
    # drivers promise more than there is, and end the process when it is used
    if self.used + nbytes > self.info.memory:
      raise OutOfMemory(f"{nbytes} bytes asked for, {self.info.memory - self.used} of {self.info.memory} are free")
    with translated(f"allocating {nbytes} bytes"):
      buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes)
    self.used += nbytes
    return Memory(buffer, nbytes)

  def free(self, memory: Memory) -> None:
    """Release memory. OpenCL keeps it until the launches that use it are done."""
    memory.check(0, memory.nbytes)
    self.used -= memory.nbytes
    memory.buffer.release()
    memory.buffer = None

  def write(self, memory: Memory, offset: int, data: memoryview) -> None:
    """Copy `data` in."""
    memory.check(offset, data.nbytes)
    if data.nbytes:
      with translated(f"writing {data.nbytes} bytes"):
        cl.enqueue_copy(self.queue, memory.buffer, data.cast("B"), dst_offset=offset, is_blocking=True)

  def read(self, memory: Memory, offset: int, out: memoryview) -> None:
    """Fill `out`."""
    memory.check(offset, out.nbytes)
    if out.nbytes:
      with translated(f"reading {out.nbytes} bytes"):
        cl.enqueue_copy(self.queue, out.cast("B"), memory.buffer, src_offset=offset, is_blocking=True)

  def load(self, binary: Binary) -> Program:
    """Build the source. Raises CompileError with it and the driver's log."""
    with translated(f"building kernel {binary.entry}"):
      return load_program(self.context, self.arch, binary)

  def launch(
    self,
    program: Program,
    buffers: Sequence[tuple[Memory, int]],
    integers: Sequence[int],
    global_size: tuple[int, ...],
    local_size: tuple[int, ...],
    wait: bool,
  ) -> float | None:
    """Put a kernel into the queue: `global_size` workgroups of `local_size` threads. With `wait`, the seconds that the
    device counted. Raises ValueError for arguments that do not fit the program."""
    program.check(buffers, integers)
    if 0 in global_size:  # which OpenCL 1.2 does not allow
      return 0.0 if wait else None
    with translated(f"kernel {program.name}"):
      set_arguments(program.kernel, buffers, integers)
      threads = tuple(groups * size for groups, size in zip(global_size, local_size))
      event = cl.enqueue_nd_range_kernel(self.queue, program.kernel, threads, local_size)
      if not wait:
        self.queue.flush()
        return None
      event.wait()
      return seconds(event, event)

  def make_graph(self, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[Memory]) -> Graph:
    """See the capability `Graphs`. Raises ValueError for what `launch` would refuse."""
    with translated(f"preparing a graph of {len(calls)} calls"):
      return Graph(calls, memories)

  def run_graph(
    self,
    graph: Graph,
    memories: Sequence[tuple[int, Memory]],
    kernels: Sequence[tuple[int, GraphKernel]],
    wait: bool,
  ) -> float | None:
    """See the capability `Graphs`."""
    with translated("a captured graph"):
      for position, memory in memories:
        graph.place(position, memory)
      for index, kernel in kernels:
        graph.change(index, kernel)
      events = graph.run(self.context, self.queue)
      self.queue.flush()
      if not wait:
        return None
      self.queue.finish()
      return seconds(events[0], events[-1]) if events else 0.0

  def sync(self) -> None:
    """Wait for all launches."""
    with translated("waiting"):
      self.queue.finish()

  def close(self) -> None:
    """Wait, and let go of queue and context."""
    if self.queue is not None:
      queue, self.queue, self.context = self.queue, None, None
      with translated("closing"):
        queue.finish()


def seconds(first: Any, last: Any) -> float:
  """From when the device began one command to when it had done another, by its own clock."""
  begin, end = first.get_profiling_info(cl.profiling_info.START), last.get_profiling_info(cl.profiling_info.END)
  return float(end - begin) * 1e-9


@contextmanager
def translated(action: str) -> Iterator[None]:
  """Raise errors of the contract in place of pyopencl's."""
  try:
    yield
  except cl.Error as error:
    raise contract_error(error, action) or error from error
