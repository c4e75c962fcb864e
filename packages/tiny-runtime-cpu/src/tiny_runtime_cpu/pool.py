"""The native thread pool: `pool.ll` compiled for this process, over threads of POSIX or of Windows (`threads_*.ll`).
Python makes one call per launch, and no threads."""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from functools import cache

from tiny_runtime import cached_bytes
from tiny_runtime.llvm import compile_object, llvm_version
from tiny_runtime_cpu import system
from tiny_runtime_cpu.affinity import Affinity
from tiny_runtime_cpu.host import Arch, cpu_limit, host_arch
from tiny_runtime_cpu.machine import LoadedObject, has_symbols
from tiny_runtime_cpu.system import SET_MASK, topology
from tiny_uop.locks import in_child, shared_lock

MAX_WORKERS = 1024
STACK_BYTES = 8 << 20  # kernels keep packed buffers on the stack; macOS gives other threads 512 KiB by default

SPIN_NS = 100_000
"""How long a thread spins for work, or for the others to end theirs, before it sleeps: about what it costs a launch to
wake one (20 to 120 microseconds, measured in a virtual machine), so that waiting never costs twice what it might have.
The time between two launches of a captured graph is shorter, and that between the kernels in one."""
CROWDED_SPIN_NS = 5_000
"""The same where there are more threads than processors: others wait for the one that it spins on."""
_TIMED_SPINS = 256
"""Iterations of a spin-wait that are timed: processors take from 3 to 50 nanoseconds for one, a call 200."""

# how a processor is told that this is a spin-wait
_RELAX = {
  "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
  "aarch64": ("call void @llvm.aarch64.isb(i32 15)", "declare void @llvm.aarch64.isb(i32)"),
}

_POSIX = (
  "pthread_create", "pthread_join", "pthread_attr_init", "pthread_attr_setstacksize", "pthread_attr_destroy",
  "pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock", "pthread_cond_init", "pthread_cond_wait",
  "pthread_cond_signal", "pthread_cond_broadcast", "pthread_sigmask", "sigfillset", "sched_yield", "memmove",
  "clock_gettime",
)  # fmt: skip
_WINDOWS = (
  "CreateThread", "WaitForSingleObject", "CloseHandle", "AcquireSRWLockExclusive", "ReleaseSRWLockExclusive",
  "SleepConditionVariableSRW", "WakeConditionVariable", "WakeAllConditionVariable", "SwitchToThread", "memmove",
  "QueryPerformanceCounter", "QueryPerformanceFrequency",
)  # fmt: skip

_HERE = """define internal i64 @processor_here() {
  %number = call i32 @sched_getcpu()
  %wide = sext i32 %number to i64
  ret i64 %wide
}
declare i32 @sched_getcpu()
"""
_NOWHERE = "define internal i64 @processor_here() {\n  ret i64 0\n}\n"

_EXPORTS = (
  "pool_size",
  "pool_init",
  "pool_place",
  "pool_run",
  "pool_start",
  "pool_stop",
  "pool_handles",
  "pool_pause",
  "graph_run",
  "copy_bytes",
)


def is_windows(arch: Arch) -> bool:
  """Whether threads are Windows', and not POSIX's."""
  return "windows" in arch.triple


def needed(arch: Arch) -> tuple[str, ...]:
  """The functions of the system that the pool calls."""
  return _WINDOWS if is_windows(arch) else _POSIX


def pool_source(arch: Arch) -> str:
  """The pool and the runner of graphs as LLVM IR text for one processor family."""
  call, declaration = _RELAX.get(arch.family, ("", ""))
  from pkgutil import get_data  # not importlib.resources, which takes four times as long to import

  names = "pool", "graph", "threads_windows" if is_windows(arch) else "threads_posix"
  text = "\n".join((get_data("tiny_runtime_cpu", f"{name}.ll") or b"").decode() for name in names)
  here = _HERE if "linux" in arch.triple else _NOWHERE
  return f"{text}\n{declaration}\n{here}define internal void @relax() alwaysinline {{\n  {call}\n  ret void\n}}\n"


class Functions:
  """The native functions of pool.ll and graph.ll, linked once per process."""

  def __init__(self) -> None:
    arch = host_arch()
    # unoptimised: seven times faster to compile, and nothing in it takes time but the kernels that it calls
    source = pool_source(arch)
    code = cached_bytes(f"{arch}\n{llvm_version()}\n{source}", lambda: compile_object(source, arch.processor, level=0))
    native = LoadedObject(code, *_EXPORTS)
    native.keep()
    p, i = ctypes.c_void_p, ctypes.c_int64
    self.size = ctypes.CFUNCTYPE(i)(native.address("pool_size"))
    self.init = ctypes.CFUNCTYPE(None, p)(native.address("pool_init"))
    self.place = ctypes.CFUNCTYPE(None, p, i, p)(native.address("pool_place"))
    self.start = ctypes.CFUNCTYPE(i, p, i, i, ctypes.c_int32, i)(native.address("pool_start"))
    self.stop = ctypes.CFUNCTYPE(None, p)(native.address("pool_stop"))
    self.handles = ctypes.CFUNCTYPE(p, p)(native.address("pool_handles"))
    self.pause = ctypes.PYFUNCTYPE(None, i)(native.address("pool_pause"))  # keeps the GIL: to wait for it would count
    self.run_graph = ctypes.CFUNCTYPE(None, p)(native.address("graph_run"))
    # for graphs that are over sooner than another Python thread would give the GIL back
    self.run_graph_locked = ctypes.PYFUNCTYPE(None, p)(native.address("graph_run"))
    self.copy_bytes = native.address("copy_bytes")
    # bytes objects go in as pointers to their contents; the call releases the GIL
    self.run = ctypes.CFUNCTYPE(None, p, p, ctypes.c_char_p, ctypes.c_char_p, i, i, i)(native.address("pool_run"))

  def spins(self, nanoseconds: int) -> int:
    """How many iterations of a spin-wait take so long here: by the fastest of some, as others interrupt."""
    taken = []
    for _ in range(5):
      start = time.perf_counter_ns()
      self.pause(_TIMED_SPINS)
      taken.append(time.perf_counter_ns() - start)
    return nanoseconds * _TIMED_SPINS // max(1, min(taken))


@cache
def native_functions() -> Functions | None:
  """None where the system has no threads that the pool knows."""
  return Functions() if has_native_functions() else None


@cache
def has_native_functions() -> bool:
  """Whether `native_functions` gives something; quicker, since it compiles nothing."""
  return has_symbols(*needed(host_arch()))


kernel_at = ctypes.CFUNCTYPE(
  None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
"""The kernel at an address as a Python function, for calls with nothing to claim (None, None); they release the GIL."""


class Pool:
  """Threads that run kernels `void f(void** buffers, int64_t* integers, int64_t begin, int64_t end, claim, pool)`.

  A kernel may get more of [0, extent) by `int64_t claim(void* pool, int64_t range[2])`, until that gives 0.

  Workers are created on first use and sleep when idle. Only one launch uses them at a time; a launch from a second
  Python thread meanwhile runs on that thread alone. After a fork, the child's pool is empty and refills itself.
  """

  # a pool may be dropped at the end of the process, when modules are gone
  _process_id = staticmethod(os.getpid)

  def __init__(self) -> None:
    self._reset()
    _pools.add(self)

  def _reset(self) -> None:
    """Start afresh with no workers. What a forked child inherits knows threads that it does not have."""
    self.workers = 0
    self._process = self._process_id()
    self._most = MAX_WORKERS
    self._lock = shared_lock()
    self._making = False
    """Whether the thread that has the lock is making workers."""
    self.affinity = Affinity()
    self._native: Functions | None = None

  def _open(self) -> None:
    """Make the pool's native state, if the system has threads."""
    native = native_functions()
    if native is None:
      self._most = 0
      return
    self._storage = ctypes.create_string_buffer(native.size() + 128)
    self._state = (
      ctypes.addressof(self._storage) + 127
    ) & ~127  # fields that threads fight over have lines of their own
    native.init(self._state)
    allowed = system.allowed_processors()
    known = {number: place for number, place in topology.places().items() if number in allowed}
    nodes, positions = topology.nodes_of_memory(known)
    self._positions = ctypes.create_string_buffer(positions, len(positions))
    native.place(self._state, nodes, ctypes.addressof(self._positions))
    self._native = native  # last: whoever sees it uses all of it

  def ensure(self, threads: int) -> int:
    """Make workers for `threads` threads, the caller's included; returns how many threads there are, fewer if the
    system refuses."""
    wanted = min(threads - 1, self._most)
    if self.workers < wanted:
      with self._lock:
        if not self._making:  # else a finaliser or signal handler computes: it makes do with those that there are
          self._making = True
          try:
            self._make(wanted)
          finally:
            self._making = False
    return min(threads, self.workers + 1)

  def _make(self, wanted: int) -> None:
    if self._native is None:
      self._open()
    if self._native is not None:
      crowded = wanted >= cpu_limit()
      spins = self._native.spins(CROWDED_SPIN_NS if crowded else SPIN_NS)
      workers = self._native.start(self._state, wanted, spins, SET_MASK, STACK_BYTES)
      handles = (ctypes.c_uint64 * workers).from_address(self._native.handles(self._state))
      self.affinity.deal(list(handles))
      self.workers = workers
      if workers < wanted:
        self._most = workers  # do not ask again at every launch

  @property
  def address(self) -> int:
    """Where the native state is; 0 while there are no workers."""
    return self._state if self.workers else 0

  def run(self, function: int, buffers: bytes, integers: bytes, extent: int, chunks: int, threads: int) -> None:
    """Call the function at this address on [0, extent) in `chunks` parts, on at most `threads` threads, and wait."""
    if self._native is None:
      kernel_at(function)(buffers, integers, 0, extent, None, None)
    else:
      if threads > 1:
        self.affinity.settle()
      self._native.run(self._state, function, buffers, integers, extent, chunks, threads)

  def close(self) -> None:
    """End the workers. The pool can be used again."""
    if self._process != self._process_id():
      return  # collected in a forked child before it was reset: the workers, and who held the lock, are the parent's
    with self._lock:
      if self._making:
        return
      workers, self.workers = self.workers, 0
      if self._native is not None and workers:
        self.affinity = Affinity()
        self._native.stop(self._state)

  def __del__(self) -> None:
    self.close()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


@in_child
def _after_fork() -> None:
  for pool in _pools:
    pool._reset()
