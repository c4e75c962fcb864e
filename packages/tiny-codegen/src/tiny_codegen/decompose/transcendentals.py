"""EXP2, EXP, LOG2 and LOG as polynomials and bit operations: no branches, no tables in memory, any number of lanes.

The tests hold results to `LARGEST_ERROR` units in the last place. float16, bfloat16 and fp8
go through float32 and are rounded once more. All handle zeros, subnormals, infinities and NaN as IEEE 754-2019
(section 9.2) says. SIN is in `sine.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from tiny_codegen.decompose import coefficients as fitted
from tiny_codegen.decompose.arithmetic import (
  INFINITY,
  NAN,
  SIGNED,
  horner,
  nearest,
  power_of_two,
  reinterpret,
  signed_bits,
  to,
)
from tiny_codegen.decompose.examples import MADE_OF_OTHERS
from tiny_codegen.decompose.sine import sine
from tiny_codegen.render.base import Capabilities
from tiny_uop import DType, Ops, Samples, UOp, UPat, dtypes, rule
from tiny_uop.pattern import Rule

LARGEST_ERROR = 1.05


class _Format(NamedTuple):
  """Constants of one float format. `ln2` in two parts: the first has so few bits that its product with an exponent is
  exact.
  """

  mantissa: int
  exp2: Sequence[float]
  exp: Sequence[float]
  lowest: int  # 2**lowest rounds to zero
  highest: int  # 2**highest overflows
  ln2: tuple[float, float]
  log2e: tuple[float, float]
  root_half: int  # bits of sqrt(1/2), rounded to have few
  smallest: float  # least normal number


def _split(value: float, rest: float, bits: int) -> tuple[float, float]:
  """A constant, given as the sum of two doubles, as its first `bits` bits and what is left."""
  mantissa, exponent = math.frexp(value)
  high = math.ldexp(math.trunc(math.ldexp(mantissa, bits)), exponent - bits)
  return high, (value - high) + rest


# ln 2 and 1 / ln 2 to 106 bits: the nearest double and the double nearest to what it misses
_LN2 = (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56"))
_LOG2E = (float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56"))

_FORMATS = {
  32: _Format(23, fitted.EXP2_F32, fitted.EXP_F32, -152, 129,
              _split(*_LN2, 15), _split(*_LOG2E, 12), 0x3F3504F3, 2.0**-126),
  64: _Format(52, fitted.EXP2_F64, fitted.EXP_F64, -1080, 1025,
              _split(*_LN2, 32), _split(*_LOG2E, 26), 0x3FE6A09E667F3BCD, 2.0**-1022),
}  # fmt: skip


def _scale(p: UOp, n: UOp) -> UOp:
  """p * 2**n for int32 n, in two steps, so that each factor is normal and a subnormal result is rounded once."""
  exponent = to(n, SIGNED[p.dtype.bits])
  half = exponent >> 1
  return p * power_of_two(half, p.dtype) * power_of_two(exponent - half, p.dtype)


def _clamp(x: UOp, low: float, high: float) -> UOp:
  """x within bounds; NaN stays."""
  x = (x < low).where(x.const_like(low), x)
  return (x.const_like(high) < x).where(x.const_like(high), x)


def exp2(x: UOp) -> UOp:
  """2**x: x = n + r with |r| <= 1/2, 2**r = 1 + r ln 2 + r**2 q(r)."""
  form = _FORMATS[x.dtype.bits]
  x = _clamp(x, form.lowest, form.highest)
  n = nearest(x)
  r = x - to(n, x.dtype.scalar())
  high = _LN2[0] if x.dtype.bits == 64 else _split(*_LN2, 24)[0]
  low = _LN2[1] if x.dtype.bits == 64 else _split(*_LN2, 24)[1]
  tail = r * low + r * r * horner(r, form.exp2)
  return _scale((r * high + tail) + 1.0, n)


def exp(x: UOp) -> UOp:
  """e**x: x = n ln 2 + r with |r| <= ln(2)/2, e**r = 1 + r + r**2 q(r)."""
  form = _FORMATS[x.dtype.bits]
  x = _clamp(x, form.lowest * _LN2[0], form.highest * _LN2[0])
  n = nearest(x * _LOG2E[0])
  whole = to(n, x.dtype.scalar())
  high = x - whole * form.ln2[0]
  r = high - whole * form.ln2[1]
  # what the last subtraction rounded away
  lost = (high - r) - whole * form.ln2[1]
  return _scale(((r * r * horner(r, form.exp) + lost) + r) + 1.0, n)


def _mantissa(x: UOp) -> tuple[UOp, UOp]:
  """(e, f) with x = 2**e * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)), for positive finite x; e as a float."""
  form = _FORMATS[x.dtype.bits]
  tiny = x < form.smallest
  scaled = tiny.where(x * 2.0 ** (form.mantissa + 2), x)
  bits = signed_bits(scaled)
  above = bits - form.root_half
  exponent = to(above >> form.mantissa, dtypes.int32)
  exponent = exponent - tiny.where(exponent.const_like(form.mantissa + 2), exponent.const_like(0))
  f = reinterpret((above & ((1 << form.mantissa) - 1)) + form.root_half, x.dtype.scalar()) - 1.0
  return to(exponent, x.dtype.scalar()), f


def _log_tail(f: UOp) -> UOp:
  """log(1 + f) - f."""
  if f.dtype.bits == 32:
    return f * f * f * horner(f, fitted.LOG_F32) - f * f * 0.5
  s = f / (f + 2.0)
  square = f * f * 0.5
  z = s * s
  return s * (square + z * horner(z, fitted.LOG_F64)) - square


def _log_domain(x: UOp, result: UOp) -> UOp:
  """`result` for positive finite x, and what a logarithm is elsewhere."""
  finite = (x < INFINITY).where(result, x)  # infinity and NaN are their own logarithms
  positive = x.eq(0.0).where(x.const_like(-INFINITY), finite)
  return (x < 0.0).where(x.const_like(NAN), positive)


def log(x: UOp) -> UOp:
  """Natural logarithm: e ln 2 + log(1 + f)."""
  form = _FORMATS[x.dtype.bits]
  e, f = _mantissa(x)
  return _log_domain(x, e * form.ln2[0] + (f + (_log_tail(f) + e * form.ln2[1])))


def log2(x: UOp) -> UOp:
  """Logarithm to base 2: e + log(1 + f) / ln 2, where the product with 1 / ln 2 is exact in its leading part (after
  T. J. Dekker, 1971).
  """
  form = _FORMATS[x.dtype.bits]
  e, f = _mantissa(x)
  tail = _log_tail(f)
  total = f + tail
  keep = -1 << (12 if x.dtype.bits == 32 else 27)
  high = reinterpret(signed_bits(total) & keep, x.dtype.scalar())
  low = (f - high) + tail
  rest = total * form.log2e[1] + low * form.log2e[0]
  # e and the exact product are summed first; the second line is what that sum rounded away
  product = high * form.log2e[0]
  both = e + product
  return _log_domain(x, both + (rest + ((e - both) + product)))


_NARROW, _WIDE = (dtypes.float16, dtypes.bfloat16, *dtypes.fp8s), (dtypes.float32, dtypes.float64)


def _of(op: Ops, kinds: tuple[DType, ...], s: Samples) -> tuple[UOp, ...]:
  return tuple([s.value(d, 0).alu(op) for d in kinds])


# by the operation that the target lacks
FUNCTIONS: dict[Ops, Rule] = {
  op: rule(f"{op.name.lower()}_polynomial", UPat(op, _WIDE, (UPat.var("x"),)), function,
           changes=f"at most {LARGEST_ERROR} units in the last place", grows=MADE_OF_OTHERS,
           example=partial(_of, op, _WIDE), near_miss=partial(_of, op, _NARROW))
  for op, function in {Ops.EXP2: exp2, Ops.EXP: exp, Ops.LOG2: log2, Ops.LOG: log, Ops.SIN: sine}.items()
}  # fmt: skip


def _narrow(u: UOp) -> UOp:
  """A function of a narrower float, computed in float32."""
  return to(to(u.src[0], dtypes.float32).alu(u.op), u.dtype.scalar())


def transcendental_rules(capabilities: Capabilities) -> list[Rule]:
  """The rules for the functions that a target has no instruction for."""
  missing = [op for op in FUNCTIONS if op not in capabilities.native_ops]
  if not missing:
    return []
  narrow = rule("narrow_function", UPat(missing, _NARROW, name="u"), _narrow,
                changes="rounded to float32 first", grows="computed in float32",
                example=tuple([partial(_of, op, _NARROW) for op in missing]),
                near_miss=partial(_of, missing[0], _WIDE))  # fmt: skip
  return [narrow, *(FUNCTIONS[op] for op in missing)]
