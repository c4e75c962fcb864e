"""AMX permission: a process may use the matrix registers only after it has asked the system for them.

The registers of AMX are 8 KiB that the system saves for each thread that uses them. Linux lets a process use them once
it has asked (arch_prctl, ARCH_REQ_XCOMP_PERM; "Using XSTATE features in user space applications" in the kernel's
documentation); without, the first such instruction ends it. Threads that exist by then have the permission as well, and
so have children.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18
_TILES = "amx-"


def permitted(features: str) -> str:
  """Features in LLVM's form, without those that this process is not allowed to use. Asks for them, if there are any to
  ask for."""
  return features if f"+{_TILES}" not in features or ask_for_tiles() else without_tiles(features)


def without_tiles(features: str) -> str:
  """Features without AMX: `+amx-tile` becomes `-amx-tile`."""
  return features.replace(f"+{_TILES}", f"-{_TILES}")


@cache
def ask_for_tiles() -> bool:
  """Ask Linux for AMX's registers. False where it refuses, or is another system."""
  if not sys.platform.startswith("linux"):
    return False
  try:
    system_call = ctypes.CDLL(None).syscall
    system_call.restype = ctypes.c_long
    asked = [ctypes.c_long(n) for n in (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)]
    return bool(system_call(*asked) == 0)
  except (OSError, AttributeError):
    return False
