"""`python -m tiny_uop`: looks at graphs in textual form, checks, simplifies and compares them."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import get_args

from tiny_uop import spec
from tiny_uop.args import KernelInfo
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher
from tiny_uop.rewrite import graph_rewrite
from tiny_uop.symbolic.simplify import TABLES
from tiny_uop.text.command_line import (
  InputError,
  UsageError,
  add_input_and_output,
  check_names,
  read_graph,
  run_tool,
  write_text,
)
from tiny_uop.text.diff import diff_graphs, summarise
from tiny_uop.text.print import print_uop
from tiny_uop.text.readable import readable
from tiny_uop.uop import UOp

_EPILOG = """\
`python -m tiny_uop COMMAND --help` says more. DEBUG=6 shows each rewrite on standard error.
Exit status: 0 done, 1 the input is at fault (standard error has file, line and reason), 2 the command line is;
of diff: 0 the same graph, 1 different ones, 2 anything wrong."""


def _level_of(root: UOp) -> spec.Level:
  """The level that a root belongs to."""
  if root.op is Ops.SINK and isinstance(root.arg, KernelInfo):
    return "kernel"
  if root.op is Ops.LINEAR:
    return "schedule" if all(s.op is Ops.CALL for s in root.src) else "program"
  return "program" if root.op is Ops.PROGRAM else "tensor"


def _check(options: argparse.Namespace) -> int:
  """is the graph legal at its level? (--level: at another one; --bounds: are its memory accesses in bounds?)"""
  graph = read_graph(options.input)
  level = options.level or _level_of(graph.root)
  graph.check(level)
  shown = ""
  if options.bounds:
    if level == "tensor":
      raise UsageError(f"{graph.name}: --bounds is about kernels, schedules and programs, this is a tensor graph")
    graph.check_bounds()
    shown = ", all accesses to memory in bounds"
  write_text(f"legal at the {level} level: {len(graph.root.toposort)} nodes{shown}\n", options.output)
  return 0


def _print(options: argparse.Namespace) -> int:
  """the graph in canonical form, or (--render) as formulas for people"""
  root = read_graph(options.input).root
  write_text(readable(root) if options.render else print_uop(root), options.output)
  return 0


def _simplify(options: argparse.Namespace) -> int:
  """the graph after rewrite rules: all of `simplify`, or those of some tables, or some rules only"""
  if options.list_tables:
    write_text("".join(f"{name:12} {len(table.rules)} rules\n" for name, table in TABLES.items()), options.output)
    return 0
  table = _rules(options.table, options.rule)
  if options.list_rules:
    write_text("".join(f"{rule.name}\n" for rule in table.rules), options.output)
    return 0
  graph = read_graph(options.input)
  graph.check_nodes()
  result = graph_rewrite(graph.root, table, bottom_up=not options.top_down, name="simplify")
  write_text(print_uop(result), options.output)
  return 0


def _rules(tables: Sequence[str], rules: Sequence[str]) -> PatternMatcher:
  """The rules of some tables; if any are named, only these."""
  chosen = sum(map(_table, tables or ["simplify"]), PatternMatcher([]))
  if not rules:
    return chosen
  check_names(rules, [rule.name for rule in chosen.rules], "rule")
  return PatternMatcher([rule for rule in chosen.rules if rule.name in rules])


def _table(name: str) -> PatternMatcher:
  module, colon, attribute = name.partition(":")
  if not colon:
    check_names([name], [*TABLES, "package.module:TABLE"], "table")
    return TABLES[name]
  try:
    table = getattr(importlib.import_module(module), attribute)
  except (ImportError, AttributeError) as error:
    raise UsageError(f"no table {name}: {error}") from error
  if not isinstance(table, PatternMatcher):
    raise UsageError(f"{name} is a {type(table).__name__}, expected a PatternMatcher")
  return table


def _diff(options: argparse.Namespace) -> int:
  """how the second graph differs from the first, node by node"""
  try:
    first, second = read_graph(options.first), read_graph(options.second)
  except InputError as error:
    raise UsageError(str(error)) from error  # status 1 says that the graphs differ
  lines = diff_graphs(first.root, second.root)
  if not lines:
    return 0
  size = f"{len(first.root.toposort)} nodes, {len(second.root.toposort)} nodes: {summarise(lines)}"
  text = [f"--- {first.name}", f"+++ {second.name}", f"@@ {size} @@", *map(str, lines)]
  write_text("\n".join(text) + "\n", options.output)
  return 1


def _kernels(options: argparse.Namespace) -> int:
  """the kernels of a schedule: a list, or (--take) one of them as a graph"""
  graph = read_graph(options.input)
  if graph.root.op is not Ops.LINEAR or _level_of(graph.root) != "schedule":
    raise UsageError(f"{graph.name}: expected a schedule (LINEAR of CALLs), got {graph.root.op.name}")
  graph.check("schedule")
  calls = [call.src[0] for call in graph.root.src]
  kernels = [body for body in dict.fromkeys(calls) if body.op is Ops.SINK]
  if options.take is None:
    lines = [f"{i:3} {k.arg.name}  {len(k.toposort)} nodes, called {calls.count(k)}×\n" for i, k in enumerate(kernels)]
    write_text("".join(lines), options.output)
    return 0
  known = {str(i): k for i, k in enumerate(kernels)}
  for k in kernels:
    known.setdefault(k.arg.name, k)
  check_names([options.take], known, "kernel")
  write_text(print_uop(known[options.take]), options.output)
  return 0


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog="python -m tiny_uop", description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
  made = {run: commands.add_parser(run.__name__[1:], help=run.__doc__, description=run.__doc__)
          for run in (_check, _print, _simplify, _kernels, _diff)}  # fmt: skip
  for run, command in made.items():
    command.set_defaults(run=run)
    if run is not _diff:
      add_input_and_output(command)
  option = made[_check].add_argument
  option("--level", choices=get_args(spec.Level), help="level to check against (default: by the root)")
  option("--bounds", action="store_true", help="prove that memory accesses are in bounds (with z3: tiny-uop[proof])")
  option = made[_print].add_argument
  option("--render", action="store_true", help="formulas and loops for people, which do not parse back")
  option = made[_simplify].add_argument
  option("--table", action="append", default=[], metavar="NAME",
         help="run the rules of this table (see --list-tables), or of a table of another package, "
         "package.module:TABLE; may be repeated (default: simplify)")  # fmt: skip
  option("--rule", action="append", default=[], metavar="NAME",
         help="run only this rule of the tables; may be repeated")  # fmt: skip
  option("--list-tables", action="store_true", help="list the tables and exit")
  option("--list-rules", action="store_true", help="list the rules that would run, and exit")
  option("--top-down", action="store_true", help="try a node before its sources (default: after them)")
  option = made[_kernels].add_argument
  option("--take", metavar="N", help="write this kernel: its number in the list, or its name")
  option = made[_diff].add_argument
  option("first", metavar="FIRST", help="file with the first graph (-: standard input)")
  option("second", metavar="SECOND", help="file with the second graph")
  option("-o", "--output", metavar="FILE", help="file to write (default, or -: standard output)")
  return parser


def main(arguments: Sequence[str] | None = None) -> int:
  """The exit status: 0, 1 for input that is at fault, 2 for a command line that is; of diff 0, 1, 2 as of `diff`."""
  options = _parser().parse_args(arguments)
  return run_tool("tiny_uop", lambda: int(options.run(options)))


if __name__ == "__main__":
  sys.exit(main())
