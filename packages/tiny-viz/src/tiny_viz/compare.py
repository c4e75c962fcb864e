"""Two traces side by side: kernels that came, went, got slower or faster; and the same by layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tiny_viz.listing import units
from tiny_viz.run import Origin, RunRecord
from tiny_viz.trace import SpanInfo, Trace

CHANGED = 1.1
"""How many times as long a kernel takes to be called slower, or faster the other way."""
LEAST = 0.002
"""And which part of all time that is at least: small kernels take now more, now less."""
PLACES = 8
"""Of which a row tells."""


@dataclass(slots=True)
class Sum:
  """Launches of one kernel, or of all that belong to one layer."""

  name: str = ""
  calls: int = 0
  busy: int = 0
  """Nanoseconds."""
  ops: int = 0
  nbytes: int = 0
  places: dict[str, None] = field(default_factory=dict)
  """Layers and lines that it is for, in order."""


def compared(before: Trace, after: Trace) -> dict[str, Any]:
  """`rows`, a row per kernel, and `layers`, one per module and phase; what changed most first. The time of a call is
  what counts, where both have the kernel: the traces may be of runs of different length. Each call counts with the
  median of those that do the same: what the system does meanwhile would else look like a change.

  A kernel that both have is known by its key. One that only one of them has is set beside one of the same name in the
  other, where there is one, of the same layer if possible: the kernel changed. Traces without keys go by names."""
  sides = (before, after)
  known = all(trace.run is None or any(record.key for record in trace.run.records) for trace in sides)
  kernels = [_kernels(trace, known) for trace in sides]
  layers = [_layers(trace) for trace in sides]
  pairs = _pairs(*kernels)
  compiled = [{_known(unit, known) for unit in units(trace) if unit.kind == "kernel"} for trace in sides]
  return {
    "rows": _rows(kernels, pairs, compiled),
    "layers": _rows(layers, [(key, key) for key in dict.fromkeys((*layers[0], *layers[1]))], [set(), set()]),
    "total": [sum(total.busy for total in of_side.values()) for of_side in kernels],
    "duration": [trace.run.ended - trace.run.began if trace.run else 0 for trace in sides],
  }


def _launches(trace: Trace) -> Iterable[tuple[RunRecord, list[Origin]]]:
  if (run := trace.run) is None:
    return
  alike: dict[tuple[str, str, int, int], list[RunRecord]] = {}
  for record in run.records:
    if record.kind in ("kernel", "graph kernel"):
      alike.setdefault((record.key or record.name, record.device, record.ops, record.nbytes), []).append(record)
  for records in alike.values():
    usual = int(median([record.busy for record in records]))
    for record in records:
      yield record._replace(busy=usual), [run.origins[number] for number in record.origins]


def _known(kernel: RunRecord | SpanInfo, by_key: bool) -> str:
  return by_key and kernel.key or kernel.name


def _kernels(trace: Trace, by_key: bool) -> dict[str, Sum]:
  """By key, or name; those that were compiled and did not run, too."""
  found = _sums((_known(record, by_key), record.name, record, origins) for record, origins in _launches(trace))
  for unit in units(trace):
    if unit.kind == "kernel":
      found.setdefault(_known(unit, by_key), Sum(unit.name))
  return found


def _pairs(before: dict[str, Sum], after: dict[str, Sum]) -> list[tuple[str | None, str | None]]:
  """Which kernels are set side by side."""
  went = [key for key in before if key not in after]
  pairs: list[tuple[str | None, str | None]] = [(key, key) for key in before if key in after]
  came = [key for key in after if key not in before]
  for of_one_layer in (True, False):
    for key in list(came):
      new = after[key]
      same = [old for old in went if before[old].name == new.name]
      same = [old for old in same if not of_one_layer or list(before[old].places)[:1] == list(new.places)[:1]]
      if same:
        pairs.append((same[0], key))
        went.remove(same[0])
        came.remove(key)
  return [*pairs, *[(key, None) for key in went], *[(None, key) for key in came]]


def _layers(trace: Trace) -> dict[str, Sum]:
  launches = ((_layer(origins[0]), record, origins) for record, origins in _launches(trace) if origins)
  return _sums((layer, layer, record, origins) for layer, record, origins in launches)


def _layer(origin: Origin) -> str:
  name = origin.module or _line(origin)
  return f"{name}, {origin.phase}" if origin.phase else name


def _place(origin: Origin) -> str:
  return f"{_layer(origin)}, {_line(origin)}" if origin.module else _layer(origin)


def _line(origin: Origin) -> str:
  return f"{origin.file.rpartition('/')[2]}:{origin.line}"


def _sums(launches: Iterable[tuple[str, str, RunRecord, list[Origin]]]) -> dict[str, Sum]:
  """By what each is known by, with its name."""
  found: dict[str, Sum] = {}
  for known, name, record, origins in launches:
    total = found.setdefault(known, Sum(name))
    total.calls, total.busy = total.calls + 1, total.busy + record.busy
    total.ops, total.nbytes = total.ops + record.ops, total.nbytes + record.nbytes
    if len(total.places) < PLACES:
      total.places |= dict.fromkeys(_place(origin) for origin in origins)
  return found


def _rows(
  of_sides: Sequence[dict[str, Sum]], pairs: Sequence[tuple[str | None, str | None]], compiled: Sequence[set[str]]
) -> list[dict[str, Any]]:
  rows = []
  least = LEAST * max(sum(side.busy for side in of_side.values()) for of_side in of_sides)
  for pair in pairs:
    sides = [None if key is None else of_side.get(key) for key, of_side in zip(pair, of_sides)]
    means = [side.busy / side.calls if side is not None and side.calls else None for side in sides]
    shown = sides[1] or sides[0] or Sum()
    what = _what([side is not None for side in sides], means, least / max(1, shown.calls))
    rows.append({
      "name": shown.name, "keys": pair, "what": what,
      "calls": [side.calls if side else 0 for side in sides], "busy": [side.busy if side else 0 for side in sides],
      "mean": means, "code": all(key in of_side for key, of_side in zip(pair, compiled)),
      "changed": None not in pair and pair[0] != pair[1],
      "ops": [side.ops if side else 0 for side in sides], "nbytes": [side.nbytes if side else 0 for side in sides],
      "places": list(shown.places)[:PLACES],
    })  # fmt: skip
  return sorted(rows, key=lambda row: -abs(row["busy"][1] - row["busy"][0]))


def _what(there: list[bool], means: list[float | None], least: float) -> str:
  if not all(there):
    return "came" if there[1] else "went"
  old, new = means
  if not old or not new or abs(new - old) < least:
    return "same"
  return "slower" if new > old * CHANGED else "faster" if old > new * CHANGED else "same"
