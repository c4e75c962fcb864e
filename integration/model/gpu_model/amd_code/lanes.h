// What lanes get of each other; carries, choices, and the wave's own instructions that no table has.

// The lane that DPP names for a lane, or -1: after the ISA manuals' "Data Parallel Processing".
static int dpp_lane(int control, int n) {
  int row = n & ~15, at = n & 15;
  if (control < 0x100) return (n & ~3) | (control >> 2 * (n & 3) & 3);
  int by = control & 15;
  switch (control >> 4) {
    case 0x10: return by && at + by < 16 ? n + by : -1;
    case 0x11: return by && at >= by ? n - by : -1;
    case 0x12: return row | ((at - by) & 15);
    case 0x15: return row | by;
    case 0x16: return row | (at ^ by);
  }
  switch (control) {
    case 0x130: return n + 1 < W ? n + 1 : -1;
    case 0x134: return (n + 1) % W;
    case 0x138: return n - 1;
    case 0x13C: return (n + W - 1) % W;
    case 0x140: return row | (15 - at);
    case 0x141: return (n & ~7) | (7 - (n & 7));
    case 0x142: return row ? row - 1 : -1;
    case 0x143: return n >= 32 ? 31 : -1;
  }
  fault("DPP control %#x is not known", control);
}

static void permuted(Wave& w, const Op& o, int reg, u32* out) {
  check_limit(w, reg);
  if (w.busy[reg]) not_waited(w, reg + VECTOR);
  before_vector(w, reg, false);
  if (CDNA && w.clock - w.valu_exec < 5) fault("DPP comes %d instructions after EXEC was written by a vector instruction: 5 have to be between", int(w.clock - w.valu_exec) - 1);
  if (CDNA && w.clock - w.valu_v[reg] < 3) fault("DPP reads %s, which was written %d instructions before: 2 have to be between", name_of(reg + VECTOR).c_str(), int(w.clock - w.valu_v[reg]));
  u64 valid = 0;
  for (int n = 0; n < W; n++) {
    int from = o.flags & DPP8 ? (n & ~7) | (o.dpp >> 3 * (n & 7) & 7) : dpp_lane(o.dpp, n);
    bool there = from >= 0 && (w.exec >> from & 1 || o.flags & DPP_INACTIVE);
    bool in = (o.flags & DPP8) || (o.masks >> (n >> 2 & 3) & 1 && o.masks >> (4 + (n >> 4)) & 1);
    if (in && (there || o.flags & (DPP_BOUND | DPP8))) valid |= 1ull << n;
    if (there && in && w.exec >> n & 1 && !(w.known[reg] >> from & 1))
      fault("%s of lane %d is read by DPP, and nobody wrote it", name_of(reg + VECTOR).c_str(), from);
    out[n] = there ? w.v[reg][from] : 0;
  }
  w.valid = valid;
}

// *** carries and choices ***

static inline u64 carry_in(Wave& w, const Op& o) {
  return o.src[2] >= CONSTANT ? (o.value[2] ? ALL : 0) : o.src[2] == 253 ? (carry_of(w) ? ALL : 0) : mask_of(w, o.src[2]);
}

template <class F> static void carried(Wave& w, const Op& o, bool reads, F f) {
  u32 a[W], b[W], d[W];
  get(w, o, 0, a), get(w, o, 1, b);
  u64 in = reads ? carry_in(w, o) : 0, bits = 0;
  for (int n = 0; n < W; n++) {
    i64 total = f(i64(a[n]), i64(b[n]), i64(in >> n & 1));
    d[n] = u32(total);
    bits |= u64(total >> 32 != 0) << n;
  }
  bits &= written(w, o);
  put(w, o, d);
  set_mask(w, o.dst2, bits);
}

template <class T> static void chosen(Wave& w, const Op& o) {
  T a[W], b[W];
  u64 in = carry_in(w, o);
  get(w, o, 0, a), get(w, o, 1, b);
  for (int n = 0; n < W; n++) a[n] = in >> n & 1 ? b[n] : a[n];
  put(w, o, a);
}

template <class T> static void scaled_operand(Wave& w, const Op& o) {
  T a[W], b[W], c[W];
  get(w, o, 0, a), get(w, o, 1, b), get(w, o, 2, c);
  u64 bits = 0;
  for (int n = 0; n < W; n++) {
    bool flag;
    a[n] = divisor_scaled(a[n], b[n], c[n], flag);
    bits |= u64(flag) << n;
  }
  put(w, o, a);
  set_mask(w, o.dst2, bits & w.exec);
}

template <class T> static void division_end(Wave& w, const Op& o) {
  if (CDNA && w.clock - w.valu_s[VCC] < 5) fault("VCC was written %d instructions before it is read: 4 have to be between", int(w.clock - w.valu_s[VCC]));
  T a[W], b[W], c[W];
  get(w, o, 0, a), get(w, o, 1, b), get(w, o, 2, c);
  u64 flags = mask_of(w, VCC);
  for (int n = 0; n < W; n++) a[n] = scaled_back(a[n], b[n], c[n], flags >> n & 1);
  put(w, o, a);
}

template <class T> static void wide_product(Wave& w, const Op& o) {
  T a[W], b[W];
  u64 c[W], bits = 0;
  get(w, o, 0, a), get(w, o, 1, b);
  if (o.src[2] >= VECTOR && o.src[2] < CONSTANT) {
    // compilers leave the upper word as it is where only the lower word of the result is wanted
    const u32* low = lanes_of(w, o.src[2] - VECTOR);
    for (int n = 0; n < W; n++) c[n] = low[n] | u64(w.v[o.src[2] - VECTOR + 1][n]) << 32;
    if (w.busy[o.src[2] - VECTOR + 1]) not_waited(w, o.src[2] + 1);
  } else get(w, o, 2, c);
  for (int n = 0; n < W; n++) {
    u64 product = sizeof(T) == 4 && T(-1) < 0 ? u64(i64(a[n]) * i64(b[n])) : u64(a[n]) * u64(b[n]);
    u64 total = product + c[n];
    bits |= u64(total < product) << n;
    c[n] = total;
  }
  put(w, o, c);
  set_mask(w, o.dst2, bits & w.exec);
}

// *** lanes ***

static int first_lane(Wave& w) { return w.exec ? __builtin_ctzll(w.exec) : 0; }

static u32 lane_choice(Wave& w, const Op& o, int n) {
  if (o.src[n] >= CONSTANT) return u32(o.value[n]) % W;
  if (CDNA && o.src[n] < 128 && w.clock - w.valu_s[o.src[n]] < 5) fault("%s names a lane %d instructions after a vector instruction wrote it: 4 have to be between", name_of(o.src[n]).c_str(), int(w.clock - w.valu_s[o.src[n]]));
  return scalar(w, o.src[n]) % W;
}

static void before_lane(Wave& w) {
  if (CDNA && w.launch->hazards & CLOSE && w.clock - w.valu_exec < 5)
    fault("a lane is read or written %d instructions after a vector instruction wrote EXEC: 4 have to be between", int(w.clock - w.valu_exec) - 1);
}

static void read_lane(Wave& w, const Op& o) {
  before_lane(w);
  if (CDNA && w.launch->hazards & CLOSE && o.src[0] >= VECTOR && o.src[0] < CONSTANT && w.clock - w.valu_v[o.src[0] - VECTOR] < 2)
    fault("a lane of %s is read right after it was written: 1 instruction has to be between", name_of(o.src[0]).c_str());
  u32 lane = o.src[1] == -1 ? first_lane(w) : lane_choice(w, o, 1);
  u32 x = o.src[0] >= CONSTANT ? u32(o.value[0]) : o.src[0] < VECTOR ? scalar(w, o.src[0]) : lanes_of(w, o.src[0] - VECTOR, 1ull << lane)[lane];
  set_scalar(w, o.dst, x);
  if (o.dst != NUL) w.valu_s[o.dst] = w.clock;
}

static void write_lane(Wave& w, const Op& o) {
  before_lane(w);
  u32 lane = lane_choice(w, o, 1);
  u32 x = o.src[0] >= CONSTANT ? u32(o.value[0]) : scalar(w, o.src[0]);
  to_write(w, o.dst - VECTOR, 1ull << lane)[lane] = x;
}

static void permuted_row(Wave& w, const Op& o, bool other) {
  int reg = o.src[0] - VECTOR;
  lanes_of(w, reg, 0);
  u32 out[W];
  u64 choice = wave_source<u32>(w, o, 1) | u64(wave_source<u32>(w, o, 2)) << 32, valid = 0;
  for (int n = 0; n < W; n++) {
    int from = (n & ~15 ^ (other ? 16 : 0)) | (choice >> 4 * (n & 15) & 15);
    bool there = w.exec >> from & 1 || o.mods[0] & HALF;  // fetch inactive
    if (there && w.exec >> n & 1 && !(w.known[reg] >> from & 1)) fault("%s of lane %d is read, and nobody wrote it", name_of(reg + VECTOR).c_str(), from);
    if (there || o.mods[1] & HALF) valid |= 1ull << n;
    out[n] = there ? w.v[reg][from] : 0;
  }
  store_lanes(w, o.dst - VECTOR, out, w.exec & valid);
}

// V_PERMLANE64: the halves of a wave of 64 change places, of lanes that are off too; one of 32 it leaves as it is.
static void swapped_halves(Wave& w, const Op& o) {
  if (W == 32) return;
  const int reg = o.src[0] - VECTOR;
  lanes_of(w, reg, w.exec << 32 | w.exec >> (W - 32));
  u32 out[W];
  for (int n = 0; n < W; n++) out[n] = w.v[reg][n ^ (W / 2)];
  store_lanes(w, o.dst - VECTOR, out, w.exec);
}

// V_PERMLANE16_SWAP, V_PERMLANE32_SWAP: odd rows of the first and even rows of the second change places.
static void swapped_rows(Wave& w, const Op& o, int size) {
  int a = o.dst - VECTOR, b = o.src[0] - VECTOR;
  lanes_of(w, a), lanes_of(w, b);
  u32 x[W], y[W];
  memcpy(x, w.v[a], sizeof x), memcpy(y, w.v[b], sizeof y);
  for (int n = 0; n < W; n++)
    if (n & size) std::swap(x[n], y[n - size]);
  store_lanes(w, a, x, w.exec), store_lanes(w, b, y, w.exec);
}

// V_PK_MOV_B32: the lower word is one of the first source, the upper one of the second.
static void move_pair(Wave& w, const Op& o) {
  u32 low[W], high[W];
  halves(w, o, 0, false, low), halves(w, o, 1, false, high);
  store_lanes(w, o.dst - VECTOR, low, w.exec), store_lanes(w, o.dst - VECTOR + 1, high, w.exec);
}

static void swapped(Wave& w, const Op& o) {
  u32 a[W], b[W];
  memcpy(a, lanes_of(w, o.dst - VECTOR), sizeof a), memcpy(b, lanes_of(w, o.src[0] - VECTOR), sizeof b);
  store_lanes(w, o.dst - VECTOR, b, w.exec), store_lanes(w, o.src[0] - VECTOR, a, w.exec);
}

static int swizzle_lane(u32 how, int n) {
  if (how >> 15 == 0) return (n & 32) | ((((n & 31) & (how & 31)) | (how >> 5 & 31)) ^ (how >> 10 & 31));
  if (how >> 8 == 0x80) return (n & ~3) | (how >> 2 * (n & 3) & 3);
  if (how >> 14 == 3 && how < 0xE000) {
    int by = how >> 5 & 31, keep = how & 31, to = how >> 10 & 1 ? n - by : n + by;
    return (n & 32) | (((n & 31) & keep) | (to & 31 & ~keep));
  }
  fault("ds_swizzle_b32 with offset %#x is not known", how);
}

// words: lanes that exchange, if not all do.
static void exchanged(Wave& w, const Op& o, int kind) {  // 0: swizzle, 1: pull, 2: push
  const int room = o.words ? o.words : W;
  const int data = (kind ? o.src[1] : o.src[0]) - VECTOR;
  lanes_of(w, data, kind == 2 ? w.exec : 0);
  u32 out[W] = {0}, address[W] = {0};
  if (kind) memcpy(address, lanes_of(w, o.src[0] - VECTOR), sizeof address);
  for (int n = 0; n < W; n++) {
    if (!(w.exec >> n & 1)) continue;
    if (kind == 2) {
      out[n & ~(room - 1) | (address[n] + o.offset) / 4 % room] = w.v[data][n];
      continue;
    }
    int from = kind ? n & ~(room - 1) | (address[n] + o.offset) / 4 % room : swizzle_lane(o.offset, n);
    bool there = w.exec >> from & 1;
    if (there && !(w.known[data] >> from & 1)) fault("%s of lane %d is read, and nobody wrote it", name_of(data + VECTOR).c_str(), from);
    out[n] = there ? w.v[data][from] : 0;
  }
  w.accesses[1]++;
  sent(w, SHARED, o.dst - VECTOR, 1, true);
  for (int n = 0; n < W; n++)
    if (w.exec >> n & 1) w.v[o.dst - VECTOR][n] = out[n];
}

// A source of which only the class is asked: with its sign, and no matter whether denormal numbers are flushed.
template <class T> static void classified(Wave& w, const Op& o, bool executes) {
  T a[W];
  u32 b[W];
  bool flush32 = w.flush32, flush16 = w.flush16;
  w.flush32 = w.flush16 = false;
  get(w, o, 0, a);
  Op plain = o;
  plain.mods[1] = 0;
  get(w, plain, 1, b);
  w.flush32 = flush32, w.flush16 = flush16;
  u64 bits = 0;
  for (int n = 0; n < W; n++) bits |= u64((class_of(a[n]) & b[n]) != 0) << n;
  bits &= written(w, o);
  if (!executes || CDNA) set_mask(w, o.dst, bits);
  if (executes) set_mask(w, EXEC, bits);
}

// V_BITOP3: each bit of the result is one of eight in a table, by the sources' bits.
template <class T> static void looked_up(Wave& w, const Op& o) {
  T a[W], b[W], c[W];
  get(w, o, 0, a), get(w, o, 1, b), get(w, o, 2, c);
  for (int n = 0; n < W; n++) {
    T done = 0;
    for (int k = 0; k < 8; k++)
      if (o.offset >> k & 1) done |= (k & 4 ? a[n] : ~a[n]) & (k & 2 ? b[n] : ~b[n]) & (k & 1 ? c[n] : ~c[n]);
    a[n] = done;
  }
  put(w, o, a);
}

// V_FMA_MIX: each source is a half or a float32.
static void mixed(Wave& w, const Op& o, int part) {  // 0: float32, 1: lower half, 2: upper half
  f32 in[3][W], d[W];
  for (int k = 0; k < 3; k++) {
    u32 x[W];
    words(w, o, k, 0, x);
    for (int n = 0; n < W; n++) {
      f32 v = o.mods[k] & HIGH ? f32(half_of(o.mods[k] & HALF ? x[n] >> 16 : x[n])) : float_of(x[n]);
      in[k][n] = with_signs(v, o.mods[k] & (NEG | ABS));
    }
  }
  for (int n = 0; n < W; n++) d[n] = std::fma(in[0][n], in[1][n], in[2][n]);
  if (!part) return put(w, o, d);
  f16 h[W];
  for (int n = 0; n < W; n++) {
    bool wide = std::isfinite(d[n]);
    h[n] = wide ? f16(odd_sum(f64(in[0][n]) * f64(in[1][n]), f64(in[2][n]))) : f16(d[n]);
  }
  Op half = o;
  half.flags = (o.flags & CLAMP) | KEEPS | (part == 2 ? RESULT_HIGH : 0);
  put(w, half, h);
}

// *** the wave's own ***

static void goes_to(Wave& w, const Op& o) { w.pc += 4 * i64(i16(o.offset)); }
static bool vccz(Wave& w) { return mask_of(w, VCC) == 0; }

static void waited(Wave& w, const Op& o) {
  for (int n = 0; n < COUNTERS; n++)
    if (o.wait[n] >= 0) wait(w, n, o.wait[n]);
}

static void set_mode(Wave& w, u32 mode) {
  w.mode = mode;
  w.flush32 = (mode >> 4 & 3) != 3, w.flush16 = (mode >> 6 & 3) != 3;
  if (mode & 15) fault("rounding other than to nearest is not known here: mode %#x", mode);
}

static void set_register(Wave& w, const Op& o, u32 value) {
  int id = o.offset & 63, at = o.offset >> 6 & 31, size = (o.offset >> 11 & 31) + 1;
  if (id != 1) return;  // of those that kernels set, the others change nothing here
  u32 field = (size == 32 ? ~0u : (1u << size) - 1) << at;
  set_mode(w, (w.mode & ~field) | (value << at & field));
}

// Of 32 lanes, in a wave of 64, those of the lower half.
static void saved_exec(Wave& w, const Op& o, u64 made, u64 old, bool wide) {
  if (wide && W == 32) fault("it is of 64 lanes, and the wave has 32");
  if (wide) set_scalar64(w, o.dst, old);
  else set_scalar(w, o.dst, u32(old));
  made = wide ? made : u32(made);
  w.exec = wide ? made : (w.exec & ~0xFFFFFFFFull) | made;
  w.exec_at = w.valus;
  set_carry(w, made != 0);
}
