"""Waves of 64 lanes on RDNA 3 and RDNA 4, on the emulator of AMD's machine code: EXEC and VCC have 64 bits, masks are
pairs of registers, and lanes exchange words over the halves or within them. What is not known of them is refused."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import amd_code_machine as machine
import numpy as np
import pytest
from amd_code_machine import Words, launched

from gpu_model.amd_code.emulator import Fault, Launch, Unknown, run
from gpu_model.toolchain import compiler
from tiny_asm_amd import AsmError, Isa, Kernel, Label, exec_, exec_hi, exec_lo, null, s, v, vcc, vcc_hi, vcc_lo

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
CHIPS, LANES, FULL = ("gfx1100", "gfx1201"), 64, 0xFFFFFFFF
both = pytest.mark.parametrize("chip", CHIPS)
computed = partial(machine.computed, wave=LANES)
FREE = np.random.default_rng(64)
A, B = (FREE.integers(0, 1 << 32, LANES, np.uint32) for _ in range(2))
N = np.arange(LANES)


def settled(chip: str) -> list[Any]:
  """Until what the SALU wrote is there for the VALU, which read those scalars before."""
  return [Isa(chip).s_waitcnt_depctr(0xFFFE) if chip == "gfx1100" else Isa(chip).s_wait_alu(0xFFFE)]


def masked(chip: str, mask: int) -> list[Any]:
  """Only these lanes are on."""
  isa = Isa(chip)
  return [isa.s_mov_b32(exec_lo, mask & FULL), isa.s_mov_b32(exec_hi, mask >> 32)]


def shown(isa: Isa, *scalars: Any) -> list[Any]:
  """Scalars in the registers that a test sees."""
  return [isa.v_mov_b32(v[10 + n], one) for n, one in enumerate(scalars)]


@both
@pytest.mark.parametrize("mask", [vcc, s[20:21]], ids=str)
def test_compares_write_pairs(chip: str, mask: Any) -> None:
  isa = Isa(chip)
  low, high = (vcc_lo, vcc_hi) if mask == vcc else (s[20], s[21])
  body = [isa.v_cmp_lt_u32(mask, v[1], v[2]), isa.v_cndmask_b32(v[10], v[1], v[2], mask)]
  wait = [isa.s_wait_alu(0xF1FD)] if chip == "gfx1201" else []
  found = computed(chip, lambda: [*body, *wait, isa.v_mov_b32(v[11], low), isa.v_mov_b32(v[12], high)], [A, B], 3)
  less = A < B
  bits = sum(int(b) << n for n, b in enumerate(less))
  assert (found[0] == np.where(less, B, A)).all()
  assert (found[1] == bits & FULL).all() and (found[2] == bits >> 32).all()


@both
def test_exec_of_both_halves(chip: str) -> None:
  """V_CMPX leaves VCC as it is, and lanes of either half that are off keep their words."""
  isa, on = Isa(chip), 0x8000_0001_F0F0_0F0F
  body = [
    isa.v_mov_b32(v[10], 5),
    *masked(chip, on),
    isa.v_cmpx_ge_u32(v[1], v[2]),
    isa.v_mov_b32(v[10], 9),
    *masked(chip, (1 << 64) - 1),
  ]
  lanes_on = (on >> N.astype(np.uint64) & np.uint64(1)).astype(bool)
  assert (computed(chip, lambda: body, [A, B]) == np.where(lanes_on & (A >= B), 9, 5)).all()


@both
def test_carries_of_all_lanes(chip: str) -> None:
  isa = Isa(chip)
  body = [isa.v_add_co_u32(v[10], vcc, v[1], v[2]), isa.v_add_co_ci_u32(v[11], vcc, v[1], v[2], vcc)]
  found = computed(chip, lambda: body, [A, B], 2).astype(np.uint64)
  wide = [(int(a) << 32 | int(a)) + (int(b) << 32 | int(b)) for a, b in zip(A, B)]
  assert [int(h) << 32 | int(low) for low, h in zip(*found)] == [x & (1 << 64) - 1 for x in wide]


@both
def test_numbers_of_lanes(chip: str) -> None:
  isa = Isa(chip)
  counted = [isa.v_mbcnt_lo_u32_b32(v[10], -1, 0), isa.v_mbcnt_hi_u32_b32(v[10], -1, v[10])]
  assert (computed(chip, lambda: counted, []) == N).all()
  first = [
    *masked(chip, 1 << 45 | 1 << 63),
    isa.v_readfirstlane_b32(s[20], v[1]),
    isa.v_readlane_b32(s[21], v[1], 63),
    *masked(chip, (1 << 64) - 1),
    isa.v_mov_b32(v[12], 1),
    isa.v_writelane_b32(v[12], s[20], 62),
  ]
  found = computed(chip, lambda: [*first, *shown(isa, s[20], s[21])], [A], 3)
  assert (found[0] == A[45]).all() and (found[1] == A[63]).all()
  assert (found[2] == np.where(N == 62, A[45], 1)).all()


ROW, AT = N // 16 * 16, N % 16
ROWS: dict[str, tuple[dict[str, Any], Any]] = {
  "row_shr:1": ({"row_shr": 1}, np.where(AT >= 1, N - 1, -1)),
  "row_ror:5": ({"row_ror": 5}, ROW + (AT - 5) % 16),
  "row_mirror": ({"row_mirror": True}, ROW + 15 - AT),
  "row_share:3": ({"row_share": 3}, ROW + 3),
  "row_xmask:9": ({"row_xmask": 9}, N ^ 9),
  "quad_perm": ({"quad_perm": [3, 0, 2, 1]}, N // 4 * 4 + np.array([3, 0, 2, 1] * 16)),
  "dpp8": ({"dpp8": [7, 6, 5, 4, 3, 2, 1, 0]}, N ^ 7),
  "rows 1 and 2": ({"row_mirror": True, "row_mask": 6}, np.where((N > 15) & (N < 48), ROW + 15 - AT, -1)),
}


@both
@pytest.mark.parametrize("name", ROWS)
def test_dpp_of_four_rows(chip: str, name: str) -> None:
  """-1: the lane keeps what it had."""
  isa, (how, lane) = Isa(chip), ROWS[name]
  body = [isa.v_mov_b32(v[10], 77), isa.v_mov_b32_dpp(v[10], v[1], **how)]
  assert (computed(chip, lambda: body, [A]) == np.where(lane < 0, 77, A[lane])).all()


@both
def test_lanes_of_neighbouring_rows(chip: str) -> None:
  """V_PERMLANE16 takes words of the lane's row, V_PERMLANEX16 of the other one of its half."""
  isa, choice = Isa(chip), FREE.integers(0, 16, 16)
  low, high = (sum(int(c) << 4 * n for n, c in enumerate(part)) for part in (choice[:8], choice[8:]))
  body = [
    isa.s_mov_b32(s[20], low),
    isa.s_mov_b32(s[21], high),
    isa.v_mov_b32(v[10], 0),
    isa.v_mov_b32(v[11], 0),
    isa.v_permlane16_b32(v[10], v[1], s[20], s[21]),
    isa.v_permlanex16_b32(v[11], v[1], s[20], s[21]),
  ]
  found = computed(chip, lambda: body, [A], 2)
  at = N // 16 * 16 + choice[N % 16]
  assert (found[0] == A[at]).all() and (found[1] == A[at ^ 16]).all()


@both
def test_halves_change_places(chip: str) -> None:
  """V_PERMLANE64: lanes that are off are read, too; with 32 lanes it does nothing."""
  isa = Isa(chip)
  body = [
    isa.v_mov_b32(v[10], 3),
    *masked(chip, 0xFFFF_FFFF),
    isa.v_permlane64_b32(v[10], v[1]),
    *masked(chip, (1 << 64) - 1),
  ]
  assert (computed(chip, lambda: body, [A]) == np.where(N < 32, A[N ^ 32], 3)).all()
  narrow = [isa.v_mov_b32(v[10], 3), isa.v_permlane64_b32(v[10], v[1])]
  assert (machine.computed(chip, lambda: narrow, [A[:32]]) == 3).all()


def test_words_by_address() -> None:
  """DS_BPERMUTE and DS_PERMUTE are of the lanes of a half on RDNA 3, and of all on RDNA 4."""
  for chip in CHIPS:
    isa, move = Isa(chip), Words(chip)
    pull = [isa.v_lshlrev_b32(v[3], 2, v[2]), isa.ds_bpermute_b32(v[10], v[3], v[1]), *move.wait()]
    lane = B % 64 if chip == "gfx1201" else N // 32 * 32 + B % 32
    assert (computed(chip, partial(list, pull), [A, B % 64]) == A[lane]).all()
    push = [
      isa.v_xor_b32(v[3], 5, v[2]),
      isa.v_lshlrev_b32(v[3], 2, v[3]),
      isa.ds_permute_b32(v[10], v[3], v[1]),
      *move.wait(),
    ]
    to = FREE.permutation(64) ^ 5  # which lane gets the word of each; in a half, the last of two that come there
    wanted = np.zeros(64, np.uint32)
    for lane, place in enumerate(to ^ 5):
      wanted[lane // 32 * 32 + place % 32 if chip == "gfx1100" else place] = A[lane]
    assert (computed(chip, partial(list, push), [A, to.astype(np.uint32)]) == wanted).all()


@both
def test_masks_that_are_saved(chip: str) -> None:
  """S_AND_SAVEEXEC_B64 is of all lanes, _B32 of the lower half, whose SCC it gives."""
  isa, old, to = Isa(chip), 0x0FF0_1234_8000_FFFF, 0x00FF_FF00_0000_0000
  given = [isa.s_mov_b32(s[20 + n], to >> 32 * n & FULL) for n in range(2)]
  for wide in (True, False):
    name = getattr(isa, f"s_and_saveexec_b{64 if wide else 32}")
    made = [name(s[22:23], s[20:21])] if wide else [isa.s_mov_b32(s[23], 0), name(s[22], s[20])]
    body = [
      *given,
      *masked(chip, old),
      *made,
      isa.s_cselect_b32(s[24], 1, 0),
      isa.s_mov_b64(s[26:27], exec_),
      *masked(chip, (1 << 64) - 1),
      *shown(isa, s[22], s[23], s[24], s[26], s[27]),
    ]
    found = [int(x) for x in computed(chip, partial(list, body), [], 5)[:, 0]]
    now = old & to if wide else old >> 32 << 32 | old & to & FULL
    assert found == [
      old & FULL,
      old >> 32 if wide else 0,
      int(bool(old & to if wide else old & to & FULL)),
      now & FULL,
      now >> 32,
    ]


@both
@pytest.mark.parametrize("half", [0, 1])
def test_branches_see_both_halves(chip: str, half: int) -> None:
  isa, end = Isa(chip), Label("end")
  body = [
    *shown(isa, 1),
    isa.s_mov_b64(vcc, 0),
    isa.s_mov_b32((vcc_lo, vcc_hi)[half], 4),
    isa.s_cbranch_vccnz(end),
    *shown(isa, 0),
    end,
  ]
  assert (computed(chip, lambda: body, []) == 1).all()


@both
def test_two_waves_and_shared_memory(chip: str) -> None:
  """128 threads are two waves; private memory is of each lane."""
  isa, move = Isa(chip), Words(chip)
  out, given = np.zeros(128, np.uint32), FREE.integers(0, 1 << 32, 128, np.uint32)
  body = [
    *move.addresses(s[4:7]),
    isa.v_lshlrev_b32(v[1], 2, v[0]),
    move.load(v[2], v[1], s[6:7]),
    isa.v_sub_nc_u32(v[3], 508, v[1]),
    *move.wait(),
    isa.ds_store_b32(v[1], v[2]),
    *move.wait(),
    *move.barrier(),
    isa.ds_load_b32(v[4], v[3]),
    *move.wait(),
    isa.scratch_store_b32("off", v[4], "off", offset=4),
    isa.s_waitcnt_vscnt(null, 0) if chip == "gfx1100" else isa.s_wait_storecnt(0),
    isa.scratch_load_b32(v[5], "off", "off", offset=4),
    *move.wait(),
    move.store(v[1], v[5], s[4:5]),
    isa.s_endpgm(),
  ]
  launched(chip, body, [out, given], local=512, private=8, threads=128, wave=LANES)
  assert (out == given[::-1]).all()


KINDS: dict[str, tuple[int, Any]] = {"f32_16x16x16_f16": (2, np.float16), "i32_16x16x16_iu8": (1, np.int8)}


@pytest.mark.parametrize("kind", KINDS)
def test_products_on_rdna_3(kind: str) -> None:
  """All four rows of 16 lanes have A and B; C has in register r of lane n row 4 r + n / 16 and column n % 16."""
  isa, (size, dtype) = Isa("gfx1100"), KINDS[kind]
  a, b = (FREE.integers(-4, 5, (16, 16)).astype(dtype) for _ in range(2))
  count = 16 * size // 4
  rows = [np.ascontiguousarray(x[N % 16]).view(np.uint32).T for x in (a, b.T)]
  signed = {"neg_lo": [1, 1, 0]} if kind[0] == "i" else {}
  product = getattr(isa, f"v_wmma_{kind}")
  body = [
    *(isa.v_mov_b32(v[40 + n], 0) for n in range(4)),
    product(v[40:43], v[1:count], v[1 + count : 2 * count], v[40:43], **signed),
    *(isa.v_mov_b32(v[20 + n], v[40 + n]) for n in range(4)),
  ]
  body += [isa.v_mov_b32(v[10 + n], v[20 + n]) for n in range(4)]
  found = computed("gfx1100", lambda: body, [*rows[0], *rows[1]], 4)
  wanted = a.astype(np.int32) @ b.astype(np.int32)
  values = found.view(np.int32 if kind[0] == "i" else np.float32)
  assert all((values[r] == wanted[4 * r + N // 16, N % 16]).all() for r in range(4))


def test_what_is_refused() -> None:
  r3, r4 = Isa("gfx1100"), Isa("gfx1201")
  zeros = [r4.v_mov_b32(v[n], 0) for n in range(8, 24)]
  rows: list[tuple[str, list[Any], str]] = [
    ("gfx1201", [*zeros, r4.v_wmma_f32_16x16x16_f16(v[16:23], v[8:11], v[12:15], 0)], "waves of 64 lanes is not known"),
    ("gfx1100", [r3.v_cmp_lt_u32_e64(s[21], v[0], v[0])], "a mask of 64 lanes begins at s21"),
    ("gfx1100", [r3.v_cmp_lt_u32(vcc, v[0], v[0]), r3.v_cndmask_b32_e64(v[10], v[0], v[0], s[21])], "begins at s21"),
  ]
  for chip, body, message in rows:
    with pytest.raises(Fault, match=message):
      computed(chip, partial(list, [*body, *shown(Isa(chip), 0)]), [A])
  with pytest.raises(Fault, match=r"v_cmp_lt_u32_e64 s\[20:21\], v1, v9 at byte .* v9 is read"):
    computed("gfx1100", lambda: [r3.v_cmp_lt_u32(s[20:21], v[1], v[9]), *shown(r3, 0)], [A])
  with pytest.raises(Fault, match="it is of 64 lanes, and the wave has 32"):
    machine.computed("gfx1100", lambda: [r3.s_and_saveexec_b64(s[20:21], -1), *shown(r3, 0)], [])
  pair = r3.v_dual_mov_b32(v[2], v[0]) & r3.v_dual_mov_b32(v[3], v[1])
  with pytest.raises(AsmError, match="v_dual_mov_b32 .*: two operations at once are for waves of 32 lanes"):
    launched("gfx1100", [pair], [], wave=LANES)
  narrow = Kernel.of("gfx1100", "test", [pair, r3.s_endpgm()])
  code, wide = ctypes.create_string_buffer(narrow.machine_code), bytearray(narrow.descriptor(0))
  wide[57] &= ~4  # what no assembler would say
  place = ctypes.addressof(code)
  with pytest.raises(Fault, match="two operations at once are for waves"):
    run(Launch("gfx1100", place, 0, 0, bytes(wide), 0, 0, (1, 1, 1), (64, 1, 1), [(place, place + len(code))]))
  kernel = Kernel.of("gfx942", "test", [Isa("gfx942").s_endpgm()])
  descriptor = bytearray(kernel.descriptor(0))
  descriptor[57] |= 4
  with pytest.raises(Unknown, match="waves of 32 lanes on gfx942"):
    run(Launch("gfx942", 0, 0, 0, bytes(descriptor), 0, 0, (1, 1, 1), (64, 1, 1), []))


def forwarded(isa: Isa, before: int, wait: list[Any], behind: int) -> list[Any]:
  """A result from before a write of EXEC and one from behind it, with as many vector instructions in between."""
  move = isa.v_mov_b32(v[9], 1)
  return [
    isa.v_mov_b32(v[1], 1),
    *[move] * before,
    isa.s_mov_b64(exec_, -1),
    isa.v_mov_b32(v[2], 2),
    *wait,
    *[move] * behind,
    isa.v_add_nc_u32(v[10], v[1], v[2]),
  ]


def test_results_around_a_write_of_exec() -> None:
  """`llc -run-pass post-RA-hazard-rec` of LLVM 19 waits with fewer than 3 instructions before, and than 5 behind."""
  isa = Isa("gfx1100")
  for before, wait, behind in ((3, [], 0), (0, [], 5), (0, [isa.s_waitcnt_depctr(0xFFF)], 0)):
    assert (computed("gfx1100", partial(forwarded, isa, before, wait, behind), []) == 3).all()
  for before, behind in ((0, 0), (2, 4)):
    with pytest.raises(Fault, match=r"v1 and v2 are read, one written before EXEC was, .*va_vdst\(0\)"):
      computed("gfx1100", partial(forwarded, isa, before, [], behind), [])
  other = Isa("gfx1201")
  assert (computed("gfx1201", lambda: forwarded(other, 0, [], 0), []) == 3).all()


def rewritten(isa: Isa, between: list[Any], behind: list[Any]) -> list[Any]:
  """A mask that the VALU read, the SALU writes then, and that is read again."""
  return [
    isa.s_mov_b64(s[20:21], -1),
    isa.s_mov_b32(s[30], 0),
    isa.v_cndmask_b32_e64(v[9], 1, 2, s[20:21]),
    *between,
    isa.s_mov_b64(s[20:21], 0),
    *behind,
    isa.v_mov_b32(v[10], s[21]),
  ]


def test_masks_that_the_salu_writes() -> None:
  """`llc -run-pass post-RA-hazard-rec` of LLVM 19 waits behind the write, however far before the read is."""
  isa = Isa("gfx1100")
  for between, behind in (
    ([], [isa.s_waitcnt_depctr(0xFFFE)]),
    ([isa.s_waitcnt_depctr(0xFFFE)], []),
    ([isa.v_mov_b32(v[8], s[30])], []),
    ([isa.v_mov_b32(v[8], 0x12345678)], []),
  ):
    assert (computed("gfx1100", partial(rewritten, isa, between, behind), []) == 0).all()
  for between in ([], [isa.v_mov_b32(v[8], v[0])] * 8, [isa.s_nop(15)]):
    with pytest.raises(Fault, match=r"s21 is read, which the VALU read as a mask .*sa_sdst\(0\)"):
      computed("gfx1100", partial(rewritten, isa, between, []), [])
