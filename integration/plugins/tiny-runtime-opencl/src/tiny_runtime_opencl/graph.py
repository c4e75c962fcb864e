"""Captured graphs: kernels whose arguments are set once, so that to run them is to put them into the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from tiny_runtime import GraphCopy, GraphKernel
from tiny_runtime_opencl.memory import Memory
from tiny_runtime_opencl.programs import LONG, Program, set_arguments

Sizes = tuple[int, ...]


class Graph:
  """Calls over a list of memories; any of them can be replaced, and so can a kernel's integers and sizes."""

  def __init__(self, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[Memory]) -> None:
    self.memories = list(memories)
    self.calls = list(calls)
    self.kernels: list[Any] = [call.program.new_kernel() if isinstance(call, GraphKernel) else None for call in calls]
    self.sizes: list[tuple[Sizes, Sizes] | None] = [None] * len(calls)
    self.uses: list[list[tuple[int, int]]] = [[] for _ in memories]
    """For each memory the (call, number of the buffer) that it is passed as."""
    for index, call in enumerate(calls):
      if isinstance(call, GraphKernel):
        self._prepare(index, call)
      else:
        for position, offset in (call.target, call.source):
          self.memories[position].check(offset, call.nbytes)

  def _prepare(self, index: int, call: GraphKernel) -> None:
    buffers = [(self.memories[position], offset) for position, offset in call.buffers]
    program: Program = call.program
    program.check(buffers, call.integers)
    set_arguments(self.kernels[index], buffers, call.integers)
    self.sizes[index] = threads_of(call)
    for number, (position, _) in enumerate(call.buffers):
      self.uses[position].append((index, number))

  def place(self, position: int, memory: Memory) -> None:
    """Use another memory at a position."""
    self.memories[position] = memory
    for index, number in self.uses[position]:
      call = self.calls[index]
      assert isinstance(call, GraphKernel)
      memory.check(call.buffers[number][1], call.program.needs[number])
      self.kernels[index].set_arg(2 * number, memory.buffer)

  def change(self, index: int, call: GraphKernel) -> None:
    """Use other integers and sizes for a kernel."""
    for number, integer in enumerate(call.integers):
      self.kernels[index].set_arg(2 * len(call.buffers) + number, LONG(integer))
    self.calls[index], self.sizes[index] = call, threads_of(call)

  def run(self, context: Any, queue: Any) -> list[Any]:
    """Put everything into the queue; gives the events of the kernels and copies, in order."""
    events = []
    for call, kernel, sizes in zip(self.calls, self.kernels, self.sizes):
      if isinstance(call, GraphCopy):
        events.append(self._copy(context, queue, call))
      elif sizes is not None:
        events.append(cl.enqueue_nd_range_kernel(queue, kernel, *sizes))
    return events

  def _copy(self, context: Any, queue: Any, call: GraphCopy) -> Any:
    (to, target), (of, source) = call.target, call.source
    written, read = self.memories[to].buffer, self.memories[of].buffer
    if written is read and abs(target - source) < call.nbytes:  # which OpenCL refuses
      apart = cl.Buffer(context, cl.mem_flags.READ_WRITE, call.nbytes)
      cl.enqueue_copy(queue, apart, read, byte_count=call.nbytes, src_offset=source)
      read, source = apart, 0
    return cl.enqueue_copy(queue, written, read, byte_count=call.nbytes, src_offset=source, dst_offset=target)


def threads_of(call: GraphKernel) -> tuple[Sizes, Sizes] | None:
  """Threads in all, and in a workgroup; None where there is nothing to run."""
  if 0 in call.global_size:
    return None
  return tuple(groups * size for groups, size in zip(call.global_size, call.local_size)), call.local_size
