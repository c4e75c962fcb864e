"""Machine code of Windows' calling convention, called as Windows would call it, by code that LLVM makes for that."""

from __future__ import annotations

import ctypes
import mmap

import pytest

from tiny_runtime import system
from tiny_runtime.llvm import compile_object
from tiny_runtime.llvm.identity import cpuid
from tiny_runtime.system import windows
from tiny_runtime_cpu.host import host_arch
from tiny_runtime_cpu.machine import LoadedObject

pytestmark = pytest.mark.skipif(system.machine() != "x86_64", reason="code of x86-64")

CALLER = """
define void @ask(ptr %code, ptr %out, i32 %leaf, i32 %part) {
  call win64cc void %code(ptr %out, i32 %leaf, i32 %part)
  ret void
}
"""


def test_the_processor_says_the_same_by_windows_code() -> None:
  caller = LoadedObject(compile_object(CALLER, host_arch().processor), "ask")
  page = system.new_pages(mmap.PAGESIZE)
  page[: len(windows.CPUID)] = windows.CPUID
  system.make_executable(page, mmap.PAGESIZE)
  p, i = ctypes.c_void_p, ctypes.c_uint32
  ask = ctypes.CFUNCTYPE(None, p, p, i, i)(caller.address("ask"))
  told = {part.split(":")[0]: part.split(":")[1] for part in cpuid().split() if ":" in part}
  for name in ("0.0", "7.0", "7.1", "80000001.0"):
    if name not in told:  # a processor that has no such leaf
      continue
    leaf, part = name.split(".")
    words = (i * 4)()
    ask(system.address_of(page), ctypes.addressof(words), int(leaf, 16), int(part))
    assert ",".join(f"{word:x}" for word in words) == told[name]
  assert "0.0" in told
