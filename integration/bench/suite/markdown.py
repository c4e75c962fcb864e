"""The table as Markdown, for a page that says what was measured."""

from __future__ import annotations

import math
from pathlib import Path

from suite.measuring import Row
from suite.report import LANE_NAMES, percent, rate, summary, verdict

BEGIN, END = "<!-- results: bench.py --markdown writes them -->", "<!-- end of results -->"


def results(rows: list[Row], where: str) -> str:
  """The machine, a table with a line for each row, and how many goals were reached."""
  lines = [f"{where}.", "", "| workload | ours | of roof | fastest other | goal |", "|---|---|---|---|---|"]
  for row in rows:
    ours = row.lanes["ours"]
    mine = rate(row.workload, ours.seconds) if ours.measured else "–"
    other = fastest(row, "")
    theirs = f"{LANE_NAMES.get(other, other)} {rate(row.workload, row.lanes[other].seconds)}" if other else ""
    cells = (row.workload.name, mine, percent(ours.share), theirs, f"{row.workload.goal}, {verdict(row)}")
    lines.append(f"| {' | '.join(cells)} |")
  ratios = [
    row.ratio(lane) for row in rows if row.workload.name.startswith("conv ") and (lane := fastest(row, "torch"))
  ]
  known = [ratio for ratio in ratios if ratio is not None]
  said = f"{summary(rows).splitlines()[0]}."
  if known:
    mean = math.exp(sum(map(math.log, known)) / len(known))
    said += f" Convolutions: {mean:.2f} times as fast as PyTorch in its faster layout (geometric mean)."
  return "\n".join([*lines, "", said])


def fastest(row: Row, library: str) -> str | None:
  """The fastest lane that is not ours, of those whose names begin with `library`; None if none was measured."""
  lanes = [n for n, f in row.lanes.items() if not n.startswith("ours") and n.startswith(library) and f.measured]
  return max(lanes, key=row.speed, default=None)


def write(path: Path, rows: list[Row], where: str) -> None:
  """Puts the results into a page between two comments, or at the end of one that has none. Raises ValueError for a page
  with one of the comments only."""
  text = path.read_text() if path.exists() else ""
  if (BEGIN in text) != (END in text) or text.find(END) < text.find(BEGIN):
    raise ValueError(f"{path}: expected {BEGIN!r} and after it {END!r}, found one of them, or the other way round")
  before, _, rest = text.partition(BEGIN)
  after = rest.partition(END)[2] or "\n"
  path.write_text(f"{before}{BEGIN}\n\n{results(rows, where)}\n\n{END}{after}")
