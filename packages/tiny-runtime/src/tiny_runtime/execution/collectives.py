"""Collectives: what several processes (ranks) do together in a schedule. Whoever has a way to reach the others gives it
here; tiny-dist does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from tiny_runtime.binary import Sizes
from tiny_runtime.buffer import Buffer
from tiny_runtime.contract import Memory
from tiny_runtime.counters import GlobalCounters
from tiny_runtime.errors import Unavailable
from tiny_runtime.execution.printing import print_launch
from tiny_runtime.opened import OpenDevice
from tiny_runtime.profiling.recording import begin, end
from tiny_runtime.units import short
from tiny_uop import Collective
from tiny_uop.context import DEBUG
from tiny_uop.origins import Origin


class Communicator(Protocol):
  """What carries out collectives."""

  def collective(
    self, what: Collective, results: Sequence[Buffer], inputs: Sequence[Buffer]
  ) -> Callable[[], None] | None:  # fmt: skip
    """Does `what`: `results[k]` get what array k becomes, of which this rank has `inputs[k]`. All ranks call it, in the
    same order. The results are there when it returns, or when their device comes to it; or it gives a function that
    waits until they are. That is called before anybody looks at a result or changes an input."""


_communicator: list[Communicator] = []


def use_communicator(found: Communicator | None) -> None:
  """Collectives are carried out by `found` from now on; None: by nobody."""
  _communicator[:] = [] if found is None else [found]


class CollectiveLaunch:
  """A collective with the buffers of this rank."""

  __slots__ = ("_end", "buffers", "origins", "what")
  variables: tuple[str, ...] = ()

  def __init__(self, what: Collective, buffers: Sequence[Buffer], origins: tuple[Origin, ...] = ()) -> None:
    self.what, self.origins = what, origins
    self.buffers = list(buffers)
    """The results, then the inputs."""
    self._end: Callable[[], None] | None = None

  @property
  def name(self) -> str:
    """What profiles call it."""
    return f"{self.what.kind} over {len(self.what.ranks)} ranks"

  @property
  def sizes(self) -> Sizes:
    """As those of a kernel: no grid, no operations, and the bytes read and written here."""
    return (), (), 0, sum(b.nbytes for b in self.buffers)

  def bind(self, values: Mapping[str, int]) -> None:
    """A collective has no variables."""

  def devices(self) -> set[OpenDevice]:
    """Those of its buffers. No device does it, so no graph of a device has it."""
    return {buffer.opened for buffer in self.buffers}

  def reads(self) -> list[int]:
    """Which arguments are read."""
    return list(range(len(self.buffers) // 2, len(self.buffers)))

  def writes(self) -> list[int]:
    """Which arguments are written."""
    return list(range(len(self.buffers) // 2))

  def memory(self) -> list[tuple[Memory, int]]:
    """(memory, byte offset) of the arguments; the results are written from now on. RuntimeError as for kernels."""
    read = [self.buffers[n].to_read() for n in self.reads()]
    return [*[self.buffers[n].to_write() for n in self.writes()], *read]

  def run(self, wait: bool = False, count: bool = True) -> float | None:
    """Begin it; `wait` and `count` as for a kernel. Who calls it calls `finish` before a launch that it `meets`, and in
    the end. Unavailable where no group of ranks is open."""
    if not _communicator:
      reason = f"a {self.what.kind} over ranks {self.what.ranks} has to be carried out, and no group of them is open"
      raise Unavailable(reason, "Call tiny_dist.init() first, and start the program with mpiexec")
    profiled = begin()
    self.memory()
    half, debug = len(self.buffers) // 2, DEBUG.value >= 2
    start = time.perf_counter()
    self._end = _communicator[0].collective(self.what, self.buffers[:half], self.buffers[half:])
    if wait or debug or profiled:
      self.finish()
      for opened in self.devices():
        opened.sync()
    seconds = time.perf_counter() - start
    nbytes, device = self.sizes[3], self.buffers[0].device
    if profiled:
      end(profiled, "copy", self.name, device, seconds, 0, nbytes, origins=self.origins)
    if count:
      GlobalCounters.count(1, 0, nbytes, seconds)
    if debug:
      print_launch(device, f"{self.what.kind} {short(nbytes)} over {len(self.what.ranks)} ranks", seconds, 0, nbytes)
    return seconds if wait else None

  def finish(self) -> None:
    """Wait until the results are there, if it is under way."""
    end, self._end = self._end, None
    if end is not None:
      end()

  def meets(self, launch: AnyLaunch) -> bool:
    """Whether a launch looks at a result or changes an input."""
    half = len(self.buffers) // 2
    changed = [launch.buffers[n] for n in launch.writes()]
    return _share_bytes(self.buffers[:half], launch.buffers) or _share_bytes(self.buffers[half:], changed)


class AnyLaunch(Protocol):
  """What `CollectiveLaunch.meets` has to know of a launch."""

  buffers: list[Buffer]

  def writes(self) -> list[int]:
    """Which of the buffers are written."""


def _share_bytes(some: Iterable[Buffer], others: Sequence[Buffer]) -> bool:
  return any(
    a.base is b.base and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
    for a in some for b in others
  )  # fmt: skip
