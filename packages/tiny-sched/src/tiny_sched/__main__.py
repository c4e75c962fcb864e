"""`python -m tiny_sched < graph.uop > schedule.uop`: the scheduler as a filter on the textual form of the IR."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from tiny_sched.normalise import Normal, normalise
from tiny_sched.passes import PASSES, passes_for
from tiny_sched.room import Room
from tiny_sched.schedule import check_roots, instantiate
from tiny_uop import Ops, UOp, print_uop
from tiny_uop.observe import span
from tiny_uop.passes import Pass, run_passes
from tiny_uop.text.command_line import (
  Graph,
  add_input_and_output,
  add_pass_options,
  list_passes,
  print_pass,
  read_graph,
  run_tool,
  selected,
  write_text,
)

_EPILOG = """\
--stop-after PASS and --start-after PASS cut the way in two: what the first half writes, the second one reads.
Exit status: 0 done, 1 the graph is at fault (standard error has file, line and reason), 2 the command line is."""


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog="python -m tiny_sched",
    description="Tensor graph in, schedule out; both in the textual form of the IR (see tiny-uop).",
    epilog=_EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add_input_and_output(parser)
  add_pass_options(parser)
  parser.add_argument(
    "--local-memory", metavar="DEVICE=BYTES,…", type=_sizes, default={},
    help="what threads of a workgroup share; 0: no workgroups, as on a processor. For pass blocks",
  )  # fmt: skip
  parser.add_argument(
    "--threads", metavar="DEVICE=COUNT,…", type=_sizes, default={},
    help="how many threads share a kernel, where there are many. For passes blocks and kernels",
  )  # fmt: skip
  return parser


def _sizes(text: str) -> dict[str, int]:
  """`CPU=0,GPU=49152`."""
  return {name: int(size) for name, _, size in (part.partition("=") for part in text.split(",") if part)}


def _with_buffers(normal: Normal, root: UOp) -> UOp:
  """A graph between two passes, over the buffers and values of the input."""
  if root.op is Ops.LINEAR:
    return instantiate(root, normal)
  return root.substitute(normal.originals() | normal.binds)


def _check(graph: Graph, first: Pass) -> None:
  if graph.root.op is not first.takes:
    return  # which `run_passes` refuses, saying what it takes
  if graph.root.op is Ops.LINEAR:
    graph.check("schedule")
  else:
    graph.check("tensor")
    check_roots(graph.root)


def _run(options: argparse.Namespace) -> int:
  if options.passes:
    write_text(list_passes(PASSES), options.output)
    return 0
  passes = selected(
    passes_for(lambda device: Room(options.local_memory.get(device), options.threads.get(device, 0))), options
  )
  graph = read_graph(options.input)
  _check(graph, passes[0])
  normal = normalise(graph.root)
  with_buffers = partial(_with_buffers, normal)
  root = normal.sink
  with span("schedule", "schedule", root) as work:
    for step in passes:
      print_pass(options, "before", step, with_buffers(root), "graph")
      root = run_passes(root, (step,))
      print_pass(options, "after", step, with_buffers(root), "graph")
    work.gives(root)
  write_text(print_uop(with_buffers(root)), options.output)
  return 0


def main(arguments: Sequence[str] | None = None) -> int:
  """The exit status: 0, 1 for a graph that is not legal, 2 for a command line that is wrong."""
  options = _parser().parse_args(arguments)
  return run_tool("tiny_sched", lambda: _run(options))


if __name__ == "__main__":
  sys.exit(main())
