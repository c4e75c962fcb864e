"""Functions of UOps whose results are memoised for one schedule: indices and bodies repeat from kernel to kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

from tiny_uop import simplify as _simplify
from tiny_uop.symbolic import simplify_gate as _simplify_gate

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_memories: list[dict[Any, Any]] = []


def memoised(compute: Callable[[*Ts], T]) -> Callable[[*Ts], T]:
  """The function, computing each result once per schedule. It never gives None."""
  known: dict[tuple[*Ts], T] = {}
  _memories.append(known)

  def lookup(*key: *Ts) -> T:
    found = known.get(key)
    if found is None:
      found = known[key] = compute(*key)
    return found

  lookup.__doc__ = compute.__doc__
  return lookup


def clear_memos() -> None:
  """Drops what is memoised, which keeps graphs alive."""
  for known in _memories:
    known.clear()


simplify = memoised(_simplify)
simplify_gate = memoised(_simplify_gate)
