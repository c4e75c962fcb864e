"""The pool over Windows' threads: as an object file for Windows, on this system over functions that stand for
Windows', and, in `nightly`, under Wine."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiny_runtime.llvm import compile_object
from tiny_runtime_cpu import pool
from tiny_runtime_cpu.host import Arch, host_arch
from tiny_runtime_cpu.pool import Functions, Pool, needed, pool_source

HERE = Path(__file__).parent
WINDOWS = Arch("x86_64-pc-windows-msvc", "x86-64-v3", "", "", 0, 0)
ARM = Arch("aarch64-pc-windows-msvc", "generic", "", "", 0, 0)
SYMBOL = struct.Struct("<8sIhHBB")
COMPILER = shutil.which("gcc") or shutil.which("cc")


def wanted_symbols(data: bytes) -> set[str]:
  """The names that a COFF object wants of others (PE Format, "COFF Symbol Table")."""
  place, count = struct.unpack_from("<II", data, 8)
  names = data[place + count * SYMBOL.size :]
  found, n = set(), 0
  while n < count:
    name, value, section, _, storage, more = SYMBOL.unpack_from(data, place + n * SYMBOL.size)
    if storage == 2 and section == 0 and value == 0:
      long = names[int.from_bytes(name[4:], "little") :].partition(b"\0")[0] if name[:4] == bytes(4) else name
      found.add(long.rstrip(b"\0").decode())
    n += 1 + more
  return found


@pytest.mark.parametrize(("arch", "machine"), [(WINDOWS, 0x8664), (ARM, 0xAA64)], ids=["x86_64", "aarch64"])
def test_the_pool_is_an_object_for_windows(arch: Arch, machine: int) -> None:
  data = compile_object(pool_source(arch), arch.processor, level=0)
  assert struct.unpack_from("<H", data)[0] == machine
  assert wanted_symbols(data) == set(needed(arch)), "and of nothing else, POSIX's least of all"


@pytest.fixture
def over_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ctypes.CDLL]:
  """Windows' functions, which pools use meanwhile."""
  if COMPILER is None or os.name != "posix":
    pytest.skip("the functions that stand for Windows' need a C compiler, and POSIX threads")
  made_for = subprocess.run([COMPILER, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
  if Arch(made_for, "", "").family != host_arch().family:
    pytest.skip(f"the C compiler is for another processor, {made_for.strip()}")
  library = tmp_path / "windows.so"
  subprocess.run(
    [COMPILER, "-O1", "-shared", "-fPIC", "-pthread", "-o", library, HERE / "windows_threads.c"], check=True
  )
  loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
  monkeypatch.setattr(pool, "is_windows", lambda _: True)
  functions = Functions()
  monkeypatch.setattr(pool, "native_functions", lambda: functions)
  monkeypatch.setattr("tiny_runtime_cpu.system.places_threads", lambda: False)  # handles are no pthread_t
  yield loaded


KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
                          ctypes.c_void_p)  # fmt: skip


def test_launches_over_windows_functions(over_windows: ctypes.CDLL) -> None:
  """Each part is done once, by whatever thread; sleeping workers wake up; threads end and are closed."""
  done: list[tuple[int, int, int]] = []
  waits = threading.Barrier(2, timeout=20)

  def note(_a: int, _b: int, begin: int, end: int, _claim: int, _pool: int) -> None:
    done.append((begin, end, threading.get_native_id()))

  def meet(_a: int, _b: int, begin: int, end: int, _claim: int, _pool: int) -> None:
    done.append((begin, end, threading.get_native_id()))
    waits.wait()  # needs another thread

  kernels = [KERNEL(note), KERNEL(meet)]
  addresses = [ctypes.cast(k, ctypes.c_void_p).value or 0 for k in kernels]
  threads = Pool()
  try:
    assert threads.ensure(4) == 4
    for extent, chunks in ((1, 1), (7, 3), (100, 16), (5, 8)):
      done.clear()
      threads.run(addresses[0], b"", b"", extent, min(chunks, extent), 4)
      assert sorted(n for begin, end, _ in done for n in range(begin, end)) == [*range(extent)]
    for _ in range(5):
      done.clear()
      threads.run(addresses[1], b"", b"", 2, 2, 2)
      assert len({thread for *_, thread in done}) == 2
  finally:
    threads.close()
  assert ctypes.c_int.in_dll(over_windows, "handles_closed").value == 3


@pytest.mark.nightly
def test_the_pool_under_wine(tmp_path: Path) -> None:
  """On what takes the place of Windows' own functions in Wine: Debian's wine64 and gcc-mingw-w64-x86-64."""
  wine = shutil.which("wine64") or shutil.which("wine64", path="/usr/lib/wine")
  mingw = shutil.which("x86_64-w64-mingw32-gcc")
  if wine is None or mingw is None:
    pytest.skip("needs wine64 and gcc-mingw-w64-x86-64")
  (tmp_path / "pool.obj").write_bytes(compile_object(pool_source(WINDOWS), WINDOWS.processor, level=0))
  program = tmp_path / "pool.exe"
  subprocess.run([mingw, "-O1", "-o", program, HERE / "windows_pool.c", tmp_path / "pool.obj"], check=True)
  around = {**os.environ, "WINEPREFIX": str(tmp_path / "prefix"), "WINEDEBUG": "-all"}
  ran = subprocess.run([wine, program], env=around, capture_output=True, text=True, timeout=300, check=False)
  assert ran.returncode == 0 and ran.stdout.count("0 and 0 wrong") == 3, ran.stdout + ran.stderr
