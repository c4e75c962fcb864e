"""Devices that are wrong about what has to wait, about time, and about what belongs to a launch that is on its way."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

from tiny_runtime import Binary
from tiny_runtime.contract import GraphKernel
from tiny_runtime.ref import RefDevice
from tiny_runtime.ref.device import RefMemory, RefProgram
from wrong_backends import Backend
from wrong_backends.devices import Buffers, Queued, Sizes, Two
from wrong_backends.graphs import Calls, Graph, OfSeveral

SMALL = 64
STARTED = time.perf_counter() - 1


class SmallReadsDoNotWait(Queued):
  def read(self, memory: RefMemory, offset: int, out: memoryview) -> None:
    if out.nbytes > SMALL:
      self.run_pending()
    RefDevice.read(self, memory, offset, out)


class LargeReadsDoNotWait(Queued):
  def read(self, memory: RefMemory, offset: int, out: memoryview) -> None:
    if out.nbytes <= 1 << 16:
      self.run_pending()
    RefDevice.read(self, memory, offset, out)


class ReadsInsideDoNotWait(Queued):
  def read(self, memory: RefMemory, offset: int, out: memoryview) -> None:
    if offset == 0:
      self.run_pending()
    RefDevice.read(self, memory, offset, out)


class WritesInsideDoNotWait(Queued):
  def write(self, memory: RefMemory, offset: int, data: memoryview) -> None:
    if offset == 0:
      self.run_pending()
    RefDevice.write(self, memory, offset, data)


class SmallWritesDoNotWait(Queued):
  def write(self, memory: RefMemory, offset: int, data: memoryview) -> None:
    if data.nbytes > SMALL:
      self.run_pending()
    RefDevice.write(self, memory, offset, data)


class LargeFreesDoNotWait(Queued):
  def free(self, memory: RefMemory) -> None:
    if memory.nbytes >= 1 << 20:
      memory.bytes()[:] = b"\xff" * memory.nbytes  # others have it now
    super().free(memory)


class SyncDoesNothing(Queued):
  def sync(self) -> None:
    pass


class Mapped(Queued):
  """Its memory can be looked at. This is right."""

  def __init__(self) -> None:
    super().__init__()
    self.info = replace(self.info, capabilities=replace(self.info.capabilities, host_mapped=True))


class MapsAndSyncDoesNothing(Mapped):
  def sync(self) -> None:
    pass


class WaitIsIgnored(Queued):
  def launch(
    self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
  ) -> float | None:
    self.pending.append(self.prepared(program, buffers, integers))
    return 1e-3 if wait else None


def timing(seconds: Callable[[float], float]) -> Backend:
  """A device with a clock of its own."""

  class Timing(RefDevice):
    def launch(
      self, program: RefProgram, buffers: Buffers, integers: Sequence[int], grid: Sizes, group: Sizes, wait: bool
    ) -> float | None:
      took = super().launch(program, buffers, integers, grid, group, wait)
      assert took is not None
      return seconds(took)

  return Backend(device=Timing)


class KeepsTheSequences(Queued):
  """The lists of a launch, as they are."""

  def prepared(self, program: RefProgram, buffers: Buffers, integers: Sequence[int]) -> Callable[[], float | None]:
    return lambda: RefDevice.launch(self, program, buffers, integers, (), (), True)


class KeepsTheData(Queued):
  """Of large writes, which are made when it suits."""

  def write(self, memory: RefMemory, offset: int, data: memoryview) -> None:
    if data.nbytes <= 1 << 16:
      super().write(memory, offset, data)
    else:
      self.pending.append(lambda: RefDevice.write(self, memory, offset, data))


class ByName(RefDevice):
  """Programs are kept by the name of their kernel."""

  def __init__(self) -> None:
    super().__init__()
    self.loaded: dict[object, RefProgram] = {}

  def key(self, binary: Binary) -> object:
    return binary.entry

  def load(self, binary: Binary) -> RefProgram:
    key = self.key(binary)
    if key not in self.loaded:
      self.loaded[key] = super().load(replace(binary))
    return self.loaded[key]


class ByPlace(ByName):
  """By the address of the binary, which others have after it."""

  def key(self, binary: Binary) -> object:
    return id(binary)


class ByLength(ByName):
  def key(self, binary: Binary) -> object:
    return binary.entry, len(binary.code)


class ForgetsPrograms(Queued):
  """Launches on their way do not hold their program."""

  def __init__(self) -> None:
    super().__init__()
    self.alive: dict[int, int] = {}

  def load(self, binary: Binary) -> RefProgram:
    program = super().load(binary)
    number = len(self.alive)
    self.alive[number] = 1
    object.__setattr__(program, "number", number)
    weakref.finalize(program, self.alive.__setitem__, number, 0)
    return program

  def prepared(self, program: RefProgram, buffers: Buffers, integers: Sequence[int]) -> Callable[[], float | None]:
    number, held = program.number, replace(program)  # type: ignore[attr-defined]
    arguments = (list(buffers), list(integers))
    return lambda: RefDevice.launch(self, held, *arguments, (), (), True) if self.alive[number] else None


class GraphsForgetIntegers(OfSeveral):
  def run_graph(
    self, graph: Graph, memories: Sequence[tuple[int, RefMemory]], kernels: Sequence[tuple[int, GraphKernel]],
    wait: bool,
  ) -> float | None:  # fmt: skip
    return super().run_graph(graph, memories, (), wait)


class GraphsChangeOnce(OfSeveral):
  """Changes hold for one run."""

  def run_graph(
    self, graph: Graph, memories: Sequence[tuple[int, RefMemory]], kernels: Sequence[tuple[int, GraphKernel]],
    wait: bool,
  ) -> float | None:  # fmt: skip
    return super().run_graph((list(graph[0]), list(graph[1])), memories, kernels, wait)


class GraphsChangeByMemory(OfSeveral):
  """All positions of a memory change with one of them."""

  def run_graph(
    self, graph: Graph, memories: Sequence[tuple[int, RefMemory]], kernels: Sequence[tuple[int, GraphKernel]],
    wait: bool,
  ) -> float | None:  # fmt: skip
    held = graph[1]
    changed = [(k, new) for position, new in memories for k, old in enumerate(held) if old is held[position]]
    return super().run_graph(graph, changed, kernels, wait)


class GraphsWithOffsetsOf16Bits(OfSeveral):
  def run_calls(self, calls: Calls, memories: Sequence[RefMemory]) -> float:
    cut: Calls = []
    for call in calls:
      if isinstance(call, GraphKernel):
        call = replace(call, buffers=tuple((position, offset % (1 << 16)) for position, offset in call.buffers))
      else:
        (to, start), (of, begin) = call.target, call.source
        call = replace(call, target=(to, start % (1 << 16)), source=(of, begin % (1 << 16)))
      cut.append(call)
    return super().run_calls(cut, memories)


class GraphsDoNotWait(OfSeveral):
  """With wait, they return at once."""

  def run_graph(
    self, graph: Graph, memories: Sequence[tuple[int, RefMemory]], kernels: Sequence[tuple[int, GraphKernel]],
    wait: bool,
  ) -> float | None:  # fmt: skip
    super().run_graph(graph, memories, kernels, False)
    return 1e-3 if wait else None


class GraphsTakeMilliseconds(OfSeveral):
  def run_calls(self, calls: Calls, memories: Sequence[RefMemory]) -> float:
    return super().run_calls(calls, memories) * 1e3


class GraphsKeepTheList(OfSeveral):
  """Of calls, as it is."""

  def make_graph(self, calls: Calls, memories: list[RefMemory]) -> Graph:  # type: ignore[override]
    return calls, memories


SMALL_READS = Backend(device=SmallReadsDoNotWait)
LARGE_READS = Backend(device=LargeReadsDoNotWait)
INSIDE_READS = Backend(device=ReadsInsideDoNotWait)
INSIDE_WRITES = Backend(device=WritesInsideDoNotWait)
SMALL_WRITES = Backend(device=SmallWritesDoNotWait)
LARGE_FREES = Backend(device=LargeFreesDoNotWait)
MAPPED = Backend(device=Mapped)
NO_SYNC = Backend(device=SyncDoesNothing)
NO_SYNC_MAPPED = Backend(device=MapsAndSyncDoesNothing)
NO_WAIT = Backend(device=WaitIsIgnored)
MILLISECONDS = timing(lambda seconds: seconds * 1e3)
MICROSECONDS = timing(lambda seconds: seconds * 1e6)
KILOSECONDS = timing(lambda seconds: seconds / 1e3)
ALWAYS_THE_SAME = timing(lambda seconds: 1e-6)
SINCE_OPENED = timing(lambda seconds: time.perf_counter() - STARTED)
KEEPS_SEQUENCES = Backend(device=KeepsTheSequences)
KEEPS_DATA = Backend(device=KeepsTheData)
BY_NAME = Backend(device=ByName)
BY_PLACE = Backend(device=ByPlace)
BY_LENGTH = Backend(device=ByLength)
FORGETS_PROGRAMS = Backend(device=ForgetsPrograms)
GRAPHS_INTEGERS = Two(device=GraphsForgetIntegers)
GRAPHS_ONCE = Two(device=GraphsChangeOnce)
GRAPHS_BY_MEMORY = Two(device=GraphsChangeByMemory)
GRAPHS_OFFSETS = Two(device=GraphsWithOffsetsOf16Bits)
GRAPHS_NO_WAIT = Two(device=GraphsDoNotWait)
GRAPHS_MILLISECONDS = Two(device=GraphsTakeMilliseconds)
GRAPHS_LIST = Two(device=GraphsKeepTheList)
