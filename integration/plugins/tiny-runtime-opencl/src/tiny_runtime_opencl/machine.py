"""The OpenCL devices of this machine."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyopencl as cl

from tiny_runtime_opencl.arch import Arch


def find_devices() -> list[Any]:
  """Every device that is available and can compile for itself; GPUs before others, else in the order of platforms."""
  found = []
  for platform in _platforms():
    try:
      found += [d for d in platform.get_devices() if d.available and d.compiler_available and d.endian_little]
    except cl.Error:  # a driver without devices, or one that does not work, says so in this way
      continue
  return sorted(found, key=lambda d: not d.type & cl.device_type.GPU)


@cache
def refusal(device: Any) -> str:
  """What the compiler of a device says to an empty kernel; nothing where it builds it. Drivers for processors bring an
  LLVM of their own, and one that is older than the processor may not know it: PoCL 3 has no name for AMD's Zen 5."""
  if device.type & cl.device_type.GPU:
    return ""
  try:
    cl.Program(cl.Context([device]), "__kernel void nothing(void) {}").build(cache_dir=False)
  except cl.Error as error:
    said = [line for line in str(error).splitlines() if line.startswith("error:")]
    return said[0] if said else str(error)
  return ""


def _platforms() -> list[Any]:
  try:
    return list(cl.get_platforms())
  except cl.Error:  # PLATFORM_NOT_FOUND_KHR: no driver is registered
    return []


def arch_of(device: Any) -> Arch:
  """What code for a device depends on."""
  names = {cl.device_type.CPU: "cpu", cl.device_type.GPU: "gpu"}
  kind = next((name for bit, name in names.items() if device.type & bit), "accelerator")
  extensions = set(device.extensions.split())
  x, y, z = device.max_work_item_sizes[:3]
  return Arch(
    kind,
    local=device.local_mem_size,
    group=device.max_work_group_size,
    sizes=(x, y, z),
    fp16="cl_khr_fp16" in extensions,
    fp64="cl_khr_fp64" in extensions,
    # what is fast is known to the device's compiler only; on processors fma may be a hundred instructions
    fma=kind == "gpu" and bool(device.single_fp_config & cl.device_fp_config.FMA),
    exact=bool(device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
  )
