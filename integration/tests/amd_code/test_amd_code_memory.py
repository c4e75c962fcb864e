"""Accesses to memory on the emulator of AMD's machine code, on RDNA 3, RDNA 4 and CDNA 3: flat ones, and those by a
buffer's descriptor with what is outside of it, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from amd_code_machine import ZERO, descriptor, flat_address, lanes, launched, named, range_of, started

from gpu_model.amd_code.emulator import Fault, Unknown
from gpu_model.toolchain import compiler
from tiny_asm_amd import s, v

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
CHIPS = ("gfx1100", "gfx1201", "gfx942")
Array = Any
FULL = (1 << 32) - 1
FREE = np.random.default_rng(3)


# *** sizes: names of RDNA and of CDNA, bytes, type, which half is written ***

LOADS: list[tuple[str, str, int, str, int]] = [
  ("load_u8", "load_ubyte", 1, "u1", 0), ("load_i8", "load_sbyte", 1, "i1", 0), ("load_u16", "load_ushort", 2, "u2", 0),
  ("load_i16", "load_sshort", 2, "i2", 0), ("load_b32", "load_dword", 4, "u4", 0),
  ("load_b64", "load_dwordx2", 8, "u4", 0), ("load_b96", "load_dwordx3", 12, "u4", 0),
  ("load_b128", "load_dwordx4", 16, "u4", 0), ("load_d16_u8", "load_ubyte_d16", 1, "u1", 1),
  ("load_d16_i8", "load_sbyte_d16", 1, "i1", 1), ("load_d16_b16", "load_short_d16", 2, "u2", 1),
  ("load_d16_hi_u8", "load_ubyte_d16_hi", 1, "u1", 2), ("load_d16_hi_i8", "load_sbyte_d16_hi", 1, "i1", 2),
  ("load_d16_hi_b16", "load_short_d16_hi", 2, "u2", 2),
]  # fmt: skip
STORES: list[tuple[str, str, int, int]] = [
  ("store_b8", "store_byte", 1, 0), ("store_b16", "store_short", 2, 0), ("store_b32", "store_dword", 4, 0),
  ("store_b64", "store_dwordx2", 8, 0), ("store_b96", "store_dwordx3", 12, 0), ("store_b128", "store_dwordx4", 16, 0),
  ("store_d16_hi_b8", "store_byte_d16_hi", 1, 16), ("store_d16_hi_b16", "store_short_d16_hi", 2, 16),
]  # fmt: skip
OLD = 0x89ABCDEF


def of_chip(chip: str, operands: str) -> str:
  return operands.replace("], 0", f"], {ZERO[chip]}")


@pytest.mark.parametrize("kind", ["flat", "buffer"])
@pytest.mark.parametrize("row", LOADS, ids=lambda row: row[0])
@pytest.mark.parametrize("chip", CHIPS)
def test_loads(chip: str, row: tuple[str, str, int, str, int], kind: str) -> None:
  """What each lane finds at 16 times its number + 4."""
  isa, move, body = started(chip)
  rdna, cdna, size, dtype, half = row
  count = max(1, size // 4)
  given = FREE.integers(0, 256, 16 * lanes(chip) + 32, np.uint8)
  out = np.zeros((lanes(chip), 4), np.uint32)
  body += [isa.v_mov_b32(v[20 + n], OLD) for n in range(count)]
  load = named(isa, f"{kind}_{rdna}", f"{kind}_{cdna}")
  if kind == "flat":
    body += [*flat_address(chip), load(range_of(20, count), v[2:3], offset=4)]
  else:
    body += [
      *descriptor(chip, given.nbytes),
      load(range_of(20, count), v[0], s[8:11], ZERO[chip], offen=True, offset=4),
    ]
  body += [*move.wait(), *(move.store(v[0], v[20 + n], s[6:7], 4 * n) for n in range(count)), isa.s_endpgm()]
  launched(chip, body, [given, out])
  for lane in range(lanes(chip)):
    place = given[16 * lane + 4 :][:size]
    if size > 4:
      assert (out[lane, :count] == place.view(np.uint32)).all()
      continue
    value = int(place.view(dtype)[0]) & (FULL if half == 0 else 0xFFFF)
    wanted = value if half == 0 else OLD & 0xFFFF0000 | value if half == 1 else OLD & 0xFFFF | value << 16
    assert int(out[lane, 0]) == wanted


@pytest.mark.parametrize("kind", ["flat", "buffer"])
@pytest.mark.parametrize("row", STORES, ids=lambda row: row[0])
@pytest.mark.parametrize("chip", CHIPS)
def test_stores(chip: str, row: tuple[str, str, int, int], kind: str) -> None:
  isa, move, body = started(chip)
  rdna, cdna, size, shift = row
  count = max(1, size // 4)
  given = FREE.integers(0, 1 << 32, (lanes(chip), 4), np.uint32)
  out = np.zeros((lanes(chip) + 1, 16), np.uint8)
  body += [move.load(v[20 + n], v[0], s[6:7], 4 * n) for n in range(count)]
  body += move.wait()
  store = named(isa, f"{kind}_{rdna}", f"{kind}_{cdna}")
  if kind == "flat":
    body += [*flat_address(chip), store(v[2:3], range_of(20, count), offset=4)]
  else:
    body += [*descriptor(chip, out.nbytes), store(range_of(20, count), v[0], s[8:11], ZERO[chip], offen=True, offset=4)]
  launched(chip, [*body, isa.s_endpgm()], [out, given])
  wanted = np.zeros_like(out).reshape(-1)
  for lane in range(lanes(chip)):
    data = (given[lane] >> np.uint32(shift)).view(np.uint8) if size < 4 else given[lane].view(np.uint8)
    wanted[16 * lane + 4 :][:size] = data[:size]
  assert (out.reshape(-1) == wanted).all()


# *** flat addresses ***


def add(chip: str, to: str, a: str, b: str) -> str:
  return f"v_add_{'' if chip == 'gfx942' else 'nc_'}u32 {to}, {a}, {b}"


def waits(chip: str) -> tuple[list[str], list[str]]:
  """For what global memory gives, and for what shared memory does."""
  if chip == "gfx1201":
    return ["s_wait_loadcnt 0"], ["s_wait_dscnt 0"]
  return ["s_waitcnt vmcnt(0)"], ["s_waitcnt lgkmcnt(0)"]


WORD = {"gfx1100": "b32", "gfx1201": "b32", "gfx942": "dword"}


@pytest.mark.parametrize("which", ["shared", "private"])
@pytest.mark.parametrize("chip", CHIPS)
def test_flat_windows(chip: str, which: str) -> None:
  """Numbers go to shared or private memory by flat stores, and come back by flat loads and by its own."""
  _, move, body = started(chip)
  out = np.zeros((2, 4 * lanes(chip)), np.uint32)
  body += [f"s_mov_b64 s[12:13], src_{which}_base", "v_mov_b32 v5, s13", add(chip, "v6", "7", "v0"), "v_mov_b32 v7, 8"]
  body += [f"v_mov_b32 v4, {'v0' if which == 'shared' else 'v7'}", f"flat_store_{WORD[chip]} v[4:5], v6"]
  body += ["s_waitcnt_vscnt null, 0" if chip == "gfx1100" else "s_wait_storecnt 0" if chip == "gfx1201" else "s_nop 0"]
  own = "ds_read_b32 v11, v0" if chip == "gfx942" else "ds_load_b32 v11, v0"
  own = own if which == "shared" else f"scratch_load_{WORD[chip]} v11, v7, off"
  body += [*move.wait(), f"flat_load_{WORD[chip]} v10, v[4:5]", own, *move.wait()]
  body += [move.store(v[0], v[10], s[4:5]), move.store(v[0], v[11], s[6:7]), "s_endpgm"]
  launched(chip, body, [out[0], out[1]], local=16 * lanes(chip), private=64)
  assert (out[:, ::4] == 16 * np.arange(lanes(chip)) + 7).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_flat_loads_are_waited_for_by_both_counters(chip: str) -> None:
  _, move, body = started(chip)
  given, out = np.arange(4 * lanes(chip), dtype=np.uint32), np.zeros(4 * lanes(chip), np.uint32)
  body += [*flat_address(chip), f"flat_load_{WORD[chip]} v10, v[2:3]"]
  end = [move.store(v[0], v[10], s[6:7]), "s_endpgm"]
  memory, shared = waits(chip)
  launched(chip, [*body, *memory, *shared, *end], [given, out])
  assert (out[::4] == given[::4]).all()
  for less in (memory, shared, []):
    with pytest.raises(Fault, match="v10 is used before what it is loaded with was waited for"):
      launched(chip, [*body, *less, *end], [given, out])


@pytest.mark.parametrize("chip", CHIPS)
def test_flat_addresses_that_nothing_is_at(chip: str) -> None:
  out = np.zeros(4 * lanes(chip), np.uint32)
  for base, offset, message in (("shared", 64, "4 bytes at 64 of shared"), ("private", 16, "4 bytes at 16 of private")):
    _, _, body = started(chip)
    body += [f"s_mov_b64 s[12:13], src_{base}_base", "v_mov_b32 v5, s13", f"v_mov_b32 v4, {offset}"]
    body += [f"flat_load_{WORD[chip]} v10, v[4:5]", "s_endpgm"]
    with pytest.raises(Fault, match=message):
      launched(chip, body, [out, out], local=64, private=16)
  with pytest.raises(Fault, match="4 bytes at 0x8 are in no buffer"):
    launched(chip, ["v_mov_b32 v4, 8", "v_mov_b32 v5, 0", f"flat_load_{WORD[chip]} v10, v[4:5]", "s_endpgm"], [out])
  with pytest.raises(Fault, match="the window of shared memory is read as a word"):
    launched(chip, ["s_mov_b32 s4, src_shared_base", "s_endpgm"], [out])


# *** what is outside of a buffer ***

Range = tuple[str, int, int, int | None, str, Callable[[int, int], bool]]
"""The chip, NUM_RECORDS, the stride, the last word of the descriptor, operands with an index in v6 and an offset in v7,
and whether a word at an index and an offset is inside."""


def ranges() -> Iterator[Range]:
  for chip in CHIPS:
    yield chip, 40, 0, None, "v7, s[8:11], 0 offen", lambda i, o: o + 4 <= 40
    yield chip, 42, 0, None, "v7, s[8:11], 0 offen offset:4", lambda i, o: o + 8 <= 42
  for chip in CHIPS[:2]:
    yield chip, 5, 16, 1 << 28, "v6, s[8:11], 0 idxen", lambda i, o: i < 5
    yield chip, 5, 16, 1 << 28, "v[6:7], s[8:11], 0 idxen offen", lambda i, o: i < 5
    yield chip, 5, 12, 0, "v[6:7], s[8:11], 0 idxen offen", lambda i, o: i < 5 and o + 4 <= 12
    yield chip, 0, 0, 2 << 28, "v7, s[8:11], 0 offen", lambda i, o: False
    yield chip, 1, 0, 2 << 28, "v7, s[8:11], 0 offen", lambda i, o: True
  yield "gfx942", 5, 16, None, "v[6:7], s[8:11], 0 idxen offen", lambda i, o: i < 5
  yield "gfx942", 40, 16, None, "v7, s[8:11], 0 offen", lambda i, o: o + 4 <= 40


@pytest.mark.parametrize("n,row", list(enumerate(ranges())))
def test_what_is_outside_of_a_buffer(n: int, row: Range) -> None:
  """It reads as zero, is not written, and an atomic operation finds zero there."""
  chip, records, stride, last, operands, inside = row
  operands = of_chip(chip, operands)
  index, offset = np.arange(lanes(chip)) % 8, np.arange(lanes(chip)) // 8 * 4
  indexed, more = "idxen" in operands, 4 if "offset:4" in operands else 0
  if "offen" in operands and not indexed:
    offset = np.arange(lanes(chip)) * 4
  elif "offen" not in operands:
    offset = offset * 0
  place = (index * stride if indexed else 0) + offset + more
  given = FREE.integers(1, 1 << 31, 128, np.uint32)
  out = np.zeros((3, 4 * lanes(chip)), np.uint32)
  _, move, body = started(chip)
  fill = FREE.integers(1, 1 << 31, (2, 4 * lanes(chip)), np.uint32)
  fill[0, ::4], fill[1, ::4] = index, offset
  for k in range(2):
    body += [*move.addresses(s[12:13], 16 + 8 * k), move.load(v[6 + k], v[0], s[12:13])]
  body += [*move.wait(), *descriptor(chip, records, stride, last)]
  word, glc = WORD[chip], {"gfx1100": "glc", "gfx1201": "th:TH_ATOMIC_RETURN", "gfx942": "sc0"}[chip]
  body += [f"buffer_load_{word} v10, {operands}", "v_mov_b32 v11, 1", *move.wait(),
           f"buffer_store_{word} v11, {operands}", move.store(v[0], v[10], s[6:7])]  # fmt: skip
  launched(chip, [*body, "s_endpgm"], [before := given.copy(), out[0], *fill])
  wanted, kept = given.copy(), [inside(int(i), int(o)) for i, o in zip(index, offset)]
  for at, there in zip(place, kept):
    wanted[at // 4] = 1 if there else wanted[at // 4]
  assert (out[0, ::4] == np.where(kept, given[place // 4], 0)).all() and (before == wanted).all()
  if "offen" in operands and not indexed:  # no two lanes at one place
    add = "buffer_atomic_add_u32" if chip != "gfx942" else "buffer_atomic_add"
    atomic = [f"{add} v11, {operands} {glc}", *move.wait(), move.store(v[0], v[11], s[6:7]), "s_endpgm"]
    launched(chip, [*body[:-4], "v_mov_b32 v11, 1", *atomic], [given, out[1], *fill])
    assert (out[1, ::4] == np.where(kept, before_of(wanted, given, place, kept), 0)).all()


def before_of(wanted: Array, given: Array, place: Array, kept: list[bool]) -> Array:
  """What was there before one was added."""
  return given[place // 4] - np.where(kept, 1, 0).astype(np.uint32)


@pytest.mark.parametrize("chip", CHIPS)
def test_words_of_a_buffer_are_outside_one_by_one(chip: str) -> None:
  given, out = np.arange(1, 5, dtype=np.uint32), np.zeros((4, 4 * lanes(chip)), np.uint32)
  _, move, body = started(chip)
  body += descriptor(chip, 10)
  body += [
    f"buffer_load_{'b128' if chip != 'gfx942' else 'dwordx4'} v[20:23], off, s[8:11], {ZERO[chip]}",
    *move.wait(),
  ]
  body += [move.store(v[0], v[20 + n], s[6:7], 4 * n) for n in range(4)]
  launched(chip, [*body, "s_endpgm"], [given, out])
  assert (out[0].reshape(-1, 4) == [1, 2, 0, 0]).all()


REFUSED = {
  "a scalar offset": ([], 40, 0, "v7, s[8:11], s14 offen", "manuals do not agree"),
  "an image": (["s_bitset1_b32 s11, 31"], 40, 0, "v7, s[8:11], 0 offen", "a descriptor of type 2"),
  "swizzled": (["s_bitset1_b32 s9, 31"], 40, 0, "v7, s[8:11], 0 offen", "whose elements are swizzled"),
  "lanes": (["s_bitset1_b32 s11, 23"], 40, 0, "v7, s[8:11], 0 offen", "that add the lane's number"),
  "no memory": ([], 4000, 0, "v7, s[8:11], 0 offen offset:2000", "4 bytes at .* are in no buffer"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("chip", CHIPS)
def test_what_buffers_are_not_known_for(chip: str, name: str) -> None:
  change, records, stride, operands, message = REFUSED[name]
  operands = of_chip(chip, operands)
  given = np.zeros(128, np.uint32)
  _, _, body = started(chip)
  body += [*descriptor(chip, records, stride), "s_mov_b32 s14, 16", "v_mov_b32 v7, 28", *change]
  with pytest.raises(Fault, match=message):
    launched(chip, [*body, f"buffer_load_{WORD[chip]} v10, {operands}", "s_endpgm"], [given, given])


@pytest.mark.parametrize("text,chip", [
  ("image_load v[0:3], v[4:5], s[8:15] dmask:0xf dim:SQ_RSRC_IMG_2D", "gfx1100"),
  ("tbuffer_load_format_x v1, off, s[8:11], 0 format:22", "gfx1100"),
  ("buffer_load_format_x v1, off, s[8:11], null", "gfx1201"), ("ds_gws_barrier v1 gds", "gfx1100"),
  ("buffer_load_dword off, s[8:11], 0 lds", "gfx942"), ("ds_append v1", "gfx1201"),
])  # fmt: skip
def test_what_is_not_known_is_said_by_name(text: str, chip: str) -> None:
  with pytest.raises(Unknown, match=f"{text.split()[0]} .*is not known here"):
    launched(chip, [text, "s_endpgm"], [np.zeros(4, np.uint32)])
