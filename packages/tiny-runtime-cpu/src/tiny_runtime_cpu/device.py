"""The device half: aligned host memory, object code linked into the process, launches on the native thread pool."""

from __future__ import annotations

import ctypes
import struct
import sys
import time
import weakref
from collections.abc import Sequence

from tiny_runtime import Binary, Capabilities, DeviceInfo, GraphChange, GraphCopy, GraphKernel
from tiny_runtime.llvm import compile_assembly
from tiny_runtime_cpu.graph import Graph, Times
from tiny_runtime_cpu.host import FORMS, cpu_limit, has_uneven_cores, host_arch, many, memory_bytes
from tiny_runtime_cpu.machine import PASSES
from tiny_runtime_cpu.memory import Allocator, Block
from tiny_runtime_cpu.pool import Pool, has_native_functions, native_functions
from tiny_runtime_cpu.program import BYTES_PER_NS, Program, divide, threads_for
from tiny_runtime_cpu.settings import thread_count
from tiny_uop import dtypes
from tiny_uop.context import debugs
from tiny_uop.locks import in_child
from tiny_uop.updates import HOST_UPDATES

SHARED_COPY = 1 << 20
"""Bytes from which on several threads copy."""


_pool = Pool()
"""The threads of all devices: the processors are the same."""
_open: weakref.WeakSet[CPUDevice] = weakref.WeakSet()


class CPUDevice:
  """This process's processors. Launches are synchronous: when `launch` returns, the kernel is done."""

  def __init__(self, memory_limit: int = 0) -> None:
    """`memory_limit`: bytes to give out at most; 0 means the machine's memory."""
    # types that the processor lacks are emulated by tiny-codegen
    names = frozenset(d.name for d in dtypes.all)
    graphs = has_native_functions()
    capabilities = Capabilities(
      dtypes=names,
      threads=many(cpu_limit()),
      atomics=HOST_UPDATES,
      fused_multiply_add=host_arch().fuses,
      host_mapped=True,
      host_import=True,
      survives_fork=True,
      native=FORMS,
      trims=True,
      reentrant=True,
      graphs=graphs,
      peers=True,
      peer_graphs=graphs,
      graph_times=graphs,
      graph_changes=graphs,
    )
    self.info = DeviceInfo("CPU", str(host_arch()), memory_limit or memory_bytes(), capabilities)
    self.allocator = Allocator(self.info.memory)
    self.pool = _pool
    _open.add(self)

  def alloc(self, nbytes: int) -> Block:
    """New memory, aligned to 64 bytes. Raises OutOfMemory."""
    return self.allocator.alloc(nbytes)

  def free(self, memory: Block) -> None:
    """Take memory back for reuse. Nothing is running: launches are synchronous."""
    self.allocator.free(memory)

  def write(self, memory: Block, offset: int, data: memoryview) -> None:
    """Copy `data` in."""
    self._copy(_window(memory, offset, data.nbytes), data.cast("B"))

  def read(self, memory: Block, offset: int, out: memoryview) -> None:
    """Fill `out`."""
    self._copy(out.cast("B"), _window(memory, offset, out.nbytes))

  def _copy(self, target: memoryview, source: memoryview) -> None:
    """Copy bytes; many of them on all threads."""
    nbytes = target.nbytes
    native = native_functions() if nbytes >= SHARED_COPY and not source.readonly else None
    if native is None:
      target[:] = source
      return
    to, of = (ctypes.addressof(ctypes.c_char.from_buffer(view)) for view in (target, source))
    overlap = abs(to - of) < nbytes
    parts, threads = divide(nbytes, 1 if overlap else threads_for(2 * nbytes / BYTES_PER_NS), thread_count())
    threads = self.pool.ensure(threads)
    self.pool.run(native.copy_bytes, struct.pack("2P", to, of), b"", nbytes, parts if threads > 1 else 1, threads)

  def view(self, memory: Block) -> memoryview:
    """The memory itself as bytes."""
    return _window(memory, 0, memory.nbytes)

  def adopt(self, data: memoryview) -> Block:
    """Memory of this process as a buffer."""
    return self.allocator.adopt(data)

  def reaches(self, source: CPUDevice) -> bool:
    """The capability `Peers`: all of them are this process."""
    return True

  def copy_from(
    self, memory: Block, offset: int, source: CPUDevice, source_memory: Block, source_offset: int, nbytes: int,
    wait: bool,
  ) -> float | None:  # fmt: skip
    """The capability `Peers`: launches are synchronous, so nothing is pending on either device."""
    start = time.perf_counter()
    self._copy(_window(memory, offset, nbytes), _window(source_memory, source_offset, nbytes))
    return time.perf_counter() - start if wait else None

  def load(self, binary: Binary) -> Program:
    """Link the object code. It is unlinked when the program is dropped. With DEBUG=7, print its assembly."""
    if debugs(binary.entry, 7):
      print(compile_assembly(binary.source, host_arch().processor, PASSES), file=sys.stderr)
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
    program.check_count(buffers, integers)
    addresses = []
    for (block, offset), need in zip(buffers, program.needs):
      if block.address is None or offset + need > block.nbytes or offset < 0:
        raise _wrong_buffer(program, block, offset, need)
      addresses.append(block.address + offset)
    packed = program.pack_buffers(*addresses)
    extent = global_size[0]
    numbers = program.pack_integers(*integers)
    parts, threads = divide(extent, program.useful_threads, thread_count(), has_uneven_cores())
    if threads > 1:
      threads = self.pool.ensure(threads)
    start = time.perf_counter() if wait else 0.0
    if threads > 1:
      self.pool.run(program.address, packed, numbers, extent, parts, threads)
    else:
      program.function(packed, numbers, 0, extent, None, None)
    return time.perf_counter() - start if wait else None

  def make_graph(self, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[Block]) -> Graph:
    """See the capability `Graphs`. Raises ValueError for what `launch` would refuse. Memories and programs of any of
    these devices are this process's."""
    native = native_functions()
    assert native is not None, "claimed only where there are native functions"
    return Graph(native, calls, memories)

  def run_graph(
    self,
    graph: Graph,
    memories: Sequence[tuple[int, Block]],
    kernels: Sequence[tuple[int, GraphKernel]],
    wait: bool,
  ) -> float | None:
    """See the capability `Graphs`."""
    for position, block in memories:
      graph.place(position, block)
    for index, kernel in kernels:
      graph.change(index, kernel)
    if not wait:
      graph.run(self.pool)
      return None
    start = time.perf_counter()
    graph.run_timed(self.pool)
    return time.perf_counter() - start

  def change_graph(self, graph: Graph, changes: Sequence[GraphChange]) -> None:
    """The capability `GraphChanges`."""
    for change in changes:
      graph.change_together(change.calls, change.integers, change.global_size)

  def graph_times(self, graph: Graph) -> Times:
    """The capability `GraphTimes`."""
    return graph.times()

  def trim(self) -> None:
    """The capability `Trims`: return free memory to the system."""
    self.allocator.trim()

  def sync(self) -> None:
    """Nothing is ever pending."""

  def close(self) -> None:
    """Return free memory to the system, and end the threads if no other device uses them."""
    _open.discard(self)
    if not _open:
      self.pool.close()
    self.allocator.trim()


@in_child
def _after_fork() -> None:
  for device in _open:
    device.allocator.after_fork()


def _window(block: Block, offset: int, nbytes: int) -> memoryview:
  if block.address is None:
    raise ValueError(f"{block!r} cannot be accessed")
  if not 0 <= offset <= offset + nbytes <= block.nbytes:
    raise ValueError(f"bytes [{offset}, {offset + nbytes}) are outside this buffer of {block.nbytes} bytes")
  return block.view[offset : offset + nbytes]


def _wrong_buffer(program: Program, block: Block, offset: int, need: int) -> ValueError:
  return ValueError(f"kernel {program.name} needs {need} bytes from byte {offset} of {block!r}")
