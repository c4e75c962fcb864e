"""Captured graphs as CUDA graphs: the driver prepares a list of launches and copies, and starts all of it at once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from tiny_runtime import GraphCopy, GraphKernel
from tiny_runtime_nv.driver import DEVICE_MEMORY, CopyNode, Driver, DriverError, KernelNode
from tiny_runtime_nv.memory import Memory
from tiny_runtime_nv.programs import Program, three

LONGEST_ROW = 1 << 30
"""Bytes of a row of a copy; CU_DEVICE_ATTRIBUTE_MAX_PITCH is 2^31 - 1."""

REFUSED = {1, 801, 910}
"""INVALID_VALUE, NOT_SUPPORTED, GRAPH_EXEC_UPDATE_FAILURE: a node cannot be changed so, or not by this driver. A graph
that is built anew can have it; what is wrong with the node itself is refused then, too."""


class Graph:
  """Calls over a list of memories, each after the one before it. Memories can be replaced, and so can a kernel's
  integers and sizes.

  `scratch` gives memory for copies whose source and target overlap, which CUDA's are not for.
  """

  def __init__(
    self, driver: Driver, context: Any, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[Memory],
    scratch: Callable[[int], Memory],
  ) -> None:  # fmt: skip
    self.driver, self.context, self.scratch = driver, context, scratch
    self.calls, self.memories = list(calls), list(memories)
    self.names = [call.program.name for call in calls if isinstance(call, GraphKernel)]
    self.apart: dict[int, Memory] = {}
    """What copies that overlap go through, by call."""
    self.handles: list[tuple[str, Any]] = []
    """What the driver has made for it, with the function that destroys each."""
    self.users: list[list[int]] = [[] for _ in memories]
    """The calls that each memory is used in."""
    for index, call in enumerate(self.calls):
      for position in {position for position, _ in self._places(call)}:
        self.users[position].append(index)
    self.plain = Executable(self)
    self.timed: Executable | None = None
    """Made when it is first asked for."""
    self.clocks: list[Any] = []
    self.times: list[tuple[float, float]] = []
    """When each call of the last run that was waited for began and ended, in seconds from its beginning."""

  def parts(self, index: int) -> Sequence[KernelNode | CopyNode]:
    """What the driver is told of a call."""
    call = self.calls[index]
    return [self._kernel(call)] if isinstance(call, GraphKernel) else self._copies(index, call)

  @staticmethod
  def _places(call: GraphKernel | GraphCopy) -> tuple[tuple[int, int], ...]:
    return call.buffers if isinstance(call, GraphKernel) else (call.target, call.source)

  def _kernel(self, call: GraphKernel) -> KernelNode:
    """What the driver is told of a kernel. It copies the arguments when it is."""
    program: Program = call.program
    program.pass_in([(self.memories[position], offset) for position, offset in call.buffers], call.integers)
    grid = [max(1, size) for size in three(call.global_size)]
    block, shared = three(call.local_size), program.shared
    return KernelNode(program.function, *grid, *block, shared, program.parameters, None, None, None)

  def _copies(self, index: int, call: GraphCopy) -> list[CopyNode]:
    """Its copies: through memory that is apart, where source and target overlap."""
    target, source = (self.memories[p].at(offset, call.nbytes) for p, offset in (call.target, call.source))
    if not overlap(target, source, call.nbytes):
      return copy_nodes(target, source, call.nbytes)
    if index not in self.apart:
      self.apart[index] = self.scratch(call.nbytes)
    apart = self.apart[index].address
    return [*copy_nodes(apart, source, call.nbytes), *copy_nodes(target, apart, call.nbytes)]

  def change(self, memories: Sequence[tuple[int, Memory]], kernels: Sequence[tuple[int, GraphKernel]]) -> None:
    """Use other memories, and other integers and sizes of kernels. Raises ValueError for what does not fit."""
    for position, memory in memories:
      self.memories[position] = memory
    changed = dict.fromkeys(index for position, _ in memories for index in self.users[position])
    for index, kernel in kernels:
      self.calls[index] = kernel
      changed[index] = None
    if not self.plain.takes(self, changed):
      self.plain = Executable(self)
    if self.timed is not None and not self.timed.takes(self, changed):
      self.timed = None

  def with_clocks(self) -> Executable:
    """The calls with an event before the first and behind each, for which only a run that is looked at pays."""
    if self.timed is None:
      while len(self.clocks) <= len(self.calls):
        self.clocks.append(self.driver.new("cuEventCreate", 0))
        self.handles.append(("cuEventDestroy_v2", self.clocks[-1]))
      self.timed = Executable(self, self.clocks)
    return self.timed

  def read_clocks(self) -> None:
    """Set `times`: the run `with_clocks` is done."""
    milliseconds = [self.driver.new("cuEventElapsedTime", *pair, kind=ctypes.c_float) for pair in pairwise(self.clocks)]
    self.times = list(pairwise(accumulate((time * 1e-3 for time in milliseconds), initial=0.0)))


class Executable:
  """What the driver has prepared of a graph, and starts at once. `clocks`: events before the first call and behind
  each; none: nothing is timed."""

  def __init__(self, graph: Graph, clocks: Sequence[Any] = ()) -> None:
    self.driver = driver = graph.driver
    made = driver.new("cuGraphCreate", 0)
    graph.handles.append(("cuGraphDestroy", made))  # whose nodes name what is changed later
    last: Any = None

    def add(function: str, *arguments: Any) -> Any:
      """Put a node behind the last one."""
      nonlocal last
      before = (ctypes.c_void_p * 1)(last) if last is not None else None
      last = driver.new(function, made, before, 0 if before is None else 1, *arguments)
      return last

    for clock in clocks[:1]:
      add("cuGraphAddEventRecordNode", clock)
    self.nodes: list[list[Any]] = []
    """Of each call."""
    for index in range(len(graph.calls)):
      self.nodes.append([
        add("cuGraphAddKernelNode_v2", ctypes.byref(part)) if isinstance(part, KernelNode)
        else add("cuGraphAddMemcpyNode", ctypes.byref(part), graph.context) for part in graph.parts(index)
      ])  # fmt: skip
      for clock in clocks[index + 1 : index + 2]:
        add("cuGraphAddEventRecordNode", clock)
    self.handle = driver.new("cuGraphInstantiateWithFlags", made, 0)
    graph.handles.append(("cuGraphExecDestroy", self.handle))
    for call, nodes in zip(graph.calls, self.nodes):
      if isinstance(call, GraphKernel) and 0 in call.global_size:
        driver("cuGraphNodeSetEnabled", self.handle, nodes[0], 0)

  def takes(self, graph: Graph, changed: Iterable[int]) -> bool:
    """Change these calls to what the graph has now; False where it has to be prepared anew."""
    try:
      for index in changed:
        call, nodes, parts = graph.calls[index], self.nodes[index], graph.parts(index)
        if len(parts) != len(nodes):  # what overlapped does no longer, or the other way round
          return False
        for node, part in zip(nodes, parts):
          if isinstance(part, KernelNode):
            self.driver("cuGraphExecKernelNodeSetParams_v2", self.handle, node, ctypes.byref(part))
          else:
            self.driver("cuGraphExecMemcpyNodeSetParams", self.handle, node, ctypes.byref(part), graph.context)
        if isinstance(call, GraphKernel):
          self.driver("cuGraphNodeSetEnabled", self.handle, nodes[0], 0 not in call.global_size)
    except DriverError as error:
      if error.status not in REFUSED:
        raise
      return False
    return True


def overlap(a: int, b: int, nbytes: int) -> bool:
  """Whether `nbytes` from one address on and from another have bytes in common."""
  return abs(a - b) < nbytes


def copy_nodes(target: int, source: int, nbytes: int) -> list[CopyNode]:
  """Copies of bytes in the device's memory, which are rows of one length: there is a limit to that."""
  nodes = []
  for start in range(0, nbytes, LONGEST_ROW):
    size = min(LONGEST_ROW, nbytes - start)
    node = CopyNode(WidthInBytes=size, Height=1, Depth=1, srcMemoryType=DEVICE_MEMORY, dstMemoryType=DEVICE_MEMORY)
    node.srcDevice, node.srcPitch, node.srcHeight = source + start, size, 1
    node.dstDevice, node.dstPitch, node.dstHeight = target + start, size, 1
    nodes.append(node)
  return nodes
