"""Instructions as Python functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tiny_asm_amd import (
  AsmError,
  Instruction,
  Isa,
  Kernel,
  Label,
  cdna3,
  code,
  code_object,
  decode,
  disassemble,
  null,
  parse,
  rdna3,
  rdna4,
  s,
  sext,
  v,
  vcc,
  vcc_lo,
)

R3, R4, C3 = Isa("gfx1100"), Isa("gfx1201"), Isa("gfx942")
# function → the text of the same instruction, in the assembler's words
SAME: dict[str, tuple[Callable[[], Instruction], str]] = {
  "constant": (lambda: R3.v_add_f32(v[0], v[1], 2.0), "v_add_f32_e64 v0, v1, 2.0"),
  "short": (lambda: R3.v_add_f32(v[0], 2.0, v[1]), "v_add_f32_e32 v0, 2.0, v1"),
  "literal": (lambda: R3.v_add_f32(v[0], 3.5, v[1]), "v_add_f32_e32 v0, 0x40600000, v1"),
  "integer literal": (lambda: R3.s_mov_b32(s[4], 0xDEADBEEF), "s_mov_b32 s4, 0xdeadbeef"),
  "negative": (lambda: R3.s_add_u32(s[4], s[5], -7), "s_add_u32 s4, s5, -7"),
  "signs": (lambda: R3.v_add_f32(v[0], -abs(v[1]), -s[3]), "v_add_f32_e64 v0, -|v1|, -s3"),
  "modifiers": (lambda: R3.v_mul_f32_e64(v[0], v[1], v[2], clamp=True, mul=2), "v_mul_f32_e64 v0, v1, v2 clamp mul:2"),
  "several": (lambda: R3.s_load_b64(s[4:5], s[0:1], 16), "s_load_b64 s[4:5], s[0:1], 0x10"),
  "offset": (lambda: R3.global_load_b32(v[1], v[0], s[4:5], offset=-8), "global_load_b32 v1, v0, s[4:5] offset:-8"),
  "no address": (lambda: R3.global_load_b32(v[1], v[2:3], "off"), "global_load_b32 v1, v[2:3], off"),
  "cache": (lambda: R3.global_load_b32(v[1], v[0], s[4:5], glc=True), "global_load_b32 v1, v0, s[4:5] glc"),
  "shared": (lambda: R3.ds_store_b32(v[0], v[1], offset=4), "ds_store_b32 v0, v1 offset:4"),
  "waits": (lambda: R3.s_waitcnt(vmcnt=0, lgkmcnt=1), "s_waitcnt vmcnt(0) lgkmcnt(1)"),
  "rows": (lambda: R3.v_mov_b32(v[0], v[1], row_shl=1, bound_ctrl=1), "v_mov_b32_dpp v0, v1 row_shl:1 bound_ctrl:1"),
  "quads": (lambda: R3.v_mov_b32(v[0], v[1], quad_perm=[3, 2, 1, 0]), "v_mov_b32_dpp v0, v1 quad_perm:[3,2,1,0]"),
  "eights": (lambda: R3.v_mov_b32(v[0], v[1], dpp8=[7, 6, 5, 4, 3, 2, 1, 0]),
             "v_mov_b32 v0, v1 dpp8:[7,6,5,4,3,2,1,0]"),
  "two": (
    lambda: R3.v_dual_mul_f32(v[0], v[1], v[2]) & R3.v_dual_add_f32(v[3], v[4], v[5]),
    "v_dual_mul_f32 v0, v1, v2 :: v_dual_add_f32 v3, v4, v5",
  ),
  "halves": (lambda: R3.v_add_f16(v[0].h, v[1].l, v[2].h), "v_add_f16 v0.h, v1.l, v2.h"),
  "packed": (
    lambda: R3.v_pk_fma_f16(v[0], v[1], v[2], v[3], op_sel=[0, 0, 1], op_sel_hi=[1, 1, 0], neg_lo=[1, 0, 0]),
    "v_pk_fma_f16 v0, v1, v2, v3 op_sel:[0,0,1] op_sel_hi:[1,1,0] neg_lo:[1,0,0]",
  ),
  "compare": (lambda: R3.v_cmp_lt_f32(vcc_lo, v[0], v[1]), "v_cmp_lt_f32 vcc_lo, v0, v1"),
  "matrix": (
    lambda: R3.v_wmma_f32_16x16x16_f16(v[0:7], v[8:15], v[16:23], v[0:7]),
    "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]",
  ),
  "hints": (
    lambda: R4.global_load_b128(v[0:3], v[4], s[2:3], th="TH_LOAD_NT", scope="SCOPE_SYS"),
    "global_load_b128 v[0:3], v4, s[2:3] th:TH_LOAD_NT scope:SCOPE_SYS",
  ),
  "counter": (lambda: R4.s_wait_loadcnt(0), "s_wait_loadcnt 0x0"),
  "image": (
    lambda: R4.image_load(v[0:3], [v[4], v[6]], s[8:15], dmask=15, dim="SQ_RSRC_IMG_2D"),
    "image_load v[0:3], [v4, v6], s[8:15] dmask:0xf dim:SQ_RSRC_IMG_2D",
  ),
  "accumulators": (
    lambda: C3.v_mfma_f32_16x16x16_f16(v[0:3], v[4:5], v[6:7], 0, cbsz=1),
    "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0 cbsz:1",
  ),
  "parts": (
    lambda: C3.v_add_u32_sdwa(v[0], v[1], sext(v[2]), src0_sel="BYTE_1", src1_sel="WORD_1"),
    "v_add_u32_sdwa v0, v1, sext(v2) src0_sel:BYTE_1 src1_sel:WORD_1",
  ),
  "carry": (lambda: C3.v_add_co_u32(v[0], vcc, v[1], v[2]), "v_add_co_u32 v0, vcc, v1, v2"),
  "policy": (lambda: C3.buffer_load_dword(v[0], "off", s[4:7], 0, sc0=True, nt=True),
             "buffer_load_dword v0, off, s[4:7], 0 sc0 nt"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_functions_are_what_texts_are(name: str) -> None:
  function, text = SAME[name]
  made = function()
  assert bytes(made) == bytes(parse(text, made.chip)), str(made)
  assert bytes(parse(str(made), made.chip)) == bytes(made) == bytes(decode(bytes(made), made.chip))


WRONG: list[tuple[Callable[[], Any], str]] = [
  (lambda: R3.v_add_f32(v[0], v[1]), "3 operands are wanted"),
  (lambda: R3.v_add_f32(s[0], v[1], v[2]), "1 registers of v are wanted"),
  (lambda: R3.v_add_f32(v[0], v[1], v[2], offset=4), "takes no offset"),
  (lambda: R3.v_add_f32(v[0], v[1], v[2], ofset=4), "no modifier ofset"),
  (lambda: R3.v_add_f32(v[0], s[1:2], v[2]), "1 registers are wanted"),
  (lambda: R3.v_fma_f32(v[0], s[1], s[2], s[3]), "it reads 3 registers or literals of the wave, and 2 at most"),
  (lambda: C3.v_fma_f32(v[0], s[1], s[2], v[3]), "it reads 2 registers or literals of the wave, and 1 at most"),
  (lambda: C3.v_fma_f32(v[0], v[1], v[2], 3.5), "this encoding has no literal"),
  (lambda: R3.v_fma_f32(v[0], 3.5, 4.5, v[2]), "room for one literal"),
  (lambda: R3.s_load_b128(s[2:5], s[0:1], 0), "does not begin at a multiple of 4"),
  (lambda: R3.global_load_b32(v[1], v[0], s[4:5], offset=4096), "offset 4096 does not fit"),
  (lambda: R3.global_load_b32(v[1], v[0], s[4:6]), "2 registers of s are wanted"),
  (lambda: R3.v_mov_b32(v[0], v[1], row_shl=16), "no row_shl:16"),
  (lambda: R3.v_mov_b32(v[0], v[1], quad_perm=[4, 0, 0, 0]), "four lanes of 0 to 3"),
  (lambda: R3.v_dual_mul_f32(v[0], v[1], v[2]) & R3.v_dual_add_f32(v[2], v[4], v[5]), "even register"),
  (lambda: R3.v_dual_mul_f32(v[0], v[1], v[2]) & R3.v_dual_add_f32(v[3], v[5], v[7]), "of one bank"),
  (lambda: R3.s_waitcnt(vmcnt=64), "the counter goes to 63"),
  (lambda: R3.s_waitcnt(loadcnt=0), "no counter loadcnt"),
  (lambda: R3.v_add_f32(v[0], v[1].h, v[2]), "are wanted"),
  (lambda: R3.v_add_f32(v[0], True, v[2]), "True is no operand"),
  (lambda: v[256], "there are v0 to v255"),
  (lambda: s[5:4], "there are s0 to s105"),
  (lambda: C3.v_mfma_f32_16x16x16_f16(v[1:4], v[4:5], v[6:7], 0), "does not begin at a multiple of 2"),
  (lambda: C3.v_mfma_f32_32x32x8_f16(v[0:15], v[16:17], v[18:19], v[2:17]), "shares no register"),
  (lambda: R3.v_mfma_f32_16x16x16_f16, "gfx1100 has no instruction"),
  (lambda: parse("v_frobnicate v0", "gfx1100"), "'v_frobnicate v0': gfx1100 has no instruction v_frobnicate"),
  (lambda: parse("s_nop 0", "gfx803"), "no tables for 'gfx803'"),
  (lambda: decode(b"\xff" * 8, "gfx1100"), "at byte 0: ffffffffffffffff is no instruction of gfx1100"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_is_wrong_is_said_at_once(number: int) -> None:
  made, message = WRONG[number]
  with pytest.raises((AsmError, AttributeError), match=message):
    made()


def test_instructions_of_modules() -> None:
  assert str(rdna3.s_endpgm()) == "s_endpgm 0" and rdna4.isa.chip == "gfx1200"
  assert bytes(cdna3.s_endpgm()) != bytes(rdna3.s_endpgm())
  assert "v_wmma_f32_16x16x16_f16" in dir(R3) and "v_wmma_f32_16x16x16_f16" not in dir(C3)
  with pytest.raises(AttributeError, match="gfx942 has no instruction v_dance"):
    cdna3.v_dance  # noqa: B018


def test_operands_name_their_registers() -> None:
  made = R3.global_load_b128(v[4:7], v[0], s[2:3])
  assert made.operands == {"vdst": (260, 261, 262, 263), "vaddr": (256,), "saddr": (2, 3)}
  assert R3.v_add_f32(v[0], 2.0, v[1]).operands == {"vdst": (256,), "src1": (257,)}
  (window,) = code(["s_mov_b64 s[2:3], src_shared_base"], "gfx1100")
  assert window.operands == {"sdst": (2, 3)}
  assert made.size == 8 and R3.v_add_f32(v[0], 3.5, v[1]).size == 8 and made.mnemonic == "global_load_b128"


def test_labels() -> None:
  end = Label("end")
  made = code([R3.s_cbranch_scc0(end), "s_nop 1", Label("start"), R3.s_branch(Label("start")), end], "gfx1100")
  assert [str(m) for m in made] == ["s_cbranch_scc0 2", "s_nop 1", "s_branch 0xffff"]
  with pytest.raises(AsmError, match="there is no label gone"):
    code([R3.s_branch(Label("gone"))])
  with pytest.raises(AsmError, match="label end is there twice"):
    code([end, end])


def test_masks_of_64_lanes_are_pairs() -> None:
  """The bytes are the same; texts of a kernel, and its scalar registers, are those of its waves."""
  narrow, wide = R3.v_cmp_lt_f32(s[20], v[0], v[1]), R3.v_cmp_lt_f32(s[20:21], v[0], v[1])
  assert bytes(narrow) == bytes(wide) and (str(narrow), str(wide)) == (
    "v_cmp_lt_f32_e64 s20, v0, v1", "v_cmp_lt_f32_e64 s[20:21], v0, v1",
  )  # fmt: skip
  assert str(R3.v_cmp_lt_f32(vcc, 1.0, v[1])) == "v_cmp_lt_f32_e32 vcc, 1.0, v1"
  assert str(R3.v_cndmask_b32_e64(v[0], v[1], v[2], s[4:5])) == "v_cndmask_b32_e64 v0, v1, v2, s[4:5]"
  kernel = Kernel.of("gfx1100", "mine", [narrow, R3.s_endpgm()], lanes=64)
  assert kernel.program(1, 64).source.splitlines()[0] == str(wide) and kernel.scalar_registers == 22
  pair = R3.v_dual_mul_f32(v[0], v[1], v[2]) & R3.v_dual_add_f32(v[3], v[4], v[5])
  with pytest.raises(AsmError, match="mine: v_dual_mul_f32 .*: two operations at once are for waves of 32 lanes"):
    Kernel.of("gfx1100", "mine", [pair, R3.s_endpgm()], lanes=64).program(1, 64)


def test_a_code_object_is_what_its_kernels_are() -> None:
  body = [R3.s_load_b64(s[4:5], s[0:1], null), R3.v_mov_b32(v[9], 1), R3.s_endpgm()]
  kernel = Kernel.of("gfx1100", "mine", body, argument_bytes=8)
  assert (kernel.vector_registers, kernel.scalar_registers, kernel.accumulators) == (10, 6, 0)
  assert [made for _, made in disassemble(kernel.machine_code, "gfx1100")] == list(kernel.body)
  assert kernel.machine_code in code_object([kernel])
  with pytest.raises(AsmError, match="kernels of one chip, not of gfx1100, gfx942"):
    code_object([kernel, Kernel.of("gfx942", "other", [C3.s_endpgm()])])
