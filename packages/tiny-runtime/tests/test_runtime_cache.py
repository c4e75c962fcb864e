"""The caches of compiled kernels: hits, keys, damage, killed and concurrent processes."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tiny_runtime import Binary, private_files
from tiny_runtime.compile_cache import (
  cache_folder,
  cached_bytes,
  compile_cached,
  entry_path,
  read_entry,
)
from tiny_runtime.contract import Measure
from tiny_runtime.plugins.versions import fingerprint
from tiny_runtime.private_files import STALE_SECONDS
from tiny_runtime.ref import BACKEND
from tiny_uop import Context, KernelInfo, UOp, dtypes


def kernel(amount: float, name: str = "add") -> UOp:
  out, source = (UOp.param(n, dtypes.float32.ptr(4)) for n in range(2))
  i = UOp.range(4, 0)
  return UOp.sink(out.index(i).store(source.index(i).load() + amount).end(i), arg=KernelInfo(name))


class Counting:
  """The reference compiler, counting."""

  def __init__(self, key: str = "counting") -> None:
    self.key = key
    self.compiled = 0
    self.inner = BACKEND.compiler("python")

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    self.compiled += 1
    return self.inner.compile(kernel, measure)


def entries(folder: Path) -> list[Path]:
  return sorted(path for path in folder.rglob("*") if path.is_file())


def test_binary_survives_serialisation() -> None:
  n = UOp.variable("n", 1, 9)
  binary = BACKEND.compiler("python").compile(kernel(1.0))
  binary = Binary(
    b"\x00\n\xff code", "naïve\n", (n * 2, n), (n + 1,), binary.params, ("n",), n * 3, n * 4, "line 1\nline 2 é"
  )
  assert Binary.from_bytes(binary.to_bytes()) == binary
  again = Binary.from_bytes(binary.to_bytes())
  assert again.global_size[0] is n * 2
  for copied in (pickle.loads(pickle.dumps(again)), replace(again, entry="naïve\n")):
    assert copied == binary and hash(copied) == hash(binary) and copied.source == "line 1\nline 2 é"


def test_the_text_of_a_kernel_from_disk_stays_compressed() -> None:
  binary = replace(BACKEND.compiler("python").compile(kernel(1.0)), source="a line of text\n" * 10000)
  again = Binary.from_bytes(binary.to_bytes())
  assert len(binary.to_bytes()) < 10000 and again == binary
  assert sum(map(sys.getsizeof, vars(again).values())) < 20000


@pytest.mark.parametrize("data", [b"", b"{}", b"{}\n", b"[]\n", b"nonsense\n", b'{"entry": 1}\ncode', b"\xff\n"])
def test_bad_serialisation(data: bytes) -> None:
  with pytest.raises(ValueError, match="not a serialised Binary|Expecting|codec"):
    Binary.from_bytes(data)


def test_memory_and_disk(own_cache: Path) -> None:
  first, second = Counting(), Counting()
  binary = compile_cached(kernel(1.0), first)
  k = kernel(1.5)
  binary = compile_cached(k, first)
  assert compile_cached(k, first) is binary and first.compiled == 2
  assert len(entries(own_cache)) == 2
  # the kernel of 1.0 is gone from memory with its node; another compiler of the same key finds it on disk
  assert compile_cached(kernel(1.0), second).source and second.compiled == 0


def test_key_covers_all_that_the_result_depends_on(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  k, compiler = kernel(1.0), Counting()
  compile_cached(k, compiler)
  compile_cached(k, Counting("other target"))
  for setting in ({"NOOPT": 1}, {"BEAM": 4}):
    with Context(**setting):
      compile_cached(k, compiler)
  compile_cached(kernel(2.0), compiler)
  compile_cached(k, compiler, "pytest 1.0")
  assert compiler.compiled == 5 and len(entries(own_cache)) == 6
  monkeypatch.setattr("tiny_runtime.compile_cache.fingerprint", lambda plugin: "tiny-uop==9.9")
  compile_cached(k, compiler)
  assert compiler.compiled == 6


def test_printing_is_not_part_of_the_key(own_cache: Path) -> None:
  k, compiler = kernel(4.0), Counting()
  for debug in (0, 1, 2):
    with Context(DEBUG=debug):
      compile_cached(k, compiler)
  assert compiler.compiled == 1
  with Context(DEBUG=3):  # what the compiler prints is wanted, so the entry on disk is not used
    compile_cached(kernel(4.0), compiler := Counting())
    assert compiler.compiled == 0  # but one in memory is
    del k
    compile_cached(kernel(4.0), compiler)
  assert compiler.compiled == 1


def test_a_kernel_that_was_not_checked_is_compiled_again_to_be_checked(own_cache: Path) -> None:
  k, compiler = kernel(5.0), Counting()
  for spec in (0, 2, 0, 2):
    with Context(SPEC=spec):
      compile_cached(k, compiler)
  assert compiler.compiled == 2


def test_cache_levels(own_cache: Path) -> None:
  k, compiler = kernel(3.0), Counting()
  with Context(CACHELEVEL=0):
    for _ in range(2):
      compile_cached(k, compiler)
  assert compiler.compiled == 2 and not own_cache.exists()
  with Context(CACHELEVEL=1):
    for _ in range(2):
      compile_cached(k, compiler)
  assert compiler.compiled == 3 and not own_cache.exists()


def test_place_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
  monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
  monkeypatch.setenv("HOME", "/home/someone")
  with Context(TINY_CACHE=""):
    assert cache_folder() == Path("/xdg/tiny/binaries")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/home/someone/.cache/tiny/binaries")
  with Context(TINY_CACHE=str(tmp_path)):
    assert cache_folder() == tmp_path / "binaries"


@pytest.mark.parametrize("damage", ["empty", "cut", "flip", "other format", "valid but meaningless"])
def test_damaged_entry_is_rebuilt(own_cache: Path, damage: str) -> None:
  compile_cached(kernel(1.0), Counting())
  (path,) = entries(own_cache)
  good = path.read_bytes()
  if damage == "valid but meaningless":
    import hashlib

    payload = b"[1, 2]\n"
    key = good[12:44]
    assert good.startswith(b"tiny-file 2\n") and key.hex() == path.name
    bad = good[:44] + hashlib.sha256(key + payload).digest() + payload
  else:
    flipped = bytearray(good)
    flipped[-1] ^= 1
    bad = {"empty": b"", "cut": good[: len(good) // 2], "flip": bytes(flipped), "other format": b"x" + good[1:]}[damage]
  path.write_bytes(bad)
  compiler = Counting()
  assert compile_cached(kernel(1.0), compiler).entry and compiler.compiled == 1
  assert path.read_bytes() == good


def test_entry_that_is_a_folder(own_cache: Path) -> None:
  k, compiler = kernel(1.0), Counting()
  entry_path(k, f"counting\n{fingerprint('')}\n").mkdir(parents=True)
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    assert compile_cached(k, compiler).entry


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr("tiny_runtime.private_files._warned", False)
  file = tmp_path / "file"
  file.write_text("")
  with (
    Context(TINY_CACHE=str(file)),
    pytest.warns(RuntimeWarning, match="compiled kernels are not kept.*TINY_CACHE") as seen,
  ):
    compile_cached(kernel(1.0), Counting())
    compile_cached(kernel(2.0), Counting())
  assert len(seen) == 1


def test_leftovers_of_killed_processes_are_removed(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  compile_cached(kernel(1.0), Counting())
  (path,) = entries(own_cache)
  old, young = path.with_name(".new-old"), path.with_name(".new-young")
  for leftover in (old, young):
    leftover.write_bytes(b"half")
  past = time.time() - STALE_SECONDS - 10
  os.utime(old, (past, past))
  path.unlink()
  compile_cached(kernel(1.0), Counting())
  assert entries(own_cache) == sorted([path, old, young]), "a process looks once"
  path.unlink()
  monkeypatch.setattr(private_files, "_swept", set())
  compile_cached(kernel(1.0), Counting())
  assert entries(own_cache) == sorted([path, young])


# *** several processes ***

WORKER = """
import sys
from tiny_runtime import compile_cache
from tiny_runtime.ref import BACKEND
from tiny_uop import KernelInfo, UOp, dtypes

def kernel(amount):
  out, source = (UOp.param(n, dtypes.float32.ptr(4)) for n in range(2))
  i = UOp.range(4, 0)
  return UOp.sink(out.index(i).store(source.index(i).load() + amount).end(i), arg=KernelInfo("add"))

print("ready", flush=True)
rounds, kernels = int(sys.argv[1]), int(sys.argv[2])
for n in range(rounds):
  if n % 7 == 0:
    for path in compile_cache.cache_folder().glob("*/[0-9a-f]*"): path.unlink(missing_ok=True)
  binary = compile_cache.compile_cached(kernel(float(n % kernels)), BACKEND.compiler("python"))
  assert b"add" in binary.code or binary.entry == "add"
print("done", flush=True)
"""


def worker(rounds: int, kernels: int) -> subprocess.Popen[str]:
  return subprocess.Popen(
    [sys.executable, "-c", WORKER, str(rounds), str(kernels)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
  )


def test_processes_share_the_folder(own_cache: Path) -> None:
  workers = [worker(300, 5) for _ in range(4)]
  for process in workers:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and "done" in out and err == "", err
  for path in entries(own_cache):
    assert read_entry(path) is not None and not path.name.startswith(".new-")


def test_killed_while_writing(own_cache: Path) -> None:
  for delay in (0.0, 0.003, 0.01, 0.03, 0.05):
    process = worker(100_000, 50)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
  for path in entries(own_cache):
    assert path.name.startswith(".new-") or read_entry(path) is not None
  again = worker(50, 50)
  out, err = again.communicate(timeout=120)
  assert "done" in out and err == ""


def test_killed_half_way_through_a_write(own_cache: Path) -> None:
  """Deterministic: the process ends after the first half of the bytes are in the file."""
  code = WORKER.replace(
    'print("ready", flush=True)',
    """
import os, signal
class Half:
  def __init__(self, file): self.file = file
  def __enter__(self): return self
  def __exit__(self, *a): self.file.close()
  def write(self, data):
    self.file.write(data[: len(data) // 2]); self.file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
fdopen = os.fdopen
os.fdopen = lambda *a: Half(fdopen(*a))
""",
  )
  result = subprocess.run([sys.executable, "-c", code, "1", "1"], capture_output=True, check=False)
  assert result.returncode == -signal.SIGKILL
  (leftover,) = entries(own_cache)
  assert leftover.name.startswith(".new-") and leftover.stat().st_size > 0
  compiler = Counting(BACKEND.compiler("python").key)
  k = kernel(0.0)
  compile_cached(k, compiler)
  assert compiler.compiled == 1
  assert len([path for path in entries(own_cache) if not path.name.startswith(".new-")]) == 1


def test_fingerprint_names_versions() -> None:
  lines = fingerprint("pytest 8.0").splitlines()
  assert any(line.startswith("pytest==") for line in lines) and any(line.startswith("pluggy==") for line in lines)
  assert "no-such-package-xyz==not installed" in fingerprint("no-such-package-xyz 1").splitlines()


def test_fingerprint_follows_the_sources_that_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """A tree of sources before an installed package, which may be another tree in editable mode."""
  site, tree, name = tmp_path / "site", tmp_path / "tree", "no-such-package-xyz"
  for folder in (site, tree):
    (folder / "no_such_package_xyz" / "part").mkdir(parents=True)
    (folder / "no_such_package_xyz" / "__init__.py").write_text("")
  metadata = site / "no_such_package_xyz-1.5.dist-info" / "METADATA"
  metadata.parent.mkdir()
  metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")

  def version() -> str:
    fingerprint.cache_clear()
    (line,) = (line for line in fingerprint(f"{name} 1.5").splitlines() if line.startswith(name))
    return line.removeprefix(f"{name}==")

  monkeypatch.syspath_prepend(str(site))
  assert version() == "1.5", "what is installed changes with its version"
  monkeypatch.syspath_prepend(str(tree))
  before = version()
  assert before.startswith("1.5+")
  (tree / "no_such_package_xyz" / "part" / "new.py").write_text("x = 1")
  after = version()
  assert after.startswith("1.5+") and after != before
  (tree / "no_such_package_xyz" / "__pycache__").mkdir()
  (tree / "no_such_package_xyz" / "__pycache__" / "part.pyc").write_text("")
  assert version() == after
  monkeypatch.setattr(sys, "path", [str(tree), *(p for p in sys.path if p not in (str(site), str(tree)))])
  assert version().startswith("not installed+")
  fingerprint.cache_clear()


def test_other_bytes_are_kept_like_binaries(own_cache: Path) -> None:
  made: list[int] = []

  def make() -> bytes:
    made.append(1)
    return b"code"

  assert [cached_bytes("a", make) for _ in range(3)] == [b"code"] * 3 and len(made) == 1
  assert cached_bytes("another key", make) == b"code" and len(made) == 2
  (file, _) = sorted(path for path in (own_cache / "other").rglob("*") if path.is_file())
  file.write_bytes(file.read_bytes()[:-1] + b"x")
  assert [cached_bytes(key, make) for key in ("a", "another key") for _ in range(2)] == [b"code"] * 4 and len(made) == 3
  with Context(CACHELEVEL=1):
    assert cached_bytes("a", make) == b"code" and len(made) == 4
