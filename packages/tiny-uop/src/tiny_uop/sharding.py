"""How values lie on several devices: what each operation does to the layout of its sources, one row per operation.

As with shapes, the layout of a value follows from its graph. It says what is on which device and nothing about how it
gets there: tiny-sched makes a graph per device of it, and copies where the sources of an operation lie otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tiny_uop.args import Sharding
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
  before, after = u.src[0].sharding, u.sharding
  if before is None or before.axis is None or after is None:
    return True
  if u.op is Ops.RESHAPE:
    return after.axis is not None
  if u.op is Ops.FLIP:
    return before.axis not in u.arg
  if u.op is Ops.PAD:
    return pairs(u.geometry)[before.axis] == (0, 0)
  return u.op is not Ops.SHRINK or kept(before, u) is not None


def kept(s: Sharding, shrink: UOp) -> tuple[int, ...] | None:
  """The bounds of what a SHRINK leaves of each piece; None where one of them would be empty, or that is not known."""
  assert s.axis is not None
  start, stop = pairs(shrink.geometry)[s.axis]
  if not isinstance(start, int) or not isinstance(stop, int):
    return None
  bounds = tuple([min(max(b, start), stop) - start for b in s.bounds])
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
    if found is None or found.axis is None:
      found = other
  return found


def _bitcast(u: UOp) -> Sharding | None:
  s, old, new = u.src[0]._sharding, u.src[0].dtype.itemsize, u.dtype.itemsize
  if s is None or s.axis is None or old == new or s.axis != len(u.shape) - 1:
    return s
  scaled = _exactly(s.bounds, old, new)
  return s.along(None) if scaled is None else s.along(s.axis, scaled)


def _reshape(u: UOp, s: Sharding, axis: int) -> Sharding:
  found = regrouped(u.src[0].shape, u.shape, axis, s.bounds)
  return s.along(None) if found is None else s.along(*found)


def _pad(u: UOp, s: Sharding, axis: int) -> Sharding:
  return s if pairs(u.geometry)[axis] == (0, 0) else s.evenly(axis, u.shape[axis])


def _shrink(u: UOp, s: Sharding, axis: int) -> Sharding:
  bounds = kept(s, u)
  return s.evenly(axis, u.shape[axis]) if bounds is None else s.along(axis, bounds)


_MOVED: dict[Ops, Callable[[Any, Sharding, int], Sharding]] = {
  Ops.RESHAPE: _reshape,
  Ops.EXPAND: lambda u, s, axis: s,  # only an axis of size 1 changes, which is in no pieces
  Ops.PERMUTE: lambda u, s, axis: s.along(u.arg.index(axis), s.bounds),
  Ops.PAD: _pad,
  Ops.SHRINK: _shrink,
  Ops.FLIP: lambda u, s, axis: s,
  Ops.REDUCE: lambda u, s, axis: s.along(None) if axis in u.arg[1] else s,
}


def _moved(u: UOp) -> Sharding | None:
  s = u.src[0]._sharding
  return s if s is None or s.axis is None else _MOVED[u.op](u, s, s.axis)


def _multi(u: UOp) -> Sharding:
  if isinstance(u.arg, Sharding):
    return u.arg
  assert isinstance(u.device, tuple)
  ends = accumulate([int(s.shape[u.arg]) for s in u.src], initial=0) if u.arg is not None else ()
  return Sharding(u.device, u.arg, tuple(ends))


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
