"""Bytes → what the emulator runs: an Op for each instruction, by tiny-asm-amd's tables."""

from __future__ import annotations

import ctypes
import re
import struct
from functools import cache, lru_cache

from gpu_model.amd_code.families import (
  IGNORED,
  LOADS,
  SCALARS,
  SHARED,
  STORES,
  atomic_name,
  meaning_name,
  memory_name,
)
from gpu_model.amd_code.instructions import Meaning, meanings
from tiny_asm_amd import Instruction, decode
from tiny_asm_amd.table import family_of

VECTOR, CONSTANT, VCC, NULL, M0, EXEC, LITERAL, WHOLE = 256, 1 << 20, 106, 124, 125, 126, 255, 6
NEG, ABS, HALF, HIGH, SEXT = 1, 2, 4, 8, 16
FLAT, BUFFER = 1, 2
(
  CLAMP,
  RESULT_HIGH,
  KEEPS,
  BOUND,
  INACTIVE,
  SIGNED,
  RETURNS,
  DPP8,
  VALU,
  TRANS,
  SALU,
  VMEM,
  SETTLES,
  LITERAL_USED,
  DOT,
  PAST,
) = (1 << n for n in range(16))
FLOATS = dict(zip(range(240, 249), (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532)))
_KEEPS = re.compile(r"v_(fma|mad_[ui]16|div_fixup|min3|max3|med3|add_nc_i16|sub_nc_i16)")
"""Instructions of CDNA that leave the other half of a register as it is; the others clear it."""
_TRANS = re.compile(r"v_(rcp|rsq|sqrt|exp|log|sin|cos)_")
_ELEMENTS = {"f16": 0, "bf16": 1, "f32": 2, "f64": 3, "i8": 4, "iu8": 4, "u8": 5, "iu4": 6, "fp8": 7, "bf8": 8,
             "fp6": 11, "bf6": 12, "fp4": 13}  # fmt: skip
_MI200 = {("", 32): (20, 0), ("", 16): (12, 0), ("", 4): (6, 0), ("f64", 16): (12, 7), ("f64", 4): (7, 3)}
"""Of gfx90a's products, by the type of the result and M: how many instructions later it may be used, and how many more
that takes where an access to memory does. That is one more than what LLVM 19's `llc -run-pass post-RA-hazard-rec` puts
between: 19, 11 and 5; of float64 11 and 6, and for stores 18 and 9."""
_NARROW = (7, 8, 11, 12, 13)
"""Types of numbers as CBSZ and BLGP name them: fp8, bf8, fp6, bf6, fp4."""


class Unknown(Exception):
  """An instruction that the emulator does not know."""


class Op(ctypes.Structure):
  """The same as in core.h."""

  _fields_ = [
    ("code", ctypes.c_int32), ("size", ctypes.c_int32), ("dst", ctypes.c_int32), ("dst2", ctypes.c_int32),
    ("src", ctypes.c_int32 * 4), ("mods", ctypes.c_int32 * 4), ("sel", ctypes.c_int32 * 4),
    ("value", ctypes.c_uint64 * 4), ("flags", ctypes.c_int32), ("omod", ctypes.c_int32), ("dpp", ctypes.c_int32),
    ("masks", ctypes.c_int32), ("offset", ctypes.c_int32), ("offset2", ctypes.c_int32), ("bytes", ctypes.c_int32),
    ("words", ctypes.c_int32), ("wait", ctypes.c_int32 * 4), ("space", ctypes.c_int32), ("parts", ctypes.c_int32),
  ]  # fmt: skip


@cache
def codes() -> dict[str, int]:
  """The code of each meaning."""
  return {name: n for n, name in enumerate(sorted(meanings()))}


@lru_cache(maxsize=1 << 18)
def decoded(code: bytes, chip: str) -> tuple[bytes, ...]:
  """The Ops of the instruction that these bytes begin with: one, or for two operations at once three. Raises Unknown,
  and AsmError where there is no instruction."""
  made = decode(code, chip)
  return tuple(bytes(op) for op in _Taken(made).ops())


def _signed(value: int, bits: int) -> int:
  return value - (value >> (bits - 1) << bits)


class _Taken:
  """An instruction that is taken apart."""

  def __init__(self, made: Instruction) -> None:
    self.made, self.row, self.layout, self.name = made, made.row, made.row.layout, made.mnemonic
    self.family, self.values = family_of(made.chip), dict(made.values)
    self.op = self.empty()

  def empty(self) -> Op:
    op = Op(size=self.made.size, dst=-1, dst2=-1, dpp=-1, masks=0xFF)
    for n in range(4):
      op.src[n] = op.wait[n] = -1
      op.sel[n] = WHOLE
    return op

  def unknown(self) -> Unknown:
    return Unknown(f"{self.made} is not known here")

  def done(self, name: str) -> list[Op]:
    self.op.code = codes()[name]
    return [self.op]

  def ops(self) -> list[Op]:
    name = self.name
    if name in IGNORED:
      return self.done("s_ignored")
    if name in ("buffer_gl0_inv", "global_inv", "global_wbinv"):
      return self.done("invalidate" if name == "buffer_gl0_inv" or self.past_cache() else "s_ignored")
    if " :: " in name:
      return self.dual()
    if name.startswith("s_"):
      return self.scalar()
    if name.startswith("v_"):
      self.op.flags |= VALU | (LITERAL_USED if self.made.literal is not None or "imm" in self.values else 0)
      return self.vector()
    return self.memory()

  # operands

  def number(self, number: int) -> int:
    """A register of the wave, as the emulator numbers them."""
    return M0 if self.family == "cdna" and number == 124 else number

  def source(self, slot: int, field: str, kind: str) -> None:
    """The operand of a field becomes one of the Op's sources, of a type."""
    number, what = self.values[field], self.layout.kinds.get(field, ("s1",))[0]
    room = max((low + length for _, low, length in self.layout.fields[field]), default=0)
    if self.row.form == "sdwa":
      number ^= 256
    if what[0] in "vhwa":
      half = what == "hlo" and number & 128
      index = number & (127 if what == "hlo" else 255)
      accumulator = what[0] == "a" or what[0] == "w" and number & 512
      self.op.src[slot] = VECTOR + index + (256 if accumulator else 0)
    elif room >= 9 and number >= VECTOR:
      half = what.startswith("VTlo") and number & 128
      accumulator = what.startswith("AI") or number & 512
      self.op.src[slot] = VECTOR + (number & (127 if what.startswith("VTlo") else 255)) + (256 if accumulator else 0)
    else:
      half = 0
      self.constant_or_scalar(slot, number, kind)
    self.op.mods[slot] |= HALF if half else 0

  def constant_or_scalar(self, slot: int, number: int, kind: str) -> None:
    bits, signed = int(kind[1:]) if kind[1:].isdigit() else 32, kind[0] == "i"
    if number == LITERAL:
      literal = self.made.literal if "imm" not in self.values else self.values["imm"]
      value = literal or 0
      if bits == 64:
        value = value << 32 if kind[0] == "f" else _signed(value, 32) if signed else value
    elif 128 <= number <= 192:
      value = number - 128
    elif 193 <= number <= 208:
      value = 192 - number
    elif number in FLOATS:
      code = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}[bits]
      value = int(struct.unpack(code[1], struct.pack(code[0], FLOATS[number]))[0])
    else:
      self.op.src[slot] = self.number(number)
      return
    self.op.src[slot] = CONSTANT
    self.op.value[slot] = value & (1 << 64) - 1

  def constant(self, slot: int, value: int) -> None:
    self.op.src[slot], self.op.value[slot] = CONSTANT, value & (1 << 64) - 1

  def result(self, field: str = "vdst") -> int:
    number, what = self.values[field], self.layout.kinds[field][0]
    if what == "hlo":
      self.op.flags |= RESULT_HIGH if number & 128 else 0
      return VECTOR + (number & 127)
    accumulator = what[0] == "a" or what[0] == "w" and number & 512
    return VECTOR + (number & 255) + (256 if accumulator else 0)

  def mask(self, field: str, slot: int | None = None) -> int:
    """A register with a bit of each lane that is written, or read."""
    number = self.values.get(field, VCC)
    if self.layout.kinds.get(field, ("",))[0] == "sd":
      number = number & 127 if number & 128 else VCC
    return self.number(number)

  # instructions of the wave

  def scalar(self) -> list[Op]:
    name, op, values = self.name, self.op, self.values
    simm = values.get("simm16", 0)
    if name in ("s_waitcnt_depctr", "s_wait_alu"):
      op.offset = simm
      return self.done("s_wait_alu")
    op.flags |= SALU
    if name.startswith(("s_load", "s_buffer_load", "s_scratch", "s_store", "s_atomic")):
      return self.scalar_load()
    if name.startswith(("s_waitcnt", "s_wait_")):
      return self.waits(simm)
    if name in ("s_nop", "s_branch", "s_denorm_mode", "s_round_mode") or name.startswith("s_cbranch"):
      op.offset = simm
      return self.done(name)
    if name in ("s_endpgm", "s_barrier", "s_barrier_signal", "s_barrier_wait"):
      return self.done(name)
    if name in ("s_getpc_b64", "s_setpc_b64", "s_swappc_b64"):
      if "sdst" in values:
        op.dst = self.number(values["sdst"])
      if "src0" in values:
        self.source(0, "src0", "u64")
      return self.done(name)
    if name in ("s_setreg_b32", "s_setreg_imm32_b32"):
      op.offset = simm
      if name == "s_setreg_b32":
        self.op.src[0] = self.number(values["sdst"])
      else:
        self.constant(0, self.made.literal if self.made.literal is not None else values["imm"])
      return self.done("s_setreg")
    if found := re.match(r"s_(mov|cmov|add|addk_co|mul|cmp)k_(?:co_)?(\w+)$", name):
      return self.immediate(found[1], found[2], simm)
    known = meaning_name(name, self.family)
    meaning = meanings().get(known)
    if meaning is None:
      raise self.unknown()
    kinds = meaning.types
    if kinds and kinds[0]:
      op.dst = self.number(values["sdst"])
    for slot, kind in enumerate(kinds[1:]):
      if f"src{slot}" in values:
        self.source(slot, f"src{slot}", kind)
      else:  # which is the result's register
        op.src[slot] = op.dst
    return self.done(known)

  def immediate(self, kind: str, typed: str, simm: int) -> list[Op]:
    """S_MOVK_I32, S_ADDK_I32, S_MULK_I32, S_CMPK_*."""
    field = "sdst" if "sdst" in self.values else "src0"
    number = self.number(self.values[field])
    value = simm if typed.endswith("u32") else _signed(simm, 16)
    if kind in ("mov", "cmov"):
      self.op.dst = number
      self.constant(0, value & 0xFFFFFFFF)
      self.op.src[1] = number
      return self.done(f"s_{kind}_b32")
    self.op.src[0], self.op.dst = number, number
    self.constant(1, value & 0xFFFFFFFF)
    return self.done(f"s_cmp_{typed}" if kind == "cmp" else f"s_{kind}_i32")

  def waits(self, simm: int) -> list[Op]:
    name, wait = self.name, self.op.wait
    if name == "s_waitcnt" and self.family == "rdna3":
      wait[LOADS], wait[SHARED] = simm >> 10, simm >> 4 & 63
    elif name == "s_waitcnt":
      wait[LOADS], wait[SHARED] = simm & 15 | simm >> 10 & 48, simm >> 8 & 15
    elif name in ("s_waitcnt_vscnt", "s_wait_storecnt"):
      wait[STORES] = simm
    elif name in ("s_waitcnt_vmcnt", "s_wait_loadcnt"):
      wait[LOADS] = simm
    elif name in ("s_waitcnt_lgkmcnt", "s_wait_dscnt"):
      wait[SHARED] = simm
    elif name == "s_wait_kmcnt":
      wait[SCALARS] = simm
    elif name == "s_wait_loadcnt_dscnt":
      wait[LOADS], wait[SHARED] = simm >> 8 & 63, simm & 63
    elif name == "s_wait_storecnt_dscnt":
      wait[STORES], wait[SHARED] = simm >> 8 & 63, simm & 63
    elif name not in ("s_wait_samplecnt", "s_wait_bvhcnt"):
      raise self.unknown()
    return self.done("s_waitcnt")

  def scalar_load(self) -> list[Op]:
    op, values = self.op, self.values
    op.flags &= ~SALU
    found = re.match(r"s_load_(b|u|i)(\d+)$", memory_name(self.name))
    if found is None:
      raise self.unknown()
    op.bytes, op.flags = int(found[2]) // 8, SETTLES | (SIGNED if found[1] == "i" else 0)
    op.dst = self.number(values["sdst"])
    self.source(0, "sbase", "u64")
    if "soffset" in values and (values["soffset"] != NULL or self.family == "cdna"):
      self.constant_or_scalar(1, values["soffset"], "u32")
    op.offset = self.offset()
    op.words = SCALARS if self.family == "rdna4" else SHARED
    return self.done("s_load")

  def offset(self) -> int:
    """A field with a sign."""
    runs = self.layout.fields.get("offset", ())
    bits = max((low + length for _, low, length in runs), default=1)
    return _signed(self.values.get("offset", 0), bits)

  # vectors

  def vector(self) -> list[Op]:
    name, op, values = self.name, self.op, self.values
    self.modifiers()
    if name.startswith(("v_wmma", "v_mfma", "v_smfma", "v_swmma")):
      return self.matrix()
    if name.startswith(("v_cvt_scalef32_sr_fp8", "v_cvt_scalef32_sr_bf8", "v_cvt_sr_")):
      return self.rounded_by_chance()
    if name.startswith("v_cvt_scalef32_"):
      return self.scaled_conversion()
    if name == "v_nop":
      return self.done(name)
    if name in ("v_readlane_b32", "v_readfirstlane_b32"):
      op.dst = self.number(values.get("sdst", values.get("vdst", 0)))
      self.source(0, "src0", "b32")
      if "src1" in values:
        self.source(1, "src1", "b32")
      return self.done("v_readlane_b32")
    if name in ("v_writelane_b32", "v_permlane16_b32", "v_permlanex16_b32"):
      op.dst = self.result()
      for slot in range(3):
        if f"src{slot}" in values:
          self.source(slot, f"src{slot}", "b32")
      return self.done(name)
    if name in ("v_swap_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32", "v_permlane64_b32"):
      op.dst = self.result()
      self.source(0, "src0", "b32")
      return self.done(name)
    if name.startswith("v_bitop3"):
      op.dst, op.offset = self.result(), values["bitop3"]
      for slot in range(3):
        self.source(slot, f"src{slot}", name[-3:])
      op.flags |= RESULT_HIGH | KEEPS if name.endswith("16") and values["src0_modifiers"] & HIGH else 0
      return self.done(name)
    if "_co_" in name or name.startswith(("v_div_scale", "v_mad_u64", "v_mad_i64", "v_cndmask", "v_div_fmas")):
      return self.with_mask()
    if name.startswith(("v_cmp", "v_fma_mix", "v_mad_mix")):
      return self.compare() if name.startswith("v_cmp") else self.mix()
    return self.plain()

  def modifiers(self) -> None:
    op, values, sdwa = self.op, self.values, self.row.form == "sdwa"
    for slot in range(3):
      bits = values.get(f"src{slot}_modifiers", 0)
      if self.layout.kinds.get(f"src{slot}_modifiers", ("",))[0].startswith("Int") and sdwa:
        bits = SEXT if bits & NEG else 0
      op.mods[slot] = bits
    op.omod = values.get("omod", 0)
    op.flags |= CLAMP if values.get("clamp", 0) else 0
    if sdwa:
      op.sel[0], op.sel[1] = values.get("src0_sel", WHOLE), values.get("src1_sel", WHOLE)
      op.sel[3] = values.get("dst_sel", WHOLE) | values.get("dst_unused", 0) << 3
    if "dpp8" in values:
      op.dpp, op.flags = values["dpp8"], op.flags | DPP8 | (INACTIVE if values.get("fi", 0) & 1 else 0)
    elif "dpp_ctrl" in values:
      op.dpp, op.masks = values["dpp_ctrl"], values["bank_mask"] | values["row_mask"] << 4
      op.flags |= (BOUND if values.get("bound_ctrl") else 0) | (INACTIVE if values.get("fi", 0) else 0)

  def typed(self, meaning: Meaning, slots: list[str]) -> None:
    """The sources of a meaning, from these fields; `imm` is the constant behind the instruction."""
    for slot, (field, kind) in enumerate(zip(slots, meaning.types[1:])):
      if field == "imm":
        self.constant(slot, self.values["imm"] if "imm" in self.values else self.made.literal or 0)
      elif field == "vdst":
        self.op.src[slot] = self.op.dst
      else:
        self.source(slot, field, kind)

  def plain(self) -> list[Op]:
    op, name = self.op, meaning_name(self.name, self.family)
    fields = [f"src{n}" for n in range(3) if f"src{n}" in self.values]
    if found := re.match(r"v_(fma|mad|mac|fmac|dot\d+c?|dot\d+acc|pk_fmac)(ak|mk)?(_\w+)$", name):
      base = {"fmac": "fma", "mac": "mad", "pk_fmac": "pk_fma"}.get(found[1], found[1])
      if found[2] or found[1] in ("fmac", "mac", "pk_fmac"):
        name = f"v_{base}{found[3]}"
      fields = {"ak": ["src0", "src1", "imm"], "mk": ["src0", "imm", "src1"]}.get(found[2] or "", fields)
    if narrow := re.fullmatch(r"v_cvt_(?:f32_|pk_f32_)?(?:pk_)?[fb][pf]8(_f32)?", name):
      name = name.replace("fp8", "fp8z").replace("bf8", "bf8z") if self.made.chip == "gfx942" else name
      if op.omod or op.flags & CLAMP and not narrow[1] and "_pk_" in name:
        raise self.unknown()
    if op.flags & CLAMP and f"{name}_clamp" in meanings():
      name, op.flags = f"{name}_clamp", op.flags & ~CLAMP
    meaning = meanings().get(name)
    if meaning is None or meaning.kind not in "vp":
      raise self.unknown()
    op.dst = self.result()
    if len(fields) < len(meaning.types) - 1:
      fields.append("vdst")
    if len(fields) != len(meaning.types) - 1:
      raise self.unknown()
    signs = list(op.mods)
    self.typed(meaning, fields)
    if fields[1:2] == ["imm"]:  # its own source comes third
      op.mods[2], op.mods[1] = op.mods[1] | signs[1], 0
    if meaning.kind == "v":
      self.of_sixteen_bits(meaning, name)
    elif op.flags & CLAMP and meaning.types[0][0] != "f":
      raise self.unknown()
    if meaning.kind == "p" and meaning.types[0][1:] == "16":
      for slot in range(3):  # constants of floats are in the lower half; those of integers are words
        if op.src[slot] == CONSTANT:
          op.value[slot] &= 0xFFFFFFFF
    if _TRANS.match(name):
      op.flags, op.words = op.flags | TRANS, 2 if meaning.types[0].endswith("64") else 1
    op.flags |= DOT if name.startswith("v_dot") else 0
    if op.flags & CLAMP and meaning.types[0][0] != "f":
      raise self.unknown()
    return self.done(name)

  def of_sixteen_bits(self, meaning: Meaning, name: str) -> None:
    op = self.op
    for slot, kind in enumerate(meaning.types[1:]):
      if not kind.endswith("16"):
        op.mods[slot] &= ~(HALF | HIGH)
    if meaning.types[0].endswith("16"):
      high = self.values.get("src0_modifiers", 0) & HIGH
      op.flags |= RESULT_HIGH if high else 0
      keeps = self.family != "cdna" or re.match(
        r"v_(fma|mad_[ui]16|div_fixup|min3|max3|med3|add_nc_i16|sub_nc_i16|cvt_pk_[fb][pf]8z?_f32)", name
      )
      op.flags |= KEEPS if keeps else 0

  def with_mask(self) -> list[Op]:
    """Carries, choices, and divisions, which read or write a bit of each lane."""
    op, values, name = self.op, self.values, meaning_name(self.name, self.family)
    if name not in meanings():
      raise self.unknown()
    op.dst = self.result()
    kind = name.rsplit("_", 1)[1]
    kinds = ["u32", "u32", "u64"] if name.startswith("v_mad") else [kind] * 3
    kinds = ["i32", "i32", "i64"] if name.startswith("v_mad_i64") else kinds
    if name.startswith("v_cndmask"):
      float_kind = any(op.mods[n] & (NEG | ABS) for n in range(2))
      kinds = [("f" if float_kind else "b") + kind[1:]] * 3
    for slot in range(2):
      self.source(slot, f"src{slot}", kinds[slot])
    if name.startswith("v_cndmask") or "_co_ci_" in name:
      op.src[2] = self.mask("src2") if "src2" in values else VCC
      if 128 <= op.src[2] <= 208:
        self.constant(2, 0 if op.src[2] == 128 else 1)
        if values["src2"] not in (128, 193):
          raise self.unknown()
    elif "src2" in values:
      self.source(2, "src2", kinds[2])
    if name.startswith("v_cndmask"):
      if kind == "b16":
        op.flags |= KEEPS | (RESULT_HIGH if values.get("src0_modifiers", 0) & HIGH else 0)
    else:
      op.dst2 = self.mask("sdst")
    if op.flags & CLAMP and kind[0] != "f":
      raise self.unknown()
    return self.done(name)

  def compare(self) -> list[Op]:
    op, name = self.op, self.name
    meaning = meanings().get(name)
    if meaning is None:
      raise self.unknown()
    executes = name.startswith("v_cmpx")
    op.dst = self.mask("sdst") if self.family == "cdna" or not executes else -1
    self.typed(meaning, ["src0", "src1"])
    if not meaning.types[1].endswith("16"):
      op.mods[0] &= ~(HALF | HIGH)
      op.mods[1] &= ~(HALF | HIGH)
    return self.done(name)

  def mix(self) -> list[Op]:
    op = self.op
    op.dst = self.result()
    for slot in range(3):
      self.source(slot, f"src{slot}", "f16" if op.mods[slot] & HIGH else "f32")
    return self.done(self.name.replace("mad", "fma"))

  def rounded_by_chance(self) -> list[Op]:
    """A float that becomes one of 8 bits, rounded by a random word."""
    op, values = self.op, self.values
    found = re.fullmatch(r"v_cvt_(scalef32_)?sr_([fb][pf]8)_(f32|f16|bf16)", self.name)
    if found is None or values.get("clamp") or op.omod:
      raise self.unknown()
    op.offset, op.space, op.dst = _ELEMENTS[found[3]], int(bool(found[1])), self.result()
    op.offset2 = _ELEMENTS[found[2]] + (2 if self.made.chip == "gfx942" else 0)
    selects = [values.get(f"src{n}_modifiers", 0) for n in range(3)]
    # the lower bit of the byte that is written is in the last source's place, the upper one in the result's
    op.bytes = 8 * (int(bool(selects[2] & HALF)) + 2 * int(bool(selects[0] & HIGH)))
    op.parts = 16 if selects[0] & HALF and found[3] != "f32" else 0
    if selects[0] & HALF and found[3] == "f32" or selects[1] & (HALF | NEG | ABS) or selects[2] & (NEG | ABS):
      raise self.unknown()
    for slot, kind in enumerate(("f32", "b32", "f32")[: 2 + op.space]):
      self.source(slot, f"src{slot}", kind)
      op.mods[slot] &= NEG | ABS
    return self.done("v_cvt_sr")

  def scaled_conversion(self) -> list[Op]:
    """Numbers that become wider or narrower, with a scale; with a random word before that (sr), which rounds all of
    them."""
    op, values = self.op, self.values
    *how, result, source = self.name.removeprefix("v_cvt_scalef32_").split("_")
    seeded, how = how[:1] == ["sr"], [part for part in how if part != "sr"]
    if how not in ([], ["pk"], ["pk32"], ["2xpk16"]):
      raise self.unknown()
    op.offset, op.offset2, op.dst = _ELEMENTS[source], _ELEMENTS[result], self.result()
    op.words = {"pk": 2, "pk32": 32, "2xpk16": 32}.get("".join(how), 1)
    op.space = 2 if how == ["pk"] and source == "f32" and not seeded or how == ["2xpk16"] else 1
    op.wait[0] = int(seeded)
    selects = [values.get(f"src{n}_modifiers", 0) for n in range(3)]
    low, high, first = (int(bool(bits & HALF)) for bits in selects)
    last, narrow = int(bool(selects[0] & HIGH)), source[-2:] not in ("32", "16")
    # which of a register's numbers, or pairs of them, are read and written: of those that fill it there is no choice
    several = 4 if source == "fp4" or not how else 2
    if how not in (["pk32"], ["2xpk16"]):
      op.parts = 32 // several * (low + 2 * high) if narrow else 0
      op.bytes = 8 * (first + 2 * last) if result == "fp4" else 16 * last
    whole = result == "f32" or how and result[-2:] == "16"
    if (low or high) and not narrow or high and several == 2 or op.bytes and whole or first and result != "fp4":
      raise self.unknown()
    for slot in range(op.space + 1 + seeded):
      is_scale, is_seed = slot == op.space + seeded, seeded and slot == op.space
      self.source(slot, f"src{slot}", "f32" if is_scale or source == "f32" and not is_seed else "b32")
      op.mods[slot] &= NEG | ABS
    if op.mods[0] and how == ["pk"] and (source != "f32" or seeded) or seeded and op.mods[1]:
      raise self.unknown()  # which of two it is done to
    return self.done("v_cvt_scalef32")

  def narrow_product(self) -> list[Op]:
    """A product of numbers of 8, 6 or 4 bits, with scales or without."""
    op, values = self.op, self.values
    _, m, k = map(int, re.findall(r"(\d+)x(\d+)x(\d+)", self.name)[0])
    codes_of = values["cbsz"], values["blgp"]
    if max(codes_of) >= len(_NARROW):
      raise self.unknown()
    op.offset, op.offset2 = (_NARROW[code] for code in codes_of)
    op.dst, op.space, op.bytes, op.words = self.result(), 2, m, k
    op.wait[0], op.wait[1] = _ELEMENTS["f32"], 1
    op.wait[2] = {32: 8, 16: 4}[m] * (2 if min(codes_of) < 2 else 1) + 3
    for slot in range(3):
      self.source(slot, f"src{slot}", "f32")
    if "scale_src0" in values:
      op.space, op.dst2 = 3, VECTOR + (values["scale_src1"] & 255)
      self.source(3, "scale_src0", "b32")
    return self.done("v_mfma")

  def matrix(self) -> list[Op]:
    op, name = self.op, self.name
    if name.endswith("f8f6f4"):
      return self.narrow_product()
    found = re.match(
      r"v_(wmma|mfma|swmmac|smfmac)_(f32|f16|bf16|i32|f64)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?((?:bf16|f16|f32|f64|iu8|iu4|i8|fp8|bf8)(?:_(?:fp8|bf8))?)(_1k)?$",
      name,
    )
    if found is None:
      raise self.unknown()
    kind, result, m, _, k, blocks, typed, _ = found.groups()
    types = typed.split("_")
    numbers = [_ELEMENTS[t] + (2 if t in ("fp8", "bf8") and self.made.chip == "gfx942" else 0) for t in (types * 2)[:2]]
    op.offset, op.offset2 = numbers
    op.wait[0] = 4 if result == "i32" else _ELEMENTS[result]
    op.dst = self.result()
    if kind in ("swmmac", "smfmac"):
      return self.sparse_product(kind, result, int(m), int(k))
    if any(self.values.get(field) for field in ("cbsz", "abid")) or self.values.get("blgp") and result != "f64":
      raise self.unknown()
    for slot in range(3):
      self.source(slot, f"src{slot}", result)
    if kind == "wmma":
      op.bytes, op.words = int(k), 4 if self.family == "rdna4" else 3
      return self.done("v_wmma")
    op.bytes, op.words = int(m), int(k)
    each = {"f16": 4, "f32": 1, "f64": 1, "bf16": 4 if name.endswith("_1k") else 2, "i8": 4}.get(types[0], 8)
    newer = "_" in name.rsplit("x", 1)[1].removesuffix("_1k")  # which says how many blocks there are, if several
    op.wait[1] = int(blocks) if blocks else 1 if newer else max(1, 64 * each // (int(k) * int(m)))
    if result == "f64":
      for slot in range(3):
        op.mods[slot] = NEG if self.values.get("blgp", 0) >> slot & 1 else 0
    # the least that there is between it and who uses its result
    passes = {32: 8, 16: 4, 4: 2}[int(m)] * (2 if op.wait[1] > 1 and int(m) > 4 or types[0] in ("f32", "f64") else 1)
    op.wait[2] = passes + 3
    if self.made.chip == "gfx90a":
      op.wait[2], op.wait[3] = _MI200["f64" if result == "f64" else "", int(m)]
    return self.done("v_mfma")

  def sparse_product(self, kind: str, result: str, m: int, k: int) -> list[Op]:
    """A product that is added to its result, and whose A has two in four elements."""
    op, values = self.op, self.values
    for slot in range(2):
      self.source(slot, f"src{slot}", result)
    op.src[2], op.space = op.dst, 1
    op.mods[2] = 0
    if kind == "swmmac":
      self.source(3, "src2", "b32")
      op.bytes, op.words = k, 4
      op.parts = values.get("index_key_16bit", 0)
      return self.done("v_wmma")
    self.source(3, "idx", "b32")
    op.bytes, op.words, op.wait[1] = m, k, 1
    op.wait[2] = {32: 8, 16: 4}[m] + 3
    each = k * m // 64
    op.parts = 0 if values.get("cbsz") else values.get("abid", 0) & 32 // each - 1
    return self.done("v_mfma")

  def dual(self) -> list[Op]:
    """Two operations at once: the first one's result goes to a register of its own, until the second is done."""
    outer = self.op
    outer.code, outer.flags = codes()["dual"], VALU
    ops, targets = [outer], []
    for part, half in zip(self.name.split(" :: "), "XY"):
      self.op = op = self.empty()
      name = part.removeprefix("v_dual_")
      ak, mk = name.startswith("fmaak"), name.startswith("fmamk")
      accumulates = name.startswith(("fmac", "dot2acc"))
      name = re.sub(r"^fma(ak|mk|c)_", "fma_", name).replace("dot2acc", "dot2").replace("_num_", "_")
      meaning = meanings().get(f"v_{name}")
      if meaning is None:
        raise self.unknown()
      op.dst = VECTOR + self.values[f"vdst{half}"]
      kinds = meaning.types[1:] or ("b32", "b32", "b32")
      first, second = (0, 2) if mk else (0, 1)
      self.source(first, f"src0{half}", kinds[0])
      if f"vsrc1{half}" in self.values:
        op.src[second] = VECTOR + (self.values[f"vsrc1{half}"] & 255)
      literal = self.values.get("imm", self.made.literal) or 0
      if ak or mk:
        self.constant(2 if ak else 1, literal)
      if accumulates:
        op.src[2] = op.dst
      if name.startswith("cndmask"):
        op.src[2] = VCC
      if half == "X":
        targets.append(op.dst)
        op.dst = VECTOR + 512
      op.code, op.flags = codes()[f"v_{name}"], VALU
      ops.append(op)
    outer.dst = targets[0]
    return ops

  # memory

  def memory(self) -> list[Op]:
    name, op, values = memory_name(self.name), self.op, self.values
    op.flags |= VMEM
    kind, _, rest = name.partition("_")
    if name in ("ds_swizzle_b32", "ds_bpermute_b32", "ds_permute_b32"):
      op.dst, op.offset = self.result(), values.get("offset", 0)
      self.source(0, "addr", "b32")
      if "data0" in values:
        self.source(1, "data0", "b32")
      op.words = 32 if self.family == "rdna3" else 0  # which lanes exchange words: LLVM's supportsWaveWideBPermute
      return self.done(name)
    atomic = atomic_name(self.name)
    if kind in ("flat", "buffer"):
      return self.flat(rest, atomic) if kind == "flat" else self.buffer(rest, atomic)
    if kind in ("global", "scratch"):
      if "vaddr" in values:
        self.source(0, "vaddr", "b32")
      if "saddr" in values and values["saddr"] != NULL and not (self.family == "cdna" and values["saddr"] == 127):
        op.src[1] = self.number(values["saddr"])
      op.offset = self.offset()
      data = "vdata" if "vdata" in values else "vdst"
      if atomic:
        self.source(2, "vdata", "b32")
        return self.atomic(atomic, "vdst" in values)
      self.access(rest)
      if rest.startswith("load"):
        op.dst = self.result("vdst" if "vdst" in values else data)
      else:
        self.source(2, data, "b32")
      return self.done(f"{kind}_{rest.split('_')[0]}")
    if kind == "ds" and "addr" in values:
      self.source(0, "addr", "b32")
      for slot, field in ((1, "data0"), (2, "data1")):
        if field in values:
          self.source(slot, field, "b32")
      op.offset = values.get("offset", 0)
      if values.get("gds"):
        raise self.unknown()
      if found := re.match(r"ds_(?:storexchg_2addr|wrxchg2)(_stride64|st64)?_rtn_b(32|64)$", self.name):
        unit = int(found[2]) // 8 * (64 if found[1] else 1)
        op.offset, op.offset2, op.dst = values["offset0"] * unit, values["offset1"] * unit, self.result()
        return self.done(f"ds_swap2_b{found[2]}")
      if atomic:
        if "cmpst_" in self.name:  # GCN's has them the other way round
          op.src[1], op.src[2] = op.src[2], op.src[1]
        return self.atomic(atomic, "_rtn_" in self.name)
      if found := re.match(r"ds_read_b(64|96)_tr_b(\d+)$", self.name):
        op.bytes, op.parts, op.dst = int(found[1]) // 8, int(found[2]), self.result()
        return self.done("ds_load_tr")
      self.access(rest)
      op.words = 1
      if "2addr" in rest:
        unit = op.bytes * (64 if "stride64" in rest else 1)
        op.words, op.offset, op.offset2 = 2, values["offset0"] * unit, values["offset1"] * unit
      if rest.startswith("load"):
        op.dst = self.result()
      return self.done(f"ds_{rest.split('_')[0]}")
    raise self.unknown()

  def flat(self, rest: str, atomic: str | None) -> list[Op]:
    """An access whose address says which memory it is."""
    op, values = self.op, self.values
    self.source(0, "vaddr", "b32")
    op.space, op.offset = FLAT, self.offset() if self.family == "rdna4" else values.get("offset", 0) & 0xFFF
    if atomic:
      self.source(2, "vdata", "b32")
      return self.atomic(atomic, "vdst" in values)
    return self.moved(rest, "vdst" if "vdst" in values else "vdata")

  def buffer(self, rest: str, atomic: str | None) -> list[Op]:
    """An access by a descriptor."""
    op, values, words = self.op, self.values, self.layout.modifiers
    if "lds" in words or "lds" in rest or values.get("tfe"):
      raise self.unknown()
    op.flags |= SETTLES
    op.space, op.parts = BUFFER, ("idxen" in words) + 2 * ("offen" in words)
    op.offset, op.src[3] = values.get("offset", 0), self.number(values["srsrc"])
    if "vaddr" in values:
      self.source(0, "vaddr", "b32")
    self.constant_or_scalar(1, values["soffset"], "u32")
    if atomic:
      self.source(2, "vdata", "b32")
      return self.atomic(atomic, self.layout.kinds["cpol"][0].startswith("CPol_GLC"), "vdata")
    return self.moved(rest, "vdata")

  def past_cache(self) -> bool:
    """Whether an access is for waves of the workgroup that have another cache too: GLC on RDNA 3; a scope above that
    of a compute unit on RDNA 4."""
    policy = self.values.get("cpol", 0)
    return bool(policy >> 3 & 3 if self.family == "rdna4" else policy & 1)

  def moved(self, rest: str, data: str) -> list[Op]:
    """A load or a store of the data in a field."""
    self.access(rest)
    if rest.startswith("load"):
      self.op.dst = self.result(data)
    else:
      self.source(2, data, "b32")
    return self.done(f"global_{rest.split('_')[0]}")

  def atomic(self, name: str, returns: bool, to: str = "vdst") -> list[Op]:
    size = 2 if name.endswith("64") else 1
    self.op.words = size * (2 if re.search("cmpswap|mskor|wrap", name) else 1)
    if returns:
      self.op.flags |= RETURNS
      self.op.dst = self.result(to)
    else:
      self.op.dst = VECTOR
    return self.done(name)

  def access(self, rest: str) -> None:
    """What load_b128, store_d16_hi_b8 and so on move: bytes, whether they have a sign, which half of a register."""
    kinds = [part for part in rest.split("_") if part[:1] in "biu" and part[1:].isdigit()]
    if len(kinds) != 1 or rest.split("_")[0] not in ("load", "store"):
      raise self.unknown()
    self.op.flags |= PAST if self.past_cache() else 0
    self.op.bytes = int(kinds[0][1:]) // 8
    self.op.flags |= SIGNED if kinds[0][0] == "i" else 0
    self.op.offset2 = 2 if "d16_hi" in rest else 1 if "d16" in rest and rest.startswith("load") else 0
