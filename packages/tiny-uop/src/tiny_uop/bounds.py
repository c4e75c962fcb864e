"""Bounds of values: one rule per operation, interval arithmetic over the bounds of the sources.

`index` is a mathematical integer and its bounds may be any integers. Fixed-width integers wrap: where the mathematical
interval does not fit the type, the whole range of the type is the answer. Floats have no bounds but for constants (NaN
is outside every interval). A vector's bounds hold for every lane.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tiny_uop.dtype import DType, PtrDType, dtypes
from tiny_uop.evaluate import exec_alu, lanes_of, trunc_div
from tiny_uop.ops import GroupOp, Ops

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

Bounds = tuple[Any, Any]

# an `index` of which nothing is known: loads cast to index reach anything an int64 holds
_UNKNOWN_INDEX = (-(1 << 63), (1 << 64) - 1)


def dtype_bounds(dtype: DType) -> Bounds:
  """The interval of all values of a type; (0, 0) for void and pointers, which have none."""
  kind = dtype.kind
  if kind == "float":
    return (-math.inf, math.inf)
  if isinstance(dtype, PtrDType) or kind == "void":
    return (0, 0)
  if kind == "index":
    return _UNKNOWN_INDEX
  return (dtypes.min(dtype), dtypes.max(dtype))


def fits(dtype: DType, low: int, high: int) -> bool:
  """Whether every integer of [low, high] is a value of the integer type `dtype`."""
  kind = dtype.kind
  if kind == "index":
    return True
  bits = dtype.bits
  if kind == "int":
    return low >= -(1 << (bits - 1)) and high < 1 << (bits - 1)
  return low >= 0 and high < 1 << bits


def _fit(dtype: DType, low: int, high: int) -> Bounds:
  return (low, high) if fits(dtype, low, high) else dtype_bounds(dtype)


def _products(a: Bounds, b: Bounds) -> Bounds:
  products = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
  return min(products), max(products)


def _mul(u: UOp, a: Bounds, b: Bounds) -> Bounds:
  low, high = _products(a, b)
  if u.src[0] is u.src[1]:  # a square
    low = 0 if a[0] <= 0 <= a[1] else min(a[0] * a[0], a[1] * a[1])
  return _fit(u.dtype, low, high)


def _mulacc(u: UOp, a: Bounds, b: Bounds, c: Bounds) -> Bounds:
  low, high = _products(a, b)
  return _fit(u.dtype, low + c[0], high + c[1])


def _divisors(b: Bounds) -> list[int]:
  """The divisors at which a quotient by some b can be extreme: ends of the interval, and those next to 0."""
  return [d for d in {b[0], b[1], -1, 1} if b[0] <= d <= b[1] and d != 0]


def _quotients(divide: Callable[[int, int], int]) -> Callable[[UOp, Bounds, Bounds], Bounds]:
  def rule(u: UOp, a: Bounds, b: Bounds) -> Bounds:
    # monotonic in each operand on either side of a zero divisor, so the ends suffice; x / 0 = 0 by definition
    values = [divide(n, d) for d in _divisors(b) for n in a]
    if b[0] <= 0 <= b[1]:
      values.append(0)
    # a quotient goes to 0 or -1 as the divisor grows, which the ends cover
    return _fit(u.dtype, min(values), max(values))

  return rule


def _floormod(u: UOp, a: Bounds, b: Bounds) -> Bounds:
  if b[0] == b[1] and b[0] != 0:
    d = b[0]
    if a[0] // d == a[1] // d:
      return (a[0] % d, a[1] % d)
    return (0, d - 1) if d > 0 else (d + 1, 0)
  if b[0] > 0 and a[0] >= 0:
    return (0, min(a[1], b[1] - 1))
  return (min(b[0] + 1, 0), max(b[1] - 1, 0))


def _truncmod(u: UOp, a: Bounds, b: Bounds) -> Bounds:
  # the sign of the dividend; smaller than the divisor in magnitude and no larger than the dividend
  most = max(abs(b[0]) - 1, abs(b[1]) - 1, 0)
  return (max(a[0], -most) if a[0] < 0 else 0, min(a[1], most) if a[1] > 0 else 0)


def _where(u: UOp, cond: Bounds, a: Bounds, b: Bounds) -> Bounds:
  if cond[0] == cond[1]:
    return a if cond[0] else b
  return (min(a[0], b[0]), max(a[1], b[1]))


def _mask(value: int) -> int:
  return (1 << value.bit_length()) - 1


def _and(u: UOp, a: Bounds, b: Bounds) -> Bounds:
  if u.dtype.kind == "bool":
    return (a[0] and b[0], a[1] and b[1])
  if a[0] >= 0 or b[0] >= 0:  # clears bits of a non-negative number
    return (0, min(x[1] for x in (a, b) if x[0] >= 0))
  low = -_mask(max(-a[0] - 1, -b[0] - 1)) - 1
  return (low, max(a[1], b[1]) if a[1] >= 0 or b[1] >= 0 else -1)


def _any_bits(u: UOp, a: Bounds, b: Bounds) -> Bounds:
  """What has no more bits than the operands."""
  if u.dtype.kind != "index":
    return dtype_bounds(u.dtype)
  most = _mask(max(abs(a[0]), abs(a[1]), abs(b[0]), abs(b[1])))
  return (-most - 1, most)


def _or(u: UOp, a: Bounds, b: Bounds) -> Bounds:
  if u.dtype.kind == "bool":
    return (a[0] or b[0], a[1] or b[1])
  if a[0] >= 0 and b[0] >= 0:
    return (max(a[0], b[0]), _mask(max(a[1], b[1])))
  return _any_bits(u, a, b)


def _xor(u: UOp, a: Bounds, b: Bounds) -> Bounds:
  if u.dtype.kind == "bool":
    return (a[0] != b[0], a[1] != b[1]) if a[0] == a[1] and b[0] == b[1] else (False, True)
  if b == (-1, -1):
    return (~a[1], ~a[0])
  if a[0] >= 0 and b[0] >= 0:
    return (0, _mask(max(a[1], b[1])))
  return _any_bits(u, a, b)


def _shifts(shift: Callable[[int, int], int]) -> Callable[[UOp, Bounds, Bounds], Bounds]:
  def rule(u: UOp, a: Bounds, b: Bounds) -> Bounds:
    if not 0 <= b[0] <= b[1] < 64:
      return dtype_bounds(u.dtype)
    return _fit(u.dtype, min(shift(a[0], n) for n in b), max(shift(a[1], n) for n in b))

  return rule


def _cmplt(u: UOp, a: Bounds, b: Bounds) -> Bounds:
  return (False, False) if u.src[0] is u.src[1] else (a[1] < b[0], a[0] < b[1])


def _cmpeq(u: UOp, a: Bounds, b: Bounds) -> Bounds:
  if u.src[0] is u.src[1]:
    return (True, True)
  return (a[0] == a[1] == b[0] == b[1], not (a[1] < b[0] or b[1] < a[0]))


def _cmpne(u: UOp, a: Bounds, b: Bounds) -> Bounds:
  equal = _cmpeq(u, a, b)
  return (not equal[1], not equal[0])


def _cast(u: UOp, a: Bounds) -> Bounds:
  source, target = u.src[0].dtype.kind, u.dtype.kind
  if target == "bool":
    return (a[0] > 0 or a[1] < 0, a[0] != 0 or a[1] != 0)
  if source == "float":
    return dtype_bounds(u.dtype)
  return _fit(u.dtype, int(a[0]), int(a[1]))


_RULES: dict[Ops, Callable[..., Bounds]] = {
  Ops.ADD: lambda u, a, b: _fit(u.dtype, a[0] + b[0], a[1] + b[1]),
  Ops.SUB: lambda u, a, b: _fit(u.dtype, a[0] - b[1], a[1] - b[0]),
  Ops.MUL: _mul,
  Ops.MULACC: _mulacc,
  Ops.NEG: lambda u, a: _fit(u.dtype, -a[1], -a[0]),
  Ops.FLOORDIV: _quotients(operator.floordiv),
  Ops.TRUNCDIV: _quotients(trunc_div),
  Ops.FLOORMOD: _floormod,
  Ops.TRUNCMOD: _truncmod,
  Ops.MAX: lambda u, a, b: (max(a[0], b[0]), max(a[1], b[1])),
  Ops.WHERE: _where,
  Ops.AND: _and,
  Ops.OR: _or,
  Ops.XOR: _xor,
  Ops.SHL: _shifts(operator.lshift),
  Ops.SHR: _shifts(operator.rshift),
  Ops.CMPLT: _cmplt,
  Ops.CMPEQ: _cmpeq,
  Ops.CMPNE: _cmpne,
  Ops.CAST: _cast,
}
_BOOLEAN = GroupOp.Compare | {Ops.AND, Ops.OR, Ops.XOR, Ops.WHERE, Ops.CAST, Ops.MAX}
# these give one of the values, or the value, of their sources; what a BIND binds must not be folded into the structure,
# which is the key of caches
_SAME = GroupOp.Identity | (GroupOp.Movement - {Ops.PAD})
_SAME |= {Ops.CUSTOM_GRADIENT, Ops.BARRIER, Ops.STAGE, Ops.EXTRACT, Ops.BIND}


def bounds(u: UOp) -> Bounds:
  """(least, greatest) value that the node can have, from the bounds of its sources. Use `u.vmin` and `u.vmax`, which
  cache it."""
  op, dtype = u.op, u.dtype
  if op is Ops.CONST:
    return _constant(u)
  if isinstance(dtype, PtrDType) or dtype.kind == "void":
    return (0, 0)
  if (rule := _RULES.get(op)) is not None:
    if op in GroupOp.Compare and u.src[0].dtype.kind == "float":
      return _float_compare(u)
    if dtype.kind == "float" or (dtype.kind == "bool" and op not in _BOOLEAN):
      return dtype_bounds(dtype)
    return rule(u, *[s._bounds for s in u.src])
  if op is Ops.VARIABLE:
    return (u.arg[1], u.arg[2])
  if op in (Ops.RANGE, Ops.SPECIAL):
    return (0, max(u.src[0]._bounds[1] - 1, 0))
  if dtype.kind == "float":
    return dtype_bounds(dtype)
  if op in _SAME:
    return u.src[0]._bounds
  if op is Ops.VECTORIZE:
    return (min(s._bounds[0] for s in u.src), max(s._bounds[1] for s in u.src))
  if op is Ops.REDUCE and u.arg[0] is Ops.MAX:
    low, high = u.src[0]._bounds
    return (dtypes.min(dtype) if dtype.kind != "index" else low, high)  # over no elements: the least value
  return dtype_bounds(dtype)


def _constant(u: UOp) -> Bounds:
  lanes = lanes_of(u.arg, 1)
  if any(lane != lane for lane in lanes):
    return dtype_bounds(u.dtype)
  return (min(lanes), max(lanes))


def _float_compare(u: UOp) -> Bounds:
  """Comparisons of floats are known only between constants: NaN is in no interval."""
  if any(s.op is not Ops.CONST or isinstance(s.arg, tuple) for s in u.src):
    return (False, True)
  return (exec_alu(u.op, dtypes.bool, [s.arg for s in u.src]),) * 2
