"""One plugin and its recorded state: found → incompatible, broken, unavailable or ready.

Nothing here raises because of a plugin except `Plugin.require`; every failure is recorded with its reason and
traceback.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import TypeGuard

from tiny_runtime.contract import API, Backend
from tiny_runtime.errors import BackendError, Broken, Incompatible, Unavailable, printable
from tiny_uop import IR_VERSION
from tiny_uop.locks import shared_lock, undivided

MEMBERS = ("api", "ir", "probe", "open", "compiler")


class State(Enum):
  """What is known about a plugin."""

  FOUND = "found"  # its metadata was read, none of its code ran
  INCOMPATIBLE = "incompatible"
  BROKEN = "broken"
  UNAVAILABLE = "unavailable"
  READY = "ready"


ERRORS: dict[State, type[BackendError]] = {State.INCOMPATIBLE: Incompatible, State.BROKEN: Broken}


@dataclass
class Plugin:
  """What discovery knows about one entry point."""

  name: str
  """The device's name, `CPU`."""
  distribution: str
  """Name and version of the wheel it came in, `tiny-runtime-cpu 0.1.0`."""
  value: str
  """What the entry point says, `tiny_runtime_cpu.backend:BACKEND`."""
  state: State = State.FOUND
  reason: str = ""
  """Why it is not ready; empty if it is or nobody asked."""
  what_to_do: str = ""
  traceback: str = ""
  """Where the plugin raised, if it did."""
  archs: tuple[str, ...] = ()
  """The arch of each usable device, once ready."""
  backend: Backend | None = None
  """The loaded object, once imported."""
  refused: list[Plugin] = field(default_factory=list)
  """Other plugins that claim the name, which is this one's."""
  _lock: threading.RLock = field(default_factory=shared_lock, repr=False, compare=False)
  _asking: bool = field(default=False, repr=False, compare=False)
  """Whether the thread that has the lock is in `probe`."""

  def __post_init__(self) -> None:
    self.name, self.distribution, self.value = map(printable, (self.name, self.distribution, self.value))

  @property
  def untried(self) -> bool:
    """Whether none of its code ran, and nothing rules it out."""
    return self.state is State.FOUND and self.backend is None

  def copy(self) -> Plugin:
    """What discovery knows, and nothing that has been found since."""
    return Plugin(self.name, self.distribution, self.value)

  @property
  def package(self) -> str:
    """Name of the wheel without its version, as `pip install` takes it."""
    return self.distribution.partition(" ")[0]

  def fail(self, state: State, reason: str, what_to_do: str = "", error: BaseException | None = None) -> None:
    """Record a final state and why."""
    import traceback as tb  # late: it imports much

    self.record(state, reason, what_to_do)
    self.backend, self.traceback = None, ""
    self.add_traceback("".join(tb.format_exception(error)) if error is not None else "")

  def broken(self, reason: str, what_to_do: str = "", error: BaseException | None = None) -> None:
    """The same for something that the plugin's authors have to mend."""
    self.fail(State.BROKEN, reason, what_to_do or f"Report it to the authors of {self.package}", error)

  def record(self, state: State, reason: str = "", what_to_do: str = "", archs: Sequence[str] = ()) -> None:
    """Record a state, in words that are safe to print."""
    self.state, self.reason, self.what_to_do = state, printable(reason), printable(what_to_do)
    self.archs = tuple(map(printable, archs))

  def add_traceback(self, text: str) -> None:
    """Add to what is shown of where it failed."""
    self.traceback += printable(text)

  def load(self) -> Backend | None:
    """Import the plugin if that was not tried yet. None if it is incompatible or broken; does not touch hardware."""
    # not under the lock: whoever imports the plugin's modules by name would wait for it, and it for him
    if self.state is State.FOUND and self.backend is None:
      with undivided:
        self._import()
    return self.backend

  def probe(self) -> State:
    """Load the plugin and ask it what is usable on this machine, once."""
    backend = self.load()
    with undivided, self._lock:
      if backend is not None and self.state is State.FOUND:
        if self._asking:
          raise RuntimeError(
            f"device {self.name} is needed by a signal handler, a finaliser, or its own plugin {self.distribution}, "
            "which the same thread is asking what is usable: it can be used once that is done"
          )
        self._asking = True
        try:
          self._ask(backend)
        finally:
          self._asking = False
      return self.state

  def require(self) -> Backend:
    """The backend, ready for use. Raises what the recorded state says: Incompatible, Broken or Unavailable."""
    self.probe()
    if self.state is State.READY and self.backend is not None:
      return self.backend
    raise self.error()

  def error(self) -> BackendError:
    """The recorded state as the error to raise. The plugin's own traceback is attached as a note."""
    if self.state is State.UNAVAILABLE:
      error: BackendError = Unavailable(
        f"device {self.name} ({self.distribution}) is not usable here: {self.reason}", self.what_to_do
      )
    else:
      todo = f". {self.what_to_do}" if self.what_to_do else ""
      kind = ERRORS.get(self.state, Broken)
      who = f"its plugin {self.distribution} ({self.value})"
      error = kind(f"device {self.name}: {who} is {self.state.value}: {self.reason}{todo}")
    if self.traceback:
      error.add_note("The plugin's own traceback:\n" + self.traceback)
    return error

  def _import(self) -> None:
    module_name, _, attribute = self.value.partition(":")
    try:
      found: object = importlib.import_module(module_name)
      for part in attribute.split(".") if attribute else ():
        found = getattr(found, part)
      if isinstance(found, type):
        found = found()
    except ModuleNotFoundError as error:
      missing = error.name or str(error)
      reinstall = f"Reinstall it: pip install --force-reinstall {self.package}"
      if module_name == missing or module_name.startswith(missing + "."):
        self.broken(f"its module {missing!r} is missing", reinstall, error)
      else:
        todo = f"{reinstall}, or install {missing!r}"
        self.broken(f"it needs the module {missing!r}, which is not installed", todo, error)
    except BaseException as error:
      if is_users(error):
        raise  # nothing is recorded, the next request tries again
      if isinstance(error, (ImportError, AttributeError)) and (module := half_imported(error)):
        raise RuntimeError(
          f"device {self.name} is needed while {module!r} is being imported, which its plugin {self.distribution} "
          "needs: it can be used once that is done"
        ) from error
      self.broken(f"loading it raised {describe(error)}", error=error)
    else:
      self._check(found)

  def _check(self, found: object) -> None:
    lacking = [name for name in MEMBERS if inspect.getattr_static(found, name, None) is None]
    if lacking:
      self.broken(f"it is of type {type(found).__name__}, not a Backend: it has no {', '.join(lacking)}")
      return
    assert isinstance(found, Backend)
    try:
      api: object = found.api
      ir: object = found.ir
    except Exception as error:
      self.broken(f"reading its versions raised {describe(error)}", error=error)
      return
    if not _is_pair(api):
      self.broken(f"its api is {api!r}, expected (major, minor)")
    elif not _is_pair(ir) or ir[0] > ir[1]:
      self.broken(f"its ir is {ir!r}, expected (lowest, highest) version of the IR")
    elif api[0] != API[0] or api[1] > API[1]:
      self.fail(State.INCOMPATIBLE, *other_version(f"{api[0]}.{api[1]}", api > API, self.package))
    elif not ir[0] <= IR_VERSION <= ir[1]:
      known = f"version {ir[0]}" if ir[0] == ir[1] else f"versions {ir[0]} to {ir[1]}"
      reason = f"it understands {known} of the IR, this tiny-uop has {IR_VERSION}"
      package = "tiny-uop" if ir[0] > IR_VERSION else self.package
      self.fail(State.INCOMPATIBLE, reason, f"pip install --upgrade {package}")
    else:
      with self._lock:  # two threads may have imported it
        if self.backend is None:
          self.backend = found

  def _ask(self, backend: Backend) -> None:
    try:
      found: object = backend.probe()
    except Unavailable as error:
      found = error
    except BaseException as error:
      if is_users(error):
        raise
      self.broken(f"probe() raised {describe(error)}", error=error)
      return
    if isinstance(found, Unavailable):
      self.record(State.UNAVAILABLE, found.reason, found.what_to_do)
    elif isinstance(found, str) or not isinstance(found, Sequence) or not all(isinstance(arch, str) for arch in found):
      self.broken(f"probe() gave {found!r}, expected a sequence of arch names or Unavailable")
    elif not found:
      self.record(State.UNAVAILABLE, "it found no device")
    else:
      self.record(State.READY, archs=found)


def half_imported(error: ImportError | AttributeError) -> str:
  """The module that lacks something because its import, by someone else, is under way; empty if none does."""
  module = sys.modules.get(error.name or "") if isinstance(error, ImportError) else error.obj
  under_way = getattr(getattr(module, "__spec__", None), "_initializing", False)  # as importlib has it
  return str(module.__name__) if isinstance(module, ModuleType) and under_way else ""


def _is_pair(value: object) -> TypeGuard[tuple[int, int]]:
  return isinstance(value, tuple) and len(value) == 2 and all(isinstance(n, int) for n in value)


def other_version(theirs: str, newer: bool, package: str) -> tuple[str, str]:
  """Reason and what to do about a plugin written for another version of the contract."""
  reason = f"it is written for version {theirs} of the plugin contract, this tiny-runtime has {API[0]}.{API[1]}"
  return reason, f"pip install --upgrade {'tiny-runtime' if newer else package}"


def is_fault(error: BaseException) -> bool:
  """Whether an exception that came out of a plugin is the plugin's: any error, and SystemExit, as a plugin must not end
  the process."""
  return isinstance(error, (Exception, SystemExit)) and not is_users(error)


def is_users(error: BaseException) -> bool:
  """Whether something that came while a plugin ran has nothing to do with it: KeyboardInterrupt, what a signal handler
  raised, and the end of a stack that the caller had nearly filled."""
  if isinstance(error, KeyboardInterrupt) or (isinstance(error, RecursionError) and _stack_was_full()):
    return True
  return _by_signal_handler(error)


def _stack_was_full() -> bool:
  depth, frame = 0, sys._getframe()
  while frame.f_back is not None:
    depth, frame = depth + 1, frame.f_back
  return depth > sys.getrecursionlimit() // 2


def _by_signal_handler(error: BaseException) -> bool:
  import signal  # late: few programs come here

  handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
  place = error.__traceback__
  while place is not None:
    if place.tb_frame.f_code in handlers:
      return True
    place = place.tb_next
  return False


def _code(handler: object) -> object:
  """The code of a function, of a method, of what `functools.partial` made of one, or of an object's `__call__`."""
  handler = getattr(handler, "func", handler)
  return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


def shown(error: BaseException) -> BaseException:
  """What to raise from, for what a plugin raised: Python prints it with its traceback. If that has control characters,
  something whose message they are, printable."""
  import traceback as tb  # late: it imports much

  text = "".join(tb.format_exception(error))
  return error if text == printable(text) else Broken("the plugin's own traceback:\n" + printable(text))


@contextmanager
def attributed(action: str, who: str, where: str = "") -> Iterator[None]:
  """Errors that come out of a plugin say in what `action`, and `where`. Those that the contract does not allow become
  Broken, and name `who` raised them."""
  try:
    yield
  except BackendError as error:
    raise error.within(f"{action} ({where})" if where else action) from shown(error)
  except BaseException as error:
    if not is_fault(error):
      raise
    broken = Broken(f"{action}: {who} raised {describe(error)}, which the plugin contract does not allow")
    raise broken from shown(error)


def describe(error: BaseException) -> str:
  """`ValueError: the message`, on one line."""
  text = printable(" ".join(str(error).split()))
  return f"{type(error).__name__}: {text}" if text else type(error).__name__
