"""KFD, the compute part of Linux's amdgpu, as ctypes sees it: the requests that are used here, after linux/kfd_ioctl.h.

A test compiles these tables against that header, where there is one (Debian: linux-libc-dev).
"""

from __future__ import annotations

import ctypes
import errno
import os
from ctypes import c_uint32 as u32
from ctypes import c_uint64 as u64
from typing import Any

from tiny_runtime.hcq.system import System


class GetVersion(ctypes.Structure):
  """kfd_ioctl_get_version_args."""

  _fields_ = [("major_version", u32), ("minor_version", u32)]


class CreateQueue(ctypes.Structure):
  """kfd_ioctl_create_queue_args."""

  _fields_ = [
    ("ring_base_address", u64), ("write_pointer_address", u64), ("read_pointer_address", u64), ("doorbell_offset", u64),
    ("ring_size", u32), ("gpu_id", u32), ("queue_type", u32), ("queue_percentage", u32), ("queue_priority", u32),
    ("queue_id", u32), ("eop_buffer_address", u64), ("eop_buffer_size", u64), ("ctx_save_restore_address", u64),
    ("ctx_save_restore_size", u32), ("ctl_stack_size", u32),
  ]  # fmt: skip


class DestroyQueue(ctypes.Structure):
  """kfd_ioctl_destroy_queue_args."""

  _fields_ = [("queue_id", u32), ("pad", u32)]


class GetClockCounters(ctypes.Structure):
  """kfd_ioctl_get_clock_counters_args."""

  _fields_ = [
    ("gpu_clock_counter", u64), ("cpu_clock_counter", u64), ("system_clock_counter", u64), ("system_clock_freq", u64),
    ("gpu_id", u32), ("pad", u32),
  ]  # fmt: skip


class Apertures(ctypes.Structure):
  """kfd_process_device_apertures."""

  _fields_ = [
    ("lds_base", u64), ("lds_limit", u64), ("scratch_base", u64), ("scratch_limit", u64), ("gpuvm_base", u64),
    ("gpuvm_limit", u64), ("gpu_id", u32), ("pad", u32),
  ]  # fmt: skip


class GetApertures(ctypes.Structure):
  """kfd_ioctl_get_process_apertures_new_args."""

  _fields_ = [("kfd_process_device_apertures_ptr", u64), ("num_of_nodes", u32), ("pad", u32)]


class CreateEvent(ctypes.Structure):
  """kfd_ioctl_create_event_args."""

  _fields_ = [
    ("event_page_offset", u64), ("event_trigger_data", u32), ("event_type", u32), ("auto_reset", u32), ("node_id", u32),
    ("event_id", u32), ("event_slot_index", u32),
  ]  # fmt: skip


class NamesEvent(ctypes.Structure):
  """kfd_ioctl_destroy_event_args, and kfd_ioctl_reset_event_args."""

  _fields_ = [("event_id", u32), ("pad", u32)]


class MemoryFailure(ctypes.Structure):
  """kfd_memory_exception_failure."""

  _fields_ = [("NotPresent", u32), ("ReadOnly", u32), ("NoExecute", u32), ("imprecise", u32)]


class MemoryException(ctypes.Structure):
  """kfd_hsa_memory_exception_data."""

  _fields_ = [("failure", MemoryFailure), ("va", u64), ("gpu_id", u32), ("ErrorType", u32)]


class HardwareException(ctypes.Structure):
  """kfd_hsa_hw_exception_data."""

  _fields_ = [("reset_type", u32), ("reset_cause", u32), ("memory_lost", u32), ("gpu_id", u32)]


class _Exception(ctypes.Union):
  _fields_ = [("memory_exception_data", MemoryException), ("hw_exception_data", HardwareException)]


class EventData(ctypes.Structure):
  """kfd_event_data."""

  _anonymous_ = ("data",)
  _fields_ = [("data", _Exception), ("kfd_event_data_ext", u64), ("event_id", u32), ("pad", u32)]


class WaitEvents(ctypes.Structure):
  """kfd_ioctl_wait_events_args."""

  _fields_ = [("events_ptr", u64), ("num_events", u32), ("wait_for_all", u32), ("timeout", u32), ("wait_result", u32)]


class AcquireVM(ctypes.Structure):
  """kfd_ioctl_acquire_vm_args."""

  _fields_ = [("drm_fd", u32), ("gpu_id", u32)]


class AllocMemory(ctypes.Structure):
  """kfd_ioctl_alloc_memory_of_gpu_args."""

  _fields_ = [
    ("va_addr", u64), ("size", u64), ("handle", u64), ("mmap_offset", u64), ("gpu_id", u32), ("flags", u32),
  ]  # fmt: skip


class FreeMemory(ctypes.Structure):
  """kfd_ioctl_free_memory_of_gpu_args."""

  _fields_ = [("handle", u64)]


class MapMemory(ctypes.Structure):
  """kfd_ioctl_map_memory_to_gpu_args, and kfd_ioctl_unmap_memory_from_gpu_args."""

  _fields_ = [("handle", u64), ("device_ids_array_ptr", u64), ("n_devices", u32), ("n_success", u32)]


class RuntimeEnable(ctypes.Structure):
  """kfd_ioctl_runtime_enable_args, which Linux has since 6.5."""

  _fields_ = [("r_debug", u64), ("mode_mask", u32), ("capabilities_mask", u32)]


class SaveAreaHeader(ctypes.Structure):
  """kfd_context_save_area_header, at the beginning of where the waves of a queue are saved: KFD writes the mask of an
  error of the queue to `err_payload_addr`, and sets the event `err_event_id`."""

  _fields_ = [
    ("control_stack_offset", u32), ("control_stack_size", u32), ("wave_state_offset", u32), ("wave_state_size", u32),
    ("debug_offset", u32), ("debug_size", u32), ("err_payload_addr", u64), ("err_event_id", u32), ("reserved1", u32),
  ]  # fmt: skip


TO, FROM = 1, 2
"""Which way a structure goes: to the driver, from it."""

REQUESTS: dict[str, tuple[int, int, type[ctypes.Structure]]] = {
  "GET_VERSION": (FROM, 0x01, GetVersion),
  "CREATE_QUEUE": (TO | FROM, 0x02, CreateQueue),
  "DESTROY_QUEUE": (TO | FROM, 0x03, DestroyQueue),
  "GET_CLOCK_COUNTERS": (TO | FROM, 0x05, GetClockCounters),
  "CREATE_EVENT": (TO | FROM, 0x08, CreateEvent),
  "DESTROY_EVENT": (TO, 0x09, NamesEvent),
  "RESET_EVENT": (TO, 0x0B, NamesEvent),
  "WAIT_EVENTS": (TO | FROM, 0x0C, WaitEvents),
  "GET_PROCESS_APERTURES_NEW": (TO | FROM, 0x14, GetApertures),
  "ACQUIRE_VM": (TO, 0x15, AcquireVM),
  "ALLOC_MEMORY_OF_GPU": (TO | FROM, 0x16, AllocMemory),
  "FREE_MEMORY_OF_GPU": (TO, 0x17, FreeMemory),
  "MAP_MEMORY_TO_GPU": (TO | FROM, 0x18, MapMemory),
  "UNMAP_MEMORY_FROM_GPU": (TO | FROM, 0x19, MapMemory),
  "RUNTIME_ENABLE": (TO | FROM, 0x25, RuntimeEnable),
}
"""Which way, number, structure, by the name without AMDKFD_IOC_."""

MAJOR = 1
"""Version of the interface that this is."""
SDMA, COMPUTE_AQL = 1, 2  # KFD_IOC_QUEUE_TYPE_
MOST_PERCENT, PRIORITY = 100, 7
EVENT_PAGE = 4096 * 8
"""Bytes of what a GPU writes to when it interrupts: a word for each of KFD_SIGNAL_EVENT_LIMIT events."""
EVENT_SIGNAL, EVENT_HARDWARE, EVENT_MEMORY = 0, 3, 8  # KFD_IOC_EVENT_SIGNAL, …_HW_EXCEPTION, …_MEMORY
RUNTIME_ENABLED = 1  # KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK
WAIT_COMPLETE = 0  # KFD_IOC_WAIT_RESULT_COMPLETE
VRAM, GTT = 1 << 0, 1 << 1
COHERENT, NO_SUBSTITUTE, EXECUTABLE, WRITABLE = 1 << 26, 1 << 28, 1 << 30, 1 << 31
"""KFD_IOC_ALLOC_MEM_FLAGS_."""


def request_number(name: str) -> int:
  """The number of a request, as _IOC of linux/ioctl.h makes it: direction, size, 'K', number."""
  way, number, kind = REQUESTS[name]
  return way << 30 | ctypes.sizeof(kind) << 16 | ord("K") << 8 | number


NUMBERS = {name: request_number(name) for name in REQUESTS}


class KFDError(OSError):
  """KFD refused a request. `errno` says why."""


class KFD:
  """The open device file."""

  def __init__(self, system: System, path: str) -> None:
    self.system = system
    self.descriptor = system.open(path)

  def __call__(self, name: str, **fields: Any) -> Any:
    """Make a request; gives its structure with what the driver put in. Raises KFDError."""
    argument = REQUESTS[name][2](**fields)
    try:
      self.system.ioctl(self.descriptor, NUMBERS[name], argument)
    except OSError as error:
      given = ", ".join(f"{key}={value:#x}" for key, value in fields.items())
      reason = error.strerror or os.strerror(error.errno or 0)
      raise KFDError(error.errno, f"KFD refuses {name}({given}): {reason}") from error
    return argument


def out_of_memory(error: KFDError) -> bool:
  """Whether a request was refused because there is no memory left."""
  return error.errno in (errno.ENOMEM, errno.ENOSPC)
