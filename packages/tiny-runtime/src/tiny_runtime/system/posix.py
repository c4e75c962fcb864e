"""POSIX systems. What only Linux tells is asked of it alone. `ctypes` is imported late: every program imports this."""

from __future__ import annotations

import mmap
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

assert sys.platform != "win32", "Windows has a module of its own"

if TYPE_CHECKING:
  from ctypes import CDLL
  from subprocess import Popen

__all__ = [
  "APART", "BINARY", "CPUID", "DROPS_PAGES", "FORKS", "READ_FLAGS", "Forked", "address_of", "allocated_bytes",
  "drop_pages", "end_with_children", "features", "forked", "how_ended", "lend", "machine", "make_executable",
  "memory_bytes", "new_pages", "open_files", "others_may_write", "processor_list", "processors", "release", "replace",
  "resident_bytes", "stranger", "symbol", "thread_count", "trim_heap",
]  # fmt: skip

# *** the machine ***

CPUINFO = "/proc/cpuinfo"
HWCAPS = (16, 26, 29, 30)
"""AT_HWCAP, AT_HWCAP2, AT_HWCAP3, AT_HWCAP4 of getauxval(3): the features of processors other than x86-64."""
CPUID = bytes.fromhex("53 4989f8 89f0 89d1 0fa2 418900 41895804 41894808 4189500c 5b c3")
"""x86-64 code of `void cpuid(uint32_t out[4], uint32_t leaf, uint32_t subleaf)`, called as this system calls functions:
System V, arguments in rdi, esi, edx."""


def machine() -> str:
  """The architecture of this process: `x86_64`, `aarch64`, `arm64` (macOS)."""
  return os.uname().machine


def release() -> str:
  """The version of the system's kernel."""
  return os.uname().release


def processors() -> int:
  """How many processors this process may use."""
  return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_list() -> str:
  """What the system lists of the first processors, as text; empty where it lists none."""
  try:
    with open(CPUINFO) as file:
      return file.read(1 << 14)
  except OSError:
    return ""


def features() -> str:
  """What the processor has, in the system's own numbers; empty where it does not tell a process. (Linux, arm64 and
  others; x86-64 is asked by CPUID.)"""
  import ctypes

  if not (address := symbol("getauxval")):
    return ""
  ask = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_ulong)(address)
  return " ".join(f"{ask(kind):x}" for kind in HWCAPS)


def memory_bytes() -> int:
  """Bytes of memory that the machine has; 0 if nobody says."""
  try:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
  except (OSError, ValueError):
    return 0


# *** pages, and functions of this process ***


def new_pages(nbytes: int, huge: bool = False) -> memoryview:
  """Zeroed pages that can be written, given back when nobody has a view of them. `huge`: in large ones, if there are
  some. Raises OSError."""
  area = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
  if huge and hasattr(mmap, "MADV_HUGEPAGE"):
    with suppress(OSError):  # a kernel without huge pages
      area.madvise(mmap.MADV_HUGEPAGE)
  return memoryview(area)


def address_of(view: memoryview) -> int:
  """Where memory that can be written begins."""
  import ctypes

  return ctypes.addressof(ctypes.c_char.from_buffer(view))


def make_executable(view: memoryview, nbytes: int) -> None:
  """Make the first bytes of `new_pages`, whole pages, executable and no longer writable. Raises OSError where the
  system forbids it."""
  import ctypes

  protect = _process().mprotect
  if protect(ctypes.c_void_p(address_of(view)), ctypes.c_size_t(nbytes), mmap.PROT_READ | mmap.PROT_EXEC):
    number = ctypes.get_errno()
    raise OSError(number, f"mprotect: {os.strerror(number)}")


def lend(view: memoryview) -> None:
  """Let the system take pages of `new_pages` when it needs them, and then give zeroed ones at the next access."""
  area = view.obj
  if isinstance(area, mmap.mmap) and hasattr(mmap, "MADV_FREE"):
    with suppress(OSError):  # a kernel without it
      area.madvise(mmap.MADV_FREE)


DROPS_PAGES = hasattr(mmap, "MADV_DONTNEED")


def drop_pages(mapped: mmap.mmap) -> None:
  """Let the system have the pages of a file that is mapped for reading: the next access reads them again."""
  mapped.madvise(mmap.MADV_DONTNEED)


def trim_heap() -> None:
  """Give back the pages that `malloc` keeps of what was freed, wherever they lie between others (glibc has such a
  function)."""
  import ctypes

  if address := symbol("malloc_trim"):
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t)(address)(0)


@cache
def _process() -> CDLL:
  """This process with its libraries."""
  import ctypes

  return ctypes.CDLL(None, use_errno=True)


def symbol(name: str) -> int:
  """Address of a C function of this process; 0 if there is none of this name."""
  import ctypes

  try:
    return ctypes.cast(_process()[name], ctypes.c_void_p).value or 0
  except AttributeError:
    return 0


# *** files ***

BINARY = 0
"""For `os.open`: no bytes are changed."""
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""To read a file and nothing else: no link is followed, and who writes to a pipe is not waited for."""


def stranger(about: os.stat_result) -> int | None:
  """Whose a file is, if neither this user's nor root's, who could change this process as well."""
  return about.st_uid if about.st_uid not in (os.geteuid(), 0) else None


def others_may_write(about: os.stat_result) -> str:
  """Why others than this user and root can have written to a file or folder; empty: they cannot."""
  if (owner := stranger(about)) is not None:
    return f"it belongs to the user {owner}"
  if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
    return f"others may write to it (mode {stat.S_IMODE(about.st_mode):04o})"
  return ""


def replace(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
  """Give a file the name of another, which is gone then; nobody sees neither. Raises OSError."""
  os.replace(source, target)


# *** other processes ***

APART: dict[str, Any] = {"start_new_session": True}
"""For `subprocess.Popen`: a process that keys of the terminal do not reach, with a group of its own."""
FORKS = sys.platform == "linux"
"""Whether a copy of a process can go on: elsewhere system libraries may refuse to work in one."""


class Forked:
  """A copy of this process that does something, with what `subprocess.Popen` has of it. Only for a process without
  other threads: no other process begins in a millisecond."""

  def __init__(self, work: Callable[[], None], output: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    self.pid = os.fork()
    if self.pid:
      return
    status = 1
    try:
      os.setsid()
      nothing = os.open(os.devnull, os.O_RDONLY)
      for descriptor, place in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, place)
      work()
      status = 0
    finally:
      os._exit(status)

  def poll(self) -> int | None:
    """The exit status, or minus the signal; None while it runs."""
    pid, status = os.waitpid(self.pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


def forked(work: Callable[[], None], output: int) -> Forked:
  """A copy of this process that calls `work` and ends; what it prints goes to the file `output`."""
  return Forked(work, output)


def end_with_children(process: Popen[bytes] | Forked) -> None:
  """End a process that was started APART or forked, and what it has started itself."""
  import signal  # late: few programs come here

  with suppress(ProcessLookupError):
    os.killpg(process.pid, signal.SIGKILL)


def how_ended(code: int) -> str:
  """By what a process with this status was ended: `SIGSEGV`; empty if it ended by itself."""
  import signal

  return signal.Signals(-code).name if code < 0 else ""


# *** what this process uses ***


def resident_bytes() -> int | None:
  """Bytes of memory that this process has, or the most it had; None where the system does not say."""
  for line in _lines("/proc/self/smaps_rollup"):
    if line.startswith("Rss:"):
      return 1024 * int(line.split()[1])
  for line in _lines("/proc/self/statm"):
    return int(line.split()[1]) * mmap.PAGESIZE
  import resource

  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def allocated_bytes() -> int | None:
  """Bytes that `malloc` gave out and nobody gave back (glibc 2.33 tells); None where that is unknown."""
  import ctypes

  class Mallinfo(ctypes.Structure):
    _fields_ = tuple(
      (name, ctypes.c_size_t)
      for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )

  if not (ask := symbol("mallinfo2")):
    return None
  found = ctypes.CFUNCTYPE(Mallinfo)(ask)()
  return int(found.uordblks + found.hblkhd)


def open_files() -> int | None:
  """How many files this process has open; None where that is unknown."""
  folder = next((folder for folder in ("/proc/self/fd", "/dev/fd") if os.path.isdir(folder)), None)
  return len(os.listdir(folder)) if folder is not None else None


def thread_count() -> int:
  """Threads of this process; where the system does not say, those of Python."""
  import threading

  return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()


def _lines(path: str) -> list[str]:
  try:
    with open(path) as file:
      return file.read().splitlines()
  except OSError:
    return []
