"""What code of AMD's GPUs has to see to itself: each hazard alone, with what is enough in between, and with less.

How much that is comes from LLVM's backend (`llc -run-pass post-RA-hazard-rec`, LLVM 19; for scalars of RDNA 4 its pass
amdgpu-wait-sgpr-hazards); where that program is, the first rows are compared with it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import amd_code_machine as machine
import pytest

from gpu_model.amd_code.emulator import Fault
from gpu_model.toolchain import compiler
from tiny_asm_amd import Isa, s, ttmp, v, vcc, vcc_lo

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
Body = Callable[[Isa, list[Any]], list[Any]]


def words(isa: Isa, *registers: int) -> list[Any]:
  """Zeros in registers."""
  return [isa.v_mov_b32(v[n], 0) for n in registers]


def moves(isa: Isa, count: int) -> list[Any]:
  return [isa.v_mov_b32(v[9], 1)] * count


def slow(isa: Isa, between: list[Any]) -> list[Any]:
  return [*words(isa, 1, 3), isa.v_exp_f32(v[1], v[3]), *between, isa.v_add_f32(v[10], v[1], v[3])]


def slow_double(isa: Isa, between: list[Any]) -> list[Any]:
  made = [*words(isa, 2, 3, 11), isa.v_rcp_f64(v[4:5], v[2:3]), *between]
  return [*made, isa.v_mov_b32(v[10], v[5])]


def multiplied(isa: Isa, between: list[Any], a: int = 24, b: int = 16) -> list[Any]:
  """Two products; A and B of the second begin at these registers. The first writes v[24:31]."""
  each = 4 if isa.chip == "gfx1201" else 8
  product = isa.v_wmma_f32_16x16x16_f16
  first = product(v[24:31], v[8 : 7 + each], v[16 : 15 + each], 0)
  second = product(v[32:39], v[a : a + each - 1], v[b : b + each - 1], 0)
  return [*words(isa, *range(8, 48)), first, *between, second, *words(isa, 10)]


def kept(isa: Isa, between: list[Any], written: str = "salu", pair: int = 20) -> list[Any]:
  """A scalar that the VALU reads, that is written then, and read again; `pair`: what the VALU read at first."""
  write = {"salu": isa.s_mov_b32(s[20], 7), "valu": isa.v_readfirstlane_b32(s[20], v[0])}[written]
  first = [isa.s_mov_b32(s[20], 0), isa.s_mov_b32(s[21], 0), isa.v_mov_b32(v[9], s[pair])]
  return [*first, write, *between, isa.v_mov_b32(v[10], s[20])]


def kept_vcc(isa: Isa, between: list[Any]) -> list[Any]:
  choose = partial(isa.v_cndmask_b32, v[10], 1, v[0], vcc_lo)
  return [isa.s_mov_b32(vcc_lo, 0), choose(), isa.v_cmp_eq_u32(vcc_lo, v[0], v[0]), *between, choose()]


def kept_for_salu(isa: Isa, between: list[Any]) -> list[Any]:
  return [*kept(isa, [])[:-1], *between, isa.s_add_co_u32(s[22], s[20], 1), *words(isa, 10)]


def kept_while_read(isa: Isa, between: list[Any]) -> list[Any]:
  """An instruction of the SALU reads one of them in between, and waits for the VALU for that."""
  return kept(isa, [isa.s_mov_b32(s[23], s[20]), *between], "valu")


def lane(isa: Isa, between: list[Any]) -> list[Any]:
  moved = [isa.v_mov_b32(v[1], 1), *between, isa.v_readlane_b32(s[20], v[1], 3), isa.s_nop(1)]
  return [*moved, isa.v_mov_b32(v[10], s[20])]


def lane_of_exec(isa: Isa, between: list[Any]) -> list[Any]:
  compared = isa.v_cmpx_eq_u32(v[0], v[0]) if isa.chip != "gfx942" else isa.v_cmpx_eq_u32(vcc, v[0], v[0])
  return [compared, *between, isa.v_readlane_b32(s[20], v[0], 3), *words(isa, 10)]


def scalar_of_valu(isa: Isa, between: list[Any]) -> list[Any]:
  return [isa.v_readfirstlane_b32(s[20], v[0]), *between, isa.v_mov_b32(v[10], s[20])]


def mask_of_valu(isa: Isa, between: list[Any]) -> list[Any]:
  made = [isa.v_cmp_eq_u32(vcc, v[0], v[0]), *between]
  return [*made, isa.v_cndmask_b32(v[10], v[0], v[0], vcc)]


def part_of_word(isa: Isa, between: list[Any]) -> list[Any]:
  narrow = isa.v_add_u16_sdwa(v[1], v[0], v[0], dst_sel="WORD_1", dst_unused="UNUSED_PAD")
  return [*words(isa, 1), narrow, *between, isa.v_mov_b32(v[10], v[1])]


def product_of(isa: Isa, between: list[Any], name: str = "", count: int = 4, stored: bool = False) -> list[Any]:
  """A product whose result is used: by a vector instruction, or by a store."""
  zero = words(isa, *range(2, 6), *range(20, 20 + count))
  pair = name.endswith(("f16", "f64"))
  a, b = (v[2:3], v[4:5]) if pair else (v[2], v[4])
  made = getattr(isa, name)(v[20 : 19 + count], a, b, v[20 : 19 + count])
  use = isa.global_store_dword(v[0], v[21], s[4:5]) if stored else isa.v_mov_b32(v[10], v[21])
  return [*zero, isa.s_nop(1), made, *between, use, *words(isa, 10)]


def multiplied_soon(isa: Isa, between: list[Any]) -> list[Any]:
  zero = words(isa, 2, 3, *range(20, 24))
  product = isa.v_mfma_f32_4x4x1f32 if isa.chip == "gfx90a" else isa.v_mfma_f32_4x4x1_16b_f32
  return [*zero, *between, product(v[20:23], v[2], v[3], v[20:23]), *words(isa, 10)]


def dotted(isa: Isa, between: list[Any]) -> list[Any]:
  return [*words(isa, 2), isa.v_dot4_i32_i8(v[1], v[2], v[2], v[2]), *between, isa.v_mov_b32(v[10], v[1])]


def address_of_valu(isa: Isa, between: list[Any]) -> list[Any]:
  moved = [isa.v_mov_b32(v[1], s[4]), isa.v_mov_b32(v[2], s[5]), isa.s_nop(4)]
  moved += [isa.v_readfirstlane_b32(s[20], v[1]), isa.v_readfirstlane_b32(s[21], v[2])]
  return [*moved, *between, isa.global_load_dword(v[10], v[0], s[20:21]), isa.s_waitcnt(vmcnt=0)]


def held(isa: Isa, between: list[Any]) -> list[Any]:
  data = [*words(isa, 1, *range(20, 24)), isa.global_store_dwordx4(v[1], v[20:23], s[4:5])]
  return [*data, *between, isa.v_mov_b32(v[22], 1), *words(isa, 10)]


Between = Callable[[Isa], list[Any]]


def nothing(isa: Isa) -> list[Any]:
  return []


def wait(fields: int) -> Between:
  return lambda isa: [isa.s_waitcnt_depctr(fields) if isa.chip == "gfx1100" else isa.s_wait_alu(fields)]


def some(count: int, wave: bool = False, more: int = 0) -> Between:
  """Instructions that do nothing: vector ones, or scalar ones, `more` of these in front."""
  first = [more] if more else []
  return lambda isa: [isa.s_nop(n - 1) for n in (*first, count) if n] if wave else moves(isa, count)


def also_slow(count: int) -> Between:
  return lambda isa: [isa.v_exp_f32(v[9], v[3])] * count


ROWS: dict[str, tuple[str, Body, list[Between], list[Between], str]] = {
  "transcendental": (
    "gfx1100", slow, [some(6), also_slow(2), wait(0xFFF), lambda isa: [isa.global_load_b32(v[40], v[3], s[4:5])]],
    [nothing, some(5), also_slow(1), wait(0xF000), lambda isa: [isa.s_nop(15)]],
    "v1 is used . vector instructions after a transcendental one wrote it",
  ),
  "transcendental, on chips that wait": ("gfx1150", slow, [nothing], [], ""),
  "transcendental, on RDNA 4": ("gfx1201", slow, [nothing], [], ""),
  "both words of a double": ("gfx1100", slow_double, [some(6)], [some(5)], "v5 is used 5 vector instructions after"),
  "A of a product": ("gfx1100", multiplied, [some(1), lambda isa: [isa.v_nop()]], [nothing, some(1, True)], "v24 is"),
  "B of a product": (
    "gfx1100", partial(multiplied, a=8, b=24), [some(1)], [nothing], "v24 is of the result of the product of matrices",
  ),
  "A of a product, in part": ("gfx1100", partial(multiplied, a=17), [some(1)], [nothing], "v24 is of the result"),
  "other registers": ("gfx1100", partial(multiplied, a=8), [nothing], [], ""),
  "A of a product, RDNA 4": ("gfx1201", multiplied, [some(1)], [nothing, some(1, True)], "v24 is of the result"),
  "B of a product, RDNA 4": ("gfx1201", partial(multiplied, a=8, b=24), [some(1)], [nothing], "v24 is of the result"),
  "a scalar that the SALU wrote": (
    "gfx1201", kept, [wait(0xFFFE), lambda isa: [isa.s_load_b32(s[30], s[4:5], 0)]],
    [nothing, some(8), some(16, True), wait(0xF1FF)], r"s20 .* the SALU wrote since then: s_wait_alu sa_sdst\(0\)",
  ),
  "its neighbour was read": ("gfx1201", partial(kept, pair=21), [wait(0xFFFE)], [nothing], "the SALU wrote since then"),
  "a scalar that the VALU wrote": (
    "gfx1201", partial(kept, written="valu"),
    [wait(0xF1FF), lambda isa: [isa.v_mov_b32(v[9], ttmp[9]), isa.s_mov_b32(s[30], ttmp[9])]],
    [nothing, some(8), wait(0xFFFE), lambda isa: [isa.s_mov_b32(s[30], ttmp[9])]], r"va_sdst\(0\) has",
  ),
  "the SALU reads it first": ("gfx1201", kept_while_read, [nothing], [], ""),
  "the SALU reads what it wrote": ("gfx1201", kept_for_salu, [wait(0xFFFE)], [nothing], "s20 is read, which the VALU"),
  "VCC": ("gfx1201", kept_vcc, [wait(0xFFFD)], [nothing, wait(0xF1FF)], r"vcc_lo .*the VALU wrote .*va_vcc\(0\)"),
  "scalars of RDNA 3": ("gfx1100", kept, [nothing], [], ""),
  "transcendental, CDNA 3": ("gfx942", slow, [some(1, True), some(1)], [nothing], "v1 is used right after"),
  "a lane, CDNA 3": ("gfx942", lane, [some(1, True)], [nothing], "a lane of v1 is read right after it was written"),
  "a lane after EXEC, CDNA 3": (
    "gfx942", lane_of_exec, [some(4, True)], [nothing, some(3, True)], "a lane is read or written . instr.* EXEC",
  ),
  "a scalar of the VALU, CDNA 3": ("gfx942", scalar_of_valu, [some(2, True)], [nothing, some(1, True)], "s20 is read"),
  "a mask, CDNA 3": ("gfx942", mask_of_valu, [some(2, True)], [nothing, some(1, True)], "vcc_lo is read . instr"),
  **{
    f"{name}, MI200{', stored' * stored}": (
      "gfx90a", partial(product_of, name=f"v_mfma_{name}", count=count, stored=stored),
      [some(between - 16, True, 16)] if between > 16 else [some(between, True)],
      [some(between - 17, True, 16)] if between > 16 else [some(between - 1, True)],
      "v21 is (used|accessed) before the product of matrices that writes it is done: 1 more",
    )
    for name, count, between, stored in (
      ("f32_32x32x8f16", 16, 19, False), ("f32_16x16x16f16", 4, 11, False), ("f32_4x4x4f16", 4, 5, False),
      ("f32_32x32x2f32", 16, 19, True), ("f32_16x16x4f32", 4, 11, True), ("f64_16x16x4f64", 8, 11, False),
      ("f64_16x16x4f64", 8, 18, True), ("f64_4x4x4f64", 2, 6, False), ("f64_4x4x4f64", 2, 9, True),
    )
  },
  **{
    f"{name}, {chip}": (chip, body, [some(enough, True)], [nothing, some(enough - 1, True)], message)
    for chip in ("gfx90a", "gfx942")
    for name, body, enough, message in (
      ("multiplied", multiplied_soon, 2, "v3 is multiplied . instr|v2. is multiplied . instr"),
      ("a product of vectors", dotted, 3, "v1 is used . instructions after a product of vectors"),
      ("an address of the VALU", address_of_valu, 5, "s2. is read by an access to memory"),
      ("data of a store", held, 1 + (chip == "gfx942"), "v22 is written right after a store of it"),
    )
  },
  "a part of a word, CDNA 3": ("gfx942", part_of_word, [some(1, True)], [nothing], "a part of it was written"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_hazards(name: str) -> None:
  chip, body, enough, less, message = ROWS[name]
  isa = Isa(chip)
  for between in enough:
    machine.computed(chip, partial(body, isa, between(isa)), [])
  for between in less:
    with pytest.raises(Fault, match=message):
      machine.computed(chip, partial(body, isa, between(isa)), [])


MACHINE = """
--- |
  define amdgpu_kernel void @f() #0 {{ ret void }}
  attributes #0 = {{ "target-features"="+wavefrontsize32" }}
...
---
name: f
body: |
  bb.0:
    {}
    S_ENDPGM 0
...
"""
EXP, MOVE = "$vgpr1 = V_EXP_F32_e32 $vgpr0, {0}", "$vgpr9 = V_MOV_B32_e32 $vgpr8, implicit $exec"
USE, OTHER = "$vgpr2 = V_ADD_F32_e32 $vgpr1, $vgpr3, {0}", "$vgpr7 = V_EXP_F32_e32 $vgpr6, {0}"
LLVMS = [("gfx1100", MOVE, 6), ("gfx1100", OTHER, 2), ("gfx1150", MOVE, 0), ("gfx1201", MOVE, 0)]


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("llc-19") is None, reason="needs llc of LLVM 19")
@pytest.mark.parametrize("chip,between,enough", LLVMS)
def test_llvm_waits_as_long(chip: str, between: str, enough: int) -> None:
  for count in range(enough + 1):
    lines = [EXP, *[between] * count, USE]
    text = MACHINE.format("\n    ".join(line.format("implicit $mode, implicit $exec") for line in lines))
    command = ["llc-19", "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={chip}", "-run-pass=post-RA-hazard-rec", "-x", "mir"]
    command += ["-o", "-", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60)
    assert ("S_WAITCNT_DEPCTR" in done.stdout) == (count < enough)
