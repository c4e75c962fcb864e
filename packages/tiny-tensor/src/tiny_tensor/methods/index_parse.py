"""The index of `t[...]` as one record per axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiny_tensor.base import TensorBase, python_number
from tiny_tensor.shapes import Shape, at_most, greatest, least, lower, upper
from tiny_uop import UOp, dtypes, sint
from tiny_uop.records import dataclass
from tiny_uop.shape import simple_size


@dataclass(frozen=True)
class Pick:
  """An integer: the axis goes."""

  start: sint


@dataclass(frozen=True)
class Span:
  """A slice: `count` elements from `start`, `step` apart (negative: backwards). With symbolic bounds `stop` is the
  end, and `count` how many elements are before it; with a negative step they are looked at from the end.
  """

  start: sint
  count: sint
  step: int
  stop: sint | None = None


@dataclass(frozen=True)
class NewAxis:
  """An axis that was not there: of size 1 for None and True, of size 0 for False."""

  count: int = 1


@dataclass(frozen=True, eq=False)
class Gather:
  """A tensor of integers: its shape takes the place of the axis."""

  index: TensorBase


Entry = Pick | Span | NewAxis | Gather


def single_index(entry: Any) -> Any:
  """A NumPy scalar, or an array of integers without axes, as the Python number; anything else as it is."""
  if hasattr(entry, "__array_interface__") and entry.shape == () and entry.dtype.kind in "iu":
    return int(entry)
  return python_number(entry)


def as_entries(key: Any) -> tuple[Any, ...]:
  """The key as a tuple; a list of integers is one index, a tuple is one entry per axis."""
  return tuple(key) if isinstance(key, tuple) else (key,)


def mask_axes(entry: Any) -> int:
  """How many axes of the tensor an entry stands for."""
  if entry is None:
    return 0
  if isinstance(entry, TensorBase) and dtypes.is_bool(entry.dtype):
    return entry.ndim
  return 1


def expand_ellipsis(entries: tuple[Any, ...], ndim: int, shape: Shape) -> tuple[Any, ...]:
  """Full slices in the place of `...` and behind. Raises IndexError when there are too many indices."""
  dots = [i for i, e in enumerate(entries) if e is Ellipsis]
  if len(dots) > 1:
    raise IndexError("an index can hold only one ellipsis (...)")
  used = sum(mask_axes(e) for e in entries if e is not Ellipsis)
  if used > ndim:
    raise IndexError(f"too many indices: {used} for a tensor of shape {shape} with {ndim} axes")
  fill = (slice(None),) * (ndim - used)
  at = dots[0] if dots else len(entries)
  return entries[:at] + fill + entries[at + len(dots) :]


def span_of(entry: slice, size: sint, axis: int) -> Span:
  """A slice against an axis. Symbolic bounds must be in range for all values of their variables; numbers are cut off at
  the ends of the axis, as in Python."""
  if any(isinstance(v, UOp) for v in (entry.start, entry.stop, size)):
    return symbolic_span(entry, size, axis)
  for value in (entry.start, entry.stop, entry.step):
    if value is not None and not hasattr(value, "__index__"):
      raise TypeError(f"slice bounds are integers or None, got {entry} for axis {axis}")
  if entry.step is not None and entry.step.__index__() == 0:
    raise ValueError(f"slice step cannot be zero: {entry} for axis {axis}")
  start, stop, step = entry.indices(int(size))
  return Span(start, len(range(start, stop, step)), step)


def symbolic_span(entry: slice, size: sint, axis: int) -> Span:
  """`span_of` with a bound or a size that is an expression."""
  step = 1 if entry.step is None else entry.step.__index__()
  if step == 0 or (step < 0 and (entry.start is not None or entry.stop is not None)):
    raise IndexError(f"{entry} for axis {axis}: a slice with symbolic bounds must have a positive step, or only a step")
  first = 0 if entry.start is None else end_of(entry.start, size, axis)
  last = size if entry.stop is None else end_of(entry.stop, size, axis)
  # what comes of a number is in range, which could not be proved of the smaller of two sizes
  low = first if isinstance(entry.start, UOp) else 0
  check_symbolic(low, last if isinstance(entry.stop, UOp) or isinstance(last, int) else low, size, axis)
  if entry.start is not None and entry.stop is not None:
    last = greatest(first, last)
  return Span(first, simple_size(last - first), step, last)


def end_of(end: Any, size: sint, axis: int) -> sint:
  """An end of a slice: an expression, or a number, counted from the end of the axis if it is negative, and never beyond
  its ends."""
  if isinstance(end, UOp):
    return end
  if not hasattr(end, "__index__"):
    raise TypeError(f"slice bounds are integers or None, got {end!r} for axis {axis}")
  number = end.__index__()
  return greatest(0, number + size) if number < 0 else least(number, size)


def check_symbolic(start: sint, stop: sint, size: sint, axis: int) -> None:
  """Raises IndexError where [start, stop) can leave an axis: nothing checks it when a kernel runs."""
  # every axis has a beginning, also one whose size is not seen to be 0 at least
  if not all(
    at_most(0, end) and at_most(end, size) for end in (start, stop) if not (isinstance(end, int) and end == 0)
  ):
    shown = [end.render() if isinstance(end, UOp) else str(end) for end in (start, stop, size)]
    what = shown[0] if start is stop else f"{shown[0]} to {shown[1]}"
    low, high = lower(simple_size(start)), upper(simple_size(stop))
    raise IndexError(
      f"{what} can reach from {low} to {high}, which is out of range for axis {axis} of size {shown[2]}: "
      "give the variables bounds with which it cannot"
    )


def pick_of(entry: Any, size: sint, axis: int, shape: Shape) -> Pick:
  """An integer against an axis. Raises IndexError naming index, axis and size."""
  if isinstance(entry, UOp):
    check_symbolic(entry, entry + 1, size, axis)
    return Pick(entry)
  index = entry.__index__()
  if isinstance(size, UOp):
    place = index + size if index < 0 else index
    check_symbolic(place, place + 1, size, axis)
    return Pick(place)
  if not -size <= index < size:
    raise IndexError(f"index {index} is out of range for axis {axis} of size {size} in shape {shape}")
  return Pick(index + size if index < 0 else index)


def is_integer(entry: Any) -> bool:
  """An index for one element (bool is not one)."""
  return isinstance(entry, UOp) or (hasattr(entry, "__index__") and not isinstance(entry, (bool, TensorBase)))


def resolve(entries: Sequence[Any], shape: Shape) -> list[Entry]:
  """Entries with tensors, ints, slices and None against a shape. Tensors here hold integers."""
  out: list[Entry] = []
  axis = 0
  for entry in entries:
    if entry is None or isinstance(entry, NewAxis):
      out.append(entry or NewAxis())
      continue
    if isinstance(entry, slice):
      out.append(span_of(entry, shape[axis], axis))
    elif isinstance(entry, TensorBase):
      if not dtypes.is_int(entry.dtype):
        raise IndexError(f"a tensor used as an index must hold integers or bool, got {entry.dtype.name}")
      out.append(Gather(entry))
    elif is_integer(entry):
      out.append(pick_of(entry, shape[axis], axis, shape))
    else:
      raise IndexError(f"{entry!r} cannot index axis {axis}: use an integer, slice, None, ... or an integer tensor")
    axis += 1
  return out


def gathers_of(entries: Sequence[Entry]) -> tuple[list[tuple[int, Any]], bool]:
  """The axis in the view and the tensor of each index that is one; and whether their axes go to the front, as they do
  where other axes are between them (NumPy, PyTorch)."""
  in_view = [e for e in entries if not isinstance(e, Pick)]
  found = [(axis, e.index) for axis, e in enumerate(in_view) if isinstance(e, Gather)]
  return found, any(b != a + 1 for (a, _), (b, _) in zip(found, found[1:]))
