"""Captured graphs as CUDA graphs: the driver prepares a list of launches and copies, and starts all of it at once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
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
    self._build()

  @staticmethod
  def _places(call: GraphKernel | GraphCopy) -> tuple[tuple[int, int], ...]:
    return call.buffers if isinstance(call, GraphKernel) else (call.target, call.source)

  def _build(self) -> None:
    driver = self.driver
    self.last: Any = None
    graph = driver.new("cuGraphCreate", 0)
    self.handles.append(("cuGraphDestroy", graph))  # whose nodes name what is changed later
    self.nodes = [self._add(graph, index, call) for index, call in enumerate(self.calls)]
    self.exec = driver.new("cuGraphInstantiateWithFlags", graph, 0)
    self.handles.append(("cuGraphExecDestroy", self.exec))
    for index, call in enumerate(self.calls):
      if isinstance(call, GraphKernel) and 0 in call.global_size:
        driver("cuGraphNodeSetEnabled", self.exec, self.nodes[index][0], 0)

  def _add(self, graph: Any, index: int, call: GraphKernel | GraphCopy) -> list[Any]:
    """Put a call behind the last one; gives its nodes."""
    nodes = []
    for node in [self._kernel(call)] if isinstance(call, GraphKernel) else self._copies(index, call):
      before = (ctypes.c_void_p * 1)(self.last) if self.last is not None else None
      count = 0 if before is None else 1
      if isinstance(node, KernelNode):
        self.last = self.driver.new("cuGraphAddKernelNode_v2", graph, before, count, ctypes.byref(node))
      else:
        self.last = self.driver.new("cuGraphAddMemcpyNode", graph, before, count, ctypes.byref(node), self.context)
      nodes.append(self.last)
    return nodes

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
    try:
      self._set(list(changed))
    except DriverError as error:
      if error.status not in REFUSED:
        raise
      self._build()

  def _set(self, changed: Sequence[int]) -> None:
    """Change nodes of the graph that is there. Raises DriverError with a status of REFUSED where it has to be built
    anew."""
    for index in changed:
      call, nodes = self.calls[index], self.nodes[index]
      if isinstance(call, GraphKernel):
        self.driver("cuGraphExecKernelNodeSetParams_v2", self.exec, nodes[0], ctypes.byref(self._kernel(call)))
        self.driver("cuGraphNodeSetEnabled", self.exec, nodes[0], 0 not in call.global_size)
        continue
      copies = self._copies(index, call)
      if len(copies) != len(nodes):  # what overlapped does no longer, or the other way round
        return self._build()
      for node, copy in zip(nodes, copies):
        self.driver("cuGraphExecMemcpyNodeSetParams", self.exec, node, ctypes.byref(copy), self.context)


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
