"""Native memory: what LLVM takes for a kernel it gives back with it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import pytest

from tiny_runtime.llvm import compile_object
from tiny_runtime_cpu.host import host_arch
from tiny_runtime_cpu.jit_linker import OBJECTS_PER_JIT, JitLinked
from tiny_runtime_cpu.machine import PASSES

STATM = Path("/proc/self/statm")


def source(number: int) -> str:
  """A function of a hundred products whose constants no other one has."""
  products = "\n".join(f"  %x{k + 1} = fmul float %x{k}, {number + k + 2}.0" for k in range(100))
  return f"define float @f{number}(float %x0) {{\n{products}\n  ret float %x100\n}}"


def build(number: int) -> JitLinked:
  return JitLinked(compile_object(source(number), host_arch().processor, PASSES), f"f{number}")


@pytest.mark.skipif(not STATM.exists(), reason="resident memory is read from /proc")
def test_compiling_and_loading_gives_all_memory_back() -> None:
  def resident() -> int:
    gc.collect()
    return int(STATM.read_text().split()[1]) * 4096

  for number in range(100):
    build(number)
  start = resident()
  for number in range(100, 500):
    build(number)
  assert resident() - start < 1.5e6, "LLVM used to keep 12 KB of every kernel, 5 MB here"


def test_objects_of_many_jits_live_side_by_side() -> None:
  count = 2 * OBJECTS_PER_JIT + 2
  made = {n: JitLinked(compile_object(f"define i32 @g{n}() {{ ret i32 {n} }}", host_arch().processor), f"g{n}")
          for n in range(count)}  # fmt: skip
  for n in range(0, count, 2):
    del made[n]
  gc.collect()
  for n, loaded in made.items():
    assert ctypes.CFUNCTYPE(ctypes.c_int)(loaded.address(f"g{n}"))() == n
