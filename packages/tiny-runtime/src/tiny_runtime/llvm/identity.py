"""What a processor says of itself to the process that asks.

`/proc/cpuinfo` may be of another processor than the one that runs the process: of the host's, under an emulator of user
programs (qemu-user).
"""

from __future__ import annotations

import ctypes
import mmap

from tiny_runtime import system

LEAVES = ((0, 0), (1, 0), (7, 0), (7, 1), (7, 2), (13, 1), (0x80000001, 0), (0x80000008, 0))
"""Leaves of CPUID that tell vendor, model and features (Intel's manual, volume 2A)."""
BASIC = 0x80000000
OSXSAVE = 1 << 27

_XGETBV = bytes.fromhex("31c9 0f01d0 48c1e220 4809d0 c3")
"""`uint64_t xgetbv(void)`: the registers that the system saves, and so lets programs use."""


def identity() -> str:
  """What tells processors apart that code is compiled for; empty where the system does not let a process ask."""
  try:
    return cpuid() if system.machine() == "x86_64" else system.features()
  except (OSError, AttributeError, ValueError):
    return ""


def cpuid() -> str:
  """The answers of an x86-64 processor, `leaf.part:eax,ebx,ecx,edx` each. Raises OSError where code cannot be made."""
  page = system.new_pages(mmap.PAGESIZE)
  address = system.address_of(page)
  page[: len(system.CPUID)] = system.CPUID
  page[64 : 64 + len(_XGETBV)] = _XGETBV
  system.make_executable(page, mmap.PAGESIZE)
  words = (ctypes.c_uint32 * 4)()
  call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)(address)

  def ask(leaf: int, part: int) -> tuple[int, int, int, int]:
    call(ctypes.addressof(words), leaf, part)
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
  return " ".join(told)
