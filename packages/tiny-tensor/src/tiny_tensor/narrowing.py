"""Parts of joined and padded tensors: what lies in one piece is a part of that piece, without the others."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_tensor.filling import constant_of
from tiny_uop import Ops, UOp, sint


def narrowed(uop: UOp, bounds: Sequence[tuple[sint, sint]]) -> UOp:
  """`uop.shrink(bounds)`; of the one piece where that is all there is."""
  whole = uop.shrink(bounds)  # which raises for bounds that are none
  pieces = pieces_of_join(uop)
  if whole is uop or not pieces:
    return whole
  found: UOp | None = None
  for piece in pieces:
    place = place_in(piece, bounds)
    if place is None or (place and found is not None):
      return whole
    if place:
      found = piece.src[0].shrink(place)
  return whole if found is None else found


def pieces_of_join(uop: UOp) -> list[UOp]:
  """The PADs that `cat` chooses elements of, or the one PAD that a value is; none of anything else."""
  if uop.op is Ops.CUSTOM_GRADIENT and uop.arg.name == "cat":
    uop = uop.src[0]
  pieces = []
  while uop.op is Ops.WHERE and uop.src[1].op is Ops.PAD and _is_place_of(uop.src[0], uop.src[1]):
    pieces.append(uop.src[1])
    uop = uop.src[2]
  return [*pieces, uop] if uop.op is Ops.PAD else []


def _is_place_of(mask: UOp, piece: UOp) -> bool:
  """Whether a mask holds where a PAD has elements of its source."""
  if mask.op is not Ops.PAD or mask.geometry != piece.geometry or mask.src[0].shape != piece.src[0].shape:
    return False
  return constant_of(mask.src[0]) is True


def place_in(piece: UOp, bounds: Sequence[tuple[sint, sint]]) -> list[tuple[int, int]] | None:
  """Where bounds are in the source of a PAD; [] if they are beside it, None if that is not known, or in part only."""
  if piece.op is not Ops.PAD:
    return None
  arg, sizes = piece.geometry, piece.src[0].shape
  place: list[tuple[int, int]] = []
  beside = False
  for axis, ((start, stop), size) in enumerate(zip(bounds, sizes, strict=True)):
    before = arg[2 * axis]
    if not (isinstance(start, int) and isinstance(stop, int) and isinstance(before, int) and isinstance(size, int)):
      return None
    first, last = start - before, stop - before
    beside = beside or last <= 0 or first >= size
    if not beside and (first < 0 or last > size):
      return None
    place.append((first, last))
  return [] if beside else place
