"""Affinity: the processors that the workers of a pool may run on. They are all but the one of the thread that calls.

Linux may wake a worker on its caller's processor although others are idle. In a virtual machine that is the rule after
a pause: a processor whose time the host has lent to others meanwhile does not count as idle. The worker then waits
until the caller has used up its time slice, so that a kernel of some milliseconds takes as long as on one thread.
Schedulers do not mend that in time, so the processors other than the caller's are dealt out to the workers. Where the
caller moves, the worker that had its new processor gets the old one. Those that one worker gets are near each other:
threads of one core, or cores of one socket, where what the worker has in caches and in memory is near all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_runtime_cpu import system
from tiny_runtime_cpu.settings import CPU_AFFINITY
from tiny_runtime_cpu.system import topology


class Affinity:
  """The processors of each worker. Does nothing until `deal` is called."""

  def __init__(self) -> None:
    self._handles: Sequence[int] = ()
    self._owners: dict[int, int] = {}
    """The worker that each processor belongs to."""
    self._allowed: set[int] = set()
    self.home = -1
    """The processor that belongs to no worker: the caller's, when it was last seen."""

  def deal(self, handles: Sequence[int]) -> None:
    """Divide the processors that this thread may use, but for its own, among the workers with these `pthread_t`.

    They are not divided among more workers than there are processors; all may then run everywhere.
    """
    if not system.places_threads() or not CPU_AFFINITY:
      return
    self._handles = handles
    if not self._divide() and self._owners:
      self._owners, self.home = {}, -1
      for worker in range(len(handles)):
        self._confine(worker, self._allowed)

  def settle(self) -> None:
    """See to it that no worker has the processor of this thread, which is about to call them."""
    if self.home < 0 or (here := system.processor_here()) == self.home:
      return
    if system.allowed_processors() != self._allowed and self._divide():  # somebody has changed what may be used
      return
    if here in self._owners:
      worker = self._owners.pop(here)
      self._owners[self.home] = worker
      self.home = here
      self._confine(worker, self._of(worker))

  def _divide(self) -> bool:
    """Give every worker its processors, if there are enough for all."""
    allowed, here = system.allowed_processors(), system.processor_here()
    others, workers = allowed - {here}, len(self._handles)
    if here not in allowed or len(others) < workers or max(others) >= system.MOST_PROCESSORS:
      return False
    self._allowed, self.home = allowed, here
    self._owners = topology.shared_out(others, workers)
    for worker in range(workers):
      self._confine(worker, self._of(worker))
    return True

  def _of(self, worker: int) -> set[int]:
    return {processor for processor, owner in self._owners.items() if owner == worker}

  def _confine(self, worker: int, processors: set[int]) -> None:
    """Let a worker run on these processors only. Where the system refuses, it runs where it did."""
    system.confine(self._handles[worker], processors)
