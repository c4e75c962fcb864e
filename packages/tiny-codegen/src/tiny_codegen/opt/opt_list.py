"""OptList: optimisations that have been chosen for a kernel, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tiny_codegen.errors import KernelError, KernelOptError
from tiny_codegen.kernel.loops import extent, loops_of, next_loop_id
from tiny_codegen.lower.workgroups import lower_workgroups
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.staging.stage import lower_stage
from tiny_codegen.target import Target
from tiny_uop import Opt, OptOps, UOp


@dataclass
class OptList:
  """The Opts that have been chosen so far, and the kernel with them applied."""

  root: UOp
  target: Target
  opts: list[Opt] = field(default_factory=list)

  def take(self, *opts: Opt) -> bool:
    """Apply Opts if all of them fit."""
    try:
      self.root = apply_opts(self.root, opts, self.target)
    except KernelOptError:
      return False
    self.opts += opts
    return True

  def attempt(self, choose: Callable[[], bool]) -> bool:
    """What `choose` gives. Where that is False, nothing of what it has taken stays."""
    before = self.root, list(self.opts)
    if choose():
      return True
    self.root, self.opts = before
    return False

  def split(self, op: OptOps, loop: int, amount: int) -> int | None:
    """Take n iterations of a loop, padded if need be, inside; the id of the loop they become, None if that fails."""
    size, inner = extent(loops_of(self.root)[loop]), next_loop_id(self.root)
    padding = [Opt(OptOps.PADTO, loop, amount)] if size is None or size % amount else []
    return inner if self.take(*padding, Opt(op, loop, amount)) else None

  def fits(self) -> bool:
    """Whether what is staged fits into shared memory, and the threads into a workgroup."""
    try:
      lower_workgroups(lower_stage(self.root, self.target), self.target)
    except KernelError:
      return False
    return True
