/* The pool as a program for Windows: launches of odd sizes by two callers, whose results are counted. It ends with 0 if
   every part was done once in each launch, by more than one thread. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

typedef int64_t (*claim_t)(void *, int64_t *);
int64_t pool_size(void);
void pool_init(void *);
void pool_place(void *, int64_t, void *);
int64_t pool_start(void *, int64_t, int64_t, int32_t, int64_t);
void pool_stop(void *);
void pool_run(void *, void *, void *, void *, int64_t, int64_t, int64_t);

enum { MOST = 50021, LAUNCHES = 200, WORKERS = 7 };
static DWORD main_thread;
static volatile LONG by_others;

static void body(void **buffers, int64_t *integers, int64_t begin, int64_t end, claim_t claim, void *pool) {
  volatile char packed[200000]; /* kernels keep packed buffers on the stack */
  packed[begin % sizeof packed] = 1;
  for (int64_t range[2] = {begin, end};;) {
    if (GetCurrentThreadId() != main_thread) InterlockedIncrement(&by_others);
    for (int64_t i = range[0]; i < range[1]; i++) {
      for (volatile int64_t n = 0; n < integers[0]; n++) {
      }
      ((int64_t *)buffers[0])[i]++;
    }
    if (!claim || !claim(pool, range)) return;
  }
}

static int wrong(void *pool, int64_t *counts, int64_t most) {
  static int64_t zero[1];
  int64_t *expected = calloc(most, 8), integers[1] = {20};
  void *buffers[1] = {counts};
  int found = 0;
  memset(counts, 0, most * 8);
  for (int64_t n = 0; n < LAUNCHES; n++) {
    int64_t extent = 1 + n * 7919 % most;
    pool_run(pool, body, buffers, n % 50 ? integers : zero, extent, 1 + n % 33, 1 + n % (WORKERS + 1));
    for (int64_t i = 0; i < extent; i++) expected[i]++;
    if (n % 50 == 0) Sleep(3); /* until workers sleep */
  }
  for (int64_t i = 0; i < most; i++) found += counts[i] != expected[i];
  free(expected);
  return found;
}

static DWORD WINAPI other(LPVOID pool) {
  static int64_t counts[1000];
  return wrong(pool, counts, 1000);
}

int main(void) {
  char *memory = calloc(1, pool_size() + 128);
  void *pool = (void *)(((uintptr_t)memory + 127) & ~(uintptr_t)127);
  static unsigned char positions[1024];
  static int64_t counts[MOST];
  main_thread = GetCurrentThreadId();
  for (int round = 0; round < 3; round++) {
    memset(pool, 0, pool_size());
    pool_init(pool);
    pool_place(pool, 1, positions);
    if (pool_start(pool, WORKERS, 300, 2, 8 << 20) != WORKERS) return printf("no threads\n"), 2;
    DWORD others;
    HANDLE caller = CreateThread(NULL, 0, other, pool, 0, NULL);
    int found = wrong(pool, counts, MOST);
    WaitForSingleObject(caller, INFINITE);
    GetExitCodeThread(caller, &others);
    pool_stop(pool);
    printf("round %d: %d and %lu wrong, %ld parts by others\n", round, found, others, by_others);
    if (found || others || !by_others) return 1;
  }
  return 0;
}
