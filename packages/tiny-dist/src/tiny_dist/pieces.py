"""A tensor on several ranks and the pieces that this rank has: one from the other."""

from __future__ import annotations

from collections.abc import Mapping

from tiny_dist.mesh import Mesh
from tiny_tensor import Tensor
from tiny_tensor.placement import sharding_on
from tiny_uop import Ops, Sharding, UOp

Region = tuple[tuple[int, int], ...]
"""(start, stop) per axis."""


def own_pieces(t: Tensor) -> list[Tensor]:
  """What each device of this rank has of a tensor: of one that is in pieces its own, else all of it. Computes the
  tensor."""
  s = t.uop.sharding
  if s is None or not s.spans:
    return [t]
  uop = _held(t)
  if uop.op is not Ops.MULTI:
    uop = _held(t.clone())
  return [Tensor(piece) for piece in uop.src]


def own_piece(t: Tensor) -> Tensor:
  """What this rank has of a tensor; its first device, if it has several."""
  return own_pieces(t)[0]


def _held(t: Tensor) -> UOp:
  uop = t.realize().uop
  while uop.op is Ops.DETACH:
    uop = uop.src[0]
  return uop


def own_regions(t: Tensor) -> list[Region]:
  """Where each of `own_pieces` is in the tensor. Raises ValueError for a symbolic shape."""
  if not all(isinstance(n, int) for n in t.shape):
    raise ValueError(f"a tensor of symbolic shape {t.shape} has no region in numbers: give its variables values")
  s, whole = t.uop.sharding, Sharding(("",))
  found = [s.region(i, t.shape) for i in s.here] if s is not None and s.spans else [whole.region(0, t.shape)]
  return [tuple([(int(a), int(b)) for a, b in region]) for region in found]


def own_region(t: Tensor) -> Region:
  """Where `own_piece` is in the tensor."""
  return own_regions(t)[0]


def from_pieces(
  piece: Tensor, mesh: Mesh, axis: int | Mapping[str, int] | None = None, size: int | None = None
) -> Tensor:  # fmt: skip
  """The tensor of which each rank gives its own piece: rows that it has read itself, for example. `axis` is as for
  `Tensor.shard`; along axes of the mesh that it does not name, ranks have to give the same. A rank with several devices
  gives the piece of all of them.

  `size` is the length of the axis (of one), by default that of the piece times the number of pieces; pieces are as
  `shard` cuts them. No gradient flows to the piece. Raises ValueError for a piece of another length.
  """
  if len(mesh) == 1:
    return piece
  shape, here = [int(n) for n in piece.shape], mesh.here
  cuts = sharding_on(mesh, axis, (len(mesh),) * piece.ndim)
  for cut in cuts.cuts:
    mine = len({cuts.place(cut, i) for i in here})
    shape[cut.axis] = size or shape[cut.axis] * ((len(cut.bounds) - 1) // mine)
  s = sharding_on(mesh, axis, tuple(shape))
  regions = [s.region(i, tuple(shape)) for i in here]
  first = [min(int(r[i][0]) for r in regions) for i in range(piece.ndim)]
  last = [max(int(r[i][1]) for r in regions) for i in range(piece.ndim)]
  for number, length in enumerate(piece.shape):
    if length != last[number] - first[number]:
      raise ValueError(
        f"rank {mesh.rank} gives a piece of {length} along axis {number}, of {shape[number]} in all; expected "
        f"{last[number] - first[number]}, the places {first[number]} to {last[number]}"
      )
  made = []
  for region, home in zip(regions, s.homes if s.spans else s.devices):
    own = tuple([slice(int(a) - begin, int(b) - begin) for (a, b), begin in zip(region, first)])
    made.append((piece[own] if own else piece).detach().to(home).contiguous().realize().uop)
  return Tensor(UOp.multi(s, made))
