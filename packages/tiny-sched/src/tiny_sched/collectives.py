"""What several devices do together, made of copies and elementwise operations: gathering pieces, and combining partial
results so that every device has the whole.

Bytes that each device sends for a value of N bytes on n devices: n−1 times N directly; 2·(n−1)/n times N in a ring, in
2·(n−1) steps of N/n bytes (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
2009). On every device the same terms are added in the same order, so that all get the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_sched.index import known
from tiny_sched.views import chain_view
from tiny_uop import Ops, Sharding, UOp, dtypes, even_bounds, prod, sint
from tiny_uop.graph import chain

RING = 1 << 16
"""Bytes from which on partial results go around a ring. Two devices send as much directly, in fewer steps."""

Region = Sequence[tuple[sint, sint]]


def gathered(x: UOp, region: Region, device: str) -> UOp:
  """A part of a MULTI on one device: copies of what it has from each piece, side by side."""
  s = x.sharding
  assert s is not None
  if s.axis is None:
    here = s.devices.index(device) if device in s.devices else 0
    return _sent(x.src[here], region, s.devices[here], device)
  axis, (start, stop) = s.axis, region[s.axis]
  assert isinstance(start, int) and isinstance(stop, int), "an axis in pieces has a known length"
  parts = []
  for piece, home, begin, end in zip(x.src, s.devices, s.bounds, s.bounds[1:]):
    low, high = max(start, begin), min(stop, end)
    if low < high:
      own = [(low - begin, high - begin) if i == axis else r for i, r in enumerate(region)]
      parts.append(_sent(piece, own, home, device))
  return joined(parts, axis)


def _sent(piece: UOp, region: Region, home: str, device: str) -> UOp:
  """A part of a piece on a device. What is no run of memory is made one before it is copied: a copy takes runs, and
  would take all of the piece."""
  part = piece.shrink(region)
  if home == device:
    return part
  scattered = part.op is Ops.SHRINK and chain_view(part) is None
  return (part.contiguous() if scattered else part).copy_to(device)


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


def combined(op: Ops, partials: Sequence[UOp], s: Sharding) -> list[UOp]:
  """The partial results of all devices combined with ADD, MUL or MAX, on each of them."""
  size = prod(partials[0].shape)
  nbytes = size * partials[0].dtype.itemsize if isinstance(size, int) else 0
  together = around_the_ring if len(partials) > 2 and nbytes >= RING else directly
  return together(op, partials, s.devices)


def directly(op: Ops, partials: Sequence[UOp], devices: Sequence[str]) -> list[UOp]:
  """Every device gets all partial results of the others."""
  return [chain(op, [p if home == here else p.copy_to(here) for p, home in zip(partials, devices)]) for here in devices]


def around_the_ring(op: Ops, partials: Sequence[UOp], devices: Sequence[str]) -> list[UOp]:
  """As many chunks as devices. Each travels once around, gathering the terms, and ends on the device of its number;
  then it travels on to all others."""
  shape, count = partials[0].shape, len(devices)
  size = int(prod(shape))
  flat = [p.contiguous().reshape((size,)) for p in partials]
  bounds = even_bounds(size, count)
  chunks: list[list[UOp]] = [[] for _ in devices]
  for number in range(count):
    part = ((bounds[number], bounds[number + 1]),)
    total = flat[(number + 1) % count].shrink(part)
    for step in range(2, count + 1):
      here = (number + step) % count
      total = total.copy_to(devices[here]).alu(op, flat[here].shrink(part))
    total = total.contiguous()
    places = {number: total}
    for step in range(1, count):
      here = (number + step) % count
      total = places[here] = total.copy_to(devices[here])
    for here in range(count):
      chunks[here].append(places[here])
  return [joined(own, 0).reshape(shape) for own in chunks]
