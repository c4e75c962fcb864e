"""How values lie on several devices: what each operation does to the layout of its sources, one row per operation.

As with shapes, the layout of a value follows from its graph. It says what is on which device and nothing about how it
gets there: tiny-sched makes a graph per device of it, and copies where the sources of an operation lie otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tiny_uop.args import Cut, Sharding
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.shape import Shape, pairs, prod, same_size

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


def regrouped(old: Shape, new: Shape, axis: int, bounds: Sequence[int]) -> tuple[int, tuple[int, ...]] | None:
  """(axis, bounds) of the pieces after a RESHAPE, where each of them is a piece of an axis again; None if not."""
  before, inside = prod(old[:axis]), prod(old[axis + 1 :])
  for i, size in enumerate(new):
    if isinstance(size, int) and size > 1 and same_size(prod(new[:i]), before):
      within = prod(new[i + 1 :])
      if same_size(inside, within):
        return (i, tuple(bounds)) if size == bounds[-1] else None
      if not isinstance(inside, int) or not isinstance(within, int) or not within:
        return None
      places = _exactly(bounds, inside, within)
      return None if places is None else (i, places)
  return None


def _exactly(bounds: Sequence[int], factor: int, divisor: int) -> tuple[int, ...] | None:
  """Each of the bounds times `factor / divisor`; None where one of them is no integer then."""
  scaled = [divmod(b * factor, divisor) for b in bounds]
  return None if any(rest for _, rest in scaled) else tuple([place for place, _ in scaled])


def is_local(u: UOp) -> bool:
  """Whether a movement operation leaves every element on the device, or the devices, that it is on."""
  s = u.src[0].sharding
  return s is None or u.sharding is None or all(_stays(u, cut) for cut in s.cuts)


def _stays(u: UOp, cut: Cut) -> bool:
  """Whether a movement operation leaves every element in its piece of an axis."""
  if u.op is Ops.RESHAPE:
    return regrouped(u.src[0].shape, u.shape, cut.axis, cut.bounds) is not None
  if u.op is Ops.FLIP:
    return cut.axis not in u.arg
  if u.op is Ops.PAD:
    return pairs(u.geometry)[cut.axis] == (0, 0)
  return u.op is not Ops.SHRINK or kept(cut, u) is not None


def gathered_first(u: UOp) -> Sharding:
  """What of the layout of its source is left where a movement operation begins: without the cuts that its result has
  not. A SHRINK takes what it wants of pieces, unless that is symbolic."""
  s = u.src[0].sharding
  assert s is not None
  if u.op is Ops.SHRINK:
    return s.with_cuts([cut for cut in s.cuts if all(isinstance(n, int) for n in pairs(u.geometry)[cut.axis])])
  return s.with_cuts([cut for cut in s.cuts if _MOVED[u.op](u, s, cut) is not None])


def kept(cut: Cut, shrink: UOp) -> tuple[int, ...] | None:
  """The bounds of what a SHRINK leaves of each piece; None where one of them would be empty, or that is not known."""
  start, stop = pairs(shrink.geometry)[cut.axis]
  if not isinstance(start, int) or not isinstance(stop, int):
    return None
  bounds = tuple([min(max(b, start), stop) - start for b in cut.bounds])
  return bounds if all(a < b for a, b in zip(bounds, bounds[1:])) else None


def _elementwise(u: UOp) -> Sharding | None:
  found: Sharding | None = None
  for s in u.src:
    other = s._sharding
    if other is None or other == found:
      continue
    if found is not None and other.devices != found.devices:
      these, those = ", ".join(found.devices), ", ".join(other.devices)
      raise ValueError(f"{u.op.name} of values on {these} and on {those}: copy one of them first")
    found = other if found is None else found.joined(other)
  return found


def _bitcast(u: UOp) -> Sharding | None:
  s, old, new = u.src[0]._sharding, u.src[0].dtype.itemsize, u.dtype.itemsize
  if s is None or not s.cuts or old == new:
    return s
  last, cuts = len(u.shape) - 1, []
  for cut in s.cuts:
    scaled = cut.bounds if cut.axis != last else _exactly(cut.bounds, old, new)
    if scaled is not None:
      cuts.append(Cut(cut.axis, scaled, cut.along))
  return s.with_cuts(cuts)


def _reshape(u: UOp, s: Sharding, cut: Cut) -> Cut | None:
  found = regrouped(u.src[0].shape, u.shape, cut.axis, cut.bounds)
  return None if found is None else Cut(*found, cut.along)


def _pad(u: UOp, s: Sharding, cut: Cut) -> Cut | None:
  return cut if pairs(u.geometry)[cut.axis] == (0, 0) else s.evenly(cut, u.shape[cut.axis])


def _shrink(u: UOp, s: Sharding, cut: Cut) -> Cut | None:
  bounds = kept(cut, u)
  return s.evenly(cut, u.shape[cut.axis]) if bounds is None else Cut(cut.axis, bounds, cut.along)


_MOVED: dict[Ops, Callable[[Any, Sharding, Cut], Cut | None]] = {
  Ops.RESHAPE: _reshape,
  Ops.EXPAND: lambda u, s, cut: cut,  # only an axis of size 1 changes, which is in no pieces
  Ops.PERMUTE: lambda u, s, cut: Cut(u.arg.index(cut.axis), cut.bounds, cut.along),
  Ops.PAD: _pad,
  Ops.SHRINK: _shrink,
  Ops.FLIP: lambda u, s, cut: cut,
  Ops.REDUCE: lambda u, s, cut: None if cut.axis in u.arg[1] else cut,
}


def _moved(u: UOp) -> Sharding | None:
  s = u.src[0]._sharding
  if s is None or not s.cuts:
    return s
  return s.with_cuts([new for cut in s.cuts if (new := _MOVED[u.op](u, s, cut)) is not None])


def _multi(u: UOp) -> Sharding:
  if isinstance(u.arg, Sharding):
    return u.arg
  assert isinstance(u.device, tuple)
  ends = accumulate([int(s.shape[u.arg]) for s in u.src], initial=0) if u.arg is not None else ()
  return Sharding.of(u.device, u.arg, tuple(ends))


_RULES: dict[Ops, Callable[[Any], Sharding | None]] = {
  Ops.MULTI: _multi,
  **dict.fromkeys((Ops.CONST, Ops.BUFFER), lambda u: Sharding(d) if type(d := u.device) is tuple else None),
  Ops.COPY: lambda u: u.arg or (Sharding(d) if type(d := u.device) is tuple else None),
  **dict.fromkeys(_MOVED, _moved),
  **dict.fromkeys((*GroupOp.Identity, Ops.CUSTOM_GRADIENT, Ops.BARRIER, Ops.AFTER), lambda u: u.src[0]._sharding),
  **dict.fromkeys(GroupOp.Elementwise, _elementwise),
  Ops.BITCAST: _bitcast,
}


def sharding_of(u: UOp) -> Sharding | None:
  """How the value of a node lies on several devices, given that of its sources; None where it does not."""
  rule = _RULES.get(u.op)
  return rule(u) if rule is not None else None
