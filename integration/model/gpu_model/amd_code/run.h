// Launches: workgroups one after the other, the waves of each by turns, from barrier to barrier.

typedef void (*Function)(Wave&, const Op&);
extern const Function FUNCTIONS[];
static const char* counter_name(Wave& w, int n) { return w.launch->counters[n]; }

struct Program {
  i32* index;  // of the Op at every fourth byte; below 0: not taken apart yet
  i64 size;
  Op* ops;
  int (*miss)(i64 pc);  // takes it apart; 0 if that is done
  u8* seen;             // out: at every fourth byte, whether it was run (1), and a wait that something was waited for by (2)
  i64 pc;               // out: where something went wrong
  char text[1024];      // out: what
};

// RDNA 3 with 64 lanes: what reads both a result from before a write of EXEC by the SALU and one from behind it, soon, gets
// one of them in part. Soon: at most 2 vector instructions are between the two, and 4 behind the second (LLVM's
// GCNHazardRecognizer, fixVALUPartialForwardingHazard).
static void forwarded(Wave& w, int reg) {
  const u64 at = w.valu_at[reg];
  for (int k = 0; k < w.source_count; k++) {
    const int other = w.sources[k];
    const u64 first = std::min(at, w.valu_at[other]), second = std::max(at, w.valu_at[other]);
    if (first && first <= w.exec_at && second > w.exec_at && second - first <= 3 && w.valus - second <= 5 && second > w.landed)
      fault("%s and %s are read, one written before EXEC was, and the other behind that: s_waitcnt_depctr va_vdst(0) has to be between", name_of(other + VECTOR).c_str(), name_of(reg + VECTOR).c_str());
  }
  if (w.source_count < 16) w.sources[w.source_count++] = reg;
}

// CDNA: what LLVM's GCNHazardRecognizer puts between (its numbers for gfx90a and gfx942, by `llc`): a vector instruction
// and a product of matrices that reads its result, 2; a product of vectors and another instruction, 3; a store of more
// than 64 bits and a vector instruction that writes its data, 1, on gfx940 and later 2.
static void after_others(Wave& w, int reg, bool writes) {
  const bool product = w.op->wait[1] > 0 && w.op->flags & VALU && w.op->wait[2] > 0;
  if (product && !writes && w.clock - w.valu_v[reg] < 3 && !w.product[reg])
    fault("%s is multiplied %d instructions after a vector instruction wrote it: 2 have to be between", name_of(reg + VECTOR).c_str(), int(w.clock - w.valu_v[reg]) - 1);
  if (w.clock - w.dotted[reg] < 4 && w.dotted_by[reg] != w.op->code)
    fault("%s is used %d instructions after a product of vectors wrote it: 3 have to be between", name_of(reg + VECTOR).c_str(), int(w.clock - w.dotted[reg]) - 1);
  if (!writes && w.op->flags & VMEM && w.clock < w.multiplied[reg] + w.stored_later[reg])
    fault("%s is accessed before the product of matrices that writes it is done: %d more instructions have to be between", name_of(reg + VECTOR).c_str(), int(w.multiplied[reg] + w.stored_later[reg] - w.clock));
  const int room = w.launch->hazards & CLOSE ? 2 : 1;
  if (writes && w.op->flags & VALU && w.clock - w.held_at <= room && reg >= w.held_first && reg < w.held_first + w.held_count)
    fault("%s is written right after a store of it: %d have to be between", name_of(reg + VECTOR).c_str(), room);
}

// What must not come too soon behind what wrote a register.
static void before_vector(Wave& w, int reg, bool writes) {
  if (CDNA && w.clock < w.multiplied[reg])
    fault("%s is used before the product of matrices that writes it is done: %d more instructions have to be between",
          name_of(reg + VECTOR).c_str(), int(w.multiplied[reg] - w.clock));
  if (CDNA) after_others(w, reg, writes);
  if (CDNA && !writes && w.clock - w.trans[reg] < 2 && w.op->flags & VALU && !(w.op->flags & TRANS))
    fault("%s is used right after %s: 1 instruction has to be between", name_of(reg + VECTOR).c_str(), w.trans_before[reg] ? "a transcendental instruction wrote it" : "a part of it was written");
  if (!CDNA && !writes && w.trans[reg] > w.landed && w.op->flags & VALU) {
    u64 between = w.valus - w.trans[reg] - 1, slow = w.transes - !!(w.op->flags & TRANS) - w.trans_before[reg];
    if (between < 6 && slow < 2)
      fault("%s is used %d vector instructions after a transcendental one wrote it: that takes 6, of which 2 of its kind do, or s_waitcnt_depctr",
            name_of(reg + VECTOR).c_str(), int(between));
  }
  if (!CDNA && W == 64 && !writes && w.launch->hazards & FORWARDS && w.op->flags & VALU) forwarded(w, reg);
}

// RDNA 4's VALU keeps the scalars that it read, in pairs: what they become afterwards has to be waited for, by s_wait_alu
// or by what waits anyway: scalar loads and accesses by buffers for all, an instruction of the SALU that reads one for
// what the VALU wrote (LLVM's AMDGPUWaitSGPRHazards).
enum { FRESH, OF_SALU, OF_VALU };
// VCC is waited for by itself; all other scalars, those of trap handlers too, together.
static bool is_vcc(int reg) { return reg / 2 == VCC / 2; }

// RDNA 3 with 64 lanes: what the SALU writes where the VALU read a mask has to be waited for before it is read (LLVM's
// fixVALUMaskWriteHazard), unless the VALU read another scalar, or a literal, before it was written.
static void after_mask(Wave& w, int reg) {
  if (w.stale[reg]) fault("%s is read, which the VALU read as a mask before the SALU wrote it: s_waitcnt_depctr sa_sdst(0) has to be between", name_of(reg).c_str());
  if (!(w.op->flags & VALU)) return;
  for (int n = 0; n < 64; n++)
    if (n != reg / 2) w.masked[n] = 0;
}

static void before_scalar(Wave& w, int reg) {
  if (CDNA && w.launch->hazards & CLOSE && w.op->flags & VALU && w.clock - w.valu_s[reg] < 3)
    fault("%s is read %d instructions after a vector instruction wrote it: 2 have to be between", name_of(reg).c_str(), int(w.clock - w.valu_s[reg]) - 1);
  if (CDNA && w.op->flags & VMEM && w.clock - w.valu_s[reg] < 6)
    fault("%s is read by an access to memory %d instructions after a vector instruction wrote it: 5 have to be between", name_of(reg).c_str(), int(w.clock - w.valu_s[reg]) - 1);
  if (!CDNA && W == 64 && w.launch->hazards & FORWARDS) return after_mask(w, reg);
  if (CDNA || !(w.launch->hazards & STALE_SCALARS) || !(w.op->flags & (VALU | SALU))) return;
  if (w.op->flags & SALU && w.cached[reg / 2])
    for (int n = 0; n < 128; n++)
      if (w.stale[n] == OF_VALU && is_vcc(n) == is_vcc(reg)) w.stale[n] = FRESH;
  if (w.stale[reg])
    fault("%s is read, which the VALU read before and the %s wrote since then: s_wait_alu %s(0) has to be between", name_of(reg).c_str(),
          w.stale[reg] == OF_SALU ? "SALU" : "VALU", w.stale[reg] == OF_SALU ? "sa_sdst" : is_vcc(reg) ? "va_vcc" : "va_sdst");
  if (w.op->flags & VALU) w.cached[reg / 2] = 1;
}

static void scalar_written(Wave& w, int reg) {
  if (!CDNA && W == 64 && w.launch->hazards & FORWARDS && w.op->flags & SALU && w.masked[reg / 2]) w.stale[reg] = OF_SALU;
  if (!CDNA && w.launch->hazards & STALE_SCALARS && reg < M0 && w.cached[reg / 2]) w.stale[reg] = w.op->flags & VALU ? OF_VALU : OF_SALU;
}

static void mask_read(Wave& w, int reg) {
  if (!CDNA && W == 64 && w.launch->hazards & FORWARDS && w.op->flags & VALU && reg < 128) w.masked[reg / 2] = 1;
}

// S_WAITCNT_DEPCTR, S_WAIT_ALU: until results of the wave's own instructions are there.
static void dependences(Wave& w, u32 fields) {
  if (fields >> 12 == 0) w.waited |= w.slow > w.landed, w.landed = w.valus;
  if (!(fields & 1)) memset(w.masked, 0, sizeof w.masked);
  for (int n = 0; n < 128; n++) {
    bool waited = w.stale[n] == OF_SALU ? !(fields & 1) : is_vcc(n) ? !(fields & 2) : (fields >> 9 & 7) == 0;
    if (waited) w.waited |= w.stale[n] != FRESH, w.stale[n] = FRESH;
  }
}

// Before gfx940, a wave finds in registers where private memory is: a buffer with elements of 4 bytes and 64 lanes that add
// their number, where all waves' begins, and what is to be added for this wave.
static void begin_private(Wave& w, Launch& l, int number) {
  const u32 offset = (number + 1) % l.waves * l.wave_bytes;
  w.private_begin = l.private_base + offset;
  for (int n = 0; n < 4 && l.private_buffer >= 0; n++) set_scalar(w, l.private_buffer + n, l.private_words[n]);
  if (l.private_begin >= 0) set_scalar64(w, l.private_begin, l.private_base);
  if (l.private_offset >= 0) set_scalar(w, l.private_offset, offset);
}

static void start(Wave& w, Launch& l, Group& g, int number, u32 total, const int* place) {
  w.launch = &l, w.group = &g, w.number = number;
  w.pc = w.here = 0, w.waited = false, w.state = w.signalled = 0, w.steps = 0, w.scc = 0;
  w.accesses[0] = w.accesses[1] = w.published[0] = w.published[1] = w.sends = 0;
  memset(w.fresh, 0, sizeof w.fresh);
  w.scc_known = false;
  w.clock = 1000;
  memset(w.known_s, 0, sizeof w.known_s), memset(w.busy_s, 0, sizeof w.busy_s);
  memset(w.known, 0, sizeof w.known), memset(w.busy, 0, sizeof w.busy);
  memset(w.valu_s, 0, sizeof w.valu_s), memset(w.valu_v, 0, sizeof w.valu_v);
  memset(w.multiplied, 0, sizeof w.multiplied), memset(w.product, 0, sizeof w.product), memset(w.trans, 0, sizeof w.trans);
  memset(w.dotted, 0, sizeof w.dotted), memset(w.stored_later, 0, sizeof w.stored_later), w.held_at = w.held_count = 0;
  w.valu_exec = w.valus = w.transes = w.landed = w.slow = 0, w.multiplier = ~0ull;
  memset(w.cached, 0, sizeof w.cached), memset(w.stale, 0, sizeof w.stale);
  memset(w.masked, 0, sizeof w.masked), memset(w.valu_at, 0, sizeof w.valu_at), w.exec_at = w.source_count = 0;
  static const Op first_op = {};
  w.op = &first_op;
  for (auto& q : w.queues) q.list.clear(), q.head = q.unordered = 0;
  w.scratch.clear();
  w.limit = l.vectors, w.accumulators = l.accumulators;
  w.ieee = l.ieee;
  w.exec = ALL;
  set_mode(w, l.float_mode);
  u32 first = number * W;
  w.full = w.exec = total - first >= W ? ALL : (1ull << (total - first)) - 1;
  if (l.argument_register >= 0) set_scalar64(w, l.argument_register, l.arguments);
  int at = l.group_register;
  if (at < 0) {  // of RDNA 4
    set_scalar(w, TTMP9, place[0]), set_scalar(w, TTMP7, u32(place[1]) | u32(place[2]) << 16);
  } else
    for (int axis = 0; axis < 3; axis++)
      if (l.group_bits >> axis & 1) set_scalar(w, at++, place[axis]);
  if (l.segmented && l.private_bytes) begin_private(w, l, number);
  u32 x[W];
  const u32 kept = l.packed == 0 ? 0x3FF : l.packed == 1 ? 0xFFFFF : ~0u;
  for (int n = 0; n < W; n++) {
    u32 k = first + n;
    x[n] = (k % l.threads[0] | k / l.threads[0] % l.threads[1] << 10 | k / (l.threads[0] * l.threads[1]) << 20) & kept;
  }
  store_lanes(w, 0, x, w.exec);
  w.valu_v[0] = 0;  // by no instruction
}

// A wave comes to a barrier: of its accesses, those are done for the others that it has waited for, and those that a cache
// of all of them keeps in order.
static void offer(Wave& w) {
  for (int n = 0; n < 2; n++) w.offered[n] = w.accesses[n];
  for (int n = w.launch->two_caches ? LOADS : SHARED; n < COUNTERS; n++) {
    const Queue& q = w.queues[n];
    for (size_t k = q.head; k < q.list.size(); k++) {
      u32& done = w.offered[q.list[k].shared];
      done = std::min(done, q.list[k].number - 1);
    }
  }
}

// Which wave ran which instruction, in order, for launches that ask for it: the wave's number, and the byte of the code.
static std::vector<u64> steps;
extern "C" i64 steps_of(u64** first) {
  *first = steps.data();
  return steps.size();
}

static void slow_result(Wave& w, const Op& o) {
  int reg = o.dst - VECTOR;
  w.slow = w.valus;
  for (int n = 0; n < std::max(1, o.words); n++)
    if (CDNA) w.trans[reg + n] = w.clock, w.trans_before[reg + n] = o.flags & TRANS;
    else w.trans[reg + n] = w.valus, w.trans_before[reg + n] = w.transes;
}

// Runs a wave to its next barrier or its end.
static void go(Wave& w, Program& p) {
  w.state = 0;
  while (!w.state) {
    if (w.pc < 0 || w.pc >= p.size || w.pc & 3) fault("code at %#llx is in no buffer", (unsigned long long)(w.launch->code + w.pc));
    w.here = w.pc;
    int n = p.index[w.pc >> 2];
    if (n < 0) {
      if (p.miss(w.pc)) throw 4;
      n = p.index[w.pc >> 2];
    }
    const Op& o = p.ops[n];
    if (w.launch->logged) steps.push_back(u64(w.group->serial * w.group->waves.size() + w.number) << 32 | u64(w.here));
    w.pc += o.size;
    w.clock++;
    if (++w.steps > u64(w.launch->most_steps)) fault("a wave was not done after %lld instructions", (long long)w.launch->most_steps);
    w.op = &o;
    if (o.flags & VALU) w.valus++, w.transes += !!(o.flags & TRANS);
    if (o.flags & VMEM) w.landed = w.valus;
    if (o.flags & SETTLES && w.launch->hazards & STALE_SCALARS) memset(w.stale, 0, sizeof w.stale);
    w.source_count = 0;
    if (o.flags & LITERAL) memset(w.masked, 0, sizeof w.masked);
    if (o.code == DUAL && W == 64) fault("two operations at once are for waves of 32 lanes");
    if (o.code == DUAL) {  // both read before either writes
      FUNCTIONS[p.ops[n + 1].code](w, p.ops[n + 1]);
      FUNCTIONS[p.ops[n + 2].code](w, p.ops[n + 2]);
      store_lanes(w, o.dst - VECTOR, w.v[512], w.exec);
    } else FUNCTIONS[o.code](w, o);
    if (w.launch->hazards & (CDNA ? CLOSE : TRANS_USE) && (o.flags & TRANS || CDNA && o.flags & VALU && (o.sel[3] & 7) != 6)) slow_result(w, o);
    if (CDNA && o.flags & DOT) w.dotted[o.dst - VECTOR] = w.clock, w.dotted_by[o.dst - VECTOR] = o.code;
    p.seen[w.here >> 2] |= 1 | (w.waited ? 2 : 0);
    w.waited = false;
  }
  w.launch->counted += w.steps;
  w.steps = 0;
}

extern "C" int run(Launch* l, Program* p) {
  const u32 total = l->threads[0] * l->threads[1] * l->threads[2], count = (total + W - 1) / W;
  static std::vector<std::unique_ptr<Wave>> pool;
  steps.clear();
  while (pool.size() < count) pool.emplace_back(new Wave());
  Group g;
  Shadow marks;
  shadow = &marks;
  for (u64 n = 0; n + 8 <= l->argument_bytes; n += 8) marks.firsts.push_back(*(u64*)(l->arguments + n));
  std::sort(marks.firsts.begin(), marks.firsts.end());
  g.launch = l;
  Wave* now = pool.empty() ? nullptr : pool[0].get();
  const u64 groups = u64(l->groups[0]) * l->groups[1] * l->groups[2];
  try {
    for (u64 k = 0; k < groups; k++) {
      u64 number = l->backwards ? groups - 1 - k : k;
      int place[3] = {int(number % l->groups[0]), int(number / l->groups[0] % l->groups[1]), int(number / l->groups[0] / l->groups[1])};
      g.serial = u32(number), g.phase = 0;
      g.lds.assign(l->local_bytes, 0xFF);
      g.marks.assign(l->local_bytes, Mark{0, 0, 0, 0});
      g.waves.clear();
      for (u32 n = 0; n < count; n++) {
        g.waves.push_back(pool[n].get());
        start(*(now = pool[n].get()), *l, g, n, total, place);
      }
      u32 ended = 0;
      while (ended < count) {
        u32 stopped = 0;
        for (u32 n = 0; n < count; n++) {
          now = g.waves[l->backwards ? count - 1 - n : n];
          if (now->state == 2) continue;
          now->state = 0;
          go(*now, *p);
          (now->state == 2 ? ended : stopped)++;
        }
        if (stopped && ended) {
          for (Wave* w : g.waves)
            if (w->state == 1) now = w;
          fault("some waves of a workgroup wait at a barrier, and others are done");
        }
        for (Wave* w : g.waves) std::copy(w->offered, w->offered + 2, w->published), w->signalled = 0;
        g.phase++;
      }
    }
  } catch (const Failure& failure) {
    p->pc = now->here;
    snprintf(p->text, sizeof p->text, "%s", failure.text.c_str());
    return 1;
  } catch (int code) {
    p->pc = now->here;
    return code;
  }
  return 0;
}
