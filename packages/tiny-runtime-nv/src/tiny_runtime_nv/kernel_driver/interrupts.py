"""Interrupts of a GPU, which wake up who waits for it.

A method of the channel, NON_STALL_INTERRUPT, interrupts the host when all submissions before are done. The driver then
makes a file readable that was named to it (`NV_ESC_ALLOC_OS_EVENT`) in an event of the subdevice. The event tells that
something was done, not what: it may be another process's. Interrupts only shorten a pause; where the driver gives none,
or they never come, the host sleeps for the whole of it.
"""

from __future__ import annotations

from contextlib import suppress

from tiny_runtime_nv.kernel_driver.process import Gpu
from tiny_runtime_nv.kernel_driver.resource_manager import ResourceManager, RMError
from tiny_runtime_nv.kernel_driver.tables import constant, structure

NOTIFIERS = "GR0", "FIFO_EVENT_MTHD"
"""Which the driver tells of it: that of the engine, or that of methods (ctrl00da.h names both for such a channel)."""
MOST_MISSED = 3
"""Interrupts that may not come before nobody waits for them any more."""


class Interrupts:
  """A file of the GPU that can be waited for, and the events that make it readable. Raises OSError."""

  def __init__(self, manager: ResourceManager, gpu: Gpu) -> None:
    self.manager, self.gpu, self.system = manager, gpu, manager.system
    self.events: list[int] = []
    self.missed = 0
    self.file = self.system.open(gpu.path)
    self.named = False
    """Whether the driver knows the file as one of events."""
    try:
      self._create()
    except BaseException:
      self.close()
      raise

  def _create(self) -> None:
    manager, subdevice = self.manager, self.gpu.subdevice
    manager.escape("REGISTER_FD", structure("nv_ioctl_register_fd_t")(ctl_fd=manager.descriptor), self.file)
    self._file_request("ALLOC_OS_EVENT")
    self.named = True
    for name in NOTIFIERS:
      index = constant(f"NV2080_NOTIFIERS_{name}")
      params = structure("NV0005_ALLOC_PARAMETERS")(
        hParentClient=manager.root, hSrcResource=subdevice, hClass=constant("NV01_EVENT_OS_EVENT"),
        notifyIndex=index | constant("NV01_EVENT_WITHOUT_EVENT_DATA"), data=self.file,
      )  # fmt: skip
      self.events.append(manager.alloc(subdevice, "NV01_EVENT_OS_EVENT", params))
      manager.control(
        subdevice, "NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION",
        structure("NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS")(
          event=index, action=constant("NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT")
        ),
      )  # fmt: skip

  def _file_request(self, name: str) -> None:
    request = structure("nv_ioctl_alloc_os_event_t")(hClient=self.manager.root, hDevice=self.gpu.device, fd=self.file)
    self.manager.escape(name, request, self.file)
    if request.Status:
      raise RMError(name, request.Status)

  @property
  def come(self) -> bool:
    """Whether they are to be waited for."""
    return self.missed < MOST_MISSED

  def wait(self, seconds: float) -> bool:
    """Sleep until there was one; whether there was."""
    return self.system.pause(seconds, self.file)

  def close(self) -> None:
    """Give the events and the file back."""
    for event in self.events:
      with suppress(RMError):
        self.manager.free(event, self.gpu.subdevice)
    self.events.clear()
    if self.named:
      with suppress(RMError):
        self._file_request("FREE_OS_EVENT")
      self.named = False
    if self.file >= 0:
      self.system.close(self.file)
      self.file = -1
