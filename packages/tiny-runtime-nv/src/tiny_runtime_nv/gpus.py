"""Which GPUs the driver has, asked of its library alone."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from tiny_runtime import Unavailable

LIBRARIES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
MAJOR, MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…, of the driver API's cuda.h."""
NO_DEVICE, MISMATCH = 100, 803
"""CUDA_ERROR_NO_DEVICE, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH."""

INSTALL = (
  "Install NVIDIA's driver for the GPU of this machine; in a container, start it with access to the GPU (docker run "
  "--gpus all)"
)


def load_library() -> Any:
  """The driver's library, or None where it is not installed."""
  for name in LIBRARIES:
    try:
      return ctypes.CDLL(name)
    except OSError:
      continue
  return None


def compute_capabilities(library: Any) -> list[tuple[int, int]] | Unavailable:
  """(major, minor) of each GPU, in the driver's order; or why there is none."""
  if library is None:
    return Unavailable(f"NVIDIA's driver is not installed: there is no {LIBRARIES[0]}", INSTALL)
  if status := library.cuInit(0):
    return _refused(status)
  count = ctypes.c_int()
  if status := library.cuDeviceGetCount(ctypes.byref(count)):
    return _refused(status)
  found = []
  for index in range(count.value):
    device, numbers = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    if status := library.cuDeviceGet(ctypes.byref(device), index):
      return _refused(status)
    for number, attribute in zip(numbers, (MAJOR, MINOR), strict=True):
      if status := library.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
        return _refused(status)
    found.append((numbers[0].value, numbers[1].value))
  return found or Unavailable("NVIDIA's driver is installed, but it finds no GPU", INSTALL)


def _refused(status: int) -> Unavailable:
  if status == NO_DEVICE:
    return Unavailable("NVIDIA's driver is installed, but it finds no GPU", INSTALL)
  if status == MISMATCH:
    return Unavailable("NVIDIA's kernel module and its library are of different versions", "Restart the machine")
  return Unavailable(f"NVIDIA's driver refuses with error {status} of the driver API", "`nvidia-smi` says more")
