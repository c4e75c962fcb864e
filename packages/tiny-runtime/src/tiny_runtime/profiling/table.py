"""The tables of a profile, as text and for notebooks: by kernel, by layer, and where the time went."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tiny_runtime.profiling.record import Kind, Record
from tiny_runtime.units import duration, per_second, short
from tiny_uop.origins import Origin, Phase

if TYPE_CHECKING:
  from tiny_runtime.profiling.recording import Peaks, Profile

LAUNCHES: tuple[Kind, ...] = ("kernel", "graph")
KERNELS: tuple[Kind, ...] = ("kernel", "graph kernel")
COPIES: tuple[Kind, ...] = ("copy", "read", "write")
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimiser")
HEAD = ("calls", "total", "share", "GFLOPS", "GB/s", "roof", "where", "what")
LAYERS_HEAD = ("total", "share", *PHASES, "layer", "line")
MEMORY_HEAD = ("bytes", "buffers", "from ms", "to ms", "where", "what")
MOST_LAYERS = 20
WIDTH, MOST_WIDE = 120, 52
"""Characters of a line, and of a cell, at most."""


class Row(NamedTuple):
  """All records of one name and origin on one device."""

  what: str
  where: str
  device: str
  calls: int
  nanoseconds: int
  ops: int
  nbytes: int


class Layer(NamedTuple):
  """The kernels of a module, or of a line outside of modules: nanoseconds, also by phase."""

  module: str
  line: str
  nanoseconds: int
  phases: tuple[int, int, int]


class Part(NamedTuple):
  """A part of the time of a profile; all of them are the whole, if no two threads work at once."""

  what: str
  nanoseconds: int
  detail: str = ""


def own_times(records: Sequence[Record]) -> list[int]:
  """Nanoseconds of each record that are not in a record inside of it, of the same thread."""
  own = [record.end - record.start for record in records]
  stacks: dict[int, list[int]] = {}
  for n in sorted(range(len(records)), key=lambda n: (records[n].start, -records[n].end, -n)):
    record, stack = records[n], stacks.setdefault(records[n].thread, [])
    while stack and records[stack[-1]].end < record.end:
      stack.pop()
    if record.kind == "graph kernel":  # told by the device, of what a `graph` took
      continue
    if stack:
      own[stack[-1]] -= record.end - record.start
    stack.append(n)
  return own


def covered(spans: Iterable[tuple[int, int]]) -> int:
  """The length of the union of intervals."""
  total = reached = 0
  for start, end in sorted(spans):
    total += max(0, end - max(start, reached))
    reached = max(reached, end)
  return total


def without_told(records: Sequence[Record]) -> list[Record]:
  """The records, with what is left of each graph without the kernels that its device has told of."""
  told: dict[int, tuple[int, int, int, int]] = {}
  found = []
  for record in records:  # those of a graph come before it
    if record.kind == "graph kernel":
      busy, ops, nbytes, kernels = told.get(record.thread, (0, 0, 0, 0))
      told[record.thread] = busy + record.busy, ops + record.ops, nbytes + record.nbytes, kernels + 1
    elif record.kind == "graph" and (inside := told.pop(record.thread, None)) is not None:
      busy, ops, nbytes, _ = inside
      rest = [max(0, whole - part) for whole, part in ((record.busy, busy), (record.ops, ops), (record.nbytes, nbytes))]
      record = record._replace(busy=rest[0], ops=rest[1], nbytes=rest[2], name=f"between kernels of {record.name}")
    found.append(record)
  return found


def rows(profile: Profile) -> list[Row]:
  """What took how long, by kernel and origin: launches by their device's time, copies by their own; the longest
  first."""
  records = list(profile.records)
  found: dict[tuple[str, str, str, str], Row] = {}
  for record, own in zip(without_told(records), own_times(records)):
    if record.kind not in (*LAUNCHES, *KERNELS, *COPIES):
      continue
    time = own if record.kind in COPIES else record.busy
    key = ("" if record.kind in KERNELS else record.kind, record.name, record.device, origin_text(record))
    before = found.get(key) or Row(_called(record), key[3], record.device, 0, 0, 0, 0)
    _, _, _, calls, nanoseconds, ops, nbytes = before
    counts = calls + 1, nanoseconds + time, ops + record.ops, nbytes + record.nbytes
    found[key] = Row(before.what, before.where, before.device, *counts)
  return sorted(found.values(), key=lambda row: -row.nanoseconds)


def _called(record: Record) -> str:
  if record.kind in COPIES:
    return record.name if record.kind != "copy" else f"{record.name} to {record.device}"
  return f"{record.name} (graph of {record.kernels})" if record.kind == "graph" else record.name


def origin_text(record: Record) -> str:
  """`train.py:41 model.conv1 backward +2`: where most of a kernel comes from, and how many more places there are."""
  if not record.origins:
    return ""
  first = record.origins[0]
  phase = phase_of(record)
  more = f"+{len(record.origins) - 1}" if len(record.origins) > 1 else ""
  parts = (line_of(first), first.module, phase if phase != "forward" else "", more)
  return " ".join(filter(None, parts))


def line_of(origin: Origin) -> str:
  """`train.py:41`."""
  return f"{os.path.basename(origin.file)}:{origin.line}"


def phase_of(record: Record) -> Phase:
  """The phase in which a kernel runs: what it computes of the forward pass again, for a gradient, is of that."""
  phases = {origin.phase for origin in record.origins}
  first: Phase = record.origins[0].phase if record.origins else "forward"
  return "backward" if first == "forward" and "backward" in phases else first


def layers(profile: Profile) -> list[Layer]:
  """The kernels by the module, or else the line, that most of each comes from; the longest first."""
  found: dict[str, Layer] = {}
  for record in list(profile.records):
    if record.kind not in KERNELS:
      continue
    first = record.origins[0] if record.origins else None
    line = "" if first is None else line_of(first)
    module = "" if first is None else first.module
    before = found.get(module or line) or Layer(module, line, 0, (0, 0, 0))
    spent = [time + record.busy * (phase == phase_of(record)) for time, phase in zip(before.phases, PHASES)]
    total = before.nanoseconds + record.busy
    found[module or line] = before._replace(nanoseconds=total, phases=(spent[0], spent[1], spent[2]))
  return sorted(found.values(), key=lambda layer: -layer.nanoseconds)


def parts(profile: Profile) -> list[Part]:
  """Where the time went."""
  records = list(profile.records)
  own: dict[Kind, int] = {}
  busy = 0
  for record, nanoseconds in zip(records, own_times(records)):
    own[record.kind] = own.get(record.kind, 0) + nanoseconds
  told = {"kernel", "graph kernel"}
  for left in without_told(records):
    unknown = left.kind == "graph" and not left.name.startswith("between kernels of ")
    busy += left.busy if left.kind in told or unknown else 0
  launches = [record for record in records if record.kind in LAUNCHES]
  calls = sum(own.get(kind, 0) for kind in LAUNCHES)
  spans = covered((max(record.start, profile.began), record.end) for record in records)
  count = {kind: sum(record.kind == kind for record in records) for kind in ("copy", "read", "write", "compile")}
  new = [record.nbytes for record in records if record.kind == "alloc"]
  most = max((record.held for record in records), default=0)
  ops, nbytes = sum(r.ops for r in launches), sum(r.nbytes for r in launches)
  rates = "".join(
    f", {per_second(n, busy * 1e-9).strip()} {unit}" for n, unit in ((ops, "GFLOPS"), (nbytes, "GB/s")) if busy
  )
  return [
    Part("kernels", busy, f"{sum(r.kernels for r in launches)} in {len(launches)} calls{rates}"),
    Part("launch overhead", max(0, calls - busy)),
    Part("copies", sum(own.get(kind, 0) for kind in COPIES), ", ".join(f"{count[k]} {k}" for k in COPIES if count[k])),
    Part("compiling", own.get("compile", 0), f"{count['compile']} kernels"),
    Part("loading", own.get("load", 0)),
    Part("memory", own.get("alloc", 0) + own.get("free", 0), f"{short(sum(new))} new, {short(most)} in use at most"),
    Part("not explained", max(0, profile.duration - spans), "Python, and all else"),
    Part("in all", profile.duration),
  ]


def share_of_roof(ops: int, nbytes: int, seconds: float, peaks: Peaks | None) -> str:
  """`62% ops`, `80% mem`: the rate as a share of what bounds it, operations or bytes; empty where that is unknown."""
  if peaks is None or not seconds or not (ops or nbytes):
    return ""
  computing, moving = ops / peaks.ops_per_s, nbytes / peaks.bytes_per_s
  return f"{max(computing, moving) / seconds:.0%} {'ops' if computing > moving else 'mem'}"


def cells(profile: Profile, limit: int) -> tuple[list[Sequence[str]], list[Sequence[str]], list[Sequence[str]]]:
  """The lines of the three tables, by column."""
  peaks = profile.peaks()
  devices = {record.device for record in profile.records if record.kind in (*LAUNCHES, *KERNELS)}
  found = rows(profile)
  whole = sum(row.nanoseconds for row in found)
  lines: list[Sequence[str]] = []
  for row in found[:limit]:
    seconds = row.nanoseconds * 1e-9
    rates = [per_second(n, seconds).strip() if n and seconds else "" for n in (row.ops, row.nbytes)]
    roof = share_of_roof(row.ops, row.nbytes, seconds, peaks.get(row.device))
    what = f"{row.what} on {row.device}" if len(devices) > 1 and " to " not in row.what else row.what
    lines.append([str(row.calls), *_time(row.nanoseconds, whole), *rates, roof, row.where, what])
  if rest := found[limit:]:
    calls, left = sum(row.calls for row in rest), sum(row.nanoseconds for row in rest)
    lines.append([str(calls), *_time(left, whole), "", "", "", "", f"{len(rest)} others"])
  by_layer: list[Sequence[str]] = []
  known = layers(profile)
  if any(layer.line for layer in known):
    whole, most = sum(layer.nanoseconds for layer in known), min(limit, MOST_LAYERS)
    for layer in known[:most]:
      phases = [_time(time, whole)[0] if time else "" for time in layer.phases]
      name = layer.module or ("" if layer.line else "unknown")
      by_layer.append([*_time(layer.nanoseconds, whole), *phases, name, layer.line])
    if others := known[most:]:
      times = _time(sum(layer.nanoseconds for layer in others), whole)
      by_layer.append([*times, "", "", "", f"{len(others)} others", ""])
  totals: list[Sequence[str]] = [
    [part.what, *_time(part.nanoseconds, profile.duration), part.detail] for part in parts(profile)
  ]
  return lines, by_layer, totals


def _time(nanoseconds: int, whole: int) -> tuple[str, str]:
  """As text, and as a share."""
  return duration(nanoseconds * 1e-9).strip(), f"{nanoseconds / max(1, whole):.1%}"


def text(profile: Profile, limit: int) -> str:
  """See Profile.table."""
  lines, by_layer, totals = cells(profile, limit)
  tables = [_columns([HEAD, *lines], ">>>>>><<")]
  if by_layer:
    tables.append(_columns([LAYERS_HEAD, *by_layer], ">>>>><<"))
  return "\n\n".join([*tables, _columns(totals, "<>><")])


def _columns(lines: Sequence[Sequence[str]], sides: str) -> str:
  """Columns as wide as their cells; those that are empty are left out, and lines are cut where a terminal ends."""
  kept = [n for n in range(len(sides)) if any(line[n] for line in lines[1:])]
  lines = [[line[n] for n in kept] for line in lines]
  lines = [[cell if len(cell) <= MOST_WIDE else f"{cell[: MOST_WIDE - 1]}…" for cell in line] for line in lines]
  widths = [max(map(len, column)) for column in zip(*lines)]
  sides = "".join([sides[n] for n in kept])
  texts = ["  ".join(f"{c:{side}{width}}" for c, side, width in zip(line, sides, widths)).rstrip() for line in lines]
  return "\n".join(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in texts)


class Held(NamedTuple):
  """Memory of one kind that was in use at one time."""

  what: str
  where: str
  buffers: int
  nbytes: int
  came: int
  went: int | None


def held_at_most(profile: Profile) -> tuple[int, int, list[Held]]:
  """When most memory was in use (nanoseconds), how much that was (bytes), and what it was for, the largest first. What
  was there before the profile began is not told."""
  records = [record for record in profile.records if record.kind in ("alloc", "free")]
  peak = max(records, key=lambda record: record.held, default=None)
  if peak is None:
    return profile.began, 0, []
  went = {record.memory: record.end for record in records if record.kind == "free"}
  found: dict[tuple[str, str], Held] = {}
  for record in records:
    gone = went.get(record.memory)
    if record.kind != "alloc" or record.end > peak.end or (gone is not None and gone <= peak.end):
      continue
    key = record.tensor, origin_text(record)
    before = found.get(key)
    if before is None:
      found[key] = Held(*key, 1, record.nbytes, record.end, gone)
    else:
      last = None if gone is None or before.went is None else max(gone, before.went)
      found[key] = Held(*key, before.buffers + 1, before.nbytes + record.nbytes, min(before.came, record.end), last)
  return peak.end, peak.held, sorted(found.values(), key=lambda held: -held.nbytes)


def memory_text(profile: Profile, limit: int) -> str:
  """See Profile.memory."""
  when, nbytes, found = held_at_most(profile)

  def at(time: int | None) -> str:
    return "" if time is None else f"{(time - profile.began) * 1e-6:.2f}"

  lines = [[short(h.nbytes), str(h.buffers), at(h.came), at(h.went) or "kept", h.where, h.what] for h in found[:limit]]
  if rest := found[limit:]:
    lines.append(
      [short(sum(h.nbytes for h in rest)), str(sum(h.buffers for h in rest)), "", "", f"{len(rest)} others", ""]
    )
  if before := nbytes - sum(held.nbytes for held in found):
    lines.append([short(before), "", "", "", "from before the profile", ""])
  head = f"{short(nbytes)} in use at most, at {at(when)} ms of {profile.duration * 1e-6:.2f} ms"
  return f"{head}\n\n{_columns([MEMORY_HEAD, *lines], '>>>><<')}" if lines else head


def page(profile: Profile, limit: int = 100) -> str:
  """The same as HTML."""
  lines, by_layer, totals = cells(profile, limit)
  headed = [(HEAD, lines), (LAYERS_HEAD, by_layer)] if by_layer else [(HEAD, lines)]
  tables = [f"<table><tr>{_html_cells(head, 'th')}</tr>{_html(found)}</table>" for head, found in headed]
  return "".join([*tables, f"<table>{_html(totals)}</table>"])


def _html(lines: Iterable[Sequence[str]]) -> str:
  return "".join(f"<tr>{_html_cells(line, 'td')}</tr>" for line in lines)


def _html_cells(line: Sequence[str], tag: str) -> str:
  return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line)
