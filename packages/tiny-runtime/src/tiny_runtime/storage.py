"""Storage that runs no kernels: `HOST`, bytes of this process, and `DISK:/path`, a memory-mapped file.

Both implement the `Device` contract, so that a COPY between them and a real device is like any other.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NoReturn

from tiny_runtime import system
from tiny_runtime.binary import Binary
from tiny_runtime.contract import Capabilities, DeviceInfo, Memory, Program
from tiny_runtime.errors import OutOfMemory, Unavailable
from tiny_uop.locks import shared_lock

STORAGE = Capabilities(kernels=False, host_mapped=True, survives_fork=True, reentrant=True)


class Storage:
  """What HOST and DISK share: kernels are refused."""

  capabilities: ClassVar[Capabilities]
  by_path: ClassVar[bool] = False
  """Whether a path follows the name, `DISK:/path`, and makes it another device."""

  def __init__(self, name: str) -> None:
    self.info = DeviceInfo(name, "storage", 0, self.capabilities)

  def _refuse(self, what: str) -> NoReturn:
    raise Unavailable(
      f"{self.info.name} only stores bytes, it cannot run {what}", "Copy the data to a device that runs kernels first"
    )

  def load(self, binary: Binary) -> Program:
    """Always raises Unavailable."""
    self._refuse(f"kernel {binary.entry}")

  def launch(
    self, program: Program, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int],
    global_size: tuple[int, ...], local_size: tuple[int, ...], wait: bool,
  ) -> float | None:  # fmt: skip
    """Always raises Unavailable."""
    self._refuse("a kernel")

  def sync(self) -> None:
    """Nothing runs, so there is nothing to wait for."""

  def close(self) -> None:
    """Nothing to give back."""


class HostDevice(Storage):
  """Memory of this process. A memory handle is a bytearray, or the memoryview that was adopted."""

  capabilities = replace(STORAGE, host_import=True)

  def __init__(self, name: str = "HOST") -> None:
    if name != "HOST":
      raise Unavailable(f"there is one HOST, not {name!r}", "Use HOST")
    super().__init__(name)

  def alloc(self, nbytes: int) -> bytearray:
    """Zeroed bytes. Raises OutOfMemory."""
    try:
      return bytearray(nbytes)
    except MemoryError as error:
      raise OutOfMemory(f"HOST has no room for {nbytes} bytes") from error

  def free(self, memory: bytearray | memoryview) -> None:
    """The last reference frees it."""

  def write(self, memory: bytearray | memoryview, offset: int, data: memoryview) -> None:
    """See the contract."""
    memory[offset : offset + data.nbytes] = data

  def read(self, memory: bytearray | memoryview, offset: int, out: memoryview) -> None:
    """See the contract."""
    out[:] = memoryview(memory)[offset : offset + out.nbytes]

  def view(self, memory: bytearray | memoryview) -> memoryview:
    """See HostMapped."""
    return memoryview(memory)

  def adopt(self, data: memoryview) -> memoryview:
    """See HostImport."""
    return data


class DiskMemory:
  """The first `nbytes` of a file; mapped when first touched, since reading and creating it differ."""

  def __init__(self, nbytes: int) -> None:
    self.nbytes = nbytes
    self.map: mmap.mmap | None = None
    self.writable = False


class DiskDevice(Storage):
  """One file. Reading maps it; the first write to a buffer creates the file or changes its size to that of the
  buffer."""

  capabilities = replace(STORAGE, persistent=True, trims=system.DROPS_PAGES)
  by_path = True

  def __init__(self, name: str) -> None:
    super().__init__(name)
    self.path = name.partition(":")[2]
    self._mapped: dict[int, DiskMemory] = {}
    self._lock = shared_lock()

  def alloc(self, nbytes: int) -> DiskMemory:
    """A handle; the file is not touched yet."""
    return DiskMemory(nbytes)

  def free(self, memory: DiskMemory) -> None:
    """Unmap."""
    with self._lock:
      self._mapped.pop(id(memory), None)
    memory.map = None  # views that are still out keep the mapping itself alive

  def write(self, memory: DiskMemory, offset: int, data: memoryview) -> None:
    """See the contract. Raises Unavailable if the file cannot be written."""
    mapped = self._open(memory, write=True)
    mapped[offset : offset + data.nbytes] = data

  def read(self, memory: DiskMemory, offset: int, out: memoryview) -> None:
    """See the contract. Raises Unavailable if the file is missing or too short."""
    out[:] = self.view(memory)[offset : offset + out.nbytes]

  def view(self, memory: DiskMemory) -> memoryview:
    """See HostMapped. Raises Unavailable if the file is missing or too short."""
    return memoryview(self._open(memory, write=False))

  def trim(self) -> None:
    """Let the system have the pages that were read: the next access reads them again."""
    with self._lock:
      for memory in list(self._mapped.values()):
        if memory.map is not None and not memory.writable:
          system.drop_pages(memory.map)

  def sync(self) -> None:
    """Push written pages to the file system."""
    with self._lock:
      for memory in list(self._mapped.values()):
        if memory.writable and memory.map is not None:
          memory.map.flush()

  def _open(self, memory: DiskMemory, write: bool) -> mmap.mmap:
    with self._lock:
      mapped = memory.map
      if mapped is None or (write and not memory.writable):
        mapped = self._map(memory, write)
        memory.map, memory.writable = mapped, write
        self._mapped[id(memory)] = memory
      return mapped

  def _map(self, memory: DiskMemory, write: bool) -> mmap.mmap:
    name = self.info.name
    try:
      descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT if write else os.O_RDONLY, 0o666)
    except OSError as error:
      raise Unavailable(
        f"{name} cannot be opened for {'writing' if write else 'reading'}: {error.strerror}", "Check the path"
      ) from error
    try:
      size = os.fstat(descriptor).st_size
      if not write and size < memory.nbytes:
        raise Unavailable(
          f"{name} has {size} bytes, the buffer on it {memory.nbytes}", "Check that the file is complete"
        )
      if write and size != memory.nbytes:
        self._resize(descriptor, memory, size)
      return mmap.mmap(descriptor, memory.nbytes, access=mmap.ACCESS_WRITE if write else mmap.ACCESS_READ)
    except OSError as error:
      raise Unavailable(f"{name} cannot be mapped: {error.strerror}", "Check the path and the free space") from error
    finally:
      os.close(descriptor)

  def _resize(self, descriptor: int, memory: DiskMemory, size: int) -> None:
    # Touching a mapped page behind the end of its file kills the process, so never cut off what another buffer has
    # mapped.
    longest = max((other.nbytes for other in list(self._mapped.values()) if other is not memory), default=0)
    if memory.nbytes < longest:
      todo = "Write to another path, or drop the buffers that were read from this one first"
      raise Unavailable(
        f"{self.info.name} cannot be cut from {size} to {memory.nbytes} bytes: a buffer of {longest} bytes is mapped",
        todo,
      )
    os.ftruncate(descriptor, memory.nbytes)


BUILT_IN: Mapping[str, type[HostDevice | DiskDevice]] = {"HOST": HostDevice, "DISK": DiskDevice}
"""Storage by name; no plugin can take these names."""
