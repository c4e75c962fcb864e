"""Submissions have numbers, and are done in that order: what waits, and what is to happen then."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from tiny_runtime.errors import DeviceLost
from tiny_runtime.hcq.hardware import Hardware, Prepared
from tiny_runtime.settings import QUEUE_TIMEOUT

SPINS = 200
"""So often the count is looked at before anyone sleeps: a short kernel is done by then."""
SHORTEST, LONGEST = 20e-6, 1e-3
"""Seconds of a pause: the first, and the last, each twice the one before."""
COPY = "a copy"
"""In the place of a kernel's name."""
NAMED = 8
"""So many kernels are named as those that may be the cause of a fault."""


class Timeline:
  """The numbers of submissions: `submitted` is the last one's, 0 before there is any."""

  def __init__(self, hardware: Hardware) -> None:
    self.hardware = hardware
    self.submitted = 0
    self.names: deque[tuple[int, Sequence[str]]] = deque()
    """Kernels of each submission that was not seen to be done."""
    self.actions: deque[tuple[int, Callable[[], None]]] = deque()

  @property
  def next(self) -> int:
    """The number that the next submission gets."""
    return self.submitted + 1

  def submit(self, prepared: Prepared, names: Sequence[str], timed: bool = False) -> int:
    """Submit; gives its number. `names` of kernels are for errors."""
    self.collect()
    self.names.append((self.next, names))
    try:
      self.hardware.submit(prepared, timed)
    except DeviceLost:
      raise
    except BaseException:
      self.names.pop()
      raise
    self.submitted += 1
    return self.submitted

  def reached(self, number: int) -> bool:
    """Whether a submission is done."""
    return self.hardware.completed() >= number

  def wait(self, number: int) -> None:
    """Wait until a submission is done. Raises DeviceLost where the device fails, or does nothing for too long."""
    for _ in range(SPINS):
      if self.hardware.completed() >= number:
        return
    pause, seen, since = SHORTEST, self.hardware.completed(), time.monotonic()
    while (done := self.hardware.completed()) < number:
      if done != seen:
        seen, since = done, time.monotonic()
      elif 0 < QUEUE_TIMEOUT.value < time.monotonic() - since:
        raise DeviceLost(
          f"nothing was finished for {QUEUE_TIMEOUT.value} seconds: submission {done + 1} of {self.submitted} does"
          " not end. QUEUE_TIMEOUT=0 in the environment waits for as long as it takes"
        )
      self.hardware.pause(pause)
      pause = min(2 * pause, LONGEST)

  def later(self, action: Callable[[], None]) -> None:
    """Do something when all submissions so far are done, or a while after."""
    self.actions.append((self.submitted, action))

  def collect(self) -> None:
    """Do what was to be done after submissions that are done by now."""
    if not self.names and not self.actions:
      return
    done = self.hardware.completed()
    while self.names and self.names[0][0] <= done:
      self.names.popleft()
    while self.actions and self.actions[0][0] <= done:
      self.actions.popleft()[1]()

  def suspects(self) -> str:
    """Which kernels a fault may be of, as the end of a sentence: those of the first submission that is not done."""
    self.names = deque(entry for entry in self.names if entry[0] > self.hardware.completed())
    names = list(dict.fromkeys(self.names[0][1])) if self.names else []
    if not names:
      return ""
    if len(names) == 1:
      return f". It was {names[0] if names[0] == COPY else f'kernel {names[0]}'}"
    more = f" (and {len(names) - NAMED} more)" if len(names) > NAMED else ""
    return f". It was one of these kernels, which were submitted together: {', '.join(names[:NAMED])}{more}"
