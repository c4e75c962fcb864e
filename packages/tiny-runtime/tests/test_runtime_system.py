"""What the package asks of the operating system it runs on; of Windows' half here what needs no Windows."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tiny_runtime import system
from tiny_runtime.system import windows


def test_pages_are_zeroed_and_stay_while_there_is_a_view() -> None:
  pages = system.new_pages(2 * mmap.PAGESIZE, huge=True)
  assert len(pages) == 2 * mmap.PAGESIZE and system.address_of(pages) % mmap.PAGESIZE == 0
  assert bytes(pages) == bytes(len(pages))
  part = pages[mmap.PAGESIZE :]
  part[:5] = b"words"
  address = system.address_of(pages)
  del pages
  gc.collect()
  assert ctypes.string_at(address + mmap.PAGESIZE, 5) == b"words"
  system.lend(part)
  assert bytes(part[:5]) in (b"words", bytes(5))


@pytest.mark.skipif(system.machine() != "x86_64", reason="code of x86-64")
def test_code_runs_in_pages_made_executable() -> None:
  pages = system.new_pages(mmap.PAGESIZE)
  pages[:6] = bytes.fromhex("b82a000000c3")  # mov eax, 42; ret
  system.make_executable(pages, mmap.PAGESIZE)
  assert ctypes.CFUNCTYPE(ctypes.c_int)(system.address_of(pages))() == 42
  del pages


def test_functions_of_the_process() -> None:
  copy = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(system.symbol("memmove"))
  source, target = ctypes.create_string_buffer(b"some bytes"), ctypes.create_string_buffer(11)
  copy(ctypes.addressof(target), ctypes.addressof(source), 11)
  assert target.raw == source.raw
  assert system.symbol("no_such_function_anywhere") == 0


def test_the_machine() -> None:
  assert system.machine() in ("x86_64", "aarch64", "arm64") and system.release()
  assert 1 <= system.processors() <= (os.cpu_count() or 1)
  assert system.memory_bytes() > 1 << 28


def test_what_a_process_uses(tmp_path: Path) -> None:
  before, files, threads = system.resident_bytes(), system.open_files(), system.thread_count()
  assert before is not None and before > 1 << 20
  end = threading.Event()
  thread = threading.Thread(target=end.wait, args=(60,))
  thread.start()
  with (tmp_path / "file").open("w"):
    now = system.open_files()
    assert files is None or (now is not None and now > files)
    assert system.thread_count() > threads
  end.set()
  thread.join(60)


def test_how_a_process_has_ended() -> None:
  crash = "import ctypes, faulthandler; faulthandler.disable(); ctypes.string_at(0)"
  codes = [subprocess.run([sys.executable, "-c", code], capture_output=True).returncode
           for code in ("raise SystemExit(3)", crash)]  # fmt: skip
  assert system.how_ended(0) == system.how_ended(codes[0]) == ""
  assert system.how_ended(codes[1]).startswith(("SIGSEGV", "SIGBUS", "an access violation"))


def test_a_process_apart_is_ended_with_what_it_started(tmp_path: Path) -> None:
  """The child of the process writes a time again and again, until it is ended."""
  child = "import sys, time\nwhile True: open(sys.argv[1], 'w').write(str(time.time())); time.sleep(0.01)"
  code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}, sys.argv[1]])"
  file = tmp_path / "time"
  process = subprocess.Popen([sys.executable, "-c", code, str(file)], **system.APART)
  for _ in range(3000):
    if file.exists():
      break
    time.sleep(0.01)
  assert file.exists()
  system.end_with_children(process)
  assert process.wait(60)
  time.sleep(0.1)
  last = file.read_text()
  time.sleep(0.3)
  assert file.read_text() == last


@pytest.mark.skipif(not system.FORKS, reason="this system has no copies of processes")
def test_a_copy_of_the_process(tmp_path: Path) -> None:
  code = """
import os, sys
from tiny_runtime import system
with open(sys.argv[1], "wb") as file:
  copy = system.forked(lambda: print("from the copy", flush=True), file.fileno())
while copy.poll() is None:
  pass
other = system.forked(lambda: [][1], os.open(os.devnull, os.O_WRONLY))
while (code := other.poll()) is None:
  pass
print(code)
"""
  done = subprocess.run(
    [sys.executable, "-c", code, str(tmp_path / "said")], capture_output=True, text=True, timeout=60
  )
  assert done.stdout == "1\n", done.stderr
  assert (tmp_path / "said").read_text() == "from the copy\n"


def test_a_file_takes_the_name_of_another(tmp_path: Path) -> None:
  for which in (system, windows):
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    which.replace(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "new" and not (tmp_path / "new").exists()
    with pytest.raises(FileNotFoundError):
      which.replace(tmp_path / "new", tmp_path / "old")


# *** of Windows, without it ***


def test_windows_waits_for_who_has_a_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  tried = 0
  real = os.replace

  def shared(source: Path, target: Path) -> None:
    nonlocal tried
    tried += 1
    if tried < 3:
      raise PermissionError(13, "The process cannot access the file because it is being used by another process")
    real(source, target)

  (tmp_path / "new").write_text("new")
  monkeypatch.setattr(os, "replace", shared)
  windows.replace(tmp_path / "new", tmp_path / "old")
  assert tried == 3 and (tmp_path / "old").read_text() == "new"
  tried = -1000000
  monkeypatch.setattr(windows, "SHARED_SECONDS", 0.02)
  with pytest.raises(PermissionError):
    windows.replace(tmp_path / "old", tmp_path / "other")


def test_windows_says_how_a_process_has_ended() -> None:
  assert [windows.how_ended(code) for code in (0, 1, 3)] == ["", "", ""]
  assert windows.how_ended(0xC0000005) == "an access violation (0xC0000005)"
  assert windows.how_ended(0xC0000005 - (1 << 32)) == "an access violation (0xC0000005)", "as a signed number"
  assert windows.how_ended(0xC0000420) == "status 0xC0000420"


def test_windows_structures_have_the_sizes_that_its_headers_give_them() -> None:
  """On 64 bits: MEMORYSTATUSEX and PROCESS_MEMORY_COUNTERS."""
  assert ctypes.sizeof(windows._Memory) == 64 and windows._Memory.ullTotalPhys.offset == 8
  assert ctypes.sizeof(windows._Counters) == 72 and windows._Counters.WorkingSetSize.offset == 16


def test_windows_names_of_architectures() -> None:
  assert [windows.machine(name) for name in ("win-amd64", "win-arm64")] == ["x86_64", "aarch64"]


def test_windows_has_owners_without_numbers(tmp_path: Path) -> None:
  assert windows.stranger(tmp_path.stat()) is None and windows.others_may_write(tmp_path.stat()) == ""


@pytest.mark.skipif(sys.platform == "win32", reason="it is Windows")
def test_elsewhere_windows_functions_say_so() -> None:
  for ask in (windows.memory_bytes, windows.processors, windows.features, lambda: windows.new_pages(4096)):
    with pytest.raises(OSError):
      ask()
  assert not windows.FORKS
  with pytest.raises(NotImplementedError):
    windows.forked(lambda: None, 1)
