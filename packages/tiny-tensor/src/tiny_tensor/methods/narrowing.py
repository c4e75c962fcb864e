"""Slices of joined and padded tensors: a slice that lies in one piece is a slice of that piece alone."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_tensor.autograd.custom_gradient import Grads, derivative_of
from tiny_tensor.host_constants import constant_of
from tiny_uop import Ops, UOp, sint
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class Parts:
  """The pullback of values one after the other along an axis: each gets its part of the gradient."""

  axis: int

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    (g,) = gs
    if g is None:
      return (None,) * len(inputs)
    start: sint = 0
    parts = []
    for x in inputs:
      end = start + x.shape[self.axis]
      parts.append(g.shrink([(start, end) if i == self.axis else (0, s) for i, s in enumerate(x.shape)]))
      start = end
    return tuple(parts)


def narrowed(uop: UOp, bounds: Sequence[tuple[sint, sint]]) -> UOp:
  """`uop.shrink(bounds)`; of the one piece where that is all there is."""
  whole = uop.shrink(bounds)  # which raises for bounds that are none
  if whole is uop:
    return whole
  if uop.op is Ops.CUSTOM_GRADIENT and isinstance(derivative_of(uop).pullback, Parts):
    uop = uop.src[0]
  # a join chooses a piece where a padded True is
  while uop.op is Ops.WHERE and uop.src[0].op is Ops.PAD and constant_of(uop.src[0].src[0]) is True:
    if (chosen := place_in(uop.src[0], bounds)) is None:
      return whole
    uop = uop.src[1] if chosen else uop.src[2]
  place = place_in(uop, bounds)
  return uop.src[0].shrink(place) if place else whole


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
