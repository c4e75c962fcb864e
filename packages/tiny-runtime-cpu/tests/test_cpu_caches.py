"""Cache sizes of a core, from what three operating systems tell; and what the compiler makes of them."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from tiny_runtime_cpu import CPUCompiler, host_arch
from tiny_runtime_cpu.compiler import renderer_for
from tiny_runtime_cpu.host import Arch
from tiny_runtime_cpu.system.caches import darwin_levels, host_caches, linux_levels, windows_levels

K, M = 1 << 10, 1 << 20


def sysfs(folder: Path, siblings: str, *levels: tuple[int, str, str, str]) -> Path:
  (folder / "cpu0/topology").mkdir(parents=True)
  (folder / "cpu0/topology/thread_siblings_list").write_text(f"{siblings}\n")
  for n, values in enumerate(levels):
    index = folder / f"cpu0/cache/index{n}"
    index.mkdir(parents=True)
    for name, value in zip(("level", "type", "size", "shared_cpu_list"), values):
      (index / name).write_text(f"{value}\n")
  return folder


def test_linux(tmp_path: Path) -> None:
  server = sysfs(
    tmp_path / "server", "0,8", (1, "Data", "48K", "0,8"), (1, "Instruction", "32K", "0,8"),
    (2, "Unified", "2M", "0,8"), (3, "Unified", "32768K", "0-15"),
  )  # fmt: skip
  assert linux_levels(server) == {1: 48 * K, 2: 2 * M, 3: 4 * M}  # eight cores of two threads
  phone = sysfs(tmp_path / "phone", "0", (1, "Data", "32K", "0"), (2, "Unified", "1024K", "0-3"))
  assert linux_levels(phone) == {1: 32 * K, 2: 256 * K}
  with pytest.raises(OSError, match="thread_siblings_list"):
    linux_levels(tmp_path)


def test_macos() -> None:
  apple = {
    "hw.perflevel0.l1dcachesize": 128 * K, "hw.perflevel0.l2cachesize": 12 * M, "hw.perflevel0.cpusperl2": 4,
    "hw.l1dcachesize": 64 * K,
  }  # fmt: skip
  assert darwin_levels(lambda name: apple.get(name, 0)) == {1: 128 * K, 2: 3 * M, 3: 0}
  intel = {"hw.l1dcachesize": 32 * K, "hw.l2cachesize": 256 * K, "hw.l3cachesize": 12 * M, "hw.physicalcpu": 6}
  assert darwin_levels(lambda name: intel.get(name, 0)) == {1: 32 * K, 2: 256 * K, 3: 2 * M}


def record(relation: int, body: bytes) -> bytes:
  return struct.pack("<II", relation, 8 + len(body)) + body


def core(mask: int) -> bytes:
  return record(0, bytes(22) + struct.pack("<HQH6x", 1, mask, 0))


def cached(level: int, kind: int, size: int, mask: int) -> bytes:
  return record(2, struct.pack("<BBHII18xHQH6x", level, 8, 64, size, kind, 1, mask, 0))


def test_windows() -> None:
  cores = core(0b0011) + core(0b1100)
  first = cached(1, 2, 48 * K, 0b0011) + cached(1, 1, 32 * K, 0b0011) + cached(2, 0, 2 * M, 0b0011)
  second = cached(1, 2, 32 * K, 0b1100) + cached(2, 0, 1 * M, 0b1100)
  records = record(1, bytes(40)) + second + first + cached(3, 0, 24 * M, 0b1111) + cores
  assert windows_levels(records) == {1: 48 * K, 2: 2 * M, 3: 12 * M}
  with pytest.raises(ValueError, match="record of 0 bytes"):
    windows_levels(bytes(8))


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
  for platform in ("linux", "plan9"):
    host_caches.cache_clear()
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(linux_levels, "__defaults__", (tmp_path,))
    assert host_caches() == ""
  host_caches.cache_clear()


def test_the_arch_carries_them() -> None:
  arch = Arch.parse("x86_64-unknown-linux-gnu:x86-64-v3:+avx2:32K,512K,4M")
  assert arch.caches == "32K,512K,4M" and Arch.parse(str(arch)) == arch
  assert Arch.parse("x86_64-unknown-linux-gnu:x86-64-v3:+avx2").caches == ""
  assert host_arch().caches in CPUCompiler(host_arch()).key
  known = renderer_for(arch).target.caches
  assert (known.first, known.second, known.last) == (32 * K, 512 * K, 4 * M)
  with pytest.raises(ValueError, match="triple:cpu:features:caches"):
    Arch.parse("x86_64-linux:::32K,1M:more")
