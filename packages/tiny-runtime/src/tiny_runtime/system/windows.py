"""Windows, by functions of kernel32 and ntdll ("Windows API reference" at learn.microsoft.com). It can be imported
anywhere; what asks the system needs Windows."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from ctypes import POINTER, byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any

__all__ = [
  "APART", "BINARY", "CPUID", "DROPS_PAGES", "FORKS", "READ_FLAGS", "Forked", "address_of", "allocated_bytes",
  "drop_pages", "end_with_children", "features", "forked", "how_ended", "lend", "machine", "make_executable",
  "memory_bytes", "new_pages", "open_files", "others_may_write", "processor_list", "processors", "release", "replace",
  "resident_bytes", "stranger", "symbol", "thread_count", "trim_heap",
]  # fmt: skip

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
  "FlushInstructionCache": (c_int, [c_void_p, c_void_p, c_size_t]),
  "GetCurrentProcess": (c_void_p, []),
  "GetProcAddress": (c_void_p, [c_void_p, ctypes.c_char_p]),
  "GetProcessAffinityMask": (c_int, [c_void_p, POINTER(c_size_t), POINTER(c_size_t)]),
  "GetProcessHandleCount": (c_int, [c_void_p, POINTER(c_uint32)]),
  "GlobalMemoryStatusEx": (c_int, [c_void_p]),
  "IsProcessorFeaturePresent": (c_int, [c_uint32]),
  "K32GetProcessMemoryInfo": (c_int, [c_void_p, c_void_p, c_uint32]),
  "VirtualAlloc": (c_void_p, [c_void_p, c_size_t, c_uint32, c_uint32]),
  "VirtualFree": (c_int, [c_void_p, c_size_t, c_uint32]),
  "VirtualProtect": (c_int, [c_void_p, c_size_t, c_uint32, POINTER(c_uint32)]),
}
"""What is called of kernel32: (result, arguments)."""


@cache
def kernel32() -> ctypes.CDLL:
  """The library with the functions above. Raises OSError elsewhere than on Windows."""
  library = ctypes.CDLL("kernel32", use_last_error=True)
  for name, (result, arguments) in FUNCTIONS.items():
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
  return library


def failed(name: str) -> OSError:
  """What to raise after a function of kernel32 has failed."""
  if sys.platform == "win32":
    return ctypes.WinError(ctypes.get_last_error(), f"{name}: {ctypes.FormatError(ctypes.get_last_error())}")
  return OSError(name)


# *** the machine ***

CPUID = bytes.fromhex("53 4989c9 89d0 4489c1 0fa2 418901 41895904 41894908 4189510c 5b c3")
"""x86-64 code of `void cpuid(uint32_t out[4], uint32_t leaf, uint32_t subleaf)`, called as this system calls functions:
arguments in rcx, edx, r8d."""
ARCHITECTURES = {"win-amd64": "x86_64", "win-arm64": "aarch64", "win32": "i686"}
"""By Python's names of platforms."""
FEATURES = 64
"""Numbers of IsProcessorFeaturePresent that are asked for: PF_… of winnt.h."""


def machine(platform: str | None = None) -> str:
  """The architecture of this process: `x86_64`, `aarch64`. That of Python, which may be emulated on another."""
  platform = sysconfig.get_platform() if platform is None else platform
  return ARCHITECTURES.get(platform, platform)


def release() -> str:
  """The version of the system."""
  if sys.platform == "win32":
    return ".".join(map(str, sys.getwindowsversion()[:3]))
  return ""


def processors() -> int:
  """How many processors this process may use: of its group, which has up to 64."""
  allowed, present = c_size_t(0), c_size_t(0)
  if not kernel32().GetProcessAffinityMask(kernel32().GetCurrentProcess(), byref(allowed), byref(present)):
    return os.cpu_count() or 1
  return allowed.value.bit_count() or os.cpu_count() or 1  # 0: it has threads in several groups


def processor_list() -> str:
  """What the system lists of the processors, as text."""
  return f"model name\t: {name}\n" if (name := platform.processor()) else ""


def features() -> str:
  """What the processor has, in the system's own numbers."""
  return f"{sum(1 << n for n in range(FEATURES) if kernel32().IsProcessorFeaturePresent(n)):x}"


class _Memory(ctypes.Structure):
  """MEMORYSTATUSEX."""

  _fields_ = (
    ("dwLength", c_uint32), ("dwMemoryLoad", c_uint32), ("ullTotalPhys", c_uint64), ("ullAvailPhys", c_uint64),
    ("ullTotalPageFile", c_uint64), ("ullAvailPageFile", c_uint64), ("ullTotalVirtual", c_uint64),
    ("ullAvailVirtual", c_uint64), ("ullAvailExtendedVirtual", c_uint64),
  )  # fmt: skip


def memory_bytes() -> int:
  """Bytes of memory that the machine has; 0 if nobody says."""
  found = _Memory(dwLength=ctypes.sizeof(_Memory))
  return int(found.ullTotalPhys) if kernel32().GlobalMemoryStatusEx(byref(found)) else 0


# *** pages, and functions of this process ***

COMMIT, RESERVE, RESET, RELEASE = 0x1000, 0x2000, 0x80000, 0x8000
READ_WRITE, EXECUTE_READ = 0x04, 0x20


def new_pages(nbytes: int, huge: bool = False) -> memoryview:
  """Zeroed pages that can be written, given back when nobody has a view of them. `huge` is for other systems: large
  pages need a right that users do not have here. Raises OSError."""
  size = max(nbytes, 1)
  address = kernel32().VirtualAlloc(None, size, COMMIT | RESERVE, READ_WRITE)
  if not address:
    raise failed("VirtualAlloc")
  area = (ctypes.c_uint8 * size).from_address(address)
  area.owner = _Owner(address)  # type: ignore[attr-defined]  # a view keeps the array, and that keeps the pages
  return memoryview(area).cast("B")


class _Owner:
  """Who gives pages of VirtualAlloc back."""

  def __init__(self, address: int) -> None:
    self._address, self._free = address, kernel32().VirtualFree

  def __del__(self) -> None:
    self._free(self._address, 0, RELEASE)


def address_of(view: memoryview) -> int:
  """Where memory that can be written begins."""
  return ctypes.addressof(ctypes.c_char.from_buffer(view))


def make_executable(view: memoryview, nbytes: int) -> None:
  """Make the first bytes of `new_pages`, whole pages, executable and no longer writable. Raises OSError where the
  system forbids it."""
  before, address = c_uint32(0), address_of(view)
  if not kernel32().VirtualProtect(address, nbytes, EXECUTE_READ, byref(before)):
    raise failed("VirtualProtect")
  kernel32().FlushInstructionCache(kernel32().GetCurrentProcess(), address, nbytes)


def lend(view: memoryview) -> None:
  """Let the system take pages of `new_pages` when it needs them: what is in them is lost then."""
  if isinstance(getattr(view.obj, "owner", None), _Owner):
    kernel32().VirtualAlloc(address_of(view), view.nbytes, RESET, READ_WRITE)


DROPS_PAGES = False


def drop_pages(mapped: mmap.mmap) -> None:
  """For other systems: this one has the pages of mapped files when it wants them."""


def trim_heap() -> None:
  """For other systems: this one's heap gives pages back by itself."""


LIBRARIES = ("ucrtbase", "vcruntime140", "kernel32", "ntdll")


def symbol(name: str) -> int:
  """Address of a function of the C runtime or of the system; 0 if there is none of this name."""
  for library in LIBRARIES:
    try:
      loaded = ctypes.CDLL(library)
    except OSError:
      continue
    if address := kernel32().GetProcAddress(loaded._handle, name.encode()):
      return int(address)
  return 0


# *** files ***

BINARY: int = getattr(os, "O_BINARY", 0)
"""For `os.open`: no bytes are changed, as ends of lines else are."""
READ_FLAGS = os.O_RDONLY | BINARY
SHARED_SECONDS = 1.0


def stranger(about: os.stat_result) -> int | None:
  """For other systems: owners are no numbers here, and folders are as private as the one that they are made in."""
  return None


def others_may_write(about: os.stat_result) -> str:
  """See `stranger`."""
  return ""


def replace(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
  """Give a file the name of another, which is gone then; nobody sees neither. Raises OSError. A file that somebody has
  open cannot be replaced here, so it waits a little for who reads it."""
  deadline = time.monotonic() + SHARED_SECONDS
  while True:
    try:
      return os.replace(source, target)
    except PermissionError:
      if time.monotonic() > deadline:
        raise
    time.sleep(0.005)


# *** other processes ***

APART: dict[str, Any] = {"creationflags": 0x200}
"""For `subprocess.Popen`: a process that keys of the terminal do not reach (CREATE_NEW_PROCESS_GROUP)."""
FORKS = False


class Forked:
  """For other systems: this one does not copy processes."""

  pid = 0

  def poll(self) -> int | None:
    """See `subprocess.Popen`."""
    raise NotImplementedError("Windows has no copies of processes: FORKS is false")


def forked(work: Callable[[], None], output: int) -> Forked:
  """For other systems."""
  raise NotImplementedError("Windows has no copies of processes: FORKS is false")


def end_with_children(process: subprocess.Popen[bytes] | Forked) -> None:
  """End a process, and what it has started itself."""
  subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)


STATUSES = {
  0x80000003: "a breakpoint", 0xC0000005: "an access violation", 0xC000001D: "an illegal instruction",
  0xC0000025: "an exception that it cannot go on after", 0xC0000094: "an integer division by zero",
  0xC00000FD: "a stack overflow", 0xC0000135: "a library that is missing", 0xC000013A: "Ctrl-C",
  0xC0000374: "a damaged heap", 0xC0000409: "a damaged stack, or its own abort",
}  # fmt: skip
"""NTSTATUS values that processes end with: ntstatus.h."""


def how_ended(code: int) -> str:
  """By what a process with this status was ended: `an access violation (0xC0000005)`; empty if it ended by itself."""
  status = code & 0xFFFFFFFF
  if status in STATUSES:
    return f"{STATUSES[status]} ({status:#010X})".replace("0X", "0x")
  return f"status {status:#010X}".replace("0X", "0x") if status >= 0xC0000000 else ""


# *** what this process uses ***


class _Counters(ctypes.Structure):
  """PROCESS_MEMORY_COUNTERS."""

  _fields_ = (
    ("cb", c_uint32), ("PageFaultCount", c_uint32), ("PeakWorkingSetSize", c_size_t), ("WorkingSetSize", c_size_t),
    ("QuotaPeakPagedPoolUsage", c_size_t), ("QuotaPagedPoolUsage", c_size_t), ("QuotaPeakNonPagedPoolUsage", c_size_t),
    ("QuotaNonPagedPoolUsage", c_size_t), ("PagefileUsage", c_size_t), ("PeakPagefileUsage", c_size_t),
  )  # fmt: skip


def resident_bytes() -> int | None:
  """Bytes of memory that this process has; None where the system does not say."""
  found = _Counters(cb=ctypes.sizeof(_Counters))
  asked = kernel32().K32GetProcessMemoryInfo(kernel32().GetCurrentProcess(), byref(found), found.cb)
  return int(found.WorkingSetSize) if asked else None


def allocated_bytes() -> int | None:
  """Nobody counts here what `malloc` gave out."""
  return None


def open_files() -> int | None:
  """How many handles this process has: files and all else."""
  count = c_uint32(0)
  return count.value if kernel32().GetProcessHandleCount(kernel32().GetCurrentProcess(), byref(count)) else None


def thread_count() -> int:
  """Threads of Python."""
  import threading

  return threading.active_count()
