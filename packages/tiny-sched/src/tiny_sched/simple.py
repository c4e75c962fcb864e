"""Functions of a UOp whose results are remembered for one schedule: indices and bodies repeat from kernel to kernel."""

from __future__ import annotations

from collections.abc import Callable

from tiny_uop import UOp
from tiny_uop import simplify as _simplify
from tiny_uop.symbolic import simplify_gate as _simplify_gate

_memories: list[dict[UOp, UOp]] = []


def remembered(compute: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
  """The function, computing each result once per schedule."""
  known: dict[UOp, UOp] = {}
  _memories.append(known)

  def lookup(u: UOp) -> UOp:
    found = known.get(u)
    if found is None:
      found = known[u] = compute(u)
    return found

  lookup.__doc__ = compute.__doc__
  return lookup


def forget() -> None:
  """Drops what is remembered, which keeps graphs alive."""
  for known in _memories:
    known.clear()


simplify = remembered(_simplify)
simplify_gate = remembered(_simplify_gate)
