"""Shapes: joining, repeating, and the order of axes. Views share memory with `x` as Tensor's methods do."""

from __future__ import annotations

from tiny_tensor.array_api.operands import Array, Axis
from tiny_tensor.shapes import Shape, broadcast_shape, normalize_axes, normalize_axis, shape_of
from tiny_tensor.tensor import Tensor

__all__ = [
  "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims",
  "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack",
]  # fmt: skip


def broadcast_arrays(*arrays: Array) -> tuple[Array, ...]:
  """All with the shape to which they broadcast."""
  shape = broadcast_shape(*(x.shape for x in arrays)) if arrays else ()
  return tuple(x.broadcast_to(shape) for x in arrays)


def broadcast_shapes(*shapes: tuple[int, ...]) -> Shape:
  """The shape to which shapes broadcast. Raises ValueError where there is none. (Of the 2025.12 standard.)"""
  return broadcast_shape(*(tuple(s) for s in shapes)) if shapes else ()


def broadcast_to(x: Array, /, shape: tuple[int, ...]) -> Array:
  """`x` repeated along axes of size 1."""
  return x.broadcast_to(shape_of(tuple(shape)))


def concat(arrays: tuple[Array, ...] | list[Array], /, *, axis: int | None = 0) -> Array:
  """Arrays one after the other along `axis`; with None all of them flattened."""
  parts = [x.flatten() for x in arrays] if axis is None else list(arrays)
  return parts[0].cat(*parts[1:], dim=axis or 0)


def stack(arrays: tuple[Array, ...] | list[Array], /, *, axis: int = 0) -> Array:
  """Arrays of one shape along a new axis."""
  return arrays[0].stack(*arrays[1:], dim=axis)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
  """The arrays along an axis."""
  return x.unbind(axis)


def expand_dims(x: Array, /, axis: int | tuple[int, ...] = 0) -> Array:
  """Axes of size 1 put in so that they are at `axis` of the result."""
  if not isinstance(axis, tuple):
    return x.unsqueeze(axis)
  for a in normalize_axes(axis, x.ndim + len(axis)):
    x = x.unsqueeze(a)
  return x


def squeeze(x: Array, /, axis: int | tuple[int, ...]) -> Array:
  """Without axes of size 1. Raises ValueError for one of another size."""
  for a in reversed(normalize_axes(axis, x.ndim)):
    if x.shape[a] != 1:
      raise ValueError(f"squeeze takes axes of size 1: axis {a} of shape {x.shape} has size {x.shape[a]}")
    x = x.squeeze(a)
  return x


def flip(x: Array, /, *, axis: Axis = None) -> Array:
  """Backwards along axes (None: all)."""
  axes = normalize_axes(axis, x.ndim)
  return x.flip(*axes) if axes else x


def permute_dims(x: Array, /, axes: tuple[int, ...]) -> Array:
  """Axes in another order."""
  return x.permute(*axes) if x.ndim else x


def moveaxis(x: Array, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Array:
  """Axes `source` at places `destination`, the others in their order."""
  return x.movedim(source, destination)


def repeat(x: Array, repeats: int | Array, /, *, axis: int | None = None) -> Array:
  """Each element (or entry along `axis`) so many times. An array of counts is read, as the shape depends on it."""
  if axis is None:
    x, axis = x.flatten(), 0
  place = normalize_axis(axis, x.ndim)
  if not isinstance(repeats, Tensor) or repeats.ndim == 0 or repeats.shape == (1,):
    times = int(repeats.item()) if isinstance(repeats, Tensor) else repeats
    if times == 0 or x.shape[place] == 0:
      return x._select_axis(place, 0, 0)
    return x.repeat_interleave(times, place)
  ends = repeats.cumsum(0)
  total = int(ends[-1].item())
  if total == 0:
    return x._select_axis(place, 0, 0)
  return x.index_select(place, ends.searchsorted(ends._count_up(total, ends.dtype), right=True))


def reshape(x: Array, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
  """The same elements in another shape, of which one size may be -1. With `copy=True` in other memory."""
  out = x.reshape(tuple(shape))
  return out.clone() if copy else out


def roll(x: Array, /, shift: int | tuple[int, ...], *, axis: Axis = None) -> Array:
  """Elements moved on by `shift`, those that leave at the end coming back in front."""
  if axis is None:
    return x.flatten().roll(shift, 0).reshape(x.shape)
  axes = axis if isinstance(axis, tuple) else (axis,)
  shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
  return x.roll(shifts, axes)


def tile(x: Array, repetitions: tuple[int, ...], /) -> Array:
  """`x` so many times along each axis."""
  return x.tile(repetitions)
