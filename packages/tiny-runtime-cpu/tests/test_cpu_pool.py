"""The native thread pool, with kernels written as LLVM IR."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
from collections.abc import Callable

import pytest

from tiny_runtime.llvm import compile_object
from tiny_runtime_cpu import system
from tiny_runtime_cpu.host import Arch, host_arch
from tiny_runtime_cpu.machine import LoadedObject
from tiny_runtime_cpu.pool import Pool, native_functions, pool_source
from tiny_runtime_cpu.system import topology

# out[i] += integers[0] for i in [begin, end), and one to the count of calls; the second claims more of [0, extent)
KERNELS = """
define internal void @add_part(ptr %buffers, ptr %integers, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %buffers
  %amount = load i64, ptr %integers
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
  %left = icmp slt i64 %i, %end
  br i1 %left, label %body, label %exit
body:
  %place = getelementptr i64, ptr %out, i64 %i
  %old = load i64, ptr %place
  %new = add i64 %old, %amount
  store i64 %new, ptr %place
  %next = add i64 %i, 1
  br label %check
exit:
  ret void
}

define internal void @count(ptr %buffers) {
  %calls_field = getelementptr ptr, ptr %buffers, i64 1
  %calls = load ptr, ptr %calls_field
  %old_calls = atomicrmw add ptr %calls, i64 1 monotonic
  ret void
}

define void @add(ptr %buffers, ptr %integers, i64 %begin, i64 %end, ptr %claim, ptr %pool) {
  call void @count(ptr %buffers)
  call void @add_part(ptr %buffers, ptr %integers, i64 %begin, i64 %end)
  ret void
}

define void @add_claimed(ptr %buffers, ptr %integers, i64 %begin, i64 %end, ptr %claim, ptr %pool) {
entry:
  %range = alloca [2 x i64], align 8
  %range_end = getelementptr i64, ptr %range, i64 1
  call void @count(ptr %buffers)
  call void @add_part(ptr %buffers, ptr %integers, i64 %begin, i64 %end)
  %alone = icmp eq ptr %claim, null
  br i1 %alone, label %over, label %more
more:
  %got = call i64 %claim(ptr %pool, ptr %range)
  %none = icmp eq i64 %got, 0
  br i1 %none, label %over, label %claimed
claimed:
  %first = load i64, ptr %range
  %last = load i64, ptr %range_end
  call void @add_part(ptr %buffers, ptr %integers, i64 %first, i64 %last)
  br label %more
over:
  ret void
}
"""


# whose[begin] = the thread; then waits until as many as integers[0] have arrived, or until second integers[1]
MEETING = """
declare i64 @pthread_self()
declare i32 @sched_yield()
declare i64 @time(ptr)
define void @meet(ptr %buffers, ptr %integers, i64 %begin, i64 %end, ptr %claim, ptr %pool) {
entry:
  %whose = load ptr, ptr %buffers
  %arrived_field = getelementptr ptr, ptr %buffers, i64 1
  %arrived = load ptr, ptr %arrived_field
  %wanted = load i64, ptr %integers
  %last_field = getelementptr i64, ptr %integers, i64 1
  %end_of_patience = load i64, ptr %last_field
  %self = call i64 @pthread_self()
  %place = getelementptr i64, ptr %whose, i64 %begin
  store i64 %self, ptr %place
  %1 = atomicrmw add ptr %arrived, i64 1 seq_cst
  br label %wait
wait:
  %there = load atomic i64, ptr %arrived seq_cst, align 8
  %missing = icmp slt i64 %there, %wanted
  %now = call i64 @time(ptr null)
  %patient = icmp slt i64 %now, %end_of_patience
  %both = and i1 %missing, %patient
  br i1 %both, label %again, label %exit
again:
  %2 = call i32 @sched_yield()
  br label %wait
exit:
  ret void
}
"""


class Adder:
  """A kernel with its buffers."""

  def __init__(self, size: int, kernel: str = "add") -> None:
    self.kernel = kernel
    self.native = LoadedObject(compile_object(KERNELS, host_arch().processor), kernel)
    self.out = (ctypes.c_int64 * size)()
    self.calls = ctypes.c_int64()
    self.buffers = struct.pack("2P", ctypes.addressof(self.out), ctypes.addressof(self.calls))

  def run(self, pool: Pool, chunks: int, threads: int, amount: int = 1) -> None:
    extent = len(self.out)
    pool.run(self.native.address(self.kernel), self.buffers, struct.pack("q", amount), extent, chunks, threads)


@pytest.mark.parametrize("threads", (1, 2, 3, 8))
@pytest.mark.parametrize(("size", "chunks"), ((1, 1), (10, 3), (10, 10), (1000, 7), (1000, 32)))
def test_every_element_is_done_once(size: int, chunks: int, threads: int) -> None:
  pool, adder = Pool(), Adder(size)
  assert pool.ensure(threads) == threads
  for _ in range(50):
    adder.run(pool, chunks, threads)
  assert set(adder.out) == {50}
  assert adder.calls.value == 50 * (chunks if threads > 1 else 1)
  pool.close()


def test_many_launches_with_pauses_that_let_the_workers_sleep() -> None:
  pool, adder = Pool(), Adder(64)
  pool.ensure(4)
  for step in range(2000):
    adder.run(pool, 16, 4)
    if step % 100 == 0:
      time.sleep(0.002)
  assert set(adder.out) == {2000}
  pool.close()


def test_spins_are_counted_in_time() -> None:
  """An iteration takes from 1 to 1,000 nanoseconds, also on a machine that others keep busy."""
  native = native_functions()
  assert native is not None
  assert 100 < native.spins(100_000) < 100_000


@pytest.mark.skipif("EMULATED_PYTHON" in os.environ, reason="an emulator takes five times as long to wake a thread")
def test_many_more_threads_than_processors_cost_little() -> None:
  """Nobody spins for long while others want the processor: measured were 1.4 times the time of one thread."""
  pool, adder = Pool(), Adder(1 << 20)
  pool.ensure(128)

  def processor_time(chunks: int, threads: int) -> float:
    adder.run(pool, chunks, threads)
    start = time.process_time()
    for _ in range(100):
      adder.run(pool, chunks, threads)
    return time.process_time() - start

  alone = processor_time(1, 1)
  together = processor_time(512, 128)
  assert set(adder.out) == {202} and adder.calls.value == 101 * 513
  assert together < 4 * alone
  pool.close()


@pytest.mark.parametrize("threads", (16, 64))
def test_each_of_many_more_threads_than_processors_gets_a_part(threads: int) -> None:
  """Parts that wait for each other: a thread that took two, or one that was not woken, would leave another one out."""
  pool, native = Pool(), LoadedObject(compile_object(MEETING, host_arch().processor), "meet")
  pool.ensure(threads)
  for _ in range(3):
    whose, arrived = (ctypes.c_int64 * threads)(), ctypes.c_int64()
    buffers = struct.pack("2P", ctypes.addressof(whose), ctypes.addressof(arrived))
    integers = struct.pack("2q", threads, int(time.time()) + 30)
    pool.run(native.address("meet"), buffers, integers, threads, threads, threads)
    assert len(set(whose)) == threads == arrived.value
  pool.close()


def test_launches_from_several_python_threads() -> None:
  pool = Pool()
  pool.ensure(4)
  adders = [Adder(200) for _ in range(6)]

  def work(adder: Adder) -> None:
    for _ in range(500):
      adder.run(pool, 8, 4)

  threads = [threading.Thread(target=work, args=(adder,)) for adder in adders]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert all(set(adder.out) == {500} for adder in adders)
  pool.close()


@pytest.mark.parametrize("chunks", (1, 2, 7, 50))
@pytest.mark.parametrize("threads", (1, 2, 4))
def test_a_kernel_that_claims_its_parts_is_called_once_by_each_thread(threads: int, chunks: int) -> None:
  pool = Pool()
  pool.ensure(threads)
  for times in range(1, 20):
    adder = Adder(50, "add_claimed")
    adder.run(pool, chunks, threads)
    assert set(adder.out) == {1}
    assert 1 <= adder.calls.value <= min(threads, chunks), times
  pool.close()


def test_workers_use_no_time_when_idle(comes_to_rest: Callable[[], bool]) -> None:
  pool, adder = Pool(), Adder(64)
  pool.ensure(8)
  adder.run(pool, 8, 8)
  assert comes_to_rest()
  pool.close()


def thread_ids() -> set[str]:
  return set(os.listdir("/proc/self/task"))


def left_over(before: set[str]) -> set[str]:
  """Threads that were not there before. The kernel lists a thread for a moment longer than joining it takes."""
  deadline = time.monotonic() + 10
  while (threads := thread_ids() - before) and time.monotonic() < deadline:
    time.sleep(0.01)
  return threads


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")
def test_close_ends_the_workers_and_the_pool_can_be_used_again() -> None:
  before = thread_ids()
  pool, adder = Pool(), Adder(64)
  pool.ensure(4)
  adder.run(pool, 8, 4)
  assert len(thread_ids() - before) == 3
  pool.close()
  assert not left_over(before)
  pool.close()
  adder.run(pool, 8, 4)
  pool.ensure(3)
  adder.run(pool, 8, 3)
  assert set(adder.out) == {3}
  del pool
  assert not left_over(before), "a dropped pool left its workers behind"


def test_the_pool_grows() -> None:
  pool, adder = Pool(), Adder(64)
  for threads in (2, 4, 3, 6):
    assert pool.ensure(threads) == threads
    adder.run(pool, 12, threads)
  assert pool.workers == 5
  assert set(adder.out) == {4}
  pool.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_pool_of_its_own() -> None:
  pool, adder = Pool(), Adder(64)
  pool.ensure(4)
  adder.run(pool, 8, 4)
  child = os.fork()
  if child == 0:  # never returns: leave without running the parent's exit handlers
    ok = pool.workers == 0
    pool.ensure(4)
    for _ in range(100):
      adder.run(pool, 8, 4)
    os._exit(0 if ok and set(adder.out) == {101} else 1)
  _, status = os.waitpid(child, 0)
  assert os.waitstatus_to_exitcode(status) == 0
  adder.run(pool, 8, 4)
  assert set(adder.out) == {2}, "the parent's pool works on, its memory untouched by the child"
  pool.close()


def test_without_posix_threads_all_runs_in_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr("tiny_runtime_cpu.pool.native_functions", lambda: None)
  pool, adder = Pool(), Adder(64)
  assert pool.ensure(8) == 1
  adder.run(pool, 8, 8, amount=5)
  assert set(adder.out) == {5} and adder.calls.value == 1
  pool.close()


@pytest.mark.parametrize(
  "arch", ("x86_64-unknown-linux-gnu:x86-64", "aarch64-unknown-linux-gnu:neoverse-n1", "arm64-apple-darwin:apple-m1")
)
def test_the_pool_compiles_for_every_supported_machine(arch: str) -> None:
  assert compile_object(pool_source(Arch.parse(arch)), Arch.parse(arch).processor)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_pool_that_a_forked_child_drops_before_it_knows_that_it_is_one() -> None:
  """The collector may run in the child ahead of what resets pools after a fork."""
  pool = Pool()
  pool.ensure(4)
  workers, state, native = pool.workers, pool._state, pool._native
  child = os.fork()
  if child == 0:
    pool.workers, pool._state, pool._native, pool._process = workers, state, native, os.getppid()
    del pool
    os._exit(0)
  _, status = os.waitpid(child, 0)
  assert os.waitstatus_to_exitcode(status) == 0
  pool.close()


# out[n] = begin of the n-th call
ORDER = """
define void @note(ptr %buffers, ptr %integers, i64 %begin, i64 %end, ptr %claim, ptr %pool) {
  %out = load ptr, ptr %buffers
  %calls_field = getelementptr ptr, ptr %buffers, i64 1
  %calls = load ptr, ptr %calls_field
  %n = atomicrmw add ptr %calls, i64 1 monotonic
  %place = getelementptr i64, ptr %out, i64 %n
  store i64 %begin, ptr %place
  ret void
}
"""


@pytest.mark.parametrize(
  ("nodes", "threads", "shares", "here"),
  ((1, 2, 2, 1), (2, 2, 2, 0), (2, 3, 4, 3), (3, 2, 3, 2), (8, 2, 8, 5), (1, 8, 8, 6), (1, 9, 2, 1), (2, 33, 6, 4)),
)
@pytest.mark.parametrize("chunks", (2, 7, 24))
def test_a_thread_takes_what_is_near_first(nodes: int, threads: int, shares: int, here: int, chunks: int) -> None:
  """The caller alone, whatever processor it is on: the share where it is in order, then the next ones. Each node has
  shares; each of up to 8 threads has one, and of more, no more than 8 have one."""
  pool = Pool()
  assert pool.ensure(2) == 2
  pool.close()  # its native state stays
  native, near = native_functions(), ctypes.create_string_buffer(bytes([-(-256 * here // shares)]) * 1024, 1024)
  assert native is not None
  native.place(pool._state, nodes, ctypes.addressof(near))
  code = LoadedObject(compile_object(ORDER, host_arch().processor), "note")
  out, calls = (ctypes.c_int64 * chunks)(), ctypes.c_int64()
  pool.run(
    code.address("note"),
    struct.pack("2P", ctypes.addressof(out), ctypes.addressof(calls)),
    b"",
    chunks,
    chunks,
    threads,
  )
  ranges = [range(chunks * share // shares, chunks * (share + 1) // shares) for share in range(shares)]
  assert [*out] == [chunk for n in range(shares) for chunk in ranges[(here + n) % shares]]


def test_shares_are_of_the_processors_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
  """Two of 64 have a share each, although they are next to each other among all."""
  monkeypatch.setattr(system, "allowed_processors", lambda: {4, 5})
  monkeypatch.setattr(topology, "places", lambda: {number: topology.Place(number=number) for number in range(64)})
  pool = Pool()
  pool._open()
  assert [pool._positions.raw[number] for number in (4, 5)] == [0, 128]


@pytest.mark.parametrize("threads", (2, 8, 40))
@pytest.mark.parametrize(("size", "chunks"), ((10, 3), (1000, 7), (1000, 32), (1000, 999)))
def test_every_element_is_done_once_on_several_nodes(size: int, chunks: int, threads: int) -> None:
  pool, adder = Pool(), Adder(size)
  pool.ensure(threads)
  native, near = native_functions(), ctypes.create_string_buffer(bytes(n * 100 % 256 for n in range(1024)), 1024)
  assert native is not None
  native.place(pool._state, 2, ctypes.addressof(near))
  for _ in range(50):
    adder.run(pool, chunks, threads)
  assert set(adder.out) == {50} and adder.calls.value == 50 * chunks
  pool.close()
