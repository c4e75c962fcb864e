/* The functions of Windows that `threads_windows.ll` calls, over POSIX threads. Locks and conditions are made at their
   first use: Windows wants them zero at first, and no larger than a pointer. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static void *made(void **place, void *fresh) {
  void *none = NULL;
  if (__atomic_compare_exchange_n(place, &none, fresh, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return fresh;
  free(fresh);
  return none;
}

static pthread_mutex_t *lock_of(void **place) {
  void *found = __atomic_load_n(place, __ATOMIC_SEQ_CST);
  if (found) return found;
  pthread_mutex_t *fresh = malloc(sizeof *fresh);
  pthread_mutex_init(fresh, NULL);
  return made(place, fresh);
}

static pthread_cond_t *condition_of(void **place) {
  void *found = __atomic_load_n(place, __ATOMIC_SEQ_CST);
  if (found) return found;
  pthread_cond_t *fresh = malloc(sizeof *fresh);
  pthread_cond_init(fresh, NULL);
  return made(place, fresh);
}

void AcquireSRWLockExclusive(void **lock) { pthread_mutex_lock(lock_of(lock)); }
void ReleaseSRWLockExclusive(void **lock) { pthread_mutex_unlock(lock_of(lock)); }
void WakeConditionVariable(void **condition) { pthread_cond_signal(condition_of(condition)); }
void WakeAllConditionVariable(void **condition) { pthread_cond_broadcast(condition_of(condition)); }

int SleepConditionVariableSRW(void **condition, void **lock, uint32_t milliseconds, uint32_t flags) {
  if (milliseconds != 0xFFFFFFFF || flags) abort();
  return pthread_cond_wait(condition_of(condition), lock_of(lock)) == 0;
}

void *CreateThread(void *security, size_t stack, void *(*function)(void *), void *argument, uint32_t flags, void *id) {
  if (security || id || flags != 0x10000 || stack < 65536) abort();
  pthread_t *thread = malloc(sizeof *thread);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack);
  int error = pthread_create(thread, &attributes, function, argument);
  pthread_attr_destroy(&attributes);
  if (!error) return thread;
  free(thread);
  return NULL;
}

int handles_closed = 0;

uint32_t WaitForSingleObject(pthread_t *thread, uint32_t milliseconds) {
  if (milliseconds != 0xFFFFFFFF) abort();
  return pthread_join(*thread, NULL) ? 0xFFFFFFFF : 0;
}

int CloseHandle(pthread_t *thread) {
  free(thread);
  handles_closed++;
  return 1;
}

int SwitchToThread(void) { return sched_yield() == 0; }

int QueryPerformanceFrequency(int64_t *rate) { return *rate = 10000000, 1; }

int QueryPerformanceCounter(int64_t *count) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *count = now.tv_sec * 10000000LL + now.tv_nsec / 100;
  return 1;
}
