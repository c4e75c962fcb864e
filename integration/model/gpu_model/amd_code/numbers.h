// Arithmetic that C++ has no word for, as the ISA manuals describe it.

static u32 bits_of(f32 x) {
  u32 b;
  memcpy(&b, &x, 4);
  return b;
}
static u64 bits_of(f64 x) {
  u64 b;
  memcpy(&b, &x, 8);
  return b;
}
static u16 bits_of(f16 x) {
  u16 b;
  memcpy(&b, &x, 2);
  return b;
}
static f32 float_of(u32 b) {
  f32 x;
  memcpy(&x, &b, 4);
  return x;
}
static f64 double_of(u64 b) {
  f64 x;
  memcpy(&x, &b, 8);
  return x;
}
static f16 half_of(u16 b) {
  f16 x;
  memcpy(&x, &b, 2);
  return x;
}
static f32 wide_of(u16 bf16) { return float_of(u32(bf16) << 16); }
static u16 bf16_of(f32 x) {
  u32 b = bits_of(x);
  if (std::isnan(x)) return b >> 16 | 0x40;
  return (b + 0x7FFF + (b >> 16 & 1)) >> 16;
}

// a * b + c of halves, rounded once: by way of doubles that are rounded to odd.
static f64 odd_sum(f64 p, f64 c) {
  f64 total = p + c, part = total - p, error = (p - (total - part)) + (c - part);
  if (!std::isfinite(total) || error == 0 || bits_of(total) & 1) return total;
  return std::nextafter(total, error > 0 ? INFINITY : -INFINITY);
}
static f16 fused(f16 a, f16 b, f16 c) { return f16(odd_sum(f64(a) * f64(b), f64(c))); }
static f32 fused(f32 a, f32 b, f32 c) { return std::fma(a, b, c); }
static f64 fused(f64 a, f64 b, f64 c) { return std::fma(a, b, c); }
template <class T> static T sqrt_of(T x) { return T(std::sqrt(typename std::conditional<sizeof(T) == 2, f32, T>::type(x))); }
template <class T> static T floor_of(T x) { return T(std::floor(typename std::conditional<sizeof(T) == 2, f32, T>::type(x))); }
template <class T> static T ceil_of(T x) { return T(std::ceil(typename std::conditional<sizeof(T) == 2, f32, T>::type(x))); }
template <class T> static T trunc_of(T x) { return T(std::trunc(typename std::conditional<sizeof(T) == 2, f32, T>::type(x))); }
template <class T> static T even_of(T x) {
  typedef typename std::conditional<sizeof(T) == 2, f32, T>::type V;
  V v = x, down = std::floor(v), rest = v - down;
  if (!(std::fabs(v) < V(4503599627370496.0))) return x;
  V r = rest < V(0.5) ? down : rest > V(0.5) ? down + 1 : std::fmod(down, V(2)) == 0 ? down : down + 1;
  return T(std::copysign(r, v));
}
template <class T> static T fract_of(T x) {
  typedef typename std::conditional<sizeof(T) == 2, f32, T>::type V;
  V v = x, r = v - std::floor(v);
  return T(std::isnan(r) ? r : std::min(r, V(std::nextafter(V(1), V(0)))));
}

static bool is_nan(f16 x) { return (bits_of(x) & 0x7FFF) > 0x7C00; }
static bool is_nan(f32 x) { return std::isnan(x); }
static bool is_nan(f64 x) { return std::isnan(x); }
static bool negative(f16 x) { return bits_of(x) >> 15; }
static bool negative(f32 x) { return std::signbit(x); }
static bool negative(f64 x) { return std::signbit(x); }
template <class T> static bool signalling(T x) {
  if (!is_nan(x)) return false;
  if (sizeof(T) == 2) return !(bits_of(x) >> 9 & 1);
  if (sizeof(T) == 4) return !(bits_of(x) >> 22 & 1);
  return !(bits_of(f64(x)) >> 51 & 1);
}
template <class T> static T quiet(T x) { return x + x; }
// The number of two if one is none; -0 is below +0.
template <class T> static T larger(T a, T b) {
  if (signalling(a)) return quiet(a);
  if (signalling(b)) return quiet(b);
  if (is_nan(a)) return b;
  if (is_nan(b)) return a;
  if (a == b) return negative(a) ? b : a;
  return a > b ? a : b;
}
template <class T> static T smaller(T a, T b) {
  if (signalling(a)) return quiet(a);
  if (signalling(b)) return quiet(b);
  if (is_nan(a)) return b;
  if (is_nan(b)) return a;
  if (a == b) return negative(a) ? a : b;
  return a < b ? a : b;
}
// IEEE 754-2019: NaN if one is.
template <class T> static T maximum(T a, T b) { return is_nan(a) ? quiet(a) : is_nan(b) ? quiet(b) : larger(a, b); }
template <class T> static T minimum(T a, T b) { return is_nan(a) ? quiet(a) : is_nan(b) ? quiet(b) : smaller(a, b); }
template <class T> static T median(T a, T b, T c) {
  if constexpr (is_float<T>) {
    if (is_nan(a) || is_nan(b) || is_nan(c)) return smaller(smaller(a, b), c);
    T top = larger(larger(a, b), c);
    return top == a ? larger(b, c) : top == b ? larger(a, c) : larger(a, b);
  } else return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

// A function whose result is one of the two float32 numbers beside the exact one; which of them, the operand's bits
// decide. What can be represented is exact.
static f32 beside(f64 exact, u32 bits) {
  f32 near = f32(exact);
  if (f64(near) == exact || !std::isfinite(near)) return near;
  f32 other = std::nextafter(near, f64(near) < exact ? INFINITY : -INFINITY);
  return (bits * 2654435761u >> 16 & 1) && std::isfinite(other) ? other : near;
}
static f32 no_denormal(f32 x) { return flushed(x); }
// Off by 2⁻²⁸ of it; the manual allows 2⁻²³ ("2**29 ULP"), from which LLVM's division takes too few steps.
static f64 roughly(f64 exact, u64 bits) {
  if (!std::isfinite(exact) || exact == 0) return exact;
  u64 b = bits_of(exact), low = b & ((1 << 25) - 1);
  if (!low) return exact;
  return double_of(b + ((bits * 0x9E3779B97F4A7C15ull >> 63) ? (1 << 24) : -(i64)(1 << 24)));
}
// Of a number whose fraction is all ones it is the nearest: from any other, LLVM's division of a power of two would end
// half a unit off, and GPUs pass OpenCL's tests, which divide 2⁶⁴ by the number below it.
static f32 reciprocal(f32 x) {
  f64 exact = 1.0 / f64(no_denormal(x));
  return no_denormal((bits_of(x) & 0x7FFFFF) == 0x7FFFFF ? f32(exact) : beside(exact, bits_of(x)));
}
static f64 reciprocal(f64 x) {
  const u64 fraction = (1ull << 52) - 1;
  return (bits_of(x) & fraction) == fraction ? 1.0 / x : roughly(1.0 / x, bits_of(x));
}
static f16 reciprocal(f16 x) { return f16(1.0f / f32(x)); }
static f32 root(f32 x) { return no_denormal(beside(std::sqrt(f64(no_denormal(x))), bits_of(x))); }
static f64 root(f64 x) { return roughly(std::sqrt(x), bits_of(x)); }
static f16 root(f16 x) { return f16(std::sqrt(f32(x))); }
static f32 reciprocal_root(f32 x) { return beside(1.0 / std::sqrt(f64(no_denormal(x))), bits_of(x)); }
static f64 reciprocal_root(f64 x) { return roughly(1.0 / std::sqrt(x), bits_of(x)); }
static f16 reciprocal_root(f16 x) { return f16(1.0 / std::sqrt(f64(x))); }
static f32 power_of_two(f32 x) { return no_denormal(beside(std::exp2(f64(no_denormal(x))), bits_of(x))); }
static f16 power_of_two(f16 x) { return f16(std::exp2(f64(x))); }
static f32 logarithm(f32 x) { return beside(std::log2(f64(no_denormal(x))), bits_of(x)); }
static f16 logarithm(f16 x) { return f16(std::log2(f64(x))); }
static f32 sine(f32 x) { return std::isfinite(x) ? f32(std::sin(6.283185307179586 * std::fmod(f64(x), 1.0))) : NAN; }
static f32 cosine(f32 x) { return std::isfinite(x) ? f32(std::cos(6.283185307179586 * std::fmod(f64(x), 1.0))) : NAN; }

// Numbers → integers, with what is outside at the end that is nearest, and NaN as 0.
template <class I, class F> static I saturated(F x) {
  f64 v = std::trunc(f64(x));
  if (v != v) return 0;
  if (v <= f64(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
  if (v >= f64(std::numeric_limits<I>::max())) return std::numeric_limits<I>::max();
  return I(v);
}
template <class T, class X> static T clamped(X x) {
  return x < X(std::numeric_limits<T>::min()) ? std::numeric_limits<T>::min() : x > X(std::numeric_limits<T>::max()) ? std::numeric_limits<T>::max() : T(x);
}
static f16 toward_zero(f32 x) {
  f16 h = f16(x);
  if (std::isfinite(x) && std::fabs(f32(h)) > std::fabs(x)) return half_of(bits_of(h) - 1);
  return h;
}

static u32 ones(u32 n) { return n >= 32 ? ~0u : (1u << n) - 1; }
static i32 field_of(u32 x, u32 at, u32 n) { return n ? i32(x >> at << (32 - n)) >> (32 - n) : 0; }
static u32 reversed(u32 x) {
  u32 r = 0;
  for (int n = 0; n < 32; n++) r |= (x >> n & 1) << (31 - n);
  return r;
}
static u32 leading(u32 x) { return x ? __builtin_clz(x) : ~0u; }
static u32 leading(u64 x) { return x ? __builtin_clzll(x) : ~0u; }
static u32 trailing(u32 x) { return x ? __builtin_ctz(x) : ~0u; }
static u32 trailing(u64 x) { return x ? __builtin_ctzll(x) : ~0u; }
// Leading bits that are as the sign; -1 where all are.
static u32 leading_signs(i32 x) { return leading(u32(x < 0 ? ~x : x)); }
static u32 leading_signs(i64 x) { return leading(u64(x < 0 ? ~x : x)); }
static i64 sext24(u32 x) { return i32(x << 8) >> 8; }
// V_PERM_B32: each byte of the result is one of eight, or a sign, or 0, or 255.
static u32 bytes_by(u32 a, u32 b, u32 choice) {
  u64 both = u64(a) << 32 | b;
  u32 done = 0;
  for (int n = 0; n < 4; n++) {
    u32 k = choice >> 8 * n & 255, byte = 0;
    if (k < 8) byte = both >> 8 * k & 255;
    else if (k < 12) byte = both >> (16 * (k - 8) + 15) & 1 ? 255 : 0;
    else if (k > 12) byte = 255;
    done |= byte << 8 * n;
  }
  return done;
}

static u32 sum_of_differences(u32 a, u32 b, u32 c) {
  for (int n = 0; n < 32; n += 8) c += std::abs(int(a >> n & 255) - int(b >> n & 255));
  return c;
}
template <class F> static f32 two_products(u32 a, u32 b, f32 c, F of) {
  return f32(f64(of(a)) * f64(of(b)) + f64(of(a >> 16)) * f64(of(b >> 16)) + f64(c));
}
template <class T> static u32 four_products(u32 a, u32 b, u32 c) {
  for (int n = 0; n < 32; n += 8) c += u32(i32(T(a >> n)) * i32(T(b >> n)));
  return c;
}

template <class T> struct Format;
template <> struct Format<f32> {
  typedef u32 Bits;
  enum { MANTISSA = 23, BIAS = 127, FAR = 96, UP = 64, TINY = 23, LEAST = 150 };
};
template <> struct Format<f64> {
  typedef u64 Bits;
  enum { MANTISSA = 52, BIAS = 1023, FAR = 768, UP = 128, TINY = 53, LEAST = 1075 };
};
template <class T> static int exponent_of(T x) { return int(bits_of(x) >> Format<T>::MANTISSA & (2 * Format<T>::BIAS + 1)); }
template <class T> static bool denormal(T x) { return x != 0 && exponent_of(x) == 0; }

// V_DIV_SCALE: what an operand of a division is scaled by, and whether the quotient has to be scaled back.
template <class T> static T divisor_scaled(T s0, T s1, T s2, bool& flag) {
  typedef Format<T> F;
  bool denominator = bits_of(s0) == bits_of(s1), numerator = bits_of(s0) == bits_of(s2);
  T up = std::ldexp(s0, F::UP), down = std::ldexp(s0, -F::UP), inverse = T(1) / s1, quotient = s2 / s1;
  bool small_inverse = denormal(inverse), small = denormal(quotient) || (quotient == 0 && s2 != 0);
  flag = false;
  if (s1 == 0 || s2 == 0) return NAN;
  if (exponent_of(s2) - exponent_of(s1) >= F::FAR) return flag = true, denominator ? up : s0;
  if (denormal(s1)) return up;
  // both small: the denominator goes down, which makes the quotient representable; the manual has it go up
  if (small_inverse && small) return flag = true, denominator ? down : s0;
  if (small_inverse) return down;
  if (small) return flag = true, numerator ? up : s0;
  if (exponent_of(s2) <= F::TINY) return up;
  return s0;
}
// V_DIV_FMAS: the last step, scaled back: down where the quotient is above 1, else up, and rounded once.
template <class T> static T scaled_back(T a, T b, T c, bool flag) {
  T plain = std::fma(a, b, c);
  if (!flag) return plain;
  int scale = exponent_of(c) > Format<T>::BIAS ? Format<T>::UP : -Format<T>::UP;
  if constexpr (sizeof(T) == 4) return f32(std::ldexp(odd_sum(f64(a) * f64(b), f64(c)), scale));
  T done = std::ldexp(plain, scale);
  if (!denormal(done) && done != 0) return done;
  __float128 exact = __float128(a) * __float128(b) + __float128(c);
  for (int n = 0; n < Format<T>::UP; n++) exact *= scale > 0 ? 2 : 0.5;
  return T(exact);
}
template <class T> static T divided(T s0, T s1, T s2) {
  typedef Format<T> F;
  bool sign = std::signbit(s1) != std::signbit(s2);
  auto with = [&](T x) { return sign ? -x : x; };
  if (is_nan(s2)) return quiet(s2);
  if (is_nan(s1)) return quiet(s1);
  if ((s1 == 0 && s2 == 0) || (std::isinf(s1) && std::isinf(s2))) return NAN;
  if (s1 == 0 || std::isinf(s2)) return with(INFINITY);
  if (std::isinf(s1) || s2 == 0) return with(0);
  if (exponent_of(s2) - exponent_of(s1) < -F::LEAST) return with(0);
  if (exponent_of(s1) == 2 * F::BIAS + 1 || is_nan(s0)) return with(INFINITY);  // so far apart that the estimate is infinite
  return with(std::fabs(s0));
}
static f16 divided(f16 s0, f16 s1, f16 s2) {
  bool sign = negative(s1) != negative(s2);
  auto inf = [](f16 x) { return (bits_of(x) & 0x7FFF) == 0x7C00; };
  auto with = [&](f16 x) { return sign ? -x : x; };
  if (is_nan(s2)) return quiet(s2);
  if (is_nan(s1)) return quiet(s1);
  if ((s1 == 0 && s2 == 0) || (inf(s1) && inf(s2))) return half_of(0xFE00);
  if (s1 == 0 || inf(s2)) return with(half_of(0x7C00));
  if (inf(s1) || s2 == 0) return with(f16(0));
  return sign ? half_of(bits_of(s0) | 0x8000) : half_of(bits_of(s0) & 0x7FFF);
}

template <class T> static u32 class_of(T x) {
  const int mantissa = sizeof(T) == 2 ? 10 : sizeof(T) == 4 ? 23 : 52, exponents = sizeof(T) == 2 ? 5 : sizeof(T) == 4 ? 8 : 11;
  u64 b = bits_of(x), e = b >> mantissa & ((1 << exponents) - 1), m = b & ((1ull << mantissa) - 1);
  bool sign = b >> (mantissa + exponents);
  if (e == u64((1 << exponents) - 1) && m) return m >> (mantissa - 1) ? 2 : 1;
  int kind = e == u64((1 << exponents) - 1) ? 0 : e ? 1 : m ? 2 : 3;  // infinite, normal, denormal, zero
  return 1u << (sign ? 2 + kind : 9 - kind);
}

// A mantissa in [0.5, 1), and the exponent that goes with it.
template <class T> static T mantissa_of(T x) {
  typedef typename std::conditional<sizeof(T) == 2, f32, T>::type V;
  int e;
  return std::isfinite(V(x)) ? T(std::frexp(V(x), &e)) : x;
}
template <class T> static i32 power_in(T x) {
  typedef typename std::conditional<sizeof(T) == 2, f32, T>::type V;
  int e;
  return std::isfinite(V(x)) && x != 0 ? (std::frexp(V(x), &e), e) : 0;
}

// Floats of 6 and 4 bits, which have neither infinities nor NaN (OCP's "Microscaling Formats": E2M3, E3M2, E2M1).
static f32 small_float(u32 x, int exponents, int mantissa) {
  int e = x >> mantissa & ((1 << exponents) - 1), m = x & ((1 << mantissa) - 1), bias = (1 << (exponents - 1)) - 1;
  f32 value = std::ldexp(f32(e ? m + (1 << mantissa) : m), std::max(e, 1) - bias - mantissa);
  return x >> (exponents + mantissa) & 1 ? -value : value;
}

// A power of two in 8 bits (E8M0), which scales numbers; the last one is NaN.
static f64 scale_of(u8 x) { return x == 255 ? NAN : std::ldexp(1.0, x - 127); }

// Floats of 8 bits: `bias` of the exponent, and whether there are infinities (OCP's E5M2), or one NaN and no -0 (FNUZ).
static f32 float8(u8 x, int exponents, bool fnuz) {
  int mantissa = 7 - exponents, bias = (1 << (exponents - 1)) - (fnuz ? 0 : 1);
  int e = x >> mantissa & ((1 << exponents) - 1), m = x & ((1 << mantissa) - 1);
  if (fnuz ? x == 0x80 : exponents == 4 ? (x & 127) == 127 : e == 31 && m) return NAN;
  if (!fnuz && exponents == 5 && e == 31) return x >> 7 ? -INFINITY : INFINITY;
  f32 value = e ? std::ldexp(f32(m + (1 << mantissa)), e - bias - mantissa) : std::ldexp(f32(m), 1 - bias - mantissa);
  return x >> 7 ? -value : value;
}
