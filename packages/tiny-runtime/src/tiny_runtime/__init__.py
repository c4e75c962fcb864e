"""Runs schedules on devices that plugins provide. See README.md; the plugin contract is `tiny_runtime.contract`."""

from typing import TYPE_CHECKING

import tiny_runtime.settings  # noqa: F401  # which declares them
from tiny_runtime.binary import Binary
from tiny_runtime.buffer import Buffer, adopted_buffer, buffer_of, host_buffer, part_of
from tiny_runtime.contract import (
  API,
  Backend,
  Capabilities,
  Compiler,
  DeviceInfo,
  GraphChange,
  GraphCopy,
  GraphKernel,
  Graphs,
  HostImport,
  HostMapped,
  Measure,
  Memory,
  Program,
)  # fmt: skip
from tiny_runtime.counters import GlobalCounters
from tiny_runtime.devices import Device
from tiny_runtime.errors import BackendError, Broken, CompileError, DeviceLost, Incompatible, OutOfMemory, Unavailable
from tiny_uop.lazy import lazy_names

if TYPE_CHECKING:
  from tiny_runtime.compile_cache import cache_folder, cached_bytes
  from tiny_runtime.execution.arena import Arena
  from tiny_runtime.execution.collectives import Communicator, use_communicator
  from tiny_runtime.execution.execute import run
  from tiny_runtime.execution.graph import Capture, CapturedGraph, capture
  from tiny_runtime.execution.items import ExecItem, Metadata, exec_items, run_schedule
  from tiny_runtime.profiling.record import Record
  from tiny_runtime.profiling.recording import Profile, profile

__all__ = [
  "API", "Arena", "Backend", "BackendError", "Binary", "Broken", "Buffer", "Capabilities", "Capture", "CapturedGraph",
  "Communicator", "CompileError", "Compiler", "Device", "DeviceInfo", "DeviceLost", "ExecItem", "GlobalCounters",
  "GraphChange", "GraphCopy", "GraphKernel", "Graphs", "HostImport", "HostMapped", "Incompatible", "Measure",
  "Memory", "Metadata", "OutOfMemory", "Profile", "Program", "Record", "Unavailable", "adopted_buffer", "buffer_of",
  "cache_folder", "cached_bytes", "capture", "exec_items", "host_buffer", "part_of", "profile", "run", "run_schedule",
  "use_communicator",
]  # fmt: skip

# what compiles and runs is imported when something runs
__getattr__ = lazy_names(
  __name__, cache_folder="compile_cache", cached_bytes="compile_cache", run="execution.execute",
  Communicator="execution.collectives", use_communicator="execution.collectives",
  Arena="execution.arena",
  Capture="execution.graph", CapturedGraph="execution.graph", capture="execution.graph", ExecItem="execution.items",
  Metadata="execution.items", exec_items="execution.items", run_schedule="execution.items",
  Profile="profiling.recording", Record="profiling.record", profile="profiling.recording",
)  # fmt: skip
