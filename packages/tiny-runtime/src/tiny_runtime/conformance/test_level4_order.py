"""Level 4: launches happen in order, and what comes after them sees what they did. Nothing here waits in between."""

from __future__ import annotations

from tiny_runtime.conformance.kernels import elementwise, kernel
from tiny_runtime.conformance.launching import I, Loaded, demand_numbers, filled, memories
from tiny_runtime.conformance.target import Target
from tiny_uop import AxisType, Ops, UOp

SIZE = 512
PENDING = 20
"""Launches that are on their way when it matters."""


def param(slot: int, size: int = SIZE) -> UOp:
  return UOp.param(slot, I.ptr(size))


def slow_copy() -> UOp:
  """out[i] = in[i] + (a sum of 64 numbers that is 64): something that takes a while."""
  i, r = UOp.range(SIZE, 0), UOp.range(64, 1, AxisType.REDUCE)
  ones = param(2).index((i + r) % SIZE).load().reduce(Ops.ADD, r)
  return kernel("slow_copy", param(0).index(i).store(param(1).index(i).load() + ones).end(i))


def test_launches_happen_in_order(target: Target) -> None:
  """Each one sees what the one before it wrote."""
  here = UOp.range(SIZE, 0)
  place = param(0).index(here)
  double = Loaded(target, kernel("double", place.store(place.load() * 2).end(here)))
  increment = Loaded(target, kernel("increment", place.store(place.load() + 1).end(here)))
  expected = 0
  with memories(target, [0] * SIZE) as (memory,):
    for step in range(PENDING):
      (increment if step % 2 else double)(memory)
      expected = expected + 1 if step % 2 else expected * 2
    look_at = "launches run in the order in which they were made, and read waits for all of them"
    demand_numbers(target, memory, [expected] * SIZE, "20 launches, each on what the one before left", look_at)


def test_read_waits_for_launches(target: Target) -> None:
  with memories(target, [0] * SIZE, range(SIZE), [1] * SIZE) as (out, source, ones):
    slow = Loaded(target, slow_copy())
    for n in range(PENDING):
      slow(out, source, ones)
      slow(source, out, ones)
      if n % 5 == 4:
        expected = range(128 * (n + 1), SIZE + 128 * (n + 1))
        look_at = "read waits for all launches so far before it copies; what it gives is stale"
        demand_numbers(target, source, expected, "read after launches that nobody waited for", look_at, slow.kernel)


def test_write_waits_for_launches(target: Target) -> None:
  with memories(target, [0] * SIZE, range(SIZE), [1] * SIZE) as (out, source, ones):
    slow = Loaded(target, slow_copy())
    for _ in range(PENDING):
      slow(out, source, ones)
    target.device.write(source, 0, memoryview(bytes(4 * SIZE)))
    look_at = "write waits for all launches so far (or is queued behind them): they have to see the old contents"
    what = "a launch saw what was written after it"
    demand_numbers(target, out, range(64, SIZE + 64), what, look_at, slow.kernel)


def test_free_waits_for_launches(target: Target) -> None:
  with memories(target, [0] * SIZE, range(SIZE), [1] * SIZE) as held:
    slow = Loaded(target, slow_copy())
    for _ in range(PENDING):
      slow(held[0], held[1], held[2])
    target.device.free(held.pop(1))
    held.append(filled(target, [-1] * SIZE))  # likely the same place
    look_at = "free waits for the launches that use the memory, or puts it aside until they are done"
    what = "a launch lost its input to a free that came after it"
    demand_numbers(target, held[0], range(64, SIZE + 64), what, look_at, slow.kernel)


def test_arguments_belong_to_their_launch(target: Target) -> None:
  """Several launches of one program on their way, with other buffers, offsets and integers."""
  i = UOp.range(16, 0)
  n, m = UOp.variable("n", 0, 1000), UOp.variable("m", 0, 1000)
  value = param(1, 16).index(i).load() + n.cast(I) * 1000 + m.cast(I)
  program = Loaded(target, kernel("arguments", param(0, 16).index(i).store(value).end(i)))
  with memories(target, [0] * 16 * PENDING, range(16 * PENDING)) as (out, source):
    for k in range(PENDING):
      program((out, 64 * k), (source, 64 * (PENDING - 1 - k)), n=k, m=2 * k)
    expected = [16 * (PENDING - 1 - k) + i + 1002 * k for k in range(PENDING) for i in range(16)]
    look_at = "the memory in which arguments travel to the device is used again before the launch has read it; or"
    look_at += " offsets and integers of another launch are used"
    what = "20 launches of one program with arguments of their own"
    demand_numbers(target, out, expected, what, look_at, program.kernel)


def test_a_buffer_may_be_given_twice(target: Target) -> None:
  program = Loaded(target, elementwise("twice", SIZE, I, [I, I], lambda a, b: a * 10 + b))
  with memories(target, [0] * SIZE, range(SIZE)) as (out, source):
    program(out, source, source)
    look_at = "buffers are told apart by position: the same memory may come twice, where it is only read"
    demand_numbers(target, out, [11 * k for k in range(SIZE)], "one memory as both inputs", look_at, program.kernel)


def test_sync_and_wait_with_nothing_to_do(target: Target) -> None:
  target.device.sync()
  with memories(target, [0] * SIZE, range(SIZE), [1] * SIZE) as (out, source, ones):
    slow = Loaded(target, slow_copy())
    slow(out, source, ones)
    target.device.sync()
    target.device.sync()
    demand_numbers(target, out, range(64, SIZE + 64), "a launch, then sync twice", "sync", slow.kernel)
