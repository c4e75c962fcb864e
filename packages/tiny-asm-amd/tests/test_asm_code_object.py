"""Code objects against those of LLVM's assembler, and what others read of them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from asm_random import LLVM

from tiny_asm_amd import AsmError, Isa, Kernel, a, code_object, s, v

OBJDUMP = LLVM and shutil.which(LLVM.replace("llvm-mc", "llvm-objdump"))
pytestmark = pytest.mark.skipif(OBJDUMP is None, reason="there is no LLVM 19 or later: apt-get install llvm-19")
CHIPS = ["gfx1100", "gfx1150", "gfx1201", "gfx908", "gfx90a", "gfx942"]


def kernel(chip: str, vectors: int, accumulators: int = 0) -> Kernel:
  """One that uses so many registers."""
  isa = Isa(chip)
  body = [isa.v_mov_b32(v[vectors - 1], 1), isa.s_mov_b32(s[20], 3), isa.s_endpgm()]
  body += [isa.v_accvgpr_read_b32(v[0], a[accumulators - 1])] if accumulators else []
  return Kernel.of(chip, "mine", body, argument_bytes=16, local_bytes=512, groups="xy", axes=2)


def descriptor_of_llvm(made: Kernel, tmp_path: Path) -> bytes:
  """What LLVM makes of directives that say the same."""
  assert LLVM is not None
  lines = [
    f'.amdgcn_target "amdgcn-amd-amdhsa--{made.chip}"', ".rodata", ".amdhsa_kernel mine",
    ".amdhsa_group_segment_fixed_size 512", ".amdhsa_kernarg_size 16", ".amdhsa_user_sgpr_kernarg_segment_ptr 1",
    ".amdhsa_system_sgpr_workgroup_id_x 1",
    ".amdhsa_system_sgpr_workgroup_id_y 1", ".amdhsa_system_sgpr_workgroup_id_z 0",
    ".amdhsa_system_vgpr_workitem_id 1", ".amdhsa_float_denorm_mode_32 3", ".amdhsa_float_denorm_mode_16_64 3",
    f".amdhsa_next_free_sgpr {made.scalar_registers}",
  ]  # fmt: skip
  if made.chip in ("gfx90a", "gfx942"):
    offset = -(-made.vector_registers // 4) * 4
    lines += [f".amdhsa_accum_offset {offset}", f".amdhsa_next_free_vgpr {offset + made.accumulators}"]
  else:
    lines.append(f".amdhsa_next_free_vgpr {max(made.vector_registers, made.accumulators)}")
  if made.wave == 32:
    lines.append(".amdhsa_wavefront_size32 1")
  elif made.chip.startswith("gfx1"):
    lines.append(".amdhsa_wavefront_size32 0")
  path = tmp_path / "other.o"
  done = subprocess.run(
    [LLVM, "-triple=amdgcn-amd-amdhsa", f"-mcpu={made.chip}", f"-mattr=+wavefrontsize{made.wave}", "-filetype=obj",
     "-o", str(path)],
    input="\n".join([*lines, ".end_amdhsa_kernel", ".text", "mine: s_endpgm", ""]), capture_output=True, text=True,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  code = path.read_bytes()
  table, count = struct.unpack_from("<Q", code, 40)[0], struct.unpack_from("<H", code, 60)[0]
  for n in range(count):
    row = struct.unpack_from("<IIQQQQIIQQ", code, table + 64 * n)
    if row[1] == 1 and row[2] == 2 and row[5] == 64:
      return code[row[4] : row[4] + 64]
  raise AssertionError("no descriptor")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("vectors", [1, 9, 40])
def test_descriptors_are_those_of_llvm(chip: str, vectors: int, tmp_path: Path) -> None:
  made = kernel(chip, vectors, 6 if chip in ("gfx908", "gfx90a", "gfx942") else 0)
  mine, theirs = made.descriptor(0), descriptor_of_llvm(made, tmp_path)
  assert mine[:16] == theirs[:16] and mine[24:] == theirs[24:]
  if chip.startswith("gfx1"):
    wide = replace(made, lanes=64)
    mine, theirs = wide.descriptor(0), descriptor_of_llvm(wide, tmp_path)
    assert mine[:16] == theirs[:16] and mine[24:] == theirs[24:]
  else:
    with pytest.raises(AsmError, match="has no waves of 32 lanes"):
      replace(made, lanes=32).descriptor(0)


@pytest.mark.parametrize("chip", CHIPS)
def test_llvm_reads_what_is_written(chip: str, tmp_path: Path) -> None:
  assert OBJDUMP is not None
  path = tmp_path / "code.o"
  path.write_bytes(code_object([kernel(chip, 4)]))
  text = subprocess.run([OBJDUMP, "-d", str(path)], capture_output=True, text=True, check=True).stdout
  assert "<mine>:" in text and "v_mov_b32_e32 v3, 1" in text and "s_endpgm" in text
  readelf = OBJDUMP.replace("objdump", "readelf")
  notes = subprocess.run([readelf, "-n", "-h", str(path)], capture_output=True, text=True, check=True)
  assert f"amdgcn-amd-amdhsa--{chip}" in notes.stdout and ".symbol:         mine.kd" in notes.stdout, notes
  assert not notes.stderr and f", {chip}" in notes.stdout
