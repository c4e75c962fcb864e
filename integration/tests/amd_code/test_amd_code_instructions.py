"""Each instruction that the emulator of AMD's machine code knows, on RDNA 3, RDNA 4 and CDNA 3, against Python's
integers and NumPy: what the ISA manuals say, written down a second time.

A row has the instruction's name, or three (RDNA 3, RDNA 4, CDNA; - where a family has none), types of the result and of
the operands, and a function of one lane's numbers (integers) or of all lanes' (floats).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from amd_code_machine import Words, lanes, launched

from gpu_model.toolchain import compiler
from tiny_asm_amd import AsmError, Isa, s, v
from tiny_asm_amd.table import table

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
CHIPS = {"rdna3": "gfx1100", "rdna4": "gfx1201", "cdna": "gfx942"}
TYPES: dict[str, Any] = {
  "f16": np.float16, "f32": np.float32, "f64": np.float64, "i16": np.int16, "u16": np.uint16, "i32": np.int32,
  "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
}  # fmt: skip
EDGES: dict[str, list[Any]] = {
  "f": [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -1.5, 2.5, 1e-3, -7.0, 1024.0],
  "i": [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 255, 256, 0x7FFF, 0x8000, 0xFFFF],
}
Function = Callable[..., Any]


def drawn(kind: str, number: int, count: int) -> Any:
  """Numbers of a type: edges in an order of their own, and others at random."""
  free = np.random.default_rng([number, sum(map(ord, kind))])
  dtype, bits = np.dtype(TYPES[kind]), 8 * np.dtype(TYPES[kind]).itemsize
  if kind[0] == "f":
    values = free.standard_normal(count) * 10.0 ** free.integers(-3, 4, count)
    values[: len(EDGES["f"])] = EDGES["f"]
    values[14] = {16: 3e-7, 32: 1e-40, 64: 1e-310}[bits]  # denormal
    free.shuffle(values)
    return values.astype(dtype)
  whole = (
    free.integers(0, 1 << bits, count, np.uint64, endpoint=False)
    if bits < 64
    else free.integers(0, 1 << 64, count, np.uint64, endpoint=False)
  )
  edges = [e & (1 << bits) - 1 for e in (*EDGES["i"], -1, 1 << (bits - 1), (1 << (bits - 1)) - 1)]
  whole[: len(edges)] = edges
  free.shuffle(whole)
  return whole.astype(f"u{bits // 8}").view(dtype)


def as_words(values: Any) -> list[Any]:
  """The registers that numbers take, 32 bits a lane."""
  if values.itemsize == 8:
    pairs = values.view(np.uint32).reshape(-1, 2)
    return [pairs[:, 0].copy(), pairs[:, 1].copy()]
  return [values.view(f"u{values.itemsize}").astype(np.uint32)]


def applied(chip: str, instructions: Callable[[list[Any], Any], list[Any]], inputs: list[Any], result: str) -> Any:
  """What an instruction makes of numbers: it gets registers of its operands, and of its result."""
  count, move, wide = lanes(chip), Words(chip), TYPES[result]().itemsize == 8
  out = np.zeros((1 + wide, count), np.uint32)
  given: list[tuple[int, Any]] = []
  registers: list[Any] = []
  for values in inputs:
    first, words = 2 + 2 * len(registers), as_words(values)
    registers.append(v[first : first + 1] if len(words) == 2 else v[first])
    given += list(enumerate(words, first))
  body: list[Any] = [*move.addresses(s[4:5]), move.isa.v_lshlrev_b32(v[0], 2, v[0])]
  for n, (register, _) in enumerate(given):
    body += [*move.addresses(s[6:7], 8 * (n + 1)), move.load(v[register], v[0], s[6:7])]
  body += [*move.wait(), move.isa.v_mov_b32(v[20], 0)]
  body += instructions(registers, v[20:21] if wide else v[20])
  body += [move.store(v[0], v[20 + n], s[4:5], 4 * count * n) for n in range(1 + wide)]
  launched(chip, [*body, move.isa.s_endpgm()], [out, *(words for _, words in given)])
  if wide:
    return (out[0].astype(np.uint64) | out[1].astype(np.uint64) << np.uint64(32)).view(TYPES[result])
  return out[0].astype(f"u{TYPES[result]().itemsize}").view(TYPES[result])


def made(chip: str, name: str, to: Any, sources: list[Any], kinds: tuple[str, ...]) -> Any:
  """An instruction; of numbers with 16 bits the lower half of a register, where there are names for that."""
  halves = [r.l if k.endswith("16") else r for r, k in zip([to, *sources], kinds)]
  for operands in ([to, *sources], halves):
    try:
      return getattr(Isa(chip), name)(*operands)
    except AsmError as error:
      last = error
  raise last


def same(found: Any, wanted: Any) -> Any:
  """Whether they are the same numbers, with the signs of zeros; any NaN is any NaN."""
  if found.dtype.kind != "f":
    return found == wanted
  return (found == wanted) & (np.signbit(found) == np.signbit(wanted)) | np.isnan(found) & np.isnan(wanted)


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
    if kind != "f64":
      yield f"v_sub_{kind}", two, lambda a, b: a - b
      yield f"v_subrev_{kind}", two, lambda a, b: b - a
      yield (f"v_max3_{kind} v_max3_num_{kind} v_max3_{kind}", f"{two} {kind}",
             lambda a, b, c: signs(np.fmax)(signs(np.fmax)(a, b), c))  # fmt: skip
      yield (f"v_min3_{kind} v_min3_num_{kind} v_min3_{kind}", f"{two} {kind}",
             lambda a, b, c: signs(np.fmin)(signs(np.fmin)(a, b), c))  # fmt: skip
      yield f"- v_maximum_{kind} -", two, lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, signs(np.fmax)(a, b))
      yield f"- v_minimum_{kind} -", two, lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, signs(np.fmin)(a, b))
    else:
      yield "- v_maximum_f64 -", two, lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, signs(np.fmax)(a, b))
  yield "v_frexp_exp_i32_f32", "i32 f32", lambda a: np.where(np.isfinite(a) & (a != 0), np.frexp(a)[1], 0)
  yield "v_frexp_exp_i32_f64", "i32 f64", lambda a: np.where(np.isfinite(a) & (a != 0), np.frexp(a)[1], 0)
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
  yield "v_pack_b32_f16", "u32 u16 u16", lambda a, b: a.astype(np.uint32) | b.astype(np.uint32) << 16


FLOATS = list(float_rows())
NEAR: list[tuple[str, str, Function, float]] = [
  ("v_rcp_f32", "f32 f32", lambda a: 1 / a, 2.0**-23), ("v_rsq_f32", "f32 f32", lambda a: 1 / np.sqrt(a), 2.0**-23),
  ("v_sqrt_f32", "f32 f32", np.sqrt, 2.0**-23), ("v_exp_f32", "f32 f32", np.exp2, 2.0**-23),
  ("v_log_f32", "f32 f32", np.log2, 2.0**-23), ("v_rcp_f64", "f64 f64", lambda a: 1 / a, 2.0**-27),
  ("v_rsq_f64", "f64 f64", lambda a: 1 / np.sqrt(a), 2.0**-27), ("v_sqrt_f64", "f64 f64", np.sqrt, 2.0**-27),
  ("v_rcp_iflag_f32", "f32 f32", lambda a: 1 / a, 2.0**-23),
]  # fmt: skip


def cases(rows: list[Any]) -> list[Any]:
  """A row for each family that has it."""
  found = []
  for name, *rest in rows:
    names = name.split() * (3 if " " not in name else 1)
    for family, mnemonic in zip(CHIPS, names):
      if mnemonic != "-":
        found.append(pytest.param(CHIPS[family], mnemonic, *rest, id=f"{CHIPS[family]}-{mnemonic}"))
  return found


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
    if result == "f32":
      wanted = np.where(np.abs(wanted) > 3.5e38, np.sign(wanted) * np.inf, wanted)
    near = np.abs(found - wanted) <= error * np.abs(wanted)
  assert (near | (found == wanted) | np.isnan(found) & np.isnan(wanted)).all()


ORDERS: dict[str, Function] = {
  "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
  "lg": lambda a, b: (a < b) | (a > b), "neq": np.not_equal, "nlt": lambda a, b: ~(a < b),
  "nle": lambda a, b: ~(a <= b), "ngt": lambda a, b: ~(a > b), "nge": lambda a, b: ~(a >= b),
  "nlg": lambda a, b: ~((a < b) | (a > b)), "u": lambda a, b: np.isnan(a) | np.isnan(b),
  "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
}  # fmt: skip


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


# *** of the wave ***

FULL, FULL64 = (1 << 32) - 1, (1 << 64) - 1
SCALARS: list[tuple[str, str, Function]] = [
  ("s_add_u32 s_add_co_u32 s_add_u32", "u32 u32 u32", lambda a, b: (a + b, a + b > FULL)),
  ("s_sub_u32 s_sub_co_u32 s_sub_u32", "u32 u32 u32", lambda a, b: (a - b, b > a)),
  ("s_add_i32 s_add_co_i32 s_add_i32", "i32 i32 i32", lambda a, b: (a + b, not -(1 << 31) <= a + b < 1 << 31)),
  ("s_sub_i32 s_sub_co_i32 s_sub_i32", "i32 i32 i32", lambda a, b: (a - b, not -(1 << 31) <= a - b < 1 << 31)),
  ("s_mul_i32", "i32 i32 i32", lambda a, b: (a * b, None)),
  ("s_mul_hi_u32", "u32 u32 u32", lambda a, b: (a * b >> 32, None)),
  ("s_mul_hi_i32", "i32 i32 i32", lambda a, b: (a * b >> 32, None)),
  ("- s_mul_u64 -", "u64 u64 u64", lambda a, b: (a * b, None)),
  ("- s_add_nc_u64 -", "u64 u64 u64", lambda a, b: (a + b, None)),
  ("s_min_u32", "u32 u32 u32", lambda a, b: (min(a, b), a <= b)),
  ("s_max_u32", "u32 u32 u32", lambda a, b: (max(a, b), a >= b)),
  ("s_min_i32", "i32 i32 i32", lambda a, b: (min(a, b), a <= b)),
  ("s_max_i32", "i32 i32 i32", lambda a, b: (max(a, b), a >= b)),
  *[(f"s_{name}_b{bits}", f"u{bits} u{bits} u{bits}", lambda a, b, f=f, m=m: ((r := f(a, b) & m), r != 0))
    for bits, m in ((32, FULL), (64, FULL64))
    for name, f in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b),
                    ("nand", lambda a, b: ~(a & b)), ("nor", lambda a, b: ~(a | b)), ("xnor", lambda a, b: ~(a ^ b)))],
  *[(f"s_and_not1_b{bits} s_and_not1_b{bits} s_andn2_b{bits}", f"u{bits} u{bits} u{bits}",
     lambda a, b: (a & ~b, a & ~b != 0)) for bits in (32, 64)],
  *[(f"s_lshl_b{bits}", f"u{bits} u{bits} u32", lambda a, b, n=bits: ((r := a << (b & n - 1) & (1 << n) - 1), r != 0))
    for bits in (32, 64)],
  *[(f"s_{name}{bits}", f"{name[-1].replace('b', 'u')}{bits} {name[-1].replace('b', 'u')}{bits} u32",
     lambda a, b, n=bits: ((r := a >> (b & n - 1)), r != 0)) for name in ("lshr_b", "ashr_i") for bits in (32, 64)],
  ("s_bfm_b32", "u32 u32 u32", lambda a, b: ((1 << (a & 31)) - 1 << (b & 31), None)),
  ("s_not_b32", "u32 u32", lambda a: (~a, a != FULL)), ("s_not_b64", "u64 u64", lambda a: (~a, a != FULL64)),
  ("s_brev_b32", "u32 u32", lambda a: (reverse(a), None)), ("s_mov_b64", "u64 u64", lambda a: (a, None)),
  ("s_bcnt1_i32_b32", "u32 u32", lambda a: (a.bit_count(), a != 0)),
  ("s_bcnt1_i32_b64", "u32 u64", lambda a: (a.bit_count(), a != 0)),
  ("s_ctz_i32_b32 s_ctz_i32_b32 s_ff1_i32_b32", "i32 u32", lambda a: ((a & -a).bit_length() - 1, None)),
  ("s_clz_i32_u32 s_clz_i32_u32 s_flbit_i32_b32", "i32 u32", lambda a: (32 - a.bit_length() if a else -1, None)),
  ("s_sext_i32_i8", "i32 u32", lambda a: (field(a & 255, 8), None)),
  ("s_sext_i32_i16", "i32 u32", lambda a: (field(a & 0xFFFF, 16), None)),
  ("s_abs_i32", "u32 i32", lambda a: (abs(a), a != 0)),
  ("s_pack_ll_b32_b16", "u32 u32 u32", lambda a, b: (a & 0xFFFF | b << 16, None)),
  ("s_bfe_u32", "u32 u32 u32", lambda a, b: ((r := a >> (b & 31) & (1 << (b >> 16 & 127)) - 1), r != 0)),
  ("s_lshl2_add_u32", "u32 u32 u32", lambda a, b: (4 * a + b, 4 * a + b > FULL)),
]  # fmt: skip
SOME = [0, 1, 2, 5, 31, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678, 0x80000, 0x200004]


@pytest.mark.parametrize("chip,name,kinds,function", cases(SCALARS))
def test_scalars(chip: str, name: str, kinds: str, function: Function) -> None:
  """Results, and SCC where it is written."""
  isa, move, (result, *types) = Isa(chip), Words(chip), kinds.split()
  free = np.random.default_rng(len(name))
  wide = result.endswith("64")
  rows = []
  for n in range(10):
    words = [SOME[n % len(SOME)] if k == n % 2 else int(free.choice(SOME)) for k in range(2)]
    upper = free.integers(0, 1 << 32, 2, np.uint64).tolist()
    rows.append([w | (u << 32 if k.endswith("64") else 0) for w, u, k in zip(words, upper, types)])
  out = np.zeros((len(rows), 3), np.uint32)
  body: list[Any] = [*move.addresses(s[4:5]), isa.v_mov_b32(v[0], 0)]
  for n, row in enumerate(rows):
    operands = []
    for k, (value, kind) in enumerate(zip(row, types)):
      first = 20 + 4 * k
      body += [isa.s_mov_b32(s[first], value & FULL), isa.s_mov_b32(s[first + 1], value >> 32)]
      operands.append(s[first : first + 1] if kind.endswith("64") else s[first])
    body += [isa.s_mov_b32(s[41], 0), *move.settled(), isa.s_cmp_eq_u32(s[41], 1)]
    body += [getattr(isa, name)(s[40:41] if wide else s[40], *operands), isa.s_cselect_b32(s[42], 1, 0)]
    body += move.settled()
    for part in range(3):
      body += [isa.v_mov_b32(v[10], s[40 + part]), move.store(v[0], v[10], s[4:5], 4 * (3 * n + part))]
  launched(chip, [*body, isa.s_endpgm()], [out])
  for row, found in zip(rows, out):
    given = [field(x, int(k[1:])) if k[0] == "i" else x for x, k in zip(row, types)]
    value, carry = function(*given)
    got = int(found[0]) | (int(found[1]) << 32 if wide else 0)
    assert got == value & (FULL64 if wide else FULL), (name, row)
    assert carry is None or bool(found[2]) == carry, (name, row)
