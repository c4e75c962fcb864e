"""The passes from kernel to program, in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence

from tiny_codegen.decompose import late_table_for, table_for
from tiny_codegen.errors import KernelError
from tiny_codegen.kernel.estimates import as_index, estimate
from tiny_codegen.kernel.loops import memory_of, number
from tiny_codegen.lower.atomics import in_order, order, settle
from tiny_codegen.lower.clamp_rows import lower_overhang
from tiny_codegen.lower.gates import lower_gates
from tiny_codegen.lower.index_types import lower_index
from tiny_codegen.lower.linearise import linearise
from tiny_codegen.lower.merge_loops import drop_single, merge_loops
from tiny_codegen.lower.pairwise_sum import sum_in_blocks
from tiny_codegen.lower.peel import peel
from tiny_codegen.lower.reduce import lower_reduce
from tiny_codegen.lower.separate import separate
from tiny_codegen.lower.skip_masked_sums import skip_sums
from tiny_codegen.lower.skip_padding_taps import shortened, taps_inside
from tiny_codegen.lower.tighten_sums import cut_sums, masks_outside
from tiny_codegen.lower.transpose_in_registers import turn
from tiny_codegen.lower.unroll import unroll
from tiny_codegen.lower.vectorize import vectorize
from tiny_codegen.lower.workgroups import globals_from_loops, lower_workgroups
from tiny_codegen.matrix.dot_products import lower_offsets, without_dot_products
from tiny_codegen.matrix.register_tiles import lower_matrices
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.beam import Measure, listed
from tiny_codegen.opt.search_results import Notes, search_opts
from tiny_codegen.opt.vectors import choose_opts
from tiny_codegen.passes import Pass, PassContext
from tiny_codegen.render.base import Renderer
from tiny_codegen.staging.double_buffer import prefetch
from tiny_codegen.staging.stage import lower_stage
from tiny_uop import (
  Accumulate,
  AxisType,
  KernelInfo,
  Ops,
  Opt,
  ParamInfo,
  ProgramInfo,
  PtrDType,
  UOp,
  dtypes,
  graph_rewrite,
  print_uop,
  reads_what_was_there,
  simplify,
  spec,
)
from tiny_uop.context import BEAM, DEBUG, NOOPT
from tiny_uop.observe import span


def _simplify(root: UOp, context: PassContext) -> UOp:
  """Algebra on addresses and gates; masks leave the sums that they are constant in; loops of one iteration go."""
  return masks_outside(drop_single(simplify(root)))


def _separate(root: UOp, context: PassContext) -> UOp:
  """Every RANGE becomes one loop: those that two ENDs or REDUCEs cannot share are doubled."""
  return separate(root)


def _order(root: UOp, context: PassContext) -> UOp:
  """Loops in which iterations may come to the same element run in order, or are shared by threads with atomics."""
  return order(root, context.target)


def _settle(root: UOp, context: PassContext) -> UOp:
  """STOREs that accumulate are atomic only where threads share the loops."""
  return settle(root)


def _accumulate(root: UOp, context: PassContext) -> UOp:
  """STOREs that accumulate and are not atomic load, combine and store."""
  return in_order(root)


def _merge(root: UOp, context: PassContext) -> UOp:
  """Neighbouring loops that walk through memory as one become one."""
  return merge_loops(root) if not NOOPT else root


def _optimise(root: UOp, context: PassContext) -> UOp:
  """Optimisations are chosen (given ones, the kernel's own, or by heuristics) and applied; the SINK's arg records
  them.
  """
  info = root.arg if isinstance(root.arg, KernelInfo) else KernelInfo()
  opts = context.opts if context.opts is not None else info.opts
  as_written = NOOPT or keeps_memory(root) or goes_on(root)
  if opts is None:
    opts = () if as_written else choose_opts(root, context.target)
  root = apply_opts(root, tuple(opts), context.target)
  if not as_written:
    root = globals_from_loops(root, context.target)
  return simplify(root).replace(arg=KernelInfo(info.name, tuple(opts)))


def keeps_memory(kernel: UOp) -> bool:
  """Whether a kernel, as it is given, has memory of its own. Nobody chooses optimisations for it then: an iteration of
  a loop may read what the one before has left there, so that loops have an order.
  """
  return any(u.op is Ops.ALLOC for u in kernel.toposort)


def goes_on(kernel: UOp) -> bool:
  """Whether a kernel that accumulates comes after something that it writes itself, or goes on with it: all of one has
  to be done before the other, and threads of a target may have no way to wait for each other."""
  nodes = kernel.toposort
  return any(u.op is Ops.AFTER for u in nodes) and any(isinstance(u.arg, Accumulate) for u in nodes)


def _offsets(root: UOp, context: PassContext) -> UOp:
  """What a dot-product instruction that lacks a sign adds too much is taken away, once for all rows."""
  return lower_offsets(root, context.target)


def _stage(root: UOp, context: PassContext) -> UOp:
  """STAGE becomes near memory that loops of its own fill, and sums over windows leave out what lies in padding."""
  if context.target.has_local:
    return lower_stage(root, context.target)
  return shortened(lower_stage(root, context.target), taps_inside(root, context.target))


def _matrices(root: UOp, context: PassContext) -> UOp:
  """Register tiles become matrix instructions, which keep their accumulators and leave results in near memory."""
  return lower_matrices(root, context.target)


def _workgroups(root: UOp, context: PassContext) -> UOp:
  """GLOBAL, LOCAL and GROUP loops become hardware counters, with shared memory and barriers for GROUP."""
  return lower_workgroups(root, context.target)


def _peel(root: UOp, context: PassContext) -> UOp:
  """The last, partial block of a padded loop is taken out of the loop, which then needs no gates."""
  return peel(root, rows=not context.target.has_local)


def _overhang(root: UOp, context: PassContext) -> UOp:
  """Rows of a register tile beyond the end read what the last row reads, with no gates inside of sums."""
  return root if context.target.has_local else lower_overhang(root)


def _skip(root: UOp, context: PassContext) -> UOp:
  """Sums that no lane of a register tile uses get no iterations."""
  return skip_sums(root)


def _cut(root: UOp, context: PassContext) -> UOp:
  """Sums go only over what their masks let through."""
  return cut_sums(root)


def _vectorize(root: UOp, context: PassContext) -> UOp:
  """VECTOR loops become vectors, with wide loads and stores where lanes are adjacent."""
  return vectorize(root)


def _unroll(root: UOp, context: PassContext) -> UOp:
  """UPCAST and UNROLL loops are written out."""
  return unroll(root)


def _turn(root: UOp, context: PassContext) -> UOp:
  """Scalars of neighbouring rows are loaded and stored as vectors."""
  return turn(root, context.target)


def _blocks(root: UOp, context: PassContext) -> UOp:
  """Long sums of floats are summed in blocks, so that rounding errors stay small."""
  return sum_in_blocks(root) if not NOOPT else root


def _reduce(root: UOp, context: PassContext) -> UOp:
  """REDUCE becomes a loop that updates an accumulator."""
  return lower_reduce(root)


def _prefetch(root: UOp, context: PassContext) -> UOp:
  """Near memory that a sum fills again and again is there twice: one copy is filled while the other one is read."""
  return prefetch(root, context.target) if not NOOPT else root


def _gates(root: UOp, context: PassContext) -> UOp:
  """Gated scalar loads read a safe place and select."""
  return lower_gates(simplify(root))


def _index_types(root: UOp, context: PassContext) -> UOp:
  """index becomes int32 or int64, by bounds."""
  return lower_index(root, dtypes.int64 in context.target.native_dtypes)


def _decompose(root: UOp, context: PassContext) -> UOp:
  """What the target lacks is put together from what it has."""
  root = without_dot_products(root, context.target)
  return graph_rewrite(root, table_for(context.target), name="decompose")


def _fuse(root: UOp, context: PassContext) -> UOp:
  """Subtractions, negations and multiply-adds for targets that have them."""
  return graph_rewrite(root, late_table_for(context.target), name="fuse")


def _linearise(root: UOp, context: PassContext) -> UOp:
  """The graph becomes a list of instructions."""
  return linearise(root)


PASSES: tuple[Pass, ...] = (
  Pass("simplify", _simplify),
  Pass("separate", _separate),
  Pass("order", _order),
  Pass("merge", _merge),
  Pass("optimise", _optimise),
  Pass("settle", _settle),
  Pass("offsets", _offsets),
  Pass("stage", _stage),
  Pass("matrices", _matrices),
  Pass("workgroups", _workgroups),
  Pass("peel", _peel),
  Pass("overhang", _overhang),
  Pass("skip", _skip),
  Pass("cut", _cut),
  Pass("vectorize", _vectorize),
  Pass("unroll", _unroll),
  Pass("turn", _turn),
  Pass("blocks", _blocks),
  Pass("share", _separate),
  Pass("reduce", _reduce),
  Pass("prefetch", _prefetch),
  Pass("accumulate", _accumulate),
  Pass("gates", _gates),
  Pass("index_types", _index_types),
  Pass("decompose", _decompose),
  Pass("fuse", _fuse),
  Pass("linearise", _linearise, program=True),
)
"""The passes from a kernel to a list of instructions, in order."""
# without these a kernel is lowered all the same
OPTIONAL = frozenset({"merge", "peel", "overhang", "skip", "cut", "turn", "blocks", "prefetch"})

Observer = Callable[[Pass, UOp], None]


def run_passes(
  kernel: UOp,
  context: PassContext,
  skip: Collection[str] = (),
  observe: Observer | None = None,
  passes: Sequence[Pass] = PASSES,
) -> UOp:
  """The LINEAR of a kernel SINK. `skip` names optional passes to leave out; `observe` sees the result of each pass;
  `passes` are those that are left for a kernel that has been through the others.

  Raises KernelError for a kernel that cannot be lowered and KernelOptError for optimisations that do not fit.
  """
  if unknown := set(skip) - OPTIONAL:
    raise KernelError(f"cannot skip {', '.join(sorted(unknown))}: only {', '.join(sorted(OPTIONAL))} are optional")
  if kernel.op is not Ops.SINK:
    raise KernelError(f"expected a kernel, a SINK, got {kernel.op.name}")
  root = spec.check_stage(kernel, "kernel")
  for step in passes:
    if step.name in skip:
      continue
    with span("pass", step.name, root) as work:
      root = work.gives(step.run(root, context))
    spec.check_stage(root, "program" if step.program else "kernel", step.name)
    if observe is not None:
      observe(step, root)
  return root


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
  sizes = (_global_size(linear), _local_size(linear), estimates)
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
  as_written = NOOPT or keeps_memory(kernel) or goes_on(kernel)
  if given is None and BEAM >= 1 and measure is not None and not as_written:
    given = search_opts(kernel, renderer, measure, BEAM.value, build_program, notes)
  return report(build_program(kernel, renderer, given, skip))


def report(program: UOp) -> UOp:
  """The program, after what DEBUG=3 and DEBUG=5 print about it."""
  if DEBUG >= 3:
    print(f"opts     {program.arg.name:<32} {listed(program.src[1].arg.opts)}", file=sys.stderr)
  # DEBUG=4, the code, is printed by tiny-runtime, also for kernels that come from its cache
  if DEBUG >= 5:
    print(f"--- {program.arg.name}: program\n{print_uop(program.src[1])}", file=sys.stderr)
  return program


def program_info(linear: UOp, target: str) -> ProgramInfo:
  """How a program is called: its buffers by slot and its variables by name."""
  nodes = linear.toposort
  written = {memory_of(u.src[0]) for u in nodes if u.op is Ops.STORE}
  read = {memory_of(u.src[0]) for u in nodes if u.op in (Ops.LOAD, Ops.STORE) and reads_what_was_there(u)}
  params = []
  for u in sorted((u for u in nodes if u.op is Ops.PARAM), key=lambda u: int(u.arg)):
    assert isinstance(u.dtype, PtrDType)
    params.append(ParamInfo(u.arg, u.dtype.base, u.dtype.size, u in written, u in read))
  names = sorted({str(u.arg[0]) for u in nodes if u.op is Ops.VARIABLE})
  name = linear.arg.name if isinstance(linear.arg, KernelInfo) else "kernel"
  return ProgramInfo(name, target, tuple(params), tuple(names))


def _global_size(linear: UOp) -> UOp:
  sizes = [number(1)] * 3
  for u in linear.src:
    if u.op is Ops.RANGE and u.arg[1] is AxisType.THREAD:
      sizes[0] = as_index(u.src[0])
    elif u.op is Ops.SPECIAL and u.arg.startswith("gidx"):
      sizes[int(u.arg[4:])] = as_index(u.src[0])
  return UOp(Ops.GROUP, src=tuple(sizes))


def _local_size(linear: UOp) -> UOp:
  sizes = [number(1)] * 3
  for u in linear.src:
    if u.op is Ops.SPECIAL and u.arg.startswith("lidx"):
      sizes[int(u.arg[4:])] = as_index(u.src[0])
  return UOp(Ops.GROUP, src=tuple(sizes))
