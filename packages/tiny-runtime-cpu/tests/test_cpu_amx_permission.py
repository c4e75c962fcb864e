"""Registers that a process may use once it has asked for them."""

from __future__ import annotations

import ctypes
import threading

import pytest

from tiny_runtime.llvm import compile_object, host_processor
from tiny_runtime_cpu.compiler import CPUCompiler
from tiny_runtime_cpu.host import Arch, host_arch
from tiny_runtime_cpu.machine import LoadedObject
from tiny_runtime_cpu.system.amx_permission import ask_for_tiles, permitted, without_tiles

SETTING = "\\01" + "\\00" * 15 + "\\40\\00" * 8 + "\\00" * 16 + "\\10" * 8 + "\\00" * 8
ZERO = f"""
@setting = private constant [64 x i8] c"{SETTING}", align 64
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @llvm.x86.tilerelease()
define void @zero(ptr %to) {{
  call void @llvm.x86.ldtilecfg(ptr @setting)
  call void @llvm.x86.tilezero(i8 0)
  call void @llvm.x86.tilestored64(i8 0, ptr %to, i64 64)
  call void @llvm.x86.tilerelease()
  ret void
}}
"""


def test_features_of_tiles_and_no_others_are_taken_away() -> None:
  assert without_tiles("+avx2,+amx-tile,-amx-fp16,+amx-int8,+bmi") == "+avx2,-amx-tile,-amx-fp16,-amx-int8,+bmi"


def test_a_processor_without_tiles_has_the_features_that_it_has() -> None:
  assert permitted("+avx2,-amx-tile") == "+avx2,-amx-tile"


def test_kernels_for_a_machine_that_refuses_are_other_kernels() -> None:
  arch = Arch("x86_64-unknown-linux-gnu", "sapphirerapids", "+avx512f,+amx-tile,+amx-int8")
  refused = Arch(arch.triple, arch.cpu, without_tiles(arch.features))
  assert CPUCompiler(arch).key != CPUCompiler(refused).key


def test_what_the_arch_has_all_threads_may_use() -> None:
  if "+amx-tile" not in host_processor().features.split(",") or not ask_for_tiles():
    assert not host_arch().has("amx-tile")
    pytest.skip("this processor has no AMX, or the system does not allow it")
  assert host_arch().has("amx-tile")
  zero = LoadedObject(compile_object(ZERO, host_arch().processor), "zero")
  found = []

  def run() -> None:
    memory = (ctypes.c_uint8 * 1024)(*[7] * 1024)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(zero.address("zero"))(ctypes.addressof(memory))
    found.append(bytes(memory))

  threads = [threading.Thread(target=run) for _ in range(2)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert found == [bytes(1024)] * 2
