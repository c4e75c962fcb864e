"""Two traces side by side: kernels that came, went, got slower or faster; and the same by layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tiny_viz.listing import units
from tiny_viz.trace import Trace

CHANGED = 1.1
"""How many times as long a kernel takes to be called slower, or faster the other way."""


@dataclass(slots=True)
class Sum:
  """Launches of one kernel, or of all that belong to one layer."""

  calls: int = 0
  busy: int = 0
  """Nanoseconds."""
  ops: int = 0
  nbytes: int = 0


def compared(before: Trace, after: Trace) -> dict[str, Any]:
  """`rows`, a row per kernel name, and `layers`, one per module and phase; what changed most first. The time of a call
  is what counts, where both have the kernel: the traces may be of runs of different length."""
  sides = (before, after)
  kernels = [_sums(_kernels(trace)) for trace in sides]
  layers = [_sums(_layers(trace)) for trace in sides]
  old, new = ({unit.name for unit in units(trace) if unit.kind == "kernel"} for trace in sides)
  return {
    "rows": _rows(kernels[0], kernels[1], old, new),
    "layers": _rows(layers[0], layers[1], set(), set()),
    "total": [sum(total.busy for total in of_side.values()) for of_side in kernels],
    "duration": [trace.run.ended - trace.run.began if trace.run else 0 for trace in sides],
  }


def _kernels(trace: Trace) -> Iterable[tuple[str, int, int, int]]:
  for record in trace.run.records if trace.run else ():
    if record.kind in ("kernel", "graph kernel"):
      yield record.name, record.busy, record.ops, record.nbytes


def _layers(trace: Trace) -> Iterable[tuple[str, int, int, int]]:
  run = trace.run
  for record in run.records if run is not None else ():
    if record.kind in ("kernel", "graph kernel") and record.origins and run is not None:
      origin = run.origins[record.origins[0]]
      name = origin.module or f"{origin.file.rpartition('/')[2]}:{origin.line}"
      yield f"{name}, {origin.phase}" if origin.phase else name, record.busy, record.ops, record.nbytes


def _sums(launches: Iterable[tuple[str, int, int, int]]) -> dict[str, Sum]:
  found: dict[str, Sum] = {}
  for name, busy, ops, nbytes in launches:
    total = found.setdefault(name, Sum())
    total.calls, total.busy = total.calls + 1, total.busy + busy
    total.ops, total.nbytes = total.ops + ops, total.nbytes + nbytes
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
    })  # fmt: skip
  return sorted(rows, key=lambda row: -abs(row["busy"][1] - row["busy"][0]))


def _what(there: list[bool], means: list[float | None]) -> str:
  if not all(there):
    return "came" if there[1] else "went"
  old, new = means
  if not old or not new:
    return "same"
  return "slower" if new > old * CHANGED else "faster" if old > new * CHANGED else "same"
