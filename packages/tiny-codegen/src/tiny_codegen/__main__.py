"""`python -m tiny_codegen --target llvm < kernel.uop > kernel.ll`: the code generator as a filter on the textual form
of the IR.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from tiny_codegen.passes import Pass, PassContext
from tiny_codegen.pipeline import OPTIONAL, PASSES, compile_kernel, run_passes
from tiny_codegen.render.base import Renderer
from tiny_codegen.render.c import CRenderer
from tiny_codegen.render.llvm import LLVMRenderer
from tiny_codegen.render.llvm_target import cpu_target
from tiny_uop import KernelInfo, Ops, Opt, OptOps, UOp, parse_uop, print_uop

_OPT = re.compile(r"([A-Za-z]+)\((\d+)(?:,(\d+|\([\d,]*\)))?\)")


def parse_opt(text: str) -> Opt:
  """`VECTOR(1,8)`, `STAGE(2,(0,3))`. Raises ValueError for anything else."""
  found = _OPT.fullmatch(text.replace(" ", ""))
  if found is None or found[1].upper() not in OptOps.__members__:
    names = ", ".join(OptOps.__members__)
    raise ValueError(f"{text!r} is no optimisation: expected NAME(axis) or NAME(axis,amount), NAME one of {names}")
  argument: int | tuple[int, ...] | None = None
  if (amount := found[3]) is not None:
    argument = tuple([int(n) for n in amount[1:-1].split(",") if n]) if amount.startswith("(") else int(amount)
  return Opt(OptOps[found[1].upper()], int(found[2]), argument)


def kernels_of(root: UOp) -> list[UOp]:
  """The kernels of a parsed graph: itself, or those that a schedule calls. Raises ValueError where there is none."""
  if root.op is Ops.SINK:
    return [root if isinstance(root.arg, KernelInfo) else root.replace(arg=KernelInfo())]
  if root.op is Ops.LINEAR:
    bodies = [call.src[0] for call in root.src if call.op is Ops.CALL and call.src[0].op is Ops.SINK]
    if bodies:
      return list(dict.fromkeys(bodies))
  raise ValueError(f"expected a kernel (SINK) or a schedule (LINEAR of CALLs) with kernels, got {root.op.name}")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog="python -m tiny_codegen", description="Kernel or schedule in (text of the IR), source text out."
  )
  parser.add_argument(
    "input", nargs="?", type=argparse.FileType("r"), default=sys.stdin, help="file to read (default: standard input)"
  )
  parser.add_argument("--target", choices=["llvm", "c"], default="llvm", help="language of the output")
  parser.add_argument(
    "--triple", default="", help="llvm: target triple, which decides what the processor is assumed to have"
  )
  parser.add_argument("--cpu", default="", help="llvm: name of the processor")
  parser.add_argument("--features", default="", help="llvm: features of the processor, as +avx2,+fma")
  parser.add_argument(
    "--opt",
    action="append",
    metavar="NAME(AXIS,AMOUNT)",
    help="apply this optimisation instead of choosing; may be repeated",
  )
  parser.add_argument("--no-opt", action="store_true", help="apply no optimisations")
  parser.add_argument("--kernel", type=int, metavar="N", help="compile only kernel N of a schedule, from 0")
  parser.add_argument(
    "--emit",
    choices=["source", "program"],
    default="source",
    help="print the source text, or the PROGRAM as text of the IR",
  )
  parser.add_argument(
    "--print-after", action="append", default=[], metavar="PASS", help="print the IR after a pass (or `all`) instead"
  )
  parser.add_argument(
    "--skip",
    action="append",
    default=[],
    metavar="PASS",
    help=f"leave out an optional pass: {', '.join(sorted(OPTIONAL))}",
  )
  parser.add_argument("--passes", action="store_true", help="list the passes and exit")
  return parser.parse_args(arguments)


def _renderer(options: argparse.Namespace) -> Renderer:
  if options.target == "c":
    return CRenderer()
  return LLVMRenderer(cpu_target(options.triple, options.cpu, tuple([f for f in options.features.split(",") if f])))


def _print_passes(kernel: UOp, renderer: Renderer, opts: tuple[Opt, ...] | None, options: argparse.Namespace) -> None:
  wanted = set(options.print_after)
  if unknown := wanted - {p.name for p in PASSES} - {"all"}:
    raise ValueError(
      f"no pass is named {', '.join(sorted(unknown))}; the passes are {', '.join(p.name for p in PASSES)}"
    )

  def show(step: Pass, root: UOp) -> None:
    if step.name in wanted or "all" in wanted:
      print(f"# {kernel.arg.name} after {step.name}\n{print_uop(root)}")

  run_passes(kernel, PassContext(renderer.capabilities, opts), options.skip, show)


def main(arguments: Sequence[str] | None = None) -> int:
  """0, or 1 after a message on stderr for input that is not legal or options that do not fit it."""
  options = _arguments(arguments)
  if options.passes:
    print("\n".join(f"{p.name:12} {p.doc}" for p in PASSES))
    return 0
  try:
    opts = () if options.no_opt else tuple([parse_opt(o) for o in options.opt]) if options.opt else None
    kernels, renderer = kernels_of(parse_uop(options.input.read())), _renderer(options)
    if options.kernel is not None:
      if not 0 <= options.kernel < len(kernels):
        raise ValueError(f"there is no kernel {options.kernel}: the schedule has {len(kernels)}, numbered from 0")
      kernels = [kernels[options.kernel]]
    for kernel in kernels:
      if options.print_after:
        _print_passes(kernel, renderer, opts, options)
        continue
      program = compile_kernel(kernel, renderer, opts, skip=options.skip)
      print(program.src[2].arg if options.emit == "source" else print_uop(program))
  except (ValueError, TypeError, NotImplementedError) as error:
    print(f"tiny_codegen: {error}", file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
