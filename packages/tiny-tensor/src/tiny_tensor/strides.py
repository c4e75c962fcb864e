"""Views of a buffer as offset and strides, in elements."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_tensor.base import ALIASES
from tiny_tensor.shapes import contiguous_strides
from tiny_uop import Ops, UOp
from tiny_uop.sharding import is_local

Sizes = tuple[int, ...]


def strides_of(uop: UOp) -> tuple[UOp, int, Sizes] | None:
  """(BUFFER, offset of the first element, strides of the axes) of a view of a buffer.

  None for what is no view, has a symbolic shape, repeats elements, or has them in an order that strides cannot tell.
  """
  found = strides_over(uop)
  return found if found is not None and found[0].op is Ops.BUFFER else None


def strides_over(uop: UOp) -> tuple[UOp, int, Sizes] | None:
  """`strides_of`, for a view of whatever is below the movement ops."""
  after: list[UOp] = []
  while uop.op in ALIASES:
    after.insert(0, uop)
    uop = uop.src[0]
  if not all(isinstance(s, int) for u in (uop, *after) for s in u.shape):
    return None
  offset, strides = 0, contiguous_strides(sizes(uop))
  for place, view in enumerate(after):
    moved = moved_by(view, after[place + 1 :], strides)
    if moved is None:
      return None
    offset, strides = offset + moved[0], moved[1]
  return uop, offset, strides


def run_of(uop: UOp) -> tuple[UOp, int] | None:
  """(BUFFER, offset) of a view that shows elements that follow each other there, in their order; else None."""
  if uop.op not in ALIASES or (found := strides_of(uop)) is None:
    return None
  return found[:2] if follow_each_other(uop, found[2]) else None


def is_in_order(uop: UOp) -> bool:
  """Whether what a view shows of a BUFFER, or of one on each of several devices, is in order there."""
  whole = uop
  while whole.op is Ops.DETACH or (whole.op is Ops.RESHAPE and is_local(whole)):
    whole = whole.src[0]
  if whole.op is Ops.MULTI:
    return all(map(is_in_order, whole.src))
  return whole.op is Ops.BUFFER or run_of(uop) is not None


def bytes_of(view: UOp, base: UOp) -> int | None:
  """Where the bytes begin that a view, maybe in other dtypes, shows of `base`: one after the other; None if they are
  not."""
  begin = 0
  while view is not base:
    if view.op is Ops.BITCAST:
      view = view.src[0]
      continue
    if (found := strides_over(view)) is None or not follow_each_other(view, found[2]):
      return None
    view, offset, _ = found
    begin += offset * view.dtype.itemsize
  return begin


def follow_each_other(view: UOp, strides: Sizes) -> bool:
  """Whether elements with these strides are next to each other, in order."""
  expected = zip(view.shape, strides, contiguous_strides(sizes(view)), strict=True)
  return all(n == 1 or stride == wanted for n, stride, wanted in expected)


def moved_by(view: UOp, after: list[UOp], strides: Sizes) -> tuple[int, Sizes] | None:
  """(what is added to the offset, the new strides) by one movement op; `after` are those behind it."""
  old, new = sizes(view.src[0]), sizes(view)
  if view.op is Ops.PERMUTE:
    return 0, tuple(strides[a] for a in view.arg)
  if view.op is Ops.SHRINK:
    starts = [s for s in view.geometry[::2] if isinstance(s, int)]
    known = len(starts) == len(strides)
    return (sum(a * s for a, s in zip(starts, strides, strict=True)), strides) if known else None
  if view.op is Ops.FLIP:
    ends = sum(strides[a] * (old[a] - 1) for a in view.arg)
    return ends, tuple(-s if a in view.arg else s for a, s in enumerate(strides))
  if view.op is Ops.RESHAPE:
    reshaped = strides_in_shape(old, strides, new)
    return None if reshaped is None else (0, reshaped)
  if view.op is Ops.EXPAND and every_so_many(view, after):
    # the repeated axis goes on behind its end, where nothing is looked at
    return 0, tuple(strides[a + 1] * old[a + 1] if o != n else strides[a] for a, (o, n) in enumerate(zip(old, new)))
  return (0, strides) if view.op is Ops.DETACH else None


def every_so_many(expand: UOp, after: Sequence[UOp]) -> bool:
  """Whether an axis that is repeated once is only so for a last step that is longer than what is left of it: whether
  the movement ops after the EXPAND keep one element in so many, less than one pass over the axis from first to last.
  """
  old, new = expand.src[0].shape, expand.shape
  axes = [a for a, (was, now) in enumerate(zip(old, new, strict=True)) if was != now]
  if [u.op for u in after[:4]] != [Ops.RESHAPE, Ops.SHRINK] * 2 or len(axes) != 1 or new[axes[0]] != 2:
    return False
  axis = axes[0]
  joined, cut, split, picked = (u.shape for u in after[:4])
  if joined != (*new[:axis], 2 * new[axis + 1], *new[axis + 2 :]):
    return False
  rows = (*cut[:axis], split[axis], split[axis + 1], *cut[axis + 1 :])
  one = (*split[: axis + 1], 1, *split[axis + 2 :])
  same_elsewhere = cut[:axis] + cut[axis + 1 :] == joined[:axis] + joined[axis + 1 :]
  last = (split[axis] - 1) * split[axis + 1]
  return split == rows and picked == one and same_elsewhere and isinstance(last, int) and last < int(new[axis + 1])


def sizes(uop: UOp) -> Sizes:
  """A shape that is known to be of numbers."""
  return tuple(int(s) for s in uop.shape)


def strides_in_shape(shape: Sizes, strides: Sizes, new: Sizes) -> Sizes | None:
  """Strides that show the same elements, in the same order, in another shape. None where there are none."""
  if 0 in new:
    return (1,) * len(new)
  axes = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
  out: list[int] = []
  for wanted in reversed(new):
    if wanted == 1:
      out.append(1)
      continue
    # join axes until the last one is a multiple of what is wanted; they must follow one another in memory
    while axes and axes[-1][0] % wanted:
      if len(axes) < 2 or axes[-2][1] != axes[-1][1] * axes[-1][0]:
        return None
      (outer, _), (inner, stride) = axes[-2:]
      axes[-2:] = [(outer * inner, stride)]
    if not axes:
      return None
    size, stride = axes.pop()
    out.append(stride)
    if size != wanted:
      axes.append((size // wanted, stride * wanted))
  return tuple(reversed(out))
