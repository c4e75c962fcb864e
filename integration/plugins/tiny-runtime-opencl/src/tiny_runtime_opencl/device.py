"""The device half: buffers, programs built by the driver, launches in one queue that keeps their order."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyopencl as cl

from tiny_runtime import Binary, Capabilities, CompileError, DeviceInfo, OutOfMemory
from tiny_runtime_opencl.arch import Arch
from tiny_runtime_opencl.errors import contract_error
from tiny_runtime_opencl.machine import arch_of
from tiny_runtime_opencl.renderer import function_name
from tiny_uop import dtypes


def build_options(arch: Arch) -> list[str]:
  """What the driver's compiler is told."""
  return ["-cl-std=CL1.2", "-w", *(["-cl-fp32-correctly-rounded-divide-sqrt"] if arch.exact else [])]


class Memory:
  """One allocation."""

  def __init__(self, buffer: Any, nbytes: int) -> None:
    self.buffer: Any = buffer
    """None once it has been freed."""
    self.nbytes = nbytes

  def check(self, offset: int, nbytes: int) -> None:
    """Raises ValueError for bytes that are not in here, and for memory that was freed."""
    if self.buffer is None:
      raise ValueError(f"this memory of {self.nbytes} bytes was freed")
    if not 0 <= offset <= offset + nbytes <= self.nbytes:
      raise ValueError(f"bytes [{offset}, {offset + nbytes}) are outside this memory of {self.nbytes} bytes")


class Program:
  """A loaded kernel, and what its launches take."""

  def __init__(self, kernel: Any, binary: Binary) -> None:
    self.kernel = kernel
    self.name = binary.entry
    self.needs = tuple(p.size * p.dtype.itemsize for p in binary.params)
    self.variables = binary.variables


class OpenCLDevice:
  """One device with a context and a queue of its own. The queue runs what it is given in order."""

  def __init__(self, device: Any, index: int = 0) -> None:
    arch = arch_of(device)
    # types that the device lacks are emulated, but for double
    names = frozenset(d.name for d in dtypes.all if d is not dtypes.float64 or arch.fp64)
    capabilities = Capabilities(dtypes=names, local_memory=arch.local, max_local_size=arch.group)
    name = f"OPENCL:{index}" if index else "OPENCL"
    self.info = DeviceInfo(name, str(arch), device.global_mem_size, capabilities)
    self.options = build_options(arch)
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
    source = binary.code.decode()
    with translated(f"building kernel {binary.entry}"):
      program = cl.Program(self.context, source)
      try:
        program.build(self.options, cache_dir=False)
        return Program(cl.Kernel(program, function_name(binary.entry)), binary)
      except cl.RuntimeError as error:
        if error.code != cl.status_code.BUILD_PROGRAM_FAILURE:
          raise
        raise CompileError(f"the OpenCL driver refused kernel {binary.entry}:\n{error}", source) from error

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
    if len(buffers) != len(program.needs) or len(integers) != len(program.variables):
      raise ValueError(
        f"kernel {program.name} takes {len(program.needs)} buffers and the integers {program.variables}, "
        f"got {len(buffers)} buffers and {len(integers)} integers"
      )
    arguments: list[Any] = []
    for (memory, offset), need in zip(buffers, program.needs):
      memory.check(offset, need)
      arguments += (memory.buffer, struct.pack("q", offset))
    arguments += [struct.pack("q", integer) for integer in integers]
    with translated(f"kernel {program.name}"):
      program.kernel.set_args(*arguments)
      threads = tuple(groups * size for groups, size in zip(global_size, local_size))
      event = cl.enqueue_nd_range_kernel(self.queue, program.kernel, threads, local_size)
      if not wait:
        self.queue.flush()
        return None
      event.wait()
      return float(event.profile.end - event.profile.start) * 1e-9

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


@contextmanager
def translated(action: str) -> Iterator[None]:
  """Raise errors of the contract in place of pyopencl's."""
  try:
    yield
  except cl.Error as error:
    raise contract_error(error, action) or error from error
