"""Cosine from sine, at the level of UOps: `Tensor.cos` and the gradient of SIN use it."""

from __future__ import annotations

import math

from tiny_uop import UOp, truncate


def cosine(x: UOp) -> UOp:
  """cos(x) = sin(π/2 - x), with the rounding error of the difference put back to first order.

  The difference of a large x has few correct low bits; its error is known exactly (Knuth's two-sum) and cos(π/2 - x) =
  sin(x).
  """
  high = float(truncate(x.dtype, math.pi / 2))
  low = math.pi / 2 - high if x.dtype.bits < 64 else 6.123233995736766e-17
  rest = x.const_like(high) - x
  back = x.const_like(high) - rest
  error = ((back - x) + (x.const_like(high) - (rest + back)) + low).detach()
  return rest.sin() + error * x.sin()
