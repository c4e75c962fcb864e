"""Affinity: the processors that the workers of a pool may run on. They are all but the one of the thread that calls.

Linux may wake a worker on its caller's processor although others are idle. In a virtual machine that is the rule after
a pause: a processor whose time the host has lent to others meanwhile does not count as idle. The worker then waits
until the caller has used up its time slice, so that a kernel of some milliseconds takes as long as on one thread.
Schedulers do not mend that in time, so the processors other than the caller's are dealt out to the workers. Where the
caller moves, the worker that had its new processor gets the old one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache

_MOST = 1024  # processors in a cpu_set_t
_NEEDED = ("sched_getcpu", "pthread_setaffinity_np")


@cache
def _system() -> ctypes.PyDLL | None:
  """The C library, called without letting go of the GIL; None where threads cannot be placed: that is Linux only."""
  if not hasattr(os, "sched_getaffinity"):
    return None
  process = ctypes.PyDLL(None)
  return process if all(hasattr(process, name) for name in _NEEDED) else None


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
    if _system() is None:
      return
    self._handles = handles
    if not self._divide() and self._owners:
      self._owners, self.home = {}, -1
      for worker in range(len(handles)):
        self._confine(worker, self._allowed)

  def settle(self) -> None:
    """See to it that no worker has the processor of this thread, which is about to call them."""
    if self.home < 0 or (here := _here()) == self.home:
      return
    if os.sched_getaffinity(0) != self._allowed and self._divide():  # somebody has changed what may be used
      return
    if here in self._owners:
      worker = self._owners.pop(here)
      self._owners[self.home] = worker
      self.home = here
      self._confine(worker, self._of(worker))

  def _divide(self) -> bool:
    """Give every worker its processors, if there are enough for all."""
    allowed, here = os.sched_getaffinity(0), _here()
    others = sorted(allowed - {here})
    if here not in allowed or len(others) < len(self._handles) or others[-1] >= _MOST:
      return False
    self._allowed, self.home = allowed, here
    self._owners = {processor: n % len(self._handles) for n, processor in enumerate(others)}
    for worker in range(len(self._handles)):
      self._confine(worker, self._of(worker))
    return True

  def _of(self, worker: int) -> set[int]:
    return {processor for processor, owner in self._owners.items() if owner == worker}

  def _confine(self, worker: int, processors: set[int]) -> None:
    """Let a worker run on these processors only. Where the system refuses, it runs where it did."""
    system = _system()
    assert system is not None
    bits = sum(1 << processor for processor in processors).to_bytes(_MOST // 8, "little")
    system.pthread_setaffinity_np(ctypes.c_void_p(self._handles[worker]), ctypes.c_size_t(len(bits)), bits)


def _here() -> int:
  """The processor that this thread runs on."""
  system = _system()
  assert system is not None
  return int(system.sched_getcpu())
