"""From kernel to program: the passes, and the renderer."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from tiny_codegen.errors import KernelError
from tiny_codegen.kernel.estimates import as_index, estimate
from tiny_codegen.kernel.expressions import number
from tiny_codegen.kernel.memory import element_of, pointer_type
from tiny_codegen.opt.beam import Measure, Notes, listed, search_opts
from tiny_codegen.opt.optimise import as_written, runs_in_order
from tiny_codegen.pipeline import OPTIONAL, PASSES
from tiny_codegen.render.base import Renderer
from tiny_codegen.target import Target
from tiny_uop import AxisType, KernelInfo, Ops, Opt, ParamInfo, ProgramInfo, UOp, print_uop, reads_what_was_there, spec
from tiny_uop import passes as uop_passes
from tiny_uop.context import BEAM, debugs
from tiny_uop.graph import memory_of
from tiny_uop.locks import uncollected
from tiny_uop.observe import span
from tiny_uop.passes import Observer, Pass
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class PassContext:
  """The options of passes."""

  target: Target
  opts: tuple[Opt, ...] | None = None
  """The optimisations to apply. None: the kernel's own (`KernelInfo.opts`), or else what the heuristics choose."""


def run_passes(
  kernel: UOp,
  context: PassContext,
  skip: Collection[str] = (),
  observe: Observer | None = None,
  passes: Sequence[Pass] = PASSES,
) -> UOp:
  """The LINEAR of a kernel SINK. `skip` names optional passes to leave out; `observe` sees the result of each pass;
  `passes` are those that are left for a kernel that has been through the others, a LINEAR after `linearise`.

  Raises KernelError for a kernel that cannot be lowered and KernelOptError for optimisations that do not fit.
  """
  if unknown := set(skip) - OPTIONAL:
    raise KernelError(f"cannot skip {', '.join(sorted(unknown))}: only {', '.join(sorted(OPTIONAL))} are optional")
  takes = passes[0].takes if passes else kernel.op
  if kernel.op is not takes:
    what = "a kernel, a SINK" if takes is Ops.SINK else "a list of instructions, a LINEAR"
    raise KernelError(f"expected {what}, got {kernel.op.name}")
  level: spec.Level = "kernel" if kernel.op is Ops.SINK else "program"
  return uop_passes.run_passes(spec.check_stage(kernel, level), passes, context, skip, observe)


@uncollected()
def build_program(
  kernel: UOp, renderer: Renderer, opts: Sequence[Opt] | None = None, skip: Collection[str] = ()
) -> UOp:
  """The PROGRAM of a kernel under given optimisations (None: the kernel's own, or chosen by heuristics)."""
  context = PassContext(renderer.target, None if opts is None else tuple(opts))
  with span("kernel", str(getattr(kernel.arg, "name", "kernel")), kernel) as work:
    return program_of(kernel, work.gives(run_passes(kernel, context, skip)), renderer)


def program_of(kernel: UOp, linear: UOp, renderer: Renderer) -> UOp:
  """The PROGRAM of a kernel that has been lowered to a LINEAR."""
  info = program_info(linear, renderer.name)
  with span("pass", "render", linear) as rendering:
    source = rendering.gives(UOp(Ops.SOURCE, arg=renderer.render(linear, info)))
  with span("pass", "estimate", linear) as counting:
    estimates = counting.gives(UOp(Ops.GROUP, src=estimate(linear)))
  sizes = (_size(linear, "gidx"), _size(linear, "lidx"), estimates)
  return UOp(Ops.PROGRAM, src=(kernel, linear, source, *sizes), arg=info)


def compile_kernel(
  kernel: UOp,
  renderer: Renderer,
  opts: Sequence[Opt] | None = None,
  measure: Measure | None = None,
  skip: Collection[str] = (),
  notes: Notes | None = None,
) -> UOp:
  """The program of a kernel: `PROGRAM(SINK, LINEAR, SOURCE, GROUP(global sizes), GROUP(local sizes),
  GROUP(operations, bytes))`.

  `opts` are optimisations to apply as given (an empty list: none). Without them `BEAM=n` searches for the best,
  timing candidates with `measure(program) -> seconds` where there is one; else the heuristics choose, or nobody does
  under `NOOPT=1`. `notes` keep what a search found for the next one.
  `skip` names optional passes to leave out. Raises KernelError and KernelOptError, which name what
  does not fit.
  """
  given = opts if opts is not None else kernel.arg.opts if isinstance(kernel.arg, KernelInfo) else None
  fixed = as_written(kernel) or runs_in_order(kernel, renderer.target)
  if given is None and BEAM >= 1 and measure is not None and not fixed:
    given = search_opts(kernel, renderer, measure, BEAM.value, build_program, notes)
  return report(build_program(kernel, renderer, given, skip))


def report(program: UOp) -> UOp:
  """The program, after what DEBUG=3 and DEBUG=5 print about it."""
  if debugs(program.arg.name, 3):
    print(f"opts     {program.arg.name:<32} {listed(program.src[1].arg.opts)}", file=sys.stderr)
  # DEBUG=4, the code, is printed by tiny-runtime, also for kernels that come from its cache
  if debugs(program.arg.name, 5):
    print(f"--- {program.arg.name}: program\n{print_uop(program.src[1])}", file=sys.stderr)
  return program


def program_info(linear: UOp, target: str) -> ProgramInfo:
  """How a program is called: its buffers by slot and its variables by name."""
  nodes = linear.src
  written = {memory_of(u.src[0]) for u in nodes if u.op is Ops.STORE}
  read = {memory_of(u.src[0]) for u in nodes if u.op in (Ops.LOAD, Ops.STORE) and reads_what_was_there(u)}
  params = []
  for u in sorted((u for u in nodes if u.op is Ops.PARAM), key=lambda u: int(u.arg)):
    params.append(ParamInfo(u.arg, element_of(u), pointer_type(u).size, u in written, u in read))
  names = sorted({str(u.arg[0]) for u in nodes if u.op is Ops.VARIABLE})
  name = linear.arg.name if isinstance(linear.arg, KernelInfo) else "kernel"
  return ProgramInfo(name, target, tuple(params), tuple(names))


def _size(linear: UOp, counter: str) -> UOp:
  """The extents of the hardware counters `gidx` or `lidx`; a THREAD loop counts as the first `gidx`."""
  sizes = [number(1)] * 3
  for u in [u for u in linear.src if u.op is Ops.RANGE or u.op is Ops.SPECIAL]:
    if u.op is Ops.RANGE and u.arg[1] is AxisType.THREAD and counter == "gidx":
      sizes[0] = as_index(u.src[0])
    elif u.op is Ops.SPECIAL and u.arg.startswith(counter):
      sizes[int(u.arg[4:])] = as_index(u.src[0])
  return UOp(Ops.GROUP, src=tuple(sizes))
