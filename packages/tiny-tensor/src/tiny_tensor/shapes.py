"""Shape arithmetic shared by the Tensor methods: axes, argument forms, broadcasting."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

from tiny_uop import Ops, UOp, dtypes, evaluate, sint
from tiny_uop.shape import all_known, same_size, simple_size

Shape: TypeAlias = tuple[sint, ...]
T = TypeVar("T")


def args_to_tuple(args: tuple[Any, ...]) -> tuple[Any, ...]:
  """`f(2, 3)`, `f((2, 3))` and `f([2, 3])` all mean the tuple `(2, 3)`."""
  if len(args) == 1 and isinstance(args[0], (tuple, list)):
    return tuple(args[0])
  return args


def shape_of(args: tuple[Any, ...]) -> Shape:
  """A shape from either argument form. Raises TypeError or ValueError naming the entry that is no size."""
  shape = args_to_tuple(args)
  if all_known(shape) and min(shape, default=0) >= 0:
    return shape
  for size in shape:
    if isinstance(size, bool) or not isinstance(size, (int, UOp)):
      if hasattr(size, "__index__") and not isinstance(size, bool):
        continue
      raise TypeError(f"a shape holds integers, got {size!r} in {shape}")
  out: Shape = tuple(simple_size(s if isinstance(s, UOp) else int(s)) for s in shape)
  if any(isinstance(s, int) and s < 0 for s in out):
    raise ValueError(f"a size cannot be negative: {out}")
  return out


def normalize_axis(axis: int, ndim: int, extra: int = 0) -> int:
  """Axis counted from the front; a 0-d tensor accepts 0 and -1. `extra` axes may be named beyond the last one."""
  limit = max(ndim + extra, 1)
  if isinstance(axis, bool) or not hasattr(axis, "__index__"):
    raise TypeError(f"an axis is an integer, got {axis!r}")
  index = axis.__index__()
  if not -limit <= index < limit:
    raise IndexError(f"axis {axis} is out of range for {ndim} dimensions, expected {-limit} to {limit - 1}")
  return index + limit if index < 0 else index


def normalize_axes(axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
  """Sorted distinct axes; None means all. Raises ValueError when one is named twice."""
  if axis is None:
    return tuple(range(ndim))
  given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
  axes = [normalize_axis(a, ndim) for a in given]
  if len(set(axes)) != len(axes):
    raise ValueError(f"axis named twice in {given} for {ndim} dimensions")
  return tuple(sorted(axes)) if ndim else ()


def align_left(*shapes: Shape) -> tuple[Shape, ...]:
  """Shapes with ones put in front so that all have the same length."""
  ndim = max((len(s) for s in shapes), default=0)
  return tuple((1,) * (ndim - len(s)) + s for s in shapes)


def broadcast_shape(*shapes: Shape) -> Shape:
  """The shape that all of `shapes` broadcast to. Raises ValueError naming them when there is none."""
  first = shapes[0]
  if shapes.count(first) == len(shapes):
    return first
  out: list[sint] = []
  for sizes in zip(*align_left(*shapes), strict=True):
    wanted = [s for s in sizes if not (isinstance(s, int) and s == 1)]
    if any(not same_size(w, wanted[0]) for w in wanted[1:]):
      raise ValueError(f"shapes {', '.join(map(str, shapes))} do not broadcast: sizes {sizes} differ and none is 1")
    out.append(wanted[0] if wanted else 1)
  return tuple(out)


def upper(size: sint) -> int:
  """The largest value that a size can take."""
  return size if isinstance(size, int) else int(size.vmax)


def lower(size: sint) -> int:
  """The smallest value that a size can take."""
  return size if isinstance(size, int) else int(size.vmin)


def number(size: sint, what: str) -> int:
  """A size that has to be a number. Raises TypeError, saying what needs it, for one that depends on a variable."""
  if isinstance(size, UOp):
    raise TypeError(f"{what} have to be numbers, got the symbolic size {size.render()}, which is at most {upper(size)}")
  return size


def at_most(a: sint, b: sint) -> bool:
  """Whether a size is known to be no larger than another, whatever the values of variables are."""
  return upper(simple_size(a - b)) <= 0


def least(a: sint, b: sint) -> sint:
  """The smaller of two sizes; one of them where it is known which."""
  if at_most(a, b) or at_most(b, a):
    return a if at_most(a, b) else b
  return (a if isinstance(a, UOp) else UOp.const(dtypes.index, a)).minimum(b)


def greatest(a: sint, b: sint) -> sint:
  """The larger of two sizes; one of them where it is known which."""
  if at_most(a, b) or at_most(b, a):
    return b if at_most(a, b) else a
  return (a if isinstance(a, UOp) else UOp.const(dtypes.index, a)).maximum(b)


def value_of(size: sint) -> int:
  """A size as a number: symbolic ones by their bound values. Raises ValueError when one is unbound."""
  if isinstance(size, int):
    return size
  bound = {u: u.src[1] for u in size.walk() if u.op is Ops.BIND}
  known = size.substitute(bound)
  if known.variables:
    raise ValueError(f"size {size.render()} has no value: bind {', '.join(str(v.arg[0]) for v in known.variables)}")
  return int(evaluate(known, {}))  # type: ignore[arg-type]


def as_tuple(value: T | Sequence[T], count: int) -> tuple[T, ...]:
  """`value` once per axis: a scalar is repeated, a sequence must have `count` entries (or 1)."""
  if not isinstance(value, (tuple, list)):
    return (value,) * count  # type: ignore[return-value]
  values = tuple(value)
  if len(values) == 1:
    return values * count
  if len(values) != count:
    raise ValueError(f"expected {count} values, one per spatial axis, got {values}")
  return values


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
  """Strides, in elements, of an array in order."""
  return tuple(itertools.accumulate((max(s, 1) for s in shape[:0:-1]), int.__mul__, initial=1))[::-1] if shape else ()
