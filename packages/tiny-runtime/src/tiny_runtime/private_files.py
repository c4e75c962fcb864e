"""Files that are kept for later processes of the same user: nobody else may have written them.

What is in them is executed, or taken for what somebody asked for. So every folder is made for this user alone, and
looked at before its first use: one that others could have written to is left as it is, and a temporary folder takes the
place of all of them. A file is one of this user or of root, and says which key it was written for; so one that somebody
changed, or put in the place of another, is removed and made again.
"""

from __future__ import annotations

import os
import stat
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

from tiny_runtime import system
from tiny_runtime.settings import TINY_CACHE
from tiny_uop.context import DEBUG, EnvironmentVariable
from tiny_uop.system import sha256

XDG_CACHE_HOME = EnvironmentVariable(
  "XDG_CACHE_HOME", "folder of everybody's caches, ours in `tiny` there; empty: `~/.cache` (XDG Base Directory)"
)

MAGIC = b"tiny-file 2\n"
"""A file begins with it, its key's SHA-256 and the SHA-256 of that and the contents."""
STALE_SECONDS = 3600.0
"""A temporary file this old was left behind by a process that was killed."""

_looked_at: set[Path] = set()
"""Folders that were private when this process began to use them."""
_swept: set[Path] = set()
"""Folders in which this process has removed what killed ones left behind."""
_instead: dict[Path, Path] = {}
"""Folders for all files that are not used, and what is used instead."""
_warned = False


def wanted_root() -> Path:
  """The folder for all files, as the settings have it."""
  if TINY_CACHE.value:
    return Path(TINY_CACHE.value)
  base = XDG_CACHE_HOME.get()
  return (Path(base) if base else Path.home() / ".cache") / "tiny"


def folder_in_use(kind: str, *below: str) -> Path:
  """The folder for files of a kind, or one in it, which need not exist. It is the user's, or a temporary one if others
  may write to that or to one that leads there."""
  root = wanted_root()
  folder = root
  for name in ("", kind, *below):
    folder /= name
    if root not in _instead and folder not in _looked_at and (reason := not_private(folder)):
      _instead.setdefault(root, temporary_root())  # another thread's stands
      _warn(
        f"the cache in {root} is not used: {folder}: {reason}, and what is kept there is executed; "
        "a private folder takes its place until this process ends. Remove it, make it yours alone "
        "(chown, chmod go-w), or set TINY_CACHE to another"
      )
  return folder if root not in _instead else _instead[root].joinpath(kind, *below)


def key_path(kind: str, key: bytes) -> Path:
  """The file for a key in the folder in use of a kind: its name is the key's digest."""
  # all in one folder: to make another takes longer than a file in one that is there
  return folder_in_use(kind) / sha256(key).hexdigest()


def not_private(path: Path) -> str:
  """Why others can have written to this folder; empty: they cannot, or there is none yet.

  It is of this user or of root, and writable for nobody else; the same goes for a link to it. Where a system has no
  owners (Windows) nothing can be told: folders are as private there as the one that they are made in.
  """
  try:
    about = path.lstat()
    if stat.S_ISLNK(about.st_mode):
      if (owner := system.stranger(about)) is not None:
        return f"it is a link of the user {owner}"
      about = path.stat()
  except OSError:  # whoever reads or writes there hears of it
    return ""
  reason = system.others_may_write(about)
  if not reason:
    _looked_at.add(path)
  return reason


def temporary_root() -> Path:
  """A new folder for this process, removed when it ends."""
  import atexit  # all of these late: most processes need no such folder
  import shutil
  import tempfile

  try:
    folder = tempfile.mkdtemp(prefix="tiny-")
  except OSError:
    return Path(os.devnull)  # nothing is in it, nothing can be written to it: files are not kept
  maker = os.getpid()

  def remove() -> None:
    if os.getpid() == maker:  # who was forked leaves it to the process that goes on
      shutil.rmtree(folder, ignore_errors=True)

  atexit.register(remove)
  return Path(folder)


def make_folder(path: Path) -> None:
  """Make a folder and those that lead there, each for this user alone. Raises OSError where that cannot be done."""
  missing: list[Path] = []
  while not (path.exists() or path.parent == path):
    missing.append(path)
    path = path.parent
  for folder in reversed(missing):
    with suppress(FileExistsError):  # as it is for all but one of several processes
      os.mkdir(folder, 0o700)


def is_private(path: Path) -> bool:
  """Whether nobody but this user or root can have written a file, or the file that a link of theirs leads to. False if
  there is none."""
  try:
    return _only_ours(path.stat()) and not not_private(path)
  except OSError:
    return False


def _only_ours(about: os.stat_result) -> bool:
  """The same, of an open file."""
  return stat.S_ISREG(about.st_mode) and not system.others_may_write(about)


def read_payload(path: Path) -> bytes | None:
  """What a file of `key_path` holds. None if there is none, or it does not fit: then it is removed."""
  # by the descriptor, since a name may lead elsewhere a moment later
  try:
    descriptor = os.open(path, system.READ_FLAGS)
  except FileNotFoundError:
    return None
  except OSError:
    if path.is_symlink():
      remove_unfit(path)
    return None
  data = b""
  try:
    if _only_ours(os.fstat(descriptor)):
      with suppress(OSError), open(descriptor, "rb", closefd=False) as file:
        data = file.read()
  finally:
    os.close(descriptor)
  if data.startswith(_head(path, data[len(MAGIC) + 64 :])):
    return data[len(MAGIC) + 64 :]
  remove_unfit(path)
  return None


def _head(path: Path, payload: bytes) -> bytes:
  """What a file of this name and these contents begins with."""
  key = bytes.fromhex(path.name)
  return MAGIC + key + sha256(key + payload).digest()


def remove_unfit(path: Path) -> None:
  """Remove a file that cannot be used."""
  if DEBUG >= 1:
    print(f"cache    {path} is damaged or of somebody else, and removed", file=sys.stderr)
  with suppress(OSError):
    path.unlink()


def write_payload(path: Path, payload: bytes) -> None:
  """Write a file of `key_path` so that no reader ever sees a part of it. A folder that cannot be written is worth one
  warning, no more."""
  try:
    make_folder(path.parent)
    if reason := not_private(path.parent):  # somebody made it since it was looked for
      raise PermissionError(0, reason)
    if path.parent not in _swept:
      _swept.add(path.parent)
      remove_stale(path.parent)
    temporary = path.parent / f".new-{os.urandom(8).hex()}"
    # new, and for this user alone
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | system.BINARY, 0o600)
    try:
      with os.fdopen(descriptor, "wb") as file:
        file.write(_head(path, payload) + payload)
      system.replace(temporary, path)
    except BaseException:
      with suppress(OSError):
        os.unlink(temporary)
      raise
  except OSError as error:
    todo = "set TINY_CACHE to a folder that can be written, or CACHELEVEL=1"
    _warn_once(f"compiled kernels are not kept: {path.parent}: {error.strerror}; {todo}")


def remove_stale(folder: Path) -> None:
  """Remove what killed processes left behind."""
  for leftover in folder.glob(".new-*"):
    with suppress(OSError):
      if time.time() - leftover.stat().st_mtime > STALE_SECONDS:
        leftover.unlink()


def _warn_once(text: str) -> None:
  global _warned
  if not _warned:
    _warned = True
    _warn(text)


def _warn(text: str) -> None:
  warnings.warn(text, RuntimeWarning, stacklevel=4)
