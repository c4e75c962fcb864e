// Products of matrices: where the elements are, after the ISA manuals' chapters on WMMA and MFMA.

enum Element { F16, BF16, F32, F64, I8, U8, IU4, FP8, BF8, FP8Z, BF8Z, FP6, BF6, FP4 };

static int size_of(int kind) {  // bits
  return kind == F64 ? 64 : kind == F32 ? 32 : kind <= BF16 ? 16 : kind == IU4 || kind == FP4 ? 4 : kind >= FP6 ? 6 : 8;
}

// The number that bits are; integers, too.
static f64 number_of(u32 x, int kind, bool sign) {
  switch (kind) {
    case F32: return float_of(x);
    case F16: return f32(half_of(x));
    case BF16: return wide_of(x);
    case I8: return sign ? i8(x) : u8(x);
    case IU4: return sign ? f64(i32(x << 28) >> 28) : f64(x & 15);
    case FP8: return float8(x, 4, false);
    case BF8: return float8(x, 5, false);
    case FP8Z: return float8(x, 4, true);
    case BF8Z: return float8(x, 5, true);
    case FP6: return small_float(x, 2, 3);
    case BF6: return small_float(x, 3, 2);
    case FP4: return small_float(x, 2, 1);
  }
  return 0;
}

// Element `index` of those that a lane has in registers from `reg` on.
static f64 element(Wave& w, int reg, int lane, int index, int kind, bool sign) {
  int bits = size_of(kind), at = index * bits;
  if (bits == 64) return double_of(w.v[reg + 2 * index][lane] | u64(w.v[reg + 2 * index + 1][lane]) << 32);
  u32 x = w.v[reg + at / 32][lane] >> at % 32;
  if (at % 32 + bits > 32) x |= w.v[reg + at / 32 + 1][lane] << (32 - at % 32);
  return number_of(x, kind, sign);
}

// Where of 4 elements that follow one another each of two is, 2 bits for each: the lane's own, of the set that the
// instruction names. `each`: elements with those that are zero, of which a lane has half.
static int sparse_place(Wave& w, const Op& o, int lane, int k, int each) {
  u32 places = w.v[o.src[3] - VECTOR][lane] >> o.parts * each;
  return k / 2 * 4 + (places >> 2 * k & 3);
}

static void whole_wave(Wave& w) {
  if (w.exec != ALL) fault("a product of matrices takes all lanes, and some are off");
}

// RDNA: a product may not have the result of the one right before it as A, B or an index of sparse elements.
static void after_product(Wave& w, int reg, int count) {
  if (w.launch->hazards & PRODUCT_USE && w.multiplier + 1 == w.valus && reg < w.multiplied_first + w.multiplied_count && w.multiplied_first < reg + count)
    fault("%s is of the result of the product of matrices right before: another vector instruction, v_nop, has to be between",
          name_of(std::max(reg, w.multiplied_first) + VECTOR).c_str());
}

static void read_rows(Wave& w, int reg, int count) {
  for (int n = 0; n < count; n++) lanes_of(w, reg + n, ALL);
}

// V_WMMA_*_16X16XK, and V_SWMMAC (space: 1), of whose A two in four elements are there: src3 says which. RDNA 3: lane n has row n % 16 of A, and column n % 16 of B, both halves of a wave the same; C has in
// register r row 2 r + n / 16, column n % 16; with 64 lanes all four quarters the same A and B, and in register r row 4 r + n / 16. RDNA 4: the halves of a wave have the two halves of K; C has row
// 8 (n / 16) + r. bytes: K; words: the generation; offset, offset2: types of A and B; wait[0]: of C (F32, F16, BF16, I8).
static void wmma(Wave& w, const Op& o) {
  whole_wave(w);
  if (W == 64 && o.words == 4) fault("a product of matrices in waves of 64 lanes is not known here: where its elements are");
  const int K = o.bytes, split = o.words == 4 ? 2 : 1, each = K / split, kinds[2] = {o.offset, o.offset2}, result = o.wait[0];
  f64 in[2][16][64];
  for (int side = 0; side < 2; side++) {
    const bool sparse = side == 0 && o.space;
    int own = sparse ? each / 2 : each, reg = o.src[side] - VECTOR, bits = size_of(kinds[side]), count = std::max(1, own * bits / 32);
    bool sign = o.mods[side] & NEG;
    read_rows(w, reg, count), after_product(w, reg, count);
    if (sparse) {
      read_rows(w, o.src[3] - VECTOR, 1), after_product(w, o.src[3] - VECTOR, 1);
      memset(in[0], 0, sizeof in[0]);
    }
    for (int lane = 0; lane < W; lane++)
      for (int k = 0; k < own; k++) {
        f64 x = element(w, reg, lane, k, kinds[side], sign);
        int row = lane % 16, at = split == 2 ? lane / 16 * each + k : k;
        if (sparse) {
          in[0][row][lane / 16 * each + sparse_place(w, o, lane, k, each)] += x;
          continue;
        }
        if (split == 1 && lane >= 16 && memcmp(&x, &in[side][row][at], sizeof x))
          fault("the halves of the wave have different elements of %c", 'A' + side);
        in[side][row][at] = x;
      }
  }
  const bool narrow = result == F16 || result == BF16;
  const int count = narrow && split == 2 ? 4 : 256 / W;
  u32 done[8][W];
  int reg = o.src[2];
  if (reg >= VECTOR && reg < CONSTANT) read_rows(w, reg - VECTOR, count);
  for (int r = 0; r < 256 / W; r++)
    for (int lane = 0; lane < W; lane++) {
      int row = split == 2 ? 8 * (lane / 16) + r : W / 16 * r + lane / 16, column = lane % 16;
      // halves: of RDNA 4 two of a register, of RDNA 3 the half that op_sel names
      int at = narrow && split == 2 ? r / 2 : r, high = narrow && (split == 2 ? r & 1 : (o.mods[2] & HALF) != 0);
      u32 c = reg >= CONSTANT ? u32(o.value[2]) : reg < VECTOR ? scalar(w, reg) : w.v[reg - VECTOR + at][lane];
      if (narrow && reg < CONSTANT && high) c >>= 16;
      u32& to = done[at][lane];
      if (result == I8) {
        i64 total = 0;
        for (int k = 0; k < K; k++) total += i64(in[0][row][k] * in[1][column][k]);
        total += i32(c);
        to = u32(o.flags & CLAMP ? std::min<i64>(std::max<i64>(total, INT32_MIN), INT32_MAX) : total);
        continue;
      }
      f64 total = result == F32 ? float_of(c) : result == F16 ? f64(half_of(c)) : wide_of(c);
      if (o.mods[2] & ABS) total = std::fabs(total);
      if (o.mods[2] & NEG) total = -total;
      for (int k = 0; k < K; k++) total += in[0][row][k] * in[1][column][k];
      if (result == F32) to = bits_of(f32(total));
      else {
        u32 half = result == F16 ? bits_of(f16(total)) : bf16_of(f32(total));
        if (split == 1) to = high ? (w.v[o.dst - VECTOR + r][lane] & 0xFFFF) | half << 16 : (w.v[o.dst - VECTOR + r][lane] & 0xFFFF0000) | half;
        else to = high ? (to & 0xFFFF) | half << 16 : half;
      }
    }
  for (int r = 0; r < count; r++) store_lanes(w, o.dst - VECTOR + r, done[r], ALL);
  w.multiplier = w.valus, w.multiplied_first = o.dst - VECTOR, w.multiplied_count = count;
}

// Which of a product's K the number `index` of 32 is that a lane of a group has: of 8 bits the lanes have two runs of 16,
// half of K apart, of fewer bits one run of 32. A lane has the scale of 32 neighbours in K, of its row, whoever has those.
static int narrow_place(int group, int index, int K, int bits) {
  return bits == 8 ? index / 16 * (K / 2) + 16 * group + index % 16 : 32 * group + index;
}

static void scale_rows(Wave& w, const Op& o, int side, int M, int K, f64 (*rows)[128]) {
  const int reg = (side ? o.dst2 : o.src[3]) - VECTOR, shift = (o.mods[side] >> 2 & 3) * 8;
  read_rows(w, reg, 1);
  for (int lane = 0; lane < 64; lane++)
    for (int k = 0; k < 32; k++) rows[lane % M][lane / M * 32 + k] *= scale_of(w.v[reg][lane] >> shift);
}

// V_MFMA_*_MxNxK, of B blocks, and V_SMFMAC (space: 1), of whose A two in four elements are there. Lane n has row (or column) n % M of A (or B), of block n / M % B, and of K the elements
// from n / (M B) times its own number on. Of C and D lane n has column n % N; register r has, of 64 / N groups of
// lanes, rows 4 (64 / N) (r / 4) + 4 (n / N) + r % 4; of float64 rows 4 r + n / 16. Blocks of more than 16 lanes come
// one after the other in registers, those of 4 × 4 are in lanes. bytes: M; words: K; wait[1]: B; wait[2]: passes.
// space: 2 for numbers of 8, 6 or 4 bits, 3 where they have scales: A's in src3, B's in dst2.
static void mfma(Wave& w, const Op& o) {
  whole_wave(w);
  const int M = o.bytes, K = o.words, B = o.wait[1], result = o.wait[0], each = K * M * B / 64;
  const int kinds[2] = {o.offset, o.offset2}, size = result == F64 ? 2 : 1;
  static thread_local f64 in[2][16][32][128];
  for (int side = 0; side < 2; side++) {
    const bool sparse = side == 0 && o.space == 1, narrow = o.space >= 2;
    int own = sparse ? each / 2 : each, reg = o.src[side] - VECTOR, count = std::max(1, own * size_of(kinds[side]) / 32);
    read_rows(w, reg, count);
    if (sparse) read_rows(w, o.src[3] - VECTOR, 1), memset(in[0], 0, sizeof in[0]);
    for (int lane = 0; lane < 64; lane++)
      for (int k = 0; k < own; k++) {
        f64 x = element(w, reg, lane, k, kinds[side], true);
        if (sparse) {
          in[0][lane / M % B][lane % M][lane / (M * B) * each + sparse_place(w, o, lane, k, each)] += x;
          continue;
        }
        if (result == F64 && o.mods[side] & NEG) x = -x;
        in[side][lane / M % B][lane % M][narrow ? narrow_place(lane / M, k, K, size_of(kinds[side])) : lane / (M * B) * each + k] = x;
      }
    if (o.space == 3) scale_rows(w, o, side, M, K, in[side][0]);
  }
  const int total_registers = M * M * B / 64, groups = 64 / M;
  int reg = o.src[2];
  bool registers = reg >= VECTOR && reg < CONSTANT;
  // the product that wrote all of C hands it on
  if (registers && w.product[reg - VECTOR] == u64(reg) && w.product[reg - VECTOR + total_registers * size - 1] == u64(reg))
    for (int n = 0; n < total_registers * size; n++) {
      u64& at = w.multiplied[reg - VECTOR + n];
      at = o.wait[3] == 3 && at > 2 ? at - 2 : 0;  // those of 4 × 4 float64 (gfx90a) take 4 instructions for that, too
    }
  if (registers) read_rows(w, reg - VECTOR, total_registers * size);
  static thread_local u32 done[64][64];
  for (int r = 0; r < total_registers; r++)
    for (int lane = 0; lane < 64; lane++) {
      int column = lane % M, group = lane / M, block, row;
      if (M == 4) {
        block = result == F64 ? lane / 4 % 4 : lane / 4, row = result == F64 ? lane / 16 : r;
      } else {
        int of_block = M * M / 64, at = r % of_block;
        block = r / of_block;
        row = result == F64 ? 4 * at + group : 4 * groups * (at / 4) + 4 * group + at % 4;
      }
      u32 c = registers ? w.v[reg - VECTOR + r * size][lane] : reg >= CONSTANT ? u32(o.value[2]) : scalar(w, reg);
      if (result == I8) {
        i64 total = i32(c);
        for (int k = 0; k < K; k++) total += i64(in[0][block][row][k] * in[1][block][column][k]);
        done[r][lane] = u32(o.flags & CLAMP ? std::min<i64>(std::max<i64>(total, INT32_MIN), INT32_MAX) : total);
      } else if (result == F64) {
        f64 total = registers ? double_of(c | u64(w.v[reg - VECTOR + 2 * r + 1][lane]) << 32) : double_of(o.value[2]);
        if (o.mods[2] & NEG) total = -total;
        for (int k = 0; k < K; k++) total = std::fma(in[0][block][row][k], in[1][block][column][k], total);
        u64 bits = bits_of(total);
        done[2 * r][lane] = u32(bits), done[2 * r + 1][lane] = u32(bits >> 32);
      } else {
        f64 total = float_of(c);
        for (int k = 0; k < K; k++) total += in[0][block][row][k] * in[1][block][column][k];
        done[r][lane] = bits_of(f32(total));
      }
    }
  for (int r = 0; r < total_registers * size; r++) {
    store_lanes(w, o.dst - VECTOR + r, done[r], ALL);
    w.multiplied[o.dst - VECTOR + r] = w.clock + o.wait[2], w.stored_later[o.dst - VECTOR + r] = std::max(0, o.wait[3]), w.product[o.dst - VECTOR + r] = o.dst;
  }
}
