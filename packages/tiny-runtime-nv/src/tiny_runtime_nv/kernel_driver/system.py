"""The calls of Linux that the device needs, in one small object that a model can stand in for."""

from __future__ import annotations

import ctypes
import time
from typing import Protocol

from tiny_runtime.hcq.system import Linux, System


class NVSystem(System, Protocol):
  """What is asked of Linux, and of a GPU that is mapped."""

  def ring(self, address: int, token: int) -> None:
    """Write 32 bits to a register, behind all that was written to memory before."""

  def pause(self, seconds: float, descriptor: int = -1) -> bool:
    """Sleep, or until a descriptor can be read; whether it can. What a GPU writes is looked at again after that."""


class NVLinux(Linux):
  """The system itself. x86-64 shows stores to others in the order in which they were made."""

  def ring(self, address: int, token: int) -> None:
    """See NVSystem."""
    ctypes.c_uint32.from_address(address).value = token

  def pause(self, seconds: float, descriptor: int = -1) -> bool:
    """See NVSystem."""
    if descriptor < 0:
      time.sleep(seconds)
      return False
    import select  # Windows has no poll

    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLPRI)
    return bool(poll.poll(max(1, round(seconds * 1e3))))
