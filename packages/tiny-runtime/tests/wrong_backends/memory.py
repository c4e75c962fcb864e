"""Devices that are wrong about places in memory, and devices that give something not back."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from tiny_runtime import Binary, OutOfMemory
from tiny_runtime.ref import RefDevice
from tiny_runtime.ref.device import RefMemory, RefProgram
from tiny_uop import dtypes
from wrong_backends import Backend
from wrong_backends.devices import Buffers, Launching, Sizes

MEBI = 1 << 20


class Large(RefDevice):
  """As much memory as a GPU has, of which only that exists which is touched. This is right."""

  def __init__(self) -> None:
    super().__init__()
    self.info = replace(self.info, memory=64 << 30)

  def alloc(self, nbytes: int) -> RefMemory:
    if self.used + nbytes > self.info.memory:
      raise OutOfMemory(f"{nbytes} bytes asked for")
    memory = RefMemory(0)
    memory.nbytes = nbytes
    memory.data = memoryview(mmap.mmap(-1, nbytes))
    self.used += nbytes
    return memory


def moving(
  name: str,
  write: Callable[[int, int], tuple[int, int]] = lambda offset, nbytes: (offset, nbytes),
  read: Callable[[int, int], tuple[int, int]] = lambda offset, nbytes: (offset, nbytes),
  launch: Callable[[int], int] = lambda offset: offset,
  base: type[RefDevice] = RefDevice,
) -> Backend:
  """A device that takes another offset and another number of bytes than it is given."""

  class Moving(base):  # type: ignore[misc,valid-type]
    def write(self, memory: RefMemory, offset: int, data: memoryview) -> None:
      place, count = write(offset, data.nbytes)
      super().write(memory, place, data.cast("B")[:count])

    def read(self, memory: RefMemory, offset: int, out: memoryview) -> None:
      place, count = read(offset, out.nbytes)
      super().read(memory, place, out.cast("B")[:count])

    def launch(
      self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
    ) -> float | None:
      moved = [(memory, launch(offset)) for memory, offset in buffers]
      seconds: float | None = super().launch(program, moved, integers, grid, group, wait)
      return seconds

  Moving.__name__ = name
  return Backend(device=Moving)


def bits(count: int) -> Callable[[int, int], tuple[int, int]]:
  """An offset that is cut."""
  return lambda offset, nbytes: (offset % (1 << count), nbytes)


def up_to(most: int) -> Callable[[int, int], tuple[int, int]]:
  """Bytes beyond that are forgotten."""
  return lambda offset, nbytes: (offset, min(nbytes, most))


class Misaligned(RefDevice):
  """Memory begins four bytes behind where it could."""

  def alloc(self, nbytes: int) -> RefMemory:
    memory = super().alloc(nbytes)
    memory.data = memoryview(bytearray(nbytes + 4))[4:]
    return memory


class StagesWholeMemories(RefDevice):
  """Each argument is copied, and all that was written is copied back at the end: the whole memory."""

  def launch(
    self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
  ) -> float | None:
    copies = []
    for memory, offset in buffers:
      copy = RefMemory(0)
      copy.nbytes, copy.data = memory.nbytes, bytearray(memory.bytes())
      copies.append((copy, offset))
    seconds = super().launch(program, copies, integers, grid, group, wait)
    for (memory, _), (copy, _), param in zip(buffers, copies, program.binary.params, strict=True):
      if param.written:
        memory.bytes()[:] = copy.bytes()
    for (memory, _), (copy, _), param in reversed(list(zip(buffers, copies, program.binary.params, strict=True))):
      if not param.written:
        memory.bytes()[:] = copy.bytes()
    return seconds


class EightBuffers(Launching):
  """The ninth argument and those behind it are what is there by chance."""

  def changed(self, buffers: Buffers, integers: Sequence[int]) -> tuple[Buffers, Sequence[int]]:
    return [*buffers[:8], *(buffers[7] for _ in buffers[8:])], integers


class EightIntegers(Launching):
  def changed(self, buffers: Buffers, integers: Sequence[int]) -> tuple[Buffers, Sequence[int]]:
    return buffers, [*integers[:8], *(0 for _ in integers[8:])]


class UnsignedIntegers(Launching):
  """Of 32 bits, where they fit."""

  def changed(self, buffers: Buffers, integers: Sequence[int]) -> tuple[Buffers, Sequence[int]]:
    return buffers, [n % 2**32 if -(2**31) <= n < 0 else n for n in integers]


class StoresAllOnes(RefDevice):
  """What is true is 255 in memory."""

  def launch(
    self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
  ) -> float | None:
    seconds = super().launch(program, buffers, integers, grid, group, wait)
    for (memory, offset), param in zip(buffers, program.binary.params, strict=True):
      if param.written and param.dtype is dtypes.bool:
        data = memory.bytes()
        data[offset : offset + param.size] = bytes(255 * (b != 0) for b in data[offset : offset + param.size])
    return seconds


def leaking(
  name: str,
  *,
  alloc: Callable[[], object] | None = None,
  load: Callable[[], object] | None = None,
  launch: Callable[[], object] | None = None,
  write: Callable[[], object] | None = None,
  opened: Callable[[], object] | None = None,
) -> Backend:
  """A device that makes something at each call, of which nobody has the end."""

  class Leaking(RefDevice):
    def __init__(self) -> None:
      super().__init__()
      if opened is not None:
        opened()

    def alloc(self, nbytes: int) -> RefMemory:
      if alloc is not None:
        alloc()
      return super().alloc(nbytes)

    def load(self, binary: Binary) -> RefProgram:
      if load is not None:
        load()
      return super().load(binary)

    def write(self, memory: RefMemory, offset: int, data: memoryview) -> None:
      if write is not None:
        write()
      super().write(memory, offset, data)

    def launch(
      self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
    ) -> float | None:
      if launch is not None:
        launch()
      return super().launch(program, buffers, integers, grid, group, wait)

  Leaking.__name__ = name
  return Backend(device=Leaking)


_files: list[int] = []
_ended = threading.Event()
_room: list[mmap.mmap] = []
_used = 0


def native(nbytes: int) -> Callable[[], None]:
  """Takes memory that Python knows nothing of, as a driver does, and touches it."""

  def take() -> None:
    global _used
    if not _room or _used + nbytes > MEBI:
      _room.append(mmap.mmap(-1, MEBI))
      _used = 0
    _room[-1][_used : _used + nbytes] = bytes([1]) * nbytes
    _used += nbytes

  return take


def malloced(nbytes: int) -> Callable[[], None]:
  """The same from `malloc`, which has room: somebody needed much before, and gave it back."""
  library = ctypes.CDLL(None)
  library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
  had: list[int] = []

  def take() -> None:
    if not had:
      had.extend(library.malloc(size) for size in (64, 256, 1024, 4096, 8192, 16384) * 1000)
      for place in had[:-1]:
        library.free(place)
    ctypes.memset(library.malloc(nbytes), 1, nbytes)

  return take


def descriptor() -> None:
  _files.append(os.open(os.devnull, os.O_RDONLY))


def every(count: int, action: Callable[[], object]) -> Callable[[], object]:
  """Some of the times: a process may have few descriptors."""
  times = iter(range(1 << 62))
  return lambda: action() if next(times) % count == 0 else None


def page() -> None:
  """A mapping of its own for each program, as for code."""
  made = mmap.mmap(-1, mmap.PAGESIZE)
  made[:1] = b"x"
  _room.append(made)


def thread() -> None:
  threading.Thread(target=_ended.wait, daemon=True).start()


def give_back() -> None:
  """All that leaked, so that other tests do not suffer."""
  global _ended, _used
  _ended.set()
  _ended = threading.Event()
  for number in _files:
    os.close(number)
  _files.clear()
  _room.clear()
  _used = 0


LARGE = Backend(device=Large)
READS_UP_TO_4M = moving("READS_UP_TO_4M", read=up_to(4 * MEBI))
WRITES_UP_TO_4M = moving("WRITES_UP_TO_4M", write=up_to(4 * MEBI))
READS_UP_TO_16M = moving("READS_UP_TO_16M", read=up_to(16 * MEBI))
WRITE_OFFSETS_16 = moving("WRITE_OFFSETS_16", write=bits(16))
READ_OFFSETS_16 = moving("READ_OFFSETS_16", read=bits(16))
LAUNCH_OFFSETS_16 = moving("LAUNCH_OFFSETS_16", launch=lambda offset: offset % (1 << 16))
WRITE_OFFSETS_20 = moving("WRITE_OFFSETS_20", write=bits(20))
READ_OFFSETS_24 = moving("READ_OFFSETS_24", read=bits(24))
LAUNCH_OFFSETS_24 = moving("LAUNCH_OFFSETS_24", launch=lambda offset: offset % (1 << 24))
WRITE_OFFSETS_31 = moving("WRITE_OFFSETS_31", write=bits(31), base=Large)
READ_OFFSETS_32 = moving("READ_OFFSETS_32", read=bits(32), base=Large)
LAUNCH_OFFSETS_32 = moving("LAUNCH_OFFSETS_32", launch=lambda offset: offset % (1 << 32), base=Large)
MISALIGNED = Backend(device=Misaligned)
STAGES = Backend(device=StagesWholeMemories)
EIGHT_BUFFERS = Backend(device=EightBuffers)
EIGHT_INTEGERS = Backend(device=EightIntegers)
UNSIGNED_INTEGERS = Backend(device=UnsignedIntegers)
TRUE_IS_255 = Backend(device=StoresAllOnes)
LAUNCHES_LEAK = leaking("LAUNCHES_LEAK", launch=native(256))
LOADS_LEAK = leaking("LOADS_LEAK", load=native(4096))
LAUNCHES_LEAK_64 = leaking("LAUNCHES_LEAK_64", launch=malloced(64))
LOADS_LEAK_8K = leaking("LOADS_LEAK_8K", load=malloced(8192))
LOADS_KEEP_PAGES = leaking("LOADS_KEEP_PAGES", load=page)
LOADS_KEEP_FILES = leaking("LOADS_KEEP_FILES", load=descriptor)
LAUNCHES_KEEP_FILES = leaking("LAUNCHES_KEEP_FILES", launch=every(20, descriptor))
ALLOCS_LEAK = leaking("ALLOCS_LEAK", alloc=native(512))
WRITES_LEAK = leaking("WRITES_LEAK", write=native(512))
OPENS_KEEP_FILES = leaking("OPENS_KEEP_FILES", opened=descriptor)
OPENS_KEEP_THREADS = leaking("OPENS_KEEP_THREADS", opened=thread)
OPENS_LEAK = leaking("OPENS_LEAK", opened=native(1 << 16))
