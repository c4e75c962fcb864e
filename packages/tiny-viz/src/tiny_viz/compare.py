"""Two traces side by side: kernels that came, went, got slower or faster; and the same by layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tiny_viz.listing import units
from tiny_viz.run import Origin, RunRecord
from tiny_viz.trace import Trace

CHANGED = 1.1
"""How many times as long a kernel takes to be called slower, or faster the other way."""
PLACES = 8
"""Of which a row tells."""


@dataclass(slots=True)
class Sum:
  """Launches of one kernel, or of all that belong to one layer."""

  calls: int = 0
  busy: int = 0
  """Nanoseconds."""
  ops: int = 0
  nbytes: int = 0
  places: dict[str, None] = field(default_factory=dict)
  """Layers and lines that it is for, in order."""


def compared(before: Trace, after: Trace) -> dict[str, Any]:
  """`rows`, a row per kernel name, and `layers`, one per module and phase; what changed most first. The time of a call
  is what counts, where both have the kernel: the traces may be of runs of different length."""
  sides = (before, after)
  kernels = [_kernels(trace) for trace in sides]
  layers = [_layers(trace) for trace in sides]
  old, new = ({unit.name for unit in units(trace) if unit.kind == "kernel"} for trace in sides)
  return {
    "rows": _rows(kernels[0], kernels[1], old, new),
    "layers": _rows(layers[0], layers[1], set(), set()),
    "total": [sum(total.busy for total in of_side.values()) for of_side in kernels],
    "duration": [trace.run.ended - trace.run.began if trace.run else 0 for trace in sides],
  }


def _launches(trace: Trace) -> Iterable[tuple[RunRecord, list[Origin]]]:
  run = trace.run
  for record in run.records if run is not None else ():
    if record.kind in ("kernel", "graph kernel") and run is not None:
      yield record, [run.origins[number] for number in record.origins]


def _kernels(trace: Trace) -> dict[str, Sum]:
  return _sums((record.name, record, origins) for record, origins in _launches(trace))


def _layers(trace: Trace) -> dict[str, Sum]:
  return _sums((_layer(origins[0]), record, origins) for record, origins in _launches(trace) if origins)


def _layer(origin: Origin) -> str:
  name = origin.module or _line(origin)
  return f"{name}, {origin.phase}" if origin.phase else name


def _place(origin: Origin) -> str:
  return f"{_layer(origin)}, {_line(origin)}" if origin.module else _layer(origin)


def _line(origin: Origin) -> str:
  return f"{origin.file.rpartition('/')[2]}:{origin.line}"


def _sums(launches: Iterable[tuple[str, RunRecord, list[Origin]]]) -> dict[str, Sum]:
  found: dict[str, Sum] = {}
  for name, record, origins in launches:
    total = found.setdefault(name, Sum())
    total.calls, total.busy = total.calls + 1, total.busy + record.busy
    total.ops, total.nbytes = total.ops + record.ops, total.nbytes + record.nbytes
    if len(total.places) < PLACES:
      total.places |= dict.fromkeys(_place(origin) for origin in origins)
  return found


def _rows(before: dict[str, Sum], after: dict[str, Sum], old: set[str], new: set[str]) -> list[dict[str, Any]]:
  rows = []
  for name in dict.fromkeys((*before, *after, *sorted(old | new))):
    sides = [before.get(name), after.get(name)]
    there = [sides[0] is not None or name in old, sides[1] is not None or name in new]
    means = [side.busy / side.calls if side is not None else None for side in sides]
    rows.append({
      "name": name, "what": _what(there, means), "calls": [side.calls if side else 0 for side in sides],
      "busy": [side.busy if side else 0 for side in sides], "mean": means, "code": name in old and name in new,
      "ops": [side.ops if side else 0 for side in sides], "nbytes": [side.nbytes if side else 0 for side in sides],
      "places": list((sides[1] or sides[0] or Sum()).places)[:PLACES],
    })  # fmt: skip
  return sorted(rows, key=lambda row: -abs(row["busy"][1] - row["busy"][0]))


def _what(there: list[bool], means: list[float | None]) -> str:
  if not all(there):
    return "came" if there[1] else "went"
  old, new = means
  if not old or not new:
    return "same"
  return "slower" if new > old * CHANGED else "faster" if old > new * CHANGED else "same"
