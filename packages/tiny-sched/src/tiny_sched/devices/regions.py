"""Parts of values, and how they are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tiny_sched.index import known
from tiny_sched.views import chain_view
from tiny_uop import Ops, Sharding, UOp, dtypes, sint

Region = Sequence[tuple[sint, sint]]
"""(start, stop) per axis."""


def joined(parts: Sequence[UOp], axis: int) -> UOp:
  """Values of one device one after the other along an axis. They are chosen, not added, so that -0.0 stays what it
  is."""
  if len(parts) == 1:
    return parts[0]
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


def put_together(s: Sharding, row: Sequence[int], region: Region, part: Callable[[int, Region], UOp]) -> UOp:
  """A region, not empty, of a value that lies as `s` says: of what devices of a row have of it, side by side.
  `part(device, own)` is what a device has, where `own` is in the coordinates of its piece."""
  holders = {tuple([s.place(c, device) for c in s.cuts]): device for device in row}

  def along(places: tuple[int, ...], own: Region) -> UOp:
    if len(places) == len(s.cuts):
      return part(holders[places], own)
    cut, parts = s.cuts[len(places)], []
    start, stop = region[cut.axis]
    assert isinstance(start, int) and isinstance(stop, int), "an axis in pieces has a known length"
    for place, (begin, end) in enumerate(zip(cut.bounds, cut.bounds[1:])):
      low, high = max(start, begin), min(stop, end)
      if low < high:
        inside = [(low - begin, high - begin) if i == cut.axis else r for i, r in enumerate(own)]
        parts.append(along((*places, place), inside))
    return joined(parts, cut.axis)

  return along((), region)


def sent(piece: UOp, region: Region, home: str, device: str) -> UOp:
  """A part of a piece on a device. What is no run of memory is made one before it is copied: a copy takes runs, and
  would take all of the piece."""
  part = piece.shrink(region)
  if home == device:
    return part
  scattered = part.op is Ops.SHRINK and chain_view(part) is None
  return (part.contiguous() if scattered else part).copy_to(device)
