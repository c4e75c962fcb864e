"""Sparse products of matrices on the emulator of AMD's machine code, against NumPy: A has two in four elements, and a
register says which. Which elements a lane has is written down here once more, from the ISA manuals' rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amd_code_machine import Words, lanes, launched

from gpu_model.amd_code.emulator import Fault
from gpu_model.toolchain import compiler
from tiny_asm_amd import Isa, s, v

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
Array = Any
NARROW = {"f16": 16, "bf16": 16, "i8": 8, "iu8": 8, "iu4": 4, "fp8": 8, "bf8": 8}
PRODUCTS: list[Any] = [
  ("gfx1201", "v_swmmac_f32_16x16x32_f16", 2), ("gfx1201", "v_swmmac_f32_16x16x32_bf16", 2),
  ("gfx1201", "v_swmmac_f16_16x16x32_f16", 2), ("gfx1201", "v_swmmac_bf16_16x16x32_bf16", 2),
  ("gfx1201", "v_swmmac_i32_16x16x32_iu8", 2), ("gfx1201", "v_swmmac_i32_16x16x32_iu4", 2),
  ("gfx1201", "v_swmmac_i32_16x16x64_iu4", 1), ("gfx1201", "v_swmmac_f32_16x16x32_fp8_fp8", 2),
  ("gfx1201", "v_swmmac_f32_16x16x32_bf8_fp8", 2), ("gfx1201", "v_swmmac_f32_16x16x32_fp8_bf8", 2),
  ("gfx1201", "v_swmmac_f32_16x16x32_bf8_bf8", 2), ("gfx942", "v_smfmac_f32_16x16x32_f16", 4),
  ("gfx942", "v_smfmac_f32_32x32x16_f16", 4), ("gfx942", "v_smfmac_f32_16x16x32_bf16", 4),
  ("gfx942", "v_smfmac_f32_32x32x16_bf16", 4), ("gfx942", "v_smfmac_i32_16x16x64_i8", 2),
  ("gfx942", "v_smfmac_i32_32x32x32_i8", 2), ("gfx942", "v_smfmac_f32_16x16x64_fp8_fp8", 2),
  ("gfx942", "v_smfmac_f32_16x16x64_bf8_fp8", 2), ("gfx942", "v_smfmac_f32_32x32x32_fp8_bf8", 2),
  ("gfx942", "v_smfmac_f32_32x32x32_bf8_bf8", 2), ("gfx950", "v_smfmac_f32_16x16x64_f16", 2),
  ("gfx950", "v_smfmac_f32_32x32x32_bf16", 2), ("gfx950", "v_smfmac_i32_16x16x128_i8", 1),
  ("gfx950", "v_smfmac_f32_32x32x64_bf8_fp8", 1),
  *[pytest.param("gfx950", f"v_smfmac_{name}", sets, marks=pytest.mark.nightly) for name, sets in (
    ("f32_16x16x64_bf16", 2), ("f32_32x32x32_f16", 2), ("i32_32x32x64_i8", 1), ("f32_16x16x128_fp8_fp8", 1),
    ("f32_16x16x128_fp8_bf8", 1), ("f32_16x16x128_bf8_fp8", 1), ("f32_16x16x128_bf8_bf8", 1),
    ("f32_32x32x64_fp8_fp8", 1), ("f32_32x32x64_fp8_bf8", 1), ("f32_32x32x64_bf8_bf8", 1),
  )],
]  # fmt: skip
"""The chip, the instruction, and how many sets of places are in a register."""


def coded(kind: str, x: int, chip: str) -> int:
  """The bits of a small integer; CDNA 3's bytes have another bias, and no -0."""
  if kind == "f16":
    return int(np.float16(x).view(np.uint16))
  if kind == "bf16":
    return int(np.float32(x).view(np.uint32)) >> 16
  if kind not in ("fp8", "bf8"):
    return x & (1 << NARROW[kind]) - 1
  if x == 0:
    return 0
  size, bias = {"fp8": (3, 7), "bf8": (2, 15)}[kind]
  power = abs(x).bit_length() - 1
  fraction = abs(x) - (1 << power) << size >> power
  assert abs(x) == (1 << power) + (fraction << power >> size)
  return (x < 0) << 7 | power + bias + (chip == "gfx942") << size | fraction


def words(values: list[int], bits: int) -> list[int]:
  """Numbers side by side in registers of 32 bits."""
  whole = sum(x << bits * n for n, x in enumerate(values))
  return [whole >> 32 * n & 0xFFFFFFFF for n in range(max(1, len(values) * bits // 32))]


def rows_of(chip: str, m: int, result: str, lane: int) -> list[tuple[int, int]]:
  """(row, column) of each of a lane's results, in order."""
  if chip == "gfx1201":
    return [(8 * (lane // 16) + n, lane % 16) for n in range(8)]
  groups = 64 // m
  return [(4 * groups * (n // 4) + 4 * (lane // m) + n % 4, lane % m) for n in range(m * m // 64)]


def operands(chip: str, name: str, key: int, sets: int) -> tuple[list[Array], Array, tuple[int, int, int]]:
  """Registers of A, B, C and the places; what the product is; how many of A, B and C there are."""
  free = np.random.default_rng(len(name) + key)
  _, result, sizes, *kinds = name[2:].split("_")
  m, _, depth = map(int, sizes.split("x"))
  kinds = (kinds * 2)[:2]
  low, high = (0, 4) if "u" in kinds[0] or kinds[0][1:] == "f8" else (-4, 5)
  low, high = (-2, 3) if kinds[0] in ("fp8", "bf8") or kinds[1] in ("fp8", "bf8") else (low, high)
  count, groups = lanes(chip), lanes(chip) // m
  each = depth // groups
  a, b, c = (free.integers(low, high, shape) for shape in ((m, depth // 2), (depth, m), (m, m)))
  where = np.sort(free.permuted(np.tile(np.arange(4), (m, depth // 4, 1)), axis=2)[:, :, :2], axis=2).reshape(m, -1)
  dense = np.zeros((m, depth), np.int64)
  for row in range(m):
    for k in range(depth // 2):
      dense[row, k // 2 * 4 + where[row, k]] = a[row, k]
  registers: list[list[list[int]]] = [[], [], [], []]
  for lane in range(count):
    row, group = lane % m, lane // m
    mine = slice(group * each // 2, (group + 1) * each // 2)
    registers[0].append(words([coded(kinds[0], int(x), chip) for x in a[row, mine]], NARROW[kinds[0]]))
    column = b[group * each : (group + 1) * each, row]
    registers[1].append(words([coded(kinds[1], int(x), chip) for x in column], NARROW[kinds[1]]))
    own = [int(c[at]) for at in rows_of(chip, m, result, lane)]
    if result in NARROW:
      registers[2].append(words([coded(result, x, chip) for x in own], 16))
    else:
      registers[2].append([x & 0xFFFFFFFF if result == "i32" else int(np.float32(x).view(np.uint32)) for x in own])
    places = sum(int(p) << 2 * n for n, p in enumerate(where[row, mine]))
    others = int(free.integers(0, 1 << 32)) if sets > 1 else 0
    mask = (1 << each) - 1 << key * each
    registers[3].append([others & ~mask & 0xFFFFFFFF | places << key * each])
  given = [np.array(r, np.uint32) for r in registers]
  return given, dense @ b + c, (given[0].shape[1], given[1].shape[1], given[2].shape[1])


def multiplied(chip: str, name: str, key: int, given: list[Array]) -> Array:
  """The results' registers, a row for each lane."""
  isa, move, count = Isa(chip), Words(chip), lanes(chip)
  firsts, out = (16, 32, 48, 80), np.zeros_like(given[2])
  body: list[Any] = [isa.v_lshlrev_b32(v[0], 2, v[0])]
  for n, (first, rows) in enumerate(zip(firsts, given)):
    body += [*move.addresses(s[4:5], 8 * n)]
    body += [move.load(v[first + k], v[0], s[4:5], 4 * count * k) for k in range(rows.shape[1])]
  spans = [f"v[{f}:{f + g.shape[1] - 1}]" if g.shape[1] > 1 else f"v{f}" for f, g in zip(firsts, given)]
  more = f" index_key:{key}" if chip == "gfx1201" and key else f" abid:{key}" if key else ""
  signs = " neg_lo:[1,1]" if "_iu" in name else ""
  body += [*move.wait(), f"{name} {spans[2]}, {spans[0]}, {spans[1]}, {spans[3]}{more}{signs}"]
  body += ["s_nop 15"] if lanes(chip) == 64 else []
  body += [*move.addresses(s[4:5], 32)]
  body += [move.store(v[0], v[firsts[2] + k], s[4:5], 4 * count * k) for k in range(out.shape[1])]
  columns = [np.ascontiguousarray(g.T) for g in (*given, out)]
  launched(chip, [*body, isa.s_endpgm()], columns)
  return columns[-1].T


@pytest.mark.parametrize("chip,name,sets", PRODUCTS)
def test_sparse_products(chip: str, name: str, sets: int) -> None:
  """Each set of places, among random ones."""
  _, result, sizes, *_ = name[2:].split("_")
  for key in range(sets):
    given, wanted, _ = operands(chip, name, key, sets)
    found = multiplied(chip, name, key, given)
    for lane in range(lanes(chip)):
      row = np.ascontiguousarray(found[lane])
      if result in ("f16", "bf16"):
        halves = row.view(np.uint16)
        values: Array = (
          halves.view(np.float16) if result == "f16" else (halves.astype(np.uint32) << 16).view(np.float32)
        )
      else:
        values = row.view(np.int32 if result == "i32" else np.float32)
      for x, at in zip(values, rows_of(chip, int(sizes.split("x")[0]), result, lane)):
        assert float(x) == float(wanted[at]), (key, lane, at)


def test_the_set_of_places_matters() -> None:
  chip, name, sets = PRODUCTS[0]
  given, _, _ = operands(chip, name, 0, sets)
  assert not (multiplied(chip, name, 0, given) == multiplied(chip, name, 1, given)).all()


def test_places_that_the_product_before_wrote() -> None:
  """As A and B: LLVM's backend has another vector instruction in between."""
  isa, out = Isa("gfx1201"), np.zeros(4, np.uint32)
  zeros = [isa.v_mov_b32(v[n], 0) for n in range(1, 64)]
  first = "v_wmma_f32_16x16x16_f16 v[24:31], v[8:11], v[12:15], 0"
  second = "v_swmmac_f32_16x16x32_f16 v[32:39], v[8:11], v[40:47], v24"
  launched("gfx1201", [*zeros, first, "v_nop", second, "s_endpgm"], [out])
  with pytest.raises(Fault, match="v24 is of the result of the product of matrices right before"):
    launched("gfx1201", [*zeros, first, second, "s_endpgm"], [out])


@pytest.mark.parametrize("chip", ["gfx942"])
def test_the_first_set_with_cbsz(chip: str) -> None:
  """CDNA 3: CBSZ other than 0 takes the first set of places whatever ABID says."""
  _, name, sets = PRODUCTS[11]
  given, _, _ = operands(chip, name, 0, sets)
  isa, move, count = Isa(chip), Words(chip), lanes(chip)
  found = []
  for more in ("", " cbsz:1 abid:3"):
    body: list[Any] = [isa.v_lshlrev_b32(v[0], 2, v[0])]
    for n, (first, rows) in enumerate(zip((16, 32, 48, 80), given)):
      body += move.addresses(s[4:5], 8 * n)
      body += [move.load(v[first + k], v[0], s[4:5], 4 * count * k) for k in range(rows.shape[1])]
    body += [*move.wait(), f"{name} v[48:51], v[16:17], v[32:35], v80{more}", "s_nop 15", *move.addresses(s[4:5], 32)]
    columns = [np.ascontiguousarray(g.T) for g in (*given, np.zeros((count, 1), np.uint32))]
    launched(chip, [*body, move.store(v[0], v[48], s[4:5]), "s_endpgm"], columns)
    found.append(columns[-1])
  assert (found[0] == found[1]).all() and found[0].any()
