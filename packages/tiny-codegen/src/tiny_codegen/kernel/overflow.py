"""What bounds say about overflow and division, for all renderers."""

from __future__ import annotations

from typing import NamedTuple

from tiny_uop import DType, Ops, UOp, dtypes


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
