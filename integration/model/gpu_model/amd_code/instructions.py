"""What instructions do, as rows: of all families, by one name each (families.py has the families' own names).

A row of VALU, PACKED or WAVE is

  name  result operands = a C++ expression of a, b, c

with types f16 to f64, i16 to u64 and b16 to b64; PACKED has one type for all, and does it twice. Of WAVE, `;` comes
before what SCC is, of d, the result. SPECIAL rows are calls, of w, the wave, and o, the instruction. Sources: AMD's
"RDNA3 Instruction Set Architecture", chapter 16, and its siblings for RDNA 4 and CDNA 3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

VALU = """
add_f16 f16 f16 f16 = a + b
add_f32 f32 f32 f32 = a + b
add_f64 f64 f64 f64 = a + b
sub_f16 f16 f16 f16 = a - b
sub_f32 f32 f32 f32 = a - b
subrev_f16 f16 f16 f16 = b - a
subrev_f32 f32 f32 f32 = b - a
mul_f16 f16 f16 f16 = a * b
mul_f32 f32 f32 f32 = a * b
mul_f64 f64 f64 f64 = a * b
mul_legacy_f32 f32 f32 f32 = a == 0 || b == 0 ? 0 : a * b
max_f16 f16 f16 f16 = larger(a, b)
max_f32 f32 f32 f32 = larger(a, b)
max_f64 f64 f64 f64 = larger(a, b)
min_f16 f16 f16 f16 = smaller(a, b)
min_f32 f32 f32 f32 = smaller(a, b)
min_f64 f64 f64 f64 = smaller(a, b)
maximum_f16 f16 f16 f16 = maximum(a, b)
maximum_f32 f32 f32 f32 = maximum(a, b)
maximum_f64 f64 f64 f64 = maximum(a, b)
minimum_f16 f16 f16 f16 = minimum(a, b)
minimum_f32 f32 f32 f32 = minimum(a, b)
minimum_f64 f64 f64 f64 = minimum(a, b)
max3_f16 f16 f16 f16 f16 = larger(larger(a, b), c)
max3_f32 f32 f32 f32 f32 = larger(larger(a, b), c)
min3_f16 f16 f16 f16 f16 = smaller(smaller(a, b), c)
min3_f32 f32 f32 f32 f32 = smaller(smaller(a, b), c)
maximum3_f16 f16 f16 f16 f16 = maximum(maximum(a, b), c)
maximum3_f32 f32 f32 f32 f32 = maximum(maximum(a, b), c)
minimum3_f16 f16 f16 f16 f16 = minimum(minimum(a, b), c)
minimum3_f32 f32 f32 f32 f32 = minimum(minimum(a, b), c)
maxmin_f16 f16 f16 f16 f16 = smaller(larger(a, b), c)
maxmin_f32 f32 f32 f32 f32 = smaller(larger(a, b), c)
minmax_f16 f16 f16 f16 f16 = larger(smaller(a, b), c)
minmax_f32 f32 f32 f32 f32 = larger(smaller(a, b), c)
maximumminimum_f16 f16 f16 f16 f16 = minimum(maximum(a, b), c)
maximumminimum_f32 f32 f32 f32 f32 = minimum(maximum(a, b), c)
minimummaximum_f16 f16 f16 f16 f16 = maximum(minimum(a, b), c)
minimummaximum_f32 f32 f32 f32 f32 = maximum(minimum(a, b), c)
med3_f16 f16 f16 f16 f16 = median(a, b, c)
med3_f32 f32 f32 f32 f32 = median(a, b, c)
fma_f16 f16 f16 f16 f16 = fused(a, b, c)
fma_f32 f32 f32 f32 f32 = fused(a, b, c)
fma_f64 f64 f64 f64 f64 = fused(a, b, c)
fma_dx9_zero_f32 f32 f32 f32 f32 = a == 0 || b == 0 ? c : fused(a, b, c)
mad_f32 f32 f32 f32 f32 = a * b + c
mad_f16 f16 f16 f16 f16 = f16(a * b) + c
ldexp_f16 f16 f16 i16 = f16(std::ldexp(f32(a), b))
ldexp_f32 f32 f32 i32 = std::ldexp(a, b)
ldexp_f64 f64 f64 i32 = std::ldexp(a, b)
floor_f16 f16 f16 = floor_of(a)
floor_f32 f32 f32 = floor_of(a)
floor_f64 f64 f64 = floor_of(a)
ceil_f16 f16 f16 = ceil_of(a)
ceil_f32 f32 f32 = ceil_of(a)
ceil_f64 f64 f64 = ceil_of(a)
trunc_f16 f16 f16 = trunc_of(a)
trunc_f32 f32 f32 = trunc_of(a)
trunc_f64 f64 f64 = trunc_of(a)
rndne_f16 f16 f16 = even_of(a)
rndne_f32 f32 f32 = even_of(a)
rndne_f64 f64 f64 = even_of(a)
fract_f16 f16 f16 = fract_of(a)
fract_f32 f32 f32 = fract_of(a)
fract_f64 f64 f64 = fract_of(a)
rcp_f16 f16 f16 = reciprocal(a)
rcp_f32 f32 f32 = reciprocal(a)
rcp_f64 f64 f64 = reciprocal(a)
rcp_iflag_f32 f32 f32 = reciprocal(a)
rsq_f16 f16 f16 = reciprocal_root(a)
rsq_f32 f32 f32 = reciprocal_root(a)
rsq_f64 f64 f64 = reciprocal_root(a)
sqrt_f16 f16 f16 = root(a)
sqrt_f32 f32 f32 = root(a)
sqrt_f64 f64 f64 = root(a)
exp_f16 f16 f16 = power_of_two(a)
exp_f32 f32 f32 = power_of_two(a)
log_f16 f16 f16 = logarithm(a)
log_f32 f32 f32 = logarithm(a)
sin_f32 f32 f32 = sine(a)
cos_f32 f32 f32 = cosine(a)
sin_f16 f16 f16 = f16(sine(a))
cos_f16 f16 f16 = f16(cosine(a))
frexp_mant_f16 f16 f16 = mantissa_of(a)
frexp_mant_f32 f32 f32 = mantissa_of(a)
frexp_mant_f64 f64 f64 = mantissa_of(a)
frexp_exp_i16_f16 i16 f16 = power_in(a)
frexp_exp_i32_f32 i32 f32 = power_in(a)
frexp_exp_i32_f64 i32 f64 = power_in(a)
div_fixup_f16 f16 f16 f16 f16 = divided(a, b, c)
div_fixup_f32 f32 f32 f32 f32 = divided(a, b, c)
div_fixup_f64 f64 f64 f64 f64 = divided(a, b, c)
mov_b16 b16 b16 = a
mov_b32 b32 b32 = a
mov_b64 b64 b64 = a
accvgpr_read_b32 b32 b32 = a
accvgpr_write_b32 b32 b32 = a
not_b16 b16 b16 = ~a
not_b32 b32 b32 = ~a
and_b16 b16 b16 b16 = a & b
and_b32 b32 b32 b32 = a & b
or_b16 b16 b16 b16 = a | b
or_b32 b32 b32 b32 = a | b
xor_b16 b16 b16 b16 = a ^ b
xor_b32 b32 b32 b32 = a ^ b
xnor_b32 b32 b32 b32 = ~(a ^ b)
and_or_b32 b32 b32 b32 b32 = (a & b) | c
or3_b32 b32 b32 b32 b32 = a | b | c
xor3_b32 b32 b32 b32 b32 = a ^ b ^ c
xad_u32 u32 u32 u32 u32 = (a ^ b) + c
bfi_b32 b32 b32 b32 b32 = (a & b) | (~a & c)
bfe_u32 u32 u32 u32 u32 = a >> (b & 31) & ones(c & 31)
bfe_i32 i32 u32 u32 u32 = field_of(a >> (b & 31), 0, c & 31)
bfm_b32 b32 b32 b32 = ones(a & 31) << (b & 31)
bfrev_b32 b32 b32 = reversed(a)
bcnt_u32_b32 u32 u32 u32 = __builtin_popcount(a) + b
mbcnt_lo_u32_b32 u32 u32 u32 = b + __builtin_popcount(a & ones(lane))
mbcnt_hi_u32_b32 u32 u32 u32 = b + (lane > 32 ? __builtin_popcount(a & ones(lane - 32)) : 0)
clz_i32_u32 u32 u32 = leading(a)
ctz_i32_b32 u32 u32 = trailing(a)
cls_i32 u32 i32 = leading_signs(a)
perm_b32 b32 b32 b32 b32 = bytes_by(a, b, c)
alignbit_b32 b32 b32 b32 b32 = u32((u64(a) << 32 | b) >> (c & 31))
alignbyte_b32 b32 b32 b32 b32 = u32((u64(a) << 32 | b) >> 8 * (c & 3))
lshlrev_b16 u16 u16 u16 = u16(b << (a & 15))
lshlrev_b32 u32 u32 u32 = b << (a & 31)
lshlrev_b64 u64 u32 u64 = b << (a & 63)
lshrrev_b16 u16 u16 u16 = u16(b >> (a & 15))
lshrrev_b32 u32 u32 u32 = b >> (a & 31)
lshrrev_b64 u64 u32 u64 = b >> (a & 63)
ashrrev_i16 i16 u16 i16 = i16(b >> (a & 15))
ashrrev_i32 i32 u32 i32 = b >> (a & 31)
ashrrev_i64 i64 u32 i64 = b >> (a & 63)
add_nc_u16 u16 u16 u16 = u16(a + b)
sub_nc_u16 u16 u16 u16 = u16(a - b)
subrev_nc_u16 u16 u16 u16 = u16(b - a)
add_nc_i16 u16 u16 u16 = u16(a + b)
sub_nc_i16 u16 u16 u16 = u16(a - b)
mul_lo_u16 u16 u16 u16 = u16(u32(a) * b)
mad_u16 u16 u16 u16 u16 = u16(u32(a) * b + c)
mad_i16 u16 u16 u16 u16 = u16(u32(a) * b + c)
mad_u32_u16 u32 u16 u16 u32 = u32(a) * b + c
mad_i32_i16 u32 i16 i16 u32 = u32(i32(a) * b) + c
add_nc_u32 u32 u32 u32 = a + b
sub_nc_u32 u32 u32 u32 = a - b
subrev_nc_u32 u32 u32 u32 = b - a
add_nc_i32 u32 u32 u32 = a + b
sub_nc_i32 u32 u32 u32 = a - b
add3_u32 u32 u32 u32 u32 = a + b + c
lshl_add_u32 u32 u32 u32 u32 = (a << (b & 31)) + c
lshl_add_u64 u64 u64 u32 u64 = (a << (b & 63)) + c
add_lshl_u32 u32 u32 u32 u32 = (a + b) << (c & 31)
lshl_or_b32 u32 u32 u32 u32 = (a << (b & 31)) | c
mul_lo_u32 u32 u32 u32 = a * b
mul_hi_u32 u32 u32 u32 = u32(u64(a) * b >> 32)
mul_hi_i32 i32 i32 i32 = i32(i64(a) * b >> 32)
mul_u32_u24 u32 u32 u32 = (a & 0xFFFFFF) * (b & 0xFFFFFF)
mul_i32_i24 u32 u32 u32 = u32(sext24(a) * sext24(b))
mul_hi_u32_u24 u32 u32 u32 = u32(u64(a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32)
mul_hi_i32_i24 u32 u32 u32 = u32(u64(sext24(a) * sext24(b)) >> 32)
mad_u32_u24 u32 u32 u32 u32 = (a & 0xFFFFFF) * (b & 0xFFFFFF) + c
mad_i32_i24 u32 u32 u32 u32 = u32(sext24(a) * sext24(b)) + c
max_u16 u16 u16 u16 = std::max(a, b)
min_u16 u16 u16 u16 = std::min(a, b)
max_i16 i16 i16 i16 = std::max(a, b)
min_i16 i16 i16 i16 = std::min(a, b)
max_u32 u32 u32 u32 = std::max(a, b)
min_u32 u32 u32 u32 = std::min(a, b)
max_i32 i32 i32 i32 = std::max(a, b)
min_i32 i32 i32 i32 = std::min(a, b)
max3_u16 u16 u16 u16 u16 = std::max(std::max(a, b), c)
min3_u16 u16 u16 u16 u16 = std::min(std::min(a, b), c)
max3_i16 i16 i16 i16 i16 = std::max(std::max(a, b), c)
min3_i16 i16 i16 i16 i16 = std::min(std::min(a, b), c)
max3_u32 u32 u32 u32 u32 = std::max(std::max(a, b), c)
min3_u32 u32 u32 u32 u32 = std::min(std::min(a, b), c)
max3_i32 i32 i32 i32 i32 = std::max(std::max(a, b), c)
min3_i32 i32 i32 i32 i32 = std::min(std::min(a, b), c)
med3_u16 u16 u16 u16 u16 = median(a, b, c)
med3_i16 i16 i16 i16 i16 = median(a, b, c)
med3_u32 u32 u32 u32 u32 = median(a, b, c)
med3_i32 i32 i32 i32 i32 = median(a, b, c)
maxmin_u32 u32 u32 u32 u32 = std::min(std::max(a, b), c)
maxmin_i32 i32 i32 i32 i32 = std::min(std::max(a, b), c)
minmax_u32 u32 u32 u32 u32 = std::max(std::min(a, b), c)
minmax_i32 i32 i32 i32 i32 = std::max(std::min(a, b), c)
sad_u8 u32 u32 u32 u32 = sum_of_differences(a, b, c)
sad_u32 u32 u32 u32 u32 = c + (a > b ? a - b : b - a)
dot2_f32_f16 f32 u32 u32 f32 = two_products(a, b, c, half_of)
dot2_f32_bf16 f32 u32 u32 f32 = two_products(a, b, c, wide_of)
dot4_u32_u8 u32 u32 u32 u32 = four_products<u8>(a, b, c)
dot4_i32_i8 u32 u32 u32 u32 = four_products<i8>(a, b, c)
cvt_f16_f32 f16 f32 = f16(a)
cvt_f32_f16 f32 f16 = f32(a)
cvt_f32_bf16 f32 u16 = wide_of(a)
cvt_f64_f32 f64 f32 = f64(a)
cvt_f32_f64 f32 f64 = f32(a)
cvt_f16_i16 f16 i16 = f16(f32(a))
cvt_f16_u16 f16 u16 = f16(f32(a))
cvt_i16_f16 i16 f16 = saturated<i16>(a)
cvt_u16_f16 u16 f16 = saturated<u16>(a)
cvt_f32_i32 f32 i32 = f32(a)
cvt_f32_u32 f32 u32 = f32(a)
cvt_f64_i32 f64 i32 = f64(a)
cvt_f64_u32 f64 u32 = f64(a)
cvt_i32_f32 i32 f32 = saturated<i32>(a)
cvt_u32_f32 u32 f32 = saturated<u32>(a)
cvt_i32_f64 i32 f64 = saturated<i32>(a)
cvt_u32_f64 u32 f64 = saturated<u32>(a)
cvt_nearest_i32_f32 i32 f32 = saturated<i32>(std::floor(a + 0.5f))
cvt_floor_i32_f32 i32 f32 = saturated<i32>(std::floor(a))
cvt_i32_i16 i32 i16 = i32(a)
cvt_u32_u16 u32 u16 = u32(a)
cvt_f32_ubyte0 f32 u32 = f32(a & 255)
cvt_f32_ubyte1 f32 u32 = f32(a >> 8 & 255)
cvt_f32_ubyte2 f32 u32 = f32(a >> 16 & 255)
cvt_f32_ubyte3 f32 u32 = f32(a >> 24)
cvt_pk_rtz_f16_f32 u32 f32 f32 = bits_of(toward_zero(a)) | u32(bits_of(toward_zero(b))) << 16
cvt_pk_f16_f32 u32 f32 f32 = bits_of(f16(a)) | u32(bits_of(f16(b))) << 16
cvt_pk_bf16_f32 u32 f32 f32 = bf16_of(a) | u32(bf16_of(b)) << 16
cvt_pk_i16_i32 u32 i32 i32 = u16(clamped<i16>(a)) | u32(u16(clamped<i16>(b))) << 16
cvt_pk_u16_u32 u32 u32 u32 = clamped<u16>(a) | u32(clamped<u16>(b)) << 16
cvt_pk_u8_f32 u32 f32 u32 u32 = (c & ~(255u << 8 * (b & 3))) | u32(saturated<u8>(even_of(a))) << 8 * (b & 3)
pack_b32_f16 u32 b16 b16 = a | u32(b) << 16
"""
VALU += "".join(
  f"""cvt_f32_{name} f32 u32 = f32(float8(a & 255, {of}))
cvt_pk_f32_{name} u64 u32 = bits_of(f32(float8(a & 255, {of}))) | u64(bits_of(f32(float8(a >> 8 & 255, {of})))) << 32
cvt_pk_{name}_f32 u16 f32 f32 = u16(narrow_bits(a, {name.upper()}) | narrow_bits(b, {name.upper()}) << 8)
"""
  for name, of in (("fp8", "4, false"), ("bf8", "5, false"), ("fp8z", "4, true"), ("bf8z", "5, true"))
)
"""Floats of 8 bits: OCP's, and with z those of CDNA 3."""

SATURATED = """
add_nc_u16 u16 u16 u16 = clamped<u16>(i64(a) + b)
sub_nc_u16 u16 u16 u16 = clamped<u16>(i64(a) - b)
subrev_nc_u16 u16 u16 u16 = clamped<u16>(i64(b) - a)
add_nc_i16 i16 i16 i16 = clamped<i16>(i64(a) + b)
sub_nc_i16 i16 i16 i16 = clamped<i16>(i64(a) - b)
add_nc_u32 u32 u32 u32 = clamped<u32>(i64(a) + b)
sub_nc_u32 u32 u32 u32 = clamped<u32>(i64(a) - b)
subrev_nc_u32 u32 u32 u32 = clamped<u32>(i64(b) - a)
add_nc_i32 i32 i32 i32 = clamped<i32>(i64(a) + b)
sub_nc_i32 i32 i32 i32 = clamped<i32>(i64(a) - b)
"""
"""Sums with `clamp`."""

PACKED = """
pk_add_f16 f16 2 = a + b
pk_mul_f16 f16 2 = a * b
pk_fma_f16 f16 3 = fused(a, b, c)
pk_max_f16 f16 2 = larger(a, b)
pk_min_f16 f16 2 = smaller(a, b)
pk_maximum_f16 f16 2 = maximum(a, b)
pk_minimum_f16 f16 2 = minimum(a, b)
pk_maximum3_f16 f16 3 = maximum(maximum(a, b), c)
pk_minimum3_f16 f16 3 = minimum(minimum(a, b), c)
pk_add_f32 f32 2 = a + b
pk_mul_f32 f32 2 = a * b
pk_fma_f32 f32 3 = fused(a, b, c)
pk_mov_b32 u32 2 = a
pk_add_u16 u16 2 = u16(a + b)
pk_sub_u16 u16 2 = u16(a - b)
pk_add_i16 u16 2 = u16(a + b)
pk_sub_i16 u16 2 = u16(a - b)
pk_mul_lo_u16 u16 2 = u16(u32(a) * b)
pk_mad_u16 u16 3 = u16(u32(a) * b + c)
pk_mad_i16 u16 3 = u16(u32(a) * b + c)
pk_max_u16 u16 2 = std::max(a, b)
pk_min_u16 u16 2 = std::min(a, b)
pk_max_i16 i16 2 = std::max(a, b)
pk_min_i16 i16 2 = std::min(a, b)
pk_lshlrev_b16 u16 2 = u16(b << (a & 15))
pk_lshrrev_b16 u16 2 = u16(b >> (a & 15))
pk_ashrrev_i16 i16 2 = i16(b >> (a & 15))
"""

WAVE = """
cmov_b32 u32 u32 u32 = carry_of(w) ? a : b
lshl_b32 u32 u32 u32 = a << (b & 31) ; d != 0
lshl_b64 u64 u64 u32 = a << (b & 63) ; d != 0
lshr_b32 u32 u32 u32 = a >> (b & 31) ; d != 0
lshr_b64 u64 u64 u32 = a >> (b & 63) ; d != 0
ashr_i32 i32 i32 u32 = a >> (b & 31) ; d != 0
ashr_i64 i64 i64 u32 = a >> (b & 63) ; d != 0
lshl1_add_u32 u32 u32 u32 = (a << 1) + b ; (u64(a) << 1) + b >> 32 != 0
lshl2_add_u32 u32 u32 u32 = (a << 2) + b ; (u64(a) << 2) + b >> 32 != 0
lshl3_add_u32 u32 u32 u32 = (a << 3) + b ; (u64(a) << 3) + b >> 32 != 0
lshl4_add_u32 u32 u32 u32 = (a << 4) + b ; (u64(a) << 4) + b >> 32 != 0
bfm_b32 u32 u32 u32 = ones(a & 31) << (b & 31)
bfm_b64 u64 u32 u32 = ((1ull << (a & 63)) - 1) << (b & 63)
brev_b32 u32 u32 = reversed(a)
brev_b64 u64 u64 = u64(reversed(u32(a))) << 32 | reversed(u32(a >> 32))
bcnt0_i32_b32 u32 u32 = 32 - __builtin_popcount(a) ; d != 0
bcnt1_i32_b32 u32 u32 = __builtin_popcount(a) ; d != 0
bcnt0_i32_b64 u32 u64 = 64 - __builtin_popcountll(a) ; d != 0
bcnt1_i32_b64 u32 u64 = __builtin_popcountll(a) ; d != 0
ctz_i32_b32 u32 u32 = trailing(a)
ctz_i32_b64 u32 u64 = trailing(a)
clz_i32_u32 u32 u32 = leading(a)
clz_i32_u64 u32 u64 = leading(a)
cls_i32 u32 i32 = leading_signs(a)
cls_i32_i64 u32 i64 = leading_signs(a)
sext_i32_i8 i32 u32 = i8(a)
sext_i32_i16 i32 u32 = i16(a)
abs_i32 i32 i32 = a < 0 ? i32(-u32(a)) : a ; d != 0
absdiff_i32 u32 i32 i32 = a > b ? u32(a) - u32(b) : u32(b) - u32(a) ; d != 0
bitset0_b32 u32 u32 u32 = b & ~(1u << (a & 31))
bitset1_b32 u32 u32 u32 = b | 1u << (a & 31)
add_u32 u32 u32 u32 = a + b ; u64(a) + b >> 32
addc_u32 u32 u32 u32 = a + b + carry_of(w) ; u64(a) + b + w.scc >> 32
sub_u32 u32 u32 u32 = a - b ; b > a
subb_u32 u32 u32 u32 = a - b - carry_of(w) ; u64(b) + w.scc > a
add_i32 i32 u32 u32 = i32(a + b) ; i64(i32(a)) + i32(b) != d
sub_i32 i32 u32 u32 = i32(a - b) ; i64(i32(a)) - i32(b) != d
add_nc_u64 u64 u64 u64 = a + b
sub_nc_u64 u64 u64 u64 = a - b
mul_u64 u64 u64 u64 = a * b
mul_i32 u32 u32 u32 = a * b
mul_hi_u32 u32 u32 u32 = u32(u64(a) * b >> 32)
mul_hi_i32 i32 i32 i32 = i32(i64(a) * b >> 32)
min_u32 u32 u32 u32 = std::min(a, b) ; a <= b
max_u32 u32 u32 u32 = std::max(a, b) ; a >= b
min_i32 i32 i32 i32 = std::min(a, b) ; a <= b
max_i32 i32 i32 i32 = std::max(a, b) ; a >= b
pack_ll_b32_b16 u32 u32 u32 = (a & 0xFFFF) | b << 16
pack_lh_b32_b16 u32 u32 u32 = (a & 0xFFFF) | (b & 0xFFFF0000)
pack_hh_b32_b16 u32 u32 u32 = a >> 16 | (b & 0xFFFF0000)
pack_hl_b32_b16 u32 u32 u32 = a >> 16 | b << 16
add_f32 f32 f32 f32 = a + b
sub_f32 f32 f32 f32 = a - b
mul_f32 f32 f32 f32 = a * b
fmac_f32 f32 f32 f32 f32 = std::fma(a, b, c)
min_f32 f32 f32 f32 = smaller(a, b)
max_f32 f32 f32 f32 = larger(a, b)
minimum_f32 f32 f32 f32 = minimum(a, b)
maximum_f32 f32 f32 f32 = maximum(a, b)
floor_f32 f32 f32 = floor_of(a)
ceil_f32 f32 f32 = ceil_of(a)
trunc_f32 f32 f32 = trunc_of(a)
rndne_f32 f32 f32 = even_of(a)
cvt_f32_i32 f32 i32 = f32(a)
cvt_f32_u32 f32 u32 = f32(a)
cvt_i32_f32 i32 f32 = saturated<i32>(a)
cvt_u32_f32 u32 f32 = saturated<u32>(a)
cvt_f16_f32 u32 f32 = bits_of(f16(a))
cvt_f32_f16 f32 u32 = f32(half_of(a))
"""

LOGIC = {
  "mov": "MOVE", "not": "NOT", "and": "AND", "or": "OR", "xor": "XOR", "and_not1": "AND_NOT", "or_not1": "OR_NOT",
  "nand": "NAND", "nor": "NOR", "xnor": "XNOR", "cselect": "SELECT",
}  # fmt: skip
"""Of the wave's bits; of each bit is known whether somebody wrote it."""

SPECIAL = {
  "v_nop": "", "s_nop": "w.clock += o.offset", "s_ignored": "", "s_endpgm": "w.state = 2",
  "s_barrier": "offer(w); w.state = 1", "s_barrier_signal": "offer(w); w.signalled = 1",
  "s_barrier_wait": 'if (!w.signalled) fault("it waits for a barrier that it did not signal"); w.state = 1',
  "invalidate": "invalidate(w)", "s_waitcnt": "waited(w, o)", "s_wait_alu": "dependences(w, o.offset)",
  "s_branch": "goes_to(w, o)", "s_cbranch_scc0": "if (!carry_of(w)) goes_to(w, o)",
  "s_cbranch_scc1": "if (carry_of(w)) goes_to(w, o)", "s_cbranch_vccz": "if (vccz(w)) goes_to(w, o)",
  "s_cbranch_vccnz": "if (!vccz(w)) goes_to(w, o)", "s_cbranch_execz": "if (!w.exec) goes_to(w, o)",
  "s_cbranch_execnz": "if (w.exec) goes_to(w, o)",
  "s_getpc_b64": "set_scalar64(w, o.dst, w.launch->code + w.pc)",
  "s_setpc_b64": "w.pc = i64(scalar64(w, o.src[0]) - w.launch->code)",
  "s_swappc_b64": "i64 to = i64(scalar64(w, o.src[0]) - w.launch->code); "
                  "set_scalar64(w, o.dst, w.launch->code + w.pc); w.pc = to",
  "s_setreg": "set_register(w, o, wave_source<u32>(w, o, 0))",
  "s_denorm_mode": "set_mode(w, (w.mode & ~0xF0) | (o.offset & 15) << 4)",
  "s_round_mode": "set_mode(w, (w.mode & ~15) | (o.offset & 15))",
  "s_load": "scalar_load(w, o)",
  "v_readlane_b32": "read_lane(w, o)", "v_writelane_b32": "write_lane(w, o)",
  "v_swap_b32": "swapped(w, o)",
  "v_permlane16_b32": "permuted_row(w, o, false)", "v_permlanex16_b32": "permuted_row(w, o, true)",
  "v_permlane64_b32": "swapped_halves(w, o)",
  "v_permlane16_swap_b32": "swapped_rows(w, o, 16)", "v_permlane32_swap_b32": "swapped_rows(w, o, 32)",
  "v_add_co_u32": "carried(w, o, false, [](i64 a, i64 b, i64) { return a + b; })",
  "v_sub_co_u32": "carried(w, o, false, [](i64 a, i64 b, i64) { return a - b; })",
  "v_subrev_co_u32": "carried(w, o, false, [](i64 a, i64 b, i64) { return b - a; })",
  "v_add_co_ci_u32": "carried(w, o, true, [](i64 a, i64 b, i64 c) { return a + b + c; })",
  "v_sub_co_ci_u32": "carried(w, o, true, [](i64 a, i64 b, i64 c) { return a - b - c; })",
  "v_subrev_co_ci_u32": "carried(w, o, true, [](i64 a, i64 b, i64 c) { return b - a - c; })",
  "v_cndmask_b32": "chosen<u32>(w, o)", "v_cndmask_b16": "chosen<u16>(w, o)",
  "v_div_scale_f32": "scaled_operand<f32>(w, o)", "v_div_scale_f64": "scaled_operand<f64>(w, o)",
  "v_div_fmas_f32": "division_end<f32>(w, o)", "v_div_fmas_f64": "division_end<f64>(w, o)",
  "v_bitop3_b32": "looked_up<u32>(w, o)", "v_bitop3_b16": "looked_up<u16>(w, o)",
  "v_mad_u64_u32": "wide_product<u32>(w, o)", "v_mad_i64_i32": "wide_product<i32>(w, o)",
  "v_fma_mix_f32": "mixed(w, o, 0)", "v_fma_mixlo_f16": "mixed(w, o, 1)", "v_fma_mixhi_f16": "mixed(w, o, 2)",
  "v_cvt_sr": "rounded_by_chance(w, o)", "v_cvt_scalef32": "scaled_conversion(w, o)",
  "v_wmma": "wmma(w, o)", "v_mfma": "mfma(w, o)",
  "global_load": "global_load(w, o)", "global_store": "global_store(w, o)",
  "scratch_load": "private_load(w, o)", "scratch_store": "private_store(w, o)",
  "ds_swap2_b32": "shared_swap2<u32>(w, o)", "ds_swap2_b64": "shared_swap2<u64>(w, o)",
  "ds_load_tr": "shared_load_transposed(w, o)", "ds_load": "shared_load(w, o)", "ds_store": "shared_store(w, o)",
  "ds_swizzle_b32": "exchanged(w, o, 0)", "ds_bpermute_b32": "exchanged(w, o, 1)",
  "ds_permute_b32": "exchanged(w, o, 2)",
  "dual": "",
}  # fmt: skip

SAVED = {
  "and": "a & e", "or": "a | e", "xor": "a ^ e", "and_not1": "a & ~e", "or_not1": "a | ~e", "and_not0": "~a & e",
  "or_not0": "~a | e", "nand": "~(a & e)", "nor": "~(a | e)", "xnor": "~(a ^ e)",
}  # fmt: skip
"""S_*_SAVEEXEC: what EXEC becomes, of the operand and its old value. (ANDN2 of older chips is and_not1.)"""

ORDERS = {
  "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b", "eq": "a == b", "ne": "a != b", "lg": "a < b || a > b",
  "neq": "!(a == b)", "nlt": "!(a < b)", "nle": "!(a <= b)", "ngt": "!(a > b)", "nge": "!(a >= b)",
  "nlg": "!(a < b || a > b)", "u": "is_nan(a) || is_nan(b)", "o": "!is_nan(a) && !is_nan(b)", "t": "true", "f": "false",
  "tru": "true",
}  # fmt: skip
COMPARED = ("f16", "f32", "f64", "i16", "u16", "i32", "u32", "i64", "u64")

ATOMICS = {
  "swap": ("b32 b64", "a"), "cmpswap": ("b32 b64 f32 f64", "old == b ? a : old"), "add": ("u32 u64 f32 f64", "old + a"),
  "sub": ("u32 u64", "old - a"), "min": ("i32 u32 i64 u64 f32 f64", "std::min(old, a)"),
  "max": ("i32 u32 i64 u64 f32 f64", "std::max(old, a)"), "and": ("b32 b64", "old & a"), "or": ("b32 b64", "old | a"),
  "xor": ("b32 b64", "old ^ a"), "inc": ("u32 u64", "old >= a ? 0 : old + 1"),
  "dec": ("u32 u64", "old == 0 || old > a ? a : old - 1"),
  "pk_add": ("f16 bf16", ""), "sub_clamp": ("u32", "old < a ? 0 : old - a"),
  "cond_sub": ("u32", "old < a ? old : old - a"), "rsub": ("u32 u64", "a - old"),
  "mskor": ("b32 b64", "(old & ~a) | b"), "wrap": ("b32", "old >= a ? old - a : old + b"),
}  # fmt: skip
"""Of global and shared memory: types, and what is there then, of what was there, the operand, and for CMPSWAP the one
that it is compared with."""
COPIES = {"mov_b32": 1, "mov_b64": 2, "accvgpr_read_b32": 1, "accvgpr_write_b32": 1}
"""Instructions that copy so many words."""
_PAIRS = {
  "f16": "bits_of(f16(half_of(old) + half_of(a))) | u32(bits_of(f16(half_of(old >> 16) + half_of(a >> 16)))) << 16",
  "bf16": "bf16_of(wide_of(old) + wide_of(a)) | u32(bf16_of(wide_of(old >> 16) + wide_of(a >> 16))) << 16",
}


@dataclass(frozen=True)
class Meaning:
  """What an instruction does: `kind` v, p, s, c (compares) or x (others); types of result and operands; C++."""

  name: str
  kind: str
  types: tuple[str, ...]
  code: str


def _rows(text: str) -> list[tuple[str, list[str], str]]:
  found = []
  for line in text.strip().splitlines():
    head, _, code = line.partition(" = ")
    name, *types = head.split()
    found.append((name, types, code))
  return found


def _cpp(kind: str) -> str:
  return re.sub(r"^b", "u", kind)


@cache
def meanings() -> dict[str, Meaning]:
  """All of them, by name: v_add_f32, s_add_u32, v_cmp_lt_f32, global_atomic_add_u32, ds_add_u32, …"""
  found: list[Meaning] = []
  for name, types, code in [*_rows(VALU), *((f"{n}_clamp", t, c) for n, t, c in _rows(SATURATED))]:
    shown = ", ".join(map(_cpp, types))
    arguments = ", ".join(f"{_cpp(t)} {n}" for t, n in zip(types[1:], "abc"))
    body = f"valu<{shown}>(w, o, [](%s, int lane) -> {_cpp(types[0])} {{ return {code}; }})" % arguments
    if (words := COPIES.get(name)) is not None:
      body = f"if (is_plain(o)) copied(w, o, {words}); else {body}"
    found.append(Meaning(f"v_{name}", "v", tuple(types), body))
  for name, types, code in _rows(PACKED):
    kind, count = types
    if name == "pk_mov_b32":  # the lower result is of the first source, the upper one of the second
      body = "move_pair(w, o)"
    else:
      body = f"packed<{kind}>(w, o, {count}, []({kind} a, {kind} b, {kind} c) -> {kind} {{ return {code}; }})"
    found.append(Meaning(f"v_{name}", "p", (kind, *[kind] * int(count)), body))
  for name, types, code in _rows(WAVE):
    value, _, scc = code.partition(" ; ")
    gets = "".join(
      f"{_cpp(t)} {n} = wave_source<{_cpp(t)}>(w, o, {k}); " for k, (t, n) in enumerate(zip(types[1:], "abc"))
    )
    body = f"{gets}{types[0]} d = {value}; " + (f"u32 carry = {scc}; " if scc else "")
    body += "wave_result(w, o, d);" + (" set_carry(w, carry);" if scc else "")
    found.append(Meaning(f"s_{name}", "s", tuple(types), body))
  for bits in (32, 64):
    kind = f"b{bits}"
    for name, code in LOGIC.items():
      operands = 1 if name in ("mov", "not") else 2
      body = f"logical(w, o, {code}, {int(bits == 64)})"
      found.append(Meaning(f"s_{name}_b{bits}", "s", (kind,) * (operands + 1), body))
    for sign, code in (("u", "FIELD"), ("i", "SIGNED_FIELD")):
      body = f"logical(w, o, {code}, {int(bits == 64)})"
      found.append(Meaning(f"s_bfe_{sign}{bits}", "s", (kind, kind, "u32"), body))
  for name, code in SPECIAL.items():
    found.append(Meaning(name, "x", (), code))
  for name, code in SAVED.items():
    for bits in (32, 64):
      body = (
        f"u64 a = wave_source<u{bits}>(w, o, 0), e = u{bits}(w.exec); saved_exec(w, o, {code}, e, {int(bits == 64)});"
      )
      found.append(Meaning(f"s_{name}_saveexec_b{bits}", "s", (f"b{bits}", f"b{bits}"), body))
  for kind in COMPARED:
    for how, code in ORDERS.items():
      if kind[0] != "f" and how not in ("lt", "le", "gt", "ge", "eq", "ne", "t", "f"):
        continue
      for executes in ("cmp", "cmpx"):
        body = f"compared<{kind}>(w, o, {str(executes == 'cmpx').lower()}, []({kind} a, {kind} b) {{ return {code}; }})"
        found.append(Meaning(f"v_{executes}_{how}_{kind}", "c", ("b1", kind, kind), body))
  for kind in ("f16", "f32", "f64"):
    for executes in ("cmp", "cmpx"):
      body = f"classified<{kind}>(w, o, {str(executes == 'cmpx').lower()})"
      found.append(Meaning(f"v_{executes}_class_{kind}", "c", ("b1", kind, "u32"), body))
  for kind in ("i32", "u32", "u64", "f32"):
    for how in ORDERS if kind == "f32" else ("eq", "lg", "lt", "le", "gt", "ge"):
      code = "a != b" if how == "lg" and kind != "f32" else ORDERS[how]
      body = f"{kind} a = wave_source<{kind}>(w, o, 0), b = wave_source<{kind}>(w, o, 1); set_carry(w, {code});"
      found.append(Meaning(f"s_cmp_{how}_{kind}", "s", ("", kind, kind), body))
  for bit in (0, 1):
    for size in (32, 64):
      body = f"u{size} a = wave_source<u{size}>(w, o, 0); u32 b = wave_source<u32>(w, o, 1); "
      body += f"set_carry(w, (a >> (b & {size - 1}) & 1) == {bit});"
      found.append(Meaning(f"s_bitcmp{bit}_b{size}", "s", ("", f"b{size}", "u32"), body))
  for name, (kinds, code) in ATOMICS.items():
    for kind in kinds.split():
      if name == "pk_add":
        kind, made = f"{kind}", _PAIRS[kind]
        cpp = "u32"
      else:
        cpp, made = _cpp(kind), code
      for where, call in (("global_atomic", "global_atomic"), ("ds", "shared_atomic")):
        body = f"{call}<{cpp}>(w, o, []({cpp} old, {cpp} a, {cpp} b) -> {cpp} {{ return {made}; }})"
        found.append(Meaning(f"{where}_{name}_{kind}", "x", (), body))
  return {meaning.name: meaning for meaning in found}
