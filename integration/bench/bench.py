"""How fast workloads are: ours, NumPy, PyTorch and tinygrad where installed, and what the machine can do at most.

    hatch run bench                              # ours and NumPy
    hatch run oracle:bench                       # all of them
    hatch run oracle:bench --single matmul       # one thread for everyone; groups, or parts of names
    hatch run oracle:bench --json out/bench.json --chart out/bench.png

How to read it: CONTRIBUTING.md, "Benchmarks".
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from suite import markdown
from suite.lanes import LANES
from suite.measuring import Effort, Row, measure
from suite.processes import Processes
from suite.report import HEADER, machine, show, summary
from suite.workload import Roof, Workload
from suite.workloads import all_workloads

LIBRARIES = ("numpy", "torch", "tinygrad")
ROOFS = (*map(Roof, ("fma", "dot int8", "dot bf16")), *(Roof(kind, 256 << 20) for kind in ("read", "copy", "triad")))
SAMPLES = 20  # of each roof


def chosen(words: list[str], small: bool) -> list[Workload]:
  """The workloads of these groups, or with these words in their names; all if there are no words."""
  every = all_workloads(small)
  groups = {w.group for w in every}
  for word in words:
    if word not in groups and not any(word in w.name for w in every):
      raise SystemExit(f"no workload is called {word!r}; groups: {', '.join(sorted(groups))}; --list shows the names")
  return [w for w in every if not words or any(word == w.group or word in w.name for word in words)]


def usable(workload: Workload, libraries: list[str]) -> list[str]:
  """The lanes of a workload that can run here."""
  allowed = {"tiny_tensor", *libraries}
  return [n for n in workload.lanes if LANES[n].library in allowed and LANES[n].usable()]


def arguments() -> argparse.Namespace:
  """What the command line says."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("only", nargs="*", help="groups, or parts of the names of workloads")
  parser.add_argument("--list", action="store_true", help="show groups and names, run nothing")
  parser.add_argument("--roofs", action="store_true", help="what the machine can do at most, no workloads")
  parser.add_argument(
    "--single", action="store_true", help="one thread for everyone, which a busy machine disturbs least"
  )
  parser.add_argument("--threads", type=int, default=2, help="threads for everyone (default: 2)")
  parser.add_argument("--cpus", help="processors to run on, as 0,1 (default: the first that this process may use)")
  parser.add_argument("--seconds", type=float, default=1.0, help="time for each lane of each workload (default: 1)")
  parser.add_argument(
    "--slice", type=float, default=0.05, help="seconds between two samples of the roof (default: 0.05)"
  )
  parser.add_argument("--libraries", nargs="*", choices=LIBRARIES, default=LIBRARIES, help="default: all installed")
  parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
  parser.add_argument("--chart", type=Path, metavar="FILE", help="draw a picture there (PNG; needs matplotlib)")
  parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the table into a page, where it says so")
  parser.add_argument("--log", type=Path, metavar="FILE", help="what the lanes write to stderr (default: nowhere)")
  parser.add_argument("--small", action="store_true", help="tiny sizes, to try the benchmark itself")
  return parser.parse_args()


def processors(args: argparse.Namespace) -> list[int]:
  """The processors that every lane runs on."""
  if args.cpus:
    return [int(cpu) for cpu in args.cpus.split(",")]
  count = 1 if args.single else args.threads
  allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
  return allowed[:count]


def write(args: argparse.Namespace, rows: list[Row], where: str) -> None:
  """The files that were asked for."""
  for path in filter(None, (args.json, args.chart, args.markdown)):
    path.parent.mkdir(parents=True, exist_ok=True)
  if args.json:
    args.json.write_text(json.dumps({"machine": where, "rows": [row.plain() for row in rows]}, indent=2) + "\n")
  if args.markdown:
    markdown.write(args.markdown, rows, where)
  if args.chart:
    from suite.chart import draw

    draw(rows, args.chart, where)


def show_roofs(processes: Processes, seconds: float, small: bool) -> None:
  """The rates of the machine, each the best of some samples."""
  for roof in ROOFS:
    nbytes = roof.nbytes >> 6 if small else roof.nbytes
    request = {"do": "roof", "kind": roof.kind, "nbytes": nbytes, "seconds": seconds / SAMPLES}
    best = max(processes.ask("roof", **request)["rate"] for _ in range(SAMPLES))
    print(f"{roof!s:<24} {best / 1e9:8.1f} {roof.unit}", flush=True)


def main() -> int:
  """Prints the table. Gives 1 if a result of ours is wrong or missing."""
  args = arguments()
  workloads = chosen(args.only, args.small)
  if args.list:
    for workload in workloads:
      print(f"{workload.group:<14} {workload.name:<34} {workload.goal}")
    return 0
  cpus, rows = processors(args), []
  where = machine(cpus)
  print(where if args.roofs else f"{where}\n{HEADER}", flush=True)
  if args.roofs:
    with (args.log or Path(os.devnull)).open("a") as log, Processes(cpus, log) as processes:
      show_roofs(processes, args.seconds, args.small)
    return 0
  effort = Effort(args.seconds, args.slice, args.small)
  with (args.log or Path(os.devnull)).open("a") as log, Processes(cpus, log) as processes:
    for workload in workloads:
      rows.append(measure(processes, workload, usable(workload, args.libraries), effort))
      print(show(rows[-1]), flush=True)
  print(summary(rows))
  write(args, rows, where)
  return 1 if any(row.lanes["ours"].failure for row in rows) else 0


if __name__ == "__main__":
  sys.exit(main())
