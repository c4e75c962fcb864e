"""Each instruction that the emulator of AMD's machine code knows, on RDNA 3, RDNA 4 and CDNA 3, against Python's
integers and NumPy: what the ISA manuals say, written down a second time.

A row has the instruction's name, or three (RDNA 3, RDNA 4, CDNA; - where a family has none), types of the result and of
the operands, and a function of one lane's numbers (integers) or of all lanes' (floats).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from amd_code_machine import CHIPS, ORDERS, TYPES, Function, applied, cases, drawn, lanes, made, same

from gpu_model.toolchain import compiler
from tiny_asm_amd import Isa, s
from tiny_asm_amd.table import table

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

# *** rows ***

U24 = 0xFFFFFF


def s24(x: int) -> int:
  return (x & U24) - ((x & 0x800000) << 1)


def field(value: int, bits: int) -> int:
  return value - (value >> (bits - 1) << bits) if bits else 0


def reverse(x: int) -> int:
  return int(f"{x:032b}"[::-1], 2)


def octets(x: int) -> bytes:
  return x.to_bytes(4, "big")


def short(x: int) -> int:
  return max(-32768, min(x, 32767))


def perm(a: int, b: int, c: int) -> int:
  both = (a << 32 | b).to_bytes(8, "little")
  out = bytearray()
  for k in c.to_bytes(4, "little"):
    sign = both[2 * (k - 8) + 1] >> 7 if 8 <= k < 12 else 0
    out.append(both[k] if k < 8 else 255 * sign if k < 12 else 0 if k == 12 else 255)
  return int.from_bytes(out, "little")


INTEGERS: list[tuple[str, str, Function]] = [
  ("v_add_nc_u32 v_add_nc_u32 v_add_u32", "u32 u32 u32", lambda a, b: a + b),
  ("v_sub_nc_u32 v_sub_nc_u32 v_sub_u32", "u32 u32 u32", lambda a, b: a - b),
  ("v_subrev_nc_u32 v_subrev_nc_u32 v_subrev_u32", "u32 u32 u32", lambda a, b: b - a),
  ("v_and_b32", "u32 u32 u32", lambda a, b: a & b), ("v_or_b32", "u32 u32 u32", lambda a, b: a | b),
  ("v_xor_b32", "u32 u32 u32", lambda a, b: a ^ b), ("v_xnor_b32", "u32 u32 u32", lambda a, b: ~(a ^ b)),
  ("v_not_b32", "u32 u32", lambda a: ~a), ("v_mov_b32", "u32 u32", lambda a: a),
  ("v_lshlrev_b32", "u32 u32 u32", lambda a, b: b << (a & 31)),
  ("v_lshrrev_b32", "u32 u32 u32", lambda a, b: b >> (a & 31)),
  ("v_ashrrev_i32", "i32 u32 i32", lambda a, b: b >> (a & 31)),
  ("v_lshlrev_b64", "u64 u32 u64", lambda a, b: b << (a & 63)),
  ("v_lshrrev_b64", "u64 u32 u64", lambda a, b: b >> (a & 63)),
  ("v_ashrrev_i64", "i64 u32 i64", lambda a, b: b >> (a & 63)),
  ("v_mul_lo_u32", "u32 u32 u32", lambda a, b: a * b), ("v_mul_hi_u32", "u32 u32 u32", lambda a, b: a * b >> 32),
  ("v_mul_hi_i32", "i32 i32 i32", lambda a, b: a * b >> 32),
  ("v_mul_u32_u24", "u32 u32 u32", lambda a, b: (a & U24) * (b & U24)),
  ("v_mul_i32_i24", "u32 u32 u32", lambda a, b: s24(a) * s24(b)),
  ("v_mul_hi_u32_u24", "u32 u32 u32", lambda a, b: (a & U24) * (b & U24) >> 32),
  ("v_mul_hi_i32_i24", "u32 u32 u32", lambda a, b: s24(a) * s24(b) >> 32),
  ("v_mad_u32_u24", "u32 u32 u32 u32", lambda a, b, c: (a & U24) * (b & U24) + c),
  ("v_mad_i32_i24", "u32 u32 u32 u32", lambda a, b, c: s24(a) * s24(b) + c),
  ("v_max_u32", "u32 u32 u32", max), ("v_min_u32", "u32 u32 u32", min),
  ("v_max_i32", "i32 i32 i32", max), ("v_min_i32", "i32 i32 i32", min),
  ("v_max3_u32", "u32 u32 u32 u32", max), ("v_min3_u32", "u32 u32 u32 u32", min),
  ("v_max3_i32", "i32 i32 i32 i32", max), ("v_min3_i32", "i32 i32 i32 i32", min),
  ("v_med3_u32", "u32 u32 u32 u32", lambda *x: sorted(x)[1]),
  ("v_med3_i32", "i32 i32 i32 i32", lambda *x: sorted(x)[1]),
  ("v_maxmin_u32 v_maxmin_u32 -", "u32 u32 u32 u32", lambda a, b, c: min(max(a, b), c)),
  ("v_minmax_i32 v_minmax_i32 -", "i32 i32 i32 i32", lambda a, b, c: max(min(a, b), c)),
  ("v_and_or_b32", "u32 u32 u32 u32", lambda a, b, c: a & b | c),
  ("v_or3_b32", "u32 u32 u32 u32", lambda a, b, c: a | b | c),
  ("v_xor3_b32 v_xor3_b32 -", "u32 u32 u32 u32", lambda a, b, c: a ^ b ^ c),
  ("v_xad_u32", "u32 u32 u32 u32", lambda a, b, c: (a ^ b) + c),
  ("v_add3_u32", "u32 u32 u32 u32", lambda a, b, c: a + b + c),
  ("v_lshl_add_u32", "u32 u32 u32 u32", lambda a, b, c: (a << (b & 31)) + c),
  ("v_add_lshl_u32", "u32 u32 u32 u32", lambda a, b, c: (a + b) << (c & 31)),
  ("v_lshl_or_b32", "u32 u32 u32 u32", lambda a, b, c: a << (b & 31) | c),
  ("- - v_lshl_add_u64", "u64 u64 u32 u64", lambda a, b, c: (a << (b & 63)) + c),
  ("v_bfi_b32", "u32 u32 u32 u32", lambda a, b, c: a & b | ~a & c),
  ("v_bfe_u32", "u32 u32 u32 u32", lambda a, b, c: a >> (b & 31) & (1 << (c & 31)) - 1),
  ("v_bfe_i32", "i32 u32 u32 u32", lambda a, b, c: field(a >> (b & 31) & (1 << (c & 31)) - 1, c & 31)),
  ("v_bfm_b32", "u32 u32 u32", lambda a, b: (1 << (a & 31)) - 1 << (b & 31)), ("v_bfrev_b32", "u32 u32", reverse),
  ("v_bcnt_u32_b32", "u32 u32 u32", lambda a, b: a.bit_count() + b),
  ("v_clz_i32_u32 v_clz_i32_u32 v_ffbh_u32", "i32 u32", lambda a: 32 - a.bit_length() if a else -1),
  ("v_ctz_i32_b32 v_ctz_i32_b32 v_ffbl_b32", "i32 u32", lambda a: (a & -a).bit_length() - 1),
  ("v_cls_i32 v_cls_i32 v_ffbh_i32", "i32 i32", lambda a: 32 - b.bit_length() if (b := a if a >= 0 else ~a) else -1),
  ("v_perm_b32", "u32 u32 u32 u32", perm),
  ("v_alignbit_b32", "u32 u32 u32 u32", lambda a, b, c: (a << 32 | b) >> (c & 31)),
  ("v_alignbyte_b32", "u32 u32 u32 u32", lambda a, b, c: (a << 32 | b) >> 8 * (c & 3)),
  ("v_sad_u32", "u32 u32 u32 u32", lambda a, b, c: abs(a - b) + c),
  ("v_sad_u8", "u32 u32 u32 u32", lambda a, b, c: sum(abs(x - y) for x, y in zip(octets(a), octets(b))) + c),
  ("v_add_nc_u16 v_add_nc_u16 v_add_u16", "u16 u16 u16", lambda a, b: a + b),
  ("v_sub_nc_u16 v_sub_nc_u16 v_sub_u16", "u16 u16 u16", lambda a, b: a - b),
  ("v_mul_lo_u16", "u16 u16 u16", lambda a, b: a * b), ("v_mad_u16", "u16 u16 u16 u16", lambda a, b, c: a * b + c),
  ("v_lshlrev_b16", "u16 u16 u16", lambda a, b: b << (a & 15)),
  ("v_lshrrev_b16", "u16 u16 u16", lambda a, b: b >> (a & 15)),
  ("v_ashrrev_i16", "i16 u16 i16", lambda a, b: b >> (a & 15)),
  ("v_and_b16 v_and_b16 -", "u16 u16 u16", lambda a, b: a & b),
  ("v_or_b16 v_or_b16 -", "u16 u16 u16", lambda a, b: a | b),
  ("v_xor_b16 v_xor_b16 -", "u16 u16 u16", lambda a, b: a ^ b),
  ("v_max_u16", "u16 u16 u16", max), ("v_min_u16", "u16 u16 u16", min), ("v_max_i16", "i16 i16 i16", max),
  ("v_min_i16", "i16 i16 i16", min), ("v_max3_u16", "u16 u16 u16 u16", max), ("v_min3_i16", "i16 i16 i16 i16", min),
  ("v_med3_i16", "i16 i16 i16 i16", lambda *x: sorted(x)[1]),
  ("v_mad_u32_u16", "u32 u16 u16 u32", lambda a, b, c: a * b + c),
  ("v_mad_i32_i16", "u32 i16 i16 u32", lambda a, b, c: a * b + c),
  ("v_dot4_u32_u8", "u32 u32 u32 u32", lambda a, b, c: sum(x * y for x, y in zip(octets(a), octets(b))) + c),
  ("v_cvt_pk_u16_u32", "u32 u32 u32", lambda a, b: min(a, 0xFFFF) | min(b, 0xFFFF) << 16),
  ("v_cvt_pk_i16_i32", "u32 i32 i32", lambda a, b: short(a) & 0xFFFF | short(b) << 16),
  *[(f"v_{name}_nc_i{n} v_{name}_nc_i{n} v_{name}_i{n}", f"i{n} i{n} i{n}", f) for n in (16, 32)
    for name, f in (("add", lambda a, b: a + b), ("sub", lambda a, b: a - b))],
  ("- - v_subrev_u16", "u16 u16 u16", lambda a, b: b - a), ("v_mad_i16", "i16 i16 i16 i16", lambda a, b, c: a * b + c),
  ("v_max3_i16", "i16 i16 i16 i16", max), ("v_min3_u16", "u16 u16 u16 u16", min),
  ("v_med3_u16", "u16 u16 u16 u16", lambda *x: sorted(x)[1]),
  ("v_maxmin_i32 v_maxmin_i32 -", "i32 i32 i32 i32", lambda a, b, c: min(max(a, b), c)),
  ("v_minmax_u32 v_minmax_u32 -", "u32 u32 u32 u32", lambda a, b, c: max(min(a, b), c)),
  ("v_mov_b16 v_mov_b16 -", "u16 u16", lambda a: a), ("v_not_b16 v_not_b16 -", "u16 u16", lambda a: ~a),
  ("v_cvt_i32_i16 v_cvt_i32_i16 -", "i32 i16", lambda a: a), ("v_cvt_u32_u16 v_cvt_u32_u16 -", "u32 u16", lambda a: a),
  ("- - v_mov_b64", "u64 u64", lambda a: a),
  ("- - v_dot4_i32_i8", "i32 u32 u32 i32",
   lambda a, b, c: sum(field(x, 8) * field(y, 8) for x, y in zip(octets(a), octets(b))) + c),
]  # fmt: skip


def exact_fma(kind: Any) -> Function:
  """a * b + c, rounded once: in numbers with many digits."""
  return lambda *rows: np.array([_fused(kind, *map(float, row)) for row in zip(*rows)], kind)


def _fused(kind: Any, a: float, b: float, c: float) -> float:
  if not all(map(math.isfinite, (a, b, c))):
    return float(np.float64(a) * np.float64(b) + np.float64(c))
  total = Fraction(a) * Fraction(b) + Fraction(c)
  if not total:
    return a * b + c if a * b == 0 else 0.0
  near = kind(float(total))  # which may be rounded twice: the neighbours are looked at, too
  if not np.isfinite(near):
    return float(near)
  choices = [near, np.nextafter(near, kind(np.inf)), np.nextafter(near, kind(-np.inf))]
  choices = [x for x in choices if np.isfinite(x)] or [near]
  bits = np.dtype(kind).itemsize * 8
  return float(min(choices, key=lambda x: (abs(Fraction(float(x)) - total), int(x.view(f"u{bits // 8}")) & 1)))


def rounded(function: Function, kind: Any) -> Function:
  """A function of doubles, rounded to a type."""
  return lambda *x: function(*(a.astype(np.float64) for a in x)).astype(kind)


def signs(function: Function) -> Function:
  """A maximum or minimum, for which -0 is below 0."""

  def apply(a: Any, b: Any) -> Any:
    zero = (a == 0) & (b == 0)
    either = (np.signbit(a) & np.signbit(b)) if function is np.fmax else (np.signbit(a) | np.signbit(b))
    return np.where(zero, np.where(either, -0.0, 0.0).astype(a.dtype), function(a, b)).astype(a.dtype)

  return apply


def with_nan(function: Function) -> Function:
  """Of a NaN and a number NaN."""
  return lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, function(a, b)).astype(a.dtype)


def middle(a: Any, b: Any, c: Any) -> Any:
  """The second of three; where one is NaN, the least of the others."""
  large, least = signs(np.fmax), signs(np.fmin)
  any_nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
  return np.where(any_nan, least(least(a, b), c), large(least(a, b), least(large(a, b), c)))


def saturated(kind: Any, round_: Function = np.trunc) -> Function:
  info = np.iinfo(kind)
  return lambda x: np.array(
    [0 if math.isnan(a) else int(max(info.min, min(info.max, round_(a)))) for a in map(float, x)]
  )


def float_rows() -> Iterator[tuple[str, str, Function]]:
  for kind in ("f16", "f32", "f64"):
    two, dtype = f"{kind} {kind} {kind}", TYPES[kind]
    yield f"v_add_{kind}", two, lambda a, b: a + b
    yield f"v_mul_{kind}", two, lambda a, b: a * b
    yield f"v_max_{kind} v_max_num_{kind} v_max_{kind}", two, signs(np.fmax)
    yield f"v_min_{kind} v_min_num_{kind} v_min_{kind}", two, signs(np.fmin)
    yield f"v_fma_{kind}", f"{two} {kind}", exact_fma(dtype)
    for name, function in (("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("rndne", np.rint)):
      yield f"v_{name}_{kind}", f"{kind} {kind}", function
    yield f"v_frexp_mant_{kind}", f"{kind} {kind}", lambda a: np.where(np.isfinite(a), np.frexp(a)[0], a)
    below = np.nextafter(np.array(1, "f4" if kind == "f16" else dtype), np.array(0, "f4" if kind == "f16" else dtype))
    yield f"v_fract_{kind}", f"{kind} {kind}", lambda a, below=below: np.minimum(a - np.floor(a), below)
    if kind != "f64":
      yield f"v_sub_{kind}", two, lambda a, b: a - b
      yield f"v_subrev_{kind}", two, lambda a, b: b - a
      yield (f"v_max3_{kind} v_max3_num_{kind} v_max3_{kind}", f"{two} {kind}",
             lambda a, b, c: signs(np.fmax)(signs(np.fmax)(a, b), c))  # fmt: skip
      yield (f"v_min3_{kind} v_min3_num_{kind} v_min3_{kind}", f"{two} {kind}",
             lambda a, b, c: signs(np.fmin)(signs(np.fmin)(a, b), c))  # fmt: skip
      three = f"{two} {kind}"
      large, least = signs(np.fmax), signs(np.fmin)
      yield f"v_med3_{kind} v_med3_num_{kind} v_med3_{kind}", three, middle
      yield (f"v_maxmin_{kind} v_maxmin_num_{kind} -", three, lambda a, b, c: signs(np.fmin)(signs(np.fmax)(a, b), c))
      yield (f"v_minmax_{kind} v_minmax_num_{kind} -", three, lambda a, b, c: signs(np.fmax)(signs(np.fmin)(a, b), c))
      high, low = with_nan(large), with_nan(least)
      yield f"- v_maximum3_{kind} -", three, lambda a, b, c, f=high: f(f(a, b), c)
      yield f"- v_minimum3_{kind} -", three, lambda a, b, c, f=low: f(f(a, b), c)
      yield f"- v_maximumminimum_{kind} -", three, lambda a, b, c, f=low, g=high: f(g(a, b), c)
      yield f"- v_minimummaximum_{kind} -", three, lambda a, b, c, f=high, g=low: f(g(a, b), c)
      yield f"- v_maximum_{kind} -", two, high
      yield f"- v_minimum_{kind} -", two, low
    else:
      yield "- v_maximum_f64 -", two, with_nan(signs(np.fmax))
      yield "- v_minimum_f64 -", two, with_nan(signs(np.fmin))
  yield "v_frexp_exp_i32_f32", "i32 f32", lambda a: np.where(np.isfinite(a) & (a != 0), np.frexp(a)[1], 0)
  yield "v_frexp_exp_i32_f64", "i32 f64", lambda a: np.where(np.isfinite(a) & (a != 0), np.frexp(a)[1], 0)
  yield "v_frexp_exp_i16_f16", "i16 f16", lambda a: np.where(np.isfinite(a) & (a != 0), np.frexp(a)[1], 0)
  yield "v_ldexp_f16", "f16 f16 i16", lambda a, b: np.ldexp(a, np.clip(b, -100, 100).astype(np.int32))
  yield "v_ldexp_f32", "f32 f32 i32", lambda a, b: np.ldexp(a, np.clip(b, -1000, 1000))
  yield "v_ldexp_f64", "f64 f64 i32", lambda a, b: np.ldexp(a, np.clip(b, -5000, 5000))
  yield "v_sqrt_f16", "f16 f16", np.sqrt
  yield "v_rcp_f16", "f16 f16", rounded(lambda a: 1 / a, np.float16)
  for to, of in (("f16", "f32"), ("f32", "f16"), ("f64", "f32"), ("f32", "f64"), ("f32", "i32"), ("f32", "u32"),
                 ("f64", "i32"), ("f64", "u32"), ("f16", "i16"), ("f16", "u16")):  # fmt: skip
    yield f"v_cvt_{to}_{of}", f"{to} {of}", lambda a, to=to: a.astype(TYPES[to])
  for to, of in (("i32", "f32"), ("u32", "f32"), ("i32", "f64"), ("u32", "f64"), ("i16", "f16"), ("u16", "f16")):
    yield f"v_cvt_{to}_{of}", f"{to} {of}", saturated(TYPES[to])
  yield "v_cvt_floor_i32_f32 v_cvt_floor_i32_f32 v_cvt_flr_i32_f32", "i32 f32", saturated(np.int32, np.floor)
  for n in range(4):
    yield f"v_cvt_f32_ubyte{n}", "f32 u32", lambda a, n=n: (a >> 8 * n & 255).astype(np.float32)
  yield "v_cvt_nearest_i32_f32 v_cvt_nearest_i32_f32 v_cvt_rpi_i32_f32", "i32 f32", saturated(np.int32, half_up)
  yield "v_cvt_pk_rtz_f16_f32 v_cvt_pk_rtz_f16_f32 v_cvt_pkrtz_f16_f32", "u32 f32 f32", toward_zero
  yield "v_cvt_pk_u8_f32", "u32 f32 u32 u32", byte_put
  yield "v_fma_dx9_zero_f32 v_fma_dx9_zero_f32 -", "f32 f32 f32 f32", dx9(exact_fma(np.float32))
  yield "v_mul_dx9_zero_f32 v_mul_dx9_zero_f32 v_mul_legacy_f32", "f32 f32 f32", dx9(lambda a, b: a * b)
  yield "v_pack_b32_f16", "u32 u16 u16", lambda a, b: a.astype(np.uint32) | b.astype(np.uint32) << 16


def half_up(x: float) -> float:
  return math.floor(x + 0.5) if math.isfinite(x) else x


def toward_zero(a: Any, b: Any) -> Any:
  """Two float16, rounded toward zero: none is farther from it than the number was."""
  found = []
  for x in (a, b):
    near = x.astype(np.float16)
    far = np.isfinite(x) & (np.abs(near.astype(np.float64)) > np.abs(x))
    found.append(np.where(far, np.nextafter(near, np.float16(0)), near).view(np.uint16).astype(np.uint32))
  return found[0] | found[1] << 16


def byte_put(a: Any, b: Any, c: Any) -> Any:
  """A float becomes a byte, which takes the place of one of the third operand's."""
  whole = np.array(saturated(np.uint8, lambda x: x if math.isinf(x) else round(x))(a), np.uint32)
  shift = 8 * (b & 3)
  return c & ~(np.uint32(255) << shift) | whole << shift


def dx9(function: Function) -> Function:
  """A product with 0 is 0, of infinity and NaN, too."""

  def apply(a: Any, b: Any, *c: Any) -> Any:
    zero = (a == 0) | (b == 0)
    return np.where(zero, c[0] if c else np.float32(0), function(a, b, *c)).astype(np.float32)

  return apply


FLOATS = list(float_rows())
NEAR: list[tuple[str, str, Function, float]] = [
  ("v_rcp_f32", "f32 f32", lambda a: 1 / a, 2.0**-23), ("v_rsq_f32", "f32 f32", lambda a: 1 / np.sqrt(a), 2.0**-23),
  ("v_sqrt_f32", "f32 f32", np.sqrt, 2.0**-23), ("v_exp_f32", "f32 f32", np.exp2, 2.0**-23),
  ("v_log_f32", "f32 f32", np.log2, 2.0**-23), ("v_rcp_f64", "f64 f64", lambda a: 1 / a, 2.0**-27),
  ("v_rsq_f64", "f64 f64", lambda a: 1 / np.sqrt(a), 2.0**-27), ("v_sqrt_f64", "f64 f64", np.sqrt, 2.0**-27),
  ("v_rcp_iflag_f32", "f32 f32", lambda a: 1 / a, 2.0**-23),
  ("v_exp_f16", "f16 f16", np.exp2, 2.0**-10), ("v_log_f16", "f16 f16", np.log2, 2.0**-10),
  ("v_rsq_f16", "f16 f16", lambda a: 1 / np.sqrt(a), 2.0**-10),
]  # fmt: skip


@pytest.mark.parametrize("chip,name,kinds,function", cases(INTEGERS))
def test_integers(chip: str, name: str, kinds: str, function: Function) -> None:
  result, *types = kinds.split()
  inputs = [drawn(kind, n, lanes(chip)) for n, kind in enumerate(types)]
  found = applied(chip, lambda x, to: [made(chip, name, to, x, (result, *types))], inputs, result)
  bits = 8 * found.itemsize
  wanted = [function(*map(int, row)) & (1 << bits) - 1 for row in zip(*inputs)]
  assert found.view(f"u{found.itemsize}").tolist() == wanted


@pytest.mark.parametrize("chip,name,kinds,function", cases(FLOATS))
def test_floats(chip: str, name: str, kinds: str, function: Function) -> None:
  result, *types = kinds.split()
  inputs = [drawn(kind, n, lanes(chip)) for n, kind in enumerate(types)]
  found = applied(chip, lambda x, to: [made(chip, name, to, x, (result, *types))], inputs, result)
  with np.errstate(all="ignore"):
    wanted = np.asarray(function(*inputs)).astype(TYPES[result])
  ok = same(found, wanted)
  assert ok.all(), [(*(x[n] for x in inputs), found[n], wanted[n]) for n in np.flatnonzero(~ok)[:4]]


@pytest.mark.parametrize("chip,name,kinds,function,error", cases(NEAR))
def test_functions_are_near(chip: str, name: str, kinds: str, function: Function, error: float) -> None:
  result, *types = kinds.split()
  inputs = [np.clip(drawn(kind, n, lanes(chip)), -120, None) for n, kind in enumerate(types)]
  inputs = [np.where((x != 0) & (np.abs(x) < 1e-30), x.dtype.type(1.5), x) for x in inputs]
  found = applied(chip, lambda x, to: [made(chip, name, to, x, (result, *types))], inputs, result).astype(np.float64)
  with np.errstate(all="ignore"):
    wanted = function(*(x.astype(np.float64) for x in inputs))
    most, least = {"f16": (65520, 2.0**-24), "f32": (3.5e38, 0), "f64": (np.inf, 0)}[result]
    wanted = np.where(np.abs(wanted) > most, np.sign(wanted) * np.inf, wanted)
    near = np.abs(found - wanted) <= error * np.abs(wanted) + least
  assert (near | (found == wanted) | np.isnan(found) & np.isnan(wanted)).all()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("family", CHIPS)
def test_compares(family: str, kind: str) -> None:
  """All orders of a type: each to a mask of lanes, and by that to 1 or 0."""
  chip, isa = CHIPS[family], Isa(CHIPS[family])
  a, b = drawn(kind, 0, lanes(chip)), drawn(kind, 1, lanes(chip))
  b[::3] = a[::3]
  mask = s[20:21] if family == "cdna" else s[20]
  for how, function in ORDERS.items():
    name = f"v_cmp_{how}_{kind}"
    if name not in table(family).named:
      continue

    def compared(x: list[Any], to: Any, name: str = name) -> list[Any]:
      e64 = getattr(isa, f"{name}_e64")
      return [e64(mask, *x), *([isa.s_nop(4)] if family == "cdna" else []), isa.v_cndmask_b32_e64(to, 0, 1, mask)]

    found = applied(chip, compared, [a, b], "u32")
    with np.errstate(all="ignore"):
      assert (found == function(a, b)).all(), name


PACKED: list[tuple[str, str, Function]] = [
  ("v_pk_add_f16", "f16 2", lambda a, b: a + b), ("v_pk_mul_f16", "f16 2", lambda a, b: a * b),
  ("v_pk_max_f16 v_pk_max_num_f16 v_pk_max_f16", "f16 2", signs(np.fmax)),
  ("v_pk_fma_f16", "f16 3", exact_fma(np.float16)),
  ("v_pk_add_u16", "u16 2", lambda a, b: a + b), ("v_pk_sub_i16", "u16 2", lambda a, b: a - b),
  ("v_pk_mul_lo_u16", "u16 2", lambda a, b: a * b), ("v_pk_mad_u16", "u16 3", lambda a, b, c: a * b + c),
  ("v_pk_max_i16", "i16 2", np.maximum), ("v_pk_min_u16", "u16 2", np.minimum),
  ("v_pk_add_i16", "i16 2", lambda a, b: a + b), ("v_pk_sub_u16", "u16 2", lambda a, b: a - b),
  ("v_pk_mad_i16", "i16 3", lambda a, b, c: a * b + c), ("v_pk_max_u16", "u16 2", np.maximum),
  ("v_pk_min_i16", "i16 2", np.minimum), ("v_pk_lshrrev_b16", "u16 2", lambda a, b: b >> (a & 15)),
  ("v_pk_min_f16 v_pk_min_num_f16 v_pk_min_f16", "f16 2", signs(np.fmin)),
  ("- v_pk_maximum_f16 -", "f16 2", with_nan(signs(np.fmax))),
  ("- v_pk_minimum_f16 -", "f16 2", with_nan(signs(np.fmin))),
  ("v_pk_lshlrev_b16", "u16 2", lambda a, b: b << (a & 15)), ("v_pk_ashrrev_i16", "i16 2", lambda a, b: b >> (a & 15)),
]  # fmt: skip


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("chip,name,kinds,function", cases(PACKED))
def test_packed_halves(chip: str, name: str, kinds: str, function: Function, swapped: bool) -> None:
  """Both halves; `swapped`: those of the first operand the other way round."""
  kind, count = kinds.split()
  halves = [drawn(kind, n, 2 * lanes(chip)).reshape(-1, 2) for n in range(int(count))]
  more = {"op_sel": [1, *[0] * (int(count) - 1)], "op_sel_hi": [0, *[1] * (int(count) - 1)]} if swapped else {}
  inputs = [np.ascontiguousarray(h).view(np.uint32)[:, 0] for h in halves]
  found = applied(chip, lambda x, to: [getattr(Isa(chip), name)(to, *x, **more)], inputs, "u32")
  if swapped:
    halves[0] = halves[0][:, ::-1]
  with np.errstate(all="ignore"):
    wanted = np.stack([function(*(h[:, n] for h in halves)) for n in range(2)], 1).astype(TYPES[kind])
  assert same(found.view(TYPES[kind]).reshape(-1, 2), wanted).all()
