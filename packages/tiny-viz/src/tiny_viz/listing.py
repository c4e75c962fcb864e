"""What is in a trace, as tables of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tiny_uop.observe import brief_change, format_match_stats
from tiny_uop.observe.stats import grouped
from tiny_viz.graphs import Graphs
from tiny_viz.run import printable
from tiny_viz.terminal import Style
from tiny_viz.trace import RuleInfo, SpanInfo, Step, Trace

SIDE = 44
"""Characters for a node in a list of rewrites."""


def units(trace: Trace) -> list[SpanInfo]:
  """What the list of a trace shows, and `--kernel` chooses from: schedules, kernels, and other work that is in no
  other; but not tables that were run on their own, of which there are many small ones.
  """
  return [s for s in trace.spans if s.kind in ("schedule", "kernel") or (s.parent is None and _shown_alone(s))]


def _shown_alone(span: SpanInfo) -> bool:
  return span.kind != "table" and not (span.kind == "compile" and any(c.kind == "kernel" for c in span.children))


def passes(unit: SpanInfo) -> list[SpanInfo]:
  """The steps of a unit, in order."""
  return [child for child in unit.children if child.kind not in ("schedule", "kernel")]


def columns(rows: Sequence[Sequence[str]], right: str, style: Style) -> list[str]:
  """Rows in columns, the first one a heading; `right` has `r` for each column that is aligned to the right."""
  widths = [max(len(row[i]) for row in rows) for i in range(len(right))]

  def line(row: Sequence[str]) -> str:
    cells = [c.rjust(w) if side == "r" else c.ljust(w) for c, w, side in zip(row, widths, right)]
    return "  ".join(cells).rstrip()

  return [style.bold(line(rows[0])), *(line(row) for row in rows[1:])]


def duration(seconds: float | None) -> str:
  """`12.5 ms`; `not over` where the trace ends before the work."""
  if seconds is None:
    return "not over"
  for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
    if seconds < limit:
      return f"{seconds * scale:.1f} {unit}"
  return f"{seconds:.2f} s "


def _nodes(graphs: Graphs, span: SpanInfo) -> str:
  if span.before is None or span.after is None:
    return ""
  return f"{graphs.count(span.before):6d} → {graphs.count(span.after)}"


def overview(trace: Trace, style: Style) -> list[str]:
  """The whole trace: a line per kernel and schedule."""
  found = units(trace)
  kinds = [s.kind for s in found]
  counts = ", ".join(counted(kinds.count(kind), kind) for kind in ("schedule", "kernel"))
  lines = [f"{program_of(trace)}: {counts}, {counted(len(trace.steps), 'rewrite')}"]
  lines += [style.warn(line) for line in warnings(trace)]
  if found:
    rows: list[tuple[str, ...]] = [("number", "kind", "name", "time", "of compiling", "passes", "rewrites")]
    rows += [_unit_row(trace, number, span) for number, span in enumerate(found)]
    if not any(row[4] for row in rows[1:]):  # compiled to source only
      rows = [(*row[:4], *row[5:]) for row in rows]
    lines += ["", *columns(rows, "rllrrrr"[: len(rows[0])], style)]
  if alone := sum(len(s.all_steps()) for s in trace.roots() if s.kind == "table"):
    lines += ["", f"outside of schedules and kernels: {counted(alone, 'rewrite')}"]
  return lines


def counted(number: int, what: str) -> str:
  """`1 kernel`, `2 kernels`."""
  return f"{number} {what}{'' if number == 1 else 's'}"


def program_of(trace: Trace) -> str:
  """The program's name and words, its process, and when it was started."""
  words, process, started = [trace.header.get(key) for key in ("program", "process", "started")]
  first, *rest = [str(word) for word in words] if isinstance(words, list) and words else ["a program"]
  *_, folder, file = ("", *first.split("/"))
  name = " ".join([f"python -m {folder}" if file == "__main__.py" else file, *rest])
  return printable(f"{name[:60]}, process {str(process)[:10]}, started {str(started)[:20]}")


def _unit_row(trace: Trace, number: int, span: SpanInfo) -> tuple[str, ...]:
  parent = None if span.parent is None else trace.spans[span.parent]
  compiling = duration(parent.seconds) if parent is not None and parent.kind == "compile" else ""
  steps = str(len(span.all_steps()))
  return str(number), span.kind, span.name, duration(span.seconds), compiling, str(len(passes(span))), steps


def warnings(trace: Trace) -> list[str]:
  """What a trace lacks."""
  if trace.truncated is not None:
    size = f"{trace.truncated / 1e6:g} MB"
    return [f"cut off at {size}: what came later is missing, except for the statistics; set VIZ_LIMIT to record more"]
  return [] if trace.complete else ["the program was ended before it could complete the trace: its end is missing"]


def unit_listing(graphs: Graphs, number: int, unit: SpanInfo, style: Style) -> list[str]:
  """One kernel or schedule: a line per pass."""
  title = f"{unit.kind} {number} {unit.name}: {duration(unit.seconds)}, {_nodes(graphs, unit).strip()} nodes"
  rows = [("number", "pass", "time", "rewrites", "nodes")]
  for place, span in enumerate(passes(unit)):
    rows.append((str(place), span.name, duration(span.seconds), str(len(span.all_steps())), _nodes(graphs, span)))
  if own := len(unit.steps):
    rows.append(("", "(outside of passes)", "", str(own), ""))
  return [style.bold(title), "", *columns(rows, "rlrrl", style)]


def step_listing(graphs: Graphs, steps: Iterable[Step], style: Style) -> list[str]:
  """A line per rewrite."""
  rows = [("step", "table", "rule", "before → after")]
  for step in steps:
    change = brief_change(graphs.uop(step.before), graphs.uop(step.after), SIDE)
    rows.append((str(step.number), step.rule.table, step.rule.name, change))
  return columns(rows, "rlll", style)


def path_of(trace: Trace, step: Step) -> str:
  """Where a rewrite was made: `kernel reduce_4, pass gates`."""
  names: list[str] = []
  span = None if step.span is None else trace.spans[step.span]
  while span is not None:
    if span.kind != "compile":
      names.append(f"{span.kind} {span.name}" if span.name != span.kind else span.kind)
    span = None if span.parent is None else trace.spans[span.parent]
  return ", ".join(reversed(names)) or "outside of schedules and kernels"


def stats_listing(trace: Trace, by: str) -> list[str]:
  """How often each rule, or the rules of each table, matched, and the time that took."""
  rows = grouped((_group(rule, by), count) for rule, count in trace.stats)
  return format_match_stats(rows, by).splitlines()


def pass_times(trace: Trace, style: Style) -> list[str]:
  """A line per pass, over all kernels and schedules, that which took longest first."""
  found: dict[tuple[str, str], list[SpanInfo]] = {}
  for unit in units(trace):
    for span in passes(unit):
      found.setdefault((unit.kind, span.name), []).append(span)
  times = {key: sum(span.seconds or 0.0 for span in spans) for key, spans in found.items()}
  whole = sum(times.values()) or 1.0
  rows: list[tuple[str, ...]] = [("share", "time", "runs", "rewrites", "of", "pass")]
  for key in sorted(found, key=lambda key: -times[key]):
    steps = sum(len(span.all_steps()) for span in found[key])
    share = f"{times[key] / whole:.2f}"
    rows.append((share, duration(times[key]), str(len(found[key])), str(steps), *key))
  return columns(rows, "rrrrll", style)


def _group(rule: RuleInfo, by: str) -> tuple[str, str]:
  return (rule.table, "") if by == "table" else (rule.name, rule.where)
