"""The table as Markdown, for a page that says what was measured."""

from __future__ import annotations

from pathlib import Path

from suite.measuring import Row
from suite.report import LANE_NAMES, percent, rate, summary, verdict

BEGIN, END = "<!-- results: bench.py --markdown writes them -->", "<!-- end of results -->"


def results(rows: list[Row], where: str) -> str:
  """The machine, a table with a line for each row, and how many goals were reached."""
  lines = [f"{where}.", "", "| workload | ours | of roof | goal | | others |", "|---|---|---|---|---|---|"]
  for row in rows:
    ours = row.lanes["ours"]
    mine = rate(row.workload, ours.seconds) if ours.measured else "–"
    others = [
      f"{LANE_NAMES.get(lane, lane)} {rate(row.workload, figures.seconds)}"
      for lane, figures in row.lanes.items()
      if lane != "ours" and figures.measured
    ]
    cells = (row.workload.name, mine, percent(ours.share), str(row.workload.goal), verdict(row), ", ".join(others))
    lines.append(f"| {' | '.join(cells)} |")
  return "\n".join([*lines, "", f"{summary(rows).splitlines()[0]}."])


def write(path: Path, rows: list[Row], where: str) -> None:
  """Puts the results into a page between two comments, or at the end of one that has none. Raises ValueError for a page
  with one of the comments only."""
  text = path.read_text() if path.exists() else ""
  if (BEGIN in text) != (END in text) or text.find(END) < text.find(BEGIN):
    raise ValueError(f"{path}: expected {BEGIN!r} and after it {END!r}, found one of them, or the other way round")
  before, _, rest = text.partition(BEGIN)
  after = rest.partition(END)[2] or "\n"
  path.write_text(f"{before}{BEGIN}\n\n{results(rows, where)}\n\n{END}{after}")
