"""NVIDIA's driver API as ctypes sees it: the functions that are used here, with their types, after CUDA 13's cuda.h.

The names end in the version whose types are meant, as the library exports them. A test compiles this table against
cuda.h, where there is one.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from tiny_runtime import Unavailable

OLDEST = 12000
"""The first version of the driver API that has all of it: CUDA 12.0."""

ADDRESS = c_uint64
"""CUdeviceptr."""

FUNCTIONS: dict[str, tuple[Any, ...]] = {
  "cuInit": (c_uint,),
  "cuDriverGetVersion": (c_void_p,),
  "cuGetErrorName": (c_int, c_void_p),
  "cuGetErrorString": (c_int, c_void_p),
  "cuDeviceGet": (c_void_p, c_int),
  "cuDeviceGetAttribute": (c_void_p, c_int, c_int),
  "cuDeviceTotalMem_v2": (c_void_p, c_int),
  "cuDeviceCanAccessPeer": (c_void_p, c_int, c_int),
  "cuDevicePrimaryCtxRetain": (c_void_p, c_int),
  "cuDevicePrimaryCtxRelease_v2": (c_int,),
  "cuDevicePrimaryCtxReset_v2": (c_int,),
  "cuCtxSetCurrent": (c_void_p,),
  "cuMemGetInfo_v2": (c_void_p, c_void_p),
  "cuDeviceGetDefaultMemPool": (c_void_p, c_int),
  "cuMemPoolSetAttribute": (c_void_p, c_int, c_void_p),
  "cuMemPoolTrimTo": (c_void_p, c_size_t),
  "cuMemPoolSetAccess": (c_void_p, c_void_p, c_size_t),
  "cuMemAllocAsync": (c_void_p, c_size_t, c_void_p),
  "cuMemFreeAsync": (ADDRESS, c_void_p),
  "cuMemHostAlloc": (c_void_p, c_size_t, c_uint),
  "cuMemFreeHost": (c_void_p,),
  "cuMemcpyHtoDAsync_v2": (ADDRESS, c_void_p, c_size_t, c_void_p),
  "cuMemcpyDtoHAsync_v2": (c_void_p, ADDRESS, c_size_t, c_void_p),
  "cuMemcpyDtoDAsync_v2": (ADDRESS, ADDRESS, c_size_t, c_void_p),
  "cuMemcpyPeerAsync": (ADDRESS, c_void_p, ADDRESS, c_void_p, c_size_t, c_void_p),
  "cuStreamCreate": (c_void_p, c_uint),
  "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
  "cuStreamSynchronize": (c_void_p,),
  "cuStreamDestroy_v2": (c_void_p,),
  "cuEventCreate": (c_void_p, c_uint),
  "cuEventRecord": (c_void_p, c_void_p),
  "cuEventSynchronize": (c_void_p,),
  "cuEventElapsedTime": (c_void_p, c_void_p, c_void_p),
  "cuEventDestroy_v2": (c_void_p,),
  "cuModuleLoadDataEx": (c_void_p, c_void_p, c_uint, c_void_p, c_void_p),
  "cuModuleGetFunction": (c_void_p, c_void_p, c_char_p),
  "cuModuleUnload": (c_void_p,),
  "cuFuncGetAttribute": (c_void_p, c_int, c_void_p),
  "cuFuncSetAttribute": (c_void_p, c_int, c_int),
  "cuLaunchKernel": (
    c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_void_p, c_void_p, c_void_p,
  ),
  "cuGraphCreate": (c_void_p, c_uint),
  "cuGraphDestroy": (c_void_p,),
  "cuGraphAddKernelNode_v2": (c_void_p, c_void_p, c_void_p, c_size_t, c_void_p),
  "cuGraphAddMemcpyNode": (c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p),
  "cuGraphAddEventRecordNode": (c_void_p, c_void_p, c_void_p, c_size_t, c_void_p),
  "cuGraphInstantiateWithFlags": (c_void_p, c_void_p, c_uint64),
  "cuGraphExecKernelNodeSetParams_v2": (c_void_p, c_void_p, c_void_p),
  "cuGraphExecMemcpyNodeSetParams": (c_void_p, c_void_p, c_void_p, c_void_p),
  "cuGraphNodeSetEnabled": (c_void_p, c_void_p, c_uint),
  "cuGraphLaunch": (c_void_p, c_void_p),
  "cuGraphExecDestroy": (c_void_p,),
}  # fmt: skip

# CUdevice_attribute, CUmemPool_attribute, CUfunction_attribute, CUjit_option, CUmemorytype, flags
POOLS_SUPPORTED = 115
KEEP_BYTES = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
MOST_THREADS, REGISTERS = 0, 4
MOST_SHARED_AT_LAUNCH = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
LOG, LOG_SIZE = 5, 6  # CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
DEVICE_MEMORY = 2
NON_BLOCKING = 1  # a stream that does not wait for the legacy default stream
NO_TIME = 2  # CU_EVENT_DISABLE_TIMING
A_DEVICE, READ_AND_WRITE = 1, 3  # CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE


class KernelNode(ctypes.Structure):
  """CUDA_KERNEL_NODE_PARAMS_v2."""

  _fields_ = [
    ("func", c_void_p), ("gridDimX", c_uint), ("gridDimY", c_uint), ("gridDimZ", c_uint),
    ("blockDimX", c_uint), ("blockDimY", c_uint), ("blockDimZ", c_uint), ("sharedMemBytes", c_uint),
    ("kernelParams", c_void_p), ("extra", c_void_p), ("kern", c_void_p), ("ctx", c_void_p),
  ]  # fmt: skip


class CopyNode(ctypes.Structure):
  """CUDA_MEMCPY3D_v2, of which a copy in one dimension uses little."""

  _fields_ = [
    ("srcXInBytes", c_size_t), ("srcY", c_size_t), ("srcZ", c_size_t), ("srcLOD", c_size_t),
    ("srcMemoryType", c_int), ("srcHost", c_void_p), ("srcDevice", ADDRESS), ("srcArray", c_void_p),
    ("reserved0", c_void_p), ("srcPitch", c_size_t), ("srcHeight", c_size_t),
    ("dstXInBytes", c_size_t), ("dstY", c_size_t), ("dstZ", c_size_t), ("dstLOD", c_size_t),
    ("dstMemoryType", c_int), ("dstHost", c_void_p), ("dstDevice", ADDRESS), ("dstArray", c_void_p),
    ("reserved1", c_void_p), ("dstPitch", c_size_t), ("dstHeight", c_size_t),
    ("WidthInBytes", c_size_t), ("Height", c_size_t), ("Depth", c_size_t),
  ]  # fmt: skip


class Location(ctypes.Structure):
  """CUmemLocation: a device, by its ordinal."""

  _fields_ = [("type", c_int), ("id", c_int)]


class Access(ctypes.Structure):
  """CUmemAccessDesc: what may be done from there with memory."""

  _fields_ = [("location", Location), ("flags", c_int)]


class DriverError(RuntimeError):
  """A function of the driver's API gave an error. `status` is its number, `name` its name in cuda.h."""

  def __init__(self, message: str, status: int, name: str) -> None:
    super().__init__(message)
    self.status, self.name = status, name


class Driver:
  """The driver's library with the types of its functions. Raises Unavailable for one that is too old."""

  def __init__(self, library: Any) -> None:
    self.functions: dict[str, Any] = {}
    for name, types in FUNCTIONS.items():
      function = getattr(library, name, None)
      if function is None:
        raise too_old(f"it has no {name}")
      function.argtypes, function.restype = types, c_int
      self.functions[name] = function
    version = c_int()
    self("cuDriverGetVersion", ctypes.byref(version))
    if version.value < OLDEST:
      raise too_old(f"it is for CUDA {version.value // 1000}.{version.value % 1000 // 10}")
    self("cuInit", 0)

  def __call__(self, name: str, *arguments: Any) -> None:
    """Call a function. Raises DriverError with what the driver says."""
    if status := self.functions[name](*arguments):
      raise self.error(name, status)

  def new(self, name: str, *arguments: Any, kind: Any = c_void_p) -> Any:
    """What a function whose first argument is where to put its result gives, such as a handle. Raises DriverError."""
    place = kind()
    self(name, ctypes.byref(place), *arguments)
    return place.value

  def error(self, function: str, status: int) -> DriverError:
    """The error for a status, in words."""
    texts = []
    for ask in ("cuGetErrorName", "cuGetErrorString"):
      text = c_char_p()
      known = self.functions[ask](status, ctypes.byref(text)) == 0
      texts.append((text.value or b"").decode() if known else f"error {status}")
    return DriverError(f"{function} says {texts[0]}: {texts[1]}", status, texts[0])


def too_old(reason: str) -> Unavailable:
  """Why a driver cannot be used."""
  return Unavailable(
    f"NVIDIA's driver is too old: {reason}", f"Install one for CUDA {OLDEST // 1000}.0 or later (525 or later)"
  )
