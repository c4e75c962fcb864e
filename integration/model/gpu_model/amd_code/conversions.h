// V_CVT_SCALEF32_*: numbers to and from floats of 8, 6 and 4 bits. The scale is a power of two, the exponent of a float32:
// what becomes wider is multiplied by it, what becomes narrower divided, and rounded to nearest even.

// The bits of a float of 8, 6 or 4 bits, rounded to nearest even or, with a seed below 1, up where that and what is cut off
// are 1 or more. Without FP16_OVFL what is too large is NaN, or an infinity in the format that has them; formats that have
// neither take their largest number. CDNA 3's formats (FP8Z, BF8Z) have one NaN, 0x80, and no -0.
static u32 narrow_bits(f64 x, int kind, f64 seed = -1) {
  const bool own = kind == FP8Z || kind == BF8Z;
  const int exponents = kind == FP8 || kind == FP8Z ? 4 : kind == BF8 || kind == BF8Z ? 5 : kind == BF6 ? 3 : 2, mantissa = size_of(kind) - 1 - exponents;
  const int bias = (1 << (exponents - 1)) - 1 + own;
  const u32 most = kind == FP8 ? 0x7E : kind == BF8 ? 0x7B : (1 << (exponents + mantissa)) - 1, sign = std::signbit(x) << (exponents + mantissa);
  if (own && !std::isfinite(x)) return 0x80;
  if (std::isnan(x)) {
    if (kind >= FP6) fault("a NaN becomes a number of %d bits, which has none", size_of(kind));
    return sign | 0x7F;
  }
  u32 code = most + 1;
  if (std::isfinite(x)) {
    int e;
    std::frexp(x, &e);
    e = std::max(x == 0 ? 1 - bias : e - 1, 1 - bias);
    const f64 units = std::ldexp(std::fabs(x), mantissa - e);
    const f64 whole = (seed < 0 ? std::nearbyint(units) : std::floor(units + seed)) + std::ldexp(f64(e + bias - 1), mantissa);
    if (whole <= most) code = u32(whole);
  }
  if (own) return code > most ? 0x80 : code ? sign | code : 0;
  return sign | (code <= most ? code : kind == FP8 ? 0x7F : kind == BF8 ? 0x7C : most);
}

// V_CVT_SR_*: a float becomes one of 8 bits, rounded by a random word. offset2: its type; bytes: at which bit it goes; space:
// 1 where a scale comes behind the word.
static void rounded_by_chance(Wave& w, const Op& o) {
  u32 x[W], random[W], scale[W], out[W];
  words(w, o, 0, 0, x), words(w, o, 1, 0, random);
  if (o.space) words(w, o, 2, 0, scale);
  memcpy(out, w.v[o.dst - VECTOR], sizeof out);
  for (int lane = 0; lane < W; lane++) {
    if (!(w.exec >> lane & 1)) continue;
    f64 value = number_of(o.offset == F32 ? x[lane] : x[lane] >> o.parts & 0xFFFF, o.offset, true);
    if (o.mods[0] & ABS) value = std::fabs(value);
    if (o.mods[0] & NEG) value = -value;
    if (o.space) value /= scale_of(scale[lane] >> 23 & 255);
    out[lane] = (out[lane] & ~(255u << o.bytes)) | narrow_bits(value, o.offset2, random[lane] * 0x1p-32) << o.bytes;
  }
  store_lanes(w, o.dst - VECTOR, out, w.exec);
}

// words: how many numbers; space: of how many sources, behind which the scale comes, and before that, where wait[0] is 1, a
// random word, which rounds each of the numbers; offset, offset2: types of source and
// result; parts, bytes: at which bit of a register these begin.
static void scaled_conversion(Wave& w, const Op& o) {
  const int count = o.words, own = count / o.space, from = o.offset, to = o.offset2, in_bits = size_of(from), out_bits = size_of(to);
  const int in_words = std::max(1, own * in_bits / 32), out_words = std::max(1, count * out_bits / 32);
  u32 in[2][33][W] = {}, out[32][W] = {}, scale[W], random[W];
  const bool seeded = o.wait[0] == 1;
  for (int n = 0; n < o.space; n++)
    for (int k = 0; k < in_words; k++) words(w, o, n, k, in[n][k]);
  if (seeded) words(w, o, o.space, 0, random);
  words(w, o, o.space + seeded, 0, scale);
  for (int lane = 0; lane < W; lane++) {
    if (!(w.exec >> lane & 1)) continue;
    const f64 factor = scale_of(scale[lane] >> 23 & 255);
    if (out_words == 1) out[0][lane] = w.v[o.dst - VECTOR][lane] & ~(count * out_bits == 32 ? ~0u : ((1u << count * out_bits) - 1) << o.bytes);
    for (int k = 0; k < count; k++) {
      const int source = k / own, at = k % own * in_bits + o.parts, place = k * out_bits + o.bytes;
      const u64 two = in[source][at / 32][lane] | u64(in[source][at / 32 + 1][lane]) << 32;
      const u32 bits = u32(two >> at % 32) & (in_bits == 32 ? ~0u : (1u << in_bits) - 1);
      f64 x = number_of(bits, from, true);
      if (o.mods[source] & ABS) x = std::fabs(x);
      if (o.mods[source] & NEG) x = -x;
      const f64 up = x * factor;
      const u64 made = to == F32 ? bits_of(f32(up)) : to == F16 ? bits_of(f16(up)) : to == BF16 ? bf16_of(f32(up)) : narrow_bits(x / factor, to, seeded ? random[lane] * 0x1p-32 : -1);
      out[place / 32][lane] |= u32(made << place % 32);
      if (place % 32 + out_bits > 32) out[place / 32 + 1][lane] |= u32(made >> (32 - place % 32));
    }
  }
  for (int k = 0; k < out_words; k++) store_lanes(w, o.dst - VECTOR + k, out[k], w.exec);
}
