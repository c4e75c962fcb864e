// Waves of AMD's GPUs that run instructions: registers, what is on its way to them, operands and results.
//
// LANES is 32 or 64, CDNA whether it is that family, whose waves have 64. An instruction is an Op, taken apart by decoding.py; its function comes from the
// tables of instructions.py.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef _Float16 f16;
typedef float f32;
typedef double f64;

constexpr int W = LANES, VECTORS = 256, FILES = 512 + 2;
constexpr int VECTOR = 256, CONSTANT = 1 << 20, FLAT_SCRATCH = 102, VCC = 106, TTMP7 = 115, TTMP9 = 117, NUL = 124, M0 = 125, EXEC = 126;
constexpr u64 ALL = W == 64 ? ~0ull : (1ull << (W & 63)) - 1;
enum { NEG = 1, ABS = 2, HALF = 4, HIGH = 8, SEXT = 16 };                      // what is done to a source
enum { CLAMP = 1, RESULT_HIGH = 2, KEEPS = 4, DPP_BOUND = 8, DPP_INACTIVE = 16, SIGNED = 32, RETURNS = 64, DPP8 = 128, VALU = 256, TRANS = 512, SALU = 1024, VMEM = 2048, SETTLES = 4096, LITERAL = 8192, DOT = 16384, PAST = 32768 };
enum { TRANS_USE = 1, PRODUCT_USE = 2, STALE_SCALARS = 4, CLOSE = 8, FORWARDS = 16 };  // hazards that a chip has

struct Op {
  i32 code, size, dst, dst2;
  i32 src[4], mods[4], sel[4];  // sel: of SDWA; 6 is the whole word; the last one is the result's
  u64 value[4];                 // of sources that are constants
  i32 flags, omod, dpp, masks;  // dpp: -1 where there is none; masks: of banks and, four bits up, of rows
  i32 offset, offset2, bytes, words;
  i32 wait[4];
  i32 space, parts;  // of accesses: which memory; of buffers, whether there are an index (1) and an offset (2)
};
enum { GLOBAL, FLAT, BUFFER };

struct Failure {
  std::string text;
};

[[noreturn]] static void fault(const char* format, ...) {
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  throw Failure{text};
}

enum Counter { LOADS, STORES, SHARED, SCALARS, COUNTERS };

// What is on its way: to registers, if it has any.
struct Pending {
  i32 first;  // a vector register; below 0: ~ of a scalar
  u8 count, bits;
  bool ordered, shared;
  u8 twin;     // the other counter that counts it, + 1
  u32 number;  // of the wave's accesses to that memory
  u32 sent;
};

struct Queue {
  std::vector<Pending> list;
  size_t head = 0, unordered = 0;
  size_t size() const { return list.size() - head; }
};

struct Group;
struct Launch;
struct Program;

struct Wave {
  Group* group;
  Launch* launch;
  int number;
  i64 pc, here;
  u64 exec, full, valid;
  u32 scc;
  bool scc_known;
  int state;  // 0 runs, 1 waits at a barrier, 2 is done
  int signalled;
  bool waited;  // this instruction waited for something
  u64 steps;
  u32 accesses[2], offered[2], published[2];  // of global and of shared memory; those that were done when the wave came to
                                              // a barrier, and, since the last barrier, for others
  u32 fresh[32];  // of each wave of the workgroup, the accesses since which this wave's cache keeps nothing
  u32 s[128];
  u32 known_s[128];  // bits
  u8 busy_s[128];
  u64 known[FILES];
  u8 busy[FILES];
  u8 sent_to[FILES][2];  // the counter of what is on its way to each half
  u32 sent_at[FILES][2];
  u32 sends;
  i32 limit, accumulators;
  bool flush32, flush16, ieee;
  u32 mode;
  u64 clock, valu_s[128], valu_exec, valu_v[FILES], multiplied[FILES], product[FILES];
  u64 dotted[FILES], held_at;  // when a product of vectors wrote a register; and a store of more than 64 bits took some
  int dotted_by[FILES], held_first, held_count;
  u8 stored_later[FILES];  // how much later what multiplied may be accessed
  // of RDNA: how many instructions of the VALU there were, and how many transcendental ones of these; which of them
  // wrote a register; the last one whose result is there for sure; the last one that multiplied matrices
  u64 valus, transes, trans[FILES], trans_before[FILES], landed, slow, multiplier;
  // of RDNA 3 with 64 lanes: how many there were when the SALU wrote EXEC, and when the VALU wrote a register; registers
  // that this instruction read; pairs of scalars that were read as masks
  u64 exec_at, valu_at[FILES];
  int sources[16], source_count;
  u8 masked[64];
  int multiplied_first, multiplied_count;
  const Op* op;
  u8 cached[64], stale[128];  // pairs of registers that the VALU read, and registers that were written since then, by whom
  u64 private_begin;           // before gfx940: where the wave's private memory begins
  std::vector<u8> scratch, written;  // of all lanes, one after the other, and whether somebody wrote a byte
  Queue queues[COUNTERS];
  alignas(64) u32 v[FILES][W];
};

static const char* counter_name(Wave& w, int n);

// *** registers ***

static std::string name_of(int number) {
  char text[32];
  if (number >= VECTOR + VECTORS) snprintf(text, sizeof text, "a%d", number - VECTOR - VECTORS);
  else if (number >= VECTOR) snprintf(text, sizeof text, "v%d", number - VECTOR);
  else if (number >= VCC && number < VCC + 2) return number == VCC ? "vcc_lo" : "vcc_hi";
  else if (number >= EXEC && number < EXEC + 2) return number == EXEC ? "exec_lo" : "exec_hi";
  else if (number == M0) return "m0";
  else if (number >= 108 && number < 124) snprintf(text, sizeof text, "ttmp%d", number - 108);
  else snprintf(text, sizeof text, "s%d", number);
  return text;
}

[[noreturn]] static void not_waited(Wave& w, int number) {
  for (int n = 0; n < COUNTERS; n++)
    for (size_t k = w.queues[n].head; k < w.queues[n].list.size(); k++) {
      const Pending& p = w.queues[n].list[k];
      int first = p.first < 0 ? ~p.first : p.first + VECTOR;
      if (first <= number && number < first + p.count)
        fault("%s is used before what it is loaded with was waited for by %s", name_of(number).c_str(),
              counter_name(w, n));
    }
  fault("%s is used before it was waited for", name_of(number).c_str());
}

static inline void check_limit(Wave& w, int reg) {
  if (reg >= VECTORS ? reg < 512 && reg - VECTORS >= w.accumulators : reg >= w.limit)
    fault("%s is more than the descriptor asks for: %d registers", name_of(reg + VECTOR).c_str(),
          reg >= VECTORS ? w.accumulators : w.limit);
}

static void before_vector(Wave& w, int reg, bool writes);
static void before_scalar(Wave& w, int reg);
static void scalar_written(Wave& w, int reg);
static void mask_read(Wave& w, int reg);

static inline const u32* lanes_of(Wave& w, int reg, u64 needed) {
  check_limit(w, reg);
  if (w.busy[reg]) not_waited(w, reg + VECTOR);
  before_vector(w, reg, false);
  if ((w.known[reg] & needed) != needed)
    fault("%s is read, and nobody wrote it%s", name_of(reg + VECTOR).c_str(),
          w.known[reg] ? " in every lane that is on" : "");
  return w.v[reg];
}

static inline const u32* lanes_of(Wave& w, int reg) { return lanes_of(w, reg, w.exec); }

static inline u32* to_write(Wave& w, int reg, u64 mask) {
  check_limit(w, reg);
  if (w.busy[reg]) not_waited(w, reg + VECTOR);
  before_vector(w, reg, true);
  w.known[reg] |= mask;
  w.product[reg] = 0;
  if (w.op->flags & VALU) w.valu_at[reg] = w.valus;
  return w.v[reg];
}

static inline void store_lanes(Wave& w, int reg, const u32* x, u64 mask) {
  u32* to = to_write(w, reg, mask);
  w.valu_v[reg] = w.clock;
  if (mask == ALL) memcpy(to, x, 4 * W);
  else
    for (int n = 0; n < W; n++) to[n] = mask >> n & 1 ? x[n] : to[n];
}

// Where shared and private memory are among the addresses of flat accesses: their upper words, as Linux's
// kfd_flat_memory.c sets them. The limits are the last bytes.
constexpr u32 SHARED_WINDOW = 0x10000, PRIVATE_WINDOW = 0x20000;
static bool is_window(int reg) { return reg >= 235 && reg <= 238; }
static u64 window(int reg) { return u64(reg < 237 ? SHARED_WINDOW : PRIVATE_WINDOW) << 32 | (reg & 1 ? 0 : ~0u); }

// Bits of a register of the wave, and which of them somebody wrote.
static u32 scalar_bits(Wave& w, int reg, u32& known) {
  known = ~0u;
  if (reg < 128) {
    if (reg == EXEC) return u32(w.exec);
    if (reg == EXEC + 1) return u32(w.exec >> 32);
    if (reg == NUL) return 0;
    if (w.busy_s[reg]) not_waited(w, reg);
    known = w.known_s[reg];
    before_scalar(w, reg);
    return w.s[reg];
  }
  if (reg == 253) {
    if (!w.scc_known) fault("SCC is read, and comes from a register that nobody wrote");
    return w.scc;
  }
  if (reg == 252) return w.exec == 0;
  u32 more = ~0u;
  if (reg == 251) return !(scalar_bits(w, VCC, known) | (W == 64 ? scalar_bits(w, VCC + 1, more) : 0));
  if (is_window(reg)) fault("the window of %s memory is read as a word: only pairs of registers get it", reg < 237 ? "shared" : "private");
  fault("operand %d is not known here", reg);
}

[[noreturn]] static void not_written(int reg) { fault("%s is read, and nobody wrote it", name_of(reg).c_str()); }

static u32 scalar(Wave& w, int reg) {
  u32 known, bits = scalar_bits(w, reg, known);
  if (~known) not_written(reg);
  return bits;
}

static u64 scalar64(Wave& w, int reg) {
  if (is_window(reg)) return window(reg);
  if (reg == NUL) return 0;
  if (reg >= 128) return scalar(w, reg);
  return scalar(w, reg) | u64(scalar(w, reg + 1)) << 32;
}

static void set_scalar(Wave& w, int reg, u32 value) {
  if (reg == NUL) return;
  if (reg >= EXEC && w.op->flags & SALU) w.exec_at = w.valus;
  if (reg == EXEC) {
    w.exec = (w.exec & ~0xFFFFFFFFull) | value;
  } else if (reg == EXEC + 1) {
    if (W == 64) w.exec = (w.exec & 0xFFFFFFFFull) | u64(value) << 32;
  } else {
    if (reg >= 128) fault("operand %d cannot be written", reg);
    if (w.busy_s[reg]) not_waited(w, reg);
    w.s[reg] = value;
    w.known_s[reg] = ~0u;
    scalar_written(w, reg);
  }
}

static void set_scalar64(Wave& w, int reg, u64 value) {
  if (reg == NUL) return;
  set_scalar(w, reg, u32(value));
  set_scalar(w, reg + 1, u32(value >> 32));
}

static void even(int reg) {
  if (W == 64 && reg < 128 && reg & 1) fault("a mask of 64 lanes begins at %s, and not at an even register", name_of(reg).c_str());
}

// A bit of each lane: those of lanes that are off may be anything.
static u64 mask_of(Wave& w, int reg) {
  even(reg), mask_read(w, reg);
  u32 known[2] = {~0u, ~0u};
  u64 bits = scalar_bits(w, reg, known[0]);
  if (W == 64) bits |= u64(scalar_bits(w, reg + 1, known[1])) << 32;
  if (w.exec & ~(known[0] | u64(known[1]) << 32)) not_written(reg);
  return bits & ALL;
}

static void valu_wrote(Wave& w, int reg) {
  if (reg == NUL) return;
  if (reg >= EXEC) w.valu_exec = w.clock;
  for (int n = 0; n < W / 32; n++) w.valu_s[reg + n] = w.clock;
}

static void set_mask(Wave& w, int reg, u64 bits) {
  even(reg);
  if (W == 64) set_scalar64(w, reg, bits);
  else set_scalar(w, reg, u32(bits));
  valu_wrote(w, reg);
}

// *** sources ***

template <class T> struct Row {
  alignas(64) T x[W];
};

static void permuted(Wave& w, const Op& o, int reg, u32* out);

static inline void words(Wave& w, const Op& o, int n, int part, u32* out) {
  int reg = o.src[n];
  if (reg >= CONSTANT) std::fill(out, out + W, u32(o.value[n] >> 32 * part));
  else if (reg >= VECTOR) {
    if (n == 0 && o.dpp >= 0) permuted(w, o, reg - VECTOR + part, out);
    else memcpy(out, lanes_of(w, reg - VECTOR + part), 4 * W);
  } else std::fill(out, out + W, part && reg >= 128 ? 0 : scalar(w, reg + part));
}

template <class T> constexpr bool is_float = std::is_floating_point<T>::value || std::is_same<T, f16>::value;

template <class T> static T with_signs(T x, int mods) {
  typedef typename std::conditional<sizeof(T) == 2, u16, typename std::conditional<sizeof(T) == 4, u32, u64>::type>::type B;
  B bits;
  memcpy(&bits, &x, sizeof x);
  const B sign = B(1) << (8 * sizeof(T) - 1);
  if (mods & ABS) bits &= ~sign;
  if (mods & NEG) bits ^= sign;
  memcpy(&x, &bits, sizeof x);
  return x;
}

template <class T> static inline T flushed(T x) {
  if constexpr (std::is_same<T, f16>::value) return x != 0 && std::fabs(f32(x)) < 6.103515625e-05f ? T(std::copysign(0.0f, f32(x))) : x;
  else return x != 0 && std::fabs(x) < std::numeric_limits<T>::min() ? std::copysign(T(0), x) : x;
}

template <class T> static inline bool flushes(Wave& w) { return sizeof(T) == 4 ? w.flush32 : w.flush16; }

// SDWA: a part of a word.
static u32 part_of(u32 x, int sel, bool sign) {
  if (sel == 6) return x;
  if (sel < 4) return sign ? u32(i32(i8(x >> 8 * sel))) : x >> 8 * sel & 255;
  return sign ? u32(i32(i16(x >> 16 * (sel - 4)))) : x >> 16 * (sel - 4) & 0xFFFF;
}

template <class T> static __attribute__((noinline)) void get(Wave& w, const Op& o, int n, T* out) {
  u32 low[W], high[W];
  words(w, o, n, 0, low);
  if (o.sel[n] != 6)
    for (int i = 0; i < W; i++) low[i] = part_of(low[i], o.sel[n], o.mods[n] & SEXT);
  if constexpr (sizeof(T) == 8) {
    words(w, o, n, 1, high);
    for (int i = 0; i < W; i++) {
      u64 bits = low[i] | u64(high[i]) << 32;
      memcpy(&out[i], &bits, 8);
    }
  } else if constexpr (sizeof(T) == 4) memcpy(out, low, 4 * W);
  else {
    int shift = o.mods[n] & HALF ? 16 : 0;
    for (int i = 0; i < W; i++) {
      u16 bits = low[i] >> shift;
      memcpy(&out[i], &bits, 2);
    }
  }
  if (o.mods[n] & (NEG | ABS))
    for (int i = 0; i < W; i++) out[i] = with_signs(out[i], o.mods[n]);
  if constexpr (is_float<T>)
    if (flushes<T>(w))
      for (int i = 0; i < W; i++) out[i] = flushed(out[i]);
}

// *** results ***

static inline u64 written(Wave& w, const Op& o) { return o.dpp >= 0 ? w.exec & w.valid : w.exec; }

template <class T> static __attribute__((noinline)) void put(Wave& w, const Op& o, T* x) {
  u64 mask = written(w, o);
  int reg = o.dst - VECTOR;
  if constexpr (is_float<T>) {
    if (o.omod) {
      T scale = o.omod == 1 ? 2 : o.omod == 2 ? 4 : 0.5f;
      for (int i = 0; i < W; i++) x[i] = x[i] * scale;
    }
    if (flushes<T>(w))
      for (int i = 0; i < W; i++) x[i] = flushed(x[i]);
    if (o.flags & CLAMP)
      for (int i = 0; i < W; i++) x[i] = x[i] >= 1 ? T(1) : x[i] > 0 ? x[i] : T(0);
  }
  u32 low[W], high[W];
  if constexpr (sizeof(T) == 8) {
    for (int i = 0; i < W; i++) {
      u64 bits;
      memcpy(&bits, &x[i], 8);
      low[i] = u32(bits), high[i] = u32(bits >> 32);
    }
    store_lanes(w, reg, low, mask);
    store_lanes(w, reg + 1, high, mask);
    return;
  }
  if constexpr (sizeof(T) == 4) memcpy(low, x, 4 * W);
  if constexpr (sizeof(T) == 2) {
    const u32* old = w.v[reg];
    for (int i = 0; i < W; i++) {
      u16 bits;
      memcpy(&bits, &x[i], 2);
      low[i] = o.flags & RESULT_HIGH ? (old[i] & 0xFFFF) | u32(bits) << 16 : o.flags & KEEPS ? (old[i] & 0xFFFF0000) | bits : bits;
    }
  }
  if (int sel = o.sel[3] & 7; sel != 6) {  // SDWA: a part of the result, and what becomes of the rest
    int unused = o.sel[3] >> 3, bits = sel < 4 ? 8 : 16, shift = sel < 4 ? 8 * sel : 16 * (sel - 4);
    u32 field = (bits == 8 ? 255u : 0xFFFFu) << shift;
    for (int i = 0; i < W; i++) {
      u32 part = low[i] << shift & field;
      u32 above = shift + bits < 32 ? ~0u << (shift + bits) : 0, negative = part >> (shift + bits - 1) & 1;
      low[i] = part | (unused == 2 ? w.v[reg][i] & ~field : unused == 1 && negative ? above : 0);
    }
  }
  store_lanes(w, reg, low, mask);
}

// A copy: of what nobody wrote, nobody wrote that either. Compilers copy pairs of registers of which they use one.
static void copied(Wave& w, const Op& o, int count) {
  u32 x[2][W];
  u64 known[2] = {ALL, ALL};
  for (int n = 0; n < count; n++) {
    int reg = o.src[0] + n;
    if (o.src[0] >= VECTOR && o.src[0] < CONSTANT) {
      memcpy(x[n], lanes_of(w, reg - VECTOR, 0), 4 * W);
      known[n] = w.known[reg - VECTOR];
    } else if (o.src[0] < 128 && reg < 128) {
      u32 bits;
      std::fill(x[n], x[n] + W, scalar_bits(w, reg, bits));
      if (~bits) known[n] = 0;
    } else words(w, o, 0, n, x[n]);
  }
  for (int n = 0; n < count; n++) {
    int reg = o.dst - VECTOR + n;
    store_lanes(w, reg, x[n], w.exec);
    w.known[reg] &= known[n] | ~w.exec;
  }
}

// Whether a source and the result are whole words, as they are, of the same lane.
static inline bool is_plain(const Op& o) { return o.dpp < 0 && o.sel[0] == 6 && (o.sel[3] & 7) == 6 && !o.mods[0]; }

template <class D, class A, class F> static inline void valu(Wave& w, const Op& o, F f) {
  Row<A> a;
  Row<D> d;
  get(w, o, 0, a.x);
  for (int i = 0; i < W; i++) d.x[i] = f(a.x[i], i);
  put(w, o, d.x);
}

template <class D, class A, class B, class F> static inline void valu(Wave& w, const Op& o, F f) {
  Row<A> a;
  Row<B> b;
  Row<D> d;
  get(w, o, 0, a.x), get(w, o, 1, b.x);
  for (int i = 0; i < W; i++) d.x[i] = f(a.x[i], b.x[i], i);
  put(w, o, d.x);
}

template <class D, class A, class B, class C, class F> static inline void valu(Wave& w, const Op& o, F f) {
  Row<A> a;
  Row<B> b;
  Row<C> c;
  Row<D> d;
  get(w, o, 0, a.x), get(w, o, 1, b.x), get(w, o, 2, c.x);
  for (int i = 0; i < W; i++) d.x[i] = f(a.x[i], b.x[i], c.x[i], i);
  put(w, o, d.x);
}

template <class A, class F> static inline void compared(Wave& w, const Op& o, bool executes, F f) {
  Row<A> a, b;
  get(w, o, 0, a.x), get(w, o, 1, b.x);
  u64 bits = 0;
  for (int i = 0; i < W; i++) bits |= u64(f(a.x[i], b.x[i]) ? 1 : 0) << i;
  bits &= written(w, o);
  if (executes) {
    if (CDNA) set_mask(w, o.dst, bits);
    set_mask(w, EXEC, bits);
  } else set_mask(w, o.dst, bits);
}

// Two halves, or two words, of each source: which one each half of the result is of is said by HALF and HIGH.
template <class T> static void halves(Wave& w, const Op& o, int n, bool upper, T* out) {
  u32 low[W], high[W];
  bool second = o.mods[n] & (upper ? HIGH : HALF);
  if constexpr (sizeof(T) == 4) {
    words(w, o, n, o.src[n] >= VECTOR && o.src[n] < CONSTANT || o.src[n] < 128 ? second : second && o.src[n] >= CONSTANT ? 1 : 0, low);
    memcpy(out, low, 4 * W);
  } else {
    words(w, o, n, 0, low);
    for (int i = 0; i < W; i++) {
      u16 bits = second ? low[i] >> 16 : low[i];
      memcpy(&out[i], &bits, 2);
    }
  }
  if (o.mods[n] & (upper ? ABS : NEG))
    for (int i = 0; i < W; i++) out[i] = with_signs(out[i], NEG);
  if constexpr (is_float<T>)
    if (flushes<T>(w))
      for (int i = 0; i < W; i++) out[i] = flushed(out[i]);
}

template <class T, class F> static inline void packed(Wave& w, const Op& o, int count, F f) {
  T in[3][W], done[2][W];
  for (int upper = 0; upper < 2; upper++) {
    for (int n = 0; n < count; n++) halves(w, o, n, upper, in[n]);
    for (int i = 0; i < W; i++) {
      T x = f(in[0][i], in[count > 1 ? 1 : 0][i], in[count > 2 ? 2 : 0][i]);
      if constexpr (is_float<T>) {
        if (o.flags & CLAMP) x = x >= 1 ? T(1) : x > 0 ? x : T(0);
        if (flushes<T>(w)) x = flushed(x);
      }
      done[upper][i] = x;
    }
  }
  u32 low[W], high[W];
  if constexpr (sizeof(T) == 4) {
    memcpy(low, done[0], 4 * W), memcpy(high, done[1], 4 * W);
    store_lanes(w, o.dst - VECTOR, low, w.exec);
    store_lanes(w, o.dst - VECTOR + 1, high, w.exec);
  } else {
    for (int i = 0; i < W; i++) {
      u16 a, b;
      memcpy(&a, &done[0][i], 2), memcpy(&b, &done[1][i], 2);
      low[i] = a | u32(b) << 16;
    }
    store_lanes(w, o.dst - VECTOR, low, w.exec);
  }
}

// *** the wave's own arithmetic ***

template <class T> static inline T wave_source(Wave& w, const Op& o, int n) {
  u64 bits = o.src[n] >= CONSTANT ? o.value[n] : sizeof(T) == 8 ? scalar64(w, o.src[n]) : scalar(w, o.src[n]);
  T x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline u32 carry_of(Wave& w) {
  if (!w.scc_known) fault("SCC is read, and comes from a register that nobody wrote");
  return w.scc;
}

static inline void set_carry(Wave& w, u32 bit) { w.scc = bit, w.scc_known = true; }

template <class T> static inline void wave_result(Wave& w, const Op& o, T x) {
  u64 bits = 0;
  memcpy(&bits, &x, sizeof x);
  if (sizeof(T) == 8) set_scalar64(w, o.dst, bits);
  else set_scalar(w, o.dst, u32(bits));
}

// Operations on bits: a bit of the result is known where it does not depend on one that nobody wrote. Compilers make
// masks of lanes of such, and fields of them.
static u64 source_bits(Wave& w, const Op& o, int n, bool wide, u64& known) {
  known = ~0ull;
  if (o.src[n] >= CONSTANT) return o.value[n];
  if (wide && is_window(o.src[n])) return window(o.src[n]);
  u32 low, high = ~0u;
  u64 bits = scalar_bits(w, o.src[n], low);
  if (wide && o.src[n] < 128 && o.src[n] != NUL) bits |= u64(scalar_bits(w, o.src[n] + 1, high)) << 32;
  known = low | u64(wide ? high : ~0u) << 32;
  return bits;
}

static void result_bits(Wave& w, const Op& o, u64 bits, u64 known, bool wide, bool carries) {
  if (!wide) bits = u32(bits), known |= ~0ull << 32;
  for (int n = 0; n <= wide; n++) {
    int reg = o.dst + n;
    u32 part = u32(known >> 32 * n);
    if (o.dst == NUL) continue;
    if (reg >= EXEC && ~part & (W == 32 && n ? 0 : ~0u)) not_written(o.src[0] >= CONSTANT ? o.src[1] : o.src[0]);
    set_scalar(w, reg, u32(bits >> 32 * n));
    if (reg < EXEC) w.known_s[reg] = part;
  }
  if (carries) w.scc = bits != 0, w.scc_known = !~known || (bits & known) != 0;
}

enum Logic { MOVE, NOT, AND, OR, XOR, AND_NOT, OR_NOT, NAND, NOR, XNOR, SELECT, FIELD, SIGNED_FIELD };

static void logical(Wave& w, const Op& o, int what, bool wide) {
  u64 ka, kb = ~0ull, a = source_bits(w, o, 0, wide, ka), b = 0, bits = 0, known = 0;
  if (what == FIELD || what == SIGNED_FIELD) {
    b = wave_source<u32>(w, o, 1);
    int at = b & (wide ? 63 : 31), size = std::min<int>(b >> 16 & 127, wide ? 64 : 32);
    u64 field = size == 64 ? ~0ull : (1ull << size) - 1;
    bits = a >> at & field, known = ~(~ka >> at) & field;  // behind the last bit come zeros
    if (what == SIGNED_FIELD && size && size < 64) {
      if (bits >> (size - 1) & 1) bits |= ~field;
      if (known >> (size - 1) & 1) known |= ~field;
    } else known |= ~field;
    return result_bits(w, o, bits, known, wide, true);
  }
  if (what > NOT) b = source_bits(w, o, 1, wide, kb);
  if (what == AND_NOT || what == OR_NOT) b = ~b;
  switch (what) {
    case MOVE: bits = a, known = ka; break;
    case NOT: bits = ~a, known = ka; break;
    case XOR: case XNOR: bits = what == XOR ? a ^ b : ~(a ^ b), known = ka & kb; break;
    case AND: case AND_NOT: case NAND: bits = a & b, known = (ka & kb) | (ka & ~a) | (kb & ~b); break;
    case OR: case OR_NOT: case NOR: bits = a | b, known = (ka & kb) | (ka & a) | (kb & b); break;
    case SELECT: bits = carry_of(w) ? a : b, known = w.scc ? ka : kb; break;
  }
  if (what == NAND || what == NOR) bits = ~bits;
  result_bits(w, o, bits, known, wide, what != MOVE && what != SELECT);
}

// *** waiting ***

static void finish(Wave& w, const Pending& p) {
  if (p.twin) {
    const Queue& q = w.queues[p.twin - 1];
    for (size_t k = q.head; k < q.list.size(); k++)
      if (q.list[k].sent == p.sent) return;
  }
  for (int n = 0; n < p.count; n++)
    if (p.first < 0) w.busy_s[~p.first + n] = 0;
    else
      for (int half = 0; half < 2; half++)  // unless something later is on its way there
        if (p.bits >> half & 1 && w.sent_at[p.first + n][half] == p.sent) w.busy[p.first + n] &= ~(1 << half);
}

static void wait(Wave& w, int counter, int most) {
  Queue& q = w.queues[counter];
  if (most && q.unordered) return;  // which of them are done nobody can know
  w.waited |= q.size() > size_t(most);
  while (q.size() > size_t(most)) {
    finish(w, q.list[q.head]);
    if (!q.list[q.head].ordered) q.unordered--;
    q.head++;
  }
  if (q.head == q.list.size()) q.list.clear(), q.head = 0;
}

// Something is on its way to `count` registers from `first` on; `bits` are the halves of each. Behind what the same
// counter counts in order it may go to the same place.
static void sent(Wave& w, int counter, int first, int count, bool shared, int bits = 3, bool ordered = true) {
  w.sends++;
  for (int n = 0; n < count; n++) {
    if (first < 0) {
      int reg = ~first + n;
      if (reg == NUL) continue;
      if (w.busy_s[reg]) not_waited(w, reg);
      w.busy_s[reg] = 1, w.known_s[reg] = ~0u, w.stale[reg] = 0;
    } else {
      int reg = first + n;
      check_limit(w, reg);
      before_vector(w, reg, true);
      for (int half = 0; half < 2; half++)
        if (bits >> half & 1) {
          if (w.busy[reg] >> half & 1 && w.sent_to[reg][half] != counter) not_waited(w, reg + VECTOR);
          w.sent_to[reg][half] = counter, w.sent_at[reg][half] = w.sends;
        }
      w.busy[reg] |= bits;
      w.known[reg] |= w.exec;
    }
  }
  Queue& q = w.queues[counter];
  q.list.push_back({first, u8(count), u8(bits), ordered, shared, 0, w.accesses[shared], w.sends});
  q.unordered += !ordered;
}
