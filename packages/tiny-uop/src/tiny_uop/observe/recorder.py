"""VIZ=-1: a trace of the work in a file; VIZ=1: and shown in a browser. The format is that of the README's section "The
trace file".

The browser is tiny-viz's, a process of its own. A program that runs shows what there is so far when it gets the signal
SIGUSR1 (on Windows: Ctrl-Break).
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from tiny_uop.context import VIZ, VIZ_FILE, VIZ_LIMIT
from tiny_uop.locks import in_child, shared_lock
from tiny_uop.observe.observer import Observer, Rewrite, Span
from tiny_uop.observe.stats import MatchStats
from tiny_uop.system import signal_to_show
from tiny_uop.text.print import IR_VERSION, print_literal

if TYPE_CHECKING:
  from tiny_uop.pattern import Rule
  from tiny_uop.uop import UOp

T = TypeVar("T")
TRACE_VERSION = 1
"""Version of the trace file."""
MEGABYTE = 1_000_000
_BLOCK = 1 << 16
_MOST = 60  # lines about a rule
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

  def flush(self, mode: int = zlib.Z_NO_FLUSH) -> None:
    """Write what waits. A compressor keeps some of it to itself, unless `mode` of zlib tells it not to."""
    data = "".join(self.lines).encode()
    self.lines, self.waiting = [], 0
    if self.packer is not None:
      data = self.packer.compress(data) + (self.packer.flush(mode) if mode else b"")
    view = memoryview(data)
    while view:
      view = view[os.write(self.descriptor, view) :]

  def close(self) -> None:
    self.flush(zlib.Z_FINISH)
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
    key = [span.before.key[:8].hex()] if span.kind == "kernel" and span.before is not None else []
    if self._write(
      ["begin", inside, span.kind, span.name, before, self._time(span.started), threading.get_native_id(), *key]
    ):
      self._begun += 1
      self._spans[span] = number
    return number

  def _rule(self, table: str, rule: Rule) -> int:
    known = self._rules.get((table, rule))
    if known is None:
      known = self._rules[table, rule] = len(self._rules)
      self._write(["rule", table, rule.name, rule.where, _about(rule)], always=True)
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
    versions, clock = {"tiny-trace": TRACE_VERSION, "ir": IR_VERSION}, round(self._started * 1e9)
    return {**versions, "program": sys.argv, "process": pid, "started": now, "clock": clock}

  def _fail(self, error: OSError) -> None:
    self._closed = True
    if self._file is not None:
      self._file.discard()
      self._file = None
    why = f"no trace is saved: {self.path}: {error.strerror}; set VIZ_FILE to a file that can be written"
    warnings.warn(why, RuntimeWarning, stacklevel=2)

  # *** its end ***

  def save(self, more: str = "") -> Path | None:
    """Complete the file and give its path; None where there was nothing to record, or the file could not be written.
    `more`: lines of another section."""
    with self._lock:
      if self._file is None and (not more or self._closed):
        self._closed = True
        return None
      for line in (*self._ending(), *more.splitlines()):
        self._put(line, always=True)
      try:
        if self._file is not None:
          self._file.close()
      except OSError as error:
        self._fail(error)
      saved = None if self._closed else self.path
      self._file, self._closed = None, True
      return saved

  def _ending(self) -> list[str]:
    """The last records."""
    records: list[list[Any]] = []
    for table, rule, count in self.stats.tallies():
      times = [round(count.match_seconds * 1e6, 1), round(count.seconds * 1e6, 1)]
      records.append(["stats", self._rule(table, rule), count.matches, count.attempts, *times])
    return [json.dumps(record, separators=(",", ":")) for record in (*records, ["complete", self.rewrites])]

  def copy(self, path: Path, more: str = "") -> Path:
    """Write what there is so far to another file, uncompressed, as `save` would; recording goes on. Gives the path;
    OSError where it cannot be written."""
    with self._lock:
      ending, part, size = self._ending(), None, 0
      if self._file is not None:
        self._file.flush(zlib.Z_SYNC_FLUSH)
        part, size = self._file.part, os.stat(self._file.part).st_size
      packed = self._file is not None and self._file.packer is not None
    with open(path, "wb") as out:
      if part is not None:
        unpacker = zlib.decompressobj(_GZIP) if packed else None
        with open(part, "rb") as source:
          while size and (data := source.read(min(size, 1 << 20))):
            size -= len(data)
            out.write(data if unpacker is None else unpacker.decompress(data))
        out.write("".join([line + "\n" for line in ending]).encode())
      out.write(more.encode())
    return path

  def abandon(self) -> None:
    """Forget all, in a child process: the file is the parent's."""
    self.stats = MatchStats()
    if self._file is not None:
      with suppress(OSError):
        os.close(self._file.descriptor)
    self._file, self._closed, self._busy = None, True, False


def _about(rule: Rule) -> str:
  """A rule for people: its pattern, what takes its place, and what it says of itself."""
  import inspect  # late: only who records needs it

  lines = [repr(rule.pattern)]
  try:
    lines += inspect.cleandoc("\n" + inspect.getsource(rule.replacement)).splitlines()[:_MOST]
  except (OSError, TypeError):
    lines.append(repr(rule.replacement))
  named = (("changes", rule.changes), ("grows", rule.grows))
  return "\n".join([*lines, *[f"{what}: {text}" for what, text in named if text]])


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
_copies = 0
_shown: bool | None = None
"""Whether the trace of this process is shown in a browser; None before it is known."""
_sections: list[Callable[[], str]] = []
_servers: dict[Path, subprocess.Popen[bytes]] = {}
"""Of copies of what there was so far, which go when the program ends."""
_making = shared_lock()


def process_recorder() -> Recorder:
  """What VIZ writes to: `VIZ_FILE`, at most `VIZ_LIMIT` megabytes."""
  global _process, _shown
  with _making:
    if _process is None:
      made = Recorder(trace_path(), VIZ_LIMIT.value * MEGABYTE)
      atexit.register(_save_and_show)
      if _shown is None and VIZ.value > 0:
        _shown = True
        _listen()
      _process = _process or made
    return _process


def also_save(section: Callable[[], str]) -> None:
  """What VIZ saves has these lines at its end, too: a section that begins with its head. It is asked for when the trace
  is saved or shown, on any thread; empty: nothing."""
  process_recorder()
  _sections.append(section)


def trace_path() -> Path:
  """The file that the next trace of this process is saved to; a second one gets a number."""
  name = VIZ_FILE.value or "tiny-trace-%p.jsonl.gz"
  path = Path(name.replace("%p", str(os.getpid())))
  return _beside(path, f"-{_saved + 1}") if _saved else path


def _beside(path: Path, ending: str) -> Path:
  stem, dot, rest = path.name.partition(".")
  return path.with_name(f"{stem}{ending}{dot}{rest}")


def save_trace() -> Path | None:
  """Save what VIZ has recorded so far, as is done at exit, and say where on stderr. What follows goes to another
  file. None where there is nothing to save."""
  global _process, _saved
  with _making:
    recorder, _process = _process, None
    if recorder is None or (path := recorder.save("".join([section() for section in _sections]))) is None:
      return None
    _saved += 1
  what = f"{recorder.rewrites} rewrite{'' if recorder.rewrites == 1 else 's'}"
  cut = ", cut off at VIZ_LIMIT" if recorder.truncated else ""
  print(f"trace    {what}{cut}: python -m tiny_viz {path}", file=sys.stderr)
  return path


def _save_and_show() -> None:
  """At exit."""
  for copy, started in _servers.items():
    started.terminate()
    with suppress(OSError):
      os.unlink(copy)
  if (path := save_trace()) is not None and _shown:
    with suppress(KeyboardInterrupt):  # the way to end it
      if (server := _serve(path)) is not None:
        server.wait()


def _serve(path: Path) -> subprocess.Popen[bytes] | None:
  """Start the browser's server on a trace. It ends with this process, however that ends: it reads from it."""
  if find_spec("tiny_viz") is None:
    print(f"trace    no browser: pip install tiny-viz, then python -m tiny_viz serve {path}", file=sys.stderr)
    return None
  command = [sys.executable, "-m", "tiny_viz", "serve", os.fspath(path), "--until-closed"]
  return subprocess.Popen(command, stdin=subprocess.PIPE)


def _listen() -> None:
  """Show what there is so far when the signal comes, where nobody else waits for it."""
  if threading.current_thread() is not threading.main_thread():
    return
  number, how = signal_to_show()
  if signal.getsignal(number) is signal.SIG_DFL:
    # on a thread of its own: the signal may have come while this one writes
    signal.signal(number, lambda *_: threading.Thread(target=_show_so_far, daemon=True).start())
    print(f"trace    {how} shows what there is so far", file=sys.stderr)


def _show_so_far() -> None:
  global _copies
  recorder = _process
  if recorder is None:
    return
  with _making:
    _copies += 1
    number = _copies
  try:
    name = recorder.path.name.removesuffix(".gz")
    path = recorder.copy(_beside(recorder.path.with_name(name), f"-so-far-{number}"), "".join([s() for s in _sections]))
  except OSError as error:
    print(f"trace    nothing to show: {error}", file=sys.stderr)
    return
  if (server := _serve(path)) is not None:
    _servers[path] = server


@in_child
def _abandon_all() -> None:
  global _process, _saved, _shown
  _process, _saved, _shown = None, 0, False
  _sections.clear()
  _servers.clear()
  for recorder in list(_recorders):
    recorder.abandon()
