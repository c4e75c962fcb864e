"""Profiles: a record of each launch, copy, compile and allocation, with its time.

Who does something asks `begin()` before, which is 0 while nobody records, and tells `end(start, …)` after it. While
somebody does, each launch is waited for, so that it has a time of its own: what devices would do at the same time as
the host, or as each other, comes one after the other. What raises is not recorded.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from tiny_runtime.counters import GlobalCounters
from tiny_runtime.profiling.record import Call, Kind, Record, Replay
from tiny_runtime.settings import PROFILE, PROFILE_FILE
from tiny_uop.context import DEBUG, VIZ, settings_changed
from tiny_uop.locks import in_child, shared_lock
from tiny_uop.origins import Origin
from tiny_uop.origins import recording as marks

if TYPE_CHECKING:
  from tiny_runtime.contract import Capabilities, Recording


class Peaks(NamedTuple):
  """What a device can do at most: operations of float32 and bytes of memory per second."""

  ops_per_s: float
  bytes_per_s: float


measurers: list[Callable[[str, float, float], Peaks | None]] = []
"""What finds the peaks of a device, given the highest rates that were seen; of a floor above."""
WORTH_MEASURING = 20_000_000
"""Nanoseconds that kernels take in all from which on peaks are measured."""


class Told(NamedTuple):
  """What is known of memory: what is in it, and where that comes from."""

  tensor: str
  origins: tuple[Origin, ...]


_numbers = count(1)
"""Of allocations."""


class Profile:
  """Records of all threads between `began` and `ended`; `print(p)` shows a table. See `profile`."""

  def __init__(self) -> None:
    self._told: list[Record | Replay] = []
    self._looked_at: tuple[int, list[Record]] = 0, []
    """Of how many of these there are records, and those."""
    self.threads: dict[int, str] = {}
    """The name of each thread that has records."""
    self.process = os.getpid()
    """The system's number of the process."""
    self.began = perf_counter_ns()
    """Nanoseconds of `time.perf_counter_ns`."""
    self.ended: int | None = None
    """The same; None while it records."""
    self.owner = threading.get_ident()
    self._peaks: dict[str, Peaks] | None = None
    self.by_kernel = False
    """Whether graphs whose devices tell no times of kernels are launched kernel by kernel."""

  @property
  def records(self) -> list[Record]:
    """In the order in which things were done with. Those of kernels in a captured graph are made when they are looked
    at: a program that is recorded has no time for them."""
    known, records = self._looked_at
    if new := self._told[known:]:
      made = [record for told in new for record in (told.records() if isinstance(told, Replay) else (told,))]
      records = [*records, *made]
      self._looked_at = known + len(new), records  # in one step: other threads record and look meanwhile
    return records

  @records.setter
  def records(self, records: list[Record]) -> None:
    self._told, self._looked_at = [*records], (0, [])

  @property
  def empty(self) -> bool:
    """Whether nothing was recorded so far."""
    return not self._told

  def peaks(self) -> dict[str, Peaks]:
    """Of each device whose kernels took some time, what it can do at most: the rates of a matrix product and of a sum
    of large arrays there, which are measured when they are first asked for. Devices that are gone are left out."""
    if self._peaks is None:
      self._peaks = {}
      launches = [record for record in self.records if record.kind in ("kernel", "graph") and record.busy]
      for device in dict.fromkeys(record.device for record in launches):
        own = [record for record in launches if record.device == device]
        if self.ended is None or sum(record.busy for record in own) < WORTH_MEASURING:
          continue
        rates = [max(getattr(record, field) / record.busy for record in own) * 1e9 for field in ("ops", "nbytes")]
        for measure in measurers:
          if (found := measure(device, *rates)) is not None:
            self._peaks[device] = found
    return self._peaks

  @property
  def duration(self) -> int:
    """Nanoseconds from its beginning to its end, or to now."""
    return (self.ended or perf_counter_ns()) - self.began

  def add(self, told: Record | Replay, thread: str) -> None:
    """Called for everything that was done by a thread. What comes late, of other threads, is left out."""
    if self.ended is None:
      self.threads.setdefault(told.thread, thread)
      self._told.append(told)

  def table(self, limit: int = 30) -> str:
    """Text: what took how long, the longest first, `limit` lines at most; and where the time went, in all."""
    from tiny_runtime.profiling.table import text  # late, as all below: most who record do it to look once

    return text(self, limit)

  def memory(self, limit: int = 20) -> str:
    """Text: what was in memory when most of it was in use, the largest first: which values, who asked for them by which
    line, and when they came and went, in milliseconds of the profile."""
    from tiny_runtime.profiling.table import memory_text

    return memory_text(self, limit)

  __str__ = table

  def __repr__(self) -> str:
    return f"<Profile of {len(self.records)} records in {self.duration * 1e-9:.3f} s>"

  def _repr_html_(self) -> str:
    """The table in a notebook."""
    from tiny_runtime.profiling.table import page

    return page(self)

  def chrome(self, path: str | os.PathLike[str]) -> None:
    """Write Chrome's JSON trace format, which https://ui.perfetto.dev and chrome://tracing show; compressed if `path`
    ends in `.gz`. OSError, which names the file, where it cannot be written; then nothing is."""
    from tiny_runtime.profiling.files import chrome, write

    write(path, chrome(self))

  def perfetto(self, path: str | os.PathLike[str]) -> None:
    """Write Perfetto's protobuf, a third of the size; path and errors as for `chrome`."""
    from tiny_runtime.profiling.files import write
    from tiny_runtime.profiling.perfetto import perfetto

    write(path, perfetto(self))

  def csv(self, path: str | os.PathLike[str]) -> None:
    """Write a table with a line per record, under the names of Record's fields; path and errors as for `chrome`."""
    from tiny_runtime.profiling.files import comma_separated, write

    write(path, comma_separated(self))

  def jsonl(self, path: str | os.PathLike[str]) -> None:
    """Write lines of JSON, which `tiny_viz` reads: `tiny_runtime.profiling.record` has the format. Path and errors as
    for `chrome`."""
    from tiny_runtime.profiling.files import lines, write

    write(path, lines(self))

  def save(self, path: str | os.PathLike[str]) -> None:
    """Write the format that the path's end names: `.json`, `.jsonl`, `.pftrace` or `.csv`, each also with `.gz`.
    ValueError for another."""
    name = os.fspath(path)
    writers = {".json": self.chrome, ".jsonl": self.jsonl, ".pftrace": self.perfetto, ".csv": self.csv}
    ending = os.path.splitext(name.removesuffix(".gz"))[1]
    if ending not in writers:
      raise ValueError(f"a profile is saved as {', '.join(writers)}, each also with .gz; got {name!r}")
    writers[ending](path)


_open: tuple[Profile, ...] = ()
_process: Profile | None = None
_reported = False
"""Whether PROFILE asked for the profile of the process; else VIZ did."""
_over = False
_debugged = DEBUG.value >= 2
"""Whether the program was started with DEBUG=2, which ends with totals."""
_lock = shared_lock()


def begin() -> int:
  """The time in nanoseconds if anyone records, else 0."""
  return perf_counter_ns() if _open or PROFILE.value or VIZ.value or _debugged else 0


def end(
  start: int, kind: Kind, name: str, device: str, seconds: float | None = None, ops: int = 0, nbytes: int = 0,
  kernels: int = 0, origins: tuple[Origin, ...] = (), memory: int = 0, tensor: str = "", key: str = "",
  recording: Recording | None = None,
) -> None:  # fmt: skip
  """Record what began at `start`. `seconds` are the device's."""
  now = perf_counter_ns()
  busy = now - start if seconds is None else min(round(seconds * 1e9), now - start)
  thread, held = threading.get_native_id(), GlobalCounters.mem_used
  figures = start, now, busy, ops, nbytes, kernels, held
  made = Record(kind, name, device, thread, *figures, origins, memory, tensor, key, recording)
  _add(made)


def end_of_alloc(start: int, name: str, device: str, nbytes: int, told: Told | None) -> int:
  """Record memory that was asked for at `start`. Gives the number that it is known by, also when it is freed."""
  number, (tensor, origins) = next(_numbers), told or Told("", ())
  end(start, "alloc", name, device, nbytes=nbytes, origins=origins or caller(), memory=number, tensor=tensor)
  return number


def caller() -> tuple[Origin, ...]:
  """The line of the program that asks for something: the innermost one outside of our packages."""
  frame: FrameType | None = sys._getframe(1)
  while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0].startswith("tiny_"):
    frame = frame.f_back
  if frame is None:
    return ()
  return (Origin(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, "", "forward"),)


def replayed(start: int, seconds: float, calls: Sequence[Call], times: Sequence[tuple[float, float]]) -> None:
  """Record the kernels of a captured graph that has just ended, was submitted at `start` and took so many seconds, with
  what its device says of their times."""
  began = max(start, perf_counter_ns() - round(seconds * 1e9))
  _add(Replay(calls, times, began, threading.get_native_id(), GlobalCounters.mem_used))


def _add(told: Record | Replay) -> None:
  thread = threading.current_thread().name
  profiles = [*_open]
  if (PROFILE.value or VIZ.value or _debugged) and (whole := process_profile()) is not None:
    if whole.empty:  # so late that devices are closed after it
      atexit.register(_report)
    profiles.append(whole)
  for each in profiles:
    each.add(told, thread)


def by_kernel() -> bool:
  """Whether a captured graph is to be launched kernel by kernel where its device does not tell their times."""
  return PROFILE.value >= 2 or any(each.by_kernel for each in _open)


def recorded(capabilities: Capabilities) -> bool:
  """Whether the hardware is to record what the waves of each launch do."""
  return VIZ.value <= -2 and capabilities.recordings


@contextmanager
def profile(by_kernel: bool = False) -> Iterator[Profile]:
  """`with profile() as p:` records every launch, copy, compile and allocation of the process in the block; `print(p)`.

  Each launch is waited for, so nothing overlaps. A captured graph is one launch, whose kernels are told with their
  times by devices that can (`Capabilities.graph_times`: CPU, CUDA, AMD). With `by_kernel` others launch them one by
  one, each with its time, and what they take together is more than the graph's. Blocks may be nested and open in
  several threads: each records what all threads do. After a fork the child's profile is empty, and goes on with what
  the child does.
  """
  global _open
  made = Profile()
  made.by_kernel = by_kernel
  with _lock:
    _open += (made,)
  try:
    with marks.on():
      yield made
  finally:
    made.ended = perf_counter_ns()
    with _lock:
      _open = tuple([each for each in _open if each is not made])


def process_profile() -> Profile | None:
  """What PROFILE=1 and VIZ record into; None once the program has ended."""
  global _process, _reported
  with _lock:
    _reported = _reported or PROFILE.value > 0 or _debugged
    if _process is None and not _over:
      made = _process = Profile()
      if VIZ.value:
        from tiny_uop.observe import also_save  # late: it comes with what writes traces

        also_save(lambda: _section(made))
    return _process


def _section(whole: Profile) -> str:
  """The run, as a section of the trace that VIZ saves; empty where nothing ran."""
  from tiny_runtime.profiling.files import lines

  if VIZ.value <= -2:
    ran = [record for record in whole.records if record.kind in ("kernel", "graph")]
    told = {record.device for record in ran if record.recording is not None}
    devices = dict.fromkeys(record.device for record in ran if record.device not in told)
    who = (
      f"{', '.join(devices)} record{'' if len(devices) > 1 else 's'}" if devices else "no device ran, so none recorded"
    )
    if devices or not ran:
      print(f"VIZ=-2   {who} no hardware counters and no waves: the trace is that of VIZ=-1", file=sys.stderr)
  return lines(whole).decode() if not whole.empty else ""


def _report() -> None:
  """Print the table of PROFILE=1 or DEBUG=2, and write the file of PROFILE=1."""
  global _process, _over
  whole, _process, _over = _process, None, True
  if whole is None:
    return
  whole.ended = perf_counter_ns()
  if whole.empty or not _reported:
    return
  print(whole.table(30 if PROFILE.value else 12), file=sys.stderr)
  if PROFILE.value and PROFILE_FILE.value:
    path = PROFILE_FILE.value.replace("%p", str(whole.process))
    try:
      whole.save(path)
      print(f"profile  {path}", file=sys.stderr)
    except (OSError, ValueError) as error:
      print(f"profile  not written: {error}; set PROFILE_FILE to another", file=sys.stderr)


@in_child
def _begin_anew() -> None:
  """In a forked child: what was recorded is the parent's, and other threads are not there."""
  global _open, _process
  _process = None
  _open = tuple([each for each in _open if each.owner == threading.get_ident()])
  for each in _open:
    each.__init__()  # type: ignore[misc]  # the object that the block knows


class _Settings:
  """Marks of origins are made while the settings ask for what shows them."""

  wanted = False

  @classmethod
  def changed(cls) -> None:
    """Called when they have."""
    now = PROFILE.value > 0 or DEBUG.value >= 2 or VIZ.value != 0
    if now is not cls.wanted:
      cls.wanted = now
      marks.change(1 if now else -1)


settings_changed.append(_Settings.changed)
_Settings.changed()
if PROFILE.value or VIZ.value or _debugged:
  process_profile()  # the time until the first record is a part of the program's
