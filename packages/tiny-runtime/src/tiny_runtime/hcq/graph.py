"""Captured graphs: calls over a list of memories, prepared once, each run one submission."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

from tiny_runtime.contract import GraphCopy, GraphKernel
from tiny_runtime.hcq.hardware import Block, Command, Dispatch, Hardware, Kind, Launch, Prepared, Work
from tiny_runtime.hcq.pool import Memory
from tiny_runtime.hcq.programs import Program
from tiny_runtime.hcq.timeline import COPY, Timeline

Call: TypeAlias = GraphKernel | GraphCopy


def overlap(a: int, b: int, nbytes: int) -> bool:
  """Whether `nbytes` from one address on and from another have bytes in common."""
  return abs(a - b) < nbytes


class Copies:
  """What copies bytes of the device, also to where they overlap: by way of memory that is apart."""

  def __init__(self, hardware: Hardware, scratch: Callable[[int], Memory]) -> None:
    self.hardware, self.scratch = hardware, scratch
    self.apart: Memory | None = None

  def __call__(self, target: int, source: int, nbytes: int) -> Sequence[Work]:
    """Commands for one copy."""
    if not overlap(target, source, nbytes):
      return self.hardware.copies(target, source, nbytes)
    if self.apart is None or self.apart.nbytes < nbytes:
      self.apart = self.scratch(nbytes)
    apart = self.apart.at(0, nbytes)
    return [*self.hardware.copies(apart, source, nbytes), *self.hardware.copies(target, apart, nbytes)]


class Instance:
  """A graph's commands with arguments in memory of their own. There are two, so that one can be changed while the other
  runs."""

  def __init__(self, hardware: Hardware, work: Sequence[Sequence[Work]]) -> None:
    self.hardware = hardware
    self.starts = [0]
    """The first command of each call."""
    self.places: list[int] = []
    """Where each command's arguments are, in bytes from the first."""
    alignment, size = hardware.argument_alignment, 0
    for item in (item for items in work for item in items):
      self.places.append(size)
      nbytes = len(item.kernel.head) + 8 * len(item.words) if isinstance(item, Launch) else 0
      size += -(-nbytes // alignment) * alignment
    for items in work:
      self.starts.append(self.starts[-1] + len(items))
    self.block: Block = hardware.allocate(max(size, 1), Kind.HOST)
    self.commands = [self._command(n, item) for n, item in enumerate(item for items in work for item in items)]
    self.prepared: Prepared = hardware.prepare(self.commands) if self.commands else None
    self.stale: set[int] = set()
    """Calls that have changed since."""
    self.last = 0
    """The last submission of it."""

  def times_of_calls(self, times: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """When each call began and ended, from when its commands did; one without commands takes no time."""
    found, at = [], 0.0
    for first, end in pairwise(self.starts):
      begin = times[first][0] if first < end else at
      at = times[end - 1][1] if first < end else at
      found.append((begin, at))
    return found

  def _command(self, number: int, item: Work) -> Command:
    """Put arguments where they belong."""
    if not isinstance(item, Launch):
      return item
    place = self.places[number]
    assert self.block.view is not None
    data = item.kernel.arguments(item)
    self.block.view[place : place + data.nbytes] = data
    return Dispatch(item.kernel, self.block.address + place, item.global_size, item.local_size)

  def takes(self, call: int, items: Sequence[Work]) -> bool:
    """Change a call, which is not under way; False if it has another number of commands now, or of other kinds."""
    first, last = self.starts[call], self.starts[call + 1]
    if len(items) != last - first:
      return False
    for number, item in zip(range(first, last), items):
      if isinstance(item, Launch) != isinstance(self.commands[number], Dispatch):
        return False
      command = self._command(number, item)
      if command != self.commands[number]:
        self.commands[number] = command
        self.hardware.replace(self.prepared, number, command)
    return True


class Graph:
  """What `make_graph` gives. Raises ValueError for calls that do not fit. `drop` takes blocks that are not needed
  any more."""

  def __init__(
    self, hardware: Hardware, timeline: Timeline, calls: Sequence[Call], memories: Sequence[Memory], copies: Copies,
    drop: Callable[[Block], None],
  ) -> None:  # fmt: skip
    self.hardware, self.timeline, self.copies, self.drop = hardware, timeline, copies, drop
    self.calls, self.memories = list(calls), list(memories)
    self.names = tuple(call.program.name if isinstance(call, GraphKernel) else COPY for call in calls)
    self.users: list[list[int]] = [[] for _ in memories]
    """The calls that each memory is used in."""
    for index, call in enumerate(self.calls):
      places = call.buffers if isinstance(call, GraphKernel) else (call.target, call.source)
      for position in {position for position, _ in places}:
        self.users[position].append(index)
    self.instances = [Instance(hardware, self._all())]
    self.turn = 0
    self.times: Sequence[tuple[float, float]] = ()
    """When each call of the last run that was waited for began and ended; where the driver tells."""

  @property
  def last(self) -> int:
    """The last submission of it."""
    return max(instance.last for instance in self.instances)

  def _all(self) -> list[Sequence[Work]]:
    return [self._work(call) for call in self.calls]

  def _work(self, call: Call) -> Sequence[Work]:
    """The commands of a call with the memories of now: none if there is nothing to run."""
    if isinstance(call, GraphCopy):
      target, source = (self.memories[p].at(offset, call.nbytes) for p, offset in (call.target, call.source))
      return self.copies(target, source, call.nbytes)
    program: Program = call.program
    buffers = [(self.memories[position], offset) for position, offset in call.buffers]
    made = program.call(buffers, call.integers, call.global_size, call.local_size)
    return [] if 0 in made.global_size else [made]

  def change(self, memories: Sequence[tuple[int, Memory]], kernels: Sequence[tuple[int, GraphKernel]]) -> None:
    """Use other memories, and other integers and sizes of kernels."""
    changed = {index for index, _ in kernels}
    for position, memory in memories:
      if self.memories[position] is not memory:
        before = self.memories[position].block
        before.last = max(before.last, self.last)
        self.memories[position] = memory
        changed.update(self.users[position])
    for index, kernel in kernels:
      self.calls[index] = kernel
    for instance in self.instances:
      instance.stale |= changed

  def ready(self) -> Instance:
    """The commands as they are to be run now. Raises ValueError for what does not fit."""
    instance = self.instances[self.turn]
    if not instance.stale:
      return instance
    if not self.timeline.reached(instance.last):
      self.turn ^= 1
      if self.turn == len(self.instances):
        self.instances.append(Instance(self.hardware, self._all()))
      instance = self.instances[self.turn]
      self.timeline.wait(instance.last)
    if all(instance.takes(index, self._work(self.calls[index])) for index in sorted(instance.stale)):
      instance.stale = set()
      return instance
    self.drop(instance.block)
    self.instances[self.turn] = Instance(self.hardware, self._all())
    return self.instances[self.turn]
