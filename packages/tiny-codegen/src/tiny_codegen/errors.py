"""The errors of the code generator."""

from __future__ import annotations

from tiny_uop import Opt


class KernelOptError(ValueError):
  """An optimisation that does not fit the kernel or the target; the message names the option, the axis and the
  reason.
  """


class KernelError(ValueError):
  """A kernel that cannot be lowered, for example because its loops do not nest."""


def opt_error(opt: Opt, reason: str) -> KernelOptError:
  """The error of an optimisation that does not fit."""
  return KernelOptError(f"{opt.op.name}(axis={opt.axis}, arg={opt.arg}): {reason}")
