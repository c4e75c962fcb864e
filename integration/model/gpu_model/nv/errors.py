"""How the driver and the GPU say no."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
  """NV_ERR_ of the driver's nvstatuscodes.h."""

  OK = 0
  GPU_IS_LOST = 0x0F
  GPU_UUID_NOT_FOUND = 0x12
  ILLEGAL_ACTION = 0x16
  INSERT_DUPLICATE_NAME = 0x19
  INSUFFICIENT_RESOURCES = 0x1A
  INSUFFICIENT_PERMISSIONS = 0x1B
  INVALID_ADDRESS = 0x1E
  INVALID_ARGUMENT = 0x1F
  INVALID_CHANNEL = 0x21
  INVALID_CLASS = 0x22
  INVALID_CLIENT = 0x23
  INVALID_COMMAND = 0x24
  INVALID_DEVICE = 0x26
  INVALID_FLAGS = 0x29
  INVALID_LIMIT = 0x2E
  INVALID_OBJECT = 0x31
  INVALID_OBJECT_HANDLE = 0x33
  INVALID_OBJECT_PARENT = 0x36
  INVALID_OFFSET = 0x37
  INVALID_PARAM_STRUCT = 0x3A
  INVALID_STATE = 0x40
  NO_MEMORY = 0x51
  NOT_SUPPORTED = 0x56
  OBJECT_NOT_FOUND = 0x57
  STATE_IN_USE = 0x63


class Xid(IntEnum):
  """What a channel's error notifier says ended it: the driver's ROBUST_CHANNEL_ numbers."""

  GRAPHICS_EXCEPTION = 13
  MMU_FAULT = 31
  PUSHBUFFER = 32
  PREEMPTIVE_REMOVAL = 45
  CLASS_ERROR = 69
  FALLEN_OFF_THE_BUS = 79


class Refusal(Exception):
  """A request ends with a status. `reason`: why, in words."""

  def __init__(self, status: Status, reason: str) -> None:
    super().__init__(f"{status.name}: {reason}")
    self.status = status


class Misuse(Exception):
  """What neither driver nor GPU can see, and what gives results that nobody wants; or what the model does not know."""


class ChannelError(Exception):
  """A channel ends."""

  def __init__(self, xid: Xid, reason: str) -> None:
    super().__init__(reason)
    self.xid = xid


class MmuFault(ChannelError):
  """An address that a GPU cannot use as it wants to."""

  def __init__(self, address: int, reason: str, what: str) -> None:
    super().__init__(Xid.MMU_FAULT, f"{what or 'an access'}: {address:#x} {reason}")
    self.address = address
    self.kind = 6 if "only" in reason else 2
    """NV_PFAULT_FAULT_TYPE: RO_VIOLATION or PTE."""


class Blocked(Exception):
  """A channel waits for a semaphore."""
