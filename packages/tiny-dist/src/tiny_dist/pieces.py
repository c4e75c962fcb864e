"""A tensor on several ranks and the piece that this rank has: one from the other."""

from __future__ import annotations

from tiny_dist.mesh import Mesh
from tiny_tensor import Tensor
from tiny_uop import Ops, Sharding, UOp, even_bounds


def own_piece(t: Tensor) -> Tensor:
  """What this rank has of a tensor: of one that is in pieces its own, else all of it. Computes the tensor."""
  s = t.uop.sharding
  if s is None or not s.spans:
    return t
  uop = _held(t)
  if uop.op is not Ops.MULTI:
    uop = _held(t.clone())
  return Tensor(uop.src[0])


def _held(t: Tensor) -> UOp:
  uop = t.realize().uop
  while uop.op is Ops.DETACH:
    uop = uop.src[0]
  return uop


def own_region(t: Tensor) -> tuple[tuple[int, int], ...]:
  """(start, stop) per axis of `own_piece` in the tensor. Raises ValueError for a symbolic shape."""
  if not all(isinstance(n, int) for n in t.shape):
    raise ValueError(f"a tensor of symbolic shape {t.shape} has no region in numbers: give its variables values")
  s = t.uop.sharding
  region = s.region(s.here[0], t.shape) if s is not None and s.spans else [(0, n) for n in t.shape]
  return tuple([(int(a), int(b)) for a, b in region])


def from_pieces(piece: Tensor, mesh: Mesh, axis: int | None = None, size: int | None = None) -> Tensor:
  """The tensor of which each rank gives its own piece: rows that it has read itself, for example. With `axis` None each
  gives all of it, and has to give the same.

  `size` is the length of the axis, by default that of the piece times the number of ranks; pieces are as `shard` cuts
  them. No gradient flows to the piece. Raises ValueError for a piece of another length.
  """
  if len(mesh) == 1:
    return piece
  uop = piece.detach().contiguous().realize().uop
  devices, count = tuple(mesh), len(mesh)
  if axis is None:
    return Tensor(UOp.multi(Sharding(devices), (uop,)))
  axis %= piece.ndim
  length = piece.shape[axis]
  bounds = even_bounds(int(length) * count if size is None else size, count)
  s = Sharding(devices, axis, bounds)
  (me,) = s.here
  if length != bounds[me + 1] - bounds[me]:
    raise ValueError(
      f"rank {s.ranks[me]} gives a piece of {length} along axis {axis}, of {bounds[-1]} in all; expected "
      f"{bounds[me + 1] - bounds[me]}, the places {bounds[me]} to {bounds[me + 1]}"
    )
  return Tensor(UOp.multi(s, (uop,)))
