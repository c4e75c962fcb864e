"""Pieces of a captured graph: launches that one device takes as one submission, also for others that share graphs
with it, and the rest, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby

from tiny_runtime.buffer import Buffer
from tiny_runtime.contract import Graph, GraphChange, GraphCopy, GraphKernel, Memory
from tiny_runtime.counters import GlobalCounters
from tiny_runtime.execution.collectives import CollectiveLaunch
from tiny_runtime.execution.launch import CopyLaunch, KernelLaunch, Launch
from tiny_runtime.opened import OpenDevice
from tiny_runtime.profiling.record import Call
from tiny_runtime.profiling.recording import begin, by_kernel, end, recorded, replayed
from tiny_uop.context import DEBUG


class Group:
  """Launches of one kernel with the same values of variables, by their indices in a piece, which share them."""

  def __init__(self, first: KernelLaunch) -> None:
    self.first = first
    self.indices: list[int] = []
    self.calls: tuple[int, ...] = ()
    """The same as calls of the device's graph."""


def groups_of(launches: Sequence[Launch]) -> list[Group]:
  """All launches with variables, in groups."""
  groups: dict[tuple[int, ...], Group] = {}
  for index, launch in enumerate(launches):
    if isinstance(launch, KernelLaunch) and launch.variables:
      group = groups.setdefault((id(launch.loaded), *launch.integers), Group(launch))
      group.indices.append(index)
      launch.values = group.first.values
  return [*groups.values()]


class Piece:
  """Launches that follow each other, launched one by one: copies between devices that share no graph, and devices
  without graphs."""

  def __init__(self, launches: Sequence[Launch]) -> None:
    self.launches = launches
    """The launches, in order."""
    self.groups = groups_of(launches)
    """Those with variables."""
    self.waits_for: list[CollectiveLaunch] = []
    """The collectives that have to end before it runs."""

  def run(self) -> None:
    """Run them with the buffers and values that they have now."""
    for launch in self.launches:
      launch.run()

  def replaced(self, index: int, slot: int) -> None:
    """Another Buffer is in `launches[index].buffers[slot]` now. Here every run looks at all buffers."""

  def bound(self, group: int) -> None:
    """The launches of `groups[group]` have other integers and sizes now. Here every run looks at all sizes."""

  def reset(self) -> None:
    """Forget what is known about the buffers: a run failed. Here nothing is kept."""


class DevicePiece(Piece):
  """One submission to a device with graphs. `others` are the devices that share it.

  Where a buffer cannot be used (it was freed, or an input was never written), the launches are run one by one, so that
  the error names the kernel; and with DEBUG=2, which wants the time of each.
  """

  def __init__(
    self, opened: OpenDevice, launches: Sequence[Launch], others: Sequence[OpenDevice] = (), name: str = "graph"
  ) -> None:
    super().__init__(launches)
    self.opened, self.others, self.name = opened, tuple(others), name
    copies = [launch for launch in launches if isinstance(launch, CopyLaunch) and len(launch.devices()) > 1]
    self._between = sum(launch.buffers[0].nbytes for launch in copies)  # bytes that go from device to device
    self._graph: Graph | None = None
    self._frees = 0
    self._changed: dict[int, Buffer] = {}
    self._rebound: dict[int, Group] = {}
    # positions stand for the buffers of the capture: one that replaces an input may be in other places too
    known: dict[Buffer, int] = {}
    self._positions = [[known.setdefault(b.base, len(known)) for b in launch.buffers] for launch in launches]
    self._read_first: dict[int, bool] = {}
    self._written: set[int] = set()
    for launch, positions in zip(launches, self._positions):
      for slot in launch.reads():
        self._read_first.setdefault(positions[slot], True)
      for slot in launch.writes():
        self._read_first.setdefault(positions[slot], False)
        self._written.add(positions[slot])
    grouped = {index for group in self.groups for index in group.indices}
    fixed = [launch.sizes for index, launch in enumerate(launches) if index not in grouped]
    self._fixed = sum(size[2] for size in fixed), sum(size[3] for size in fixed)
    self._totals: tuple[int, int, int] | None = None  # launches, operations and bytes of one run, where they are known
    self._calls: list[Call] | None = None

  def run(self) -> None:
    """See Piece."""
    start = begin()
    record = self.opened.capabilities
    apart = DEBUG.value >= 2 or (start > 0 and (recorded(record) or not record.graph_times and by_kernel()))
    if self._graph is None or self._frees != Buffer.frees or apart:
      if apart or not self._prepare():
        return super().run()
    if self._changed or self._rebound:
      memories = self._memories()
      if memories is None:
        return super().run()
      rebound = self._rebind() if self._rebound else ()
      seconds = self.opened.run_graph(self._graph, memories, rebound, self.others, start > 0)
      self._changed.clear()
      self._rebound.clear()
    else:
      seconds = self.opened.run_graph(self._graph, (), (), self.others, start > 0)
    if self._totals is None:
      self._totals = self._sum()
    if start:
      if self.opened.capabilities.graph_times and seconds:
        if self._calls is None:
          self._calls = [self._call(launch) for launch in self._prepared]
        replayed(start, seconds, self._calls, self.opened.graph_times(self._graph))
      kernels, ops, nbytes = self._totals
      end(start, "graph", self.name, self.opened.name, seconds, ops, nbytes, kernels)
    GlobalCounters.count(*self._totals, seconds or 0.0)
    if self._between:
      GlobalCounters.count_copy(self._between, True)
    return None

  @staticmethod
  def _call(launch: Launch) -> Call:
    """What profiles are told of a launch."""
    _, _, ops, nbytes = launch.sizes
    key = launch.loaded.key if isinstance(launch, KernelLaunch) else ""
    return Call(launch.name, launch.buffers[0].device, ops, nbytes, launch.origins, key)

  def replaced(self, index: int, slot: int) -> None:
    """See Piece."""
    self._changed[self._positions[index][slot]] = self.launches[index].buffers[slot].base

  def bound(self, group: int) -> None:
    """See Piece."""
    self._rebound[group] = self.groups[group]
    self._totals = self._calls = None

  def _rebind(self) -> Sequence[tuple[int, GraphKernel]]:
    """Tell the device of other integers and sizes; where it takes them for each call, what `run_graph` is to be
    given."""
    groups = self._rebound.values()
    if self.opened.capabilities.graph_changes:
      changed = [GraphChange(g.calls, tuple(g.first.integers), *g.first.sizes[:2]) for g in groups]
      self.opened.change_graph(self._graph, changed)
      return ()
    calls = [(call, index) for group in groups for call, index in zip(group.calls, group.indices)]
    return [(call, self._kernel(self.launches[index], self._positions[index])) for call, index in calls]

  def reset(self) -> None:
    """See Piece."""
    self._graph = None

  def _sum(self) -> tuple[int, int, int]:
    """Launches, operations and bytes of one run."""
    ops, nbytes = self._fixed
    for group in self.groups:
      count, sizes = len(group.indices), group.first.sizes
      ops, nbytes = ops + count * sizes[2], nbytes + count * sizes[3]
    return len(self.launches), ops, nbytes

  def _kernel(self, launch: Launch, positions: Sequence[int]) -> GraphKernel:
    assert isinstance(launch, KernelLaunch)
    buffers = tuple((positions[slot], launch.buffers[slot].offset) for slot, _, _ in launch.uses)
    global_size, local_size, _, _ = launch.sizes
    return GraphKernel(launch.loaded.program, buffers, tuple(launch.integers), global_size, local_size)

  def _prepare(self) -> bool:
    """Make the device's graph, at first and when a buffer was freed; False if the buffers are not all there."""
    self._graph, self._frees, self._calls = None, Buffer.frees, None
    memories: dict[int, Memory] = {}
    calls: list[GraphKernel | GraphCopy] = []
    self._prepared: list[Launch] = []
    """The launches that are calls of the graph."""
    numbers: list[int] = []
    """For each launch, how many of those before it are calls."""
    try:
      for launch, positions in zip(self.launches, self._positions):
        numbers.append(len(calls))
        launch.memory()
        for buffer, position in zip(launch.buffers, positions):
          memories[position] = buffer.allocate().base.memory
        if isinstance(launch, KernelLaunch):
          calls.append(self._kernel(launch, positions))
          self._prepared.append(launch)
        elif launch.buffers[0].nbytes:
          self._prepared.append(launch)
          (target, source), (to, of) = launch.buffers, positions
          calls.append(GraphCopy((to, target.offset), (of, source.offset), target.nbytes))
    except RuntimeError:
      return False  # the launches will raise it
    self._graph = self.opened.make_graph(calls, [memories[n] for n in range(len(memories))], self.others)
    for group in self.groups:
      group.calls = tuple([numbers[index] for index in group.indices])
    self._changed.clear()
    self._rebound.clear()
    return True

  def _memories(self) -> list[tuple[int, Memory]] | None:
    """The memories of the buffers that were replaced; None if one cannot be used."""
    found = []
    try:
      for position, buffer in self._changed.items():
        if (memory := buffer.written_memory()) is None:
          if self._read_first.get(position):
            memory, _ = buffer.to_read()
          if position in self._written:
            memory, _ = buffer.to_write()
          elif position not in self._read_first:
            memory = buffer.allocate().memory
        found.append((position, memory))
    except RuntimeError:
      return None
    return found


def cut(launches: Sequence[Launch], name: str = "graph") -> tuple[list[Piece], list[CollectiveLaunch]]:
  """The launches in pieces, each as long as can be, and the collectives that no piece waits for. `name` is what
  profiles call the pieces."""
  lead = _leads(launches)
  waits, left = _waits(launches)
  numbers = accumulate([bool(waited) for waited in waits])
  pieces: list[Piece] = []
  begun = 0
  for (opened, _), group in groupby(zip(launches, numbers), lambda pair: (_device_of(pair[0], lead), pair[1])):
    own = [launch for launch, _ in group]
    others = dict.fromkeys(device for launch in own for device in launch.devices() if device is not opened)
    pieces.append(Piece(own) if opened is None else DevicePiece(opened, own, [*others], name))
    pieces[-1].waits_for = waits[begun]
    begun += len(own)
  return pieces, left


def _waits(launches: Sequence[Launch]) -> tuple[list[list[CollectiveLaunch]], list[CollectiveLaunch]]:
  """For each launch the collectives that have to end before it, and those that nothing waits for."""
  waits: list[list[CollectiveLaunch]] = []
  begun: list[CollectiveLaunch] = []
  for launch in launches:
    waits.append([one for one in begun if one.meets(launch)])
    begun = [one for one in begun if one not in waits[-1]]
    if isinstance(launch, CollectiveLaunch):
      begun.append(launch)
  return waits, begun


def _leads(launches: Sequence[Launch]) -> dict[OpenDevice, OpenDevice]:
  """For each device with graphs the one to submit them to: the first of those that share graphs with each other, in
  the order in which launches use them; usually itself."""
  devices = dict.fromkeys(device for launch in launches for device in launch.devices() if device.capabilities.graphs)
  groups: list[list[OpenDevice]] = []
  for device in devices:
    own = next((group for group in groups if all(device.shares_graphs(other) for other in group)), None)
    if own is None:
      groups.append([device])
    else:
      own.append(device)
  return {device: group[0] for group in groups for device in group}


def _device_of(launch: Launch, lead: dict[OpenDevice, OpenDevice]) -> OpenDevice | None:
  """The device with graphs that a launch can be submitted to."""
  if isinstance(launch, CollectiveLaunch):
    return None
  leads = {lead.get(device) for device in launch.devices()}
  return leads.pop() if len(leads) == 1 else None
