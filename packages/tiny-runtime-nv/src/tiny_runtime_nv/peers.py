"""The capability `peers`: copies from one GPU to another over what connects them, in the order of both streams.

Neither stream waits by way of the host: each is told to wait for an event of the other. Memory here comes from the
driver's pools, and what another GPU may do with that is set for a pool as a whole (`cuMemPoolSetAccess`), not for
contexts (`cuCtxEnablePeerAccess`): "Stream-Ordered Memory Allocator, Device Accessibility for Multi-GPU Support" of
the CUDA C++ Programming Guide.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from tiny_runtime_nv.cuda_errors import LOST
from tiny_runtime_nv.cuda_graph import overlap
from tiny_runtime_nv.driver import A_DEVICE, READ_AND_WRITE, Access, DriverError, Location

if TYPE_CHECKING:
  from tiny_runtime_nv.device import CUDADevice


def let_in(device: CUDADevice, source: CUDADevice) -> bool:
  """Let a GPU use the memory of another; False where nothing connects them. Raises DriverError."""
  if not device.driver.new("cuDeviceCanAccessPeer", device.ordinal, source.ordinal, kind=ctypes.c_int):
    return False
  access = Access(Location(A_DEVICE, device.ordinal), READ_AND_WRITE)
  try:
    device.driver("cuMemPoolSetAccess", source.pool, ctypes.byref(access), 1)
  except DriverError as error:
    if error.status in LOST:
      raise
    return False  # as in a virtual machine, where there may be a way that cannot be used
  return True


def copy_within(device: CUDADevice, target: int, source: int, nbytes: int) -> None:
  """Copy from one address of a GPU to another: through memory that is apart where they overlap, which the driver's
  copies are not for. Raises DriverError, OutOfMemory."""
  if not overlap(target, source, nbytes):
    return device.driver("cuMemcpyDtoDAsync_v2", target, source, nbytes, device.stream)
  apart = device.alloc(nbytes)
  device.driver("cuMemcpyDtoDAsync_v2", apart.address, source, nbytes, device.stream)
  device.driver("cuMemcpyDtoDAsync_v2", target, apart.address, nbytes, device.stream)
  device.free(apart)


def wait_for(device: CUDADevice, other: CUDADevice, what: str) -> None:
  """What a device is given from now on comes after all that the other was given so far. Leaves the context of
  `device` current. Raises DeviceLost."""
  with other._doing(what):
    other.driver("cuEventRecord", other.progress, other.stream)
  with device._doing(what):
    device.driver("cuStreamWaitEvent", device.stream, other.progress, 0)
