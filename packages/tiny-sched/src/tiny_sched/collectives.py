"""What several devices do together, made of copies and elementwise operations: gathering pieces, and combining partial
results so that every device has the whole.

Bytes that each device sends for a value of N bytes on n devices: n−1 times N directly; 2·(n−1)/n times N in a ring, in
2·(n−1) steps of N/n bytes (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
2009). On every device the same terms are added in the same order, so that all get the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_sched.ranks import for_ranks, summed
from tiny_sched.regions import Region, joined
from tiny_sched.views import chain_view
from tiny_uop import Ops, Sharding, UOp, even_bounds, prod
from tiny_uop.graph import chain

RING = 1 << 16
"""Bytes from which on partial results go around a ring. Two devices send as much directly, in fewer steps."""


def for_each(x: UOp, s: Sharding, regions: Sequence[Region]) -> list[UOp]:
  """Parts of a MULTI, one for each device of `s`; those of the devices of this process. What has no elements is a
  constant in one process; other processes wait for this one to take part."""
  if s.spans:
    return [for_ranks(x, regions)]
  sizes = [tuple([b - a for a, b in region]) for region in regions]
  parts = zip(regions, s.devices, sizes)
  return [UOp.const(x.dtype, 0, size) if 0 in size else gathered(x, region, d) for region, d, size in parts]


def gathered(x: UOp, region: Region, device: str) -> UOp:
  """A part of a MULTI on one device: copies of what it has from each piece, side by side. Of one on several ranks, each
  rank has it on its own device of that name."""
  s = x.sharding
  assert s is not None
  if s.spans:
    part = for_ranks(x, [region] * len(s.devices))
    return part if device == s.homes[0] else part.copy_to(device)
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


def combined(op: Ops, partials: Sequence[UOp], s: Sharding) -> list[UOp]:
  """The partial results of all devices combined with ADD, MUL or MAX, on each of them."""
  if s.spans:
    return [summed(op, partials[0], s)]
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
