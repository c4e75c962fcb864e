"""EXP2, EXP, LOG2 and LOG as polynomials and bit operations: no tables in memory, any number of lanes.

The tests hold results to `LARGEST_ERROR` units in the last place. float16, bfloat16 and fp8
go through float32 and are rounded once more. All handle zeros, subnormals, infinities and NaN as IEEE 754-2019
(section 9.2) says. SIN and COS are in `sine.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tiny_codegen.decompose import coefficients as fitted
from tiny_codegen.decompose.arithmetic import (
  INFINITY,
  MADE_OF_OTHERS,
  NAN,
  horner,
  reinterpret,
  signed_bits,
  to,
  unsigned_bits,
  whole_near,
)
from tiny_codegen.decompose.sine import cosine, sine
from tiny_codegen.target import Target
from tiny_uop import DType, Ops, Samples, UOp, UPat, dtypes, rule, truncate
from tiny_uop.pattern import Rule

LARGEST_ERROR = {True: 1.0, False: 1.25}
"""In units in the last place, with and without fused multiply-adds."""


class _Format(NamedTuple):
  """Constants of one float format. `ln2` in two parts: the first has so few bits that its product with an exponent is
  exact.
  """

  mantissa: int
  bias: int  # of the exponent
  exp2: Sequence[float]
  exp: Sequence[float]
  lowest: int  # 2**lowest rounds to zero
  highest: int  # 2**highest overflows
  ln2: tuple[float, float]
  log2e: tuple[float, float]  # the nearest float, and what it misses
  log2e_split: tuple[float, float]  # half of the digits, and the others
  root_half: int  # bits of sqrt(1/2), rounded to have few


def _split(value: float, rest: float, bits: int) -> tuple[float, float]:
  """A constant, given as the sum of two doubles, as its first `bits` bits and what is left."""
  mantissa, exponent = math.frexp(value)
  high = math.ldexp(math.trunc(math.ldexp(mantissa, bits)), exponent - bits)
  return high, (value - high) + rest


def _nearest(value: float, rest: float, dtype: DType) -> tuple[float, float]:
  """A constant, given as the sum of two doubles, as the nearest float and what is left."""
  high = float(truncate(dtype, value))
  return high, (value - high) + rest


# ln 2 and 1 / ln 2 to 106 bits: the nearest double and the double nearest to what it misses
_LN2 = (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56"))
_LOG2E = (float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56"))

_FORMATS = {
  32: _Format(23, 127, fitted.EXP2_F32, fitted.EXP_F32, -152, 129,
              _split(*_LN2, 15), _nearest(*_LOG2E, dtypes.float32), _split(*_LOG2E, 12), 0x3F3504F3),
  64: _Format(52, 1023, fitted.EXP2_F64, fitted.EXP_F64, -1080, 1025,
              _split(*_LN2, 32), _nearest(*_LOG2E, dtypes.float64), _split(*_LOG2E, 26), 0x3FE6A09E667F3BCD),
}  # fmt: skip


def scaled(x: UOp, n: UOp) -> UOp:
  """LDEXP by products, with a power of two that is made of bits, in two steps: each factor is normal, and a subnormal
  result is rounded once.
  """
  form = _FORMATS[x.dtype.bits]
  _, bits = whole_near(n, 2 * form.bias)
  half = bits >> 1
  first, second = (reinterpret(b << form.mantissa, x.dtype.scalar()) for b in (half, bits - half))
  return x * first * second


def _within(x: UOp, low: float, high: float) -> tuple[UOp, UOp]:
  """(whether the power of x is zero, x within bounds); NaN stays.

  What is too low, as a masked score of minus infinity, is not computed as the least number that rounds to zero: to
  round a subnormal number takes a processor a hundred cycles.
  """
  vanishes = x < low
  x = vanishes.where(x.const_like(0.0), x)
  return vanishes, (x.const_like(high) < x).where(x.const_like(high), x)


def exp2(x: UOp) -> UOp:
  """2**x: x = n + r with |r| <= 1/2, 2**r = 1 + r ln 2 + r**2 q(r)."""
  form = _FORMATS[x.dtype.bits]
  vanishes, x = _within(x, form.lowest, form.highest)
  n, _ = whole_near(x)
  r = x - n
  return vanishes.where(x.const_like(0.0), horner(r, (1.0, _LN2[0], *form.exp2)).alu(Ops.LDEXP, n))


def exp(x: UOp) -> UOp:
  """e**x: x = n ln 2 + r with |r| <= ln(2)/2, e**r = 1 + r + r**2 q(r)."""
  form = _FORMATS[x.dtype.bits]
  vanishes, x = _within(x, form.lowest * _LN2[0], form.highest * _LN2[0])
  n, _ = whole_near(x * _LOG2E[0])
  r = (x + n * -form.ln2[0]) + n * -form.ln2[1]
  return vanishes.where(x.const_like(0.0), horner(r, (1.0, 1.0, *form.exp)).alu(Ops.LDEXP, n))


def _mantissa(x: UOp) -> tuple[UOp, UOp]:
  """(e, f) with x = 2**e * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)), for positive normal x; e as a float."""
  form = _FORMATS[x.dtype.bits]
  above = signed_bits(x) - form.root_half
  exponent = to(above >> form.mantissa, dtypes.int32)
  f = reinterpret((above & ((1 << form.mantissa) - 1)) + form.root_half, x.dtype.scalar()) - 1.0
  return to(exponent, x.dtype.scalar()), f


def _log_tail(f: UOp) -> UOp:
  """log(1 + f) - f."""
  if f.dtype.bits == 32:
    return f * f * (f * horner(f, fitted.LOG_F32) + -0.5)
  s = f / (f + 2.0)
  square = f * f * 0.5
  z = s * s
  return s * (square + z * horner(z, fitted.LOG_F64)) - square


def _logarithm(x: UOp, combine: Callable[[UOp, UOp], UOp]) -> UOp:
  """`combine(e, f)` for positive normal x, and for the others, which are rare, what a logarithm is there."""
  form = _FORMATS[x.dtype.bits]
  shift = form.mantissa + 2
  e, f = _mantissa(x * 2.0**shift)
  rare = (x < INFINITY).where(combine(e - shift, f), x)  # infinity and NaN are their own logarithms
  rare = x.eq(0.0).where(x.const_like(-INFINITY), rare)
  rare = (x < 0.0).where(x.const_like(NAN), rare)
  least, infinity = 1 << form.mantissa, (2 * form.bias + 1) << form.mantissa
  return (unsigned_bits(x) - least < infinity - least).where(combine(*_mantissa(x)), rare)


def log(x: UOp) -> UOp:
  """Natural logarithm: e ln 2 + log(1 + f)."""
  high, low = _FORMATS[x.dtype.bits].ln2
  return _logarithm(x, lambda e, f: e * high + (f + (_log_tail(f) + e * low)))


def log2(x: UOp, fused: bool = False) -> UOp:
  """Logarithm to base 2: e + log(1 + f) / ln 2. `fused`: the target rounds a product and a sum once."""
  return _logarithm(x, _log2_fused if fused else _log2_split)


def _log2_fused(e: UOp, f: UOp) -> UOp:
  high, low = _FORMATS[f.dtype.bits].log2e
  square, (first, *others) = f * f, fitted.LOG2_F32
  if f.dtype.bits == 32:
    tail = square * first + (square * f * horner(f, others) + f * low)
  else:
    tail = _log_tail(f) * high + f * low
  return e + f.alu(Ops.MULACC, f.const_like(high), tail)


def _log2_split(e: UOp, f: UOp) -> UOp:
  """The product with 1 / ln 2 is exact in its leading part (after T. J. Dekker, 1971)."""
  high, low = _FORMATS[f.dtype.bits].log2e_split
  tail = _log_tail(f)
  total = f + tail
  keep = -1 << (12 if f.dtype.bits == 32 else 27)
  head = reinterpret(signed_bits(total) & keep, f.dtype.scalar())
  rest = total * low + ((f - head) + tail) * high
  # e and the exact product are summed first; the second line is what that sum rounded away
  product = head * high
  both = e + product
  return both + (rest + ((e - both) + product))


_NARROW, _WIDE = (dtypes.float16, dtypes.bfloat16, *dtypes.fp8s), (dtypes.float32, dtypes.float64)


def _of(op: Ops, kinds: tuple[DType, ...], s: Samples) -> tuple[UOp, ...]:
  return tuple([s.value(d, 0).alu(op) for d in kinds])


def _function(op: Ops, function: Callable[[UOp], UOp], largest: float) -> Rule:
  return rule(f"{op.name.lower()}_polynomial", UPat(op, _WIDE, (UPat.var("x"),)), function,
              changes=f"at most {largest} units in the last place", grows=MADE_OF_OTHERS,
              example=partial(_of, op, _WIDE), near_miss=partial(_of, op, _NARROW))  # fmt: skip


def _functions(fused: bool) -> dict[Ops, Rule]:
  functions: dict[Ops, Callable[[UOp], UOp]] = {
    Ops.EXP2: exp2,
    Ops.EXP: exp,
    Ops.LOG2: lambda x: log2(x, fused),
    Ops.LOG: log,
    Ops.SIN: lambda x: sine(x, fused),
    Ops.COS: lambda x: cosine(x, fused),
  }
  return {op: _function(op, function, LARGEST_ERROR[fused]) for op, function in functions.items()}


FUNCTIONS = {fused: _functions(fused) for fused in (False, True)}
"""By whether the target has fused multiply-adds, and by the operation that it lacks."""


def _narrow(u: UOp) -> UOp:
  """A function of narrower floats, computed in float32."""
  first, *others = [to(s, dtypes.float32) for s in u.src]
  return to(first.alu(u.op, *others), u.dtype.scalar())


def _ldexp(kinds: tuple[DType, ...], s: Samples) -> tuple[UOp, ...]:
  exponent = s.var("n", -12, 12, dtypes.int32)
  return tuple([s.value(d, 0).alu(Ops.LDEXP, exponent.cast(d)) for d in kinds])


LDEXP_RULES = (
  rule("ldexp_by_products", UPat(Ops.LDEXP, _WIDE, (UPat.var("x"), UPat.var("n"))), scaled, grows=MADE_OF_OTHERS,
       example=partial(_ldexp, _WIDE), near_miss=partial(_ldexp, _NARROW)),
)  # fmt: skip


def transcendental_rules(target: Target) -> list[Rule]:
  """The rules for the functions that a target has no instruction for."""
  functions = FUNCTIONS[target.has_fma and Ops.MULACC in target.native_ops]
  missing = [op for op in functions if op not in target.native_ops]
  powers = [] if Ops.LDEXP in target.native_ops else list(LDEXP_RULES)
  narrow = rule("narrow_function", UPat([*missing, Ops.LDEXP], _NARROW, name="u"), _narrow,
                changes="rounded to float32 first", grows="computed in float32",
                example=(partial(_ldexp, _NARROW), *[partial(_of, op, _NARROW) for op in missing]),
                near_miss=partial(_ldexp, _WIDE))  # fmt: skip
  return [narrow, *powers, *(functions[op] for op in missing)]
