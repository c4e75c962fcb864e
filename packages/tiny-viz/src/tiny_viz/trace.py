"""Reads a trace file, the format of which tiny-uop's README has. Text from anywhere is safe: it is checked record by
record, and nothing in it is evaluated.

A file has one section or two, each begun by its head: the compiler's, `{"tiny-trace": 1, ...}`, of which this module
reads the records, and the run's, `{"profile": 1, ...}`, which `run.py` reads.
"""

from __future__ import annotations

import json
import os
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, overload

from tiny_uop import IR_VERSION
from tiny_uop.observe import TRACE_VERSION, MatchCount
from tiny_viz.errors import TraceError
from tiny_viz.run import Run, RunReader, printable

MAX_LINE = 1 << 24
MAX_TEXT = 1 << 32
_BLOCK = 1 << 20
NO_TRACE = 'this is not a trace: expected {"tiny-trace": 1, …}; a trace is what a program run with VIZ=-1 saves'


@dataclass(frozen=True, slots=True)
class RuleInfo:
  """A rule, in the service of a table; `text` says what it does."""

  table: str
  name: str
  where: str
  text: str = ""


@dataclass(frozen=True, slots=True)
class Step:
  """One rewrite; `before` and `after` are numbers of nodes, times are in seconds since the start of the trace."""

  number: int
  span: int | None
  rule: RuleInfo
  before: int
  after: int
  started: float
  seconds: float


@dataclass(slots=True)
class SpanInfo:
  """A piece of work; `before` and `after` are numbers of nodes."""

  number: int
  parent: int | None
  kind: str
  name: str
  before: int | None
  started: float
  thread: int
  key: str = ""
  """Of a kernel: what its graph is known by, in every trace; empty in older ones."""
  after: int | None = None
  seconds: float | None = None
  """None where the trace ends before the work did."""
  children: list[SpanInfo] = field(default_factory=list)
  steps: list[Step] = field(default_factory=list)

  def all_steps(self) -> list[Step]:
    """The rewrites in it and in all spans inside it, in order."""
    found: list[Step] = []
    stack = [self]
    while stack:
      span = stack.pop()
      found += span.steps
      stack += span.children
    return sorted(found, key=lambda step: step.number)


@dataclass(frozen=True, slots=True)
class NodeInfo:
  """A node as the trace has it; `arg` and `tag` are literals of the textual form."""

  op: str
  dtype: str
  src: tuple[int, ...]
  arg: str | None
  tag: str | None


class Nodes(Sequence[NodeInfo]):
  """The nodes of a trace. Each is kept as its line of the file until it is asked for: of millions, few are looked at.
  A line that is wrong is a TraceError then."""

  def __init__(self) -> None:
    self._items: list[bytes | NodeInfo] = []
    self._lines = array("Q")
    self._reader: _Reader | None = None

  def __len__(self) -> int:
    return len(self._items)

  @overload
  def __getitem__(self, number: int) -> NodeInfo: ...

  @overload
  def __getitem__(self, number: slice) -> list[NodeInfo]: ...

  def __getitem__(self, number: int | slice) -> NodeInfo | list[NodeInfo]:
    if isinstance(number, slice):
      return [self[n] for n in range(*number.indices(len(self)))]
    found = self._items[number]
    if isinstance(found, bytes):
      assert self._reader is not None
      found = self._items[number] = self._reader.late_node(found, number % len(self), self._lines[number])
    return found

  def add(self, line: bytes | NodeInfo, reader: _Reader) -> None:
    """Keep a node, or the line that it stands on."""
    self._items.append(line)
    self._lines.append(reader.number)
    self._reader = reader


@dataclass(slots=True)
class Trace:
  """All of a trace. `complete`: the program came to its end; `truncated`: at which size, in bytes, it was cut off.
  `run`: what ran and when, None where the file has no such section."""

  header: dict[str, Any] = field(default_factory=dict)
  nodes: Nodes = field(default_factory=Nodes)
  spans: list[SpanInfo] = field(default_factory=list)
  rules: list[RuleInfo] = field(default_factory=list)
  steps: list[Step] = field(default_factory=list)
  stats: list[tuple[RuleInfo, MatchCount]] = field(default_factory=list)
  truncated: int | None = None
  complete: bool = False
  run: Run | None = None

  def roots(self) -> list[SpanInfo]:
    """The spans that are in no other."""
    return [span for span in self.spans if span.parent is None]


def read_trace(path: str | os.PathLike[str], lazy: bool = False) -> Trace:
  """The trace in a file, compressed or not. Raises TraceError, and OSError where the file cannot be read.

  A file that ends early (its program was killed) is read as far as it goes: `complete` is then False. `lazy`: nodes are
  checked when they are asked for, which is seven times as fast.
  """
  reader = _Reader(Path(path), lazy)
  with open(path, "rb") as file:
    for line in _lines(file, reader):
      reader.read(line)
  if not reader.number:
    reader.fail("the file is empty")
  return reader.trace


def _lines(file: BinaryIO, reader: _Reader) -> Iterator[bytes]:
  """The complete lines of a file; a last line without its end is left out."""
  rest, total = b"", 0
  for data in _unpacked(file, reader):
    total += len(data)
    if total > MAX_TEXT:
      reader.fail(f"the text is longer than {MAX_TEXT} bytes")
    *lines, rest = (rest + data).split(b"\n")
    yield from lines
    if len(rest) > MAX_LINE:
      reader.fail(f"a line is longer than {MAX_LINE} bytes")


def _unpacked(file: BinaryIO, reader: _Reader) -> Iterator[bytes]:
  unpacker = None
  while data := file.read(_BLOCK):
    if reader.packed is None:
      reader.packed = data[:2] == b"\x1f\x8b"
      unpacker = zlib.decompressobj(31) if reader.packed else None
    if unpacker is None:
      yield data
      continue
    while data and not unpacker.eof:
      try:
        text = unpacker.decompress(data, _BLOCK)  # a little at a time: a small file can hold a lot of text
      except zlib.error as error:
        reader.fail(f"the compressed data are damaged: {error}")
      data = unpacker.unconsumed_tail
      yield text


class _Reader:
  """Checks records and adds them to a trace."""

  def __init__(self, path: Path, lazy: bool = False) -> None:
    self.path, self.trace, self.number, self.lazy = path, Trace(), 0, lazy
    self.packed: bool | None = None
    self.run: RunReader | None = None
    self.kinds = {
      "node": self.node, "rule": self.rule, "begin": self.begin, "end": self.end, "rewrite": self.rewrite,
      "stats": self.stats, "truncated": self.cut, "complete": self.complete,
    }  # fmt: skip

  def fail(self, message: str) -> NoReturn:
    raise TraceError(f"{self.path}, line {max(self.number, 1)}: {message}")

  def read(self, line: bytes) -> None:
    self.number += 1
    if self.lazy and line.startswith(b'["node",') and self.trace.header:
      return self.trace.nodes.add(line, self)
    record = self.decoded(line)
    if isinstance(record, dict) and (self.number == 1 or "tiny-trace" in record or "profile" in record):
      return self.header(record)
    if isinstance(record, dict) and self.run is not None:
      return self.run.read(record)
    if self.number == 1:
      self.fail(NO_TRACE)
    if not isinstance(record, list) or not record or not isinstance(record[0], str):
      self.fail(f"expected a list that begins with a word, found {line[:40]!r}")
    read = self.kinds.get(record[0])
    if read is None:
      self.fail(f"unknown record {record[0][:40]!r}: expected one of {', '.join(self.kinds)}")
    if not self.trace.header:
      self.fail(f'a record {record[0]!r} of the compiler before its head: expected {{"tiny-trace": 1, …}}')
    read(record)

  def decoded(self, line: bytes) -> Any:
    try:
      return json.loads(line)
    except (ValueError, RecursionError) as error:
      self.fail(f"expected a record in JSON, found {line[:40]!r} ({type(error).__name__})")

  def header(self, record: dict[str, Any]) -> None:
    if "profile" in record:
      if self.run is not None:
        self.fail("a second run in one file: a trace has one")
      self.run = RunReader(record, self.fail)
      self.trace.run = self.run.run
      return
    if "tiny-trace" not in record:
      self.fail(NO_TRACE)
    if self.trace.header:
      self.fail("a second compiler's trace in one file: a trace has one")
    for key, known, what in (("tiny-trace", TRACE_VERSION, "trace format"), ("ir", IR_VERSION, "IR")):
      if record.get(key) != known:
        self.fail(
          f"version {str(record.get(key))[:20]} of the {what}, this tiny-viz reads version {known}: "
          "read the trace with the versions that wrote it"
        )
    self.trace.header = record

  # *** fields ***

  def fields(self, record: list[Any], least: int, most: int | None = None) -> list[Any]:
    if not least <= len(record) - 1 <= (most or least):
      self.fail(f"a {record[0]!r} record has {least} fields, found {len(record) - 1}")
    return record[1:]

  def text(self, value: Any, what: str) -> str:
    if not isinstance(value, str):
      self.fail(f"expected {what}, a string, found {str(value)[:40]!r}")
    return printable(value)

  def count(self, value: Any, what: str) -> int:
    if type(value) is not int or value < 0:
      self.fail(f"expected {what}, a number of at least 0, found {str(value)[:40]!r}")
    return value

  def place(self, value: Any, of: Sequence[Any], what: str) -> int:
    if self.count(value, f"the number of a {what}") >= len(of):
      self.fail(f"{what} {value} is used before its record: there are {len(of)} so far")
    return int(value)

  def maybe(self, value: Any, of: Sequence[Any], what: str) -> int | None:
    return None if value is None else self.place(value, of, what)

  def time(self, value: Any) -> float:
    """Seconds, of microseconds."""
    if type(value) not in (int, float) or not abs(value) < 1e18:
      self.fail(f"expected a time in microseconds, found {str(value)[:40]!r}")
    return float(value) * 1e-6

  # *** records ***

  def node(self, record: list[Any]) -> None:
    self.trace.nodes.add(self.checked_node(record, len(self.trace.nodes)), self)

  def late_node(self, line: bytes, number: int, line_number: int) -> NodeInfo:
    """The node with this number, of its line."""
    self.number = line_number
    return self.checked_node(self.decoded(line), number)

  def checked_node(self, record: list[Any], number: int) -> NodeInfo:
    op, dtype, src, *more = self.fields(record, 3, 5)
    if not isinstance(src, list):
      self.fail(f"expected the sources of a node, a list, found {str(src)[:40]!r}")
    arg, tag = (*more, None, None)[:2]
    for value in (op, dtype, *(v for v in (arg, tag) if v is not None)):
      if not isinstance(value, str):
        self.fail(f"expected text for operation, dtype, argument and tag of a node, found {str(value)[:40]!r}")
    known = range(number)
    return NodeInfo(op, dtype, tuple([self.place(s, known, "node") for s in src]), arg, tag)

  def rule(self, record: list[Any]) -> None:
    table, name, where, *text = self.fields(record, 3, 4)
    about = "\n".join([self.text(line, "a line about a rule") for line in self.lines(text)])
    self.trace.rules.append(
      RuleInfo(self.text(table, "a table"), self.text(name, "a rule"), self.text(where, "the place of a rule"), about)
    )

  def lines(self, texts: list[Any]) -> list[Any]:
    """Of a text that may be left out."""
    if not all(isinstance(text, str) for text in texts):
      self.fail(f"expected the text of a rule, a string, found {str(texts[0])[:40]!r}")
    return texts[0].split("\n") if texts else []

  def begin(self, record: list[Any]) -> None:
    parent, kind, name, before, at, thread, *key = self.fields(record, 6, 7)
    trace = self.trace
    span = SpanInfo(
      len(trace.spans), self.maybe(parent, trace.spans, "span"), self.text(kind, "a kind"), self.text(name, "a name"),
      self.maybe(before, trace.nodes, "node"), self.time(at), self.count(thread, "a thread"),
      self.text(key[0], "a key") if key else "",
    )  # fmt: skip
    trace.spans.append(span)
    if span.parent is not None:
      trace.spans[span.parent].children.append(span)

  def end(self, record: list[Any]) -> None:
    number, after, at = self.fields(record, 3)
    span = self.trace.spans[self.place(number, self.trace.spans, "span")]
    if span.seconds is not None:
      self.fail(f"span {span.number} ends twice")
    span.after = self.maybe(after, self.trace.nodes, "node")
    span.seconds = max(self.time(at) - span.started, 0.0)

  def rewrite(self, record: list[Any]) -> None:
    span, rule, before, after, at, took = self.fields(record, 6)
    trace = self.trace
    step = Step(
      len(trace.steps), self.maybe(span, trace.spans, "span"), trace.rules[self.place(rule, trace.rules, "rule")],
      self.place(before, trace.nodes, "node"), self.place(after, trace.nodes, "node"), self.time(at), self.time(took),
    )  # fmt: skip
    trace.steps.append(step)
    if step.span is not None:
      trace.spans[step.span].steps.append(step)

  def stats(self, record: list[Any]) -> None:
    number, matches, attempts, matching, all_of_it = self.fields(record, 5)
    rule = self.trace.rules[self.place(number, self.trace.rules, "rule")]
    count = MatchCount(
      rule.name, rule.where, self.count(matches, "matches"), self.count(attempts, "attempts"),
      self.time(matching), self.time(all_of_it),
    )  # fmt: skip
    self.trace.stats.append((rule, count))

  def cut(self, record: list[Any]) -> None:
    limit, _at = self.fields(record, 2)
    self.trace.truncated = self.count(limit, "the limit")

  def complete(self, record: list[Any]) -> None:
    self.fields(record, 1)
    self.trace.complete = True
