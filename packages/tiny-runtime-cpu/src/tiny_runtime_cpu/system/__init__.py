"""What this package alone asks of the operating system: caches, AMX, control groups and, here, threads. What others
ask, too, is in `tiny_runtime.system`."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Set
from functools import cache

OBJECTS_ARE_ELF = sys.platform == "linux"
"""Whether LLVM writes object files of that format for this system."""
SET_MASK = 3 if sys.platform == "darwin" else 2
"""SIG_SETMASK of pthread_sigmask(3)."""
MONOTONIC_CLOCK: int = getattr(time, "CLOCK_MONOTONIC", 0)
"""The clock of `time.monotonic`, as clock_gettime(2) calls it."""
MOST_PROCESSORS = 1024
"""Bits of a cpu_set_t."""
PR_SVE_GET_VL, SVE_VL_BYTES = 51, 0xFFFF
"""prctl(2): bytes of a register of SVE are in the low bits of what it gives."""
_NEEDED = ("sched_getcpu", "pthread_setaffinity_np")

if sys.platform == "linux":

  @cache
  def _process() -> ctypes.PyDLL | None:
    """The C library, called without letting go of the GIL."""
    process = ctypes.PyDLL(None)
    return process if all(hasattr(process, name) for name in _NEEDED) else None

  def places_threads() -> bool:
    """Whether the functions below do what they say."""
    return _process() is not None

  def scalable_bits() -> int:
    """Bits of a register of SVE, which the threads of a process share; 0 where Linux tells of none."""
    found = ctypes.CDLL(None).prctl(PR_SVE_GET_VL, 0, 0, 0, 0)
    return (found & SVE_VL_BYTES) * 8 if found > 0 else 0

  def allowed_processors() -> set[int]:
    """The numbers of those that this thread may use."""
    return os.sched_getaffinity(0)

  def processor_here() -> int:
    """The processor that this thread runs on."""
    process = _process()
    return int(process.sched_getcpu()) if process is not None else -1

  def confine(thread: int, processors: Set[int]) -> None:
    """Let the thread with this `pthread_t` run on these processors only. Where the system refuses, it runs where it
    did."""
    bits = sum(1 << processor for processor in processors).to_bytes(MOST_PROCESSORS // 8, "little")
    if (process := _process()) is not None:
      process.pthread_setaffinity_np(ctypes.c_void_p(thread), ctypes.c_size_t(len(bits)), bits)

else:

  def places_threads() -> bool:
    """Whether the functions below do what they say."""
    return False

  def scalable_bits() -> int:
    """Bits of a register of SVE: unknown."""
    return 0

  def allowed_processors() -> set[int]:
    """The numbers of those that this thread may use: unknown."""
    return set()

  def processor_here() -> int:
    """The processor that this thread runs on: unknown."""
    return -1

  def confine(thread: int, processors: Set[int]) -> None:
    """For Linux: threads run where they do."""
