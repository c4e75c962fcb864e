"""NVIDIA's resource manager, as the kernel driver shows it by ioctl: objects with handles, which have parents, and take
commands. All belong to one client, that of this process."""

from __future__ import annotations

import ctypes
import itertools
import os
from typing import Any

from tiny_runtime_nv.kernel_driver.system import NVSystem
from tiny_runtime_nv.kernel_driver.tables import constant, structure

CONTROL_FILE = "/dev/nvidiactl"
MAGIC = ord("F")
SLACK = 4096
"""Zeros behind the parameters of a new object: a driver whose structure is longer reads those."""
FIRST_HANDLE = 0x71AE0001
NO_MEMORY, NO_RESOURCES, WRONG_SIZE, NOTHING_TO_DO = 0x51, 0x1A, 0x3A, 0x10006
GPU_LOST, RESET_REQUIRED = 0x0F, 0x62
STATUS = {
  0x05: "the card is not present", GPU_LOST: "the GPU fell off the bus, or hangs", 0x17: "it is in use",
  NO_RESOURCES: "there are not enough resources", 0x1B: "this user, or this container, may not do that",
  0x1E: "an address is not valid", 0x1F: "an argument is not valid", 0x22: "the GPU has no such class",
  0x24: "the driver knows no such command", 0x26: "there is no such device", 0x31: "there is no such object",
  0x33: "a handle is not valid", 0x36: "the parent is not of the right class",
  WRONG_SIZE: "a structure has another size in this driver", 0x3B: "a parameter is not valid",
  0x40: "it is in a state that does not allow that", NO_MEMORY: "there is no memory left",
  0x56: "it is not supported", 0x57: "an object was not found", RESET_REQUIRED: "a reset is required",
  0x65: "it took too long", 0x59: "the operating system refuses",
}  # fmt: skip
"""Some of NV_STATUS (nvstatuscodes.h of open-gpu-kernel-modules), in words."""


class RMError(OSError):
  """The driver refused a request. `status` is its own; 0 if it never came to that, and `errno` says why."""

  def __init__(self, what: str, status: int, number: int = 0) -> None:
    reason = STATUS.get(status, "see nvstatuscodes.h") if status else os.strerror(number)
    super().__init__(number, f"NVIDIA's driver refuses {what}: {f'status {status:#x}, ' if status else ''}{reason}")
    self.status = status

  @property
  def out_of_memory(self) -> bool:
    """Whether there is no memory left."""
    return self.status in (NO_MEMORY, NO_RESOURCES)

  @property
  def lost(self) -> bool:
    """Whether the GPU is not there any more, or has to be reset."""
    return self.status in (GPU_LOST, RESET_REQUIRED)


def request_number(number: int, argument: ctypes.Structure | ctypes.Array[Any]) -> int:
  """The number of a request to the control file, as _IOWR of linux/ioctl.h makes it."""
  return 3 << 30 | ctypes.sizeof(argument) << 16 | MAGIC << 8 | number


class MapRequest(ctypes.Structure):
  """nv_ioctl_nvos33_parameters_with_fd of nv-unix-nvos-params-wrappers.h."""

  _fields_ = [("params", structure("NVOS33_PARAMETERS")), ("fd", ctypes.c_int32)]


class ResourceManager:
  """The control file, and the client of this process. Raises OSError."""

  def __init__(self, system: NVSystem) -> None:
    self.system = system
    self.handles = itertools.count(FIRST_HANDLE)
    self.descriptor = system.open(CONTROL_FILE)
    self.root = 0
    try:
      self.root = self.alloc(0, "NV01_ROOT_CLIENT", handle=0)
    except OSError:
      system.close(self.descriptor)
      raise

  def escape(self, name: str, argument: Any, descriptor: int | None = None, what: str = "") -> None:
    """A request that is NAME of nv_escape.h or nv-ioctl-numbers.h. Raises RMError where the system refuses it."""
    number = request_number(constant(f"NV_ESC_{name}"), argument)
    try:
      self.system.ioctl(self.descriptor if descriptor is None else descriptor, number, argument)
    except OSError as error:
      raise RMError(what or name, 0, error.errno or 0) from error

  def alloc(self, parent: int, cls: str, params: ctypes.Structure | None = None, handle: int | None = None) -> int:
    """A new object of a class; gives its handle. Parameters are changed in place. Raises RMError."""
    # with size 0 the driver takes as much as the structure has in its version
    room = (ctypes.c_char * ((ctypes.sizeof(params) if params else 0) + SLACK))()
    if params is not None:
      ctypes.memmove(room, ctypes.byref(params), ctypes.sizeof(params))
    request = structure("NVOS21_PARAMETERS")(
      hRoot=self.root, hObjectParent=parent or self.root, hClass=constant(cls),
      hObjectNew=next(self.handles) if handle is None else handle,
      pAllocParms=ctypes.addressof(room) if params is not None else 0,
    )  # fmt: skip
    self.escape("RM_ALLOC", request, what=f"an object {cls}")
    if request.status:
      raise RMError(f"an object {cls}", request.status)
    if params is not None:
      ctypes.memmove(ctypes.byref(params), room, ctypes.sizeof(params))
    return int(request.hObjectNew)

  def free(self, handle: int, parent: int = 0) -> None:
    """Give an object back, with all below it. Raises RMError."""
    request = structure("NVOS00_PARAMETERS")(hRoot=self.root, hObjectParent=parent or self.root, hObjectOld=handle)
    self.escape("RM_FREE", request, what=f"to free object {handle:#x}")
    if request.status:
      raise RMError(f"to free object {handle:#x}", request.status)

  def control(self, handle: int, command: str, params: ctypes.Structure, older: tuple[int, ...] = ()) -> Any:
    """A command to an object; gives its parameters with what the driver put in. `older`: sizes that the structure has
    in older drivers. Raises RMError."""
    for size in (ctypes.sizeof(params), *older):
      request = structure("NVOS54_PARAMETERS")(
        hClient=self.root, hObject=handle, cmd=constant(command), params=ctypes.addressof(params), paramsSize=size
      )
      self.escape("RM_CONTROL", request, what=command)
      if request.status != WRONG_SIZE:
        break
    if request.status:
      raise RMError(command, request.status)
    return params

  def map(self, path: str, device: int, memory: int, nbytes: int, address: int = 0) -> int:
    """Map an object to be read and written by the host, at an address that is reserved or anywhere. `path`: the control
    file for memory of the host, the GPU's file for what is on the GPU. Raises OSError."""
    descriptor = self.system.open(path)
    try:
      params = structure("NVOS33_PARAMETERS")(hClient=self.root, hDevice=device, hMemory=memory, length=nbytes)
      request = MapRequest(params, descriptor)
      self.escape("RM_MAP_MEMORY", request, what=f"to map {nbytes} bytes")
      if request.params.status:
        raise RMError(f"to map {nbytes} bytes", request.params.status)
      return self.system.map(descriptor, nbytes, 0, address)
    finally:
      self.system.close(descriptor)
