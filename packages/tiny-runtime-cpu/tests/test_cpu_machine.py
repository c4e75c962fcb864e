"""Compiling LLVM IR and loading objects, and the arch string."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tiny_runtime import system
from tiny_runtime.llvm import Level, LLVMError, compile_assembly, compile_object
from tiny_runtime_cpu.compiler import renderer_for
from tiny_runtime_cpu.device import CPUDevice
from tiny_runtime_cpu.host import Arch, cpu_limit, host_arch, many, memory_bytes
from tiny_runtime_cpu.jit_linker import JitLinked
from tiny_runtime_cpu.linker import links_here
from tiny_runtime_cpu.machine import PASSES, LoadedObject, has_symbols
from tiny_runtime_cpu.system.control_groups import group_limits

ANSWER = "define i64 @answer() {\n  ret i64 42\n}\n"
SINE = (
  "declare double @sin(double)\ndefine double @f(double %x) {\n  %y = call double @sin(double %x)\n  ret double %y\n}\n"
)


@pytest.mark.parametrize("level", (0, 1, 2, 3, (), PASSES))
def test_compile_and_call(level: Level) -> None:
  loaded = LoadedObject(compile_object(ANSWER, host_arch().processor, level), "answer")
  assert ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address("answer"))() == 42


def test_functions_of_the_process_are_found() -> None:
  loaded = LoadedObject(compile_object(SINE, host_arch().processor), "f")
  assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded.address("f"))(0.0) == 0.0
  assert has_symbols("sin", "memcpy") and not has_symbols("sin", "no_such_function")


def test_assembly_names_the_function() -> None:
  assert "answer" in compile_assembly(ANSWER, host_arch().processor)


@pytest.mark.parametrize("text", ("not llvm", "define i64 @f() {\n ret i32 1\n}"))
def test_bad_text_is_an_error(text: str) -> None:
  with pytest.raises(LLVMError):
    compile_object(text, host_arch().processor)


def test_bad_objects_are_errors_and_loading_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
  unresolved = "declare void @no_such_function()\ndefine void @f() {\n  call void @no_such_function()\n  ret void\n}\n"
  for code, symbol in ((b"junk", "f"), (compile_object(ANSWER, host_arch().processor), "other")):
    with pytest.raises(LLVMError):
      LoadedObject(code, symbol)
  code = compile_object(unresolved, host_arch().processor)
  with pytest.raises(LLVMError):
    JitLinked(code, "f")
  assert "no_such_function" in capfd.readouterr().err  # LLVM says so there, and only there
  with pytest.raises(LLVMError, match="no_such_function" if links_here() else ""):
    LoadedObject(code, "f")
  test_compile_and_call(2)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_dropped_objects_give_their_memory_back() -> None:
  big = 'define ptr @f() {\n  ret ptr @data\n}\n@data = global [1048576 x i8] c"' + "x" * 1048576 + '"\n'
  code = compile_object(big, host_arch().processor, 0)

  def resident() -> int:
    with open("/proc/self/statm") as file:
      return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

  LoadedObject(code, "f")
  gc.collect()
  before = resident()
  for _ in range(50):
    LoadedObject(code, "f")
  gc.collect()
  assert resident() - before < 20 << 20


def test_arch_is_text_and_back() -> None:
  arch = host_arch()
  assert Arch.parse(str(arch)) == arch
  assert Arch.parse("arm64-apple-darwin:apple-m1").family == "aarch64"
  assert Arch("x86_64-linux", "", "+avx2,-fma").has("avx2") and not Arch("x86_64-linux", "", "-fma").has("fma")
  for sve in (Arch("aarch64-linux", "a64fx", "+sve", "", 0, 512), Arch("aarch64-linux", "a64fx", "+sve", "", 64, 512)):
    assert Arch.parse(str(sve)) == sve
  divided = replace(arch, threads=64)
  assert Arch.parse(str(divided)) == divided
  fixed = replace(divided, scalable_bits=0)
  assert str(fixed).removesuffix(":64") == str(replace(fixed, threads=0))
  for wrong in ("", "x86_64:::16M:many"):
    with pytest.raises(ValueError, match="not a CPU arch"):
      Arch.parse(wrong)


def test_machines_with_about_as_many_processors_have_the_same_kernels() -> None:
  assert [many(count) for count in (1, 2, 4, 5, 8, 12, 64, 100)] == [0, 0, 0, 8, 8, 16, 64, 128]


@pytest.mark.parametrize(
  "text", ("x86_64-linux:znver4:+fma,+avx2", "x86_64-linux:x86-64:+sse2,-fma", "aarch64-linux", "arm64-apple-darwin")
)
def test_what_fuses_is_what_the_code_generator_fuses_for(text: str) -> None:
  arch = Arch.parse(text)
  assert arch.fuses == renderer_for(arch).target.has_fma
  assert CPUDevice().info.capabilities.fused_multiply_add == renderer_for(host_arch()).target.has_fma


def test_limits_are_sane() -> None:
  assert 1 <= cpu_limit() <= (os.cpu_count() or 1)
  assert memory_bytes() > 1 << 28


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
def test_thread_count_follows_affinity_and_setting() -> None:
  code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
  code += "from tiny_runtime_cpu.settings import thread_count; print(thread_count())"
  paths = os.pathsep.join(p for p in sys.path if p)
  for setting, expected in (("", "1"), ("3", "3")):
    env = {**os.environ, "PYTHONPATH": paths, "CPU_COUNT": setting}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_kernels_are_linked_without_a_compiler_on_the_path() -> None:
  code = "from tiny_runtime.llvm import *; from tiny_runtime_cpu.machine import *; "
  code += "from tiny_runtime_cpu.host import host_arch\n"
  code += f"print(LoadedObject(compile_object({ANSWER!r}, host_arch().processor), 'answer').address('answer') > 0)"
  env = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PATH": ""}
  done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
  assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize(
  ("own", "files", "cpus", "memory"),
  [
    ("0::/", {"cpu.max": "150000 50000", "memory.max": "max"}, [(150000, 50000)], []),
    ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, [(200000, 100000)], []),
    # a container that sees its host's path
    ("0::/docker/f00", {"cpu.max": "100000 100000", "memory.max": "4096"}, [(100000, 100000)], [(4096,)]),
    (
      "4:memory:/x\n2:cpu,cpuacct:/y\n0::/",
      {
        "cpu,cpuacct/y/cpu.cfs_quota_us": "-1", "cpu,cpuacct/y/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/cpu.cfs_quota_us": "300000", "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "memory/x/memory.limit_in_bytes": "8192",
      },
      [(300000, 100000)], [(8192,)],
    ),
    ("nothing", {}, [], []),
  ],
)  # fmt: skip
def test_limits_of_control_groups(
  tmp_path: Path, own: str, files: dict[str, str], cpus: list[tuple[int, ...]], memory: list[tuple[int, ...]]
) -> None:
  (tmp_path / "proc/self").mkdir(parents=True)
  if own != "nothing":
    (tmp_path / "proc/self/cgroup").write_text(own + "\n")
  for name, text in files.items():
    file = tmp_path / "sys/fs/cgroup" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")
  quotas = [("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
  assert [found for names in quotas for found in group_limits(*names, root=tmp_path)] == cpus
  limits = ("memory.max", "memory.limit_in_bytes")
  assert [found for name in limits for found in group_limits(name, root=tmp_path)] == memory


@pytest.mark.nightly
@pytest.mark.skipif(system.processors() < 2, reason="one processor is no less than a quota allows")
def test_a_process_in_a_control_group_of_this_machine() -> None:
  """One with a quota of a processor and a half, where the system lets this process make one."""
  group = Path(f"/sys/fs/cgroup/cpu/tiny-runtime-cpu-{os.getpid()}")
  try:
    group.mkdir()
  except OSError as error:
    pytest.skip(f"no control group of version 1 can be made here: {error}")
  try:
    (group / "cpu.cfs_period_us").write_text("100000")
    (group / "cpu.cfs_quota_us").write_text("150000")
    code = "from tiny_runtime_cpu.host import cpu_limit; print(cpu_limit())"
    command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr
  finally:
    group.rmdir()
