"""What goes wrong where instructions are written or read."""

from __future__ import annotations


class AsmError(ValueError):
  """An instruction that there is not, operands that it does not take, or bytes that are none."""


class TraceError(ValueError):
  """Bytes that are no thread trace, or a packet that there is not."""
