"""`python -m tiny_codegen --target llvm < kernel.uop > kernel.ll`: the code generator as a filter on the textual form
of the IR.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from tiny_codegen.compile import PassContext, program_of, report, run_passes
from tiny_codegen.pipeline import OPTIONAL, PASSES
from tiny_codegen.render.base import Renderer
from tiny_codegen.render.c.renderer import CRenderer
from tiny_codegen.render.llvm.renderer import LLVMRenderer
from tiny_codegen.render.llvm.target import cpu_target
from tiny_codegen.target import CacheSizes
from tiny_uop import KernelInfo, Ops, Opt, OptOps, UOp, print_uop
from tiny_uop.observe import span
from tiny_uop.passes import Pass
from tiny_uop.text import command_line as cli

_OPT = re.compile(r"([A-Za-z]+)\((?:(\d+|None)(?:,(\d+|None|\([\d,]*\)))?)?\)")
_EPILOG = """\
--stop-after PASS and --start-after PASS cut the way in two: what the first half writes, the second one reads.
  python -m tiny_codegen --stop-after stage kernel.uop | python -m tiny_codegen --start-after stage --target c
Exit status: 0 done, 1 the input is at fault (standard error has file, line and reason), 2 the command line is."""


def parse_opt(text: str) -> Opt:
  """`VECTOR(1,8)`, `STAGE(2,(0,3))`, `STAGE(None,(0,3))`, `NOLOCALS()`, as DEBUG=3 prints them. Raises UsageError for
  anything else."""
  found = _OPT.fullmatch(text.replace(" ", ""))
  if found is None or found[1].upper() not in OptOps.__members__:
    names = ", ".join(OptOps.__members__)
    raise cli.UsageError(f"{text!r} is no optimisation: expected NAME(axis) or NAME(axis,amount), NAME one of {names}")
  argument: int | tuple[int, ...] | None = None
  axis = None if found[2] in (None, "None") else int(found[2])
  if (amount := found[3]) not in (None, "None"):
    argument = tuple([int(n) for n in amount[1:-1].split(",") if n]) if amount.startswith("(") else int(amount)
  return Opt(OptOps[found[1].upper()], axis, argument)


def kernels_of(root: UOp) -> list[UOp]:
  """The kernels of a parsed graph: itself, or those that a schedule calls. Raises ValueError where there is none."""
  if root.op is Ops.SINK:
    return [root if isinstance(root.arg, KernelInfo) else root.replace(arg=KernelInfo())]
  if root.op is Ops.LINEAR:
    bodies = [call.src[0] for call in root.src if call.op is Ops.CALL and call.src[0].op is Ops.SINK]
    if bodies:
      return list(dict.fromkeys(bodies))
  raise ValueError(f"expected a kernel (SINK) or a schedule (LINEAR of CALLs) with kernels, got {root.op.name}")


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog="python -m tiny_codegen",
    description="Kernel or schedule in (textual form of the IR, see tiny-uop), source text of the target out.",
    epilog=_EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  cli.add_input_and_output(parser)
  parser.add_argument("--kernel", metavar="N", help="compile only this kernel of a schedule: its number, or its name")
  parser.add_argument(
    "--emit", choices=["source", "program"], default="source", help="the source text, or the PROGRAM in textual form"
  )
  target = parser.add_argument_group("target")
  target.add_argument("--target", choices=["llvm", "c"], default="llvm", help="language of the output (default: llvm)")
  target.add_argument("--triple", default="", help="llvm: target triple: what the processor is assumed to have")
  target.add_argument("--cpu", default="", help="llvm: name of the processor")
  target.add_argument("--features", default="", help="llvm: features of the processor, as +avx2,+fma")
  target.add_argument(
    "--caches", metavar="L1,L2,L3", help="llvm: cache sizes of a core, as 48K,2M,16M (default: usual ones)"
  )
  opts = parser.add_argument_group("optimisations")
  opts.add_argument(
    "--opt",
    action="append",
    metavar="NAME(AXIS,AMOUNT)",
    help="apply this optimisation instead of choosing; may be repeated",
  )
  opts.add_argument("--no-opt", action="store_true", help="apply no optimisations")
  cli.add_pass_options(parser)
  parser.add_argument(
    "--skip", action="append", default=[], metavar="PASS",
    help=f"leave out an optional pass ({', '.join(sorted(OPTIONAL))}); may be repeated",
  )  # fmt: skip
  return parser


def _renderer(options: argparse.Namespace) -> Renderer:
  if options.target == "c":
    return CRenderer()
  try:
    caches = None if options.caches is None else CacheSizes.parse(options.caches)
  except ValueError as error:
    raise cli.UsageError(f"--caches: {error}") from None
  features = tuple([f for f in options.features.split(",") if f])
  return LLVMRenderer(cpu_target(options.triple, options.cpu, features, caches=caches))


def _opts(options: argparse.Namespace) -> tuple[Opt, ...] | None:
  if options.no_opt and options.opt:
    raise cli.UsageError("--no-opt and --opt exclude each other")
  return () if options.no_opt else tuple([parse_opt(o) for o in options.opt]) if options.opt else None


def _chosen(kernels: list[UOp], wanted: str | None) -> list[UOp]:
  if wanted is None:
    return kernels
  if wanted.isdecimal():
    if int(wanted) >= len(kernels):
      raise cli.UsageError(f"there is no kernel {wanted}: the schedule has {len(kernels)}, numbered from 0")
    return [kernels[int(wanted)]]
  cli.check_names([wanted], [k.arg.name for k in kernels], "kernel")
  return [k for k in kernels if k.arg.name == wanted][:1]


def _kernels(graph: cli.Graph, options: argparse.Namespace) -> list[UOp]:
  """The kernels to compile, or the one LINEAR of a program that is left to lower or render. All of them are legal."""
  root = graph.root
  if root.op is Ops.LINEAR and not any(s.op is Ops.CALL for s in root.src):
    graph.check("program")
    lowering = [p.name for p in PASSES if p.takes is Ops.LINEAR]
    if options.start_after not in [p.name for p in PASSES if p.gives == "program"] and options.only not in lowering:
      raise cli.UsageError(f"{graph.name} is a program already: --start-after {PASSES[-1].name} renders it")
    return [root]
  kernels = _chosen(kernels_of(root), options.kernel)
  if root.op is Ops.LINEAR:
    graph.check("schedule")
  else:
    graph.check("kernel", kernels[0])
  return kernels


def _run(options: argparse.Namespace) -> int:
  if options.passes:
    cli.write_text(cli.list_passes(PASSES), options.output)
    return 0
  cli.check_names(options.skip, sorted(OPTIONAL), "optional pass")
  passes, opts = cli.selected(PASSES, options, may_be_none=True), _opts(options)
  renderer = _renderer(options)
  kernels = _kernels(cli.read_graph(options.input), options)
  is_text = options.emit == "program" or options.stop_after is not None or options.only is not None
  if is_text and len(kernels) > 1:
    raise cli.UsageError(f"a text has one graph: choose one of the {len(kernels)} kernels with --kernel")
  written = [_compiled(kernel, renderer, PassContext(renderer.target, opts), passes, options) for kernel in kernels]
  cli.write_text("".join(written), options.output)
  return 0


def _compiled(
  kernel: UOp, renderer: Renderer, context: PassContext, passes: Sequence[Pass], options: argparse.Namespace
) -> str:
  name = getattr(kernel.arg, "name", "kernel")
  root = kernel
  with span("kernel", name, kernel) as work:
    for step in passes:
      cli.print_pass(options, "before", step, root, name)
      root = run_passes(root, context, options.skip, passes=(step,))
      cli.print_pass(options, "after", step, root, name)
    work.gives(root)
    if options.stop_after is not None or options.only is not None:
      return print_uop(root)
    if root.op is not Ops.LINEAR:
      raise cli.UsageError(f"{kernel.op.name} is no program: --start-after {PASSES[-1].name} takes what that pass gave")
    program = report(program_of(kernel, root, renderer))
  if options.emit == "source":
    return str(program.src[2].arg) + "\n"
  if kernel.op is not Ops.SINK:
    raise cli.UsageError("a PROGRAM records its kernel, which the input does not have: use --emit source")
  return print_uop(program)


def main(arguments: Sequence[str] | None = None) -> int:
  """The exit status: 0, 1 for input that is not legal or cannot be lowered, 2 for a command line that is wrong."""
  options = _parser().parse_args(arguments)
  return cli.run_tool("tiny_codegen", lambda: _run(options))


if __name__ == "__main__":
  sys.exit(main())
