"""`python -m tiny_dist`: which groups are usable, and why others are not. `run` starts a program in many processes,
`plan` says what it would send on so many."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tiny_dist import launch
from tiny_dist.groups.discovery import probed
from tiny_dist.start import started


def main(arguments: Sequence[str] | None = None) -> int:
  """The command; gives its exit code."""
  parser = argparse.ArgumentParser(prog="python -m tiny_dist", description=__doc__)
  commands = parser.add_subparsers(dest="command")
  run = commands.add_parser("run", help="run a program in N processes by the installed mpiexec")
  run.add_argument("-n", type=int, default=2, help="how many processes (2)")
  run.add_argument("--mpi", action="append", default=[], metavar="OPTION", help="an option for mpiexec")
  run.add_argument("program", nargs=argparse.REMAINDER, help="a script, or -m and a module, with arguments")
  plan = commands.add_parser("plan", help="what a program would keep and send on N ranks; it runs here as rank 0")
  plan.add_argument("--ranks", type=int, default=8, help="how many (8)")
  plan.add_argument("--link", default="10GB/s", help="bytes that a rank sends in a second (10GB/s)")
  plan.add_argument("--latency", type=float, default=20e-6, help="seconds that a collective takes at least (2e-5)")
  plan.add_argument("--speed", default="0", help="operations of a rank in a second, as 300T; 0: as here (0)")
  plan.add_argument("program", nargs=argparse.REMAINDER, help="a script, with arguments")
  given = parser.parse_args(arguments)
  if given.command == "plan":
    if not given.program:
      plan.error("a program is missing")
    from tiny_dist.plan import plan as planned
    from tiny_dist.plan import rate_of

    print(planned(given.program, given.ranks, rate_of(given.link), given.latency, rate_of(given.speed)))
    return 0
  if given.command == "run":
    if not given.program:
      run.error("a program to run is missing")
    try:
      return launch.run(given.n, given.program, given.mpi)
    except FileNotFoundError as error:
      print(error, file=sys.stderr)
      return 1
  return table()


def table() -> int:
  """Prints who started this process, and each group with what it says. Gives 0 if one can be used."""
  start = started()
  print(f"rank {start.rank} of {start.size}, started by {start.launcher or 'nobody in particular'}")
  usable = False
  for row in probed(start):
    usable |= row.usable
    print(f"{row.name:8} {'usable' if row.usable else 'no':8} {row.distribution:18} {row.says}")
  return 0 if usable else 1


if __name__ == "__main__":
  sys.exit(main())
