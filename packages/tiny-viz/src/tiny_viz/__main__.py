"""`python -m tiny_viz TRACE`: what is in a trace that a program saved under VIZ=-1, as text; `python -m tiny_viz serve
TRACE`: in a browser; `python -m tiny_viz sqtt TRACE`: what a GPU recorded of its waves, as text."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from typing import TYPE_CHECKING

from tiny_uop import Context, UOp, print_uop
from tiny_uop.observe import brief
from tiny_uop.text.diff import DiffLine, diff_graphs, summarise
from tiny_viz.graphs import Graphs
from tiny_viz.listing import (
  counted,
  duration,
  overview,
  pass_times,
  passes,
  path_of,
  stats_listing,
  step_listing,
  unit_listing,
  units,
  warnings,
)
from tiny_viz.terminal import Style, style_for
from tiny_viz.trace import SpanInfo, Step, Trace, read_trace

if TYPE_CHECKING:
  from tiny_viz.serve import Server  # late: it takes as long as all else

LINE = 100


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog="python -m tiny_viz",
    description="Shows what is in a trace (a program run with VIZ=-1 saves one): a line per schedule and kernel. "
    "Options choose a part of it. `python -m tiny_viz serve TRACE` shows it in a browser, "
    "`python -m tiny_viz sqtt TRACE` what a GPU recorded of its waves.",
  )
  parser.add_argument("trace", help="the file, tiny-trace-….jsonl.gz")
  parser.add_argument("--kernel", metavar="NAME", help="a kernel or schedule, by name or number: a line per pass")
  parser.add_argument(
    "--pass", metavar="NAME", dest="step_name", help="a pass, by name (or number, with --kernel): a line per rewrite"
  )
  parser.add_argument("--rule", metavar="NAME", help="only rewrites by this rule")
  parser.add_argument("--step", metavar="N", type=int, help="the difference that one rewrite made")
  parser.add_argument("--diff", action="store_true", help="with --pass: the difference that the pass made")
  parser.add_argument(
    "--graph",
    nargs="+",
    metavar="WHICH",
    help="`N before` or `N after`: the graph of rewrite N in the textual form; with --pass, `before` or `after`: "
    "that of the pass",
  )
  parser.add_argument(
    "--whole", action="store_true", help="with --step and --graph: the graph around the node that was rewritten, too"
  )
  parser.add_argument(
    "--stats",
    nargs="?",
    const="rule",
    choices=["rule", "table", "pass"],
    help="matches, attempts and times per rule or table; times per pass",
  )
  parser.add_argument("--color", choices=["auto", "always", "never"], default="auto", help="default: on a terminal")
  return parser


def _serve_parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog="python -m tiny_viz serve",
    description="Shows a trace in a browser: prints an address of this machine, and serves it until Ctrl-C.",
  )
  parser.add_argument("trace", help="the file, tiny-trace-….jsonl.gz, or a profile's, saved as .jsonl")
  parser.add_argument("--before", metavar="TRACE", help="another trace, to compare with: that before a change")
  parser.add_argument("--html", metavar="FILE", help="write one file that works offline, instead of serving")
  parser.add_argument(
    "--kernels",
    metavar="N",
    type=int,
    default=10,
    help="passes and graphs of how many, in that file (default: 10)",
  )
  parser.add_argument("--port", type=int, default=0, help="default: any that is free")
  parser.add_argument("--open", action="store_true", help="open the browser, too")
  parser.add_argument("--until-closed", action="store_true", help="end when the standard input does")
  return parser


def _sqtt_parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog="python -m tiny_viz sqtt",
    description="Shows what a GPU recorded of launches: counters, waves, and what their instructions waited.",
  )
  parser.add_argument("trace", help="a trace with thread traces and counters in it")
  parser.add_argument("--launch", metavar="N", type=int, help="one launch, by the number of its record")
  parser.add_argument("--wave", metavar="N", type=int, help="with --launch: each instruction of a wave, by its number")
  parser.add_argument("--packets", metavar="ENGINE", type=int, help="with --launch: the packets of a shader engine")
  parser.add_argument("--color", choices=["auto", "always", "never"], default="auto", help="default: on a terminal")
  return parser


def _sqtt(arguments: list[str]) -> list[str]:
  from tiny_viz.hardware import Recordings, launch_listing, packet_listing, wave_listing

  options = _sqtt_parser().parse_args(arguments)
  style = style_for(sys.stdout, options.color)
  recordings = Recordings(read_trace(options.trace, lazy=True).run)
  if options.launch is None and (options.wave is not None or options.packets is not None):
    raise ValueError("name the launch as well, with --launch")
  if options.packets is not None:
    return packet_listing(recordings, options.launch, options.packets)
  if options.wave is not None:
    return wave_listing(recordings, options.launch, options.wave, style)
  launches = recordings.launches if options.launch is None else [options.launch]
  parts = [launch_listing(recordings, launch, style) for launch in launches]
  return [line for n, part in enumerate(parts) for line in (*([""] if n else ()), *part)]


def _serve(arguments: list[str]) -> int:
  from tiny_viz.answers import Answers
  from tiny_viz.page import write_page
  from tiny_viz.serve import Server

  options = _serve_parser().parse_args(arguments)
  trace = read_trace(options.trace, lazy=True)
  if trace.run is not None and (trace.run.thread_traces or trace.run.counter_blocks):
    from tiny_viz.hardware import Recordings

    for problem in Recordings(trace.run).add_to_run():
      print(f"warning: {problem}", file=sys.stderr)
  before = None if options.before is None else read_trace(options.before, lazy=True)
  answers = Answers(trace, os.path.basename(options.trace), before, os.path.basename(options.before or ""))
  if options.html is not None:
    size = write_page(answers, options.html, options.kernels)
    print(f"{options.html}: {size / 1e6:.1f} MB", file=sys.stderr)
    return 0
  with Server(answers, options.port) as server:
    print(f"trace    {server.url}    (Ctrl-C ends it)", file=sys.stderr, flush=True)
    if options.until_closed:
      threading.Thread(target=_until_closed, args=(server,), daemon=True).start()
    if options.open:
      import webbrowser

      webbrowser.open(server.url)
    try:
      server.serve_forever()
    except KeyboardInterrupt:
      return 0
  return 0


def _until_closed(server: Server) -> None:
  sys.stdin.buffer.read()
  server.shutdown()


def main(arguments: list[str] | None = None) -> int:
  """Exit status 0, or 1 for a file that is no trace and for what is not in it (stderr has the reason)."""
  given = sys.argv[1:] if arguments is None else arguments
  try:
    with Context(DEBUG=0, TRACK_MATCH_STATS=0, VIZ=0):  # they are for the program that is looked at
      if given[:1] == ["serve"]:
        return _serve(given[1:])
      if given[:1] == ["sqtt"]:
        lines = _sqtt(given[1:])
      else:
        options = _parser().parse_args(given)
        lines = _answer(read_trace(options.trace), options, style_for(sys.stdout, options.color))
  except (OSError, ValueError) as error:
    print(f"error: {error}", file=sys.stderr)
    return 1
  try:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
  except BrokenPipeError:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` has seen enough
  return 0


def _answer(trace: Trace, options: argparse.Namespace, style: Style) -> list[str]:
  graphs = Graphs(trace)
  if options.graph is not None:
    return print_uop(_chosen_graph(graphs, options)).splitlines()
  if options.step is not None:
    return _difference(graphs, _step(trace, options.step), options.whole, style)
  if options.stats == "pass":
    return pass_times(trace, style)
  if options.stats is not None:
    if not trace.stats:
      raise ValueError(f"this trace has no statistics: {'; '.join(warnings(trace)) or 'no rule was tried'}")
    return stats_listing(trace, options.stats)
  chosen = _units(trace, options)
  if options.diff:
    return _pass_difference(graphs, _one_pass(graphs, options), style)
  if options.step_name is None and options.rule is None:
    if options.kernel is None:
      return overview(trace, style)
    parts = [unit_listing(graphs, number, unit, style) for number, unit in chosen]
    return [line for i, part in enumerate(parts) for line in (*([""] if i else ()), *part)]
  return _rewrites(graphs, chosen, options, style)


def _rewrites(
  graphs: Graphs, chosen: list[tuple[int, SpanInfo]], options: argparse.Namespace, style: Style
) -> list[str]:
  if options.step_name is not None:
    spans = [span for _, unit in chosen for span in _passes(unit, options.step_name)]
    if not spans:
      raise _unknown("pass", options.step_name, [s for _, u in chosen for s in passes(u)])
    steps = [step for span in spans for step in span.all_steps()]
  elif options.kernel is not None:
    steps = [step for _, unit in chosen for step in unit.all_steps()]
  else:
    steps = graphs.trace.steps
  if options.rule is not None:
    steps = [step for step in steps if step.rule.name == options.rule]
  what = counted(len(steps), "rewrite") + (f" by {options.rule}" if options.rule else "")
  return [what, "", *step_listing(graphs, steps, style)] if steps else [what]


def _named(spans: list[tuple[int, SpanInfo]], wanted: str, what: str) -> list[tuple[int, SpanInfo]]:
  """Those with the name, or else with the number."""
  found = [(number, span) for number, span in spans if span.name == wanted]
  found = found or [(number, span) for number, span in spans if str(number) == wanted]
  if not found:
    raise _unknown(what, wanted, [span for _, span in spans])
  return found


def _passes(unit: SpanInfo, wanted: str) -> list[SpanInfo]:
  numbered = list(enumerate(passes(unit)))
  return [s for _, s in numbered if s.name == wanted] or [s for number, s in numbered if str(number) == wanted]


def _unknown(what: str, wanted: str, spans: list[SpanInfo]) -> ValueError:
  names = list(dict.fromkeys(span.name for span in spans))
  some = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
  return ValueError(f"no {what} is called {wanted!r} or has that number; there is: {some or 'none'}")


def _step(trace: Trace, number: int) -> Step:
  if not 0 <= number < len(trace.steps):
    there = f"0 to {len(trace.steps) - 1}" if trace.steps else "none"
    raise ValueError(f"there is no rewrite {number} in this trace; there is: {there}")
  return trace.steps[number]


def _units(trace: Trace, options: argparse.Namespace) -> list[tuple[int, SpanInfo]]:
  chosen = list(enumerate(units(trace)))
  return chosen if options.kernel is None else _named(chosen, options.kernel, "kernel or schedule")


def _one_pass(graphs: Graphs, options: argparse.Namespace) -> SpanInfo:
  if options.step_name is None:
    raise ValueError("name the pass as well, with --pass")
  found = [(u, span) for u in _units(graphs.trace, options) for span in _passes(u[1], options.step_name)]
  if not found:
    raise _unknown("pass", options.step_name, [s for _, u in _units(graphs.trace, options) for s in passes(u)])
  if len(found) > 1:
    some = ", ".join(f"{number} ({unit.name})" for (number, unit), _ in found[:10])
    raise ValueError(f"{len(found)} passes are called {options.step_name!r}: choose one with --kernel, of {some}")
  return found[0][1]


def _chosen_graph(graphs: Graphs, options: argparse.Namespace) -> UOp:
  *number, side = options.graph
  if side not in ("before", "after") or len(number) > 1 or not all(n.isdecimal() for n in number):
    raise ValueError(f"--graph takes the number of a rewrite and `before` or `after`, got {' '.join(options.graph)!r}")
  if number:
    step = _step(graphs.trace, int(number[0]))
    pair = graphs.whole(step) if options.whole else (graphs.uop(step.before), graphs.uop(step.after))
    return pair[side == "after"]
  return _of_span(graphs, _one_pass(graphs, options))[side == "after"]


def _of_span(graphs: Graphs, span: SpanInfo) -> tuple[UOp, UOp]:
  if span.before is None or span.after is None:
    raise ValueError(f"the trace does not have both graphs of pass {span.name}: it raised, or the trace ends before it")
  return graphs.uop(span.before), graphs.uop(span.after)


def _pass_difference(graphs: Graphs, span: SpanInfo, style: Style) -> list[str]:
  difference = diff_graphs(*_of_span(graphs, span))
  title = f"pass {span.name}: {duration(span.seconds)}, {counted(len(span.all_steps()), 'rewrite')}"
  return [style.bold(title), "", *_coloured(difference, style), "", summarise(difference)]


def _coloured(difference: list[DiffLine], style: Style) -> list[str]:
  return [style.difference(line.kind, str(line)) for line in difference]


def _difference(graphs: Graphs, step: Step, whole: bool, style: Style) -> list[str]:
  trace, rule = graphs.trace, step.rule
  before, after = graphs.uop(step.before), graphs.uop(step.after)
  difference = diff_graphs(*(graphs.whole(step) if whole else (before, after)))
  return [
    style.bold(f"rewrite {step.number} of {len(trace.steps)}: {rule.name}") + f"  {rule.where}",
    f"in {path_of(trace, step)}; {duration(step.seconds)}, {duration(step.started)} after the start",
    "",
    "  before  " + brief(before, LINE),
    "  after   " + brief(after, LINE),
    "",
    *_coloured(difference, style),
    "",
    summarise(difference),
  ]


if __name__ == "__main__":
  sys.exit(main())
