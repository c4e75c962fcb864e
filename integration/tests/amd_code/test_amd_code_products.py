"""Every product of matrices that has all of its elements, on the emulator of AMD's machine code, against NumPy: small
integers, so that sums are exact. Which elements a lane has is written down here once more, from the ISA manuals'
chapters on WMMA and MFMA. Products of what one lane has, in words or their halves, are here, too."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from amd_code_machine import CHIPS, Function, Words, applied, drawn, lanes, launched, made, same
from test_amd_code_instructions import exact_fma
from test_amd_code_sparse import NARROW, coded, words

from gpu_model.amd_code.emulator import Fault, Launch, run
from gpu_model.toolchain import compiler
from tiny_asm_amd import Isa, Kernel, assemble, s, v
from tiny_asm_amd.table import LIKE, family_of, table

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
Array = Any
NAME = re.compile(
  r"v_(?:wmma|mfma)_(f32|f16|bf16|i32|f64)_(\d+)x\d+x(\d+)_?(?:(\d+)b_)?([a-z]+\d+)(?:_([fb]p?f?8))?(_1k)?$"
)
BITS = {**NARROW, "f32": 32, "f64": 64}


def shape(name: str) -> tuple[str, int, int, int, list[str]]:
  """Type of the result; rows; terms of a sum; blocks; types of A and B."""
  found = NAME.match(name)
  assert found is not None, name
  result, m, k, blocks, first, second, _ = found.groups()
  if blocks is None:  # older names do not say it: that many terms of so many bits fill the lanes' registers
    each = {"f16": 4, "bf16": 4 if name.endswith("_1k") else 2, "i8": 4}.get(first, 1)
    blocks = "1" if "_" in name.rsplit("x", 1)[1].removesuffix("_1k") else str(max(1, 64 * each // (int(k) * int(m))))
  return result, int(m), int(k), int(blocks), [first, second or first]


def all_products() -> Iterator[Any]:
  for chip, often in (("gfx1100", True), ("gfx1201", True), ("gfx942", True), ("gfx950", False), ("gfx90a", False)):
    for name in table(family_of(chip)).named:
      here = any(LIKE.get(chip, chip) in row.chips for row in table(family_of(chip)).named[name])
      if here and name.startswith(("v_wmma", "v_mfma")) and "scale" not in name and not re.search("f8f6f4|xf32", name):
        yield pytest.param(chip, name, marks=() if often else pytest.mark.nightly, id=f"{chip}-{name}")


def a_of(chip: str, m: int, k: int, blocks: int, lane: int) -> list[tuple[int, int, int]]:
  """(block, row, term) of each element of A that a lane has; of B (block, column, term)."""
  if chip == "gfx1100":
    return [(0, lane % 16, n) for n in range(k)]
  if chip == "gfx1201":
    return [(0, lane % 16, k // 2 * (lane // 16) + n) for n in range(k // 2)]
  each = k * m * blocks // 64
  return [(lane // m % blocks, lane % m, lane // (m * blocks) * each + n) for n in range(each)]


def c_of(chip: str, result: str, m: int, blocks: int, lane: int) -> list[tuple[int, int, int]]:
  """(block, row, column) of each result that a lane has."""
  if chip == "gfx1100":
    return [(0, 2 * n + lane // 16, lane % 16) for n in range(8)]
  if chip == "gfx1201":
    return [(0, 8 * (lane // 16) + n, lane % 16) for n in range(8)]
  if m == 4:
    return [(lane // 4 % 4, lane // 16, lane % 4)] if result == "f64" else [(lane // 4, n, lane % 4) for n in range(4)]
  groups, own = 64 // m, m * m // 64
  if result == "f64":
    return [(0, 4 * n + lane // 16, lane % 16) for n in range(4)]
  return [(n // own, 4 * groups * (n % own // 4) + 4 * (lane // m) + n % 4, lane % m) for n in range(own * blocks)]


def number(kind: str, x: int, chip: str) -> int:
  """The bits of a small integer."""
  if kind == "f32":
    return int(np.float32(x).view(np.uint32))
  return int(np.float64(x).view(np.uint64)) if kind == "f64" else coded(kind, x, chip)


def registers(chip: str, kind: str, matrix: Array, places: Any, apart: bool = False) -> Array:
  """A matrix as the lanes have it: a row for each lane. `apart`: each of 16 bits has a register."""
  rows = []
  for lane in range(lanes(chip)):
    codes = [number(kind, int(matrix[at]), chip) for at in places(lane)]
    rows.append(codes if apart else words(codes, BITS[kind]))
  return np.array(rows, np.uint32)


@pytest.mark.parametrize("chip,name", list(all_products()))
def test_products_of_matrices(chip: str, name: str) -> None:
  result, m, k, blocks, kinds = shape(name)
  free, isa, move, count = np.random.default_rng(len(name)), Isa(chip), Words(chip), lanes(chip)
  low, high = (-2, 3) if kinds[0] in ("fp8", "bf8") or kinds[1] in ("fp8", "bf8") else (-4, 5)
  a, b = free.integers(low, high, (blocks, m, k)), free.integers(low, high, (blocks, m, k))
  c = free.integers(-9, 10, (blocks, m, m))
  apart = chip == "gfx1100" and result in ("f16", "bf16")

  def mine(lane: int) -> list[tuple[int, int, int]]:
    return c_of(chip, result, m, blocks, lane)

  def results(matrix: Array) -> Array:
    if result == "i32":
      return np.array([[int(matrix[at]) & 0xFFFFFFFF for at in mine(lane)] for lane in range(count)], np.uint32)
    return registers(chip, result, matrix, mine, apart)

  given = [registers(chip, kind, x, lambda lane: a_of(chip, m, k, blocks, lane)) for kind, x in zip(kinds, (a, b))]
  given.append(results(c))
  firsts, out = (16, 32, 48), np.zeros_like(given[2])
  body: list[Any] = [isa.v_lshlrev_b32(v[0], 2, v[0])]
  for n, (first, rows) in enumerate(zip(firsts, given)):
    body += move.addresses(s[4:5], 8 * n)
    for at in range(rows.shape[1]):
      body += [move.load(v[first + at], v[0], s[4:5], 4 * count * (at % 16))]
      body += (
        [*move.wait(), isa.s_add_u32(s[4], s[4], 4096), isa.s_addc_u32(s[5], s[5], 0)]
        if at % 16 == 15 and count == 64
        else []
      )
  spans = [f"v[{f}:{f + g.shape[1] - 1}]" if g.shape[1] > 1 else f"v{f}" for f, g in zip(firsts, given)]
  signs = " neg_lo:[1,1,0]" if "_iu" in name else ""
  body += [*move.wait(), f"{name} {spans[2]}, {spans[0]}, {spans[1]}, {spans[2]}{signs}"]
  body += ["s_nop 15", "s_nop 15"] if count == 64 else []
  body += move.addresses(s[4:5], 24)
  for at in range(out.shape[1]):
    body += [move.store(v[0], v[firsts[2] + at], s[4:5], 4 * count * (at % 16))]
    body += [isa.v_add_u32(v[0], 4096, v[0])] if at % 16 == 15 and count == 64 else []
  columns = [np.ascontiguousarray(g.T) for g in (*given, out)]
  launched(chip, [*body, isa.s_endpgm()], columns)
  total = np.einsum("bik,bjk->bij", a, b) + c
  assert (columns[-1].T == results(total)).all()


# *** within a lane ***


def halves(x: Array, kind: str) -> tuple[Array, Array]:
  """The two numbers of 16 bits of each word, as float64."""
  low, high = (x & 0xFFFF).astype(np.uint16), (x >> 16).astype(np.uint16)
  if kind == "f16":
    return low.view(np.float16).astype(np.float64), high.view(np.float16).astype(np.float64)
  first, second = ((h.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for h in (low, high))
  return first, second


def pairs(kind: str, seed: int, count: int) -> Array:
  """Two small integers as floats of 16 bits in a word."""
  x = np.random.default_rng(seed).integers(-30, 30, (count, 2)).astype(np.float32)
  bits = x.astype(np.float16).view(np.uint16) if kind == "f16" else (x.view(np.uint32) >> 16).astype(np.uint16)
  return np.ascontiguousarray(bits).view(np.uint32)[:, 0]


DOTS = [("gfx1100", "v_dot2_f32_f16", "f16"), ("gfx1100", "v_dot2_f32_bf16", "bf16"),
        ("gfx1201", "v_dot2_f32_f16", "f16"), ("gfx1201", "v_dot2_f32_bf16", "bf16"),
        ("gfx942", "v_dot2_f32_f16", "f16"), ("gfx950", "v_dot2_f32_f16", "f16")]  # fmt: skip


@pytest.mark.parametrize("chip,name,kind", DOTS)
def test_products_of_pairs(chip: str, name: str, kind: str) -> None:
  a, b = (pairs(kind, seed, lanes(chip)) for seed in range(2))
  c = np.random.default_rng(2).integers(-30, 30, lanes(chip)).astype(np.float32)
  found = applied(chip, lambda x, to: [getattr(Isa(chip), name)(to, *x)], [a, b, c], "f32")
  (a0, a1), (b0, b1) = halves(a, kind), halves(b, kind)
  assert (found == a0 * b0 + a1 * b1 + c).all()


def mixed_half(chip: str, name: str, how: dict[str, list[int]], x: list[Any], to: Any) -> list[Any]:
  return [Isa(chip).v_mov_b32(to, 0x12345678), getattr(Isa(chip), name)(to, *x, **how)]


@pytest.mark.parametrize("family", CHIPS)
def test_mixed_products(family: str) -> None:
  """FMA_MIX: each source a float32 or either half of a word; results of 32 bits, or in either half."""
  chip, isa = CHIPS[family], Isa(CHIPS[family])
  count = lanes(chip)
  a, b = pairs("f16", 1, count), np.random.default_rng(3).standard_normal(count).astype(np.float32)
  c = pairs("f16", 2, count)
  how = {"op_sel": [1, 0, 0], "op_sel_hi": [1, 0, 1]}  # the upper half of a, b whole, the lower half of c
  exact = exact_fma(np.float32)(halves(a, "f16")[1], b, halves(c, "f16")[0])
  found = applied(chip, lambda x, to: [isa.v_fma_mix_f32(to, *x, **how)], [a, b, c], "f32")
  assert same(found, exact).all()
  low = exact_fma(np.float16)(halves(a, "f16")[1], b, halves(c, "f16")[0]).view(np.uint16).astype(np.uint32)
  for part, shift in (("lo", 0), ("hi", 16)):
    before = partial(mixed_half, chip, f"v_fma_mix{part}_f16", how)
    kept = applied(chip, before, [a, b, c], "u32")
    assert (kept == (low << shift | 0x12345678 & ~(0xFFFF << shift))).all(), part


@pytest.mark.parametrize("name,count", [("add", 2), ("mul", 2), ("fma", 3), ("mov", 2)])
@pytest.mark.parametrize("swapped", [False, True])
def test_pairs_of_words(name: str, count: int, swapped: bool) -> None:
  """CDNA's packed float32: `swapped`, the upper half of the result has the first operand's lower one."""
  kind = "b32" if name == "mov" else "f32"
  given = [drawn("f32", n, 128).reshape(-1, 2) for n in range(count)]
  inputs = [np.ascontiguousarray(x).view(np.uint64)[:, 0] for x in given]
  how = {"op_sel": [1, *[0] * (count - 1)], "op_sel_hi": [0, *[1] * (count - 1)]} if swapped else {}
  packed = getattr(Isa("gfx942"), f"v_pk_{name}_{kind}")
  found = applied("gfx942", lambda x, to: [packed(to, *x, **how)], inputs, "u64")
  if swapped:
    given[0] = given[0][:, ::-1]
  functions: dict[str, Function] = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "fma": exact_fma(np.float32)}
  with np.errstate(all="ignore"):
    if name == "mov":  # the upper word is one of the second operand's
      wanted = np.stack([given[0][:, 0], given[1][:, 0]], 1)
    else:
      wanted = np.stack([functions[name](*(x[:, n] for x in given)) for n in range(2)], 1).astype(np.float32)
  assert same(found.view(np.float32).reshape(-1, 2), wanted).all()


def test_accumulators() -> None:
  x = drawn("u32", 0, 64)
  moves = ["v_accvgpr_write_b32 a3, v2", "v_accvgpr_read_b32 v20, a3"]
  assert (applied("gfx942", lambda r, to: moves, [x], "u32") == x).all()


FILES = [
  ("gfx90a", 8, 4, 4, 4), ("gfx90a", 32, 24, 24, 8), ("gfx942", 512, 256, 256, 256), ("gfx950", 16, 16, 16, 0),
  ("gfx908", 12, 4, 12, 12), ("gfx900", 16, 4, 16, 0),
]  # fmt: skip
"""Chip, registers that COMPUTE_PGM_RSRC1 gives, ACCUM_OFFSET in 3; vector registers and accumulators that there are:
from gfx90a on they are one file, before that two of one size."""


@pytest.mark.parametrize(("chip", "total", "offset", "vectors", "accumulators"), FILES)
def test_registers_that_the_descriptor_gives(
  chip: str, total: int, offset: int, vectors: int, accumulators: int
) -> None:  # fmt: skip
  granule = 4 if chip in ("gfx900", "gfx908") else 8
  descriptor = bytearray(Kernel.of(chip, "test", ["s_endpgm"]).descriptor(0))
  struct.pack_into("<I", descriptor, 44, offset // 4 - 1)
  descriptor[48] = descriptor[48] & 0xC0 | total // granule - 1

  def used(line: str) -> None:
    code = assemble(f"{line}\ns_endpgm", chip) + bytes(64)
    room = ctypes.create_string_buffer(code, len(code))
    place = ctypes.addressof(room)
    run(Launch(chip, place, 0, 0, bytes(descriptor), 0, 0, (1, 1, 1), (64, 1, 1), [(place, place + len(code))]))

  for kind, count, write in (("v", vectors, "v_mov_b32 v{}, 1"), ("a", accumulators, "v_accvgpr_write_b32 a{}, 1")):
    if kind == "v" or chip != "gfx900":
      if count:
        used(write.format(count - 1))
      if count < 256:
        with pytest.raises(Fault, match=f"{kind}{count} is more than the descriptor asks for: {count} registers"):
          used(write.format(count))


@pytest.mark.parametrize("size", [16, 32])
def test_bits_by_a_table(size: int) -> None:
  """gfx950's BITOP3: bit n of a table is the result's where the sources' bits are n."""
  inputs = [drawn(f"u{size}", n, 64) for n in range(3)]
  for lookup in (0x1B, 0xE8, 0x80):
    text = f"v_bitop3_b{size} v20, v2, v4, v6 bitop3:{lookup:#x}"
    found = applied("gfx950", partial(lambda line, x, to: [line], text), inputs, f"u{size}")
    wanted = np.zeros_like(inputs[0])
    for bit in range(size):
      index = sum((x >> bit & 1) << 2 - n for n, x in enumerate(inputs))
      wanted |= ((lookup >> index & 1) << bit).astype(wanted.dtype)
    assert (found == wanted).all()


def one(chip: str, name: str, kind: str, x: list[Any], to: Any) -> list[Any]:
  return [made(chip, name, to, x, (kind, kind))]


@pytest.mark.parametrize("family", CHIPS)
def test_sines(family: str) -> None:
  """Of a part of a turn: exact to some units of the last place of 1."""
  chip = CHIPS[family]
  x = np.random.default_rng(7).uniform(-4, 4, lanes(chip))
  x[:6] = [0, 0.25, 0.5, 0.75, 1, -0.125]
  for kind, error in (("f32", 2e-6), ("f16", 2e-3)):
    given = x.astype(np.float32 if kind == "f32" else np.float16)
    for name, function in (("sin", np.sin), ("cos", np.cos)):
      found = applied(chip, partial(one, chip, f"v_{name}_{kind}", kind), [given], kind)
      assert np.allclose(found.astype(np.float64), function(2 * np.pi * given.astype(np.float64)), atol=error), name


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_pairs_that_become_narrower(kind: str) -> None:
  """gfx950's conversions of two float32 to a word of halves, to nearest even."""
  a, b = drawn("f32", 0, 64), drawn("f32", 1, 64)
  a[:3] = [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11]
  found = applied("gfx950", lambda x, to: [f"v_cvt_pk_{kind}_f32 v20, v2, v4"], [a, b], "u32")
  with np.errstate(all="ignore"):
    if kind == "f16":
      wanted = np.stack([a, b], 1).astype(np.float16).astype(np.float64)
    else:
      words = np.stack([a, b], 1).view(np.uint32).astype(np.uint64)
      near = (words + 0x7FFF + (words >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32)
      wanted = np.where(np.isnan(np.stack([a, b], 1)), np.nan, near).astype(np.float64)
  assert same(np.stack(halves(found, kind), 1), wanted).all()


def test_three_of_the_newest() -> None:
  """gfx950's maximum and minimum of three, for which a NaN counts."""
  given = [drawn("f32", n, 64) for n in range(3)]
  for name, function in (("maximum3", np.maximum), ("minimum3", np.minimum)):
    found = applied("gfx950", partial(one, "gfx950", f"v_{name}_f32", "f32"), given, "f32")
    assert np.array_equal(found, function(function(given[0], given[1]), given[2]), equal_nan=True)
    pairs_of = [drawn("f16", n, 128).reshape(-1, 2) for n in range(3)]
    inputs = [np.ascontiguousarray(x).view(np.uint32)[:, 0] for x in pairs_of]
    both = applied("gfx950", partial(one, "gfx950", f"v_pk_{name}_f16", "u32"), inputs, "u32")
    wanted = function(function(pairs_of[0], pairs_of[1]), pairs_of[2])
    assert np.array_equal(both.view(np.float16).reshape(-1, 2), wanted, equal_nan=True)
