"""`python -m tiny_sched < graph.uop > schedule.uop`: the scheduler as a filter on the textual form of the IR."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tiny_sched.schedule import schedule
from tiny_uop import parse_uop, print_uop


def main(arguments: Sequence[str] | None = None) -> int:
  """Reads a tensor graph, writes its schedule. 0, or 1 after a message on stderr when the graph is not legal."""
  parser = argparse.ArgumentParser(
    prog="python -m tiny_sched", description="Tensor graph in, schedule out; both as text."
  )
  parser.add_argument(
    "graph", nargs="?", type=argparse.FileType("r"), default=sys.stdin, help="file to read (default: standard input)"
  )
  options = parser.parse_args(arguments)
  try:
    print(print_uop(schedule(parse_uop(options.graph.read()))), end="\n")
  except (ValueError, TypeError) as error:
    print(f"tiny_sched: {error}", file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
