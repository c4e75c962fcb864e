"""Compiled kernels, kept in memory by kernel and on disk by a hash of everything that the result depends on.

An entry on disk is written to a temporary file and moved into place, and carries its key and a checksum; so several
processes may share the folder, one may be killed at any moment, and an entry that is damaged all the same, or was put
in the place of another, is compiled again. Nobody else's is used: see `private_files`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from weakref import WeakKeyDictionary

from tiny_runtime.binary import Binary
from tiny_runtime.contract import Compiler, Measure
from tiny_runtime.errors import Broken
from tiny_runtime.plugins.plugin import attributed
from tiny_runtime.plugins.versions import fingerprint
from tiny_runtime.private_files import folder_in_use, key_path, read_payload, remove_unfit, write_payload
from tiny_runtime.profiling.recording import begin, end
from tiny_uop import UOp
from tiny_uop.context import CACHELEVEL, DEBUG, ContextVar
from tiny_uop.locks import shared_lock
from tiny_uop.observe import active, span

NOT_IN_KEY = frozenset(
  (
    "CACHELEVEL COMPILE_PROCESSES DEBUG DEBUG_KERNELS DEVICE JIT JIT_CHECK PROFILE PROFILE_FILE PROGRESS QUEUE_TIMEOUT "
    "TINY_CACHE TRACK_MATCH_STATS TRIAL_SECONDS VIZ VIZ_FILE VIZ_LIMIT"
  ).split()
)
"""Settings that do not change what a compiler makes. Any other one, of any package, becomes part of the key; so does
SPEC: what was compiled unchecked is compiled again where checks are wanted."""

Timer = Callable[[Binary], float]
"""Seconds that a launch of a binary takes."""

_memory: WeakKeyDictionary[UOp, dict[str, Binary]] = WeakKeyDictionary()
_lock = shared_lock()


def compile_cached(
  kernel: UOp, compiler: Compiler, distribution: str = "", timer: Timer | None = None, device: str = ""
) -> Binary:
  """The binary of a kernel: from memory, from disk, or compiled now. `distribution` is the plugin's, for its versions;
  with a `timer` of its candidates the compiler may search. A profile is told which `device` it is for.

  Raises what the compiler raises: CompileError, or Broken for what the contract does not allow.
  """
  name = kernel_name(kernel)
  key = entry_key(compiler, distribution)
  level = int(CACHELEVEL)
  if level >= 1 and (binary := _memory.get(kernel, {}).get(key)) is not None:
    report("memory", name)
    return binary
  path = entry_path(kernel, key) if level >= 2 else None
  # from DEBUG=3 on, the compiler prints what it does, so it has to do it; and for whoever watches
  found = read_entry(path) if path is not None and DEBUG < 3 and not active() else None
  if found is not None:
    report("disk", name)
    binary = found
  else:
    start = time.perf_counter()
    kept = entry_path(kernel, key, "searches") if timer is not None and level >= 2 else None
    search = None if timer is None else KernelSearch(timer, name, kept)
    profiled = begin()
    with span("compile", name, kernel):
      binary = compile_now(name, kernel, compiler, search)
    if profiled:
      end(profiled, "compile", name, device)
    report(f"compiled in {(time.perf_counter() - start) * 1e3:.1f} ms", name)
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
  with attributed(f"kernel {name}", f"compiler {compiler.key!r}"):
    binary: object = compiler.compile(kernel, measure)
  if not isinstance(binary, Binary):
    raise Broken(f"kernel {name}: compiler {compiler.key!r} gave a {type(binary).__name__}, expected a Binary")
  return binary


def report(what: str, name: str) -> None:
  """One line about where a kernel came from, with DEBUG=1."""
  if DEBUG >= 1:
    print(f"kernel   {name:<32} {what}", file=sys.stderr)


def cache_folder() -> Path:
  """Where entries are kept; it need not exist. Where others may write to that, it is a temporary folder."""
  return folder_in_use("binaries")


def entry_path(kernel: UOp, key: str, folder: str = "binaries") -> Path:
  """File of one entry."""
  return key_path(folder, kernel.key + key.encode())


class KernelSearch:
  """The contract's `Measure` for one kernel. Results of searches are kept beside the binaries, and longer of use: with
  DEBUG=3 or a profile compilers run, but need not search."""

  def __init__(self, timer: Timer, name: str, path: Path | None) -> None:
    self.timer, self.name, self.path = timer, name, path

  def __call__(self, binary: Binary) -> float:
    """See Measure."""
    return self.timer(binary)

  def recall(self) -> str | None:
    """See Measure."""
    payload = None if self.path is None else read_payload(self.path)
    report("no search of it is on disk" if payload is None else "a search of it is on disk", self.name)
    return None if payload is None else payload.decode(errors="replace")

  def remember(self, found: str) -> None:
    """See Measure."""
    if self.path is not None:
      write_payload(self.path, found.encode())


def cached_bytes(key: str, make: Callable[[], bytes]) -> bytes:
  """What `make` gives, kept on disk like a binary: for plugins that compile other things than kernels. `key` names it
  and all that it depends on."""
  if CACHELEVEL < 2:
    return make()
  path = key_path("other", key.encode())
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
    remove_unfit(path)
    return None
