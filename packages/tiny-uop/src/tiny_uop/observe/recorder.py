"""VIZ=-1: a trace of the work in a file. The format is that of the README's section "The trace file"."""

from __future__ import annotations

import atexit
import json
import os
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from tiny_uop.context import VIZ_FILE, VIZ_LIMIT
from tiny_uop.locks import in_child, shared_lock
from tiny_uop.observe.observer import Observer, Rewrite, Span
from tiny_uop.observe.stats import MatchStats
from tiny_uop.text.print import IR_VERSION, print_literal

if TYPE_CHECKING:
  from tiny_uop.pattern import Rule
  from tiny_uop.uop import UOp

T = TypeVar("T")
TRACE_VERSION = 1
"""Version of the trace file."""
MEGABYTE = 1_000_000
_BLOCK = 1 << 16
_GZIP = 31  # zlib's number for the format of gzip


class _File:
  """Lines into a temporary file beside `path`, which takes the name `path` when it is complete.

  It has no buffers but its own, so that a child process cannot write them out once more.
  """

  def __init__(self, path: Path) -> None:
    self.path = path
    path.parent.mkdir(parents=True, exist_ok=True)
    self.descriptor, self.part = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".part", dir=path.parent)
    self.packer = zlib.compressobj(6, wbits=_GZIP) if path.suffix == ".gz" else None
    self.lines: list[str] = []
    self.waiting = self.written = 0

  def add(self, line: str) -> None:
    self.lines.append(line)
    self.waiting += len(line)
    self.written += len(line)
    if self.waiting >= _BLOCK:
      self.flush()

  def flush(self, last: bool = False) -> None:
    data = "".join(self.lines).encode()
    self.lines, self.waiting = [], 0
    if self.packer is not None:
      data = self.packer.compress(data) + (self.packer.flush() if last else b"")
    view = memoryview(data)
    while view:
      view = view[os.write(self.descriptor, view) :]

  def close(self) -> None:
    self.flush(last=True)
    os.close(self.descriptor)
    os.replace(self.part, self.path)

  def discard(self) -> None:
    with suppress(OSError):
      os.close(self.descriptor)
    with suppress(OSError):
      os.unlink(self.part)


class Recorder(Observer):
  """Writes what it is told to a trace file, up to `limit` bytes of text (before compression). Threads may share it.

  The file appears, complete, at `save()`, under the name `path`; before that it is `path.….part`. Nothing is written
  before there is something to record. Nodes are not kept alive.
  """

  def __init__(self, path: str | os.PathLike[str], limit: int = 256 * MEGABYTE) -> None:
    self.path, self.limit = Path(path), limit
    self.rewrites = 0
    self.truncated = False
    self.stats = MatchStats()
    self._file: _File | None = None
    self._closed = False
    self._started = time.perf_counter()
    self._nodes: WeakKeyDictionary[UOp, int] = WeakKeyDictionary()
    self._known: dict[str, int] = {}  # a dropped node that is made again is found by its line
    self._rules: dict[tuple[str, Rule], int] = {}
    self._spans: dict[Span, int] = {}
    self._begun = 0
    self._lock = shared_lock()
    self._busy = False
    _recorders.add(self)

  # *** what is told ***

  def begin(self, span: Span) -> None:
    # a table in which no rule applies leaves no record
    if span.kind != "table":
      self._record(self._number_of, span)

  def end(self, span: Span) -> None:
    self._record(self._end, span)

  def tried(self, table: str, rule: Rule, seconds: float, matched: bool) -> None:
    self.stats.tried(table, rule, seconds, matched)

  def rewrote(self, step: Rewrite) -> None:
    self._record(self._rewrote, step)

  # *** records ***

  def _record(self, write: Callable[[T], object], what: T) -> None:
    """Write what was told. A signal handler or finaliser that computes while this thread writes is left out: its lines
    would come between those that count on each other's numbers."""
    with self._lock:
      if self._busy:
        return
      self._busy = True
      try:
        write(what)
      finally:
        self._busy = False

  def _end(self, span: Span) -> None:
    number = self._spans.pop(span, None)
    if number is not None and not self._full():
      after = None if span.after is None else self._node(span.after)
      self._write(["end", number, after, self._time(span.started + span.seconds)])

  def _rewrote(self, step: Rewrite) -> None:
    if self._full():
      return
    place, rule = self._number_of(step.span), self._rule(step.table, step.rule)
    before, after = self._node(step.before), self._node(step.after)
    times = [self._time(step.started), round(step.seconds * 1e6, 1)]
    if self._write(["rewrite", place, rule, before, after, *times]):
      self.rewrites += 1

  def _number_of(self, span: Span | None) -> int | None:
    """The number of a span, which is written if it has not been, after those that it is in."""
    if span is None or self not in span.observers:
      return None
    if (found := self._spans.get(span)) is not None:
      return found
    if self._full():
      return None
    inside = self._number_of(span.parent)
    before = None if span.before is None else self._node(span.before)
    number = self._begun
    if self._write(["begin", inside, span.kind, span.name, before, self._time(span.started), threading.get_ident()]):
      self._begun += 1
      self._spans[span] = number
    return number

  def _rule(self, table: str, rule: Rule) -> int:
    known = self._rules.get((table, rule))
    if known is None:
      known = self._rules[table, rule] = len(self._rules)
      self._write(["rule", table, rule.name, rule.where], always=True)
    return known

  def _node(self, root: UOp) -> int:
    """The number of a node, which is written if it has not been, after its sources."""
    nodes, known = self._nodes, self._known
    if (found := nodes.get(root)) is not None:
      return found
    for node in root.walk(lambda u: u not in nodes):
      if node in nodes:
        continue
      record: list[Any] = ["node", node.op.name, node.dtype.name, [nodes[s] for s in node.src]]
      if node.arg is not None or node.tag is not None:
        record.append(_literal(node.arg))
      if node.tag is not None:
        record.append(_literal(node.tag))
      line = json.dumps(record, separators=(",", ":"))
      number = known.get(line)
      if number is None:
        number = known[line] = len(known)
        self._put(line)
      nodes[node] = number
    return nodes[root]

  def _time(self, at: float) -> float:
    return round((at - self._started) * 1e6, 1)

  def _write(self, record: list[Any], always: bool = False) -> bool:
    return self._put(json.dumps(record, separators=(",", ":")), always)

  def _full(self) -> bool:
    """Whether rewrites and spans are recorded no more: at the limit, after `save()`, or when writing has failed."""
    return self.truncated or self._closed

  def _put(self, line: str, always: bool = False) -> bool:
    """Add a line, unless the trace is full; the records that end a trace are written `always`."""
    if self._closed or (self.truncated and not always):
      return False
    try:
      if self._file is None:
        self._file = _File(self.path)
        self._file.add(json.dumps(self._header()) + "\n")
      if not always and self._file.written + len(line) > self.limit:
        self.truncated = True
        self._file.add(json.dumps(["truncated", self.limit, self._time(time.perf_counter())]) + "\n")
        return False
      self._file.add(line + "\n")
    except OSError as error:
      self._fail(error)
      return False
    return True

  def _header(self) -> dict[str, Any]:
    now, pid = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), os.getpid()
    return {"tiny-trace": TRACE_VERSION, "ir": IR_VERSION, "program": sys.argv, "process": pid, "started": now}

  def _fail(self, error: OSError) -> None:
    self._closed = True
    if self._file is not None:
      self._file.discard()
      self._file = None
    why = f"no trace is saved: {self.path}: {error.strerror}; set VIZ_FILE to a file that can be written"
    warnings.warn(why, RuntimeWarning, stacklevel=2)

  # *** its end ***

  def save(self) -> Path | None:
    """Complete the file and give its path; None where there was nothing to record, or the file could not be written."""
    with self._lock:
      if self._file is None:
        self._closed = True
        return None
      for table, rule, count in self.stats.tallies():
        times = [round(count.match_seconds * 1e6, 1), round(count.seconds * 1e6, 1)]
        number = self._rule(table, rule)
        self._write(["stats", number, count.matches, count.attempts, *times], always=True)
      self._write(["complete", self.rewrites], always=True)
      try:
        if self._file is not None:
          self._file.close()
      except OSError as error:
        self._fail(error)
      saved = None if self._closed else self.path
      self._file, self._closed = None, True
      return saved

  def abandon(self) -> None:
    """Forget all, in a child process: the file is the parent's."""
    self.stats = MatchStats()
    if self._file is not None:
      with suppress(OSError):
        os.close(self._file.descriptor)
    self._file, self._closed, self._busy = None, True, False


def _literal(value: Any) -> str | None:
  if value is None:
    return None
  try:
    return print_literal(value)
  except TypeError:
    return json.dumps(repr(value))  # not legal in an argument; the trace may be what finds it


_recorders: WeakSet[Recorder] = WeakSet()
_process: Recorder | None = None
_saved = 0
_making = shared_lock()


def process_recorder() -> Recorder:
  """What VIZ=-1 writes to: `VIZ_FILE`, at most `VIZ_LIMIT` megabytes."""
  global _process
  with _making:
    if _process is None:
      made = Recorder(trace_path(), VIZ_LIMIT.value * MEGABYTE)
      atexit.register(save_trace)
      _process = _process or made
    return _process


def trace_path() -> Path:
  """The file that the next trace of this process is saved to; a second one gets a number."""
  name = VIZ_FILE.value or "tiny-trace-%p.jsonl.gz"
  path = Path(name.replace("%p", str(os.getpid())))
  stem, dot, rest = path.name.partition(".")
  return path.with_name(f"{stem}-{_saved + 1}{dot}{rest}") if _saved else path


def save_trace() -> Path | None:
  """Save what VIZ=-1 has recorded so far, as is done at exit, and say where on stderr. What follows goes to another
  file. None where there is nothing to save."""
  global _process, _saved
  with _making:
    recorder, _process = _process, None
    if recorder is None or (path := recorder.save()) is None:
      return None
    _saved += 1
  what = f"{recorder.rewrites} rewrite{'' if recorder.rewrites == 1 else 's'}"
  cut = ", cut off at VIZ_LIMIT" if recorder.truncated else ""
  print(f"trace    {what}{cut}: python -m tiny_viz {path}", file=sys.stderr)
  return path


@in_child
def _abandon_all() -> None:
  global _process, _saved
  _process, _saved = None, 0
  for recorder in list(_recorders):
    recorder.abandon()
