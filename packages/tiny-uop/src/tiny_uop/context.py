"""Settings that come from the environment and can be overridden for a block of code.

Every setting of every tiny-* package is a `ContextVar`; those that packages share are here, with a table of them
(`table()`, repeated in the README). Values are process-wide: a `Context` entered in one thread is seen by the others,
since compile and launch work moves between threads and has to see what the user asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import ClassVar, Generic, TypeVar, overload

T = TypeVar("T", int, str)


@overload
def getenv(key: str) -> int: ...


@overload
def getenv(key: str, default: T) -> T: ...


def getenv(key: str, default: int | str = 0) -> int | str:
  """The environment variable `key` as the type of `default`; `default` where it is unset or empty.

  Raises ValueError where the text does not convert.
  """
  text = os.environ.get(key, "")
  if text == "" or isinstance(default, str):
    return text or default
  try:
    return int(text)
  except ValueError:
    raise ValueError(f"environment variable {key}={text!r} is not an int; set it to an int or unset it") from None


class ContextVar(Generic[T]):
  """One setting: its `name` is the environment variable, its type that of `default`, `doc` a line for the table.

  `.value` is the value now. For int settings `DEBUG >= 2`, `int(DEBUG)` and truth work on the object itself.
  """

  registry: ClassVar[dict[str, ContextVar[int] | ContextVar[str]]] = {}
  __slots__ = ("default", "doc", "name", "value")
  default: T
  doc: str
  value: T

  def __init__(self, name: str, default: T, doc: str) -> None:
    if (other := ContextVar.registry.get(name)) is not None:
      raise ValueError(f"ContextVar {name!r} exists already ({other.doc!r}); import it instead of making another")
    self.name, self.default, self.doc = name, default, doc
    self.value = getenv(name, default)
    ContextVar.registry[name] = self

  @property
  def type(self) -> type[T]:
    """`int` or `str`."""
    return type(self.default)

  def __repr__(self) -> str:
    return f"ContextVar({self.name}={self.value!r})"

  def __bool__(self) -> bool:
    return bool(self.value)

  def __int__(self) -> int:
    return int(self.value)

  def __str__(self) -> str:
    return str(self.value)

  def __ge__(self, other: T) -> bool:
    return self.value >= other

  def __gt__(self, other: T) -> bool:
    return self.value > other

  def __le__(self, other: T) -> bool:
    return self.value <= other

  def __lt__(self, other: T) -> bool:
    return self.value < other


class EnvironmentVariable:
  """A variable that is no setting: one that other programs define as well (`NO_COLOR`), or that tests set. It is read
  anew each time. `doc` is a line for the table of them.

  No module of a tiny-* package reads the environment but through this class and `ContextVar`; so all that a program
  listens to is documented.
  """

  __slots__ = ("doc", "name")

  def __init__(self, name: str, doc: str) -> None:
    self.name, self.doc = name, doc

  def get(self) -> str:
    """Its value now; "" where it is not set."""
    return os.environ.get(self.name, "")

  def __bool__(self) -> bool:
    """Whether it is set, and not empty."""
    return self.get() != ""


settings_changed: list[Callable[[], None]] = []
"""Called when a `Context` has set settings, or restored them."""


class Context(ContextDecorator):
  """`with Context(DEBUG=2, NOOPT=1):` sets the named settings in the block and restores them after it.

  Also a decorator. Raises KeyError for a name that is no setting and TypeError for a value of the wrong type.
  """

  def __init__(self, **settings: int | str) -> None:
    for name, value in settings.items():
      var = ContextVar.registry.get(name)
      if var is None:
        raise KeyError(f"{name!r} is not a setting; the settings are {', '.join(sorted(ContextVar.registry))}")
      if not isinstance(value, var.type):
        raise TypeError(f"setting {name} takes {var.type.__name__}, got {type(value).__name__} {value!r}")
    self._settings = {n: int(v) if isinstance(v, bool) else v for n, v in settings.items()}
    self._saved: list[dict[str, int | str]] = []

  def __enter__(self) -> Context:
    self._saved.append({name: ContextVar.registry[name].value for name in self._settings})
    for name, value in self._settings.items():
      ContextVar.registry[name].value = value
    for told in settings_changed:
      told()
    return self

  def __exit__(self, *_: object) -> None:
    for name, value in self._saved.pop().items():
      ContextVar.registry[name].value = value
    for told in settings_changed:
      told()


DEVICE = ContextVar("DEVICE", "", "the default device (`CPU`, `AMD`, `CPU:1`); empty: the first usable one")
DEBUG = ContextVar(
  "DEBUG",
  0,
  "how much to print: 1 devices and cache hits, 2 a line per kernel with time, GFLOPS and GB/s, and totals at exit, "
  "3 optimisations chosen, 4 generated code, 5 UOps, 6 rewrites, 7 assembly",
)
DEBUG_KERNELS = ContextVar(
  "DEBUG_KERNELS",
  "",
  "of which kernels `DEBUG=3` to `7` print optimisations, code, UOps, rewrites and assembly: names or patterns, "
  "`reduce_64x64_r64,fill_*`; empty: of all",
)
NOOPT = ContextVar("NOOPT", 0, "1: no optimisations are chosen, kernels are lowered as scheduled")
BEAM = ContextVar(
  "BEAM", 0, "n: search for optimisations with a beam of n candidates, timed on the device; results are kept"
)
SPEC = ContextVar(
  "SPEC",
  0,
  "1: check graphs against the spec between stages, 2: after every rewrite, and prove that memory accesses are in "
  "bounds (needs `tiny-uop[proof]`)",
)
VIZ = ContextVar(
  "VIZ",
  0,
  "1: save a trace of compiler and run and show it in a browser, -1: only save it, "
  "-2: and hardware counters of devices that record them (none does yet)",
)
VIZ_FILE = ContextVar(
  "VIZ_FILE",
  "",
  "where `VIZ` saves the trace, compressed if it ends in `.gz`; `%p` stands for the process; empty: "
  "`tiny-trace-%p.jsonl.gz`",
)
VIZ_LIMIT = ContextVar("VIZ_LIMIT", 256, "megabytes of text at which a trace is cut off, before compression")
TRACK_MATCH_STATS = ContextVar(
  "TRACK_MATCH_STATS",
  0,
  "print at exit how often rewrite rules matched and the time they took, 1: per table, 2: per rule",
)
JIT = ContextVar("JIT", 1, "0: `TinyJit` runs the function every time instead of capturing it")
JIT_CHECK = ContextVar(
  "JIT_CHECK", 0, "1: `TinyJit` runs a captured function every time, and raises JitError where a replay would differ"
)
CACHELEVEL = ContextVar("CACHELEVEL", 2, "0: no caches of compiled kernels, 1: in memory, 2: and on disk")


def debugs(kernel: str, level: int) -> bool:
  """Whether DEBUG prints what belongs to a level about a kernel."""
  if level > DEBUG.value:
    return False
  patterns = DEBUG_KERNELS.value
  if not patterns:
    return True
  from fnmatch import fnmatchcase  # late: it imports re

  return any(fnmatchcase(kernel, pattern.strip()) for pattern in patterns.split(","))


NO_COLOR = EnvironmentVariable("NO_COLOR", "no colours on terminals, whatever its value (no-color.org)")
UPDATE_GOLDEN = EnvironmentVariable(
  "UPDATE_GOLDEN", "1: tests write what they find into the files that say what they expect (`pytest --update-golden`)"
)

SHARED = tuple(ContextVar.registry.values())  # a package may have more of its own, and then documents them


def table() -> str:
  """The settings of this module as a Markdown table, the one that the README shows."""
  rows = [f"| `{v.name}` | {v.type.__name__} | {v.default!r} | {v.doc} |" for v in SHARED]
  return "\n".join(["| name | type | default | meaning |", "|---|---|---|---|", *rows])
