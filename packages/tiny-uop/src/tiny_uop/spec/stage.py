"""`check_stage`: what stages call on the graphs that they take and give, as far as SPEC says."""

from __future__ import annotations

from tiny_uop.context import SPEC
from tiny_uop.spec.verify import Level, SpecError, check
from tiny_uop.uop import UOp


def check_stage(root: UOp, level: Level, stage: str = "") -> UOp:
  """`root`, checked where SPEC=1 or more: what a stage calls on its input and its output. With SPEC=2 the memory
  accesses of kernels and programs are proved to be in bounds, and BoundsError raised for one that is not. `stage` is
  for the message.
  """
  if SPEC.value:
    try:
      check(root, level)
    except SpecError as error:
      raise SpecError(error.node, error.level, error.expected, stage) from None
  if SPEC.value >= 2 and level != "tensor":
    from tiny_uop.proof.bounds import check_bounds  # late: few ask for proofs

    check_bounds(root, stage)
  return root
