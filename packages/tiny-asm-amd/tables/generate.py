"""Writes the tables of instructions from LLVM's records: `python tables/generate.py FOLDER`.

FOLDER has gfx11.json, gfx12.json and gfx940.json, made of `llvm-tblgen --dump-json` of LLVM's AMDGPU.td (19.1.7): for
each instruction its assembly text, size, constant bits, fields, and operands with LLVM's classes. What comes out is a
text file per family in `src/tiny_asm_amd/tables`, sorted, so that a newer LLVM is a difference to read:

  layout  NUMBER  SIZE  OPERANDS AS WRITTEN  FIELD=BIT.BIT OF THE FIELD.LENGTH+…  OPERAND=KIND …
  MNEMONIC  FORM  CHIPS  LAYOUT  CONSTANT BITS  MASK OF THESE

Records that differ in the sizes of registers alone (as those of images do) become one row, whose kinds list the sizes.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src" / "tiny_asm_amd" / "tables"
FAMILIES = {
  "rdna3": ("gfx11", ("gfx1100", "gfx1150")),
  "rdna4": ("gfx12", ("gfx1200",)),
  "cdna": ("gfx940", ("gfx900", "gfx908", "gfx90a", "gfx942", "gfx950")),
}
NONE: tuple[str, ...] = ()
OLD, FROM_90A = ("gfx900", "gfx908"), ("gfx90a", "gfx942", "gfx950")
BEFORE_942, NEWEST = ("gfx900", "gfx908", "gfx90a"), ("gfx942", "gfx950")
ONLY = {
  "isGFX8Only": NONE, "HasSDWA": NONE,
  **dict.fromkeys(("isGFX8GFX9NotGFX90A", "isNotGFX90APlus", "isGFX6GFX7GFX8GFX9NotGFX90A", "isGCN3ExcludingGFX90A",
                   "HasScalarAtomics", "HasDsSrc2Insts"), OLD),
  **dict.fromkeys(("isGFX90APlus", "HasPackedFP32Ops", "HasPkMovB32", "HasFmacF64Inst", "HasDPALU_DPP",
                   "HasLdsAtomicAddF64", "HasAtomicFaddRtnInsts", "HasAtomicBufferGlobalPkAddF16Insts"), FROM_90A),
  **dict.fromkeys(("isGFX8GFX9NotGFX940", "isGFX6GFX7GFX8GFX9", "HasMadMacF32Insts"), BEFORE_942),
  **dict.fromkeys(("isGFX940Plus", "HasAtomicGlobalPkAddBF16Inst", "HasAtomicDsPkAdd16Insts",
                   "HasAtomicFlatPkAdd16Insts", "HasFlatAtomicFaddF32Inst"), NEWEST),
  "isGFX90AOnly": ("gfx90a",), "HasMAIInsts": ("gfx908", *FROM_90A),
  "HasSALUFloatInsts": ("gfx1150", "gfx1200"), "HasVGPRSingleUseHintInsts": ("gfx1150", "gfx1200"),
}  # fmt: skip
"""Which chips of CDNA, and which of RDNA with names of their own, have what; a predicate that is not here all have."""
OF_GFX950 = (
  ("v_maximum3_f32", "v_max3_f32", "", "d2a90000"), ("v_minimum3_f32", "v_min3_f32", "", "d2a80000"),
  ("v_pk_maximum3_f16", "v_pk_fma_f16", "", "d39c0000"), ("v_pk_minimum3_f16", "v_pk_fma_f16", "", "d39b0000"),
  ("v_cvt_pk_f16_f32", "v_cvt_pknorm_i16_f32", "e64", "d2670000"),
  ("v_cvt_pk_bf16_f32", "v_cvt_pknorm_i16_f32", "e64", "d2680000"), ("v_bitop3_b32", "v_or3_b32", "", "d2340000"),
  ("v_bitop3_b16", "v_mad_u16", "", "d2330000"), ("v_permlane16_swap_b32", "v_swap_b32", "", "7e00b200"),
  ("v_permlane32_swap_b32", "v_swap_b32", "", "7e00b400"), ("v_prng_b32", "v_bfrev_b32", "e32", "7e00b000"),
  ("v_mfma_f32_16x16x32_f16", "v_mfma_f32_16x16x16_f16", "", "d3d40000"),
  ("v_mfma_f32_32x32x16_f16", "v_mfma_f32_32x32x8_f16", "", "d3d50000"),
  ("v_mfma_f32_16x16x32_bf16", "v_mfma_f32_16x16x16_bf16", "", "d3b50000"),
  ("v_mfma_f32_32x32x16_bf16", "v_mfma_f32_32x32x8_bf16", "", "d3b70000"),
  ("v_mfma_i32_16x16x64_i8", "v_mfma_i32_16x16x32_i8", "", "d3b60000"),
  ("v_mfma_i32_32x32x32_i8", "v_mfma_i32_32x32x16_i8", "", "d3b80000"),
  ("v_smfmac_f32_16x16x64_f16", "v_smfmac_f32_16x16x32_f16", "", "d3da0000"),
  ("v_smfmac_f32_16x16x64_bf16", "v_smfmac_f32_16x16x32_f16", "", "d3b90000"),
  ("v_smfmac_i32_16x16x128_i8", "v_smfmac_f32_16x16x32_f16", "", "d3ba0000"),
  ("v_smfmac_f32_16x16x128_bf8_bf8", "v_smfmac_f32_16x16x32_f16", "", "d3bb0000"),
  ("v_smfmac_f32_16x16x128_bf8_fp8", "v_smfmac_f32_16x16x32_f16", "", "d3bc0000"),
  ("v_smfmac_f32_16x16x128_fp8_bf8", "v_smfmac_f32_16x16x32_f16", "", "d3bd0000"),
  ("v_smfmac_f32_16x16x128_fp8_fp8", "v_smfmac_f32_16x16x32_f16", "", "d3c30000"),
  ("v_smfmac_f32_32x32x32_f16", "v_smfmac_f32_32x32x16_f16", "", "d3db0000"),
  ("v_smfmac_f32_32x32x32_bf16", "v_smfmac_f32_32x32x16_f16", "", "d3c60000"),
  ("v_smfmac_i32_32x32x64_i8", "v_smfmac_f32_32x32x16_f16", "", "d3c70000"),
  ("v_smfmac_f32_32x32x64_bf8_bf8", "v_smfmac_f32_32x32x16_f16", "", "d3cb0000"),
  ("v_smfmac_f32_32x32x64_bf8_fp8", "v_smfmac_f32_32x32x16_f16", "", "d3ce0000"),
  ("v_smfmac_f32_32x32x64_fp8_bf8", "v_smfmac_f32_32x32x16_f16", "", "d3cf0000"),
  ("v_smfmac_f32_32x32x64_fp8_fp8", "v_smfmac_f32_32x32x16_f16", "", "d3d30000"),
  ("v_mfma_f32_16x16x128_f8f6f4", "v_mfma_f32_16x16x32_fp8_fp8", "", "d3ad0000"),
  ("v_mfma_f32_32x32x64_f8f6f4", "v_mfma_f32_32x32x16_fp8_fp8", "", "d3ae0000"),
  ("v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_f32_16x16x32_fp8_fp8", "", "d3ad080000000000d3ac0000"),
  ("v_mfma_scale_f32_32x32x64_f8f6f4", "v_mfma_f32_32x32x16_fp8_fp8", "", "d3ae080000000000d3ac0000"),
  ("ds_read_b64_tr_b16", "ds_read_b64", "", "d9c60000"),
  ("ds_read_b64_tr_b8", "ds_read_b64", "", "d9c40000"),
  ("ds_read_b64_tr_b4", "ds_read_b64", "", "d9c00000"),
  ("ds_read_b96_tr_b6", "ds_read_b96", "", "d9c20000"),
)  # fmt: skip
"""What gfx950 has more, which LLVM 19 does not know: the instruction, one that is laid out alike and its form, and the
constant bits. As LLVM 22 has them; products of matrices have operands of twice the size, those of f8f6f4 of 256 bits,
192 or 128, as CBSZ and BLGP say."""
SCALED = {
  0x35: """pk_fp8_f32 pk_bf8_f32 sr_fp8_f32 sr_bf8_f32 pk_f32_fp8 pk_f32_bf8 f32_fp8 f32_bf8 pk_fp4_f32 sr_pk_fp4_f32
    pk_f32_fp4 pk_fp8_f16 pk_bf8_f16 sr_fp8_f16 sr_bf8_f16 pk_fp8_bf16 pk_bf8_bf16 sr_fp8_bf16 sr_bf8_bf16 pk_f16_fp8
    pk_f16_bf8 f16_fp8 f16_bf8 pk_fp4_f16 pk_fp4_bf16 sr_pk_fp4_f16 sr_pk_fp4_bf16 pk_f16_fp4 pk_bf16_fp4
    2xpk16_fp6_f32 2xpk16_bf6_f32 sr_pk32_fp6_f32 sr_pk32_bf6_f32 pk32_f32_fp6 pk32_f32_bf6 pk32_fp6_f16 pk32_fp6_bf16
    pk32_bf6_f16 pk32_bf6_bf16 sr_pk32_fp6_f16 sr_pk32_fp6_bf16 sr_pk32_bf6_f16 sr_pk32_bf6_bf16 pk32_f16_fp6
    pk32_bf16_fp6 pk32_f16_bf6 pk32_bf16_bf6""".split(),
  0x69: ["pk_bf16_fp8", "pk_bf16_bf8"],
}
"""V_CVT_SCALEF32_* of gfx950, by the operation of VOP3 that the first of a row has."""
TRUTH = "bitop3=8.3.3+59.6.2+61.0.3"
"""The field of V_BITOP3: eight bits in the places of signs and scales."""
ANONYMOUS = {
  "anonymous_15868": "v1", "anonymous_15870": "v4", "anonymous_15871": "v2", "anonymous_15872": "v1lo",
  "anonymous_15875": "v2", "anonymous_15876": "v1", "anonymous_21878": "s1", "anonymous_22824": "a1",
  "anonymous_23267": "v1lo", "anonymous_24166": "s1",
}  # fmt: skip
"""Classes of operands that LLVM makes without a name, by what the records that use them show."""
PLAIN = {
  "VGPR_32_Lo128": "v1lo", "VGPRSrc_32_Lo128": "v1lo", "VOPDstOperand_t16": "h", "VOPDstOperand_t16Lo128": "hlo",
  "VGPRSrc_16": "h", "VGPRSrc_16_Lo128": "hlo", "VOPDDstYOperand": "v1", "VOPDstS64orS32": "sw", "SDWAVopcDst": "sd",
  "VRegOrLdsSrc_32": "VL.b32", "VINTRPDst": "v1", "SSrcOrLds_b32": "S.b32", "SplitBarrier": "K.b32", "ExpSrc0": "e",
  "ExpSrc1": "e", "ExpSrc2": "e", "ExpSrc3": "e",
}  # fmt: skip
PATTERNS = (
  (r"(?:VGPR|VReg|VGPRSrc|VRegSrc|VDst)_(\d+)$", "v", True), (r"(?:AVLdSt|AVSrc|AVDst|AV)_(\d+)$", "w", True),
  (r"(?:ADst|AReg|ARegSrc)_(\d+)$", "a", True), (r"SReg_(\d+)(?:_X\w+)?$", "s", True), (r"SSrc_(\w+)$", "S.", False),
  (r"SCSrc_(\w+)$", "SC.", False), (r"VSrc_(\w+?)_Deferred$", "V.", False), (r"VSrc_(\w+)$", "V.", False),
  (r"VCSrc_(\w+)$", "VC.", False), (r"VISrc_(\w+)$", "VI.", False), (r"AISrc_(\w+)$", "AI.", False),
  (r"SDWASrc_(\w+)$", "VC.", False), (r"VSrcT_(\w+?)_Lo128$", "VTlo.", False), (r"VSrcT_(\w+)$", "VT.", False),
  (r"VSrcFake16_(\w+?)_Lo128(?:_Deferred)?$", "Vlo.", False),
)  # fmt: skip
CARRIES = {
  "v_add_co_ci_u32", "v_sub_co_ci_u32", "v_subrev_co_ci_u32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32"
}  # fmt: skip
CARRIED = {"v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32"}


def kind_of(cls: str) -> str:
  """What an operand's class is called in the table: v2 has 64 bits of vector registers, V.f32 is a source."""
  if cls in ANONYMOUS:
    return ANONYMOUS[cls]
  if cls in PLAIN:
    return PLAIN[cls]
  for pattern, short, bits in PATTERNS:
    if found := re.match(pattern, cls):
      return short + (str(int(found[1]) // 32) if bits else found[1])
  return cls


def form_of(name: str) -> str:
  """How an instruction is encoded, where a suffix of the mnemonic can ask for that."""
  return next((f for f in ("e64_dpp8", "e64_dpp", "dpp8", "dpp", "sdwa", "e64", "e32") if f"_{f}" in name), "")


def written(mnemonic: str, tail: str, form: str, family: str) -> str:
  """The operands as they are written, with VCC where it is implied."""
  tail = re.sub(r"\bvcc_lo\b", "vcc", re.sub(r"\$\{(\w+)\}", r"$\1", tail.strip()))
  if "vcc" in tail or form.startswith("e64") or "$sdst" in tail:
    return tail
  if mnemonic.startswith("v_cmp_") or mnemonic.startswith("v_cmpx_") and family == "cdna":
    return f"vcc, {tail}"
  if mnemonic in CARRIES | CARRIED or mnemonic == "v_cndmask_b32":
    # behind the last operand, in front of modifiers
    positions = [*re.finditer(r", \$\w+", tail)]
    end = positions[1].end() if mnemonic in CARRIES | CARRIED else positions[-1].end()
    if mnemonic != "v_cndmask_b32":
      first = tail.index(",")
      middle = f"{tail[:first]}, vcc{tail[first:end]}"
      return middle + (", vcc" if mnemonic in CARRIES else "") + tail[end:]
    return f"{tail[:end]}, vcc{tail[end:]}"
  return tail


def halves_of(mnemonic: str) -> set[str]:
  """The operands of an instruction that have 16 bits, by its name: LLVM 19 has names for halves of registers in some
  instructions of RDNA 3 only, and the hardware in all."""
  if mnemonic.startswith(
    ("v_pk_", "v_wmma", "v_dot", "v_sad", "v_qsad", "v_mqsad", "v_sat", "v_interp", "v_perm", "v_cvt_pk")
  ):
    return set()
  if found := re.match(r"v_cvt_(?:norm_)?([a-z]+\d+)_([a-z]+\d+)$", mnemonic):
    return {name for name, kind in (("vdst", found[1]), ("src0", found[2])) if kind.endswith("16")}
  if re.match(r"v_cmpx?_\w+_[fiu]16$", mnemonic) or re.match(r"v_mad_[iu]32_[iu]16$", mnemonic):
    return {"src0", "src1"}
  if mnemonic == "v_cndmask_b16":
    return {"vdst", "src0", "src1"}
  return {"vdst", "src0", "src1", "src2"} if re.match(r"v_[a-z]+(_[a-z]+)*(_i16)?_[fbiu]16$", mnemonic) else set()


def with_halves(key: tuple[Any, ...], kinds: list[str], halves: set[str]) -> tuple[tuple[Any, ...], list[str]]:
  """The same row with these operands as halves of registers; which half is said by bit 7 of a register's number where
  there are 128, else by bits 11 to 14: of the sources, and the result."""
  mnemonic, form, _, size, tail, fields, names, value, mask = key
  low, known = not form.startswith("e64"), dict(zip(names, kinds))
  runs = dict(field.split("=") for field in fields.split())
  bits = int(mask, 16)
  for name in sorted(halves & known.keys()):
    kind = known[name]
    typed = kind.partition(".")[2]
    known[name] = ("VTlo." if low else "VT.") + typed if typed else "hlo" if low else "h"
    if low:
      continue
    source, place, bit = ("src0", 14, 3) if name == "vdst" else (name, 11 + int(name[3]), 2)
    field, run = f"{source}_modifiers", f"{place}.{bit}.1"
    known.setdefault(field, "IntOpSelMods")
    if run not in runs.get(field, "").split("+"):
      runs[field] = "+".join(filter(None, (runs.get(field, ""), run)))
    bits &= ~(1 << place)
  names = tuple(sorted(known))
  fields = " ".join(f"{name}={run}" for name, run in sorted(runs.items()))
  return (mnemonic, form, "t16", size, tail, fields, names, value, hex(bits)), [known[name] for name in names]


def _other(predicate: str, family: str) -> bool:
  """Whether a predicate of ONLY is about another family, and holds in all of this one."""
  return predicate in ONLY and family != "cdna" and not any(chip in ONLY[predicate] for chip in FAMILIES[family][1])


def _scaled(name: str, fields: str, kinds: dict[str, str], mask: str) -> tuple[int, str, str, dict[str, str], str]:
  """Size, operands as written, fields, kinds and mask of a product of f8f6f4, which has no ABID; those with scales are
  two words of 64 bits, of which the first says the scales and which byte of them, and the second the product."""
  runs = dict(field.split("=") for field in fields.split())
  kinds = {key: kind for key, kind in kinds.items() if key != "abid"}
  del runs["abid"]
  bits, tail = int(mask, 16) | 0x7800, "$vdst, $src0, $src1, $src2"
  if "_scale_" not in name:
    shown = " ".join(f"{key}={run}" for key, run in sorted(runs.items()))
    return 8, f"{tail}$cbsz$blgp", shown, kinds, hex(bits)
  for key, run in runs.items():
    parts = [part.split(".") for part in run.split("+")]
    runs[key] = "+".join(f"{int(place) + 64}.{low}.{length}" for place, low, length in parts)
  runs |= {"scale_src0": "32.0.9", "scale_src1": "41.0.9", "src0_modifiers": "11.2.1+59.3.1",
           "src1_modifiers": "12.2.1+60.3.1"}  # fmt: skip
  kinds |= {"scale_src0": "v1", "scale_src1": "v1", "src0_modifiers": "ScaleMods", "src1_modifiers": "ScaleMods"}
  shown = " ".join(f"{key}={run}" for key, run in sorted(runs.items()))
  tail += ", $scale_src0, $scale_src1$op_sel$op_sel_hi$cbsz$blgp"
  first = 0xFFFFFFFF & ~(3 << 11) | 0xFFFFFFFF << 32 & ~(0x3FFFF << 32 | 3 << 59)
  return 16, tail, shown, dict(sorted(kinds.items())), hex(bits << 64 | first)


def add_gfx950(merged: dict[tuple[Any, ...], list[list[str]]]) -> None:
  """Rows of OF_GFX950."""
  for name, like, of, bits in OF_GFX950:
    for key in [key for key in merged if key[:2] == (like, of)]:
      _, form, variant, size, tail, fields, names, value, mask = key
      kinds, form = merged[key][0][1:], "e32" if name.startswith("v_permlane") else form
      accumulates = int(value, 16) & 0x8000 if name.startswith("v_mfma") else 0
      if name.endswith("f8f6f4"):
        size, tail, fields, named, mask = _scaled(name, fields, dict(zip(names, kinds)), mask)
        word = int(bits, 16) | accumulates << (64 if size == 16 else 0)
        for width in ("w8", "w6", "w4"):
          both = {**named, "src0": width, "src1": width}
          merged[name, form, variant, size, tail, fields, tuple(both), hex(word), mask].append(
            ["gfx950", *both.values()]
          )
        continue
      if name.startswith("v_mfma"):
        kinds = ["w4" if kind == "w2" else kind for kind in kinds]
      if name.startswith("v_smfmac"):
        kinds = [{"src0": "w4", "src1": "w8"}.get(operand, kind) for operand, kind in zip(names, kinds)]
      if "_tr_" in name:
        fields, tail = fields.replace("gds=16.0.1 ", ""), tail.replace("$gds", "")
        kinds = [kind for operand, kind in zip(names, kinds) if operand != "gds"]
        names, mask = tuple(n for n in names if n != "gds"), hex(int(mask, 16) | 1 << 16)
      if name.startswith("v_bitop3"):
        runs = [field for field in fields.split() if "_modifiers" not in field and field[:5] != "clamp"]
        half = {"src0": "11.2.1+14.3.1", "src1": "12.2.1", "src2": "13.2.1"} if name.endswith("16") else {}
        runs += [TRUTH, *(f"{source}_modifiers={run}" for source, run in half.items())]
        kept = [(n, k) for n, k in zip(names, kinds) if n != "clamp"] + [("bitop3", "bitop3")]
        fields, tail = " ".join(sorted(runs)), tail.replace("$clamp", "") + "$bitop3"
        pairs = dict(sorted(kept))
        names, kinds = tuple(pairs), list(pairs.values())
        mask = hex(0xFFFF8000)
      merged[name, form, variant, size, tail, fields, names, hex(int(bits, 16) | accumulates), mask].append(
        ["gfx950", *kinds]
      )


def scaled_operands(name: str) -> tuple[str, list[tuple[str, bool]], int]:
  """Of a conversion with a scale: the kind of its result, those of its sources and whether they can have signs, and how
  many bits of op_sel there are. With `sr` one source is random bits; the last one is the scale."""
  *how, result, source = name.split("_")
  bits = {kind: int(kind.lstrip("bfp")) for kind in (result, source)}
  if "pk32" in how or "2xpk16" in how:
    each = [(f"v{bits[source]}", False)] if "pk32" in how else [("v16", False), ("v16", False)]
    return f"v{bits[result]}", [*each, *[("V.b32", False)] * ("sr" in how), ("V.f32", False)], 0
  sixteen = {"f16": "V.v2f16", "bf16": "V.v2b16"} if "pk" in how else {"f16": "V.f16", "bf16": "V.b16"}
  kind = {**sixteen, "f32": "V.v2f32" if how == ["sr", "pk"] else "V.f32"}.get(source, "V.b32")
  count = 2 if how == ["pk"] and source == "f32" else 1
  sources = [*[(kind, bits[source] > 8)] * count, *[("V.b32", False)] * ("sr" in how), ("V.f32", True)]
  return (
    "v2" if how == ["pk"] and result == "f32" else "v1",
    sources,
    4 if len(sources) == 3 or bits[result] == 4 else 3,
  )


def add_scaled(merged: dict[tuple[Any, ...], list[list[str]]]) -> None:
  """Rows of SCALED."""
  for name, code in ((name, first + n) for first, names in SCALED.items() for n, name in enumerate(names)):
    result, sources, selects = scaled_operands(name)
    runs, kinds, written_as = {"vdst": "0.0.8"}, {"vdst": result}, ["$vdst"]
    for n in range(max(len(sources), selects - 1)):
      parts = [f"{8 + n}.1.1", f"{61 + n}.0.1"] if n < len(sources) and sources[n][1] else []
      parts += [f"{11 + n}.2.1"] * (selects > 0) + ["14.3.1"] * (selects > 0 and n == 0)
      if n < len(sources):
        runs[f"src{n}"], kinds[f"src{n}"] = f"{32 + 9 * n}.0.9", sources[n][0]
        written_as.append(f"$src{n}_modifiers" if sources[n][1] else f"$src{n}")
      if parts:
        runs[f"src{n}_modifiers"], kinds[f"src{n}_modifiers"] = "+".join(parts), "FP32InputMods"
    if selects:
      kinds["op_sel"] = "op_sel0"
    kinds = dict(sorted(kinds.items()))
    free = sum(((1 << int(run.split(".")[2])) - 1) << int(run.split(".")[0]) for all_of in runs.values()
               for run in all_of.split("+"))  # fmt: skip
    fields = " ".join(f"{key}={run}" for key, run in sorted(runs.items()))
    tail = ", ".join(written_as) + "$op_sel" * (selects > 0)
    value, mask = hex(0xD2000000 | code << 16), hex((1 << 64) - 1 & ~free)
    merged[f"v_cvt_scalef32_{name}", "", "", 8, tail, fields, tuple(kinds), value, mask].append(
      ["gfx950", *kinds.values()]
    )


def table(records: dict[str, Any], family: str, chips: tuple[str, ...]) -> str:
  """The text of a family's table."""
  merged: dict[tuple[Any, ...], list[list[str]]] = defaultdict(list)
  for name, record in records.items():
    allowed = [c for c in chips if all(c in ONLY.get(p, chips) or _other(p, family) for p in record["predicates"])]
    if (
      record["asm"].endswith(" lds")
      and "_lds_" not in record["asm"]
      and record["asm"].startswith(("global", "scratch"))
    ):
      allowed = [c for c in allowed if c not in NEWEST]  # where the name says it
    if "xf32" in record["asm"]:
      allowed = [c for c in allowed if c != "gfx950"]
    if not allowed or not record["asm"] or name.endswith("_sdwa_vi") or "_alt_" in name:  # second ways of saying it
      continue
    found = record["fields"]
    if "$vdst" in record["asm"] and "vdst" not in found and "vdata" in found:
      found["vdst"] = found.pop("vdata")
    for unnamed in {"Offset", "SOffsetEn"} & found.keys():
      del found[unnamed]  # operands that these records have not, and that are 0
    mnemonic = re.match(r"[^\s$]*", record["asm"])[0]  # type: ignore[index]
    tail, form = record["asm"][len(mnemonic) :], form_of(name)
    mnemonic = re.sub(r"\{.*\}", "", mnemonic)
    while any(mnemonic.endswith(end := suffix) for suffix in ("_e32", "_e64", "_t16", "_nosdst")):
      mnemonic = mnemonic.removesuffix(end)
    if "::" in tail:
      other = re.search(r":: (\w+)", tail)
      assert other is not None
      mnemonic, tail = f"{mnemonic} :: {other[1]}", tail.replace(f":: {other[1]}", ":: ")
    tail = written(mnemonic, tail, form, family)
    if "$a16" in tail and "a16" not in found:
      tail = tail.replace("$a16", " a16" if "_a16_" in name else "")
    named = dict(record["outs"] + record["ins"])
    fields = " ".join(
      f"{key}=" + "+".join(".".join(map(str, run)) for run in runs) for key, runs in sorted(record["fields"].items())
    )
    operands = {key: kind_of(cls) for key, cls in named.items() if key in record["fields"] or f"${key}" in tail}
    # the class of modifiers says which there can be: of numbers, of halves; what else is known by its name
    used = dict(sorted(operands.items()))
    real = any(kind in ("h", "hlo") or kind.startswith("VT") for kind in used.values())
    t16 = "t16" if real else "fake16" if "_t16" in name or "_fake16" in name else ""
    key = (mnemonic, form, t16, record["size"], tail, fields, tuple(used), record["value"], record["mask"])
    merged[key].append([",".join(allowed), *used.values()])
  if family == "cdna":
    add_gfx950(merged)
    add_scaled(merged)
  have = {(key[0], key[1]) for key in merged if key[2] == "t16"}
  for key, columns in list(merged.items()) if family == "rdna3" else ():
    if key[:2] not in have and (halves := halves_of(key[0])) and len(columns) == 1:
      twin, changed = with_halves(key, columns[0][1:], halves)
      merged[twin].append([columns[0][0], *changed])
  layouts: dict[tuple[str, ...], int] = {}
  rows = []
  for key, columns in merged.items():
    mnemonic, form, t16, size, tail, fields, names, value, mask = key
    kinds = [sorted({*column}) for column in list(zip(*columns))[1:]]
    shown = " ".join(f"{name}={'|'.join(kind)}" for name, kind in zip(names, kinds))
    layout = layouts.setdefault((str(size), tail, fields, shown), len(layouts))
    which = {c for row in columns for c in row[0].split(",")}
    names_of = "*" if len(which) == len(chips) else ",".join(sorted(which))
    rows.append((mnemonic, form + (f".{t16}" if t16 else ""), names_of, str(layout), value[2:], mask[2:]))
  lines = [f"chips {' '.join(chips)}"]
  lines += ["\t".join(("layout", str(number), *layout)) for layout, number in layouts.items()]
  lines += ["\t".join(row) for row in sorted(rows)]
  return "\n".join(lines) + "\n"


def main() -> None:
  """Write the tables of all families."""
  folder = Path(sys.argv[1])
  for family, (name, chips) in FAMILIES.items():
    records = json.loads((folder / f"{name}.json").read_text())
    (TARGET / f"{family}.txt").write_text(table(records, family, chips))


if __name__ == "__main__":
  main()
