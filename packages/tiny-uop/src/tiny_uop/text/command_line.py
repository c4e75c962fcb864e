"""What the stage tools (`python -m tiny_uop`, `tiny_sched`, `tiny_codegen`) share: how they read, write and fail.

Text comes from a file or from standard input and goes to standard output or a file; what is wrong with it goes to
standard error as `tool: file:line:column: message`. Exit status 0: done; 1: the input is not the IR, not legal, or
cannot be processed; 2: the command line is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from pathlib import Path

from tiny_uop import spec
from tiny_uop.passes import Pass
from tiny_uop.proof.bounds import BoundsError, check_bounds
from tiny_uop.records import dataclass
from tiny_uop.rewrite import RewriteLoop
from tiny_uop.spec import SpecError
from tiny_uop.text.parse import ParseError, parse_lines
from tiny_uop.text.print import print_uop
from tiny_uop.uop import UOp

STDIN = "<stdin>"


class InputError(ValueError):
  """The input is at fault; the message begins with its name, and line and column where they are known."""


class UsageError(ValueError):
  """The command line is at fault."""


@dataclass(frozen=True)
class Graph:
  """A graph that was read: `root`, the `name` of the file, and the line that each node stands on."""

  root: UOp
  name: str
  lines: dict[UOp, int]

  def check(self, level: spec.Level, root: UOp | None = None) -> None:
    """Raises InputError, naming the line, for a graph (`root`: another one made of it) that is illegal at a level."""
    self._checked(lambda: spec.check(self.root if root is None else root, level))

  def check_nodes(self) -> None:
    """Raises InputError for a graph with a node that is legal at no level."""
    self._checked(lambda: spec.check_nodes(self.root))

  def check_bounds(self) -> None:
    """Raises InputError for an access to memory that is not, or cannot be shown to be, in bounds, and UsageError where
    z3, which has to show it, is not installed."""
    try:
      self._checked(lambda: check_bounds(self.root))
    except ImportError as error:
      raise UsageError(str(error)) from error

  def _checked(self, check: Callable[[], None]) -> None:
    try:
      check()
    except (SpecError, BoundsError) as error:
      line = self.lines.get(error.node)
      raise InputError(f"{self.name}{'' if line is None else f':{line}'}: {error}") from error


def read_graph(path: str | None) -> Graph:
  """The graph in a file (None or "-": standard input). Raises InputError for text that is not the IR, and UsageError
  for a file that cannot be read."""
  name = STDIN if path in (None, "-") else str(path)
  try:
    data = sys.stdin.buffer.read() if name is STDIN else Path(name).read_bytes()
    root, lines = parse_lines(_decoded(data))
  except OSError as error:
    raise UsageError(f"{name}: {error.strerror}") from error
  except ParseError as error:
    raise InputError(f"{name}:{error.line}:{error.column}: {error.reason}") from error
  return Graph(root, name, lines)


def _decoded(data: bytes) -> str:
  try:
    return data.decode("utf-8")
  except UnicodeDecodeError as error:
    lines = data[: error.start].decode("utf-8").split("\n")
    reason = f"byte {data[error.start]:#04x} is not UTF-8: expected the textual form"
    raise ParseError(reason, len(lines), len(lines[-1]) + 1) from error


def write_text(text: str, path: str | None) -> None:
  """Writes to a file (None or "-": standard output). Raises UsageError for a file that cannot be written."""
  if path in (None, "-"):
    sys.stdout.write(text)
    return
  try:
    Path(str(path)).write_text(text, encoding="utf-8")
  except OSError as error:
    raise UsageError(f"{path}: {error.strerror}") from error


def run_tool(name: str, action: Callable[[], int]) -> int:
  """The exit status of a tool; failures become one line on standard error."""
  try:
    status = action()
    sys.stdout.flush()
    return status
  except BrokenPipeError:  # who reads the output has seen enough, as in `… | head`
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
  except (ValueError, TypeError, NotImplementedError, RewriteLoop) as error:
    print(f"{name}: {error}", file=sys.stderr)
    return 2 if isinstance(error, UsageError) else 1


# *** pipelines of passes ***


def add_input_and_output(parser: argparse.ArgumentParser) -> None:
  """The arguments INPUT and -o."""
  parser.add_argument("input", nargs="?", metavar="INPUT", help="file to read (default, or -: standard input)")
  parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default, or -: standard output)")


def add_pass_options(parser: argparse.ArgumentParser) -> None:
  """The options that select and print passes."""
  group = parser.add_argument_group("passes")
  group.add_argument("--passes", action="store_true", help="list the passes in order and exit")
  group.add_argument("--start-after", metavar="PASS", help="the input is what this pass gave: run only those after it")
  group.add_argument("--stop-after", metavar="PASS", help="write what this pass gives, in textual form")
  group.add_argument("--only", metavar="PASS", help="run this pass alone")
  for when in ("before", "after"):
    group.add_argument(
      f"--print-{when}", action="append", default=[], metavar="PASS",
      help=f"show the IR {when} this pass (or `all`) on standard error; may be repeated",
    )  # fmt: skip


_CAPITALS = "Capitals: operations (tiny_uop.Ops; README of tiny-uop) or kinds of loops (help(tiny_uop.AxisType))."


def list_passes(passes: Sequence[Pass]) -> str:
  """Name and description of each pass, a line each; then, after an empty line, what the signs in them mean."""
  width = max(len(p.name) + p.optional for p in passes)
  listed = "".join(f"{p.name + '*' * p.optional:{width}}  {p.doc}\n" for p in passes)
  optional = "* optional: --skip leaves it out.\n" if any(p.optional for p in passes) else ""
  return f"{listed}\n{optional}{_CAPITALS}\n"


def selected(passes: Sequence[Pass], options: argparse.Namespace, may_be_none: bool = False) -> tuple[Pass, ...]:
  """The passes that the options of `add_pass_options` ask for. Raises UsageError for names that there are not, and
  where no pass is left unless `may_be_none`."""
  names = [p.name for p in passes]
  asked = [options.start_after, options.stop_after, options.only]
  check_names([n for n in asked if n is not None], names)
  check_names([n for n in (*options.print_before, *options.print_after) if n != "all"], names)
  if options.only is not None:
    if options.start_after is not None or options.stop_after is not None:
      raise UsageError("--only PASS runs one pass: leave out --start-after and --stop-after")
    return tuple([p for p in passes if p.name == options.only])
  start = names.index(options.start_after) + 1 if options.start_after is not None else 0
  stop = names.index(options.stop_after) + 1 if options.stop_after is not None else len(names)
  if start >= stop and not (may_be_none and start == stop == len(names)):
    raise UsageError(f"there is no pass after {options.start_after} up to {options.stop_after or names[-1]}")
  return tuple(passes[start:stop])


def check_names(asked: Collection[str], known: Collection[str], what: str = "pass") -> None:
  """Raises UsageError, listing those that there are, for a name that is not known."""
  if unknown := [name for name in asked if name not in known]:
    close = known if len(known) <= 40 else get_close_matches(unknown[0], known, 5, 0.4)
    more = "" if len(close) == len(known) else ", …"
    raise UsageError(f"no {what} is named {', '.join(unknown)}: expected one of {', '.join(close)}{more}")


def print_pass(options: argparse.Namespace, when: str, step: Pass, root: UOp, what: str) -> None:
  """Shows the IR before or after (`when`) a pass, on standard error, where --print-before or --print-after names it.
  `what` says what the graph is."""
  wanted = getattr(options, f"print_{when}")
  if step.name in wanted or "all" in wanted:
    print(f"# {what} {when} {step.name}\n{print_uop(root)}", file=sys.stderr)
