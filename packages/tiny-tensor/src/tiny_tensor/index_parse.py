"""What stands between the brackets of `t[...]`, made explicit: one record per axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiny_tensor.base import TensorBase, python_number
from tiny_tensor.shapes import Shape
from tiny_uop import UOp, dtypes, sint
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class Pick:
  """An integer: the axis goes."""

  start: sint


@dataclass(frozen=True)
class Span:
  """A slice: `count` elements from `start`, `step` apart (negative: backwards). With symbolic bounds `stop` is the
  end.
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
  """A slice against an axis. Symbolic bounds must be in range for all values of their variables and have step 1."""
  if any(isinstance(v, UOp) for v in (entry.start, entry.stop, size)):
    start = 0 if entry.start is None else entry.start
    stop = size if entry.stop is None else entry.stop
    if entry.step not in (None, 1):
      raise IndexError(f"a slice with symbolic bounds must have step 1, got {entry}")
    check_symbolic(start, stop, size, axis)
    return Span(start, stop - start, 1, stop)
  for value in (entry.start, entry.stop, entry.step):
    if value is not None and not hasattr(value, "__index__"):
      raise TypeError(f"slice bounds are integers or None, got {entry} for axis {axis}")
  if entry.step is not None and entry.step.__index__() == 0:
    raise ValueError(f"slice step cannot be zero: {entry} for axis {axis}")
  start, stop, step = entry.indices(int(size))
  return Span(start, len(range(start, stop, step)), step)


def check_symbolic(start: sint, stop: sint, size: sint, axis: int) -> None:
  """Raises IndexError where [start, stop) can leave an axis of known size: nothing checks it when a kernel runs."""
  low = start if isinstance(start, int) else start.vmin
  high = stop
  if isinstance(stop, UOp):
    from tiny_uop import simplify  # late: hardly a program has such a slice

    high = simplify(stop).vmax
  if isinstance(size, int) and (low < 0 or high > size):
    shown = " to ".join(end.render() if isinstance(end, UOp) else str(end) for end in (start, stop))
    raise IndexError(
      f"{shown} can reach from {low} to {high}, which is out of range for axis {axis} of size {size}: "
      "give the variables bounds with which it cannot"
    )


def pick_of(entry: Any, size: sint, axis: int, shape: Shape) -> Pick:
  """An integer against an axis. Raises IndexError naming index, axis and size."""
  if isinstance(entry, UOp):
    check_symbolic(entry, entry + 1, size, axis)
    return Pick(entry)
  index = entry.__index__()
  if isinstance(size, int) and not -size <= index < size:
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
