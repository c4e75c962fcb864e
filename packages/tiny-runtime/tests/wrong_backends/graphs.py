"""Devices whose graphs are of several devices: one that is right, and some with one mistake each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from tiny_runtime.contract import GraphCopy, GraphKernel
from tiny_runtime.ref import RefDevice
from tiny_runtime.ref.device import RefMemory
from wrong_backends.devices import Queued, Two

Calls = list[GraphKernel | GraphCopy]
Graph = tuple[Calls, list[RefMemory]]


class OfSeveral(Queued):
  """A graph is one step of the queue of the device that runs it; the other's waits for that."""

  everyone: dict[RefMemory, OfSeveral] = {}
  """Whose each memory is."""

  def __init__(self) -> None:
    super().__init__()
    self.info = replace(self.info, capabilities=replace(self.info.capabilities, graphs=True, peer_graphs=True))

  def alloc(self, nbytes: int) -> RefMemory:
    memory = super().alloc(nbytes)
    self.everyone[memory] = self
    return memory

  def make_graph(self, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[RefMemory]) -> Graph:
    return list(calls), list(memories)

  def run_graph(
    self, graph: Graph, memories: Sequence[tuple[int, RefMemory]], kernels: Sequence[tuple[int, GraphKernel]],
    wait: bool,
  ) -> float | None:  # fmt: skip
    calls, mine = graph
    for position, memory in self.changed(memories):
      mine[position] = memory
    for index, kernel in kernels:
      calls[index] = kernel
    others = {self.everyone[memory] for memory in mine} - {self}
    for other in others:
      self.wait_for_source(other)
    now = list(calls), list(mine)
    self.pending.append(lambda: self.run_calls(*now))
    for other in others:
      self.hold_source(other)
    return self.run_pending() if wait else None

  def changed(self, memories: Sequence[tuple[int, RefMemory]]) -> Sequence[tuple[int, RefMemory]]:
    return memories

  def run_calls(self, calls: Calls, memories: Sequence[RefMemory]) -> float:
    began = time.perf_counter()
    for call in calls:
      if isinstance(call, GraphCopy):
        (to, start), (of, begin) = call.target, call.source
        RefDevice.copy_from(self, memories[to], start, self, memories[of], begin, call.nbytes, True)
      else:
        buffers = [(memories[position], offset) for position, offset in call.buffers]
        RefDevice.launch(self, call.program, buffers, call.integers, (), (), True)
    return time.perf_counter() - began


class WaitsForItselfOnly(OfSeveral):
  def wait_for_source(self, source: Queued) -> None:
    pass


class LetsTheOthersGoOn(OfSeveral):
  def hold_source(self, source: Queued) -> None:
    pass


class ChangesItsOwnOnly(OfSeveral):
  """Memories of the other device stay what they were."""

  def changed(self, memories: Sequence[tuple[int, RefMemory]]) -> Sequence[tuple[int, RefMemory]]:
    return [(position, memory) for position, memory in memories if self.everyone[memory] is self]


class CopiesFirst(OfSeveral):
  """All copies, and then all kernels."""

  def run_calls(self, calls: Calls, memories: Sequence[RefMemory]) -> float:
    return super().run_calls(sorted(calls, key=lambda call: isinstance(call, GraphKernel)), memories)


SEVERAL = Two(device=OfSeveral)
ITSELF = Two(device=WaitsForItselfOnly)
GO_ON = Two(device=LetsTheOthersGoOn)
OWN = Two(device=ChangesItsOwnOnly)
COPIES_FIRST = Two(device=CopiesFirst)
