"""Shapes: what each operation does to the shape of its sources, one row per operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tiny_uop.args import Sharding
from tiny_uop.dtype import PtrDType, dtypes
from tiny_uop.kernel import kernel_params
from tiny_uop.ops import GroupOp, Ops

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

sint: TypeAlias = "int | UOp"
"""A size or an index: known, or an expression of variables."""
Shape: TypeAlias = "tuple[sint, ...]"
"""Sizes of the axes, outermost first."""


_INT = frozenset({int})


def all_known(sizes: Iterable[object]) -> bool:
  """Whether every size is an int: nearly all are, and all the time."""
  return _INT.issuperset(map(type, sizes))


def split_geometry(values: Sequence[sint]) -> tuple[tuple[int | None, ...], tuple[UOp, ...]]:
  """A geometry as (arg, extra sources): ints stay in the arg; symbolic entries, simplified, leave None there."""
  if all_known(values):
    return tuple(values), ()  # type: ignore[arg-type]  # which are ints
  sizes = [simple_size(value) for value in values]
  arg = tuple([int(size) if isinstance(size, int) else None for size in sizes])
  return arg, tuple([size for size in sizes if not isinstance(size, int)])


def join_geometry(arg: Sequence[int | None], extra: Sequence[UOp]) -> Shape:
  """The inverse of `split_geometry`."""
  if not extra:
    return tuple(arg)  # type: ignore[arg-type]  # no None without extra sources
  rest = iter(extra)
  return tuple([next(rest) if a is None else a for a in arg])


def pairs(flat: Sequence[sint]) -> tuple[tuple[sint, sint], ...]:
  """(a, b, c, d) → ((a, b), (c, d))."""
  return tuple(zip(flat[::2], flat[1::2], strict=True))


def prod(values: Iterable[sint]) -> sint:
  """Product of sizes; 1 for none."""
  values = tuple(values)
  if all_known(values):
    return math.prod(values)
  total: sint = 1
  for value in values:
    total = value if isinstance(total, int) and total == 1 else total * value
  return total


def same_size(a: sint, b: sint) -> bool:
  """Whether two sizes are known to be equal."""
  if a is b or (isinstance(a, int) and isinstance(b, int)):
    return a is b or a == b
  return simple_size(a - b) == 0


def same_shape(a: Shape, b: Shape) -> bool:
  """Whether two shapes are known to be equal."""
  return len(a) == len(b) and all(same_size(x, y) for x, y in zip(a, b, strict=True))


def simple_size(value: sint) -> sint:
  """A size as it is put into a shape: a number if it can have one value only, else simplified."""
  if isinstance(value, int):
    return value
  from tiny_uop.symbolic import simplify

  small = simplify(value)
  return int(small.vmin) if small.vmin == small.vmax else small


def _difference(stop: sint, start: sint) -> sint:
  if isinstance(start, int) and start == 0:
    return stop
  return simple_size(stop - start)


def _elementwise(u: UOp) -> Shape | None:
  shape: Shape | None = None
  for s in u.src:
    other = s._shape
    if other is None:
      continue
    if shape is None or shape == ():
      shape = other if shape is None or other != () else shape
    elif other is not shape and other != shape and other != () and not same_shape(shape, other):
      shapes = ", ".join(str(s._shape) for s in u.src)
      raise ValueError(f"{u.op.name} needs sources of one shape, got {shapes}: reshape or expand them first")
  return shape


def _bitcast(u: UOp) -> Shape | None:
  shape, old, new = u.src[0]._shape, u.src[0].dtype.itemsize, u.dtype.itemsize
  if not shape or old == new:
    if old != new:
      raise ValueError(f"BITCAST from {u.src[0].dtype} to {u.dtype} of a scalar: item sizes {old} and {new} differ")
    return shape
  last = shape[-1] * old
  if isinstance(last, int) and last % new:
    raise ValueError(f"BITCAST to {u.dtype}: the last axis has {last} bytes, not a multiple of {new}")
  return (*shape[:-1], simple_size(last // new))


def _reduce(u: UOp) -> Shape | None:
  shape = u.src[0]._shape
  axes = u.arg[1]
  return shape if shape is None or not axes else tuple([1 if i in axes else s for i, s in enumerate(shape)])


def _multi(u: UOp) -> Shape | None:
  shape = u.src[0]._shape
  if isinstance(u.arg, Sharding):  # a Sharding: of the pieces, only those of this process may be there
    ends = {cut.axis: cut.bounds[-1] for cut in u.arg.cuts}
    return None if shape is None else tuple([ends.get(i, s) for i, s in enumerate(shape)])
  if u.arg is None or shape is None:
    return shape
  total: sint = 0
  for s in u.src:
    total = s.shape[u.arg] + total
  return (*shape[: u.arg], simple_size(total), *shape[u.arg + 1 :])


def _pad(u: UOp) -> Shape:
  sizes = zip(u.src[0].shape, pairs(u.geometry), strict=True)
  return tuple([simple_size(s + before + after) for s, (before, after) in sizes])


_SCALARS = (Ops.CONST, Ops.VARIABLE, Ops.BIND, Ops.RANGE, Ops.SPECIAL, Ops.LOAD, Ops.EXTRACT, Ops.VECTORIZE)
_SAME = (*GroupOp.Identity, Ops.FLIP, Ops.STAGE, Ops.COPY, Ops.AFTER, Ops.CUSTOM_GRADIENT)
_RULES: dict[Ops, Callable[[Any], Shape | None]] = {
  **dict.fromkeys((Ops.BUFFER, Ops.BUFFER_VIEW), lambda u: (u.arg[1],)),
  **dict.fromkeys((Ops.RESHAPE, Ops.EXPAND), lambda u: u.geometry),
  **dict.fromkeys(_SCALARS, lambda u: ()),
  **dict.fromkeys(_SAME, lambda u: u.src[0]._shape),
  **dict.fromkeys(GroupOp.Elementwise, _elementwise),
  Ops.PERMUTE: lambda u: tuple([u.src[0].shape[i] for i in u.arg]),
  Ops.PAD: _pad,
  Ops.SHRINK: lambda u: tuple([_difference(stop, start) for start, stop in pairs(u.geometry)]),
  Ops.REDUCE: _reduce,
  Ops.BITCAST: _bitcast,
  Ops.MULTI: _multi,
  # effects of kernels and schedules, values of tensor graphs
  Ops.BARRIER: lambda u: u.src[0]._shape if u.dtype is not dtypes.void and u.src else None,
  Ops.CALL: lambda u: (kernel_params(u.src[0])[u.arg].size,) if u.dtype is not dtypes.void else None,
}


def shape_of(u: UOp) -> Shape | None:
  """The shape of a node, None where it has none (effects, pointers, devices)."""
  if isinstance(u.dtype, PtrDType):
    return None
  rule = _RULES.get(u.op)
  return rule(u) if rule is not None else None
