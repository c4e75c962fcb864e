"""The table that people read."""

from __future__ import annotations

import os
import platform

from suite.measuring import Figures, Row
from suite.workload import Workload

LANE_NAMES = {
  "numpy skylakex": "numpy avx512",
  "torch channels last": "torch chan.last",
}


def rate(workload: Workload, seconds: float) -> str:
  """Work per second where there is a roof, else time."""
  if workload.roof is None:
    return f"{seconds * 1e6:.1f} µs" if seconds < 0.01 else f"{seconds:.3f} s"
  value = workload.work / seconds / 1e9
  return f"{value:.3g} {workload.roof.unit}"


def percent(share: float | None) -> str:
  return "" if share is None else f"{share:.0%}"


def cell(row: Row, lane: str, figures: Figures) -> str:
  """A lane other than ours: how many times faster we are, its rate, its share of the roof."""
  name = LANE_NAMES.get(lane, lane)
  if figures.failure:
    return f"{name} FAILED ({figures.failure[:90]})"
  ratio = row.ratio(lane)
  times = "" if ratio is None else f" {ratio:.2f}×"
  share = f" {percent(figures.share)}" if figures.share is not None else ""
  return f"{name}{times} [{rate(row.workload, figures.seconds)}{share}]"


def verdict(row: Row) -> str:
  """Whether the goal is reached, and if not, by how much it is missed."""
  ours, reached = row.lanes["ours"], row.reached()
  if ours.failure:
    return "FAILED"
  if reached is None:
    return "no peer"
  return "reached" if reached >= 1 else f"MISSED, at {reached:.0%}"


HEADER = (
  f"{'workload':<34} {'ours':>13} {'of roof':>7} {'goal':<19} {'verdict':<17} "
  "how many times faster than … [its rate, its share of the roof]"
)


def show(row: Row) -> str:
  """A row of the table."""
  ours = row.lanes["ours"]
  mine = rate(row.workload, ours.seconds) if ours.measured else "-"
  cells = [cell(row, lane, figures) for lane, figures in row.lanes.items() if lane != "ours"]
  if ours.failure:
    cells.insert(0, f"ours FAILED ({ours.failure})")
  return (
    f"{row.workload.name:<34} {mine:>13} {percent(ours.share):>7} {str(row.workload.goal):<19} {verdict(row):<17} "
    + "; ".join(cells)
  )


def summary(rows: list[Row]) -> str:
  """How many goals are reached; which are missed, the worst first; what the roofs were."""
  verdicts = [(row.reached() or 0.0, row) for row in rows]
  missed = sorted((v for v in verdicts if v[0] < 1), key=lambda v: v[0])
  lines = [f"{len(rows) - len(missed)} of {len(rows)} goals reached"]
  lines += [f"  {share:5.0%} of the goal: {row.workload.name} ({row.workload.goal})" for share, row in missed]
  roofs: dict[str, list[float]] = {}
  for row in rows:
    roof = row.workload.roof
    if roof and row.roof:
      roofs.setdefault(f"{roof} ({roof.unit})", []).extend(value / 1e9 for value in row.roof)
  for name, samples in roofs.items():
    ordered = sorted(samples)
    lines.append(
      f"  roof {name}: median {ordered[len(ordered) // 2]:.1f}, best {ordered[-1]:.1f}, worst {ordered[0]:.1f}"
    )
  return "\n".join(lines)


def machine(cpus: list[int]) -> str:
  """Where this ran."""
  load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
  return f"{platform.machine()}, {os.cpu_count()} processors, of which {cpus} are used; load average {load:.1f}"
