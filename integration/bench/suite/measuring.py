"""A row: results checked, then times in short slices by turns, each between two samples of what the machine can do."""

from __future__ import annotations

import os
import statistics
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from suite.processes import LaneError, Processes
from suite.workload import Workload

LEAST_ROUNDS = 3
SAMPLE_SECONDS = 0.01


@dataclass
class Figures:
  """What one lane did. `error`: the largest, as a share of the largest exact value. `failure`: what went wrong."""

  slices: list[float] = field(default_factory=list)
  """Seconds of a call, on average, of every slice."""
  shares: list[float] = field(default_factory=list)
  """Its rate as a fraction of the mean of the two samples of the roof around it, of every slice."""
  best: float = float("inf")
  spent: float = 0.0
  error: float | None = None
  failure: str = ""

  @property
  def seconds(self) -> float:
    """Median over the slices."""
    return statistics.median(self.slices)

  @property
  def share(self) -> float | None:
    """Median over the slices; None for rows without a roof."""
    return statistics.median(self.shares) if self.shares else None

  @property
  def measured(self) -> bool:
    return bool(self.slices) and not self.failure


@dataclass
class Row:
  """All of one workload."""

  workload: Workload
  lanes: dict[str, Figures]
  roof: list[float] = field(default_factory=list)
  """Samples: operations or bytes per second."""
  load: float = 0.0
  """Average number of processes that wanted to run, over the last minute."""

  def speed(self, lane: str) -> float:
    """What lanes are compared by: the share of the roof, which the moods of the machine cancel out of, or 1/seconds."""
    figures = self.lanes[lane]
    return figures.share if figures.share is not None else 1 / figures.seconds

  def ratio(self, lane: str) -> float | None:
    """Our speed over that of the lane; None if one of them has none."""
    if not (self.lanes["ours"].measured and self.lanes[lane].measured):
      return None
    return self.speed("ours") / self.speed(lane)

  def reached(self) -> float | None:
    """How much of the goal is reached: 1 is all of it. None if we have no figure, or there is none to compare with."""
    goal, ours = self.workload.goal, self.lanes["ours"]
    if not ours.measured:
      return None
    if goal.kind == "roof":
      assert ours.share is not None
      return ours.share / goal.value
    if goal.kind == "seconds":
      return goal.value / ours.seconds
    rivals = [n for n in self.lanes if n != "ours" and n in (goal.lanes or self.lanes) and self.lanes[n].measured]
    return self.speed("ours") / max(map(self.speed, rivals)) / goal.value if rivals else None

  def plain(self) -> dict[str, Any]:
    """For JSON."""
    lanes = {}
    for name, figures in self.lanes.items():
      lanes[name] = asdict(figures) | {"best": figures.best if figures.measured else None}
      if figures.measured:
        lanes[name] |= {"seconds": figures.seconds, "share": figures.share, "ratio": self.ratio(name)}
    w = self.workload
    return {
      "name": w.name, "group": w.group, "work": w.work, "goal": str(w.goal), "reached": self.reached(),
      "roof": asdict(w.roof) | {"samples": self.roof} if w.roof else None, "load": self.load, "lanes": lanes,
    }  # fmt: skip


@dataclass(frozen=True)
class Effort:
  """`seconds` for each lane, in slices of `slice`; `small` for tiny workloads."""

  seconds: float
  slice: float
  small: bool = False


def measure(processes: Processes, workload: Workload, lanes: list[str], effort: Effort) -> Row:
  """One row. A lane that fails or is wrong says so in its figures; it has no times then."""
  row = Row(workload, {name: Figures() for name in lanes})
  with tempfile.TemporaryDirectory(prefix="bench-") as folder:
    prepare(processes, row, Path(folder), effort)
  ready = [name for name, figures in row.lanes.items() if not figures.failure]
  rounds = 0
  while waiting := [n for n in ready if not row.lanes[n].failure and unfinished(row.lanes[n], effort, rounds)]:
    for name in waiting:
      take_slice(processes, row, name, effort)
    rounds += 1
  row.load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
  return row


def unfinished(figures: Figures, effort: Effort, rounds: int) -> bool:
  """A lane is measured for its time and three rounds; only twice where one call takes longer than that time."""
  least = LEAST_ROUNDS if figures.best < effort.seconds else 2
  return figures.spent < effort.seconds or rounds < least


def prepare(processes: Processes, row: Row, folder: Path, effort: Effort) -> None:
  """Inputs, compilation, warming up; and what each lane computes, against float64."""
  name = row.workload.name
  compared = row.workload.kind in ("call", "train", "adam")
  exact = None
  if compared:
    to = str(folder / "exact.npy")
    try:
      processes.ask("exact", do="prepare", workload=name, small=effort.small, to=to)
      exact = np.load(to)
    finally:
      if not effort.small:
        processes.end("exact")  # large arrays in float64
  for lane, figures in row.lanes.items():
    to = str(folder / f"{lane}.npy")
    try:
      processes.ask(lane, do="prepare", workload=name, small=effort.small, to=to)
      if exact is not None:
        figures.error = error_of(np.load(to), exact)
        if not figures.error <= row.workload.tolerance:
          figures.failure = f"wrong: off by {figures.error:.1e}, allowed are {row.workload.tolerance:.0e}"
    except LaneError as error:
      figures.failure = str(error)


def error_of(result: Any, exact: Any) -> float:
  """Largest difference as a share of the largest exact value; infinite for another shape, NaN if there is one."""
  if result.size != exact.size or result.shape[:1] != exact.shape[:1]:
    return float("inf")
  largest = float(np.abs(exact).max()) or 1.0
  return float(np.abs(result.reshape(exact.shape) - exact).max()) / largest


def take_slice(processes: Processes, row: Row, name: str, effort: Effort) -> None:
  """Some calls of a lane between two samples of the roof."""
  figures, roof = row.lanes[name], row.workload.roof

  def sample() -> float:
    assert roof is not None
    answer = processes.ask("roof", do="roof", kind=roof.kind, nbytes=roof.nbytes, seconds=SAMPLE_SECONDS)
    row.roof.append(answer["rate"])
    return float(answer["rate"])

  try:
    before = sample() if roof else 0.0
    answer = processes.ask(name, do="slice", seconds=effort.slice)
    after = sample() if roof else 0.0
  except LaneError as error:
    figures.failure = str(error)
    return
  seconds = float(answer["seconds"])
  figures.slices.append(seconds)
  figures.best = min(figures.best, answer["best"])
  figures.spent += seconds * answer["calls"]
  if roof:
    figures.shares.append(row.workload.work / seconds / ((before + after) / 2))
