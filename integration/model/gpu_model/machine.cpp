// Runs the workgroups of a kernel: every thread is a fiber of its own, all of them go on to the next barrier before any
// passes it. A kernel is C++ that was compiled with -fsanitize=thread and is not linked with that sanitizer: the calls
// that it makes for every access to memory arrive here instead, where they are checked and counted.
//
// Found out: accesses outside of the buffers and of the arrays that a workgroup shares; races, which are two accesses to
// a byte, one of them a write that changes it, by threads between which there is no barrier that orders such memory;
// barriers and exchanges that some threads of a workgroup or of a warp do not reach; what is touched while a copy to it is
// on its way; signed overflow and shifts by too much.

#include "machine.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <deque>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace {

const size_t STACK = 256 << 10;
const uint32_t NOBODY = 0;

// Who touched a byte last. Threads have numbers from 1 on, over all workgroups; an epoch is what is between two barriers
// of a workgroup that order memory of the byte's kind.
struct Cell {
  uint32_t writer, write_epoch, reader, read_epoch;
  bool many_readers, many_groups;
  uint32_t coming;  // the thread that a copy of is on its way to here
  uint32_t fences;  // that the writer had passed
  bool updated;     // in one step, by the last that wrote
};

struct Region {
  char* begin;
  size_t size;
  std::string name;
  bool writable, shared, unaliased;
  std::vector<Cell> cells;
  bool has(const char* at, size_t bytes) const { return begin <= at && at + bytes <= begin + size; }
};

enum State { READY, AT_BARRIER, IN_EXCHANGE, DONE };

// A write to what another thread has touched: no harm if the byte is the same afterwards.
struct Doubtful {
  Region* region;
  char* at;
  char before;
  uint32_t other;
  bool wrote;
  const char* why;
};

// What an asynchronous copy brings, and where.
struct Copy {
  Region* region;
  char* at;
  std::vector<char> bytes;
};

struct Event {
  void* code;
  char* address;
  uint8_t size;
  bool write, shared;
};

struct Fiber {
  ucontext_t context;
  char* stack;
  State state;
  int line;
  unsigned orders;  // the barrier that it waits at
  unsigned thread[3], number;  // number: in the workgroup
  const void* given;
  void* all;
  size_t exchanged;
  std::vector<Event> events;
  std::vector<Doubtful> doubtful;
  uint32_t fences;
  std::vector<Copy> copies;  // since the last group
  std::deque<std::vector<Copy>> groups;
};

}  // namespace

extern "C" {
typedef void (*Call)(void** arguments, const unsigned* group, const unsigned* thread);

struct Buffer {
  void* begin;
  size_t size;
  const char* name;
  int writable;
  int unaliased;
};

// How often warps went to memory, and how much of it they moved: `sectors` of 32 bytes that all lanes of one access
// touch, where `bytes` is what the lanes asked for; `fresh` of them no access of the workgroup has touched before. Of
// shared memory: cycles, one for each of the most different words of a bank that an access touches, and the least that
// it could have taken.
struct Counts {
  uint64_t groups, loads, load_bytes, load_sectors, load_fresh, stores, store_bytes, store_sectors, shared,
      shared_cycles, shared_least, barriers;
};

struct Launch {
  Call call;
  void** arguments;
  const Buffer* buffers;
  unsigned count;  // of buffers
  unsigned groups[3], threads[3], warp;
  unsigned most;  // groups to run; 0: all
  int backwards;  // the last thread first
  int flush;      // numbers too small for a normal float32 are 0
  int counting;
  int unchecked;  // no races are looked for
  Counts counts;
  char message[512];
};
}

namespace {

Launch* launch;
std::deque<Region> regions;  // which stay where they are
std::vector<Fiber> fibers;
Fiber* current;
ucontext_t scheduler;
uint32_t group_number;
// Of device memory and of what a workgroup shares: the epoch, and the workgroup's barriers in it, which do not order that.
uint32_t epochs[2], unordered[2];
unsigned size;  // threads of a workgroup
bool failed;

__attribute__((format(printf, 1, 2))) void fail(const char* format, ...) {
  if (!failed) {
    char text[384];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char who[96] = "";
    unsigned x = launch->groups[0], y = launch->groups[1];
    if (current)
      snprintf(who, sizeof who, "thread (%u, %u, %u) of group (%u, %u, %u) ", current->thread[0], current->thread[1],
               current->thread[2], group_number % x, group_number / x % y, group_number / x / y);
    snprintf(launch->message, sizeof launch->message, "%s%s", who, text);
  }
  failed = true;
  if (current) swapcontext(&current->context, &scheduler);  // which never comes back here
}

Region* region_of(const char* at, size_t bytes) {
  for (Region& region : regions)
    if (region.has(at, bytes)) return &region;
  return nullptr;
}

void outside(const char* at, size_t bytes, bool write) {
  const char* what = write ? "writes" : "reads";
  const Region* near = nullptr;
  size_t least = SIZE_MAX;
  for (const Region& region : regions) {
    size_t distance = at < region.begin ? region.begin - at : at + bytes - (region.begin + region.size);
    if (distance < least) near = &region, least = distance;
  }
  if (!near || least > (1 << 20)) fail("%s %zu bytes that are in no buffer, at %p", what, bytes, at);
  fail("%s %zu bytes at byte %td of %s, which has %zu", what, bytes, at - near->begin, near->name.c_str(), near->size);
}

// Why what another thread did to a byte in an epoch does not come before what this thread does.
const char* no_order(const Region& region, uint32_t other, uint32_t when) {
  if ((other - 1) / size != group_number) return "with no barrier between";
  if (when != epochs[region.shared]) return "and its pointer is noalias: a compiler may move accesses across a barrier";
  if (!unordered[region.shared]) return "with no barrier between";
  return region.shared ? "with no barrier between that orders shared memory"
                       : "with no barrier between that orders device memory";
}

void race(const Region& region, const char* at, bool write, uint32_t other, bool wrote, const char* why) {
  unsigned first = other - 1;
  fail("%s byte %td of %s, which thread %u of group number %u %s %s", write ? "changes" : "reads", at - region.begin,
       region.name.c_str(), first % size, first / size, wrote ? "has written" : "has read", why);
}

// Looks at the last write of this thread, which has happened by now.
void settle() {
  for (const Doubtful& one : current->doubtful)
    if (*one.at != one.before) race(*one.region, one.at, true, one.other, one.wrote, one.why);
  current->doubtful.clear();
}

bool elsewhere(uint32_t other) { return other != NOBODY && (other - 1) / size != group_number; }

void check_coming(const Region& region, const Cell& cell, const char* at, bool write) {
  if (cell.coming == NOBODY) return;
  fail("%s byte %td of %s, to which a copy of thread %u is on its way", write ? "writes" : "reads", at - region.begin,
       region.name.c_str(), (cell.coming - 1) % size);
}

void check_read(Region& region, char* at, uint32_t me) {
  Cell& cell = region.cells[at - region.begin];
  const uint32_t epoch = epochs[region.shared];
  check_coming(region, cell, at, false);
  if (cell.writer != NOBODY && cell.writer != me &&
      (elsewhere(cell.writer) || cell.write_epoch == epoch || (region.unaliased && !cell.updated)))
    return race(region, at, false, cell.writer, true, no_order(region, cell.writer, cell.write_epoch));
  if (elsewhere(cell.reader)) cell.many_groups = true;
  cell.many_readers = cell.read_epoch == epoch && cell.reader != NOBODY && (cell.many_readers || cell.reader != me);
  if (!cell.many_readers) cell.reader = me;
  cell.read_epoch = epoch;
}

void check_write(Region& region, char* at, uint32_t me) {
  Cell& cell = region.cells[at - region.begin];
  const uint32_t epoch = epochs[region.shared];
  check_coming(region, cell, at, true);
  const bool others = region.unaliased && !cell.updated;  // whatever is between
  bool written = cell.writer != NOBODY && cell.writer != me &&
                 (elsewhere(cell.writer) || cell.write_epoch == epoch || others);
  bool now = cell.reader != NOBODY && (cell.read_epoch == epoch || others) && (cell.reader != me || cell.many_readers);
  bool read = cell.many_groups || elsewhere(cell.reader) || now;
  if (written || read) {
    const uint32_t other = written ? cell.writer : cell.reader;
    const char* why = no_order(region, other, written ? cell.write_epoch : cell.read_epoch);
    current->doubtful.push_back({&region, at, *at, other, written, why});
  }
  cell.writer = me, cell.write_epoch = epoch, cell.fences = current->fences, cell.updated = false;
}

// As a write, but that those who have updated the byte in one step as well do not mind.
void check_update(Region& region, char* at, uint32_t me) {
  Cell& cell = region.cells[at - region.begin];
  if (cell.updated) cell.writer = NOBODY;
  check_write(region, at, me);
  cell.updated = true;
}

void access(void* address, size_t bytes, bool write, void* code) {
  char* at = static_cast<char*>(address);
  if (!current) return;
  settle();
  if (current->stack <= at && at < current->stack + STACK) return;
  Region* region = region_of(at, bytes);
  if (!region) return outside(at, bytes, write);
  if (write && !region->writable) return fail("writes to %s, which is only to be read", region->name.c_str());
  const uint32_t me = group_number * size + current->number + 1;
  // the first element is read where a gate is closed, and what was read is not used (tiny_codegen/gates.py)
  const bool closed = !write && at == region->begin;
  for (size_t i = 0; i < bytes && !launch->unchecked && !closed; i++)
    write ? check_write(*region, at + i, me) : check_read(*region, at + i, me);
  if (launch->counting) current->events.push_back({code, at, static_cast<uint8_t>(bytes), write, region->shared});
}

void update(char* at, size_t bytes, void* code) {
  settle();
  Region* region = region_of(at, bytes);
  if (!region) return outside(at, bytes, true);
  if (!region->writable) return fail("updates %s, which is only to be read", region->name.c_str());
  if (reinterpret_cast<uintptr_t>(at) % bytes) return fail("updates %zu bytes that are not aligned", bytes);
  const uint32_t me = group_number * size + current->number + 1;
  for (size_t i = 0; i < bytes && !launch->unchecked; i++) check_update(*region, at + i, me);
  if (launch->counting) current->events.push_back({code, at, static_cast<uint8_t>(bytes), true, region->shared});
}

// *** asynchronous copies ***

void begin_copy(char* to, const char* from, size_t bytes, size_t given, void* code) {
  if (given) access(const_cast<char*>(from), given, false, code);
  settle();
  Region* region = region_of(to, bytes);
  if (!region || !region->shared) return outside(to, bytes, true);
  const uint32_t me = group_number * size + current->number + 1;
  for (size_t i = 0; i < bytes && !launch->unchecked; i++) {
    Cell& cell = region->cells[to + i - region->begin];
    check_write(*region, to + i, me);
    cell.coming = me;
  }
  // it is written at some time that nobody knows, so that what was there is no excuse
  if (!current->doubtful.empty()) {
    const Doubtful& one = current->doubtful[0];
    return race(*one.region, one.at, true, one.other, one.wrote, one.why);
  }
  Copy copy{region, to, std::vector<char>(bytes)};
  memcpy(copy.bytes.data(), from, given);
  memset(to, 0xff, bytes);
  current->copies.push_back(std::move(copy));
  if (launch->counting) current->events.push_back({code, to, static_cast<uint8_t>(bytes), true, true});
}

void end_copies(const std::vector<Copy>& copies) {
  const uint32_t me = group_number * size + current->number + 1;
  for (const Copy& copy : copies) {
    memcpy(copy.at, copy.bytes.data(), copy.bytes.size());
    for (size_t i = 0; i < copy.bytes.size() && !launch->unchecked; i++) {
      Cell& cell = copy.region->cells[copy.at + i - copy.region->begin];
      cell.coming = NOBODY, cell.writer = me, cell.write_epoch = epochs[true], cell.fences = current->fences;
    }
  }
}

// *** counting ***

// Where an instruction goes, and which it is: one that copies goes to both kinds of memory.
typedef std::pair<void*, bool> Instruction;
typedef std::map<std::pair<Instruction, unsigned>, std::vector<Event>> Together;

std::unordered_set<uintptr_t> touched;  // sectors that a workgroup has read

void count_one(const std::vector<Event>& events) {
  Counts& counts = launch->counts;
  std::map<uintptr_t, bool> sectors;
  size_t bytes = 0;
  for (const Event& event : events) {
    uintptr_t begin = reinterpret_cast<uintptr_t>(event.address), end = begin + event.size;
    bytes += event.size;
    for (uintptr_t sector = begin / 32; sector <= (end - 1) / 32; sector++) sectors[sector] = true;
  }
  if (events[0].shared) {
    counts.shared += 1;
    // of wide accesses 128 bytes go at a time: those of half a warp, or of a quarter
    const size_t lanes = events[0].size <= 4 ? 32 : 128 / events[0].size;
    for (size_t first = 0; first < events.size(); first += lanes) {
      std::map<unsigned, std::map<uintptr_t, bool>> banks;
      for (size_t n = first; n < events.size() && n < first + lanes; n++) {
        uintptr_t begin = reinterpret_cast<uintptr_t>(events[n].address), end = begin + events[n].size;
        for (uintptr_t word = begin / 4; word <= (end - 1) / 4; word++) banks[word % 32][word] = true;
      }
      size_t cycles = 0;
      for (auto& bank : banks) cycles = bank.second.size() > cycles ? bank.second.size() : cycles;
      counts.shared_cycles += cycles, counts.shared_least += 1;
    }
  } else if (events[0].write) {
    counts.stores += 1, counts.store_bytes += bytes, counts.store_sectors += sectors.size();
  } else {
    counts.loads += 1, counts.load_bytes += bytes, counts.load_sectors += sectors.size();
    for (const auto& sector : sectors) counts.load_fresh += touched.insert(sector.first).second;
  }
}

// The n-th time that an instruction is executed, it is by all threads of a warp together.
void count_events() {
  for (unsigned warp = 0; warp < size; warp += launch->warp) {
    Together together;
    for (unsigned n = warp; n < size && n < warp + launch->warp; n++) {
      std::map<Instruction, unsigned> times;
      for (const Event& event : fibers[n].events) {
        const Instruction instruction{event.code, event.shared};
        together[{instruction, times[instruction]++}].push_back(event);
      }
      fibers[n].events.clear();
    }
    for (const auto& one : together) count_one(one.second);
  }
}

// *** numbers in memory ***

// Types of operands of matrix instructions.
struct Number {
  size_t size;
  double (*read)(const char* at);
  void (*write)(char* at, double value);
};

template <typename T>
double read_as(const char* at) {
  T value;
  memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

template <typename T>
void write_as(char* at, double value) {
  T number = static_cast<T>(value);
  memcpy(at, &number, sizeof number);
}

double read_half(const char* at) {
  uint16_t bits;
  memcpy(&bits, at, 2);
  int exponent = bits >> 10 & 31, digits = bits & 1023;
  double value = exponent == 31 ? (digits ? __builtin_nan("") : __builtin_inf())
                                : __builtin_ldexp(exponent ? digits + 1024 : digits, (exponent ? exponent : 1) - 25);
  return bits >> 15 ? -value : value;
}

double read_bfloat(const char* at) {
  uint16_t bits;
  memcpy(&bits, at, 2);
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  return read_as<float>(reinterpret_cast<const char*>(&wide));
}

// in the order of gpu_model/llvm_source.py
const Number NUMBERS[] = {
    {2, read_half, nullptr},
    {2, read_bfloat, nullptr},
    {4, read_as<float>, write_as<float>},
    {8, read_as<double>, write_as<double>},
    {1, read_as<int8_t>, nullptr},
    {1, read_as<uint8_t>, nullptr},
    {4, read_as<int32_t>, write_as<int32_t>},
};

// *** fibers ***

void run_thread() {
  unsigned group[3] = {group_number % launch->groups[0], group_number / launch->groups[0] % launch->groups[1],
                       group_number / launch->groups[0] / launch->groups[1]};
  launch->call(launch->arguments, group, current->thread);
  settle();
  current->state = DONE;
  swapcontext(&current->context, &scheduler);
}

void wait_in(State state, int line) {
  settle();
  current->state = state, current->line = line;
  swapcontext(&current->context, &scheduler);
}

void begin(Fiber& fiber) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = STACK;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, run_thread, 0);
  fiber.copies.clear(), fiber.groups.clear(), fiber.fences = 0;
  fiber.state = READY;
}

// Lets every thread that can go on do so, up to where it waits.
void run_ready() {
  for (unsigned n = 0; n < size && !failed; n++) {
    Fiber& fiber = fibers[launch->backwards ? size - 1 - n : n];
    if (fiber.state != READY) continue;
    current = &fiber;
    swapcontext(&scheduler, &fiber.context);
    current = nullptr;
  }
}

// Whether the threads [first, last) all wait for the same thing.
bool together(State state, unsigned first, unsigned last) {
  for (unsigned n = first; n < last; n++)
    if (fibers[n].state != state || fibers[n].line != fibers[first].line) return false;
  return true;
}

// What a barrier orders that all threads have reached.
void pass_barrier() {
  unsigned orders = ORDERS_ALL;
  for (Fiber& fiber : fibers) fiber.state = READY, orders &= fiber.orders;
  for (unsigned shared = 0; shared < 2; shared++) {
    const bool ordered = orders & (shared ? ORDERS_SHARED : ORDERS_DEVICE);
    epochs[shared] += ordered, unordered[shared] = ordered ? 0 : unordered[shared] + 1;
  }
  launch->counts.barriers++;
}

bool exchange() {
  bool some = false;
  for (unsigned warp = 0; warp < size; warp += launch->warp) {
    unsigned last = warp + launch->warp < size ? warp + launch->warp : size;
    if (!together(IN_EXCHANGE, warp, last)) continue;
    for (unsigned to = warp; to < last; to++)
      for (unsigned from = warp; from < last; from++)
        memcpy(static_cast<char*>(fibers[to].all) + (from - warp) * fibers[to].exchanged, fibers[from].given,
               fibers[to].exchanged);
    for (unsigned n = warp; n < last; n++) fibers[n].state = READY;
    some = true;
  }
  return some;
}

void stuck() {
  unsigned counts[4] = {0, 0, 0, 0}, line = 0;
  for (const Fiber& fiber : fibers) {
    counts[fiber.state]++;
    if (fiber.state == AT_BARRIER) line = fiber.line;
  }
  unsigned same = 0;
  for (const Fiber& fiber : fibers) same += fiber.state == AT_BARRIER && fiber.line == static_cast<int>(line);
  if (counts[IN_EXCHANGE])
    fail("%u of %u threads take part in an instruction of their warps that others of the warp do not reach",
         counts[IN_EXCHANGE], size);
  else
    fail("%u of %u threads wait at the barrier in line %u that the others do not reach: %u are done, %u wait elsewhere",
         same, size, line, counts[DONE], counts[AT_BARRIER] - same);
}

void run_group() {
  for (size_t n = regions.size(); n-- > launch->count;)
    if (regions[n].shared) regions.pop_back();
  for (Fiber& fiber : fibers) begin(fiber);
  touched.clear();
  launch->counts.groups++;
  for (unsigned shared = 0; shared < 2; shared++) epochs[shared]++, unordered[shared] = 0;
  while (!failed) {
    run_ready();
    if (failed || exchange()) continue;
    if (launch->counting) count_events();
    if (together(AT_BARRIER, 0, size)) {
      pass_barrier();
      continue;
    }
    bool all = true;
    for (const Fiber& fiber : fibers) all = all && fiber.state == DONE;
    if (all) return;
    stuck();
  }
}

void set_up(Launch* given) {
  launch = given, failed = false, current = nullptr, epochs[0] = epochs[1] = 0;
  size = given->threads[0] * given->threads[1] * given->threads[2];
  regions.clear();
  for (unsigned n = 0; n < given->count; n++) {
    const Buffer& buffer = given->buffers[n];
    regions.push_back({static_cast<char*>(buffer.begin), buffer.size, buffer.name, buffer.writable != 0, false, buffer.unaliased != 0,
                       std::vector<Cell>(given->unchecked ? 0 : buffer.size)});
  }
  fibers = std::vector<Fiber>(size);
  for (unsigned n = 0; n < size; n++) {
    Fiber& fiber = fibers[n];
    fiber.stack = static_cast<char*>(
        mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    fiber.number = n;
    fiber.thread[0] = n % given->threads[0];
    fiber.thread[1] = n / given->threads[0] % given->threads[1];
    fiber.thread[2] = n / given->threads[0] / given->threads[1];
  }
}

}  // namespace

extern "C" {

// Runs a launch; 0 if nothing was found to be wrong, else `message` says what.
int machine_run(Launch* given) {
  set_up(given);
#ifdef __x86_64__
  const unsigned before = _mm_getcsr();
  if (given->flush) _mm_setcsr(before | 0x8040);  // results and operands
#endif
  uint32_t groups = given->groups[0] * given->groups[1] * given->groups[2];
  if (given->most && given->most < groups) groups = given->most;
  for (group_number = 0; group_number < groups && !failed; group_number++) run_group();
#ifdef __x86_64__
  _mm_setcsr(before);
#endif
  for (Fiber& fiber : fibers) munmap(fiber.stack, STACK);
  fibers.clear();
  return failed;
}

void machine_barrier(int line, unsigned orders) {
  current->orders = orders;
  wait_in(AT_BARRIER, line);
}

void machine_exchange(int line, const void* given, size_t bytes, void* all) {
  current->given = given, current->all = all, current->exchanged = bytes;
  wait_in(IN_EXCHANGE, line);
}

unsigned machine_take(int line, unsigned word, unsigned lane) {
  std::vector<unsigned> all(launch->warp);
  machine_exchange(line, &word, sizeof word, all.data());
  if (lane >= launch->warp || current->number - current->number % launch->warp + lane >= size)
    fail("reads a word of lane %u, which its warp does not have", lane);
  return all[lane];
}

void machine_shared(const char* name, void* begin, size_t bytes) {
  char* at = static_cast<char*>(begin);
  if (region_of(at, 1)) return;
  memset(begin, 0xff, bytes);
  regions.push_back({at, bytes, name, true, true, false, std::vector<Cell>(bytes)});
}

void machine_copy(void* to, const void* from, size_t bytes, size_t given) {
  begin_copy(static_cast<char*>(to), static_cast<const char*>(from), bytes, given, __builtin_return_address(0));
}

void machine_copies_end() {
  current->groups.push_back(std::move(current->copies));
  current->copies.clear();
}

void machine_copies_wait(unsigned most) {
  settle();
  for (; current->groups.size() > most; current->groups.pop_front()) end_copies(current->groups.front());
}

void machine_fence() { current->fences++; }

void machine_read_behind(const void* from, size_t bytes) {
  char* at = static_cast<char*>(const_cast<void*>(from));
  settle();
  Region* region = region_of(at, bytes);
  if (!region || !region->shared) return outside(at, bytes, false);
  const uint32_t me = group_number * size + current->number + 1;
  for (size_t i = 0; i < bytes && !launch->unchecked; i++) {
    check_read(*region, at + i, me);
    const Cell& cell = region->cells[at + i - region->begin];
    if (cell.writer != NOBODY && fibers[(cell.writer - 1) % size].fences <= cell.fences)
      fail("a matrix instruction reads byte %td of %s, which thread %u has written with no fence.proxy.async since",
           at + i - region->begin, region->name.c_str(), (cell.writer - 1) % size);
  }
}

unsigned machine_number() { return current->number; }
unsigned machine_size() { return size; }

void machine_wrong(const char* what) { fail("%s", what); }

unsigned machine_lane() { return current->number % launch->warp; }

unsigned machine_position(unsigned which) {
  if (which >= 3) return current->thread[which - 3];
  const unsigned* sizes = launch->groups;
  return which == 0 ? group_number % sizes[0]
                    : which == 1 ? group_number / sizes[0] % sizes[1] : group_number / sizes[0] / sizes[1];
}

// A table is n, m, k, threads, the types of operands and of results, the elements per thread of a, b and c; then for each
// of these matrices, thread and element the row and the column where it is.
void machine_matrix(int line, const int* table, const void* given, void* made) {
  const int n = table[0], m = table[1], k = table[2], lanes = table[3];
  const Number in = NUMBERS[table[4]], out = NUMBERS[table[5]];
  const int counts[3] = {table[6], table[7], table[8]};
  const size_t bytes = (counts[0] + counts[1]) * in.size + counts[2] * out.size;
  std::vector<char> all(bytes * launch->warp);
  machine_exchange(line, given, bytes, all.data());
  const int shapes[3][2] = {{m, k}, {k, n}, {m, n}};
  std::vector<double> matrices[3];
  const int* place = table + 9;
  const int* results = nullptr;
  size_t offset = 0;
  for (int which = 0; which < 3; which++) {
    const Number number = which == 2 ? out : in;
    matrices[which].resize(shapes[which][0] * shapes[which][1]);
    if (which == 2) results = place;
    for (int lane = 0; lane < lanes; lane++)
      for (int element = 0; element < counts[which]; element++, place += 2)
        matrices[which][place[0] * shapes[which][1] + place[1]] =
            number.read(&all[lane * bytes + offset + element * number.size]);
    offset += counts[which] * number.size;
  }
  results += machine_lane() * counts[2] * 2;
  for (int element = 0; element < counts[2]; element++, results += 2) {
    double sum = matrices[2][results[0] * n + results[1]];
    for (int step = 0; step < k; step++)
      sum += matrices[0][results[0] * k + step] * matrices[1][step * n + results[1]];
    out.write(static_cast<char*>(made) + element * out.size, sum);
  }
}

void machine_update(const void* at, size_t bytes) {
  update(static_cast<char*>(const_cast<void*>(at)), bytes, __builtin_return_address(0));
}

// What a processor without such arithmetic calls for a bfloat: it is in the low half of the register.
float __truncsfbf2(float value) {
  uint32_t bits, sign;
  memcpy(&bits, &value, 4);
  sign = bits & 0x80000000u;
  bits = value != value ? sign | 0x7fc0 << 16 : bits + 0x7fff + (bits >> 16 & 1);
  bits >>= 16;
  memcpy(&value, &bits, 4);
  return value;
}

// *** what -fsanitize=thread calls ***

#define HERE __builtin_return_address(0)
#define ACCESS(bytes)                                                                      \
  void __tsan_read##bytes(void* at) { access(at, bytes, false, HERE); }                    \
  void __tsan_write##bytes(void* at) { access(at, bytes, true, HERE); }                    \
  void __tsan_unaligned_read##bytes(void* at) { access(at, bytes, false, HERE); }          \
  void __tsan_unaligned_write##bytes(void* at) { access(at, bytes, true, HERE); }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
void __tsan_read_range(void* at, unsigned long bytes) { access(at, bytes, false, HERE); }
void __tsan_write_range(void* at, unsigned long bytes) { access(at, bytes, true, HERE); }
void* __tsan_memcpy(void* to, const void* from, unsigned long bytes) {
  access(const_cast<void*>(from), bytes, false, HERE);
  access(to, bytes, true, HERE);
  return memcpy(to, from, bytes);
}
void* __tsan_memset(void* to, int value, unsigned long bytes) {
  access(to, bytes, true, HERE);
  return memset(to, value, bytes);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

// *** what -fsanitize=undefined calls ***

struct Where { const char* file; uint32_t line, column; };
#define OVERFLOW(name, text) \
  void __ubsan_handle_##name(Where* where, void*, void*) { fail(text " in line %u", where->line); }
OVERFLOW(add_overflow, "adds signed numbers with an overflow")
OVERFLOW(sub_overflow, "subtracts signed numbers with an overflow")
OVERFLOW(mul_overflow, "multiplies signed numbers with an overflow")
OVERFLOW(divrem_overflow, "divides by zero or with an overflow")
OVERFLOW(shift_out_of_bounds, "shifts by more than there are bits")
void __ubsan_handle_negate_overflow(Where* where, void*) { fail("negates with an overflow in line %u", where->line); }
}
