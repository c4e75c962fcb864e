"""What gfx950 has for numbers of 8, 6 and 4 bits, and CDNA 3 for those of 8, on the emulator of AMD's machine code,
against NumPy: products of matrices with scales and without, loads of shared memory that transpose, and conversions.
Where numbers are is written down here once more."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from amd_code_machine import Words, applied, launched

from gpu_model.amd_code.emulator import Fault, Unknown
from gpu_model.toolchain import compiler
from tiny_asm_amd import Isa, exec_lo, s, v

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
Array = Any
ISA, MOVE, LANES = Isa("gfx950"), Words("gfx950"), 64
FORMATS = {"fp8": (0, 8, 4, 3), "bf8": (1, 8, 5, 2), "fp6": (2, 6, 2, 3), "bf6": (3, 6, 3, 2), "fp4": (4, 4, 2, 1)}
"""Of each: how an instruction names it, its bits, those of the exponent and of the mantissa."""


def values_of(kind: str) -> Array:
  """The number of each code, by OCP's formats; NaN where there is none, or an infinity."""
  _, bits, exponents, mantissa = FORMATS[kind]
  codes = np.arange(1 << bits)
  sign, e, m = codes >> (bits - 1), codes >> mantissa & (1 << exponents) - 1, codes & (1 << mantissa) - 1
  bias = (1 << (exponents - 1)) - 1
  found = np.where(e > 0, 1.0, 0.0) + m / (1 << mantissa)
  found = np.where(sign, -1.0, 1.0) * found * 2.0 ** (np.maximum(e, 1) - bias)
  if kind == "fp8":
    found[codes & 127 == 127] = np.nan
  if kind == "bf8":
    found[e == 31] = np.nan
  return found


def test_the_formats() -> None:
  assert list(values_of("fp4")[:8]) == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
  assert np.nanmax(values_of("fp6")) == 7.5 and np.nanmax(values_of("bf6")) == 28
  assert np.nanmax(values_of("fp8")) == 448 and np.nanmax(values_of("bf8")) == 57344


def place_of(kind: str, group: int, n: int, depth: int) -> int:
  """Which of K a lane of a group of lanes has as its number `n`: numbers of 8 bits are in two runs of 16."""
  if FORMATS[kind][1] == 8:
    return 16 * group + n if n < 16 else depth // 2 + 16 * group + n - 16
  return 32 * group + n


def packed(codes: list[int], bits: int) -> list[int]:
  whole = sum(int(code) << bits * n for n, code in enumerate(codes))
  return [whole >> 32 * n & 0xFFFFFFFF for n in range(len(codes) * bits // 32)]


def operand(kind: str, codes: Array, place: Any) -> Array:
  """The registers of A, whose rows are given, or of B, whose columns are: a row for each lane."""
  rows, depth = codes.shape
  made = [packed([codes[n % rows, place(kind, n // rows, k, depth)] for k in range(32)], FORMATS[kind][1])
          for n in range(LANES)]  # fmt: skip
  return np.array(made, np.uint32)


def product(
  size: int, kinds: tuple[str, str], scaled: bool, place: Any = place_of, seed: int = 0
) -> tuple[Array, Array]:
  """(the product that comes out, the one that NumPy has), of random numbers, added to random ones."""
  free, depth = np.random.default_rng(seed), {16: 128, 32: 64}[size]
  codes, numbers, scales, words = [], [], [], []
  for kind in kinds:
    finite = np.flatnonzero(np.isfinite(values_of(kind)))
    chosen = free.choice(finite, (size, depth))
    exponents = free.integers(120, 134, (size, depth // 32))
    codes.append(operand(kind, chosen, place))
    scales.append(exponents)
    numbers.append(values_of(kind)[chosen] * (2.0 ** np.repeat(exponents - 127, 32, axis=1) if scaled else 1))
  c = free.integers(-9, 10, (size, size)).astype(np.float32)
  count, groups = size * size // LANES, LANES // size
  at = [[(4 * groups * (r // 4) + 4 * (n // size) + r % 4, n % size) for r in range(count)] for n in range(LANES)]
  words = [np.array([[c[place] for place in lane] for lane in at], np.float32).view(np.uint32)]
  shift = (8, 16)  # the second byte of A's scales and the third one of B's, among others
  for exponents, by in zip(scales, shift):
    own = np.array([[int(exponents[n % size, n // size])] for n in range(LANES)], np.uint32)
    others = free.integers(0, 1 << 32, (LANES, 1), np.uint32) & np.uint32(0xFFFFFFFF ^ 255 << by)
    words.append(own << np.uint32(by) | others)
  given = [*codes, *words]
  firsts, out = (16, 32, 48, 80, 81), np.zeros((count, LANES), np.float32)
  body: list[Any] = [ISA.v_lshlrev_b32(v[0], 2, v[0])]
  for n, (first, rows) in enumerate(zip(firsts, given)):
    body += [*MOVE.addresses(s[4:5], 8 * n)]
    body += [MOVE.load(v[first + k], v[0], s[4:5], 4 * LANES * k) for k in range(rows.shape[1])]
  spans = [f"v[{first}:{first + rows.shape[1] - 1}]" for first, rows in zip(firsts, given)]
  name = f"v_mfma_{'scale_' if scaled else ''}f32_{size}x{size}x{depth}_f8f6f4"
  line = f"{name} {spans[2]}, {spans[0]}, {spans[1]}, {spans[2]}"
  line += ", v80, v81 op_sel:[1,0] op_sel_hi:[0,1]" if scaled else ""
  line += f" cbsz:{FORMATS[kinds[0]][0]} blgp:{FORMATS[kinds[1]][0]}"
  body += [*MOVE.wait(), line, "s_nop 15", "s_nop 3", *MOVE.addresses(s[4:5], 40)]
  body += [MOVE.store(v[0], v[48 + k], s[4:5], 4 * LANES * k) for k in range(count)]
  launched("gfx950", [*body, ISA.s_endpgm()], [*(np.ascontiguousarray(g.T) for g in given), out])
  found = np.zeros((size, size), np.float32)
  for n in range(LANES):
    for r, place in enumerate(at[n]):
      found[place] = out[r, n]
  return found, numbers[0] @ numbers[1].T + c


PAIRS = [
  ("fp8", "fp8"), ("fp8", "bf8"), ("bf8", "fp6"), ("fp6", "bf6"), ("bf6", "fp4"), ("fp4", "fp8"), ("fp4", "fp4")
]  # fmt: skip


def close(found: Array, wanted: Array) -> bool:
  return np.allclose(found, wanted, rtol=1e-6, atol=1e-6 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("kinds", PAIRS)
@pytest.mark.parametrize("size", [16, pytest.param(32, marks=pytest.mark.nightly)])
def test_products_of_narrow_numbers(size: int, kinds: tuple[str, str]) -> None:
  for scaled in (False, True):
    assert close(*product(size, kinds, scaled))


@pytest.mark.parametrize("kinds,scaled", [(("fp8", "fp4"), False), (("fp8", "fp8"), True)])
def test_a_wrong_layout_of_narrow_numbers(kinds: tuple[str, str], scaled: bool) -> None:
  """One run of 32 for numbers of 8 bits, too: the other operand, or the scales, are of other places in K."""
  assert not close(*product(32, kinds, scaled, lambda kind, group, n, depth: 32 * group + n))


TRANSPOSED = {"ds_read_b64_tr_b16": 16, "ds_read_b64_tr_b8": 8, "ds_read_b64_tr_b4": 4, "ds_read_b96_tr_b6": 6}


def transposed(name: str, before: list[Any] | None = None) -> tuple[Array, Array]:
  """(what lanes get, which columns they are to get), of matrices of 16 columns, one for each 16 lanes."""
  bits, words = TRANSPOSED[name], 3 if "b96" in name else 2
  rows = 32 * words // bits
  matrices = np.random.default_rng(bits).integers(0, 1 << bits, (4, rows, 16))
  data = np.array([packed(list(block.ravel()), bits) for block in matrices], np.uint32).reshape(LANES, words)
  out, end = np.zeros((words, LANES), np.uint32), words - 1
  body: list[Any] = [ISA.v_lshlrev_b32(v[1], 2, v[0]), ISA.v_mul_u32_u24(v[2], 4 * words, v[0])]
  body += [*MOVE.addresses(s[4:5]), *(MOVE.load(v[4 + k], v[1], s[4:5], 4 * LANES * k) for k in range(words))]
  body += [*MOVE.wait(), f"ds_write_b{32 * words} v2, v[4:{4 + end}]", *MOVE.wait(), *(before or [])]
  body += [f"{name} v[8:{8 + end}], v2", *MOVE.wait(), *MOVE.addresses(s[4:5], 8)]
  body += [MOVE.store(v[1], v[8 + k], s[4:5], 4 * LANES * k) for k in range(words)]
  launched("gfx950", [*body, ISA.s_endpgm()], [np.ascontiguousarray(data.T), out], local=4 * words * LANES)
  wanted = np.array([packed(list(matrices[n // 16, :, n % 16]), bits) for n in range(LANES)], np.uint32)
  return out.T, wanted


@pytest.mark.parametrize("name", TRANSPOSED)
def test_loads_that_transpose(name: str) -> None:
  found, wanted = transposed(name)
  assert (found == wanted).all()


def test_loads_that_transpose_take_all_lanes() -> None:
  with pytest.raises(Fault, match="a transposing load takes all lanes"):
    transposed("ds_read_b64_tr_b16", [ISA.s_mov_b32(exec_lo, 1)])


WIDER = [f"{wide}_{kind}" for wide in ("f32", "f16") for kind in ("fp8", "bf8")]
WIDER += [f"pk_{wide}_{kind}" for wide in ("f32", "f16", "bf16") for kind in ("fp8", "bf8", "fp4")]
WIDER += [f"pk32_{wide}_{kind}" for wide in ("f32", "f16", "bf16") for kind in ("fp6", "bf6")]
NARROWER = [f"pk_{kind}_{wide}" for wide in ("f32", "f16", "bf16") for kind in ("fp8", "bf8", "fp4")]
NARROWER += [f"pk32_{kind}_{wide}" for wide in ("f16", "bf16") for kind in ("fp6", "bf6")]
NARROWER += [f"2xpk16_{kind}_f32" for kind in ("fp6", "bf6")]
SIZES = {"f32": 32, "f16": 16, "bf16": 16, **{kind: row[1] for kind, row in FORMATS.items()}}


def parts(name: str) -> tuple[int, str, str]:
  """How many numbers, of which type they become and were."""
  *how, result, source = name.split("_")
  return {"pk": 2, "pk32": 32, "2xpk16": 32}.get("".join(how), 1), result, source


def bits_of(kind: str, numbers: Array) -> Array:
  """The bits of numbers that are ones of a type."""
  if kind == "f16":
    with np.errstate(over="ignore"):
      return numbers.astype(np.float16).view(np.uint16)
  words = numbers.astype(np.float32).view(np.uint32)
  return words if kind == "f32" else words >> 16


def numbers_of(kind: str, words: Array) -> Array:
  if kind == "f16":
    return words.astype(np.uint16).view(np.float16).astype(np.float64)
  return (words.astype(np.uint32) << (0 if kind == "f32" else 16)).view(np.float32).astype(np.float64)


def nearest(kind: str, x: float) -> int:
  """The code nearest to a number, the even one of two: by the distance to all of them. Behind the last one comes what
  is too large."""
  bits = SIZES[kind]
  table = values_of(kind)[: 1 << (bits - 1)]
  most = int(np.flatnonzero(np.isfinite(table))[-1])
  codes = np.append(table[: most + 1], 2 * table[most] - table[most - 1])
  distance = np.abs(codes - min(abs(x), codes[-1]))
  best = min(np.flatnonzero(distance == distance.min()), key=lambda code: int(code) & 1)
  beyond = {"fp8": 0x7F, "bf8": 0x7C}.get(kind, most)
  return int(np.signbit(x)) << (bits - 1) | (int(best) if best <= most else beyond)


def converted(name: str, given: Array, scales: Array, tail: str = "", old: int = 0xA5C396F0) -> Array:
  """The registers of results, from those of sources: a row for each lane. With two sources they are side by side."""
  count, result, source = parts(name)
  words = max(1, count * SIZES[result] // 32)
  two = count == 2 and source == "f32"
  out, first, last = np.zeros((words, LANES), np.uint32), 16, 16 + given.shape[1] - 1
  body: list[Any] = [ISA.v_lshlrev_b32(v[0], 2, v[0]), *MOVE.addresses(s[4:5])]
  for k in range(given.shape[1]):  # an offset has 12 bits
    body += [*MOVE.wait(), ISA.s_add_u32(s[4], s[4], 4096), ISA.s_addc_u32(s[5], s[5], 0)] if k == 16 else []
    body += [MOVE.load(v[first + k], v[0], s[4:5], 4 * LANES * (k % 16))]
  body += [*MOVE.addresses(s[4:5], 8), MOVE.load(v[2], v[0], s[4:5]), *MOVE.wait()]
  body += [ISA.v_mov_b32(v[64 + k], old) for k in range(words)]
  span = "v16, v17" if two else f"v[16:{last}]" if last > 16 else "v16"
  span = "v[16:31], v[32:47]" if name.startswith("2xpk16") else span
  to = f"v[64:{63 + words}]" if words > 1 else "v64"
  body += [f"v_cvt_scalef32_{name} {to}, {span}, v2{tail}", "s_nop 2", *MOVE.addresses(s[4:5], 16)]
  for k in range(words):
    body.append(MOVE.store(v[0], v[64 + k], s[4:5], 4 * LANES * (k % 16)))
    body += [ISA.v_add_u32(v[0], 4096, v[0])] if k % 16 == 15 else []
  launched("gfx950", [*body, ISA.s_endpgm()], [np.ascontiguousarray(given.T), scales, out])
  return out.T


def scales_of(free: Any) -> tuple[Array, Array]:
  """(float32 numbers, of which the exponents count, and the powers of two that they stand for)."""
  exponents = free.integers(122, 132, LANES)
  return (exponents << 23 | free.integers(0, 1 << 23, LANES)).astype(np.uint32), 2.0 ** (exponents - 127)


def unpacked(rows: Array, bits: int) -> Array:
  """Fields of this many bits of the registers of each lane."""
  whole = [sum(int(word) << 32 * n for n, word in enumerate(row)) for row in rows]
  return np.array([[x >> bits * n & (1 << bits) - 1 for n in range(32 * rows.shape[1] // bits)] for x in whole])


@pytest.mark.parametrize("name", WIDER)
def test_numbers_that_become_wider(name: str) -> None:
  free, (count, result, source) = np.random.default_rng(len(name)), parts(name)
  scales, factors = scales_of(free)
  of = values_of(source)
  chosen = free.choice(
    np.flatnonzero(np.isfinite(of)), (LANES, max(1, count * SIZES[source] // 32) * 32 // SIZES[source])
  )
  found = converted(name, np.array([packed(list(row), SIZES[source]) for row in chosen], np.uint32), scales)
  wanted = bits_of(result, of[chosen[:, :count]] * factors[:, None])
  assert (unpacked(found, SIZES[result])[:, :count] == wanted).all()


@pytest.mark.parametrize("name", NARROWER)
def test_numbers_that_become_narrower(name: str) -> None:
  """Random ones, those halfway between two, and some that are too large."""
  free, (count, result, source) = np.random.default_rng(len(name)), parts(name)
  scales, factors = scales_of(free)
  table = values_of(result)
  table = np.sort(table[np.isfinite(table)])
  middle = (table[1:] + table[:-1]) / 2
  pool = np.concatenate([middle, table, free.uniform(-1.2, 1.2, 200) * table[-1], [table[-1] * 1.5, -table[-1] * 9]])
  bits = bits_of(source, free.choice(pool, (LANES, count)) * factors[:, None])
  exact = numbers_of(source, bits) / factors[:, None]
  given = np.array([packed(list(row), SIZES[source]) for row in bits], np.uint32)
  found = unpacked(converted(name, given, scales), SIZES[result])[:, :count]
  assert (found == np.array([[nearest(result, x) for x in row] for row in exact])).all()


POSITIONS = [("pk_fp8_f32", n, f" op_sel:[0,0,0,{n}]") for n in range(2)]
POSITIONS += [("pk_fp8_f16", n, f" op_sel:[0,0,{n}]") for n in range(2)]
POSITIONS += [("pk_fp4_f32", n, f" op_sel:[0,0,{n & 1},{n >> 1}]") for n in range(4)]


@pytest.mark.parametrize("name,at,tail", POSITIONS)
def test_the_rest_of_a_register_stays(name: str, at: int, tail: str) -> None:
  free, (count, result, source) = np.random.default_rng(0), parts(name)
  scales, factors = scales_of(free)
  bits = bits_of(source, free.uniform(-6, 6, (LANES, count)) * factors[:, None])
  exact, given = numbers_of(source, bits) / factors[:, None], [packed(list(row), SIZES[source]) for row in bits]
  found, width = converted(name, np.array(given, np.uint32), scales, tail), count * SIZES[result]
  made = [sum(nearest(result, x) << SIZES[result] * n for n, x in enumerate(row)) << width * at for row in exact]
  kept = 0xA5C396F0 & ~((1 << width) - 1 << width * at)
  assert [int(x) for x in found[:, 0]] == [kept | x for x in made]


@pytest.mark.parametrize("at", range(4))
def test_which_number_of_a_register_is_read(at: int) -> None:
  scales, words = np.full(LANES, 0x3F800000, np.uint32), np.full((LANES, 1), 0x44403830, np.uint32)
  tail = f" op_sel:[{at & 1},{at >> 1}]"
  wide = np.array([values_of("fp8")[code] for code in (0x30, 0x38, 0x40, 0x44)], np.float32)
  assert (converted("f32_fp8", words, scales, tail).view(np.float32) == wide[at]).all()
  half = converted("f16_fp8", words, scales, f" op_sel:[{at & 1},{at >> 1},1]")
  assert (half == int(wide[at].astype(np.float16).view(np.uint16)) << 16 | 0x96F0).all()
  pair = [values_of("fp4")[0x44403830 >> 8 * at + 4 * n & 15] for n in range(2)]
  assert (converted("pk_f32_fp4", words, scales, tail).view(np.float32) == pair).all()


def test_what_is_not_said_to_happen() -> None:
  with pytest.raises(Fault, match="a NaN becomes a number of 4 bits"):
    converted("pk_fp4_f32", np.full((LANES, 2), 0x7FC00000, np.uint32), np.full(LANES, 0x3F800000, np.uint32))


# *** without a scale; and rounded by a random word ***


def of_chip(kind: str, chip: str) -> Array:
  """The number of each code of 8 bits: CDNA 3's formats have another bias, one NaN and no infinity."""
  if chip == "gfx950":
    return values_of(kind)
  codes, mantissa, bias = np.arange(256), 3 if kind == "fp8" else 2, 8 if kind == "fp8" else 16
  e, m = codes >> mantissa & (1 << 7 - mantissa) - 1, codes & (1 << mantissa) - 1
  found = (np.where(e > 0, 1.0, 0.0) + m / (1 << mantissa)) * 2.0 ** (np.maximum(e, 1) - bias)
  return np.where(codes == 128, np.nan, np.where(codes >> 7, -found, found))


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_floats_of_8_bits_become_wider(chip: str, kind: str) -> None:
  """Each code, one of a register or two; SDWA says which."""
  table = with_infinities(kind, chip)
  for first in range(0, 256, 64):
    codes = first + np.arange(64, dtype=np.uint32)
    given = codes << 16 | (codes ^ 1) << 24 | 0x3311
    sdwa = f"v_cvt_f32_{kind}_sdwa v20, v2 src0_sel:BYTE_2"
    one = applied(chip, partial(lambda text, x, to: [text], sdwa), [given], "f32")
    assert np.array_equal(one, table[codes], equal_nan=True)
    both = applied(chip, partial(lambda text, x, to: [text], f"v_cvt_pk_f32_{kind}_sdwa v[20:21], v2 src0_sel:WORD_1"),
                   [given], "u64")  # fmt: skip
    wanted = np.stack([table[codes], table[codes ^ 1]], 1).astype(np.float32)
    assert np.array_equal(both.view(np.float32).reshape(-1, 2), wanted, equal_nan=True)


def with_infinities(kind: str, chip: str) -> Array:
  """The same with infinities, where the format has them."""
  codes, table = np.arange(256), of_chip(kind, chip)
  if (chip, kind) == ("gfx950", "bf8"):
    table[codes & 127 == 124] = [np.inf, -np.inf]
  return table


def around(table: Array, x: float) -> tuple[int, int]:
  """Codes of the numbers next to one, below and above, by size: the signs are alike."""
  finite = np.flatnonzero(np.isfinite(table[:128]))
  below = int(finite[np.searchsorted(table[finite], abs(x), "right") - 1])
  return below, below if table[below] == abs(x) else below + 1


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_floats_of_8_bits_become_narrower(chip: str, kind: str) -> None:
  """Two of them to either half of a register, to nearest even; what is too large becomes NaN, or infinity."""
  free, table = np.random.default_rng(3), of_chip(kind, chip)
  finite = np.sort(table[:128][np.isfinite(table[:128])])
  pool = np.concatenate([(finite[1:] + finite[:-1]) / 2, finite, [finite[-1] * 1.01, finite[-1] * 4, np.inf]])
  a, b = ((free.choice(pool, 64) * free.choice([-1, 1], 64)).astype(np.float32) for _ in range(2))

  def code(x: float) -> int:
    top = int(np.flatnonzero(np.isfinite(table[:128]))[-1])
    sign = int(np.signbit(x)) << 7
    beyond = 128 if chip == "gfx942" else (0x7F if kind == "fp8" else 0x7C) | sign
    step = table[top] - table[top - 1]
    if abs(x) > table[top]:
      return top | sign if abs(x) < table[top] + step / 2 else beyond
    low, high = around(table, x)
    middle = (table[low] + table[high]) / 2
    near = high if abs(x) > middle or abs(x) == middle and low & 1 else low
    return near | sign if near or chip == "gfx950" else 0

  for tail, shift in (("", 0), (" op_sel:[0,0,1]", 16)):
    body = ["v_mov_b32 v20, 0x12345678", "s_nop 1", f"v_cvt_pk_{kind}_f32 v20, v2, v4{tail}"]
    found = applied(chip, partial(lambda body, x, to: body, body), [a, b], "u32")
    wanted = [(code(x) | code(y) << 8) << shift | 0x12345678 & ~(0xFFFF << shift) for x, y in zip(a, b)]
    assert found.tolist() == wanted


SEEDED = [("gfx942", f"v_cvt_sr_{kind}_f32") for kind in ("fp8", "bf8")]
SEEDED += [("gfx950", f"v_cvt_sr_{kind}_f32") for kind in ("fp8", "bf8")]
SEEDED += [("gfx950", f"v_cvt_scalef32_sr_{kind}_{wide}") for kind in ("fp8", "bf8") for wide in ("f32", "f16", "bf16")]


@pytest.mark.parametrize("chip,name", SEEDED)
def test_floats_rounded_by_chance(chip: str, name: str) -> None:
  """Of words that are spread evenly as many round up as what is cut off is of a unit; what has its place stays."""
  kind, source = name.split("_")[-2:]
  table, scaled = of_chip(kind, chip), "scalef32" in name
  seeds = (np.arange(64, dtype=np.uint64) << np.uint64(26)).astype(np.uint32)
  for part in (0, 1, 13, 63):
    for low in (0x38, 0x45, 0x03, 0x00):
      step = table[low + 1] - table[low]
      x = -(table[low] + step * part / 64)
      factor = 4.0 if scaled else 1.0
      given = np.full(64, bits_of(source, np.array([x * factor]))[0], np.uint32)
      exact = float(numbers_of(source, given[:1])[0]) / factor
      share = (abs(exact) - table[low]) / step  # a bfloat16 may have fewer bits
      scale = np.full(64, np.float32(factor).view(np.uint32), np.uint32)
      text = f"{name} v20, v2, v4{', v6' if scaled else ''} op_sel:[0,0,1,0]"
      body = ["v_mov_b32 v20, 0x12345678", "s_nop 1", text]
      found = applied(chip, partial(lambda body, x, to: body, body), [given, seeds, scale][: 2 + scaled], "u32")
      assert ((found & 0xFFFF00FF) == 0x12340078).all()
      codes = found >> 8 & 255
      zero = chip == "gfx942" and low == 0
      assert set(codes.tolist()) <= {0 if zero else low | 128, low + 1 | 128}
      assert (codes == (low + 1 | 128)).sum() == round(share * 64)


SEVERAL = [f"pk_fp4_{wide}" for wide in ("f32", "f16", "bf16")]
SEVERAL += [f"pk32_{kind}_{wide}" for kind in ("fp6", "bf6") for wide in ("f32", "f16", "bf16")]


def seeded(name: str, given: Array, seeds: Array, scales: Array, tail: str = "") -> Array:
  """What `v_cvt_scalef32_sr_NAME` makes of registers (a row per lane), random words and scales."""
  _, result, source = parts(name)
  words, count = given.shape[1], 32 * SIZES[result] // 32 if "pk32" in name else 1
  sources = "v2" if words == 1 else f"v[2:{1 + words}]"
  to = "v60" if count == 1 else f"v[60:{59 + count}]"
  body = [f"v_mov_b32 v{60 + n}, 0xA5C396F0" for n in range(count)]
  body += [f"v_cvt_scalef32_sr_{name} {to}, {sources}, v50, v51{tail}"]
  out, move = np.zeros((count, LANES), np.uint32), Words("gfx950")
  inputs = [*(np.ascontiguousarray(x) for x in given.T), seeds, scales]
  code: list[Any] = [*move.addresses(s[4:5]), move.isa.v_lshlrev_b32(v[0], 2, v[0])]
  for n, register in enumerate([*range(2, 2 + words), 50, 51]):
    code += [*move.addresses(s[6:7], 8 * (n + 1)), move.load(v[register], v[0], s[6:7])]
  code += [*move.wait(), *body, *(move.store(v[0], v[60 + n], s[4:5], 4 * LANES * n) for n in range(count))]
  launched("gfx950", [*code, move.isa.s_endpgm()], [out, *inputs])
  return out.T


@pytest.mark.parametrize("name", SEVERAL)
def test_several_rounded_by_chance(name: str) -> None:
  """One random word rounds all numbers of a lane: each goes up where what is cut off of it, and the word as a fraction,
  are 1 or more together."""
  free, (count, result, source) = np.random.default_rng(len(name)), parts(name)
  scales, factors = scales_of(free)
  table = values_of(result)
  half = table[: len(table) // 2]
  seeds = free.integers(0, 1 << 32, LANES, np.uint64).astype(np.uint32)
  seeds[:3] = [0, 0xFFFFFFFF, 0x80000000]
  exact = free.uniform(-1, 1, (LANES, count)) * half[-1]
  bits = bits_of(source, exact * factors[:, None])
  exact = numbers_of(source, bits) / factors[:, None]
  given = np.array([packed(list(row), SIZES[source]) for row in bits], np.uint32)
  found = unpacked(seeded(name, given, seeds, scales), SIZES[result])[:, :count]
  low = np.searchsorted(half, np.abs(exact), "right") - 1
  step = half[np.minimum(low + 1, len(half) - 1)] - half[low]
  share = np.divide(np.abs(exact) - half[low], step, out=np.zeros_like(exact), where=step > 0)
  up = share + seeds[:, None] / 2.0**32 >= 1
  assert up.any() and not up.all()
  assert (found == (low + up | (np.signbit(exact) << SIZES[result] - 1))).all()


@pytest.mark.parametrize("at", range(4))
def test_where_two_rounded_by_chance_go(at: int) -> None:
  given = np.array([[0x40003C00]] * LANES, np.uint32)  # 1 and 2 as halves
  ones = np.full(LANES, 0x3F800000, np.uint32)
  found = seeded("pk_fp4_f16", given, np.zeros(LANES, np.uint32), ones, f" op_sel:[0,0,{at & 1},{at >> 1}]")
  assert (found == (0xA5C396F0 & ~(255 << 8 * at) | 0x42 << 8 * at)).all()


def test_a_sign_that_two_numbers_have() -> None:
  """Which of two numbers it is done to nobody says."""
  with pytest.raises(Unknown, match="v_cvt_scalef32_sr_pk_fp4_f32"):
    launched("gfx950", ["v_cvt_scalef32_sr_pk_fp4_f32 v1, -v[2:3], v4, v5", "s_endpgm"], [np.zeros(1, np.uint32)])
