"""What the browser asks for, as data: `Answers(trace).get("unit/3")` is what JSON is made of.

| path | answer |
|---|---|
| `overview` | program, warnings, schedules and kernels, devices and threads of the run; how many parts `run` has |
| `run/K` | records of the run and spans of the compiler, in columns, by their start; times in nanoseconds |
| `origins` | source lines and modules, which records name by number |
| `unit/N` | a schedule or kernel: its passes, text, the kernels that it calls or the schedules that call it |
| `pass/N/P` | the rewrites of pass P of unit N, and the difference that it made |
| `graph/N` | the graph of node N, laid out |
| `changes/A/B` | which nodes of the graphs of A and B differ |
| `rewrite/N` | one rewrite, with its difference |
| `rules`, `rule/N` | rules with their statistics; one with its text and rewrites |
| `waves/N` | counters and waves of record N |
| `compare`, `compare/code/K` | the kernels of two traces side by side; the difference of the code of row K |
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

from tiny_uop import Ops, UOp
from tiny_uop.observe import brief
from tiny_uop.text.diff import DiffLine, diff_graphs, summarise
from tiny_viz.compare import compared
from tiny_viz.errors import TraceError
from tiny_viz.graphs import Graphs
from tiny_viz.layout import place
from tiny_viz.listing import passes, path_of, program_of, units, warnings
from tiny_viz.run import RunRecord, printable
from tiny_viz.trace import NodeInfo, SpanInfo, Step, Trace

PART = 20_000
"""Records in one answer."""
MOST = 20_000
"""Nodes of a graph that are laid out, and rewrites of a list."""
WIDE = 28
"""Characters of a node's argument that are drawn."""
LETTER = 6.7
"""Pixels of a letter in a node."""
NOTES = ("changes: ", "grows: ")
"""With which lines of a rule's text begin that are not code, at its end."""
SIDE = 90
"""Characters of a node in the list of rewrites."""


class Missing(LookupError):
  """Nothing has this path."""


class Event(NamedTuple):
  """Of the timeline: a record of the run, or a span of the compiler."""

  record: RunRecord
  number: int
  """Of the record; -1 of a span."""
  unit: int
  """Of the schedule or kernel; -1 of a record."""


class Answers:
  """Answers about one trace, or two: then `other` is what it is compared with, the one before a change."""

  def __init__(self, trace: Trace, name: str = "", other: Trace | None = None, other_name: str = "") -> None:
    self.trace, self.name, self.other, self.other_name = trace, name, other, other_name
    self.graphs = Graphs(trace)
    self.units = units(trace)
    self.number_of_unit = {id(unit): number for number, unit in enumerate(self.units)}

  def get(self, path: str) -> Any:
    """The answer for a path. Raises Missing; TraceError for a part of the trace that is wrong."""
    first, *numbers = path.split("/")
    if first == "compare" and numbers[:1] == ["code"]:
      first, numbers = "compare_code", numbers[1:]
    known: dict[str, tuple[Callable[..., Any], int]] = {
      "overview": (self.overview, 0), "run": (self.run, 1), "origins": (self.origins, 0), "unit": (self.unit, 1),
      "pass": (self.of_pass, 2), "graph": (self.graph, 1), "changes": (self.changes, 2), "rewrite": (self.rewrite, 1),
      "rules": (self.rules, 0), "rule": (self.rule, 1), "waves": (self.waves, 1), "compare": (self.compare, 0),
      "compare_code": (self.compare_code, 1),
    }  # fmt: skip
    answer = known.get(first)
    if (
      answer is None
      or len(numbers) != answer[1]
      or not all(n.isascii() and n.isdecimal() and len(n) < 10 for n in numbers)
    ):
      raise Missing(f"there is no {path[:80]!r} in a trace")
    return answer[0](*map(int, numbers))

  def paths(self, most: int | None = None) -> Iterable[str]:
    """All paths that there are, what matters most first: those of the slowest kernels before others. `most`: passes,
    graphs and rewrites of so many kernels, and of so many schedules, and not of others."""
    run = self.trace.run
    yield from ("overview", "origins", "rules")
    yield from (f"run/{k}" for k in range(self.parts))
    if self.other is not None:
      yield "compare"
      yield from (f"compare/code/{k}" for k, row in enumerate(self.comparison["rows"]) if row["code"])
    if run is not None:
      yield from (f"waves/{number}" for number in sorted({*run.counters, *(wave.record for wave in run.waves)}))
    slowest = sorted(range(len(self.units)), key=lambda n: (-self.time_of(n), -(self.units[n].seconds or 0)))
    yield from (f"unit/{n}" for n in slowest)
    yield from (f"rule/{n}" for n in range(len(self.trace.rules)))
    kernels = [n for n in slowest if self.units[n].kind != "schedule"]
    schedules = [n for n in slowest if self.units[n].kind == "schedule"]
    chosen = (*kernels[:most], *schedules[:most])
    told: set[str] = set()
    for path in (path for of in (self.paths_of_passes, self.paths_of_rewrites) for n in chosen for path in of(n)):
      if path not in told:
        told.add(path)
        yield path

  def paths_of_passes(self, unit: int) -> Iterable[str]:
    """Of a schedule or kernel, with their graphs."""
    found = self.units[unit]
    if found.before is not None:
      yield f"graph/{found.before}"
    for p, span in enumerate(passes(found)):
      yield f"pass/{unit}/{p}"
      pair = [node for node in (span.before, span.after) if node is not None]
      yield from (f"graph/{node}" for node in pair)
      if len(set(pair)) == 2:
        yield f"changes/{pair[0]}/{pair[1]}"

  def paths_of_rewrites(self, unit: int) -> Iterable[str]:
    """Of a schedule or kernel, with their graphs."""
    for step in self.units[unit].all_steps():
      yield f"rewrite/{step.number}"
      yield from (f"graph/{node}" for node in (step.before, step.after))
      if step.before != step.after:
        yield f"changes/{step.before}/{step.after}"

  def time_of(self, unit: int) -> int:
    """Nanoseconds that a kernel took in all."""
    return self.times.get(self.units[unit].key or self.units[unit].name, 0)

  @cached_property
  def times(self) -> dict[str, int]:
    """Key and name of a kernel → nanoseconds of all launches that have it."""
    found: dict[str, int] = {}
    for record in self.trace.run.records if self.trace.run else ():
      if record.kind in ("kernel", "graph kernel"):
        for known in {record.key, record.name}:
          found[known] = found.get(known, 0) + record.busy
    return found

  # *** the whole ***

  def overview(self) -> dict[str, Any]:
    """See the table above."""
    trace, run = self.trace, self.trace.run
    lines = {
      "kind": [u.kind for u in self.units], "name": [u.name for u in self.units],
      "seconds": [u.seconds for u in self.units], "compiling": [self.compiling(u) for u in self.units],
      "key": [u.key for u in self.units],
      "passes": [len(passes(u)) for u in self.units], "rewrites": [len(u.all_steps()) for u in self.units],
    }  # fmt: skip
    return {
      "name": printable(self.name), "program": program_of(trace) if trace.header else run.program if run else "",
      "warnings": warnings(trace) if trace.header else [], "rewrites": len(trace.steps), "units": lines,
      "parts": self.parts, "events": len(self.events), "duration": self.duration,
      "run": None if run is None else {"records": len(run.records), "peaks": run.peaks, "counted": sorted(
        {*run.counters, *(wave.record for wave in run.waves)})},
      "threads": [[number, name] for number, name in self.threads.items()],
      "other": printable(self.other_name) if self.other is not None else None,
    }  # fmt: skip

  def compiling(self, unit: SpanInfo) -> float | None:
    """Seconds that the device's compiler took in all."""
    parent = None if unit.parent is None else self.trace.spans[unit.parent]
    return parent.seconds if parent is not None and parent.kind == "compile" else None

  # *** the run ***

  @cached_property
  def zero(self) -> int:
    """Nanoseconds of the program's clock at which the timeline begins."""
    clock, run = self.trace.header.get("clock"), self.trace.run
    starts = [clock] if isinstance(clock, int) and 0 <= clock < 1 << 62 else []
    starts += [min([run.began, *[record.start for record in run.records]])] if run is not None else []
    return min(starts, default=0)

  @cached_property
  def duration(self) -> int:
    """Nanoseconds of the timeline."""
    ends = [event.record.end - self.zero for event in self.events]
    return max([*ends, *([self.trace.run.ended - self.zero] if self.trace.run else [])], default=0)

  @cached_property
  def threads(self) -> dict[int, str]:
    """Those that have records or spans, with their names."""
    names = dict(self.trace.run.threads) if self.trace.run else {}
    return {
      number: names.get(number, f"thread {number}") for number in dict.fromkeys(e.record.thread for e in self.events)
    }

  @cached_property
  def events(self) -> list[Event]:
    """Records and spans, by their start, what is around others first."""
    run, clock = self.trace.run, self.trace.header.get("clock")
    found = [Event(record, number, -1) for number, record in enumerate(run.records)] if run is not None else []
    begun = clock if isinstance(clock, int) and 0 <= clock < 1 << 62 else None
    if begun is not None or run is None:
      for number, unit in enumerate(self.units):
        found += [_event(span, number, begun or 0) for span in (unit, *passes(unit)) if span.seconds is not None]
    return sorted(found, key=lambda event: (event.record.start, -event.record.end))

  @property
  def parts(self) -> int:
    """Of `run`."""
    return -(-len(self.events) // PART)

  def run(self, part: int) -> dict[str, Any]:
    """See the table above. Columns of texts are numbers in `strings`."""
    if part >= self.parts:
      raise Missing(f"the run has {self.parts} parts, there is no part {part}")
    events = self.events[part * PART : (part + 1) * PART]
    strings: dict[str, int] = {}
    named = {
      column: [strings.setdefault(getattr(event.record, column), len(strings)) for event in events]
      for column in ("kind", "name", "device", "tensor", "key")
    }
    counted = {
      column: [getattr(event.record, column) for event in events]
      for column in ("thread", "busy", "ops", "nbytes", "kernels", "held", "memory", "origins")
    }
    return {
      "strings": list(strings), **named, **counted, "start": [event.record.start - self.zero for event in events],
      "duration": [event.record.end - event.record.start for event in events],
      "record": [event.number for event in events], "unit": [event.unit for event in events],
    }  # fmt: skip

  def origins(self) -> list[list[Any]]:
    """See the table above: file, line, function, module, phase."""
    return [list(origin) for origin in self.trace.run.origins] if self.trace.run else []

  def waves(self, number: int) -> dict[str, Any]:
    """See the table above."""
    run = self.trace.run
    waves = [wave for wave in run.waves if wave.record == number] if run is not None else []
    if run is None or (not waves and number not in run.counters):
      raise Missing(f"record {number} has no counters and no waves")
    return {
      "name": run.records[number].name, "counters": run.counters.get(number, {}),
      "waves": [{"place": w.place, "code": w.code, "start": w.start, "end": w.end, "rows": w.rows} for w in waves],
      "code": {code: run.code.get(code, []) for code in {wave.code for wave in waves}},
    }  # fmt: skip

  # *** the compiler ***

  def chosen(self, number: int) -> SpanInfo:
    """A schedule or kernel."""
    if number >= len(self.units):
      raise Missing(f"the trace has {len(self.units)} schedules and kernels, there is no number {number}")
    return self.units[number]

  def unit(self, number: int) -> dict[str, Any]:
    """See the table above."""
    unit, count = self.chosen(number), self.graphs.count
    rows = [
      {
        "name": span.name, "seconds": span.seconds, "rewrites": len(span.all_steps()), "before": span.before,
        "after": span.after, "nodes": [count(span.before), count(span.after)],
      }
      for span in passes(unit)
    ]  # fmt: skip
    return {
      "kind": unit.kind, "name": unit.name, "seconds": unit.seconds, "compiling": self.compiling(unit),
      "before": unit.before, "after": unit.after, "passes": rows, "code": self.code(unit), "calls": self.calls(unit),
      "loops": self.trace.run.loops.get(unit.name, []) if self.trace.run else [],
      "callers": self.callers.get(unit.before, []) if unit.before is not None and unit.kind == "kernel" else [],
    }  # fmt: skip

  def code(self, unit: SpanInfo) -> str:
    """The text that was generated for a kernel; empty where the trace has none."""
    for span in reversed(passes(unit)):
      if span.after is not None and self.trace.nodes[span.after].op == "SOURCE":
        return str(self.graphs.uop(span.after).arg)
    return ""

  def calls(self, unit: SpanInfo) -> list[dict[str, Any]]:
    """The kernels that a schedule calls, in order."""
    if unit.kind != "schedule" or unit.after is None:
      return []
    found: list[dict[str, Any]] = []
    for call in self.trace.nodes[unit.after].src:
      body = self.trace.nodes[call].src[:1]
      if self.trace.nodes[call].op == "CALL" and body:
        number = self.unit_of_graph.get(body[0])
        name = self.units[number].name if number is not None else self.title(body[0])
        found.append({"unit": number, "name": name, "node": body[0]})
    return found

  def title(self, node: int) -> str:
    """What a kernel that was not compiled here is called."""
    try:
      uop = self.graphs.uop(node)
    except TraceError:
      return self.trace.nodes[node].op
    return printable(str(getattr(uop.arg, "name", "") or uop.op.name.lower()))

  @cached_property
  def unit_of_graph(self) -> dict[int, int]:
    """Node of a kernel → its unit."""
    found: dict[int, int] = {}
    for number, unit in enumerate(self.units):
      if unit.kind == "kernel" and unit.before is not None:
        found.setdefault(unit.before, number)
    return found

  @cached_property
  def callers(self) -> dict[int, list[int]]:
    """Node of a kernel → the schedules that call it."""
    found: dict[int, dict[int, None]] = {}
    for number, unit in enumerate(self.units):
      if unit.kind == "schedule" and unit.after is not None:
        for call in self.trace.nodes[unit.after].src:
          for body in self.trace.nodes[call].src[:1]:
            found.setdefault(body, {})[number] = None
    return {body: list(of_body) for body, of_body in found.items()}

  def of_pass(self, number: int, which: int) -> dict[str, Any]:
    """See the table above."""
    unit = self.chosen(number)
    if which >= len(passes(unit)):
      raise Missing(f"{unit.kind} {unit.name} has {len(passes(unit))} passes, there is no number {which}")
    span = passes(unit)[which]
    steps = span.all_steps()
    return {
      "name": span.name, "seconds": span.seconds, "before": span.before, "after": span.after,
      "steps": [self.step_row(step) for step in steps[:MOST]], "left_out": max(0, len(steps) - MOST),
      **self.difference(span.before, span.after),
    }  # fmt: skip

  def step_row(self, step: Step) -> list[Any]:
    """Number, table, rule, before, after, microseconds, number of the rule."""
    before, after = (printable(brief(self.graphs.uop(node), SIDE)) for node in (step.before, step.after))
    rule = self.rule_numbers[id(step.rule)]
    return [step.number, step.rule.table, step.rule.name, before, after, round(step.seconds * 1e6, 1), rule]

  def difference(self, before: int | None, after: int | None) -> dict[str, Any]:
    """Lines of a diff, and what they say in short."""
    if before is None or after is None or before == after:
      return {"diff": [], "summary": "" if before is None or after is None else "nothing changed"}
    if self.graphs.count(before) + self.graphs.count(after) > 4 * MOST:
      return {"diff": [], "summary": "too large for a difference"}
    lines = diff_graphs(self.graphs.uop(before), self.graphs.uop(after))
    return {"diff": [[line.kind, printable(line.text)] for line in lines], "summary": summarise(lines)}

  def rewrite(self, number: int) -> dict[str, Any]:
    """See the table above."""
    trace = self.trace
    if number >= len(trace.steps):
      raise Missing(f"the trace has {len(trace.steps)} rewrites, there is no number {number}")
    step = trace.steps[number]
    unit, which = self.where(step)
    return {
      "count": len(trace.steps), "rule": step.rule.name, "table": step.rule.table, "place": step.rule.where,
      "rule_number": self.rule_numbers[id(step.rule)], "path": path_of(trace, step), "seconds": step.seconds,
      "before": step.before, "after": step.after, "unit": unit, "pass": which,
      "short": [printable(brief(self.graphs.uop(node), 400)) for node in (step.before, step.after)],
      **self.difference(step.before, step.after),
    }  # fmt: skip

  @cached_property
  def rule_numbers(self) -> dict[int, int]:
    """Identity of a rule → its number."""
    return {id(rule): number for number, rule in enumerate(self.trace.rules)}

  def where(self, step: Step) -> tuple[int | None, int | None]:
    """The unit and the pass of a rewrite."""
    above: list[SpanInfo] = []
    span = None if step.span is None else self.trace.spans[step.span]
    while span is not None:
      if (unit := self.number_of_unit.get(id(span))) is not None:
        found = [p for p, each in enumerate(passes(span)) if above and each is above[-1]]
        return unit, found[0] if found else None
      above.append(span)
      span = None if span.parent is None else self.trace.spans[span.parent]
    return None, None

  def rules(self) -> dict[str, list[Any]]:
    """See the table above, in columns."""
    rules, numbers = self.trace.rules, self.rule_numbers
    applied = [0] * len(rules)
    for step in self.trace.steps:
      applied[numbers[id(step.rule)]] += 1
    counts = {numbers[id(rule)]: count for rule, count in self.trace.stats}
    found = [counts.get(n) for n in range(len(rules))]
    return {
      "table": [rule.table for rule in rules], "name": [rule.name for rule in rules],
      "place": [rule.where for rule in rules], "applied": applied,
      "attempts": [count.attempts if count else None for count in found],
      "seconds": [count.seconds if count else None for count in found],
    }  # fmt: skip

  def rule(self, number: int) -> dict[str, Any]:
    """See the table above."""
    if number >= len(self.trace.rules):
      raise Missing(f"the trace has {len(self.trace.rules)} rules, there is no number {number}")
    rule = self.trace.rules[number]
    steps = [step for step in self.trace.steps if step.rule is rule]
    applied = Counter(unit for step in steps if (unit := self.where(step)[0]) is not None)
    count = next((count for of, count in self.trace.stats if of is rule), None)
    pattern, *lines = rule.text.split("\n")
    first = next((n for n, line in enumerate(lines) if line.startswith(NOTES)), len(lines))
    return {
      "table": rule.table, "name": rule.name, "place": rule.where, "pattern": pattern,
      "source": "\n".join(lines[:first]), "notes": [line.split(": ", 1) for line in lines[first:]],
      "applied": len(steps), "attempts": count.attempts if count else None, "seconds": count.seconds if count else None,
      "units": applied.most_common(30), "steps": [[*self.step_row(step), *self.where(step)] for step in steps[:200]],
    }  # fmt: skip

  # *** graphs ***

  def graph(self, root: int) -> dict[str, Any]:
    """See the table above, in columns; edges are pairs of rows. Constants are drawn in the nodes that use them."""
    nodes = self.trace.nodes
    if root >= len(nodes):
      raise Missing(f"the trace has {len(nodes)} nodes, there is no node {root}")
    members = sorted(self.members(root))
    shown = [number for number in members if not _folded(nodes[number]) or number == root]
    if len(shown) > MOST:
      return {"root": root, "count": len(members), "too_large": MOST}
    row = {number: i for i, number in enumerate(shown)}
    infos = [nodes[number] for number in shown]
    labels = [self.label(info) for info in infos]
    sources = [[row[s] for s in dict.fromkeys(info.src) if s in row] for info in infos]
    widths = [max(len(info.op), len(label)) * LETTER + 16 for info, label in zip(infos, labels)]
    layout = place(sources, widths)
    return {
      "root": root, "count": len(members), "id": shown, "op": [info.op for info in infos], "label": labels,
      "dtype": [info.dtype for info in infos], "arg": [_argument(info) for info in infos],
      "src": [list(info.src) for info in infos], "x": layout.x, "layer": layout.layers,
      "width": [round(width, 1) for width in widths], "unit": [self.unit_of_graph.get(number) for number in shown],
      "edges": [place for i, of_node in enumerate(sources) for s in of_node for place in (s, i)],
      "constants": {s: _argument(nodes[s]) for s in members if _folded(nodes[s])},
    }  # fmt: skip

  def members(self, root: int) -> set[int]:
    """The nodes of a graph."""
    nodes, seen, stack = self.trace.nodes, {root}, [root]
    while stack:
      for source in nodes[stack.pop()].src:
        if source not in seen:
          seen.add(source)
          stack.append(source)
    return seen

  def label(self, info: NodeInfo) -> str:
    """The second line of a node: its argument, and constants among its sources."""
    constants = [_argument(self.trace.nodes[s]) for s in info.src if _folded(self.trace.nodes[s])]
    text = " ".join(
      [*([_argument(info)] if info.arg is not None else []), *([", ".join(constants)] if constants else [])]
    )
    return text if len(text) <= WIDE else text[: WIDE - 1] + "…"

  def changes(self, before: int, after: int) -> dict[str, list[int]]:
    """See the table above: `removed` from the first, `added` to the second, `changed` of both."""
    for root in (before, after):
      if root >= len(self.trace.nodes):
        raise Missing(f"the trace has {len(self.trace.nodes)} nodes, there is no node {root}")
    old, new = self.members(before), self.members(after)
    if len(old) + len(new) > 4 * MOST:
      return {"removed": sorted(old - new), "added": sorted(new - old), "changed": []}
    lines = diff_graphs(self.graphs.uop(before), self.graphs.uop(after))
    return {
      "removed": self.numbered(old, (line for line in lines if line.kind == "-" and not line.changed)),
      "added": self.numbered(new, (line for line in lines if line.kind == "+" and not line.changed)),
      "changed": sorted({
        *self.numbered(old, (line for line in lines if line.kind == "-" and line.changed)),
        *self.numbered(new, (line for line in lines if line.kind == "+" and line.changed)),
      }),
    }  # fmt: skip

  def numbered(self, members: set[int], lines: Iterable[DiffLine]) -> list[int]:
    """The numbers of the nodes of some lines."""
    numbers: dict[UOp, list[int]] = {}
    for number in members:
      numbers.setdefault(self.graphs.uop(number), []).append(number)
    return sorted(n for line in lines for n in numbers.get(line.node, ()))

  # *** two traces ***

  @cached_property
  def comparison(self) -> dict[str, Any]:
    """See `tiny_viz.compare`."""
    if self.other is None:
      raise Missing("there is one trace only: name a second one to compare it with")
    return compared(self.other, self.trace)

  @cached_property
  def codes(self) -> tuple[dict[str, str], dict[str, str]]:
    """Key and name of a kernel → its code, in the other trace and in this one."""
    assert self.other is not None
    found: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for side, codes in zip((Answers(self.other), self), found):
      for unit in side.units:
        if code := side.code(unit):
          codes |= {unit.name: code, unit.key or unit.name: code}
    return found

  def compare(self) -> dict[str, Any]:
    """See the table above."""
    return {**self.comparison, "names": [printable(self.other_name), printable(self.name)]}

  def compare_code(self, row: int) -> dict[str, Any]:
    """See the table above."""
    rows = self.comparison["rows"]
    if row >= len(rows):
      raise Missing(f"there are {len(rows)} kernels, there is no row {row}")
    before, after = (code.get(key or "", "") for code, key in zip(self.codes, rows[row]["keys"]))
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=3))
    return {"name": rows[row]["name"], "diff": [[line[:1], line[1:]] for line in lines[2:]], "same": before == after}


def _folded(info: NodeInfo) -> bool:
  """Drawn in its users instead of by itself."""
  return info.op == Ops.CONST.name and not info.src


def _argument(info: NodeInfo) -> str:
  return printable(info.arg or "")


def _event(span: SpanInfo, unit: int, zero: int) -> Event:
  start = zero + round(span.started * 1e9)
  end = start + round((span.seconds or 0.0) * 1e9)
  kind = "lower" if span.kind == "kernel" else span.kind
  return Event(RunRecord(kind, span.name, "", span.thread, start, end, end - start, 0, 0, 0, 0, (), 0, ""), -1, unit)
