"""Questions about expressions: sums and conditions taken apart, strides and divisors of offsets, and what bounds say
about overflow and division."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from tiny_uop import DType, Ops, UOp, dtypes, simplify
from tiny_uop.graph import chain, operands


def number(value: int) -> UOp:
  """A constant offset or size."""
  return UOp.const(dtypes.index, value)


def terms(expression: UOp) -> list[UOp]:
  """The summands of a sum."""
  return list(operands(expression, Ops.ADD))


def clauses(condition: UOp) -> list[UOp]:
  """What all has to hold for a condition to hold."""
  return list(operands(condition, Ops.AND))


def all_of(conditions: Iterable[UOp]) -> UOp | None:
  """The condition that all of these hold; None for none."""
  listed = list(conditions)
  return chain(Ops.AND, listed) if listed else None


def stride(offset: UOp, loop: UOp) -> int | None:
  """By how much `offset` grows from one iteration of `loop` to the next; None where that is not a known constant."""
  total = 0
  for term in terms(offset):
    if loop not in term.ranges:
      continue
    if term is loop:
      total += 1
    elif term.op is Ops.MUL and term.src[0] is loop and term.src[1].op is Ops.CONST:
      total += int(term.src[1].arg)
    elif term.op is Ops.SHL and term.src[0] is loop and term.src[1].op is Ops.CONST:  # late, a product is a shift
      total += 1 << int(term.src[1].arg)
    else:
      return None
  return total


def split_constant(offset: UOp) -> tuple[UOp | None, int]:
  """An offset as what varies and a constant, in elements."""
  if offset.op is Ops.CONST:
    return None, int(offset.arg)
  if offset.op is Ops.ADD and offset.src[1].op is Ops.CONST:
    return offset.src[0], int(offset.src[1].arg)
  return offset, 0


def divisor(offset: UOp) -> int:
  """A number that divides an integer expression whatever its loops and variables are; 0 if it is 0."""
  if offset.op is Ops.CONST:
    return abs(int(offset.arg))
  if offset.op is Ops.MUL:
    return divisor(offset.src[0]) * divisor(offset.src[1])
  if offset.op in (Ops.ADD, Ops.SUB):
    return math.gcd(divisor(offset.src[0]), divisor(offset.src[1]))
  if offset.op is Ops.MULACC:
    return math.gcd(divisor(offset.src[0]) * divisor(offset.src[1]), divisor(offset.src[2]))
  if offset.op is Ops.FLOORMOD:
    return math.gcd(divisor(offset.src[0]), divisor(offset.src[1]))
  if offset.op is Ops.WHERE:
    return math.gcd(divisor(offset.src[1]), divisor(offset.src[2]))
  if offset.op is Ops.SHL and offset.src[1].op is Ops.CONST:
    return divisor(offset.src[0]) << int(offset.src[1].arg)
  return divisor(offset.src[0]) if offset.op is Ops.CAST else 1


def row_major(counters: tuple[UOp, ...], sizes: tuple[int, ...]) -> UOp:
  """The offset of a place in a box of `sizes`, last axis adjacent."""
  offset = number(0)
  for counter, size in zip(counters, sizes):
    offset = offset * size + counter
  return simplify(offset)


def is_signed(dtype: DType) -> bool:
  """Whether a type is a signed integer (`index` is)."""
  return dtype.kind in ("int", "index")


def cannot_overflow(u: UOp) -> bool:
  """Whether the bounds of a signed ADD, SUB or MUL's operands keep the result within its type."""
  if not is_signed(u.dtype) or u.op not in (Ops.ADD, Ops.SUB, Ops.MUL):
    return False
  (a, b), (c, d) = ((s.vmin, s.vmax) for s in u.src)
  ends = (a + c, b + d) if u.op is Ops.ADD else (a - d, b - c) if u.op is Ops.SUB else (a * c, a * d, b * c, b * d)
  return bool(int(dtypes.min(u.dtype)) <= min(ends) and max(ends) <= int(dtypes.max(u.dtype)))


class Guards(NamedTuple):
  """Which divisors a division has to look out for: 0, and -1 under INT_MIN."""

  zero: bool
  minus_one: bool


def guards(u: UOp) -> Guards:
  """What bounds cannot rule out for a TRUNCDIV or TRUNCMOD."""
  numerator, divisor = u.src
  zero = divisor.vmin <= 0 <= divisor.vmax
  least = numerator.vmin <= int(dtypes.min(u.dtype))
  return Guards(bool(zero), bool(is_signed(u.dtype) and least and divisor.vmin <= -1 <= divisor.vmax))
