// Memory: global, shared, private and scalar accesses; what is outside, and what is a race.
//
// A byte's mark says who wrote it last and who read it, with the number of that access among the wave's. An access of
// another wave is ordered behind that if a barrier was in between, and the access had been waited for before the
// barrier. LLVM's "Memory Model", workgroup scope: on CDNA, and on RDNA in compute unit mode, the waves of a workgroup have
// one cache, which keeps their vector accesses to global memory in order, so that nobody waits for those. In RDNA's
// workgroup processor mode they may have different ones: a load behind the barrier reads what another wave stored if this
// wave has invalidated its cache since, or if the load goes past that.

struct Mark {
  u32 writer, written, reader, read;
};
constexpr u32 ATOMIC = 1u << 31, MANY = ~0u, MOST_PAGES = 512;

struct Region {
  u64 low, high;
};

struct Launch {
  u64 code, arguments, argument_bytes;
  const Region* regions;
  i64 region_count;
  i32 groups[3], threads[3];
  i32 local_bytes, private_bytes, vectors, accumulators;
  i32 user_count, group_register, group_bits, packed;  // packed: how many components of v0
  i32 argument_register, float_mode, ieee, backwards;
  i64 most_steps;
  const char* counters[COUNTERS];
  i64 counted;  // out: instructions that were run
  i32 logged;   // each instruction goes to `steps`
  i32 hazards;
  // before gfx940, registers say where private memory is: a buffer of it, where that of all waves begins, and what the
  // wave adds to it; below 0: no such register. `segmented`: so it is here
  i32 segmented, private_buffer, private_begin, private_offset;
  // the buffer's descriptor, where private memory of all waves begins, bytes of a wave and how many waves have some
  u32 private_words[4];
  u64 private_base;
  u32 wave_bytes, waves;
  i32 two_caches;  // of global memory: waves of a workgroup have one or the other
};

struct Group {
  Launch* launch;
  u32 serial, phase;
  std::vector<u8> lds;
  std::vector<Mark> marks;
  std::vector<Wave*> waves;
};

struct Shadow {
  std::unordered_map<u64, std::unique_ptr<Mark[]>> pages;
  u64 last = ~0ull;
  Mark* at = nullptr;
  std::vector<u64> firsts;  // of buffers: what a load with a closed gate reads

  Mark* mark(u64 address) {
    u64 page = address >> 12;
    if (page != last) {
      auto found = pages.find(page);
      if (found != pages.end()) at = found->second.get();
      else if (pages.size() >= MOST_PAGES) at = nullptr;
      else {
        auto made = std::make_unique<Mark[]>(4096);
        memset(made.get(), 0, sizeof(Mark) * 4096);
        at = (pages[page] = std::move(made)).get();
      }
      last = page;
    }
    return at ? at + (address & 4095) : nullptr;
  }
};
static Shadow* shadow;

static u32 identity(Wave& w) { return w.group->serial * 32 + w.number + 1; }

// Whether what `who` did in its access `when` comes before what this wave does now.
static bool before(Wave& w, u32 who, u32 when, bool shared) {
  who &= ~ATOMIC;
  u32 mine = identity(w);
  if (who == mine) return true;
  if ((who - 1) / 32 != w.group->serial) return false;
  return w.group->waves[(who - 1) % 32]->published[shared] >= when;
}

enum Kind { READ, WRITE, UPDATE };

// Whether this wave's cache may have what was there before what `who` did, which comes before what the wave does now.
static bool old_in_cache(Wave& w, u32 who, u32 when) {
  return w.launch->two_caches && !(w.op->flags & PAST) && !(who & ATOMIC) && w.fresh[(who - 1) % 32] < when;
}

static void invalidate(Wave& w) {
  for (Wave* other : w.group->waves) w.fresh[other->number] = other->published[0];
}

static void race(Wave& w, const Mark& m, u64 place, const char* what, bool shared, u32 who) {
  std::string where = shared ? "byte " + std::to_string(place) + " of shared memory" : "";
  if (!shared) {
    char text[32];
    snprintf(text, sizeof text, "the byte at %#llx", (unsigned long long)place);
    where = text;
  }
  if (who == MANY) fault("%s is written, and other waves read it with no barrier in between", where.c_str());
  who = (who & ~ATOMIC) - 1;
  fault("%s %s wave %u of workgroup %u %s, with no barrier in between, or before that was waited for", where.c_str(),
        what, who % 32, who / 32, m.writer == who + 1 ? "wrote" : "touched");
}

// Whether all of the waves that have read a byte are of this workgroup, and a barrier is behind them.
static bool behind(Wave& w, const Mark& m) {
  return m.read >> 12 == w.group->serial && m.read < (u32(w.group->serial) << 12 | w.group->phase);
}

// Looks at an access to bytes whose marks begin at m. `now`: what is there, `then`: what will be.
static void touch(Wave& w, Mark* m, u64 place, int bytes, Kind kind, const u8* now, const u8* then, bool shared) {
  u32 mine = identity(w), mark = kind == UPDATE ? mine | ATOMIC : mine;
  for (int n = 0; n < bytes; n++, m++) {
    bool same = kind == WRITE && now[n] == then[n];
    // what is updated at once may be read by who then updates it, in a loop
    if (m->writer && m->writer != mark && !(kind != WRITE && m->writer & ATOMIC) && !same &&
        !before(w, m->writer, m->written, shared))
      race(w, *m, place + n, kind == READ ? "is read, and" : "is written, and", shared, m->writer);
    if (kind == READ && !shared && m->writer && m->writer != mine && old_in_cache(w, m->writer, m->written))
      fault("the byte at %#llx is read, and wave %u of workgroup %u wrote it: the wave's cache may have what was there before, and is to be invalidated behind the barrier",
            (unsigned long long)(place + n), (m->writer - 1) % 32, (m->writer - 1) / 32);
    if (kind == WRITE && m->writer == mine && m->written == w.accesses[shared] && !same)
      fault("two lanes write different values to %s %llu", shared ? "byte" : "the byte at", (unsigned long long)(place + n));
    if (kind != READ) {
      if (kind == WRITE && m->reader && m->reader != mine && !same &&
          !(m->reader == MANY ? behind(w, *m) : before(w, m->reader, m->read, shared)))
        race(w, *m, place + n, "is written, and", shared, m->reader);
      m->writer = mark, m->written = w.accesses[shared];
      if (!same) m->reader = 0;
    } else if (!m->reader || m->reader == mine ||
               (m->reader == MANY ? behind(w, *m) : before(w, m->reader, m->read, shared)))
      m->reader = mine, m->read = w.accesses[shared];
    else if (m->reader != MANY || m->read != (u32(w.group->serial) << 12 | w.group->phase)) {
      bool others = m->reader == MANY ? m->read >> 12 != w.group->serial : (m->reader - 1) / 32 != w.group->serial;
      m->reader = MANY, m->read = others ? ~0u : u32(w.group->serial) << 12 | w.group->phase;
    }
  }
}

static const Region* region_of(Wave& w, u64 address, u64 bytes) {
  static thread_local const Region* last = nullptr;
  const Launch& l = *w.launch;
  if (last >= l.regions && last < l.regions + l.region_count && address >= last->low && address < last->high && bytes <= last->high - address)
    return last;
  for (i64 n = 0; n < l.region_count; n++)
    if (address >= l.regions[n].low && address < l.regions[n].high && bytes <= l.regions[n].high - address) return last = &l.regions[n];
  fault("%llu bytes at %#llx are in no buffer", (unsigned long long)bytes, (unsigned long long)address);
}

// What a lane moves: `bytes` of memory to or from registers of 32 bits.
static void unpack(const Op& o, const u8* from, Wave& w, int reg, int lane) {
  if (o.bytes >= 4) {
    for (int n = 0; n < o.bytes / 4; n++) memcpy(&w.v[reg + n][lane], from + 4 * n, 4);
    return;
  }
  u32 x = 0;
  memcpy(&x, from, o.bytes);
  if (o.flags & SIGNED) x = o.bytes == 1 ? u32(i32(i8(x))) : u32(i32(i16(x)));
  u32 old = w.v[reg][lane];
  if (o.offset2 == 1) x = (old & 0xFFFF0000) | (x & 0xFFFF);
  if (o.offset2 == 2) x = (old & 0xFFFF) | x << 16;
  w.v[reg][lane] = x;
}

static void pack(const Op& o, u8* to, Wave& w, int reg, int lane) {
  if (o.bytes >= 4) {
    for (int n = 0; n < o.bytes / 4; n++) memcpy(to + 4 * n, &w.v[reg + n][lane], 4);
    return;
  }
  u32 x = w.v[reg][lane] >> (o.offset2 == 2 ? 16 : 0);
  memcpy(to, &x, o.bytes);
}

// The halves of registers that a load writes.
static int halves_loaded(const Op& o) { return o.offset2 == 0 ? 3 : o.offset2; }

static void read_data(Wave& w, const Op& o, int reg) {
  for (int n = 0; n < std::max(1, o.bytes / 4); n++) lanes_of(w, reg + n);
}

// src0: the address, src1: the base, src2: data; dst: where to.
static void global_places(Wave& w, const Op& o, u64* places) {
  int reg = o.src[0] - VECTOR;
  const u32* low = lanes_of(w, reg);
  if (o.src[1] >= 0) {
    u64 base = scalar64(w, o.src[1]);
    for (int n = 0; n < W; n++) places[n] = base + low[n] + i64(o.offset);
  } else {
    const u32* high = lanes_of(w, reg + 1);
    for (int n = 0; n < W; n++) places[n] = (low[n] | u64(high[n]) << 32) + i64(o.offset);
  }
}

static void change(Wave& w, u64 place, int bytes, const u8* then, Kind kind) {
  region_of(w, place, bytes);
  for (int k = 0; k < bytes;) {
    int piece = std::min<int>(bytes - k, 4096 - (place + k & 4095));
    if (Mark* m = shadow->mark(place + k)) touch(w, m, place + k, piece, kind, (const u8*)place + k, then + k, false);
    k += piece;
  }
}

template <class T> static T lane_value(Wave& w, int reg, int lane) {
  u32 words[2] = {w.v[reg][lane], sizeof(T) == 8 ? w.v[reg + 1][lane] : 0};
  T x;
  memcpy(&x, words, sizeof x);
  return x;
}
template <class T> static void set_lane(Wave& w, int reg, int lane, T x) {
  u32 words[2] = {0, 0};
  memcpy(words, &x, sizeof x);
  w.v[reg][lane] = words[0];
  if (sizeof(T) == 8) w.v[reg + 1][lane] = words[1];
}

static u8* shared_bytes(Wave& w, u32 place, int bytes) {
  std::vector<u8>& lds = w.group->lds;
  if (u64(place) + bytes > lds.size())
    fault("%d bytes at %u of shared memory, which has %zu", bytes, place, lds.size());
  return &lds[place];
}

static u8* shared_place(Wave& w, u32 place, int bytes, Kind kind, const u8* then) {
  u8* at = shared_bytes(w, place, bytes);
  touch(w, &w.group->marks[place], place, bytes, kind, at, then, true);
  return at;
}

static u8* private_at(Wave& w, i64 place, int bytes, int lane, u8** written = nullptr) {
  if (place < 0 || place + bytes > w.launch->private_bytes)
    fault("%d bytes at %lld of private memory, which has %d", bytes, (long long)place, w.launch->private_bytes);
  size_t size = size_t(w.launch->private_bytes) * W, at = size_t(w.launch->private_bytes) * lane + place;
  if (w.scratch.empty()) w.scratch.assign(size, 0xFF), w.written.assign(size, 0);
  if (written) *written = &w.written[at];
  return &w.scratch[at];
}

// Buffers: src0: index and offset, src1: the scalar offset, src3: the descriptor. How it says what is outside: the ISA
// manuals' "Range checking". Each word is looked at alone, of `whole` accesses all; what is outside reads as 0 and
// is not written. The manuals count the scalar offset, LLVM does not: where that matters is an error.
static void buffer_places(Wave& w, const Op& o, int bytes, bool whole, u64* places, int* room) {
  u32 d[4];
  for (int n = 0; n < 4; n++) d[n] = scalar(w, o.src[3] + n);
  const u64 base = d[0] | u64(d[1] & 0xFFFF) << 32;
  const u32 stride = d[1] >> 16 & 0x3FFF, records = d[2], scalar_offset = o.src[1] >= CONSTANT ? u32(o.value[1]) : scalar(w, o.src[1]);
  const bool indexed = o.parts & 1, offsets = o.parts & 2;
  const int how = CDNA ? (indexed && stride ? 1 : 3) : d[3] >> 28 & 3;
  if (d[3] >> 30) fault("a descriptor of type %d, which is none of a buffer", d[3] >> 30);
  if (CDNA ? d[1] >> 31 : d[1] >> 30) fault("buffers whose elements are swizzled are not known here");
  if (d[3] >> 23 & 1) fault("buffers that add the lane's number are not known here");
  if (!CDNA && how == 3 && indexed && stride) fault("an index in a raw buffer is not known here");
  const u32* first = o.parts ? lanes_of(w, o.src[0] - VECTOR) : nullptr;
  const u32* second = o.parts == 3 ? lanes_of(w, o.src[0] - VECTOR + 1) : first;
  for (int n = 0; n < W; n++) {
    if (!(w.exec >> n & 1)) continue;
    const u64 index = indexed ? first[n] : 0, offset = u64(o.offset) + (offsets ? second[n] : 0);
    places[n] = base + scalar_offset + offset + index * stride;
    room[n] = 0;
    for (int piece = whole || bytes < 4 ? bytes : 4; room[n] < bytes; room[n] += piece) {
      const u64 end = offset + room[n] + piece;
      if (how == 3 && (end <= records) != (end + scalar_offset <= records))
        fault("%d bytes at %llu of a buffer of %u, and at %u more by the scalar offset: manuals do not agree whether that is outside", piece, (unsigned long long)offset + room[n], records, scalar_offset);
      if (!(how == 0 ? index < records && end <= stride : how == 1 ? index < records : how == 2 ? records != 0 : end <= records)) break;
    }
  }
}

// Something is on its way that two counters count, each on its own.
static void sent_flat(Wave& w, int counter, int first, int count, int bits = 3) {
  sent(w, counter, first, count, false, bits, false);
  Pending& p = w.queues[counter].list.back();
  Pending other = p;
  p.twin = SHARED + 1, other.twin = counter + 1, other.shared = true, other.number = w.accesses[1];
  w.queues[SHARED].list.push_back(other);
  w.queues[SHARED].unordered++;
}

// Where the lanes' bytes are, and how many of them there are: fewer than they want outside of a buffer's descriptor.
static void places_of(Wave& w, const Op& o, int bytes, bool whole, u64* places, int* room) {
  if (o.space == BUFFER) return buffer_places(w, o, bytes, whole, places, room);
  global_places(w, o, places);
  std::fill(room, room + W, bytes);
}

static void accessed(Wave& w, const Op& o) {
  w.accesses[0]++;
  if (o.space == FLAT) w.accesses[1]++;
}

static void is_sent(Wave& w, const Op& o, int counter, int first, int count, int bits = 3) {
  if (o.space == FLAT) sent_flat(w, counter, first, count, bits);
  else sent(w, counter, first, count, false, bits);
}

// Before gfx940, flat accesses to private memory go by a register, which the kernel has to set.
static void flat_scratch(Wave& w) {
  if (!w.launch->segmented) return;
  const u64 at = scalar64(w, FLAT_SCRATCH);
  if (at != w.private_begin) fault("flat_scratch is %#llx, and the wave's private memory begins at %#llx", (unsigned long long)at, (unsigned long long)w.private_begin);
}

static u8* flat_private(Wave& w, u64 place, int bytes, int lane, u8** written) {
  flat_scratch(w);
  return private_at(w, u32(place), bytes, lane, written);
}

// Bytes at a place, which another access may not write at the same time. `lane`: whose private memory it may be.
static const u8* read_at(Wave& w, const Op& o, u64 place, int bytes, int lane) {
  if (o.space == FLAT && place >> 32 == SHARED_WINDOW) return shared_place(w, u32(place), bytes, READ, nullptr);
  if (o.space == FLAT && place >> 32 == PRIVATE_WINDOW) return flat_private(w, place, bytes, lane, nullptr);
  region_of(w, place, bytes);
  bool first = std::binary_search(shadow->firsts.begin(), shadow->firsts.end(), place);
  for (int k = 0; k < bytes && !first;) {
    int piece = std::min<int>(bytes - k, 4096 - (place + k & 4095));
    if (Mark* m = shadow->mark(place + k)) touch(w, m, place + k, piece, READ, nullptr, nullptr, false);
    k += piece;
  }
  return (const u8*)place;
}

static void change_at(Wave& w, const Op& o, u64 place, int bytes, const u8* then, Kind kind, int lane) {
  u8* to = (u8*)place;
  if (o.space == FLAT && place >> 32 == SHARED_WINDOW) to = shared_place(w, u32(place), bytes, kind, then);
  else if (o.space == FLAT && place >> 32 == PRIVATE_WINDOW) {
    u8* written;
    to = flat_private(w, place, bytes, lane, &written);
    memset(written, 1, bytes);
  } else change(w, place, bytes, then, kind);
  memcpy(to, then, bytes);
}

static void private_load(Wave& w, const Op& o);
static void private_store(Wave& w, const Op& o);
// A buffer whose elements are swizzled: private memory before gfx940.
static bool is_private(Wave& w, const Op& o) { return CDNA && w.launch->segmented && o.space == BUFFER && scalar(w, o.src[3] + 1) >> 31; }

// Of a store of more than 64 bits, the registers may not be written at once; a scalar offset of a buffer takes the time.
static void holds(Wave& w, const Op& o, int reg) {
  if (CDNA && o.bytes > 8 && (o.space != BUFFER || o.src[1] >= CONSTANT)) w.held_at = w.clock, w.held_first = reg, w.held_count = o.bytes / 4;
}

static void global_load(Wave& w, const Op& o) {
  if (is_private(w, o)) return private_load(w, o);
  u64 places[W];
  int room[W], reg = o.dst - VECTOR;
  places_of(w, o, o.bytes, false, places, room);
  accessed(w, o);
  is_sent(w, o, LOADS, reg, std::max(1, o.bytes / 4), halves_loaded(o));
  for (int n = 0; n < W; n++)
    if (w.exec >> n & 1) {
      u8 data[16] = {0};
      if (room[n]) memcpy(data, read_at(w, o, places[n], room[n], n), room[n]);
      unpack(o, data, w, reg, n);
    }
}

static void global_store(Wave& w, const Op& o) {
  if (is_private(w, o)) return private_store(w, o);
  u64 places[W];
  int room[W], reg = o.src[2] - VECTOR;
  places_of(w, o, o.bytes, false, places, room);
  read_data(w, o, reg);
  accessed(w, o);
  holds(w, o, reg);
  for (int n = 0; n < W; n++)
    if (w.exec >> n & 1 && room[n]) {
      u8 data[64];
      pack(o, data, w, reg, n);
      change_at(w, o, places[n], room[n], data, WRITE, n);
    }
  is_sent(w, o, CDNA ? LOADS : STORES, 0, 0);
}

// f(old, operand, compared) → new. words: registers of data; the second of a pair is what is compared with.
template <class T, class F> static void global_atomic(Wave& w, const Op& o, F f) {
  u64 places[W];
  int room[W], data = o.src[2] - VECTOR, to = o.dst - VECTOR, size = sizeof(T) / 4;
  places_of(w, o, sizeof(T), true, places, room);
  for (int n = 0; n < o.words; n++) lanes_of(w, data + n);
  accessed(w, o);
  T given[W], other[W];
  for (int n = 0; n < W; n++) {
    given[n] = lane_value<T>(w, data, n);
    other[n] = o.words > size ? lane_value<T>(w, data + size, n) : T();
  }
  if (o.flags & RETURNS) is_sent(w, o, LOADS, to, size);
  else is_sent(w, o, CDNA ? LOADS : STORES, 0, 0);
  for (int n = 0; n < W; n++)
    if (w.exec >> n & 1) {
      T old = T(), made;
      if (room[n]) {
        u64 place = places[n];
        if (place % sizeof(T)) fault("an atomic access at %#llx, which is not aligned", (unsigned long long)place);
        if (o.space == FLAT && place >> 32 == PRIVATE_WINDOW) fault("an atomic access to private memory");
        bool shared = o.space == FLAT && place >> 32 == SHARED_WINDOW;
        if (!shared) region_of(w, place, sizeof(T));
        memcpy(&old, shared ? shared_bytes(w, u32(place), sizeof(T)) : (u8*)place, sizeof(T));
        made = f(old, given[n], other[n]);
        change_at(w, o, place, sizeof(T), (const u8*)&made, UPDATE, n);
      }
      if (o.flags & RETURNS) set_lane(w, to, n, old);
    }
}

// *** shared memory ***

static void aligned(u32 place, int bytes) {
  if (bytes == 2 || bytes == 4 ? place % bytes : 0) fault("%d bytes at %u of shared memory, which is not aligned", bytes, place);
}

// src0: the address; offset, and offset2 or below 0. words: 2 where there are two places.
static void shared_load(Wave& w, const Op& o) {
  const u32* base = lanes_of(w, o.src[0] - VECTOR);
  u32 places[W];
  memcpy(places, base, sizeof places);
  w.accesses[1]++;
  int reg = o.dst - VECTOR, each = std::max(1, o.bytes / 4);
  Op one = o;
  one.offset2 = o.words == 2 ? 0 : o.offset2;
  sent(w, SHARED, reg, each * o.words, true, halves_loaded(one));
  for (int k = 0; k < o.words; k++)
    for (int n = 0; n < W; n++)
      if (w.exec >> n & 1) {
        u32 place = places[n] + (k ? o.offset2 : o.offset);
        aligned(place, o.bytes);
        unpack(one, shared_place(w, place, o.bytes, READ, nullptr), w, reg + k * each, n);
      }
}

static void shared_store(Wave& w, const Op& o) {
  const u32* base = lanes_of(w, o.src[0] - VECTOR);
  w.accesses[1]++;
  Op one = o;
  one.offset2 = o.words == 2 ? 0 : o.offset2;
  for (int k = 0; k < o.words; k++) read_data(w, o, o.src[1 + k] - VECTOR);
  for (int k = 0; k < o.words; k++)
    for (int n = 0; n < W; n++)
      if (w.exec >> n & 1) {
        u32 place = base[n] + (k ? o.offset2 : o.offset);
        u8 data[16];
        aligned(place, o.bytes);
        pack(one, data, w, o.src[1 + k] - VECTOR, n);
        memcpy(shared_place(w, place, o.bytes, WRITE, data), data, o.bytes);
      }
  sent(w, SHARED, 0, 0, true);
}

// DS_READ_*_TR: rows of lanes get columns. Of 16 lanes each has 64 bits, or 96, which are numbers of `parts` bits; so many
// lanes as a row has 16 numbers for have a row of a matrix, and lane n gets column n.
static void shared_load_transposed(Wave& w, const Op& o) {
  if (w.exec != ALL) fault("a transposing load takes all lanes, and some are off");
  const u32* base = lanes_of(w, o.src[0] - VECTOR);
  const int count = o.bytes * 8 / o.parts, reg = o.dst - VECTOR, words = o.bytes / 4;
  u32 in[W][4] = {}, out[4][W] = {};
  w.accesses[1]++;
  for (int n = 0; n < W; n++) {
    u32 place = base[n] + o.offset;
    if (place % 8 && o.bytes == 8) fault("8 bytes at %u of shared memory, which is not aligned", place);
    memcpy(in[n], shared_place(w, place, o.bytes, READ, nullptr), o.bytes);
  }
  sent(w, SHARED, reg, words, true);
  auto number = [&](int lane, int k) {
    u64 two = in[lane][k * o.parts / 32] | u64(in[lane][k * o.parts / 32 + 1]) << 32;
    return u32(two >> k * o.parts % 32) & ((1u << o.parts) - 1);
  };
  for (int n = 0; n < W; n++)
    for (int k = 0; k < count; k++) {
      u64 x = u64(number((n & ~15) + 16 / count * k + n % 16 / count, n % count)) << k * o.parts % 32;
      out[k * o.parts / 32][n] |= u32(x);
      if (x >> 32) out[k * o.parts / 32 + 1][n] |= u32(x >> 32);
    }
  for (int k = 0; k < words; k++) memcpy(w.v[reg + k], out[k], sizeof out[k]);
}

template <class T, class F> static void shared_atomic(Wave& w, const Op& o, F f) {
  const u32* base = lanes_of(w, o.src[0] - VECTOR);
  u32 places[W];
  memcpy(places, base, sizeof places);
  int data = o.src[1] - VECTOR, to = o.dst - VECTOR, size = sizeof(T) / 4;
  for (int n = 0; n < size; n++) lanes_of(w, data + n);
  if (o.words > size) for (int n = 0; n < size; n++) lanes_of(w, o.src[2] - VECTOR + n);
  w.accesses[1]++;
  T given[W], other[W];
  for (int n = 0; n < W; n++) {
    given[n] = lane_value<T>(w, data, n);
    other[n] = o.words > size ? lane_value<T>(w, o.src[2] - VECTOR, n) : T();
  }
  sent(w, SHARED, to, o.flags & RETURNS ? size : 0, true);
  for (int n = 0; n < W; n++)
    if (w.exec >> n & 1) {
      T old, made;
      u32 place = places[n] + o.offset;
      if (place % sizeof(T)) fault("an atomic access at %u of shared memory, which is not aligned", place);
      u8* at = shared_bytes(w, place, sizeof(T));
      memcpy(&old, at, sizeof(T));
      made = f(old, given[n], other[n]);
      shared_place(w, place, sizeof(T), UPDATE, (const u8*)&made);
      memcpy(at, &made, sizeof(T));
      if (o.flags & RETURNS) set_lane(w, to, n, old);
    }
}

// Two places, whose old values come back.
template <class T> static void shared_swap2(Wave& w, const Op& o) {
  const u32* base = lanes_of(w, o.src[0] - VECTOR);
  int to = o.dst - VECTOR, size = sizeof(T) / 4;
  u32 places[W];
  T given[2][W];
  memcpy(places, base, sizeof places);
  for (int k = 0; k < 2; k++) {
    for (int n = 0; n < size; n++) lanes_of(w, o.src[1 + k] - VECTOR + n);
    for (int n = 0; n < W; n++) given[k][n] = lane_value<T>(w, o.src[1 + k] - VECTOR, n);
  }
  w.accesses[1]++;
  sent(w, SHARED, to, 2 * size, true);
  for (int k = 0; k < 2; k++)
    for (int n = 0; n < W; n++)
      if (w.exec >> n & 1) {
        u32 place = places[n] + (k ? o.offset2 : o.offset);
        T old;
        aligned(place, sizeof(T));
        u8* at = shared_place(w, place, sizeof(T), UPDATE, (const u8*)&given[k][n]);
        memcpy(&old, at, sizeof(T)), memcpy(at, &given[k][n], sizeof(T));
        set_lane(w, to + k * size, n, old);
      }
}

// *** private memory ***

static bool has_offsets(const Op& o) { return o.space == BUFFER ? o.parts & 2 : o.src[0] >= 0; }

// What an access adds to the lanes' own offsets. A buffer of private memory has a word of each of the 64 lanes, then the
// next ones (the MI200 manual's "Swizzled Buffer Addressing", with elements of 4 bytes and an index that is the lane):
// its address and the scalar offset are of the wave, so a 64th of them is a lane's.
static i64 private_start(Wave& w, const Op& o) {
  if (o.space != BUFFER) {
    flat_scratch(w);
    return i64(o.offset) + (o.src[1] >= 0 ? scalar(w, o.src[1]) : 0);
  }
  u32 d[4];
  for (int n = 0; n < 4; n++) d[n] = scalar(w, o.src[3] + n);
  if ((d[3] >> 21 & 7) != 7 || d[3] >> 30 || o.parts & 1) fault("swizzled buffers are known here with 64 lanes, each of which has its number as index");
  const u64 base = d[0] | u64(d[1] & 0xFFFF) << 32;
  if (base != w.private_begin) fault("a buffer of private memory begins at %#llx, and the wave's at %#llx", (unsigned long long)base, (unsigned long long)w.private_begin);
  const u32 more = o.src[1] >= CONSTANT ? u32(o.value[1]) : scalar(w, o.src[1]);
  if (u64(w.launch->private_bytes) * W > d[2]) fault("a buffer of private memory has %u bytes, and a wave needs %d", d[2], w.launch->private_bytes * W);
  if (more % 256) fault("a scalar offset of %u bytes in private memory, of which 256 are a word of each lane", more);
  return i64(o.offset) + more / 64;
}

static u8* private_place(Wave& w, const Op& o, i64 start, int lane, u8** written) {
  const i64 place = start + (has_offsets(o) ? w.v[o.src[0] - VECTOR][lane] : 0);
  if (o.space == BUFFER && place % std::min<int>(o.bytes, 4)) fault("%d bytes at %lld of a swizzled buffer, which is not aligned", o.bytes, (long long)place);
  return private_at(w, place, o.bytes, lane, written);
}

// Of words that nobody wrote, what is stored and loaded again is such: compilers spill pairs of which they use one.
static void private_load(Wave& w, const Op& o) {
  if (has_offsets(o)) lanes_of(w, o.src[0] - VECTOR);
  const i64 start = private_start(w, o);
  int reg = o.dst - VECTOR, count = std::max(1, o.bytes / 4);
  w.accesses[0]++;
  u8 data[W][16], *written;
  u64 known[4] = {ALL, ALL, ALL, ALL};
  for (int n = 0; n < W; n++)
    if (w.exec >> n & 1) {
      memcpy(data[n], private_place(w, o, start, n, &written), o.bytes);
      for (int k = 0; k < o.bytes; k++)
        if (!written[k]) known[k / 4] &= ~(1ull << n);
    }
  sent(w, LOADS, reg, count, false, halves_loaded(o));
  for (int n = 0; n < count; n++) w.known[reg + n] &= known[n] | ~w.exec;
  for (int n = 0; n < W; n++)
    if (w.exec >> n & 1) unpack(o, data[n], w, reg, n);
}

static void private_store(Wave& w, const Op& o) {
  if (has_offsets(o)) lanes_of(w, o.src[0] - VECTOR);
  const i64 start = private_start(w, o);
  int reg = o.src[2] - VECTOR;
  for (int n = 0; n < std::max(1, o.bytes / 4); n++) lanes_of(w, reg + n, o.bytes < 4 ? w.exec : 0);
  holds(w, o, reg);
  w.accesses[0]++;
  u8* written;
  for (int n = 0; n < W; n++)
    if (w.exec >> n & 1) {
      pack(o, private_place(w, o, start, n, &written), w, reg, n);
      for (int k = 0; k < o.bytes; k++) written[k] = w.known[reg + k / 4] >> n & 1;
    }
  sent(w, CDNA ? LOADS : STORES, 0, 0, false);
}

// *** the wave's own ***

// src0: the base, src1: an offset or below 0; words of 32 bits, or bytes below 4.
static void scalar_load(Wave& w, const Op& o) {
  u64 place = scalar64(w, o.src[0]) + i64(o.offset);
  if (o.src[1] >= 0) place += o.src[1] >= CONSTANT ? u32(o.value[1]) : scalar(w, o.src[1]);
  if (o.bytes >= 4) place &= ~3ull;
  region_of(w, place, o.bytes);
  w.accesses[0]++;
  for (int n = 0; n < o.bytes; n++)
    if (Mark* m = shadow->mark(place + n)) {
      if (m->writer) fault("a scalar load of the byte at %#llx, which this launch wrote: its cache does not see that", (unsigned long long)(place + n));
      u8 dummy = 0;
      touch(w, m, place + n, 1, READ, &dummy, nullptr, false);
    }
  u32 data[16] = {0};
  memcpy(data, (void*)place, o.bytes);
  if (o.bytes < 4 && o.flags & SIGNED) data[0] = o.bytes == 1 ? u32(i32(i8(data[0]))) : u32(i32(i16(data[0])));
  int count = std::max(1, o.bytes / 4);
  sent(w, o.words, ~o.dst, count, false, 3, false);
  for (int n = 0; n < count; n++)
    if (o.dst + n != NUL) w.s[o.dst + n] = data[n];
}
