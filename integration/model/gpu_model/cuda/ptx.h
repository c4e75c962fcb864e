// What instructions of PTX do, after NVIDIA's "Parallel Thread Execution ISA", as far as generated kernels have them. Nothing
// in it is NVIDIA's. Registers are unsigned integers; an instruction's type says what their bits mean.
#pragma once
#include <stdint.h>
#include <string.h>

#include <limits>
#include <type_traits>

#include "machine.h"
#include "narrow.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef u8 b8;
typedef u16 b16;
typedef u32 b32;
typedef u64 b64;
typedef model::narrow<5, 10> f16;
typedef model::narrow<8, 7> bf16;
typedef float f32;
typedef double f64;
typedef bool pred;

#define INLINE static inline __attribute__((always_inline))

// The low bits of a register as a value of another type.
template <typename T, typename R>
INLINE T as(R bits) {
  static_assert(sizeof(T) <= sizeof(R), "an operand is wider than its register");
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// A value into a register, which may be wider: signed integers are extended.
template <typename R, typename T>
INLINE void put(R& to, T value) {
  static_assert(sizeof(T) <= sizeof(R), "a result is wider than its register");
  if constexpr (std::is_same_v<R, bool>) {
    to = value;
  } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    to = static_cast<R>(static_cast<std::make_signed_t<R>>(value));
  } else {
    to = 0;
    memcpy(&to, &value, sizeof value);
  }
}

// *** arithmetic: integers wrap around ***

template <typename T>
INLINE T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b));
  else return a + b;
}
template <typename T>
INLINE T sub(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<u64>(a) - static_cast<u64>(b));
  else return a - b;
}
template <typename T>
INLINE T mul(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
  else return a * b;
}
template <typename T>
INLINE T neg(T a) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(0 - static_cast<u64>(a));
  else return -a;
}
template <typename T>
INLINE T abs_(T a) {
  if constexpr (std::is_same_v<T, f32>) return __builtin_fabsf(a);
  else if constexpr (std::is_same_v<T, f64>) return __builtin_fabs(a);
  else if constexpr (std::is_integral_v<T>) return a < 0 ? neg(a) : a;
  else { a.bits &= 0x7fff; return a; }
}
template <typename T>
INLINE T mulhi(T a, T b) {
  typedef std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128> wide;
  return static_cast<T>((static_cast<wide>(a) * b) >> (8 * sizeof(T)));
}
// Division by zero gives all ones here; PTX leaves it open.
template <typename T>
INLINE T div(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return neg(a);
  }
  return a / b;
}
template <typename T>
INLINE T rem(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return a % b;
}
INLINE f32 fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
INLINE f64 fma(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
// the product of two of these is exact in float64, and the sum has more bits than make a difference
INLINE f16 fma(f16 a, f16 b, f16 c) { return f16(static_cast<long double>(float(a)) * float(b) + float(c)); }
INLINE bf16 fma(bf16 a, bf16 b, bf16 c) { return bf16(static_cast<long double>(float(a)) * float(b) + float(c)); }
INLINE f32 root(f32 a) { return __builtin_sqrtf(a); }
INLINE f64 root(f64 a) { return __builtin_sqrt(a); }

template <typename T>
INLINE bool nan(T a) {
  if constexpr (std::is_integral_v<T>) return false;
  else if constexpr (sizeof(T) == 8) return a != a;
  else return float(a) != float(a);
}
template <typename T>
INLINE bool negative(T a) {
  if constexpr (std::is_integral_v<T>) return a < 0;
  else return __builtin_signbit(static_cast<f64>(a));
}
// Without .NaN a number wins over NaN; -0 is less than +0.
template <bool NAN_WINS, typename T>
INLINE T extreme(T a, T b, bool greatest) {
  if (nan(a) || nan(b)) return (nan(a) == NAN_WINS) ? a : b;
  if (a == b) return (negative(a) == greatest) ? b : a;
  return ((a > b) == greatest) ? a : b;
}

// *** bits ***

template <typename T>
INLINE T shl(T a, u32 by) { return by >= 8 * sizeof(T) ? 0 : static_cast<T>(a << by); }
template <typename T>
INLINE T shr(T a, u32 by) { return by >= 8 * sizeof(T) ? (a < 0 ? static_cast<T>(-1) : 0) : static_cast<T>(a >> by); }
template <typename T>
INLINE T bfe(T a, u32 at, u32 length) {
  const u32 bits = 8 * sizeof(T);
  at &= 255, length &= 255;
  if (length == 0) return 0;
  const u32 last = at + length - 1 < bits - 1 ? at + length - 1 : bits - 1;
  const bool sign = std::is_signed_v<T> && ((static_cast<std::make_unsigned_t<T>>(a) >> last) & 1);
  u64 field = at >= bits ? 0 : static_cast<std::make_unsigned_t<T>>(a) >> at;
  if (length < 64) field &= (1ull << length) - 1;
  const u32 have = last + 1 > at ? last + 1 - at : 0;
  if (sign && have < 64) field |= ~0ull << have;
  return static_cast<T>(field);
}
INLINE u32 prmt(u32 a, u32 b, u32 control) {
  const u64 bytes = a | static_cast<u64>(b) << 32;
  u32 made = 0;
  for (int n = 0; n < 4; n++) {
    const u32 pick = control >> (4 * n) & 15;
    u8 byte = static_cast<u8>(bytes >> (8 * (pick & 7)));
    if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
    made |= static_cast<u32>(byte) << (8 * n);
  }
  return made;
}
INLINE u32 shf_l(u32 low, u32 high, u32 by) {
  by &= 31;
  return by ? high << by | low >> (32 - by) : high;
}
INLINE u32 shf_r(u32 low, u32 high, u32 by) {
  by &= 31;
  return by ? low >> by | high << (32 - by) : low;
}

// *** conversions: floats to integers saturate, NaN gives 0 ***

template <typename T, typename S>
INLINE T cvt(S value, char rounding) {
  constexpr bool from_integer = std::is_integral_v<S>;
  if constexpr (std::is_integral_v<T> && !from_integer) {
    long double exact;
    if constexpr (sizeof(S) == 2) exact = static_cast<float>(value);
    else exact = value;
    if (exact != exact) return 0;
    exact = rounding == 'z' ? __builtin_truncl(exact) : rounding == 'm' ? __builtin_floorl(exact)
          : rounding == 'p' ? __builtin_ceill(exact) : __builtin_rintl(exact);
    if (exact <= static_cast<long double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    if (exact >= static_cast<long double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    return static_cast<T>(exact);
  } else if constexpr (!std::is_integral_v<T> && !from_integer) {
    long double exact;
    if constexpr (sizeof(S) == 2) exact = static_cast<float>(value);
    else exact = value;
    if (rounding == 'z') exact = __builtin_truncl(exact);
    if (rounding == 'm') exact = __builtin_floorl(exact);
    if (rounding == 'p') exact = __builtin_ceill(exact);
    if (rounding == 'i') exact = __builtin_rintl(exact);
    return T(exact);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<long double>(value));  // of 64 bits, so exact
  }
}

// *** memory ***

// Hardware traps where an access is not aligned to its size.
INLINE void aligned(u64 address, u32 bytes) {
  if (address & (bytes - 1)) machine_wrong("uses an address that is no multiple of the access's size");
}

// *** exchanges in a warp: shfl.sync.bfly, "for each thread of the warp, the lane is the bitwise xor of its own and b" ***

MODEL static u32 butterfly(int line, u32 value, u32 flipped) {
  u32 all[32];
  machine_exchange(line, &value, sizeof value, all);
  return all[(machine_lane() ^ flipped) & 31];
}

// *** tensor cores: who holds which element, from the manual's "Matrix fragments for mma" ***

struct Fragments {
  u32 a[4], b[4];
  f64 f[2], c[4];
  s32 i[4];
};

// mma.m16n8k16 of 16-bit floats (K = 16) and m16n8k8 (K = 8)
template <typename T, int K>
MODEL void mma16(int line, u32* d, const u32* a, const u32* b, const u32* c) {
  Fragments mine = {}, all[32];
  memcpy(mine.a, a, K / 4 * 4), memcpy(mine.b, b, K / 8 * 4);
  machine_exchange(line, &mine, sizeof mine, all);
  const u32 lane = machine_lane(), group = lane / 4, within = lane % 4;
  for (int n = 0; n < 4; n++) {
    const u32 row = group + (n >= 2 ? 8 : 0), column = within * 2 + (n & 1);
    long double sum = as<f32>(c[n]);
    for (u32 k = 0; k < K; k++) {
      const u32 right = k / 8 * 2, register_a = right + (row >= 8);
      const u32 word_a = all[row % 8 * 4 + k % 8 / 2].a[register_a], word_b = all[column * 4 + k % 8 / 2].b[k / 8];
      sum += static_cast<long double>(float(as<T>(word_a >> (16 * (k & 1))))) * float(as<T>(word_b >> (16 * (k & 1))));
    }
    put(d[n], static_cast<f32>(sum));
  }
}

// mma.m16n8k32 of bytes (ROWS = 16) and m8n8k16 (ROWS = 8)
template <typename T, int ROWS>
MODEL void mma8(int line, u32* d, const u32* a, const u32* b, const u32* c) {
  constexpr int K = 2 * ROWS;
  Fragments mine = {}, all[32];
  memcpy(mine.a, a, ROWS == 16 ? 16 : 4), memcpy(mine.b, b, K / 16 * 4);
  machine_exchange(line, &mine, sizeof mine, all);
  const u32 lane = machine_lane(), group = lane / 4, within = lane % 4;
  for (int n = 0; n < ROWS / 4; n++) {
    const u32 row = group + (n >= 2 ? 8 : 0), column = within * 2 + (n & 1);
    u32 sum = c[n];
    for (u32 k = 0; k < K; k++) {
      const u32 register_a = k / 16 * 2 + (row >= 8);
      const u32 word_a = all[row % 8 * 4 + k % 16 / 4].a[register_a], word_b = all[column * 4 + k % 16 / 4].b[k / 16];
      sum += static_cast<u32>(static_cast<s32>(as<T>(word_a >> (8 * (k & 3)))) * static_cast<s32>(as<T>(word_b >> (8 * (k & 3)))));
    }
    d[n] = sum;
  }
}

// mma.m8n8k4 of float64
MODEL static void mma64(int line, u64* d, const u64* a, const u64* b, const u64* c) {
  Fragments mine = {}, all[32];
  mine.f[0] = as<f64>(a[0]), mine.f[1] = as<f64>(b[0]);
  machine_exchange(line, &mine, sizeof mine, all);
  const u32 lane = machine_lane(), row = lane / 4;
  for (u32 n = 0; n < 2; n++) {
    const u32 column = lane % 4 * 2 + n;
    f64 sum = as<f64>(c[n]);
    for (u32 k = 0; k < 4; k++) sum = __builtin_fma(all[row * 4 + k].f[0], all[column * 4 + k].f[1], sum);
    put(d[n], sum);
  }
}
