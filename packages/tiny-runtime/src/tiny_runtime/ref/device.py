"""The device half: memory is bytearrays, a program is a Python function."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tiny_runtime.binary import Binary
from tiny_runtime.contract import Capabilities, DeviceInfo
from tiny_runtime.errors import OutOfMemory
from tiny_runtime.ref.generate import function_of
from tiny_runtime.ref.memory import open_view
from tiny_uop import dtypes
from tiny_uop.records import dataclass
from tiny_uop.updates import updates

ARCH, FORM = "python", "tiny-uop"
"""The arch, and the form of a binary: a kernel as text."""
LIMIT = 1 << 30
"""Bytes that one REF device gives out. It is for small cases; this keeps a mistake from filling the machine."""


ATOMICS = updates("ADD MUL MAX AND OR XOR", [d.name for d in dtypes.ints]) | updates("ADD", ("float32", "float64"))
"""One step of one thread comes after another, so that any update is atomic."""


class RefMemory:
  """One allocation. New memory is all ones (NaN, -1, true), so that reading what was never written shows; zero above a
  mebibyte, where filling it would take longer than the kernels."""

  def __init__(self, nbytes: int) -> None:
    self.nbytes = nbytes
    self.data: bytearray | memoryview | None = bytearray(nbytes) if nbytes > 1 << 20 else bytearray(b"\xff") * nbytes

  def bytes(self) -> bytearray | memoryview:
    """The contents. Raises ValueError after `free`."""
    if self.data is None:
      raise ValueError(f"REF: this memory of {self.nbytes} bytes was freed")
    return self.data


@dataclass(frozen=True)
class RefProgram:
  """A loaded binary: the function and what it takes."""

  binary: Binary
  call: Callable[..., Any]


class RefDevice:
  """Launches run at once in the calling thread, so `sync` has nothing to wait for and every launch knows its time."""

  def __init__(self) -> None:
    names = frozenset(d.name for d in dtypes.all)
    capabilities = Capabilities(
      dtypes=names, local_memory=1 << 16, max_local_size=1024, atomics=ATOMICS, host_mapped=True, host_import=True,
      peers=True, survives_fork=True, reentrant=True, native=(FORM,),
    )  # fmt: skip
    self.info = DeviceInfo("REF", ARCH, LIMIT, capabilities)
    self.used = 0

  def alloc(self, nbytes: int) -> RefMemory:
    """New memory. Raises OutOfMemory above LIMIT in all, or where Python has no more."""
    if nbytes < 1:
      raise ValueError(f"cannot allocate {nbytes} bytes: the size must be at least 1")
    if self.used + nbytes > LIMIT:
      raise OutOfMemory(f"REF: cannot allocate {nbytes} bytes: {self.used} of {LIMIT} are in use")
    try:
      memory = RefMemory(nbytes)
    except MemoryError:
      raise OutOfMemory(f"REF: Python has no {nbytes} bytes left") from None
    self.used += nbytes
    return memory

  def free(self, memory: RefMemory) -> None:
    """Drop the bytes."""
    memory.bytes()
    memory.data = None
    self.used -= memory.nbytes

  def write(self, memory: RefMemory, offset: int, data: memoryview) -> None:
    """Copy `data` in."""
    self._window(memory, offset, data.nbytes)[:] = data.cast("B")

  def read(self, memory: RefMemory, offset: int, out: memoryview) -> None:
    """Fill `out`."""
    out.cast("B")[:] = self._window(memory, offset, out.nbytes)

  def view(self, memory: RefMemory) -> memoryview:
    """The optional capability `HostMapped`."""
    return memoryview(memory.bytes())

  def adopt(self, data: memoryview) -> RefMemory:
    """The optional capability `HostImport`."""
    memory = RefMemory(0)
    memory.data = data
    return memory

  def reaches(self, source: RefDevice) -> bool:
    """The optional capability `Peers`: all REF devices are in one process, so each can read the memory of all. Yours
    asks the driver, and lets itself use the other's memory."""
    return True

  def copy_from(
    self, memory: RefMemory, offset: int, source: RefDevice, source_memory: RefMemory, source_offset: int, nbytes: int,
    wait: bool,
  ) -> float | None:  # fmt: skip
    """The optional capability `Peers`. Launches run at once, so nothing is pending on either device; where they are
    queued, this one's queue waits for the other's, copies, and the other's waits for that. The slices of one memory
    may overlap: Python copies them as memmove does."""
    start = time.perf_counter()
    self._window(memory, offset, nbytes)[:] = source._window(source_memory, source_offset, nbytes)
    return time.perf_counter() - start

  def load(self, binary: Binary) -> RefProgram:
    """Parse the kernel and make a function of it."""
    return RefProgram(binary, function_of(binary.code).call)

  def launch(
    self, program: RefProgram, buffers: Sequence[tuple[RefMemory, int]], integers: Sequence[int],
    global_size: tuple[int, ...], local_size: tuple[int, ...], wait: bool,
  ) -> float | None:  # fmt: skip
    """Run it. Raises ValueError for wrong arguments; IndexError, naming the buffer and the element, for an access
    outside a buffer."""
    binary = program.binary
    if len(buffers) != len(binary.params):
      raise ValueError(f"kernel {binary.entry} takes {len(binary.params)} buffers, got {len(buffers)}")
    if len(integers) != len(binary.variables):
      raise ValueError(f"kernel {binary.entry} takes the integers {binary.variables}, got {len(integers)} values")
    views = []
    for param, (memory, offset) in zip(binary.params, buffers, strict=True):
      window = self._window(memory, offset, param.size * param.dtype.itemsize)
      views.append(open_view(param.dtype, window))
    start = time.perf_counter()
    program.call(*views, *integers)
    return time.perf_counter() - start

  def sync(self) -> None:
    """Nothing is ever pending."""

  def close(self) -> None:
    """Nothing is held outside Python."""

  def _window(self, memory: RefMemory, offset: int, nbytes: int) -> memoryview:
    data = memory.bytes()
    if not 0 <= offset <= offset + nbytes <= len(data):
      raise ValueError(f"REF: bytes [{offset}, {offset + nbytes}) are outside this memory of {len(data)} bytes")
    return memoryview(data)[offset : offset + nbytes]
