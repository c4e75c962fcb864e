"""The families' own names for what instructions.py has, and where they count what is on its way."""

from __future__ import annotations

import re
from functools import cache

from gpu_model.amd_code.instructions import meanings

LOADS, STORES, SHARED, SCALARS = range(4)
COUNTERS = {
  "rdna3": ("vmcnt", "vscnt", "lgkmcnt", "lgkmcnt"), "rdna4": ("loadcnt", "storecnt", "dscnt", "kmcnt"),
  "cdna": ("vmcnt", "vmcnt", "lgkmcnt", "lgkmcnt"),
}  # fmt: skip
"""What waits for loads, stores, shared memory, and scalars."""
IGNORED = frozenset(
  "s_delay_alu s_clause s_sendmsg s_set_inst_prefetch_distance s_inst_prefetch s_sleep "
  "s_setprio s_wait_idle s_icache_inv s_dcache_inv s_dcache_wb buffer_gl1_inv buffer_wbl2 buffer_inv "
  "buffer_invl2 buffer_wbinvl1 buffer_wbinvl1_vol global_wb s_prefetch_inst s_prefetch_inst_pc_rel "
  "s_prefetch_data s_code_end s_waitcnt_expcnt s_wait_expcnt".split()
)
"""Hints, and what this machine, whose caches keep nothing from one launch to the next, need not do."""
_ALU = {
  "cdna": {
    r"v_(add|sub|subrev)_(u|i)(16|32)": r"v_\1_nc_\2\3", r"v_addc_co_u32": "v_add_co_ci_u32",
    r"v_subb(rev)?_co_u32": r"v_sub\1_co_ci_u32", r"v_ffbh_u32": "v_clz_i32_u32", r"v_ffbl_b32": "v_ctz_i32_b32",
    r"v_ffbh_i32": "v_cls_i32", r"v_cvt_pkrtz_f16_f32": "v_cvt_pk_rtz_f16_f32",
    r"v_cvt_rpi_i32_f32": "v_cvt_nearest_i32_f32", r"v_cvt_flr_i32_f32": "v_cvt_floor_i32_f32",
    r"v_dot4c?_i32_i8": "v_dot4_i32_i8", r"v_dot2c?_f32_f16": "v_dot2_f32_f16", r"v_dot2c_f32_bf16": "v_dot2_f32_bf16",
    r"s_(and|or)n2_(saveexec_)?b(32|64)": r"s_\1_not1_\2b\3", r"s_(and|or)n1_saveexec_b64": r"s_\1_not0_saveexec_b64",
    r"s_ff1_i32_b(32|64)": r"s_ctz_i32_b\1", r"s_flbit_i32_b(32|64)": r"s_clz_i32_u\1", r"s_flbit_i32": "s_cls_i32",
    r"s_flbit_i32_i64": "s_cls_i32_i64", r"v_mad_legacy_([fui]16)": r"v_mad_\1", r"v_mul_lo_i32": "v_mul_lo_u32",
  },
  "rdna3": {r"v_dot2acc_f32_f16": "v_dot2_f32_f16", r"v_cvt_pkrtz_f16_f32": "v_cvt_pk_rtz_f16_f32",
            r"v_mul_dx9_zero_f32": "v_mul_legacy_f32"},
  "rdna4": {
    r"(.*)_(min|max|minmax|maxmin|min3|max3|med3)_num_(f\d+)": r"\1_\2_\3", r"v_mad_co_(u64_u32|i64_i32)": r"v_mad_\1",
    r"s_(add|sub)_co_(u|i)32": r"s_\1_\g<2>32", r"s_add_co_ci_u32": "s_addc_u32", r"s_sub_co_ci_u32": "s_subb_u32",
    r"v_cvt_pkrtz_f16_f32": "v_cvt_pk_rtz_f16_f32", r"v_dot2acc_f32_f16": "v_dot2_f32_f16",
    r"v_pk_(min|max)_num_f16": r"v_pk_\1_f16", r"v_mul_dx9_zero_f32": "v_mul_legacy_f32",
  },
}  # fmt: skip
_SIZES = {
  "dword": "b32", "dwordx2": "b64", "dwordx3": "b96", "dwordx4": "b128", "dwordx8": "b256", "dwordx16": "b512",
  "ubyte": "u8", "sbyte": "i8", "ushort": "u16", "sshort": "i16", "byte": "b8", "short": "b16", "short_d16": "d16_b16",
  "short_d16_hi": "d16_hi_b16", "ubyte_d16": "d16_u8", "ubyte_d16_hi": "d16_hi_u8", "sbyte_d16": "d16_i8",
  "sbyte_d16_hi": "d16_hi_i8", "byte_d16_hi": "d16_hi_b8",
}  # fmt: skip


def memory_name(name: str) -> str:
  """An access to memory, as RDNA 3 calls it: global_load_b32 for global_load_dword, ds_load_2addr_b32 for
  ds_read2_b32."""
  if found := re.match(r"(s|global|scratch|flat|buffer)_(load|store)_(\w+)$", name):
    size = _SIZES.get(found[3], found[3])
    return f"{found[1]}_{found[2]}_{size}"
  if found := re.match(r"ds_(read|write)(2|2st64)?_(\w+)$", name):
    kind = {"read": "load", "write": "store"}[found[1]]
    two = {"2": "2addr_", "2st64": "2addr_stride64_", None: ""}[found[2]]
    size = re.sub(r"^(u8|i8|u16|i16|b16|b8)_(d16(?:_hi)?)$", r"\2_\1", found[3]).replace("d16_u16", "d16_b16")
    return f"ds_{kind}_{two}{size.replace('d16_hi_u16', 'd16_hi_b16')}"
  return name


def atomic_name(name: str) -> str | None:
  """The meaning of an atomic operation, or None."""
  if found := re.match(r"((?:global|flat|buffer)_atomic|ds)_(\w+)$", name):
    where = "ds" if found[1] == "ds" else "global_atomic"
    rest = (
      found[2].replace("rtn_", "").replace("cmpstore", "cmpswap").replace("storexchg", "swap").replace("wrxchg", "swap")
    )
    rest = re.sub("^cmpst_", "cmpswap_", rest).replace("_num_", "_")
    wide = rest.endswith("_x2")
    rest = rest.removesuffix("_x2")
    if where == "global_atomic" and not re.search(r"_(b|u|i|f|bf)\d+$", rest):  # of CDNA
      kind = {
        "smin": "i",
        "smax": "i",
        "umin": "u",
        "umax": "u",
        "swap": "b",
        "cmpswap": "b",
        "and": "b",
        "or": "b",
        "xor": "b",
      }
      rest = re.sub(r"^[su](min|max)$", r"\1", rest) + f"_{kind.get(rest, 'u')}{64 if wide else 32}"
    rest = re.sub(r"^csub_u32$", "sub_clamp_u32", rest)
    full = f"{where}_{rest}"
    return full if full in meanings() else None
  return None


@cache
def meaning_name(mnemonic: str, family: str) -> str:
  """The name of what an instruction of the ALUs does."""
  for pattern, to in _ALU[family].items():
    if re.fullmatch(pattern, mnemonic):
      return re.sub(f"^{pattern}$", to, mnemonic)
  return mnemonic
