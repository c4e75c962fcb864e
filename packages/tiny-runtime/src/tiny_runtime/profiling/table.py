"""The table of a profile, as text and for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tiny_runtime.profiling.record import Kind, Record
from tiny_runtime.units import duration, per_second, short

if TYPE_CHECKING:
  from tiny_runtime.profiling.recording import Profile

LAUNCHES: tuple[Kind, ...] = ("kernel", "graph")
COPIES: tuple[Kind, ...] = ("copy", "read", "write")
HEAD = ("calls", "total", "mean", "GFLOPS", "GB/s", "share", "what")


class Row(NamedTuple):
  """All records of one kind and name on one device."""

  what: str
  calls: int
  nanoseconds: int
  ops: int
  nbytes: int


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


def rows(profile: Profile) -> list[Row]:
  """What took how long: launches by their device's time, copies by their own; the longest first."""
  records = list(profile.records)
  found: dict[tuple[str, str, str], Row] = {}
  for record, own in zip(records, own_times(records)):
    if record.kind not in (*LAUNCHES, "graph kernel", *COPIES):
      continue
    time = own if record.kind in COPIES else record.busy
    key = (record.kind, record.name, record.device)
    _, calls, nanoseconds, ops, nbytes = found.get(key) or Row("", 0, 0, 0, 0)
    found[key] = Row(_called(record), calls + 1, nanoseconds + time, ops + record.ops, nbytes + record.nbytes)
  return sorted(found.values(), key=lambda row: -row.nanoseconds)


def _called(record: Record) -> str:
  if record.kind in COPIES:
    return record.name if record.kind != "copy" else f"{record.name} to {record.device}"
  inside = f" (graph of {record.kernels})" if record.kind == "graph" else ""
  return f"{record.name}{inside} on {record.device}"


def parts(profile: Profile) -> list[Part]:
  """Where the time went."""
  records = list(profile.records)
  own: dict[Kind, int] = {}
  busy = 0
  for record, nanoseconds in zip(records, own_times(records)):
    busy += record.busy if record.kind in LAUNCHES else 0
    own[record.kind] = own.get(record.kind, 0) + nanoseconds
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


def cells(profile: Profile, limit: int) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
  """The lines of both tables, by column."""
  whole = max(1, profile.duration)
  found = rows(profile)
  lines: list[Sequence[str]] = []
  for row in found[:limit]:
    seconds = row.nanoseconds * 1e-9
    rates = [per_second(n, seconds).strip() if n and seconds else "" for n in (row.ops, row.nbytes)]
    times = [duration(seconds).strip(), duration(seconds / row.calls).strip()]
    lines.append([str(row.calls), *times, *rates, f"{row.nanoseconds / whole:.1%}", row.what])
  if rest := found[limit:]:
    calls, left = sum(row.calls for row in rest), sum(row.nanoseconds for row in rest)
    total, share = duration(left * 1e-9).strip(), f"{left / whole:.1%}"
    lines.append([str(calls), total, "", "", "", share, f"{len(rest)} others"])
  totals: list[Sequence[str]] = [
    [part.what, duration(part.nanoseconds * 1e-9).strip(), f"{part.nanoseconds / whole:.1%}", part.detail]
    for part in parts(profile)
  ]
  return lines, totals


def text(profile: Profile, limit: int) -> str:
  """See Profile.table."""
  lines, totals = cells(profile, limit)
  return f"{_columns([HEAD, *lines], '>>>>>><')}\n\n{_columns(totals, '<>><')}"


def _columns(lines: Sequence[Sequence[str]], sides: str) -> str:
  widths = [max(map(len, column)) for column in zip(*lines)]
  return "\n".join(
    "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths)).rstrip() for line in lines
  )


def page(profile: Profile, limit: int = 100) -> str:
  """The same as HTML."""
  lines, totals = cells(profile, limit)
  head = "".join(f"<th>{html.escape(cell)}</th>" for cell in HEAD)
  return f"<table><tr>{head}</tr>{_html(lines)}</table><table>{_html(totals)}</table>"


def _html(lines: Iterable[Sequence[str]]) -> str:
  return "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
