"""What a pass is, and what passes are told about the target and the user's wishes."""

from __future__ import annotations

from collections.abc import Callable

from tiny_codegen.target import Target
from tiny_uop import Opt, UOp
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class PassContext:
  """`opts` are the optimisations to apply; None: the kernel's own (`KernelInfo.opts`), or else what the heuristics
  choose.
  """

  target: Target
  opts: tuple[Opt, ...] | None = None


@dataclass(frozen=True)
class Pass:
  """A named step from UOp to UOp. `program` says that its result is at program level."""

  name: str
  run: Callable[[UOp, PassContext], UOp]
  program: bool = False

  @property
  def doc(self) -> str:
    """What the pass does, in one sentence."""
    return " ".join((self.run.__doc__ or "").split())
