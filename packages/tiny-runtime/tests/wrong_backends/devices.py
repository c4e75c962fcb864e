"""Devices with one mistake each."""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tiny_runtime import OutOfMemory, Unavailable
from tiny_runtime.contract import Device
from tiny_runtime.ref import RefDevice
from tiny_runtime.ref.device import ARCH as ARCHITECTURE
from tiny_runtime.ref.device import LIMIT, RefMemory, RefProgram
from wrong_backends import Backend

Buffers = Sequence[tuple[RefMemory, int]]
Sizes = tuple[int, ...]


class Launching(RefDevice):
  """Changes the arguments of a launch on their way."""

  def changed(self, buffers: Buffers, integers: Sequence[int]) -> tuple[Buffers, Sequence[int]]:
    raise NotImplementedError

  def launch(
    self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
  ) -> float | None:
    return super().launch(program, *self.changed(buffers, integers), grid, group, wait)


class IgnoresOffsets(Launching):
  def changed(self, buffers: Buffers, integers: Sequence[int]) -> tuple[Buffers, Sequence[int]]:
    return [(memory, 0) for memory, _ in buffers], integers


class IgnoresTheSecondInteger(Launching):
  def changed(self, buffers: Buffers, integers: Sequence[int]) -> tuple[Buffers, Sequence[int]]:
    return buffers, [*integers[:1], *(0 for _ in integers[1:2]), *integers[2:]]


class CutsIntegers(Launching):
  """To 32 bits."""

  def changed(self, buffers: Buffers, integers: Sequence[int]) -> tuple[Buffers, Sequence[int]]:
    return buffers, [(n + 2**31) % 2**32 - 2**31 for n in integers]


class LeaksMemory(RefDevice):
  def free(self, memory: RefMemory) -> None:
    pass


class KeepsLaunches(RefDevice):
  def __init__(self) -> None:
    super().__init__()
    self.launches: list[Any] = []

  def launch(
    self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
  ) -> float | None:
    self.launches.append((program, list(buffers)))
    return super().launch(program, buffers, integers, grid, group, wait)


class SwallowsOutOfMemory(RefDevice):
  def alloc(self, nbytes: int) -> RefMemory:
    return super().alloc(min(nbytes, 4096) if nbytes > LIMIT else nbytes)


class RaisesMemoryError(RefDevice):
  def alloc(self, nbytes: int) -> RefMemory:
    try:
      return super().alloc(nbytes)
    except OutOfMemory as error:
      raise MemoryError(str(error)) from None


class CopiesWords(RefDevice):
  """The bytes behind the last whole word are lost."""

  def write(self, memory: RefMemory, offset: int, data: memoryview) -> None:
    super().write(memory, offset, data.cast("B")[: data.nbytes // 4 * 4])


class ReadsFromTheStart(RefDevice):
  def read(self, memory: RefMemory, offset: int, out: memoryview) -> None:
    super().read(memory, 0, out)


class GivesOutTheSameTwice(RefDevice):
  """A memory of 70000 bytes is also the next one."""

  last: RefMemory | None = None

  def alloc(self, nbytes: int) -> RefMemory:
    made = super().alloc(nbytes)
    if self.last is not None and self.last.nbytes == nbytes == 70000 and self.last.data is not None:
      made.data = self.last.data
    self.last = made
    return made


class BelongsToAThread(RefDevice):
  def __init__(self) -> None:
    super().__init__()
    self.thread = threading.get_ident()

  def alloc(self, nbytes: int) -> RefMemory:
    if threading.get_ident() != self.thread:
      raise RuntimeError("invalid context")
    return super().alloc(nbytes)


class ReturnsNoTime(RefDevice):
  def launch(
    self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
  ) -> float | None:
    super().launch(program, buffers, integers, grid, group, wait)
    return None


class RaisesItsOwn(RefDevice):
  def launch(
    self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
  ) -> float | None:
    raise KeyError("no such queue")


class EndsTheProcess(RefDevice):
  def launch(
    self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
  ) -> float | None:
    if list(integers) == [-2, 3]:
      os._exit(139)
    return super().launch(program, buffers, integers, grid, group, wait)


class Queued(RefDevice):
  """Launches wait until somebody asks for their results; memory that is freed is given out again. This is right, and
  what hardware does; the classes below each forget something."""

  flush_before = frozenset({"read", "write", "free"})

  def __init__(self) -> None:
    super().__init__()
    self.info = replace(self.info, capabilities=replace(self.info.capabilities, host_mapped=False, host_import=False))
    self.pending: deque[Callable[[], float | None]] = deque()
    self.done = 0
    """How many were taken out of that so far."""
    self.freed: list[RefMemory] = []

  def alloc(self, nbytes: int) -> RefMemory:
    again = next((memory for memory in self.freed if memory.nbytes == nbytes), None)
    if again is None:
      return super().alloc(nbytes)
    self.freed.remove(again)
    return again

  def free(self, memory: RefMemory) -> None:
    self.flush("free")
    if memory.nbytes < 1 << 16:
      self.freed.append(memory)
    else:
      super().free(memory)

  def write(self, memory: RefMemory, offset: int, data: memoryview) -> None:
    self.flush("write")
    super().write(memory, offset, data)

  def read(self, memory: RefMemory, offset: int, out: memoryview) -> None:
    self.flush("read")
    super().read(memory, offset, out)

  def launch(
    self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
  ) -> float | None:
    self.pending.append(self.prepared(program, buffers, integers))
    return self.run_pending() if wait else None

  def prepared(self, program: RefProgram, buffers: Buffers, integers: Sequence[int]) -> Callable[[], float | None]:
    arguments = (program, list(buffers), list(integers))
    return lambda: RefDevice.launch(self, *arguments, (), (), True)

  def sync(self) -> None:
    self.run_pending()

  def flush(self, action: str) -> None:
    if action in self.flush_before:
      self.run_pending()

  def run_pending(self) -> float | None:
    return self.run_until(self.total)

  @property
  def total(self) -> int:
    return self.done + len(self.pending)

  def run_until(self, number: int) -> float | None:
    seconds = None
    while self.done < number:
      step = self.pending.popleft()
      self.done += 1
      seconds = step()
    return seconds

  def copy_from(
    self, memory: RefMemory, offset: int, source: Any, source_memory: RefMemory, source_offset: int, nbytes: int,
    wait: bool,
  ) -> float | None:  # fmt: skip
    places = (memory, offset, source, source_memory, source_offset)
    if source is not self:
      self.wait_for_source(source)
    self.pending.append(lambda: RefDevice.copy_from(self, *places, nbytes, True))
    if source is not self:
      self.hold_source(source)
    return self.run_pending() if wait else None

  def wait_for_source(self, source: Queued) -> None:
    number = source.total
    self.pending.append(lambda: source.run_until(number))

  def hold_source(self, source: Queued) -> None:
    number = self.total
    source.pending.append(lambda: self.run_until(number))


class ReadsTooEarly(Queued):
  flush_before = frozenset({"write", "free"})


class WritesTooEarly(Queued):
  flush_before = frozenset({"read", "free"})


class FreesTooEarly(Queued):
  flush_before = frozenset({"read"})

  def write(self, memory: RefMemory, offset: int, data: memoryview) -> None:
    RefDevice.write(self, memory, offset, data)


class RunsBackwards(Queued):
  def run_pending(self) -> float | None:
    self.pending.reverse()
    return super().run_pending()


class SharesArguments(Queued):
  """One place for the integers of all launches."""

  def __init__(self) -> None:
    super().__init__()
    self.integers: list[int] = []

  def prepared(self, program: RefProgram, buffers: Buffers, integers: Sequence[int]) -> Callable[[], float | None]:
    self.integers[:] = integers
    arguments = (program, list(buffers), self.integers)
    return lambda: RefDevice.launch(self, *arguments, (), (), True)


class CopiesBeforeTheSourceIsReady(Queued):
  def wait_for_source(self, source: Queued) -> None:
    pass


class LetsTheSourceGoOn(Queued):
  def hold_source(self, source: Queued) -> None:
    pass


class CopiesAtOnce(Queued):
  """Without waiting for its own launches."""

  def copy_from(
    self, memory: RefMemory, offset: int, source: Any, source_memory: RefMemory, source_offset: int, nbytes: int,
    wait: bool,
  ) -> float | None:  # fmt: skip
    source.run_pending()
    return RefDevice.copy_from(self, memory, offset, source, source_memory, source_offset, nbytes, wait)


class CopiesFromTheStart(RefDevice):
  def copy_from(
    self, memory: RefMemory, offset: int, source: Any, source_memory: RefMemory, source_offset: int, nbytes: int,
    wait: bool,
  ) -> float | None:  # fmt: skip
    return super().copy_from(memory, offset, source, source_memory, 0, nbytes, wait)


class CopiesForwards(RefDevice):
  """As memcpy may."""

  def copy_from(
    self, memory: RefMemory, offset: int, source: Any, source_memory: RefMemory, source_offset: int, nbytes: int,
    wait: bool,
  ) -> float | None:  # fmt: skip
    for n in range(nbytes):
      super().copy_from(memory, offset + n, source, source_memory, source_offset + n, 1, wait)
    return 1e-6


class ForgetsWhatItReaches(RefDevice):
  asked = 0

  def reaches(self, source: Any) -> bool:
    self.asked += 1
    return self.asked < 2


class MapsACopy(RefDevice):
  def view(self, memory: RefMemory) -> memoryview:
    return memoryview(bytearray(memory.bytes()))


class AdoptsACopy(RefDevice):
  def adopt(self, data: memoryview) -> RefMemory:
    return super().adopt(memoryview(bytearray(data)))


class ClaimsGraphs(RefDevice):
  def __init__(self) -> None:
    super().__init__()
    self.info = replace(self.info, capabilities=replace(self.info.capabilities, graphs=True))


class ClaimsAnotherArch(RefDevice):
  def __init__(self) -> None:
    super().__init__()
    self.info = replace(self.info, arch="snake")


class Two(Backend):
  """Two devices, both wrong."""

  def probe(self) -> list[str]:
    return [ARCHITECTURE] * 2

  def open(self, index: int) -> Device:
    return self.make_device() if index < 2 else super().open(8)


class OldBackend(Backend):
  api = (0, 3)
  ir = (1, 1)


class OpensAnything(Backend):
  def open(self, index: int) -> Device:
    return self.make_device()


class IsAbsent(Backend):
  """Not wrong: there is no such device here."""

  def probe(self) -> Unavailable:
    return Unavailable("no snake was found", "Buy one")

  def open(self, index: int) -> Device:
    raise self.probe()


class CloseForgets(Backend):
  """All devices that are open share one memory, and what was not freed stays in use."""

  def open(self, index: int) -> Device:
    device = super().open(index)
    assert isinstance(device, RefDevice)
    used = CloseForgets.used
    device.alloc = lambda nbytes: used.append(nbytes) or RefMemory(nbytes) if sum(used) + nbytes <= LIMIT else full()  # type: ignore[method-assign,func-returns-value]
    device.free = lambda memory: used.remove(memory.nbytes)  # type: ignore[method-assign]
    return device

  used: list[int] = []


def full() -> RefMemory:
  raise OutOfMemory("full")


class DeniesTheChild(RefDevice):
  """As a driver whose context belongs to a process."""

  def __init__(self) -> None:
    super().__init__()
    self.process = os.getpid()

  def launch(
    self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
  ) -> float | None:
    if os.getpid() != self.process:
      raise OSError("no context")
    return super().launch(program, buffers, integers, grid, group, wait)


class SharesWithTheChild(RefDevice):
  """Memory that is not copied with the process."""

  def alloc(self, nbytes: int) -> RefMemory:
    memory = super().alloc(nbytes)
    memory.data = memoryview(mmap.mmap(-1, nbytes))
    return memory


class Stages(RefDevice):
  """Copies what is written by way of one place, in two steps."""

  staged = b""

  def write(self, memory: RefMemory, offset: int, data: memoryview) -> None:
    self.staged = bytes(data)
    self.sync()
    super().write(memory, offset, memoryview(self.staged))


class NotTwice(RefDevice):
  """Notices it, and refuses."""

  inside = False

  def alloc(self, nbytes: int) -> RefMemory:
    if self.inside:
      raise RuntimeError("one at a time")
    self.inside = True
    try:
      return super().alloc(nbytes)
    finally:
      self.inside = False


OFFSETS = Backend(device=IgnoresOffsets)
INTEGERS = Backend(device=IgnoresTheSecondInteger)
INTEGERS_32 = Backend(device=CutsIntegers)
LEAK = Backend(device=LeaksMemory)
KEEPS = Backend(device=KeepsLaunches)
NO_OUT_OF_MEMORY = Backend(device=SwallowsOutOfMemory)
MEMORY_ERROR = Backend(device=RaisesMemoryError)
WORDS = Backend(device=CopiesWords)
READS_START = Backend(device=ReadsFromTheStart)
OVERLAP = Backend(device=GivesOutTheSameTwice)
THREAD = Backend(device=BelongsToAThread)
NO_TIME = Backend(device=ReturnsNoTime)
RAISES = Backend(device=RaisesItsOwn)
ENDS = Backend(device=EndsTheProcess)
QUEUED = Two(device=Queued)
READ_EARLY = Backend(device=ReadsTooEarly)
WRITE_EARLY = Backend(device=WritesTooEarly)
FREE_EARLY = Backend(device=FreesTooEarly)
BACKWARDS = Backend(device=RunsBackwards)
ARGUMENTS = Backend(device=SharesArguments)
PEER_EARLY = Two(device=CopiesBeforeTheSourceIsReady)
PEER_LATE = Two(device=LetsTheSourceGoOn)
PEER_AT_ONCE = Two(device=CopiesAtOnce)
PEER_START = Two(device=CopiesFromTheStart)
PEER_FORWARDS = Two(device=CopiesForwards)
PEER_FORGETS = Two(device=ForgetsWhatItReaches)
FORK = Backend(device=DeniesTheChild)
FORK_SHARES = Backend(device=SharesWithTheChild)
STAGING = Backend(device=Stages)
NOT_TWICE = Backend(device=NotTwice)
MAPS_COPY = Backend(device=MapsACopy)
ADOPTS_COPY = Backend(device=AdoptsACopy)
GRAPHS = Backend(device=ClaimsGraphs)
ARCH = Backend(device=ClaimsAnotherArch)
OLD = OldBackend()
ANY_INDEX = OpensAnything()
CLOSE = CloseForgets()
ABSENT = IsAbsent()
