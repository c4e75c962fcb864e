"""OpenCL's errors as those of the contract."""

from __future__ import annotations

from typing import Any

from tiny_runtime import BackendError, DeviceLost, OutOfMemory

NO_MEMORY = {
  -4: "MEM_OBJECT_ALLOCATION_FAILURE",
  -5: "OUT_OF_RESOURCES",
  -6: "OUT_OF_HOST_MEMORY",
  -61: "INVALID_BUFFER_SIZE",  # more than the device gives at once
}
LOST = {
  -2: "DEVICE_NOT_AVAILABLE",
  -14: "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",  # a command before this one did not end well
  # contexts and queues are made once and kept: they become invalid where a kernel has crashed
  -34: "INVALID_CONTEXT",
  -36: "INVALID_COMMAND_QUEUE",
  -9999: "an illegal access, on NVIDIA's devices",
}


def contract_error(error: Any, action: str) -> BackendError | None:
  """The error of the contract for a `pyopencl.Error`; None for one that says that this plugin used OpenCL wrongly."""
  code, routine = int(error.code), str(error.routine)
  if code in NO_MEMORY:
    return OutOfMemory(f"{action}: {routine} says {NO_MEMORY[code]}")
  if code in LOST:
    return DeviceLost(f"{action}: {routine} says {LOST[code]}")
  return None
