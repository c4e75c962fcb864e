"""What is kept on disk is executed later: it has to be this user's, and what it says that it is."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tiny_runtime import Binary, cache_folder, cached_bytes, private_files
from tiny_runtime.compile_cache import KernelSearch, compile_cached, entry_path
from tiny_runtime.contract import Measure
from tiny_runtime.private_files import folder_in_use, is_private, key_path, read_payload
from tiny_runtime.ref import BACKEND
from tiny_runtime.system import windows
from tiny_uop import Context, KernelInfo, UOp, dtypes
from tiny_uop.context import CACHELEVEL

SOMEBODY = 54321
pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are of POSIX")
needs_root = pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root gives files away")


def kernel(amount: float) -> UOp:
  out, source = (UOp.param(n, dtypes.float32.ptr(4)) for n in range(2))
  i = UOp.range(4, 0)
  return UOp.sink(out.index(i).store(source.index(i).load() + amount).end(i), arg=KernelInfo("add"))


class Counting:
  """The reference compiler, counting."""

  key = "counting"

  def __init__(self) -> None:
    self.compiled = 0

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    self.compiled += 1
    return BACKEND.compiler("python").compile(kernel, measure)


def compiles(amount: float) -> int:
  """How often a compiler runs for a kernel that this process does not know."""
  compiler = Counting()
  assert compile_cached(kernel(amount), compiler).entry
  return compiler.compiled


def fill() -> None:
  """An entry in each folder that the runtime has."""
  compiles(1.0)
  assert cached_bytes("name", lambda: b"made") == b"made"
  search(1.0).remember("found")


def search(amount: float) -> KernelSearch:
  path = entry_path(kernel(amount), "key", "searches") if CACHELEVEL >= 2 else None
  return KernelSearch(lambda binary: 0.0, "add", path)


def files(folder: Path) -> list[Path]:
  return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("target", ["nowhere/at/all", "cache"])
def test_a_link_that_leads_nowhere(own_cache: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
  monkeypatch.setattr(private_files, "_warned", False)
  own_cache.symlink_to(own_cache.parent / target)
  with pytest.warns(RuntimeWarning, match="not kept"):
    assert compiles(1.0) == 1


def entry(own_cache: Path) -> Path:
  (path,) = files(own_cache / "binaries")
  return path


def mode(path: Path) -> int:
  return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def own_umask() -> object:
  """What a system may have as its umask at most: nothing is private by itself."""
  before = os.umask(0)
  yield
  os.umask(before)


@pytest.mark.usefixtures("own_umask")
def test_every_level_is_private(own_cache: Path, tmp_path: Path) -> None:
  with Context(TINY_CACHE=str(tmp_path / "far" / "away" / "cache")):
    fill()
  made = [tmp_path / "far", *(tmp_path / "far").rglob("*")]
  assert len([path for path in made if path.is_dir()]) == 6 and len(files(tmp_path / "far")) == 3
  assert {mode(path) for path in made if path.is_dir()} == {0o700}
  assert {mode(path) for path in made if path.is_file()} == {0o600}


def spoil_mode(bits: int) -> Callable[[Path], None]:
  return lambda path: path.chmod(path.stat().st_mode | bits)


def spoil_owner(path: Path) -> None:
  os.chown(path, SOMEBODY, -1)


def spoil_link(path: Path) -> None:
  """A link of somebody else in the place of a folder; what it leads to is ours."""
  path.rename(path.with_name("elsewhere"))
  path.symlink_to(path.with_name("elsewhere"))
  os.chown(path, SOMEBODY, -1, follow_symlinks=False)


SPOILT = [
  pytest.param(spoil_mode(0o020), "others may write to it", id="group"),
  pytest.param(spoil_mode(0o002), "others may write to it", id="world"),
  pytest.param(spoil_owner, f"it belongs to the user {SOMEBODY}", id="owner", marks=needs_root),
  pytest.param(spoil_link, f"it is a link of the user {SOMEBODY}", id="link", marks=needs_root),
]


def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(private_files, "_looked_at", set())
  monkeypatch.setattr(private_files, "_instead", {})


@pytest.mark.parametrize("level", ["root", "kind"])
@pytest.mark.parametrize(("spoil", "reason"), SPOILT)
def test_a_folder_that_others_can_write_is_not_used(
  own_cache: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None], reason: str, level: str
) -> None:
  fill()
  assert cache_folder() == own_cache / "binaries" and compiles(1.0) == 0
  folder = {"root": own_cache, "kind": own_cache / "binaries"}[level]
  spoil(folder)
  before = {path: path.read_bytes() for path in files(own_cache)}
  new_process(monkeypatch)
  with pytest.warns(RuntimeWarning, match=f"{re.escape(str(folder))}: {reason}.*private folder") as seen:
    assert (compiles(1.0), compiles(1.0)) == (1, 0), "compiled although it is there, and kept in the private folder"
    fill()
  assert len(seen) == 1, "it is said once"
  root = cache_folder().parent
  assert root != own_cache and mode(root) == 0o700 and len(files(root)) == 3
  assert {path: path.read_bytes() for path in files(own_cache)} == before


def test_the_private_folder_is_removed_in_the_end_by_who_made_it(own_cache: Path) -> None:
  own_cache.mkdir()
  own_cache.chmod(0o777)
  code = """
import os
from tiny_runtime import cache_folder, cached_bytes
cached_bytes("key", lambda: b"made")
if child := os.fork(): os.waitpid(child, 0)
else: raise SystemExit
print(cache_folder(), sum(path.is_file() for path in cache_folder().parent.rglob("*")))
"""
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
  used, count = done.stdout.split()
  assert int(count) == 1 and not Path(used).parent.exists() and not files(own_cache)
  assert done.stderr.count("RuntimeWarning") == 1


def test_no_cache_no_word(own_cache: Path) -> None:
  own_cache.mkdir()
  own_cache.chmod(0o777)
  with Context(CACHELEVEL=1), warnings.catch_warnings():
    warnings.simplefilter("error")
    fill()


def test_no_place_for_a_private_folder(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  import tempfile

  def none(*_: object, **__: object) -> str:
    raise FileNotFoundError("no usable temporary directory")

  own_cache.mkdir()
  own_cache.chmod(0o777)
  monkeypatch.setattr(tempfile, "mkdtemp", none)
  with pytest.warns(RuntimeWarning):
    assert compiles(1.0) == 1
  assert not files(own_cache)


@needs_root
def test_roots_folder_may_be_read_by_others(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """As an image has it, filled by root: root may change anything anyway."""
  fill()
  monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    assert compiles(1.0) == 0


@needs_root
def test_a_link_of_ones_own_is_followed(own_cache: Path, tmp_path: Path) -> None:
  (tmp_path / "large disk").mkdir(mode=0o700)
  own_cache.symlink_to(tmp_path / "large disk")
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    fill()
  assert len(files(tmp_path / "large disk")) == 3


def test_swapped_entries_are_compiled_again(own_cache: Path) -> None:
  compiles(1.0)
  one = entry(own_cache)
  compiles(2.0)
  (two,) = set(files(own_cache / "binaries")) - {one}
  good = two.read_bytes()
  two.write_bytes(one.read_bytes())
  compiler = Counting()
  found = compile_cached(kernel(2.0), compiler)
  assert compiler.compiled == 1 and found == BACKEND.compiler("python").compile(kernel(2.0))
  assert two.read_bytes() == good


def test_other_folders_compare_keys_too(own_cache: Path) -> None:
  one, two = search(1.0), search(2.0)
  one.remember("of one")
  assert one.path and two.path
  two.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
  one.path.replace(two.path)
  assert two.recall() is None and not two.path.exists(), "and it is removed"
  assert cached_bytes("one", lambda: b"of one") == b"of one"
  place = key_path("other", b"two")
  place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
  files(own_cache / "other")[0].replace(place)
  assert read_payload(place) is None and not place.exists()
  assert cached_bytes("two", lambda: b"of two") == b"of two"


@needs_root
def test_entries_of_others_are_removed(own_cache: Path) -> None:
  for spoil in (lambda path: os.chown(path, SOMEBODY, -1), lambda path: path.chmod(0o666)):
    compiles(1.0)
    spoil(entry(own_cache))
    assert compiles(1.0) == 1
    assert entry(own_cache).stat().st_uid == 0 and mode(entry(own_cache)) == 0o600


@pytest.mark.parametrize("kind", ["link", "link to nothing", "fifo"])
def test_what_is_no_file_is_neither_followed_nor_waited_for(own_cache: Path, tmp_path: Path, kind: str) -> None:
  compiles(1.0)
  path = entry(own_cache)
  target = tmp_path / "precious"
  if kind == "link":
    path.rename(target)
    before = target.read_bytes()
  else:
    path.unlink()
  os.mkfifo(path) if kind == "fifo" else path.symlink_to(target)
  assert compiles(1.0) == 1
  assert stat.S_ISREG(path.lstat().st_mode) and compiles(1.0) == 0
  assert target.read_bytes() == before if kind == "link" else not target.exists()


def test_helpers_use_the_folder_that_is_in_use(own_cache: Path) -> None:
  from tiny_runtime.execution.compile_processes import environment

  own_cache.mkdir()
  own_cache.chmod(0o777)
  with pytest.warns(RuntimeWarning, match="private folder"):
    used = cache_folder().parent
  assert environment()["TINY_CACHE"] == str(used)


def test_downloads_are_files_of_the_cache_too(own_cache: Path) -> None:
  assert folder_in_use("downloads", "set") == own_cache / "downloads" / "set"
  file = own_cache / "file"
  own_cache.mkdir()
  file.write_bytes(b"")
  for bits, private in ((0o600, True), (0o644, True), (0o664, False), (0o602, False)):
    file.chmod(bits)
    assert is_private(file) is private


def test_where_there_are_no_owners(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """Windows: owners and modes mean nothing there, folders are as private as the one they are made in."""
  own_cache.mkdir()
  own_cache.chmod(0o777)
  monkeypatch.setattr(private_files, "system", windows)
  assert compiles(1.0) == 1 and compiles(1.0) == 0 and entry(own_cache)
