"""The device half: aligned host memory, object code linked into the process, launches on the native thread pool."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Sequence

from tiny_runtime import Binary, Capabilities, CompileError, DeviceInfo
from tiny_runtime_cpu.host import host_arch, memory_bytes
from tiny_runtime_cpu.machine import LEVEL, LLVMError, LoadedObject, compile_assembly
from tiny_runtime_cpu.memory import Allocator, Block
from tiny_runtime_cpu.pool import Pool, kernel_at
from tiny_runtime_cpu.settings import thread_count
from tiny_uop import dtypes
from tiny_uop.context import DEBUG

# more parts than threads evens out what the threads get done; each part costs about 50 ns
PARTS_PER_THREAD = 4

# what one thread gets done per nanosecond, roughly, and how many nanoseconds of work are worth another thread: to wake
# one takes from 1 microsecond (still spinning) to 50 (asleep on a processor that sleeps too)
OPS_PER_NS, BYTES_PER_NS, NS_PER_THREAD = 32, 32, 16_000


def useful_threads(binary: Binary) -> int:
  """How many threads a launch can keep busy, by the compiler's estimates of its work."""
  nanoseconds = max(int(binary.ops.vmax) / OPS_PER_NS, int(binary.nbytes.vmax) / BYTES_PER_NS)
  return 1 + int(nanoseconds / NS_PER_THREAD)


class Program:
  """A linked kernel: where it is, and what a launch has to pack."""

  def __init__(self, binary: Binary) -> None:
    try:
      self.object = LoadedObject(binary.code, binary.entry)
    except LLVMError as error:
      raise CompileError(f"kernel {binary.entry} cannot be linked: {error}", binary.source) from error
    self.address = self.object.address(binary.entry)
    self.function = kernel_at(self.address)
    self.name = binary.entry
    self.needs = tuple(p.size * p.dtype.itemsize for p in binary.params)
    self.variables = binary.variables
    self.useful_threads = useful_threads(binary)
    self.pack_buffers = struct.Struct(f"{len(self.needs)}P").pack
    self.pack_integers = struct.Struct(f"{len(self.variables)}q").pack


class CPUDevice:
  """This process's processors. Launches are synchronous: when `launch` returns, the kernel is done."""

  def __init__(self, memory_limit: int = 0) -> None:
    """`memory_limit`: bytes to give out at most; 0 means the machine's memory."""
    # types that the processor lacks are emulated by tiny-codegen
    capabilities = Capabilities(dtypes=frozenset(d.name for d in dtypes.all), host_mapped=True)
    self.info = DeviceInfo("CPU", str(host_arch()), memory_limit or memory_bytes(), capabilities)
    self.allocator = Allocator(self.info.memory)
    self.pool = Pool()

  def alloc(self, nbytes: int) -> Block:
    """New memory, aligned to 64 bytes. Raises OutOfMemory."""
    return self.allocator.alloc(nbytes)

  def free(self, memory: Block) -> None:
    """Take memory back for reuse. Nothing is running: launches are synchronous."""
    self.allocator.free(memory)

  def write(self, memory: Block, offset: int, data: memoryview) -> None:
    """Copy `data` in."""
    _window(memory, offset, data.nbytes)[:] = data.cast("B")

  def read(self, memory: Block, offset: int, out: memoryview) -> None:
    """Fill `out`."""
    out.cast("B")[:] = _window(memory, offset, out.nbytes)

  def view(self, memory: Block) -> memoryview:
    """The memory itself as bytes."""
    return _window(memory, 0, memory.nbytes)

  def load(self, binary: Binary) -> Program:
    """Link the object code. It is unlinked when the program is dropped. With DEBUG=7, print its assembly."""
    if DEBUG >= 7:
      print(compile_assembly(binary.source, host_arch(), LEVEL), file=sys.stderr)
    return Program(binary)

  def launch(
    self,
    program: Program,
    buffers: Sequence[tuple[Block, int]],
    integers: Sequence[int],
    global_size: tuple[int, ...],
    local_size: tuple[int, ...],
    wait: bool,
  ) -> float | None:
    """Run the kernel over [0, global_size[0]), divided among the threads. Returns seconds if `wait`.

    Raises ValueError for the wrong number of buffers or integers, a buffer too small, and memory that was freed.
    """
    if len(buffers) != len(program.needs) or len(integers) != len(program.variables):
      raise _wrong_count(program, buffers, integers)
    addresses = []
    for (block, offset), need in zip(buffers, program.needs):
      if block.address is None or offset + need > block.nbytes or offset < 0:
        raise _wrong_buffer(program, block, offset, need)
      addresses.append(block.address + offset)
    packed = program.pack_buffers(*addresses)
    extent = global_size[0]
    numbers = program.pack_integers(*integers)
    threads = min(program.useful_threads, extent)
    if threads > 1:
      threads = self.pool.ensure(min(threads, thread_count()))
    start = time.perf_counter() if wait else 0.0
    if threads > 1:
      self.pool.run(program.address, packed, numbers, extent, min(extent, threads * PARTS_PER_THREAD), threads)
    else:
      program.function(packed, numbers, 0, extent)
    return time.perf_counter() - start if wait else None

  def sync(self) -> None:
    """Nothing is ever pending."""

  def close(self) -> None:
    """End the threads and return free memory to the system."""
    self.pool.close()
    self.allocator.trim()


def _window(block: Block, offset: int, nbytes: int) -> memoryview:
  if block.address is None:
    raise ValueError(f"{block!r} cannot be accessed")
  if not 0 <= offset <= offset + nbytes <= block.nbytes:
    raise ValueError(f"bytes [{offset}, {offset + nbytes}) are outside this buffer of {block.nbytes} bytes")
  return block.view[offset : offset + nbytes]


def _wrong_count(program: Program, buffers: Sequence[object], integers: Sequence[int]) -> ValueError:
  return ValueError(
    f"kernel {program.name} takes {len(program.needs)} buffers and the {len(program.variables)} integers "
    f"{program.variables}, got {len(buffers)} buffers and {len(integers)} integers"
  )


def _wrong_buffer(program: Program, block: Block, offset: int, need: int) -> ValueError:
  return ValueError(f"kernel {program.name} needs {need} bytes from byte {offset} of {block!r}")
