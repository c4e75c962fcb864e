"""The PREFETCHes of a program, and the elements that they ask for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from tiny_uop import Ops, UOp, evaluate

PANEL, RESULT, PACKED = ("read", 2), ("write", 1), ("read", 1)


def prefetches(linear: UOp, kind: tuple[str, int]) -> dict[UOp | None, list[UOp]]:
  """Those of one kind, by the innermost loop around them."""
  loops: list[UOp] = []
  found: dict[UOp | None, list[UOp]] = {}
  for u in linear.src:
    if u.op is Ops.RANGE:
      loops.append(u)
    elif u.op is Ops.END:
      loops.pop()
    elif u.op is Ops.PREFETCH and u.arg == kind:
      found.setdefault(loops[-1] if loops else None, []).append(u)
  return found


def elements(prefetch: UOp, fixed: Mapping[UOp, int]) -> Iterator[int]:
  """The elements that a PREFETCH asks for, where its gate is open, in all iterations of other loops than the fixed."""
  offset, *gate = prefetch.src[0].src[1:]
  loops = sorted(prefetch.ranges - fixed.keys(), key=lambda r: r.arg[0])
  for counters in itertools.product(*[range(r.src[0].arg) for r in loops]):
    values = {**fixed, **dict(zip(loops, counters))}
    if all(evaluate(g, values) for g in gate):
      place = evaluate(offset, values)
      assert isinstance(place, int)
      yield place
