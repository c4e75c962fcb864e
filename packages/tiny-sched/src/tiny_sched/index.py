"""Index arithmetic: multi-axis positions and flat offsets, as `index` expressions; and what is memoised of it.

Indices and bodies repeat from kernel to kernel, so functions of them are memoised for one schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, TypeVarTuple

from tiny_uop import Ops, Shape, UOp, dtypes, sint
from tiny_uop import simplify as _simplify
from tiny_uop.symbolic import simplify_gate as _simplify_gate

Index: TypeAlias = "tuple[UOp, ...]"
Gate: TypeAlias = "UOp | None"

ZERO = UOp.const(dtypes.index, 0)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_memories: list[dict[Any, Any]] = []


def memoised(compute: Callable[[*Ts], T]) -> Callable[[*Ts], T]:
  """The function, computing each result once per schedule. It never gives None."""
  known: dict[tuple[*Ts], T] = {}
  _memories.append(known)

  def lookup(*key: *Ts) -> T:
    found = known.get(key)
    if found is None:
      found = known[key] = compute(*key)
    return found

  lookup.__doc__ = compute.__doc__
  return lookup


def clear_memos() -> None:
  """Drops what is memoised, which keeps graphs alive."""
  for known in _memories:
    known.clear()


simplify = memoised(_simplify)
simplify_gate = memoised(_simplify_gate)


def as_uop(size: sint) -> UOp:
  """A size as an `index` expression."""
  return size if isinstance(size, UOp) else UOp.const(dtypes.index, size)


def known(size: sint) -> int | None:
  """The value of a size that is the same in every run, None for a symbolic one."""
  if isinstance(size, int):
    return size
  return int(size.arg) if size.op is Ops.CONST else None


def largest(size: sint) -> int:
  """An upper bound of a size."""
  return size if isinstance(size, int) else int(size.vmax)


def largest_size(shape: Shape) -> int:
  """An upper bound of the number of elements."""
  return math.prod(map(largest, shape))


def is_empty(shape: Shape) -> bool:
  """Whether an axis is known to have size 0."""
  return any(known(s) == 0 for s in shape)


def plus(a: UOp, b: sint) -> UOp:
  """a + b, without the trivial cases."""
  if known(b) == 0:
    return a
  return simplify(a + b) if a.op is Ops.CONST else a + b


@memoised
def _strides(shape: Shape) -> list[sint]:
  """By how many elements the neighbours along each axis of a row-major array are apart."""
  strides: list[sint] = [1]
  for size in reversed(shape[1:]):
    stride = strides[-1]
    strides.append(stride if known(size) == 1 else size if known(stride) == 1 else stride * size)
  return strides[::-1]


def flatten(index: Sequence[UOp], shape: Shape) -> UOp:
  """Offset of a position in a row-major array of this shape."""
  flat: UOp | None = None
  for position, stride in zip(reversed(index), reversed(_strides(shape))):
    if position is not ZERO:
      term = position if known(stride) == 1 else position * stride
      flat = term if flat is None else term + flat
  return ZERO if flat is None else flat


def unflatten(flat: UOp, shape: Shape) -> Index:
  """Position of an offset in a row-major array of this shape; the inverse of `flatten`."""
  result = [ZERO] * len(shape)
  wide = [axis for axis, size in enumerate(shape) if known(size) != 1]
  for axis, stride in zip(wide, _strides(tuple([shape[axis] for axis in wide]))):
    position = flat if known(stride) == 1 else flat // stride
    result[axis] = simplify(position if axis == wide[0] else position % shape[axis])
  return tuple(result)


def both(a: Gate, b: Gate) -> Gate:
  """The conjunction of two gates; None is the gate that always holds."""
  if a is None or b is None or a is b:
    return b if a is None else a
  gate = simplify_gate(simplify(a & b))
  return None if gate.op is Ops.CONST and gate.arg is True else gate


def never(gate: Gate) -> bool:
  """Whether a gate is known not to hold anywhere."""
  return gate is not None and gate.op is Ops.CONST and not gate.arg
