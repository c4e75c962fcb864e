"""`simplify` with a memory: index expressions repeat from kernel to kernel. The memory lasts for one schedule."""

from __future__ import annotations

from tiny_uop import UOp
from tiny_uop import simplify as _simplify

_known: dict[UOp, UOp] = {}


def simplify(u: UOp) -> UOp:
  """As `tiny_uop.simplify`."""
  found = _known.get(u)
  if found is None:
    found = _known[u] = _simplify(u)
    _known[found] = found
  return found


def forget() -> None:
  """Drops the memory, which keeps graphs alive."""
  _known.clear()
