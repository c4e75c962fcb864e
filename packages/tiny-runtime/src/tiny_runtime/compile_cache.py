"""Compiled kernels, kept in memory by kernel and on disk by a hash of everything that the result depends on.

An entry on disk is written to a temporary file and moved into place, and carries a checksum; so several processes may
share the
folder, one may be killed at any moment, and an entry that is damaged all the same is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from tiny_runtime.binary import Binary
from tiny_runtime.contract import Compiler, Measure
from tiny_runtime.errors import BackendError, Broken
from tiny_runtime.plugin import describe
from tiny_runtime.settings import TINY_CACHE
from tiny_runtime.versions import fingerprint
from tiny_uop import UOp
from tiny_uop.context import CACHELEVEL, DEBUG, ContextVar, EnvironmentVariable
from tiny_uop.observe import active, span

XDG_CACHE_HOME = EnvironmentVariable(
  "XDG_CACHE_HOME", "folder of everybody's caches, ours in `tiny` there; empty: `~/.cache` (XDG Base Directory)"
)

NOT_IN_KEY = frozenset(
  (
    "CACHELEVEL COMPILE_PROCESSES DEBUG DEVICE JIT JIT_CHECK PROFILE QUEUE_TIMEOUT TINY_CACHE TRACK_MATCH_STATS VIZ "
    "VIZ_FILE VIZ_LIMIT"
  ).split()
)
"""Settings that do not change what a compiler makes. Any other one, of any package, becomes part of the key; so does
SPEC: what was compiled unchecked is compiled again where checks are wanted."""

Timer = Callable[[Binary], float]
"""Seconds that a launch of a binary takes."""

MAGIC = b"tiny-binary 1\n"
STALE_SECONDS = 3600.0
"""A temporary file this old was left behind by a process that was killed."""

_memory: WeakKeyDictionary[UOp, dict[str, Binary]] = WeakKeyDictionary()
_lock = threading.RLock()  # re-entrant: see buffer.py
_warned = False


def compile_cached(kernel: UOp, compiler: Compiler, distribution: str = "", timer: Timer | None = None) -> Binary:
  """The binary of a kernel: from memory, from disk, or compiled now. `distribution` is the plugin's, for its versions;
  with a `timer` of its candidates the compiler may search.

  Raises what the compiler raises: CompileError, or Broken for what the contract does not allow.
  """
  name = kernel_name(kernel)
  key = entry_key(compiler, distribution)
  level = int(CACHELEVEL)
  if level >= 1 and (binary := _memory.get(kernel, {}).get(key)) is not None:
    report("memory", name, compiler)
    return binary
  path = entry_path(kernel, key) if level >= 2 else None
  # from DEBUG=3 on, the compiler prints what it does, so it has to do it; and for whoever watches
  found = read_entry(path) if path is not None and DEBUG < 3 and not active() else None
  if found is not None:
    report("disk", name, compiler)
    binary = found
  else:
    start = time.perf_counter()
    search = None if timer is None else KernelSearch(timer, name, compiler, entry_path(kernel, key, "searches"))
    with span("compile", name, kernel):
      binary = compile_now(name, kernel, compiler, search)
    report(f"compiled in {(time.perf_counter() - start) * 1e3:.1f} ms", name, compiler)
    if path is not None:
      write_payload(path, binary.to_bytes())
  if level >= 1:
    with _lock:
      _memory.setdefault(kernel, {})[key] = binary
  return binary


def entry_key(compiler: Compiler, distribution: str) -> str:
  """All that a binary depends on besides its kernel."""
  return f"{compiler.key}\n{fingerprint(distribution)}\n{settings_key()}"


def settings_key() -> str:
  """The settings that a compiler may depend on, where they differ from the default."""
  changed = [var for var in ContextVar.registry.values() if var.value != var.default and var.name not in NOT_IN_KEY]
  return " ".join(sorted(f"{var.name}={var.value}" for var in changed))


def kernel_name(kernel: UOp) -> str:
  """The name that the scheduler gave a kernel."""
  return str(getattr(kernel.arg, "name", "kernel"))


def compile_now(name: str, kernel: UOp, compiler: Compiler, measure: Measure | None) -> Binary:
  """Call the compiler, naming the kernel in whatever it raises."""
  try:
    binary: object = compiler.compile(kernel, measure)
  except BackendError as error:
    raise error.within(f"kernel {name}") from error
  except Exception as error:
    raise Broken(f"kernel {name}: compiler {compiler.key!r} raised {describe(error)}") from error
  if not isinstance(binary, Binary):
    raise Broken(f"kernel {name}: compiler {compiler.key!r} gave a {type(binary).__name__}, expected a Binary")
  return binary


def report(what: str, name: str, compiler: Compiler) -> None:
  """One line about where a kernel came from, with DEBUG=1."""
  if DEBUG >= 1:
    print(f"kernel   {name:<32} {what}", file=sys.stderr)


def cache_folder() -> Path:
  """Where entries are kept; it need not exist."""
  if TINY_CACHE.value:
    return Path(TINY_CACHE.value) / "binaries"
  base = XDG_CACHE_HOME.get()
  return (Path(base) if base else Path.home() / ".cache") / "tiny" / "binaries"


def entry_path(kernel: UOp, key: str, folder: str = "binaries") -> Path:
  """File of one entry."""
  digest = hashlib.sha256(kernel.key + key.encode()).hexdigest()
  return cache_folder().with_name(folder) / digest[:2] / digest[2:]


class KernelSearch:
  """The contract's `Measure` for one kernel. Results of searches are kept beside the binaries, and longer of use: with
  DEBUG=3 or a profile compilers run, but need not search."""

  def __init__(self, timer: Timer, name: str, compiler: Compiler, path: Path) -> None:
    self.timer, self.name, self.compiler, self.path = timer, name, compiler, path

  def __call__(self, binary: Binary) -> float:
    """See Measure."""
    return self.timer(binary)

  def recall(self) -> str | None:
    """See Measure."""
    payload = read_payload(self.path) if CACHELEVEL >= 2 else None
    report("no search of it is on disk" if payload is None else "a search of it is on disk", self.name, self.compiler)
    return None if payload is None else payload.decode(errors="replace")

  def remember(self, found: str) -> None:
    """See Measure."""
    if CACHELEVEL >= 2:
      write_payload(self.path, found.encode())


def cached_bytes(key: str, make: Callable[[], bytes]) -> bytes:
  """What `make` gives, kept on disk like a binary: for plugins that compile other things than kernels. `key` names it
  and all that it depends on."""
  if CACHELEVEL < 2:
    return make()
  digest = hashlib.sha256(key.encode()).hexdigest()
  path = cache_folder().with_name("other") / digest[:2] / digest[2:]
  payload = read_payload(path)
  if payload is None:
    write_payload(path, payload := make())
  return payload


def read_entry(path: Path) -> Binary | None:
  """The entry, or None if there is none or it is damaged; a damaged one is removed."""
  if (payload := read_payload(path)) is None:
    return None
  try:
    return Binary.from_bytes(payload)
  except Exception:  # a whole entry that does not parse was written by other code: as good as none
    remove_damaged(path)
    return None


def read_payload(path: Path) -> bytes | None:
  """What a file of the cache holds; None if there is none or it is damaged, and a damaged one is removed."""
  try:
    data = path.read_bytes()
  except OSError:
    return None
  start = len(MAGIC) + 32
  if data[: len(MAGIC)] == MAGIC and hashlib.sha256(data[start:]).digest() == data[len(MAGIC) : start]:
    return data[start:]
  remove_damaged(path)
  return None


def remove_damaged(path: Path) -> None:
  """Remove a file that cannot be used."""
  if DEBUG >= 1:
    print(f"cache    {path} is damaged, compiling again", file=sys.stderr)
  with suppress(OSError):
    path.unlink()


def write_payload(path: Path, payload: bytes) -> None:
  """Write a file so that no reader ever sees a part of it. A folder that cannot be written is worth one warning, no
  more."""
  global _warned
  import tempfile  # late: a process that finds all that it needs writes nothing

  try:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_stale(path.parent)
    descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
      with os.fdopen(descriptor, "wb") as file:
        file.write(MAGIC + hashlib.sha256(payload).digest() + payload)
      os.replace(temporary, path)
    except BaseException:
      with suppress(OSError):
        os.unlink(temporary)
      raise
  except OSError as error:
    if not _warned:
      _warned = True
      todo = "set TINY_CACHE to a folder that can be written, or CACHELEVEL=1"
      warnings.warn(
        f"compiled kernels are not kept: {path.parent}: {error.strerror}; {todo}", RuntimeWarning, stacklevel=3
      )


def remove_stale(folder: Path) -> None:
  """Remove what killed processes left behind."""
  for leftover in folder.glob(".new-*"):
    with suppress(OSError):
      if time.time() - leftover.stat().st_mtime > STALE_SECONDS:
        leftover.unlink()
