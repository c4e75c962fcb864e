"""`python -m tiny_uop check|print|simplify` : a filter on the textual form, from standard input to standard output."""

from __future__ import annotations

import argparse
import sys

from tiny_uop import spec
from tiny_uop.parse import parse_uop
from tiny_uop.symbolic import simplify
from tiny_uop.text import print_uop
from tiny_uop.uop import UOp


def _guess(root: UOp) -> spec.Level:
  """The level that a root belongs to."""
  from tiny_uop.args import KernelInfo
  from tiny_uop.ops import Ops

  if root.op is Ops.SINK and isinstance(root.arg, KernelInfo):
    return "kernel"
  if root.op in (Ops.PROGRAM, Ops.LINEAR):
    return "schedule" if root.op is Ops.LINEAR and all(s.op is Ops.CALL for s in root.src) else "program"
  return "tensor"


def main(arguments: list[str] | None = None) -> int:
  """Exit status 0, or 1 for text that is not the IR or a graph that is not legal (stderr has the reason)."""
  parser = argparse.ArgumentParser(prog="python -m tiny_uop", description=__doc__)
  parser.add_argument(
    "command",
    choices=["check", "print", "simplify"],
    help="verify, print in canonical form, or simplify the graph on stdin",
  )
  parser.add_argument(
    "--level", choices=["tensor", "schedule", "kernel", "program"], help="level to check against (default: by the root)"
  )
  options = parser.parse_args(arguments)
  try:
    root = parse_uop(sys.stdin.read())
    if options.command == "check":
      level = options.level or _guess(root)
      spec.check(root, level)
      print(f"legal at the {level} level: {len(root.toposort)} nodes")
    else:
      sys.stdout.write(print_uop(simplify(root) if options.command == "simplify" else root))
  except ValueError as error:
    print(f"error: {error}", file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
