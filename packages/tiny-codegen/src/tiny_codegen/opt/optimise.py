"""Pass: optimisations are chosen and applied. The SINK's arg records them."""

from __future__ import annotations

from tiny_codegen.lower.workgroups import globals_from_loops
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.near_memory import choose_near_memory, has_near_memory
from tiny_codegen.opt.vectors import choose
from tiny_codegen.opt.workgroup_memory import choose_workgroup_memory, common_loops, in_workgroups, is_in_order
from tiny_codegen.target import Target
from tiny_uop import Accumulate, KernelInfo, Ops, Opt, UOp, simplify
from tiny_uop.context import NOOPT
from tiny_uop.graph import memory_of


def optimise(root: UOp, target: Target, opts: tuple[Opt, ...] | None) -> UOp:
  """The kernel with `opts`; None: with its own, or what the heuristics choose."""
  info = root.arg if isinstance(root.arg, KernelInfo) else KernelInfo()
  alone = as_written(root)
  chosen = opts if opts is not None else () if alone and info.opts is None else info.opts
  if chosen is None:
    chosen, root = ((), root) if runs_in_order(root, target) else choose(root, target)
  elif not NOOPT and has_near_memory(root) and (not target.has_local or is_in_order(root)):
    chosen, root = _with_near_memory(root, target, opts if opts is not None else info.opts)
  else:
    root = apply_opts(root, tuple(chosen), target)
  if not alone:
    root = globals_from_loops(root, target)
  return simplify(root).replace(arg=KernelInfo(info.name, tuple(chosen)))


def _with_near_memory(root: UOp, target: Target, given: tuple[Opt, ...] | None) -> tuple[tuple[Opt, ...], UOp]:
  """The optimisations, given or chosen, of a kernel of loops in order with memory of its own, and what it becomes."""
  if not target.has_local:
    return (given, apply_opts(root, given, target)) if given is not None else choose_near_memory(root, target)
  chosen = choose_workgroup_memory(root, target) if given is None else given
  common = common_loops(root, target) if chosen else None
  root = apply_opts(root, tuple(chosen), target)
  return tuple(chosen), root if common is None else in_workgroups(root, common)


def as_written(kernel: UOp) -> bool:
  """Whether nobody chooses optimisations for a kernel: because of NOOPT; because it has memory of its own, where an
  iteration may read what the one before has left; or because it accumulates and goes on with what it has written, so
  that all of one has to be done before the other."""
  ops = {u.op for u in kernel.toposort}
  goes_on = Ops.AFTER in ops and any(isinstance(u.arg, Accumulate) for u in kernel.toposort)
  return bool(NOOPT) or Ops.ALLOC in ops or goes_on


def runs_in_order(kernel: UOp, target: Target) -> bool:
  """Whether threads may share no loops of a kernel but those around all that it does: it reads again what it has
  written into memory that is not its own, and threads of a workgroup would have to wait for each other in between."""
  return target.has_local and any(u.op is Ops.AFTER and memory_of(u).op is Ops.PARAM for u in kernel.toposort)
