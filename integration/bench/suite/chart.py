"""A picture of a table: for each row our rate and those of the others, as shares of the goal."""

from __future__ import annotations

from pathlib import Path

from suite.measuring import Row
from suite.report import LANE_NAMES

COLOURS = {
  "ours": "#1a5fb4", "ours fp32": "#99c1f1", "numpy": "#e5a50a", "numpy warm": "#f6d32d", "numpy skylakex": "#986a44",
  "torch": "#c64600", "torch warm": "#ff7800", "torch channels last": "#ffbe6f", "torch compiled": "#813d9c",
  "tinygrad": "#77767b",
}  # fmt: skip


def goal_seconds(row: Row) -> float | None:
  """Speed that would just reach the goal, in the unit of `Row.speed`."""
  reached = row.reached()
  return row.speed("ours") / reached if reached else None


def draw(rows: list[Row], path: Path, title: str) -> None:
  """Writes the picture. Needs matplotlib. Every row has a line of dots: 1 is the goal, to the right of it is better."""
  import matplotlib

  matplotlib.use("Agg")
  import matplotlib.pyplot as plt
  from matplotlib import ticker

  figure, axes = plt.subplots(figsize=(11, 1.6 + 0.3 * len(rows)))
  seen: set[str] = set()
  for height, row in enumerate(reversed(rows)):
    goal = goal_seconds(row)
    if goal is None:
      axes.text(1, height, "no figure", va="center", ha="center", fontsize=8, color="#c01010")
      continue
    for lane, figures in row.lanes.items():
      if figures.measured:
        label = None if lane in seen else LANE_NAMES.get(lane, lane)
        seen.add(lane)
        ours = lane == "ours"
        axes.plot(
          row.speed(lane) / goal, height, "D" if ours else "o", color=COLOURS[lane], label=label,
          markersize=8 if ours else 6, zorder=3 if ours else 2, markeredgecolor="white", markeredgewidth=0.5,
        )  # fmt: skip
  axes.axvline(1, color="#26a269", linewidth=1.5, zorder=1)
  axes.set_xscale("log")
  axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
  axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
  axes.xaxis.set_minor_formatter(ticker.NullFormatter())
  axes.set_yticks(
    range(len(rows)), [f"{row.workload.name}   {row.workload.goal}" for row in reversed(rows)], fontsize=8
  )
  axes.set_ylim(-0.7, len(rows) - 0.3)
  axes.grid(axis="x", which="major", color="#dddddd", zorder=0)
  axes.grid(axis="y", color="#f2f2f2", zorder=0)
  axes.set_xlabel("speed as a share of the goal (log scale)")
  axes.set_title(title, fontsize=10)
  axes.legend(loc="upper center", bbox_to_anchor=(0.3, -0.9 / len(rows) - 0.02), ncol=5, fontsize=8, frameon=False)
  figure.savefig(path, dpi=130, bbox_inches="tight")
  plt.close(figure)
