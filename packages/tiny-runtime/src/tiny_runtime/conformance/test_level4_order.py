"""Level 4: launches happen in order, and what comes after them sees what they did. Nothing here waits in between."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tiny_runtime.conformance.failure import demand, demand_equal
from tiny_runtime.conformance.kernels import I, Loaded, elementwise, kernel
from tiny_runtime.conformance.target import Target
from tiny_runtime.contract import Memory
from tiny_uop import AxisType, Ops, UOp

SIZE = 512
NEW, COUNTS, ONES = [0] * SIZE, range(SIZE), [1] * SIZE
"""Contents of memories."""
PENDING = 20
"""Launches that are on their way when it matters."""
READ = (1, 4, 16, 64, 256, 1024, 1 << 14, 1 << 18)
"""Numbers that are read and written: devices have other ways for few bytes and for many."""
LONG = 0.03
"""Seconds: long beside what everything around a launch takes."""
ATTEMPTS = 4
ARGUMENTS = (
  "the memory in which arguments travel to the device is used again before the launch has read it; or offsets and"
  " integers of another launch are used"
)


def param(slot: int, size: int = SIZE) -> UOp:
  return UOp.param(slot, I.ptr(size))


def slow_copy() -> UOp:
  """out[i] = in[i] + (a sum of 64 numbers that is 64): something that takes a while."""
  i, r = UOp.range(SIZE, 0), UOp.range(64, 1, AxisType.REDUCE)
  ones = param(2).index((i + r) % SIZE).load().reduce(Ops.ADD, r)
  return kernel("slow_copy", param(0).index(i).store(param(1).index(i).load() + ones).end(i))


@contextmanager
def pending(target: Target, extra: int = 0) -> Iterator[list[Memory]]:
  """Launches that write 64 more than the second memory has to the first, on their way; the memories, with `extra`
  numbers behind."""
  more = [0] * extra
  with target.memories(NEW + more, [*COUNTS, *more], ONES) as held:
    slow = Loaded(target, slow_copy())
    for _ in range(PENDING):
      slow(*held)
    del slow
    yield held


def test_launches_happen_in_order(target: Target) -> None:
  """Each one sees what the one before it wrote."""
  here, expected = UOp.range(SIZE, 0), 0
  place = param(0).index(here)
  double = Loaded(target, kernel("double", place.store(place.load() * 2).end(here)))
  increment = Loaded(target, kernel("increment", place.store(place.load() + 1).end(here)))
  with target.memories(NEW) as (memory,):
    for step in range(PENDING):
      (increment if step % 2 else double)(memory)
      expected = expected + 1 if step % 2 else expected * 2
    look_at = "launches run in the order in which they were made, and read waits for all of them"
    target.demand_numbers(memory, [expected] * SIZE, "20 launches, each on what the one before left", look_at)


def test_read_waits_for_launches(target: Target) -> None:
  with target.memories(NEW, COUNTS, ONES) as (out, source, ones):
    slow = Loaded(target, slow_copy())
    for n in range(PENDING):
      slow(out, source, ones)
      slow(source, out, ones)
      if n % 5 == 4:
        expected = range(128 * (n + 1), SIZE + 128 * (n + 1))
        look_at = "read waits for all launches so far before it copies; what it gives is stale"
        target.demand_numbers(source, expected, "read after launches that nobody waited for", look_at, slow.kernel)


@pytest.mark.parametrize("count", READ)
def test_reads_of_any_size_wait(target: Target, count: int) -> None:
  """A read of few bytes waits as one of many does."""
  with pending(target, max(count - SIZE, 0)) as held:
    expected = [*range(64, min(count, SIZE) + 64), *[0] * (count - SIZE)]
    look_at = "read waits for launches, whatever its size: also where few bytes, or many, go another way"
    target.demand_numbers(held[0], expected, f"a read of {4 * count} bytes after launches", look_at)


@pytest.mark.parametrize("count", READ)
def test_writes_of_any_size_wait(target: Target, count: int) -> None:
  """A write of few bytes waits as one of many does: what launches before it read is what was there before."""
  with pending(target, max(count - SIZE, 0)) as held:
    target.device.write(held[1], 0, memoryview(bytes(b"\xff" * (4 * count))))
    look_at = "write waits for launches, whatever its size: also where few bytes, or many, go another way"
    what = f"a launch saw what a write of {4 * count} bytes after it had written"
    target.demand_numbers(held[0], range(64, SIZE + 64), what, look_at)


@pytest.mark.parametrize("place", (1, SIZE // 2, SIZE - 1))
def test_reads_and_writes_of_any_place_wait(target: Target, place: int) -> None:
  """They wait at an offset as at the beginning."""
  look_at = "read and write wait for launches, whatever the offset"
  with pending(target) as held:
    found = int.from_bytes(target.fetch(held[0], 4 * place, 4), sys.byteorder, signed=True)
    what = f"a read at byte {4 * place} after launches"
    demand_equal(found, place + 64, what, look_at=look_at)
  with pending(target) as held:
    target.device.write(held[1], 4 * place, memoryview(b"\xff" * 4))
    what = f"a launch saw what a write at byte {4 * place} after it had written"
    target.demand_numbers(held[0], range(64, SIZE + 64), what, look_at)


@pytest.mark.parametrize("extra", (0, 1 << 18))
def test_frees_of_any_size_wait(target: Target, extra: int) -> None:
  """Large memories, which may go back to the driver at once, are not taken away from launches either."""
  demand_free_waits(target, extra, f"launches lost {4 * (SIZE + extra)} bytes of input to a free that came after them")


def demand_free_waits(target: Target, extra: int, what: str) -> None:
  with pending(target, extra) as held:
    target.device.free(held.pop(1))
    held.append(target.filled([-1] * (SIZE + extra)))  # likely the same place
    look_at = "free waits for the launches that use the memory, or puts it aside until they are done"
    target.demand_numbers(held[0], range(64, SIZE + 64), what, look_at)


def test_programs_are_there_until_launches_are_done(target: Target) -> None:
  """Nobody holds the program any more when it runs."""
  with pending(target) as held:
    gc.collect()
    for amount in range(5):
      Loaded(target, elementwise(f"other_{amount}", SIZE, I, [I], lambda a, amount=amount: a * 0 - amount - 1))
    look_at = "a launch on its way holds its program: code is unloaded when it is done"
    target.demand_numbers(held[0], range(64, SIZE + 64), "launches of a program that was dropped", look_at)


def test_sequences_may_be_reused(target: Target) -> None:
  """Those that launch is given: buffers and integers."""
  n, i = UOp.variable("n", 0, 1000), UOp.range(SIZE, 0)
  add = Loaded(target, kernel("add_n", param(0).index(i).store(param(1).index(i).load() + n.cast(I)).end(i)))
  with pending(target) as held, target.memories(NEW) as (out,):
    call = add.call((out, 0), (held[0], 0), n=5)
    buffers, integers = list(call.buffers), list(call.integers)
    target.device.launch(add.program, buffers, integers, call.global_size, call.local_size, False)
    buffers[:], integers[:] = [(held[2], 0)] * len(buffers), [77]
    look_at = "launch has taken what it needs of buffers and integers when it returns: they may be reused"
    target.demand_numbers(out, range(69, SIZE + 69), "lists given to launch were changed afterwards", look_at)


@pytest.mark.parametrize("count", (1 << 15, 1 << 21))
def test_data_of_a_write_behind_launches_may_be_reused(target: Target, count: int) -> None:
  """Also where the write is queued behind launches."""
  with pending(target, count) as held:
    data = bytearray(b"\1\0\0\0" * count)
    target.device.write(held[1], 0, memoryview(data))
    data[:] = bytes(len(data))
    look_at = "a write that is queued has a copy of the data"
    target.demand_numbers(held[1], [1] * count, f"the {4 * count} bytes of a write were changed afterwards", look_at)


def test_write_waits_for_launches(target: Target) -> None:
  with pending(target) as held:
    target.device.write(held[1], 0, memoryview(bytes(4 * SIZE)))
    look_at = "write waits for all launches so far (or is queued behind them): they have to see the old contents"
    target.demand_numbers(held[0], range(64, SIZE + 64), "a launch saw what was written after it", look_at)


def test_free_waits_for_launches(target: Target) -> None:
  demand_free_waits(target, 0, "a launch lost its input to a free that came after it")


def test_arguments_belong_to_their_launch(target: Target) -> None:
  """Several launches of one program on their way, with other buffers, offsets and integers."""
  i = UOp.range(16, 0)
  n, m = UOp.variable("n", 0, 1000), UOp.variable("m", 0, 1000)
  value = param(1, 16).index(i).load() + n.cast(I) * 1000 + m.cast(I)
  program = Loaded(target, kernel("arguments", param(0, 16).index(i).store(value).end(i)))
  with target.memories([0] * 16 * PENDING, range(16 * PENDING)) as (out, source):
    for k in range(PENDING):
      program((out, 64 * k), (source, 64 * (PENDING - 1 - k)), n=k, m=2 * k)
    expected = [16 * (PENDING - 1 - k) + i + 1002 * k for k in range(PENDING) for i in range(16)]
    target.demand_numbers(
      out, expected, "20 launches of one program with arguments of their own", ARGUMENTS, program.kernel
    )


def test_a_buffer_may_be_given_twice(target: Target) -> None:
  program = Loaded(target, elementwise("twice", SIZE, I, [I, I], lambda a, b: a * 10 + b))
  with target.memories(NEW, COUNTS) as (out, source):
    program(out, source, source)
    look_at = "buffers are told apart by position: the same memory may come twice, where it is only read"
    target.demand_numbers(out, [11 * k for k in range(SIZE)], "one memory as both inputs", look_at, program.kernel)


def test_sync_and_wait_with_nothing_to_do(target: Target) -> None:
  target.device.sync()
  with target.memories(NEW, COUNTS, ONES) as (out, source, ones):
    slow = Loaded(target, slow_copy())
    slow(out, source, ones)
    target.device.sync()
    target.device.sync()
    target.demand_numbers(out, range(64, SIZE + 64), "a launch, then sync twice", "sync", slow.kernel)


def long_kernel() -> UOp:
  """out[0] = the sum of `steps` numbers: takes as long as one likes."""
  steps = UOp.variable("steps", 1, 1 << 30)
  r = UOp.range(steps, 0, AxisType.REDUCE)
  term = param(1).index(r * 7 % SIZE).load().reduce(Ops.ADD, r)
  return kernel("long", param(0).index(0).store(term))


class Stopwatch:
  """A kernel that takes LONG or more, on this device, and what a clock of the host says."""

  def __init__(self, target: Target, out: Memory, source: Memory) -> None:
    self.target, self.out, self.source, self.steps = target, out, source, 1 << 14
    self.long = Loaded(target, long_kernel())
    self.long(out, source, steps=1, wait=True)
    while self.run() < LONG and self.steps < 1 << 30:
      self.steps *= 2

  def launch(self, wait: bool = False) -> float | None:
    return self.long(self.out, self.source, steps=self.steps, wait=wait)

  def run(self) -> float:
    """Seconds of one launch, until its result is read."""
    start = time.perf_counter()
    self.launch()
    self.read()
    return time.perf_counter() - start

  def read(self) -> float:
    """Seconds of reading the result."""
    start = time.perf_counter()
    self.target.numbers_in(self.out, 1)
    return time.perf_counter() - start


def test_waiting_and_time(target: Target) -> None:
  """`sync`, and `launch` with `wait`, return when everything is done; the seconds of a launch are seconds."""
  with target.memories(NEW, ONES) as (out, source):
    clock = Stopwatch(target, out, source)

    def launched(wait: bool) -> tuple[float, float, float]:
      """Seconds until a launch was waited for, those that reading its result took then, and those that launch says."""
      start = time.perf_counter()
      said = clock.launch(wait)
      if not wait:
        target.device.sync()
      passed = time.perf_counter() - start
      return passed, clock.read(), -1.0 if said is None else said

    for wait, call in ((False, "sync"), (True, "launch with wait=True")):
      demand_in_time(
        lambda: (clock.run(), launched(wait)[1]),  # noqa: B023  # called at once
        lambda needed, left: left < needed / 3,
        f"{call} returned before a launch was done: (seconds that a launch takes, and that reading its result took)",
        "next to nothing for reading",
        f"{call} waits for all launches",
        clock.long.kernel,
      )
    demand_in_time(
      lambda: launched(True)[::2],
      lambda passed, said: passed / 20 < said < passed * 1.1 + 1e-3,
      "launch with wait=True says another time than a clock beside it: (seconds by the clock, seconds that it says)",
      "about the same",
      "it is seconds, not milli- or nanoseconds or ticks, of this launch alone, from its start to its end",
      clock.long.kernel,
    )


def demand_in_time(
  measure: Callable[[], tuple[float, ...]], right: Callable[..., bool], what: str, expected: str, look_at: str,
  kernel: UOp | None = None,
) -> None:  # fmt: skip
  """Raise Misbehaved where what is measured is not right in one of ATTEMPTS: it depends on a clock, and so on what else
  the machine does."""
  for _ in range(ATTEMPTS):
    if right(*(seen := measure())):
      return
  demand(False, what, expected=expected, got=seen, look_at=look_at, kernel=kernel)
