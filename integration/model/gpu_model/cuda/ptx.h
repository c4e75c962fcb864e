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
INLINE u32 add_halves(u32 a, u32 b) {
  const u32 low = as<u16>(add(as<T>(a), as<T>(b))), high = as<u16>(add(as<T>(a >> 16), as<T>(b >> 16)));
  return low | high << 16;
}
// Both floats of a word of 64 bits.
INLINE f32 of_pair(u64 word, u32 which) { return as<f32>(static_cast<u32>(word >> 32 * which)); }
INLINE u64 as_pair(f32 low, f32 high) { return as<u32>(low) | static_cast<u64>(as<u32>(high)) << 32; }
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
template <typename T>
INLINE u32 fma_halves(u32 a, u32 b, u32 c) {
  const u32 low = as<u16>(fma(as<T>(a), as<T>(b), as<T>(c)));
  return low | as<u16>(fma(as<T>(a >> 16), as<T>(b >> 16), as<T>(c >> 16))) << 16;
}
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

// What one access of several elements moves. It goes through a vector, so that a compiler makes one access of it, as the
// hardware does, and the machine sees one.
template <typename T, int COUNT>
struct Parts {
  typedef u8 Whole __attribute__((vector_size(sizeof(T) * COUNT)));
  T part[COUNT];
  INLINE Parts read(u64 at) {
    const Whole whole = *reinterpret_cast<const Whole*>(at);
    Parts parts;
    memcpy(&parts, &whole, sizeof whole);
    return parts;
  }
  __attribute__((always_inline)) void write(u64 at) const {
    Whole whole;
    memcpy(&whole, this, sizeof whole);
    *reinterpret_cast<Whole*>(at) = whole;
  }
};

// *** exchanges in a warp: shfl.sync.bfly, "for each thread of the warp, the lane is the bitwise xor of its own and b" ***

MODEL static u32 butterfly(int line, u32 value, u32 flipped) {
  u32 all[32];
  machine_exchange(line, &value, sizeof value, all);
  return all[(machine_lane() ^ flipped) & 31];
}

// cp.async: of 16 bytes, of which the first `given` come from memory and the others are zeros.
INLINE void copy16(u64 to, u64 from, u32 given) {
  aligned(to, 16);
  if (given) aligned(from, 16);
  if (given > 16) machine_wrong("copies more bytes than it writes");
  machine_copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), 16, given);
}

// ldmatrix of 8 × 8 elements of 16 bits: threads 8·n … 8·n + 7 give the rows of matrix n, 16 bytes each; thread t gets the
// elements 2·(t % 4) and the next of row t / 4, transposed: of column t / 4 (the manual's figures of "ldmatrix").
struct MatrixRow { u16 halves[8]; };
MODEL static void exchange_rows(int line, const MatrixRow* mine, MatrixRow* all) { machine_exchange(line, mine, 16, all); }
template <int COUNT, bool TRANSPOSED>
INLINE void ldmatrix(int line, u32* d, u64 address) {
  MatrixRow mine = {}, all[32];
  aligned(address, 16);
  const u32 lane = machine_lane();
  if (lane < 8 * COUNT) mine = *reinterpret_cast<const MatrixRow*>(address);
  exchange_rows(line, &mine, all);
  for (u32 n = 0; n < COUNT; n++) {
    const u32 first = lane % 4 * 2, other = lane / 4;
    const u32 low = TRANSPOSED ? all[8 * n + first].halves[other] : all[8 * n + other].halves[first];
    const u32 high = TRANSPOSED ? all[8 * n + first + 1].halves[other] : all[8 * n + other].halves[first + 1];
    d[n] = low | high << 16;
  }
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

// *** wgmma: of a warpgroup, which goes on while its threads do ***

// Registers that instructions of a warpgroup add to; `d` is what they are once these are through.
struct Accumulators {
  f32 d[128];
  bool pending, done;
};

struct WgmmaOp {
  u64 a, b;
  Accumulators* to;
  void (*run)(const WgmmaOp&, bool);
  const char* shared;
  size_t size;
};

struct Wgmma {
  WgmmaOp ops[64];
  u32 count, groups[64], ended;  // groups: how many operations there are up to the end of each
  bool fenced;
};

MODEL static void wgmma_touched(Wgmma& wgmma, Accumulators& to) {
  if (to.pending) machine_wrong("uses an accumulator of a wgmma that is not waited for");
  wgmma.fenced = false;
}

MODEL static bool wgmma_begins(Wgmma& wgmma, Accumulators& to) {
  if (!wgmma.fenced) machine_wrong("a wgmma with no wgmma.fence since its accumulators were touched");
  const bool begins = !to.pending;
  to.pending = true;
  return begins;
}

MODEL static void wgmma_add(int line, Wgmma& wgmma, const WgmmaOp& op) {
  u64 mine[2] = {op.a, op.b}, all[32][2];
  machine_exchange(line, mine, sizeof mine, all);
  for (u32 lane = 0; lane < 32; lane++)
    if (all[lane][0] != op.a || all[lane][1] != op.b) machine_wrong("gives a wgmma other descriptors than its warp does");
  if (machine_number() / 128 * 128 + 128 > machine_size()) machine_wrong("a wgmma of fewer than four warps");
  if (wgmma.count == 64) machine_wrong("more wgmmas on their way than the model has room for");
  wgmma.ops[wgmma.count++] = op;
  op.run(op, false);  // what it reads has to be there already
}

MODEL static void wgmma_commit(Wgmma& wgmma) {
  if (wgmma.ended == 64) machine_wrong("more groups of wgmmas on their way than the model has room for");
  wgmma.groups[wgmma.ended++] = wgmma.count;
}

// It is done now and no earlier: what is in shared memory by now is what counts.
MODEL static void wgmma_wait(Wgmma& wgmma, u32 most) {
  if (wgmma.ended <= most) return;
  const u32 last = wgmma.ended - most, done = wgmma.groups[last - 1];
  for (u32 n = 0; n < done; n++) wgmma.ops[n].run(wgmma.ops[n], true);
  for (u32 n = 0; n < done; n++) wgmma.ops[n].to->pending = false, wgmma.ops[n].to->done = true;
  for (u32 n = done; n < wgmma.count; n++) {
    wgmma.ops[n].to->pending = true, wgmma.ops[n].to->done = false;
    wgmma.ops[n - done] = wgmma.ops[n];
  }
  for (u32 n = last; n < wgmma.ended; n++) wgmma.groups[n - last] = wgmma.groups[n] - done;
  wgmma.count -= done, wgmma.ended -= last;
}

// Where the pair of 16-bit elements (`line`, k) of an operand is, `line` being a row of A or a column of B. The manual's
// "Matrix Descriptor Format": bits 0-13 the address, 16-29 the leading dimension's offset, 32-45 the stride dimension's, all
// >> 4, 49-51 the base's offset, 62-63 the swizzling, 1: of 128 bytes, which exchanges bits 4-6 of an address with their
// exclusive or with bits 7-9. Turned, blocks of 64 lines follow each other by the leading offset, groups of 8 k by the
// stride; else groups of 8 lines follow each other by the stride.
MODEL static const char* near_place(u64 descriptor, const char* shared, size_t size, bool turned, u32 line, u32 k) {
  const u64 low = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0) machine_wrong("has a descriptor that the model does not know");
  const u64 first = reinterpret_cast<u64>(shared);
  u64 at = first + ((low - first) & 0x3ffff);
  if (turned) at += line / 64 * leading + line % 64 * 2 + k / 8 * stride + k % 8 * 128;
  else at += line / 8 * stride + line % 8 * 128 + k * 2;
  at ^= (at >> 7 & 7) << 4;
  if (at < first || at + 2 > first + size) machine_wrong("has a descriptor of a place that is not in shared memory");
  return reinterpret_cast<const char*>(at);
}

// D + A × B for the thread's elements of D: row 16·warp + lane / 4 and the one 8 below, of each 8 columns two.
template <typename T, int N, bool TURNED_A, bool TURNED_B>
MODEL void wgmma_run(const WgmmaOp& op, bool compute) {
  const u32 lane = machine_lane(), warp = machine_number() % 128 / 32;
  const auto value = [&](u64 descriptor, bool turned, u32 line, u32 k) {
    const char* at = near_place(descriptor, op.shared, op.size, turned, line, k);
    machine_read_behind(at, 2);
    u16 bits;
    memcpy(&bits, at, 2);
    return float(as<T>(bits));
  };
  float a[2][16], b[16];
  for (u32 half = 0; half < 2; half++)
    for (u32 k = 0; k < 16; k++) a[half][k] = value(op.a, TURNED_A, 16 * warp + lane / 4 + 8 * half, k);
  for (u32 n = 0; n < N / 8; n++)
    for (u32 next = 0; next < 2; next++) {
      for (u32 k = 0; k < 16; k++) b[k] = value(op.b, TURNED_B, 8 * n + lane % 4 * 2 + next, k);
      for (u32 half = 0; half < 2 && compute; half++) {
        f32& d = op.to->d[4 * n + 2 * half + next];
        long double sum = d;
        for (u32 k = 0; k < 16; k++) sum += static_cast<long double>(a[half][k]) * b[k];
        d = static_cast<f32>(sum);
      }
    }
}

// *** tensor cores, of other floats ***

// cvt.rna.tf32.f32: to 10 bits behind the point, ties away from zero.
INLINE u32 round_to_tf32(u32 bits) { return (bits >> 23 & 255) == 255 ? bits : (bits + 0x1000) & ~0x1fffu; }

// mma.m16n8k8 of tf32: 13 bits of each number are ignored.
MODEL static void mma_tf32(int line, u32* d, const u32* a, const u32* b, const u32* c) {
  Fragments mine = {}, all[32];
  memcpy(mine.a, a, 16), memcpy(mine.b, b, 8);
  machine_exchange(line, &mine, sizeof mine, all);
  const u32 lane = machine_lane(), group = lane / 4, within = lane % 4;
  for (int n = 0; n < 4; n++) {
    const u32 row = group + (n >= 2 ? 8 : 0), column = within * 2 + (n & 1);
    long double sum = as<f32>(c[n]);
    for (u32 k = 0; k < 8; k++) {
      const u32 word_a = all[row % 8 * 4 + k % 4].a[k / 4 * 2 + (row >= 8)], word_b = all[column * 4 + k % 4].b[k / 4];
      sum += static_cast<long double>(as<f32>(word_a & ~0x1fffu)) * as<f32>(word_b & ~0x1fffu);
    }
    put(d[n], static_cast<f32>(sum));
  }
}

// Of 8 bits: with 4 of exponent all ones are NaN and nothing is infinite, with 5 it is as in IEEE 754.
template <int EXPONENT, int MANTISSA>
INLINE double float8(u32 bits) {
  const int bias = (1 << (EXPONENT - 1)) - 1, most = (1 << EXPONENT) - 1, all = (1 << MANTISSA) - 1;
  const int exponent = bits >> MANTISSA & most, digits = bits & all;
  double value = exponent ? __builtin_ldexp(digits + all + 1, exponent - bias - MANTISSA)
                          : __builtin_ldexp(digits, 1 - bias - MANTISSA);
  if (exponent == most && EXPONENT == 5) value = digits ? __builtin_nan("") : __builtin_inf();
  if (exponent == most && EXPONENT == 4 && digits == all) value = __builtin_nan("");
  return bits & 0x80 ? -value : value;
}

// mma.m16n8k32 of floats of 8 bits
template <int EXPONENT, int MANTISSA>
MODEL void mma_float8(int line, u32* d, const u32* a, const u32* b, const u32* c) {
  Fragments mine = {}, all[32];
  memcpy(mine.a, a, 16), memcpy(mine.b, b, 8);
  machine_exchange(line, &mine, sizeof mine, all);
  const u32 lane = machine_lane(), group = lane / 4, within = lane % 4;
  for (int n = 0; n < 4; n++) {
    const u32 row = group + (n >= 2 ? 8 : 0), column = within * 2 + (n & 1);
    long double sum = as<f32>(c[n]);
    for (u32 k = 0; k < 32; k++) {
      const u32 word_a = all[row % 8 * 4 + k % 16 / 4].a[k / 16 * 2 + (row >= 8)];
      const u32 word_b = all[column * 4 + k % 16 / 4].b[k / 16];
      sum += static_cast<long double>(float8<EXPONENT, MANTISSA>(word_a >> (8 * (k & 3)) & 255)) *
             float8<EXPONENT, MANTISSA>(word_b >> (8 * (k & 3)) & 255);
    }
    put(d[n], static_cast<f32>(sum));
  }
}

// *** updates in one step ***

enum Update { UPDATE_add, UPDATE_max, UPDATE_and, UPDATE_or, UPDATE_xor };

template <Update HOW, typename T>
MODEL T update(u64 at, T value) {
  T* place = reinterpret_cast<T*>(at);
  machine_update(place, sizeof(T));
  const T before = *place;
  if constexpr (HOW == UPDATE_add) *place = add(before, value);
  else if constexpr (HOW == UPDATE_max) *place = before < value ? value : before;
  else if constexpr (HOW == UPDATE_and) *place = before & value;
  else if constexpr (HOW == UPDATE_or) *place = before | value;
  else *place = before ^ value;
  return before;
}
