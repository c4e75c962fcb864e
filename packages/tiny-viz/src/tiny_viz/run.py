"""Reads the run's section of a trace: what ran, when, for how long, and who asked for it.

The head of `tiny_runtime.profiling.record` has the format, an object a line. What that does not record is read, too:

* `{"loops": [[0.77, "180–200", 21, 8, 0, "multiplies and adds"], …], "name": "reduce_8x64x3136_r64"}`: where a kernel
  spends its time, loop by loop of its machine code, as the repository's `hot-loops` finds it: share, addresses,
  instructions, multiply-adds, stores, and what the loop does;
* `{"counters": {"SQ_WAVES": 64, …}, "record": 17}`: hardware counters of one launch. Records count from 0;
* `{"instructions": [[0, "s_load_b64 s[0:1], …"], [8, "…"], …], "code": 0}`: the text of a program, by address;
* `{"wave": "SE0 CU3 SIMD1 slot 2", "record": 17, "code": 0, "start": 100, "end": 900, "rows": [[100, 4, 0, 8], …]}`:
  one wave of a launch. Times are in cycles; a row is an instruction: its time, duration, the part of that for which it
  waited, and its address.

What a GPU recorded stands in a trace as it is, bytes in base64; `hardware.py` makes counters, code and waves of it:

* `{"program": "f0VM…", "code": 0, "chip": "gfx1100", "kernel": "matmul"}`: a code object, and which kernel of it ran;
* `{"thread_trace": "kQEA…", "record": 17, "code": 0, "engine": 2}`: the thread trace of one shader engine;
* `{"counter_block": "AAAA…", "record": 17, "layout": [["SQ_WAVES", "SQ", 0, {"se": 6, "wgp": 4}], …]}`: where counters
  were written to; each has a name, the block that counts, the byte where its values begin, and parts that count.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

VERSION = 1
MAX_NUMBER = 1 << 62
NUMBERS = ("thread", "start", "end", "busy", "ops", "nbytes", "kernels", "held", "memory")


def printable(text: str) -> str:
  """The text without what could play tricks on a terminal."""
  return text if text.isprintable() else "".join([c if c.isprintable() else "\ufffd" for c in text])


class Origin(NamedTuple):
  """Where the program asked for something."""

  file: str
  line: int
  function: str
  module: str
  """The path of a layer in the model, `model.layer2.0.conv1`, or empty."""
  phase: str
  """`forward`, `backward`, `optimiser`, or empty."""


class RunRecord(NamedTuple):
  """One thing that was done: a `tiny_runtime.Record`, of which it has the names and the units."""

  kind: str
  name: str
  device: str
  thread: int
  start: int
  end: int
  busy: int
  ops: int
  nbytes: int
  kernels: int
  held: int
  origins: tuple[int, ...]
  """Numbers of origins."""
  memory: int
  tensor: str
  key: str = ""
  """Of a kernel: what its graph is known by, in every trace."""


class Wave(NamedTuple):
  """What one wave did; times are in cycles."""

  place: str
  record: int
  code: int
  start: int
  end: int
  rows: list[tuple[int, int, int, int]]
  """Time, duration, cycles of waiting in it, and address of each instruction."""


class RecordedProgram(NamedTuple):
  """A code object, as it was loaded."""

  chip: str
  kernel: str
  data: bytes


class ThreadTrace(NamedTuple):
  """What one shader engine recorded of a launch."""

  record: int
  code: int
  engine: int
  data: bytes


class CounterBlock(NamedTuple):
  """The memory that the counters of a launch were written to. A row of `layout`: name, block, byte, parts."""

  record: int
  layout: list[tuple[str, str, int, dict[str, int]]]
  data: bytes


@dataclass(slots=True)
class Run:
  """All of a run. Times are in nanoseconds of the program's clock."""

  program: str = ""
  process: int = 0
  began: int = 0
  ended: int = 0
  threads: dict[int, str] = field(default_factory=dict)
  peaks: dict[str, dict[str, float]] = field(default_factory=dict)
  """Device → `ops_per_s`, `bytes_per_s`, as far as they are known."""
  origins: list[Origin] = field(default_factory=list)
  records: list[RunRecord] = field(default_factory=list)
  loops: dict[str, list[tuple[float, str, int, int, int, str]]] = field(default_factory=dict)
  """Name of a kernel → its loops: share, addresses, instructions, multiply-adds, stores, what it does."""
  counters: dict[int, dict[str, float]] = field(default_factory=dict)
  """Number of a record → hardware counters."""
  code: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
  """Programs: address and text of each instruction."""
  waves: list[Wave] = field(default_factory=list)
  programs: dict[int, RecordedProgram] = field(default_factory=dict)
  """By the number that `code` has."""
  thread_traces: list[ThreadTrace] = field(default_factory=list)
  counter_blocks: list[CounterBlock] = field(default_factory=list)


class RunReader:
  """Checks objects and adds them to a run. `fail` raises, with the line."""

  def __init__(self, head: dict[str, Any], fail: Callable[[str], NoReturn]) -> None:
    self.fail, self.run = fail, Run()
    self.names: dict[str, str] = {}  # texts occur often: each is kept once
    if head.get("profile") != VERSION:
      fail(f"version {str(head.get('profile'))[:20]} of the profile, this tiny-viz reads version {VERSION}")
    run = self.run
    run.program = self.text(head, "program", "a program")
    run.process, run.began, run.ended = (self.number(head, key) for key in ("process", "began", "ended"))
    if run.ended < run.began:
      fail(f"the run ends at {run.ended}, before it begins, at {run.began}")
    for thread, name in self.mapping(head, "threads").items():
      if not thread.isdecimal() or len(thread) > 19 or not isinstance(name, str):
        fail(f"expected threads as number and name, found {thread[:20]!r}: {str(name)[:20]!r}")
      run.threads[int(thread)] = printable(name)
    for device, peak in self.mapping(head, "peaks").items():
      if not isinstance(peak, dict):
        fail(f"expected the peaks of device {device[:20]!r} as an object, found {str(peak)[:40]!r}")
      run.peaks[printable(device)] = {
        key: self.rate(peak[key], key) for key in ("ops_per_s", "bytes_per_s") if key in peak
      }

  def read(self, record: dict[str, Any]) -> None:
    """Add a record or an origin; what is unknown is passed over, as the format asks for."""
    if "kind" in record:
      self.record(record)
    elif "origin" in record:
      self.origin(record)
    elif "loops" in record:
      rows = self.rows(record, "loops", (float, str, int, int, int, str))
      found = [(self.rate(row[0], "share"), printable(row[1]), *row[2:5], printable(row[5])) for row in rows]
      self.run.loops[self.text(record, "name")] = found
    elif "counters" in record:
      counters = self.mapping(record, "counters")
      self.run.counters[self.of_record(record)] = {printable(k): self.rate(v, k) for k, v in counters.items()}
    elif "instructions" in record:
      rows = self.rows(record, "instructions", (int, str))
      self.run.code[self.number(record, "code")] = [(address, printable(text)) for address, text in rows]
    elif "wave" in record:
      self.wave(record)
    elif "thread_trace" in record:
      code, engine, data = (
        self.number(record, "code"),
        self.number(record, "engine"),
        self.bytes(record, "thread_trace"),
      )
      self.run.thread_traces.append(ThreadTrace(self.of_record(record), code, engine, data))
    elif "counter_block" in record:
      self.counter_block(record)
    elif "program" in record:
      chip, kernel = self.text(record, "chip"), self.text(record, "kernel", "")
      self.run.programs[self.number(record, "code")] = RecordedProgram(chip, kernel, self.bytes(record, "program"))

  # *** fields ***

  def text(self, record: dict[str, Any], key: str, default: str | None = None) -> str:
    value = record.get(key, default)
    if not isinstance(value, str):
      self.fail(f"expected {key}, a string, found {str(value)[:40]!r}")
    return self.names.setdefault(value, printable(value))

  def number(self, record: dict[str, Any], key: str, default: int = 0) -> int:
    value = record.get(key, default)
    if type(value) is not int or not 0 <= value < MAX_NUMBER:
      self.fail(f"expected {key}, a number of at least 0, found {str(value)[:40]!r}")
    return value

  def bytes(self, record: dict[str, Any], key: str) -> bytes:
    """What is written in base64."""
    value = record.get(key)
    try:
      return base64.b64decode(value if isinstance(value, str) else "?", validate=True)
    except (ValueError, binascii.Error):
      self.fail(f"expected {key}, bytes in base64, found {str(value)[:40]!r}")

  def rate(self, value: Any, key: str) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e30:
      self.fail(f"expected {key[:40]}, a number of at least 0, found {str(value)[:40]!r}")
    return float(value)

  def mapping(self, record: dict[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key, {})
    if not isinstance(value, dict):
      self.fail(f"expected {key}, an object, found {str(value)[:40]!r}")
    return value

  def rows(self, record: dict[str, Any], key: str, types: tuple[type, ...]) -> list[Any]:
    value = record.get(key, [])
    if not isinstance(value, list):
      self.fail(f"expected {key}, a list, found {str(value)[:40]!r}")
    for row in value:
      fits = isinstance(row, list) and [type(cell) for cell in row] == list(types)
      if not fits or any(type(cell) is int and not 0 <= cell < MAX_NUMBER for cell in row):
        self.fail(f"expected {key} as lists of {', '.join(t.__name__ for t in types)}, found {str(row)[:40]!r}")
    return value

  def numbers(self, value: Any, of: Sequence[Any], what: str) -> tuple[int, ...]:
    if not isinstance(value, list) or any(type(n) is not int or not 0 <= n < len(of) for n in value):
      self.fail(f"expected numbers of {what}, of which there are {len(of)} so far, found {str(value)[:40]!r}")
    return tuple(value)

  def of_record(self, record: dict[str, Any]) -> int:
    (number,) = self.numbers([record.get("record")], self.run.records, "records")
    return number

  # *** records ***

  def record(self, record: dict[str, Any]) -> None:
    thread, start, end, busy, ops, nbytes, kernels, held, memory = (self.number(record, key) for key in NUMBERS)
    if end < start:
      self.fail(f"a record ends at {end}, before it starts, at {start}")
    origins = self.numbers(record.get("origins", []), self.run.origins, "origins")
    kind, name, device, tensor, key = (self.text(record, of, "") for of in ("kind", "name", "device", "tensor", "key"))
    self.run.threads.setdefault(thread, f"thread {thread}")
    numbers = thread, start, end, busy, ops, nbytes, kernels, held
    self.run.records.append(RunRecord(kind, name, device, *numbers, origins, memory, tensor, key))

  def origin(self, record: dict[str, Any]) -> None:
    if record["origin"] != len(self.run.origins):
      self.fail(f"expected origin {len(self.run.origins)}, found {str(record['origin'])[:40]!r}")
    file, function, module, phase = (self.text(record, key, "") for key in ("file", "function", "module", "phase"))
    self.run.origins.append(Origin(file, self.number(record, "line"), function, module, phase))

  def wave(self, record: dict[str, Any]) -> None:
    start, end, code = (self.number(record, key) for key in ("start", "end", "code"))
    if end < start:
      self.fail(f"a wave ends at {end}, before it starts, at {start}")
    rows = [tuple(row) for row in self.rows(record, "rows", (int, int, int, int))]
    self.run.waves.append(Wave(self.text(record, "wave"), self.of_record(record), code, start, end, rows))

  def counter_block(self, record: dict[str, Any]) -> None:
    layout = []
    for name, block, place, parts in self.rows(record, "layout", (str, str, int, dict)):
      if any(type(count) is not int or not 0 < count < 1 << 20 for count in parts.values()):
        self.fail(f"expected the parts of {name[:40]!r} as names and numbers from 1 on, found {str(parts)[:40]!r}")
      layout.append((printable(name), printable(block), place, {printable(part): n for part, n in parts.items()}))
    self.run.counter_blocks.append(CounterBlock(self.of_record(record), layout, self.bytes(record, "counter_block")))
