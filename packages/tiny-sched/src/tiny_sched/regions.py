"""Parts of values, and how they are put together."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_sched.index import known
from tiny_uop import UOp, dtypes, sint

Region = Sequence[tuple[sint, sint]]
"""(start, stop) per axis."""


def joined(parts: Sequence[UOp], axis: int) -> UOp:
  """Values of one device one after the other along an axis. They are chosen, not added, so that -0.0 stays what it
  is."""
  lengths = [known(p.shape[axis]) or 0 for p in parts]
  total, end = sum(lengths), lengths[0]
  out = parts[0].pad(_around(parts[0], axis, 0, total - end))
  for part, length in zip(parts[1:], lengths[1:]):
    around = _around(part, axis, end, total - end - length)
    inside = UOp.const(dtypes.bool, True, part.shape).pad(around)
    out = inside.where(part.pad(around), out)
    end += length
  return out


def _around(part: UOp, axis: int, before: int, after: int) -> list[tuple[sint, sint]]:
  return [(before, after) if i == axis else (0, 0) for i in range(len(part.shape))]
