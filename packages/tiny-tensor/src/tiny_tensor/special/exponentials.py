"""exp(x) - 1 and what is made of it without cancellation, for float32 and float64."""

from __future__ import annotations

import math
from typing import TypeVar

from tiny_tensor.base import TensorBase
from tiny_tensor.special import chebyshev as ap
from tiny_uop import Ops

E = TypeVar("E", bound=TensorBase)

# ln 2 in two parts; products of the first with whole numbers up to 2**10 are exact (Cody and Waite, 1980)
_LN2 = {
  32: (0.693359375, -2.12194440054690583e-4),
  64: (float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")),
}
_MANTISSA = {32: 23, 64: 52}


def reduced(x: E) -> tuple[E, E]:
  """(q, n) with exp(x) = (1 + q)·2ⁿ, n whole and |q| < 0.42, as relatively exact as x: for |x| < 1000."""
  bits = x.dtype.bits
  high, low = _LN2[bits]
  # where floats have no bits behind the point, adding rounds
  large = 1.5 * 2.0 ** _MANTISSA[bits]
  n = ((x * (1 / math.log(2)) + large) - large).detach()
  r = (x - n * high) - n * low
  return r * r * ap.polynomial(ap.exponential_rest, -0.35, 0.35, r) + r, n


def expm1(x: E) -> E:
  """exp(x) - 1 = (q·2ⁿ + (2ⁿ - 1)), in halves, since 2ⁿ may be as large as no number is."""
  low, high = (-18.0, 88.9) if x.dtype.bits == 32 else (-38.0, 709.9)
  q, n = reduced(x.clamp(low, high))
  half = q.const_like(0.5).alu(Ops.LDEXP, n)
  return (q * half + (half - 0.5)) * 2


def tanh(x: E) -> E:
  """With e = exp(2x) - 1: e / (e + 2)."""
  most = 9.5 if x.dtype.bits == 32 else 20.0
  q, n = reduced(x.clamp(-most, most) * 2)
  power = q.const_like(1).alu(Ops.LDEXP, n)
  e = q * power + (power - 1)
  return e / (e + 2)
