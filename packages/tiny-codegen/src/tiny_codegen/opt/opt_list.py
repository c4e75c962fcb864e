"""OptList: optimisations that have been chosen for a kernel, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from tiny_codegen.errors import KernelOptError
from tiny_codegen.opt.apply import apply_opt
from tiny_codegen.target import Target
from tiny_uop import Opt, UOp


@dataclass
class OptList:
  """The Opts that have been chosen so far, and the kernel with them applied."""

  root: UOp
  target: Target
  opts: list[Opt] = field(default_factory=list)

  def take(self, *opts: Opt) -> bool:
    """Apply Opts if all of them fit."""
    root = self.root
    try:
      for opt in opts:
        root = apply_opt(root, opt, self.target)
    except KernelOptError:
      return False
    self.root = root
    self.opts += opts
    return True
