"""A device of the plugin contract, made of what `Hardware` has: one queue, in which everything happens in order."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tiny_runtime.binary import Binary
from tiny_runtime.contract import GraphCopy, GraphKernel, Recording
from tiny_runtime.errors import DeviceLost, OutOfMemory, Unavailable
from tiny_runtime.hcq.graph import Copies, Graph, Instance
from tiny_runtime.hcq.hardware import (
  Block,
  Command,
  Dispatch,
  Hardware,
  Kind,
  Launch,
  RecordingHardware,
  Signal,
  TimedHardware,
  Wait,
  Work,
)
from tiny_runtime.hcq.peers import Promises, connect, copy_between, peer_hardware
from tiny_runtime.hcq.pool import Memory, Pool
from tiny_runtime.hcq.programs import Program
from tiny_runtime.hcq.staging import HostRing, Staging
from tiny_runtime.hcq.timeline import COPY, Timeline

ARGUMENTS, STAGING = 1 << 20, 16 << 20
"""Bytes of the host's memory that are used in turns: for arguments of launches, and for copies from and to the host."""
T = TypeVar("T")


class QueueDevice:
  """See `tiny_runtime.contract.Device`, `Graphs`, `Trims`, `GraphTimes` (claimed if the driver is a `TimedHardware`),
  `Peers` (a `PeerHardware`) and `Recordings` (a `RecordingHardware`), whose methods these are. Raises Unavailable where
  the host has no memory for it, and closes `hardware` then."""

  def __init__(self, hardware: Hardware) -> None:
    self.hardware, self.info = hardware, hardware.info
    self.lost: DeviceLost | None = None
    self.closed = False
    self.timeline = Timeline(hardware)
    self.pool = Pool(hardware, self.timeline)
    self.promises = Promises(self)
    try:
      self.rings = [HostRing(hardware.allocate(nbytes, Kind.HOST), self.timeline) for nbytes in (ARGUMENTS, STAGING)]
    except OutOfMemory as error:
      hardware.close(lost=False)
      raise Unavailable(f"{self.info.name} gets no memory of the host: {error}", "End other programs") from error
    self.arguments = self.rings[0]
    self.staging = Staging(self.rings[1], self.timeline, hardware.copies, self._copy)
    self.graphs: weakref.WeakSet[Graph] = weakref.WeakSet()
    self.dropped = [0]
    """The last submission of graphs that nobody holds any more."""
    self.unused: deque[Block | Memory] = deque()
    """What belonged to programs and graphs that nobody holds any more."""

  @contextmanager
  def _doing(self, action: str) -> Iterator[None]:
    """What an action of ours is called if the device is lost in it, or was before."""
    if self.lost is not None:
      raise DeviceLost(str(self.lost))
    try:
      yield
    except DeviceLost as error:
      raise self._now_lost(error, action) from error

  def _now_lost(self, error: DeviceLost, action: str) -> DeviceLost:
    self.lost = DeviceLost(f"{self.info.name}: {action}: {error}{self.timeline.suspects()}")
    self.promises.let_go()
    return self.lost

  def _drop_unused(self) -> None:
    """Give back what nobody holds any more, when nothing runs that may need it."""
    while self.unused:
      dropped = self.unused.popleft()
      if isinstance(dropped, Memory):
        self.pool.free(dropped)
      else:
        self.timeline.later(lambda block=dropped: self.hardware.release(block))  # type: ignore[misc]

  def _with_room(self, make: Callable[[], T]) -> T:
    """Make something for which there is no room, perhaps, until what is not in use goes back to the driver."""
    try:
      return make()
    except OutOfMemory:
      self.pool.trim()
      return make()

  # *** memory ***

  def alloc(self, nbytes: int) -> Memory:
    """New memory. Raises OutOfMemory."""
    with self._doing(f"allocating {nbytes} bytes"):
      return self.pool.alloc(nbytes)

  def free(self, memory: Memory) -> None:
    """Take memory back. It may be used again for what comes after all launches so far."""
    self.pool.free(memory)

  def trim(self) -> None:
    """See the capability `Trims`."""
    with self._doing("giving memory back"):
      self._drop_unused()
      self.pool.trim()

  def write(self, memory: Memory, offset: int, data: memoryview) -> None:
    """Copy `data` in."""
    address = memory.at(offset, data.nbytes)
    if data.nbytes:
      with self._doing(f"writing {data.nbytes} bytes"):
        self.staging.write(address, data.cast("B"), self._is_idle(memory.block))
        memory.block.last = self.timeline.submitted

  def _is_idle(self, block: Block) -> bool:
    """Whether no submission that is under way uses a block."""
    done = self.hardware.completed()
    if max(block.last, *self.dropped) > done:
      return False
    running = (graph for graph in self.graphs if graph.last > done)
    return not any(memory.block is block for graph in running for memory in graph.memories)

  def read(self, memory: Memory, offset: int, out: memoryview) -> None:
    """Fill `out`."""
    address = memory.at(offset, out.nbytes)
    if out.nbytes:
      with self._doing(f"reading {out.nbytes} bytes"):
        self.staging.read(address, out.cast("B"))

  def _copy(self, work: Sequence[Work]) -> int:
    return self._submit(work, (COPY,), False)

  def _submit(self, work: Sequence[Work | Signal | Wait], names: Sequence[str], timed: bool) -> int:
    """Run commands once; gives the number of the submission."""
    commands: list[Command] = [self._command(item) if isinstance(item, Launch) else item for item in work]
    return self.timeline.submit(self.hardware.prepare(commands), names, timed)

  def _command(self, launch: Launch) -> Dispatch:
    """A launch with its arguments in memory."""
    data = launch.kernel.arguments(launch)
    address, view = self.arguments.take(data.nbytes, self.hardware.argument_alignment)
    view[:] = data
    return Dispatch(launch.kernel, address, launch.global_size, launch.local_size)

  # *** other devices ***

  def reaches(self, source: QueueDevice) -> bool:
    """See the capability `Peers`."""
    with self._doing(f"asking whether {source.info.name} is reached"):
      return connect(self, source)

  def copy_from(
    self, memory: Memory, offset: int, source: QueueDevice, source_memory: Memory, source_offset: int, nbytes: int,
    wait: bool,
  ) -> float | None:  # fmt: skip
    """See the capability `Peers`. With `wait`, the host has waited for what comes before, too."""
    target, origin = memory.at(offset, nbytes), source_memory.at(source_offset, nbytes)
    apart: list[Memory] = []

    def scratch(size: int) -> Memory:
      apart.append(self.alloc(size))
      return apart[-1]

    with self._doing(f"copying {nbytes} bytes from {source.info.name}"):
      if source is not self:
        peer_hardware(self).share(source_memory.block, source.hardware)
      work = Copies(self.hardware, scratch)(target, origin, nbytes)
    if source is not self and not wait:
      copy_between(self, source, work)
      memory.block.last, source_memory.block.last = self.timeline.submitted, source.timeline.submitted
      return None
    if wait:
      source.sync()
      self.sync()
    with self._doing(f"copying {nbytes} bytes from {source.info.name}"):
      number = memory.block.last = self._submit(work, (COPY,), wait)
      if source is self:
        source_memory.block.last = number
      for between in apart:
        self.free(between)
      if not wait:
        return None
      self.timeline.wait(number)
      return self.hardware.seconds()

  # *** programs ***

  def load(self, binary: Binary) -> Program:
    """Put the code where the device can execute it. Raises CompileError for code that is not for this device."""
    with self._doing(f"loading kernel {binary.entry}"):
      self._drop_unused()
      kernel = self._with_room(lambda: self.hardware.kernel(binary))
      code = self._with_room(lambda: self.hardware.allocate(len(kernel.image), Kind.CODE))
      kernel.address = code.address
      self.staging.write(code.address, memoryview(kernel.placed()))
    program = Program(binary, kernel, code)
    weakref.finalize(program, self.unused.append, code).atexit = False
    return program

  def launch(
    self, program: Program, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int],
    global_size: tuple[int, ...], local_size: tuple[int, ...], wait: bool,
  ) -> float | None:  # fmt: skip
    """Put a kernel into the queue. With `wait`, the seconds that the device counted. Raises ValueError for arguments
    that do not fit the program, and sizes that the device does not take."""
    launch = program.call(buffers, integers, global_size, local_size)
    if 0 in global_size:
      return 0.0 if wait else None
    if self.lost is not None:
      raise DeviceLost(str(self.lost))
    try:
      number = self._submit((launch,), (program.name,), wait)
      for memory, _ in buffers:
        memory.block.last = number
      if wait:
        self.timeline.wait(number)
        return self.hardware.seconds()
    except DeviceLost as error:
      raise self._now_lost(error, f"kernel {program.name}") from error
    return None

  def launch_recorded(
    self, program: Program, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int],
    global_size: tuple[int, ...], local_size: tuple[int, ...],
  ) -> Recording:  # fmt: skip
    """See the capability `Recordings`. Raises ValueError as `launch` does."""
    launch = program.call(buffers, integers, global_size, local_size)
    if 0 in global_size:
      return Recording(self.info.arch, program.binary.code, program.name, 0.0, (), b"", ())
    hardware: RecordingHardware = self.hardware  # type: ignore[assignment]  # the claim says so

    def read(address: int, nbytes: int) -> bytes:
      found = bytearray(nbytes)
      self.staging.read(address, memoryview(found))
      return bytes(found)

    with self._doing(f"recording kernel {program.name}"):
      dispatch = self._command(launch)
      number = self.timeline.submit(self._with_room(lambda: hardware.prepare_recorded(dispatch)), (program.name,), True)
      self.timeline.wait(number)
      return hardware.recording(program.binary, read)

  # *** graphs ***

  def make_graph(self, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[Memory]) -> Graph:
    """See the capability `Graphs`. Raises ValueError for what `launch` would refuse."""
    with self._doing(f"preparing a graph of {len(calls)} calls"):
      self._drop_unused()
      owned: list[Memory] = []

      def scratch(nbytes: int) -> Memory:
        owned.append(self.alloc(nbytes))
        return owned[-1]

      graph = Graph(self.hardware, self.timeline, calls, memories, Copies(self.hardware, scratch), self.unused.append)
    self.graphs.add(graph)
    weakref.finalize(graph, _drop_graph, self.unused, self.dropped, graph.instances, owned).atexit = False
    return graph

  def run_graph(
    self, graph: Graph, memories: Sequence[tuple[int, Memory]], kernels: Sequence[tuple[int, GraphKernel]], wait: bool
  ) -> float | None:
    """See the capability `Graphs`."""
    if self.lost is not None:
      raise DeviceLost(str(self.lost))
    try:
      if memories or kernels:
        graph.change(memories, kernels)
      instance = graph.ready()
      if instance.prepared is None:
        graph.times = [(0.0, 0.0)] * len(graph.calls)
        return 0.0 if wait else None
      instance.last = self.timeline.submit(instance.prepared, graph.names, wait)
      if wait:
        self.timeline.wait(instance.last)
        if self.info.capabilities.graph_times:
          timed: TimedHardware = self.hardware  # type: ignore[assignment]  # the claim says so
          graph.times = instance.times_of_calls(timed.times())
        return self.hardware.seconds()
    except DeviceLost as error:
      raise self._now_lost(error, f"a graph of {len(graph.calls)} calls") from error
    return None

  def graph_times(self, graph: Graph) -> Sequence[tuple[float, float]]:
    """See the capability `GraphTimes`, which is claimed if the driver is a `TimedHardware`."""
    return graph.times

  # *** waiting, and the end ***

  def sync(self) -> None:
    """Wait for all launches."""
    with self._doing("waiting"):
      self._drop_unused()
      self.timeline.wait(self.timeline.submitted)
      self.timeline.collect()

  def close(self) -> None:
    """Wait, and give everything back."""
    if self.closed:
      return
    if self.lost is None:
      try:
        self.sync()
      except DeviceLost:
        pass
    if self.lost is not None:
      self.promises.await_others()
    self.closed = True
    self.hardware.close(self.lost is not None)


def _drop_graph(
  unused: deque[Block | Memory], dropped: list[int], instances: list[Instance], owned: list[Memory]
) -> None:
  """What a graph had is not used any more, once its last run is done."""
  dropped[0] = max(dropped[0], *[instance.last for instance in instances])
  unused.extend([instance.block for instance in instances])
  unused.extend(owned)
