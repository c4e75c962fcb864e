"""What several devices do together, made of copies and elementwise operations: gathering pieces, and combining partial
results so that every device has the whole.

Bytes that each device sends for a value of N bytes on n devices: n−1 times N directly; 2·(n−1)/n times N in a ring, in
2·(n−1) steps of N/n bytes (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
2009). On every device the same terms are added in the same order, so that all get the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tiny_sched.devices.ranks import for_ranks, summed
from tiny_sched.devices.regions import Region, joined, put_together, sent
from tiny_uop import Ops, Shape, Sharding, UOp, even_bounds, prod
from tiny_uop.graph import chain

RING = 1 << 16
"""Bytes from which on partial results go around a ring. Two devices send as much directly, in fewer steps."""


def for_each(x: UOp, s: Sharding, regions: Sequence[Region]) -> list[UOp]:
  """Parts of a MULTI, one for each device of `s`; those of the devices of this process. What has no elements is a
  constant in one process; other processes wait for this one to take part."""
  if s.spans:
    return for_ranks(x, regions)
  sizes = [tuple([b - a for a, b in region]) for region in regions]
  parts = zip(regions, s.devices, sizes)
  return [UOp.const(x.dtype, 0, size) if 0 in size else gathered(x, region, d) for region, d, size in parts]


def gathered(x: UOp, region: Region, device: str) -> UOp:
  """A part of a MULTI on one device: copies of what it has from each piece, side by side. Of one on several ranks, each
  rank has it on its own device of that name."""
  s = x.sharding
  assert s is not None
  if s.spans:
    part = for_ranks(x, [region] * len(s.devices))[0]
    return part if device == s.homes[0] else part.copy_to(device)
  here = s.devices.index(device) if device in s.devices else 0
  row = s.row(here, [a for cut in s.cuts for a in cut.along])
  return put_together(s, row, region, lambda i, own: sent(x.src[i], own, s.devices[i], device))


def combined(op: Ops, partials: Sequence[UOp], s: Sharding, reduced: Collection[int], shape: Shape) -> list[UOp]:
  """The partial results of a REDUCE of axes of a value that lies as `s` says, combined with ADD, MUL or MAX: on each
  device, over those that have the other pieces of these axes. `shape` is that of the result."""
  along = [a for cut in s.cuts if cut.axis in reduced for a in cut.along]
  if s.spans:
    return summed(op, partials, s, along, s.with_cuts([c for c in s.cuts if c.axis not in reduced]), shape)
  made: dict[int, UOp] = {}
  for row in s.rows(along):
    terms = [partials[i] for i in row]
    size = prod(terms[0].shape)
    nbytes = size * terms[0].dtype.itemsize if isinstance(size, int) else 0
    together = around_the_ring if len(row) > 2 and nbytes >= RING else directly
    made |= zip(row, together(op, terms, [s.devices[i] for i in row]))
  return [made[device] for device in range(len(s.devices))]


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
