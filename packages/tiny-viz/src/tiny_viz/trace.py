"""Reads a trace file, the format of which tiny-uop's README has. Text from anywhere is safe: it is checked record by
record, and nothing in it is evaluated."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from tiny_uop import IR_VERSION
from tiny_uop.observe import TRACE_VERSION, MatchCount

MAX_LINE = 1 << 24
MAX_TEXT = 1 << 32
_BLOCK = 1 << 20


class TraceError(ValueError):
  """A file that is no trace, or one of another version, or damaged; the message names the line."""


@dataclass(frozen=True, slots=True)
class RuleInfo:
  """A rule, in the service of a table."""

  table: str
  name: str
  where: str


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


@dataclass(slots=True)
class Trace:
  """All of a trace. `complete`: the program came to its end; `truncated`: at which size, in bytes, it was cut off."""

  header: dict[str, Any] = field(default_factory=dict)
  nodes: list[NodeInfo] = field(default_factory=list)
  spans: list[SpanInfo] = field(default_factory=list)
  rules: list[RuleInfo] = field(default_factory=list)
  steps: list[Step] = field(default_factory=list)
  stats: list[tuple[RuleInfo, MatchCount]] = field(default_factory=list)
  truncated: int | None = None
  complete: bool = False

  def roots(self) -> list[SpanInfo]:
    """The spans that are in no other."""
    return [span for span in self.spans if span.parent is None]


def printable(text: str) -> str:
  """The text without what could play tricks on a terminal."""
  return text if text.isprintable() else "".join([c if c.isprintable() else "\ufffd" for c in text])


def read_trace(path: str | os.PathLike[str]) -> Trace:
  """The trace in a file, compressed or not. Raises TraceError, and OSError where the file cannot be read.

  A file that ends early (its program was killed) is read as far as it goes: `complete` is then False.
  """
  reader = _Reader(Path(path))
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

  def __init__(self, path: Path) -> None:
    self.path, self.trace, self.number = path, Trace(), 0
    self.packed: bool | None = None
    self.kinds = {
      "node": self.node, "rule": self.rule, "begin": self.begin, "end": self.end, "rewrite": self.rewrite,
      "stats": self.stats, "truncated": self.cut, "complete": self.complete,
    }  # fmt: skip

  def fail(self, message: str) -> NoReturn:
    raise TraceError(f"{self.path}, line {max(self.number, 1)}: {message}")

  def read(self, line: bytes) -> None:
    self.number += 1
    try:
      record = json.loads(line)
    except (ValueError, RecursionError) as error:
      self.fail(f"expected a record in JSON, found {line[:40]!r} ({type(error).__name__})")
    if self.number == 1:
      return self.header(record)
    if not isinstance(record, list) or not record or not isinstance(record[0], str):
      self.fail(f"expected a list that begins with a word, found {line[:40]!r}")
    read = self.kinds.get(record[0])
    if read is None:
      self.fail(f"unknown record {record[0][:40]!r}: expected one of {', '.join(self.kinds)}")
    read(record)

  def header(self, record: Any) -> None:
    if not isinstance(record, dict) or "tiny-trace" not in record:
      self.fail('this is not a trace: expected {"tiny-trace": 1, …}; a trace is what a program run with VIZ=-1 saves')
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

  def place(self, value: Any, of: list[Any], what: str) -> int:
    if self.count(value, f"the number of a {what}") >= len(of):
      self.fail(f"{what} {value} is used before its record: there are {len(of)} so far")
    return int(value)

  def maybe(self, value: Any, of: list[Any], what: str) -> int | None:
    return None if value is None else self.place(value, of, what)

  def time(self, value: Any) -> float:
    """Seconds, of microseconds."""
    if type(value) not in (int, float) or not abs(value) < 1e18:
      self.fail(f"expected a time in microseconds, found {str(value)[:40]!r}")
    return float(value) * 1e-6

  # *** records ***

  def node(self, record: list[Any]) -> None:
    op, dtype, src, *more = self.fields(record, 3, 5)
    if not isinstance(src, list):
      self.fail(f"expected the sources of a node, a list, found {str(src)[:40]!r}")
    nodes = self.trace.nodes
    arg, tag = (*more, None, None)[:2]
    for value in (op, dtype, *(v for v in (arg, tag) if v is not None)):
      if not isinstance(value, str):
        self.fail(f"expected text for operation, dtype, argument and tag of a node, found {str(value)[:40]!r}")
    nodes.append(NodeInfo(op, dtype, tuple([self.place(s, nodes, "node") for s in src]), arg, tag))

  def rule(self, record: list[Any]) -> None:
    table, name, where = self.fields(record, 3)
    self.trace.rules.append(
      RuleInfo(self.text(table, "a table"), self.text(name, "a rule"), self.text(where, "the place of a rule"))
    )

  def begin(self, record: list[Any]) -> None:
    parent, kind, name, before, at, thread = self.fields(record, 6)
    trace = self.trace
    span = SpanInfo(
      len(trace.spans), self.maybe(parent, trace.spans, "span"), self.text(kind, "a kind"), self.text(name, "a name"),
      self.maybe(before, trace.nodes, "node"), self.time(at), self.count(thread, "a thread"),
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
