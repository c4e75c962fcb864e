"""The capability `peers` on queues: a copy is a submission of the device that gets the bytes, between two fences.

The source's queue signals that it has come there, and then waits; the other's waits for that, copies, and signals. So
the host puts commands into two queues, and waits for neither. A fence is a piece of the ring of the device that waits
at it: it is used again when the submission that waits is done, and whoever signals has done so by then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tiny_runtime.hcq.hardware import PeerHardware, Signal, Wait
from tiny_runtime.hcq.timeline import COPY

if TYPE_CHECKING:
  from collections.abc import Sequence

  from tiny_runtime.hcq.device import QueueDevice
  from tiny_runtime.hcq.hardware import Work


class Promises:
  """The fences that a device is to signal and others wait at, so that they are let go if it never will."""

  def __init__(self, device: QueueDevice) -> None:
    self.device = device
    self.open: deque[tuple[int, memoryview]] = deque()
    """The submission that signals, and the fence."""

  def add(self, fence: memoryview) -> None:
    """A fence that the next submission signals."""
    while self.open and self.device.timeline.reached(self.open[0][0]):
      self.open.popleft()
    self.open.append((self.device.timeline.next, fence))

  def let_go(self) -> None:
    """The device is lost: nobody need wait for it."""
    for number, fence in self.open:
      if not self.device.timeline.reached(number):
        fence[:] = peer_hardware(self.device).done_fence
    self.open.clear()


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
  source.promises.add(ready_view)
  device.promises.add(done_view)
  with source._doing("a copy to another device"):
    source._submit((Signal(ready), Wait(done)), (COPY,), False)
  with device._doing("a copy from another device"):
    device._submit((Wait(ready), *work, Signal(done)), (COPY,), False)
