"""Older names of instructions, which assemblers take too."""

from __future__ import annotations

ALIASES: dict[str, dict[str, str]] = {
  "rdna3": {
    "s_andn1_saveexec_b32": "s_and_not0_saveexec_b32", "s_andn1_saveexec_b64": "s_and_not0_saveexec_b64",
    "s_andn1_wrexec_b32": "s_and_not0_wrexec_b32", "s_andn1_wrexec_b64": "s_and_not0_wrexec_b64",
    "s_andn2_b32": "s_and_not1_b32", "s_andn2_b64": "s_and_not1_b64",
    "s_andn2_saveexec_b32": "s_and_not1_saveexec_b32", "s_andn2_saveexec_b64": "s_and_not1_saveexec_b64",
    "s_andn2_wrexec_b32": "s_and_not1_wrexec_b32", "s_andn2_wrexec_b64": "s_and_not1_wrexec_b64",
    "s_ff1_i32_b32": "s_ctz_i32_b32", "s_ff1_i32_b64": "s_ctz_i32_b64", "s_flbit_i32": "s_cls_i32",
    "s_flbit_i32_b32": "s_clz_i32_u32", "s_flbit_i32_b64": "s_clz_i32_u64", "s_flbit_i32_i64": "s_cls_i32_i64",
    "s_orn1_saveexec_b32": "s_or_not0_saveexec_b32", "s_orn1_saveexec_b64": "s_or_not0_saveexec_b64",
    "s_orn2_b32": "s_or_not1_b32", "s_orn2_b64": "s_or_not1_b64", "s_orn2_saveexec_b32": "s_or_not1_saveexec_b32",
    "s_orn2_saveexec_b64": "s_or_not1_saveexec_b64", "v_cmp_tru_f16": "v_cmp_t_f16", "v_cmp_tru_f32": "v_cmp_t_f32",
    "v_cmp_tru_f64": "v_cmp_t_f64", "v_cmpx_tru_f16": "v_cmpx_t_f16", "v_cmpx_tru_f32": "v_cmpx_t_f32",
    "v_cmpx_tru_f64": "v_cmpx_t_f64", "v_cvt_flr_i32_f32": "v_cvt_floor_i32_f32",
    "v_cvt_pkrtz_f16_f32": "v_cvt_pk_rtz_f16_f32", "v_cvt_rpi_i32_f32": "v_cvt_nearest_i32_f32",
    "v_dot2c_f32_f16": "v_dot2acc_f32_f16", "v_ffbh_i32": "v_cls_i32", "v_ffbh_u32": "v_clz_i32_u32",
    "v_ffbl_b32": "v_ctz_i32_b32", "v_fma_legacy_f32": "v_fma_dx9_zero_f32",
    "v_fmac_legacy_f32": "v_fmac_dx9_zero_f32", "v_mul_legacy_f32": "v_mul_dx9_zero_f32",
  },
  "rdna4": {
    "s_andn1_saveexec_b32": "s_and_not0_saveexec_b32", "s_andn1_saveexec_b64": "s_and_not0_saveexec_b64",
    "s_andn1_wrexec_b32": "s_and_not0_wrexec_b32", "s_andn1_wrexec_b64": "s_and_not0_wrexec_b64",
    "s_andn2_b32": "s_and_not1_b32", "s_andn2_b64": "s_and_not1_b64",
    "s_andn2_saveexec_b32": "s_and_not1_saveexec_b32", "s_andn2_saveexec_b64": "s_and_not1_saveexec_b64",
    "s_andn2_wrexec_b32": "s_and_not1_wrexec_b32", "s_andn2_wrexec_b64": "s_and_not1_wrexec_b64",
    "s_ff1_i32_b32": "s_ctz_i32_b32", "s_ff1_i32_b64": "s_ctz_i32_b64", "s_flbit_i32": "s_cls_i32",
    "s_flbit_i32_b32": "s_clz_i32_u32", "s_flbit_i32_b64": "s_clz_i32_u64", "s_flbit_i32_i64": "s_cls_i32_i64",
    "s_orn1_saveexec_b32": "s_or_not0_saveexec_b32", "s_orn1_saveexec_b64": "s_or_not0_saveexec_b64",
    "s_orn2_b32": "s_or_not1_b32", "s_orn2_b64": "s_or_not1_b64", "s_orn2_saveexec_b32": "s_or_not1_saveexec_b32",
    "s_orn2_saveexec_b64": "s_or_not1_saveexec_b64", "v_cvt_flr_i32_f32": "v_cvt_floor_i32_f32",
    "v_cvt_pkrtz_f16_f32": "v_cvt_pk_rtz_f16_f32", "v_cvt_rpi_i32_f32": "v_cvt_nearest_i32_f32",
    "v_ffbh_i32": "v_cls_i32", "v_ffbh_u32": "v_clz_i32_u32", "v_ffbl_b32": "v_ctz_i32_b32",
    "v_mul_legacy_f32": "v_mul_dx9_zero_f32",
  },
}  # fmt: skip
"""Of each family: old name → name in the table."""
