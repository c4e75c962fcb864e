"""TRUNC for targets without a rounding instruction."""

from __future__ import annotations

from tiny_codegen.decompose.arithmetic import MADE_OF_OTHERS, magnitude, reinterpret, to, unsigned_bits
from tiny_uop import Ops, UOp, UPat, dtypes, rule


def truncated(x: UOp) -> UOp:
  """x toward zero, by way of an integer. From 2**(mantissa bits) on a float is whole; NaN and infinities are not
  below it either.
  """
  whole, limit = (dtypes.int32, 2.0**23) if x.dtype.bits == 32 else (dtypes.int64, 2.0**52)
  inside = magnitude(x) < limit
  # the sign goes back on afterwards: -0.5 becomes -0.0
  safe = inside.where(magnitude(x), x.const_like(0.0))
  back = unsigned_bits(to(to(safe, whole), x.dtype.scalar()))
  sign = unsigned_bits(x) & (1 << (x.dtype.bits - 1))
  return inside.where(reinterpret(back | sign, x.dtype.scalar()), x)


ROUNDING_RULES = (
  rule("truncate_by_integer", UPat(Ops.TRUNC, (dtypes.float32, dtypes.float64), (UPat.var("x"),)), truncated,
       grows=MADE_OF_OTHERS,
       example=(lambda s: s.f.trunc(), lambda s: s.value(dtypes.float64, 0).trunc()),
       near_miss=lambda s: s.value(dtypes.float16, 0).trunc()),
  rule("truncate_half", UPat(Ops.TRUNC, dtypes.float16, (UPat.var("x"),), name="u"),
       lambda u, x: to(to(x, dtypes.float32).trunc(), dtypes.float16), grows=MADE_OF_OTHERS,
       example=lambda s: s.value(dtypes.float16, 0).trunc(), near_miss=lambda s: s.f.trunc()),
)  # fmt: skip
