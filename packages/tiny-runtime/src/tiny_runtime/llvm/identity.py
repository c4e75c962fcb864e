"""What a processor says of itself to the process that asks.

`/proc/cpuinfo` may be of another processor than the one that runs the process: of the host's, under an emulator of user
programs (qemu-user).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

HWCAPS = (16, 26, 29, 30)
"""AT_HWCAP, AT_HWCAP2, AT_HWCAP3, AT_HWCAP4 of getauxval(3): the features of processors other than x86-64."""
LEAVES = ((0, 0), (1, 0), (7, 0), (7, 1), (7, 2), (13, 1), (0x80000001, 0), (0x80000008, 0))
"""Leaves of CPUID that tell vendor, model and features (Intel's manual, volume 2A)."""
BASIC = 0x80000000
OSXSAVE = 1 << 27

_CPUID = bytes.fromhex("53 4989f8 89f0 89d1 0fa2 418900 41895804 41894808 4189500c 5b c3")
"""`void cpuid(uint32_t out[4], uint32_t leaf, uint32_t subleaf)` of the System V calling convention."""
_XGETBV = bytes.fromhex("31c9 0f01d0 48c1e220 4809d0 c3")
"""`uint64_t xgetbv(void)`: the registers that the system saves, and so lets programs use."""


def identity() -> str:
  """What tells processors apart that code is compiled for; empty where the system does not let a process ask."""
  if not sys.platform.startswith("linux"):
    return ""
  try:
    return _cpuid() if os.uname().machine in ("x86_64", "amd64") else _hwcaps()
  except (OSError, AttributeError, ValueError):
    return ""


def _hwcaps() -> str:
  ask = ctypes.CDLL(None).getauxval
  ask.restype, ask.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
  return " ".join(f"{ask(kind):x}" for kind in HWCAPS)


def _cpuid() -> str:
  page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
  page[: len(_CPUID)] = _CPUID
  page[64 : 64 + len(_XGETBV)] = _XGETBV
  held = ctypes.c_char.from_buffer(page)
  address = ctypes.addressof(held)
  protect = ctypes.CDLL(None, use_errno=True).mprotect
  if protect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_EXEC):
    raise OSError(ctypes.get_errno(), "mprotect")
  words = (ctypes.c_uint32 * 4)()
  cpuid = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)(address)

  def ask(leaf: int, part: int) -> tuple[int, int, int, int]:
    cpuid(ctypes.addressof(words), leaf, part)
    return words[0], words[1], words[2], words[3]

  most = {0: ask(0, 0)[0], BASIC: ask(BASIC, 0)[0]}
  told = []
  for leaf, part in LEAVES:
    if leaf > most[leaf & BASIC]:
      continue
    eax, ebx, ecx, edx = ask(leaf, part)
    if leaf in (1, 13):
      ebx = 0  # the number of the processor that is asked; the size of what is saved of this process
    if leaf == 1 and ecx & OSXSAVE:
      told.append(f"{ctypes.CFUNCTYPE(ctypes.c_uint64)(address + 64)():x}")
    told.append(f"{leaf:x}.{part}:{eax:x},{ebx:x},{ecx:x},{edx:x}")
  del held
  return " ".join(told)
