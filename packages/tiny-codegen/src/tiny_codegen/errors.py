"""The errors of the code generator."""

from __future__ import annotations


class KernelOptError(ValueError):
  """An optimisation that does not fit the kernel or the target; the message names the option, the axis and the
  reason.
  """


class KernelError(ValueError):
  """A kernel that cannot be lowered, for example because its loops do not nest."""
