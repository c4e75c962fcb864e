"""Runs schedules on devices that plugins provide. See README.md."""

from tiny_runtime.binary import Binary
from tiny_runtime.contract import API, Backend, Capabilities, Compiler, Device as DeviceProtocol, DeviceInfo, HostMapped, Measure, Memory, Program
from tiny_runtime.errors import BackendError, Broken, CompileError, DeviceLost, Incompatible, OutOfMemory, Unavailable
