"""The capability `peers` on queues: a copy is a submission of the device that gets the bytes, between two fences.

The source's queue signals that it has come there, and then waits; the other's waits for that, copies, and signals. So
the host puts commands into two queues, and waits for neither. A fence is a piece of the ring of the device that waits
at it: it is used again when the submission that waits is done, and whoever signals has done so by then.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiny_runtime.hcq.hardware import PeerHardware, Signal, Wait
from tiny_runtime.hcq.timeline import COPY

if TYPE_CHECKING:
  from collections.abc import Sequence

  from tiny_runtime.hcq.device import QueueDevice
  from tiny_runtime.hcq.hardware import Work


LAST_SIGNALS = 1.0
"""Seconds in which other devices may signal what is in the memory of one that was lost, before that is given back."""


@dataclass(frozen=True)
class Promise:
  """A fence that a submission is to signal, in memory of the device that waits at it."""

  number: int
  waiting: QueueDevice
  fence: memoryview


class Promises:
  """The fences that a device is to signal, so that others are let go if it never will."""

  def __init__(self, device: QueueDevice) -> None:
    self.device = device
    self.open: deque[Promise] = deque()
    self.others: weakref.WeakSet[QueueDevice] = weakref.WeakSet()
    """The devices that this one waits for, at times."""

  def add(self, waiting: QueueDevice, fence: memoryview) -> None:
    """A fence that the next submission signals."""
    while self.open and self.kept(self.open[0]):
      self.open.popleft()
    self.open.append(Promise(self.device.timeline.next, waiting, fence))
    waiting.promises.others.add(self.device)

  def kept(self, promise: Promise) -> bool:
    """Whether a fence was signalled, or nobody waits for it any more."""
    return self.device.timeline.reached(promise.number) or promise.waiting.closed

  def let_go(self) -> None:
    """The device is lost: nobody need wait for it."""
    for promise in self.open:
      if not self.kept(promise):
        promise.fence[:] = peer_hardware(self.device).done_fence
    self.open.clear()

  def await_others(self) -> None:
    """The device was lost, and its memory goes: what others were to signal in it, they have to do before."""
    until = time.monotonic() + LAST_SIGNALS
    for other in self.others:
      if other.lost is None and not other.closed:
        promises = [promise for promise in other.promises.open if promise.waiting is self.device]
        while promises and not other.timeline.reached(promises[-1].number) and time.monotonic() < until:
          time.sleep(1e-3)


def peer_hardware(device: QueueDevice) -> PeerHardware:
  """The driver of a device that claims `peers`."""
  hardware: PeerHardware = device.hardware  # type: ignore[assignment]  # the claim says so
  return hardware


def connect(device: QueueDevice, source: QueueDevice) -> bool:
  """Whether a device reaches another. If so, each can signal the fences of the other from now on."""
  mine, other = peer_hardware(device), peer_hardware(source)
  if not mine.reaches(other):
    return False
  mine.share(source.arguments.block, other)
  other.share(device.arguments.block, mine)
  return True


def fence_of(device: QueueDevice) -> tuple[int, memoryview]:
  """A fence for the next submission of a device to wait at: its address, and its bytes."""
  new = peer_hardware(device).new_fence
  address, view = device.arguments.take(len(new), len(new))
  view[:] = new
  return address, view


def copy_between(device: QueueDevice, source: QueueDevice, work: Sequence[Work]) -> None:
  """Run commands of one device in the order of both. Raises DeviceLost for either."""
  ready, ready_view = fence_of(device)
  done, done_view = fence_of(source)
  source.promises.add(device, ready_view)
  device.promises.add(source, done_view)
  with source._doing("a copy to another device"):
    source._submit((Signal(ready), Wait(done)), (COPY,), False)
  with device._doing("a copy from another device"):
    device._submit((Wait(ready), *work, Signal(done)), (COPY,), False)
