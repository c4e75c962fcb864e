"""Level 5: the capability `peers`. Bytes of one device are on another, in the order of both."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tiny_runtime.conformance.failure import demand
from tiny_runtime.conformance.launching import Loaded, demand_numbers, demand_seconds, filled, memories
from tiny_runtime.conformance.peers import LOOK_AT, Pair, copy, opened_beside, paired
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.test_level1_memory import demand_bytes, fetch
from tiny_runtime.conformance.test_level4_order import PENDING, SIZE, slow_copy
from tiny_runtime.contract import Memory
from tiny_runtime.opened import OpenDevice

MEMMOVE = "copy_from with the device itself is memmove: any place, any size, also where the two overlap"


@pytest.fixture(scope="module")
def pair(target: Target) -> Iterator[Pair]:
  """Two devices that reach each other."""
  yield from paired(target, "peers")


def demand_held(target: Target, memory: Memory, expected: bytes, what: str, look_at: str) -> None:
  """Raise Misbehaved, which says `what`, where a memory does not hold these bytes."""
  demand_bytes(fetch(target, memory, 0, len(expected)), expected, what, look_at)


def test_what_reaches_is_asked_again(pair: Pair) -> None:
  demand(pair.reach(), "reaches said True, and now False", look_at="the answer holds for as long as both are open")


@pytest.mark.parametrize(
  ("nbytes", "to", "of"),
  [(1, 0, 0), (1, 3, 5), (3, 0, 1), (64, 0, 0), (4095, 1, 1), (4096, 4, 8), (4099, 7, 3), ((1 << 20) + 5, 2, 9)],
)
def test_contents(pair: Pair, nbytes: int, to: int, of: int) -> None:
  """Any number of bytes from any place to any other, and none around them."""
  for here, there in ((pair.one, pair.two), (pair.two, pair.one)):
    data = random.Random(nbytes).randbytes(of + nbytes + 16)
    source, memory = there.device.alloc(len(data)), here.device.alloc(to + nbytes + 16)
    there.device.write(source, 0, memoryview(data))
    here.device.write(memory, 0, memoryview(b"\x5a" * (to + nbytes + 16)))
    copy(here, memory, there, source, nbytes, to, of)
    expected = b"\x5a" * to + data[of : of + nbytes] + b"\x5a" * 16
    what = f"{nbytes} bytes from byte {of} of one device to byte {to} of the other"
    demand_held(here, memory, expected, what, "copy_from: both offsets count bytes, and so does nbytes")
    demand_held(there, source, data, f"the source of {nbytes} bytes, after copying them", "copy_from changes one side")
    here.device.free(memory)
    there.device.free(source)


@pytest.mark.parametrize(("nbytes", "to", "of"), [(40, 0, 64), (90, 1, 0), (90, 0, 1), (100, 13, 5), (64, 32, 0)])
def test_within_one_device(target: Target, nbytes: int, to: int, of: int) -> None:
  target.needs("peers")
  before = bytes(range(128))
  memory, other = target.device.alloc(128), target.device.alloc(128)
  target.device.write(memory, 0, memoryview(before))
  target.device.write(other, 0, memoryview(bytes(128)))
  copy(target, other, target, memory, nbytes, to, of)
  copy(target, memory, target, memory, nbytes, to, of)
  after = bytearray(before)
  after[to : to + nbytes] = before[of : of + nbytes]
  apart = bytearray(128)
  apart[to : to + nbytes] = before[of : of + nbytes]
  demand_held(target, other, bytes(apart), f"{nbytes} bytes of one memory from {of} to {to} of another", MEMMOVE)
  demand_held(target, memory, bytes(after), f"{nbytes} bytes from byte {of} of a memory to its byte {to}", MEMMOVE)
  target.device.free(memory)
  target.device.free(other)


def test_it_comes_after_launches_of_the_source(pair: Pair) -> None:
  slow = Loaded(pair.two, slow_copy())
  with (
    memories(pair.one, [0] * SIZE) as (got,),
    memories(pair.two, [0] * SIZE, range(SIZE), [1] * SIZE) as (out, source, ones),
  ):
    for _ in range(PENDING):
      slow(out, source, ones)
    copy(pair.one, got, pair.two, out, 4 * SIZE)
    what = "what was copied is what the source held before a launch that came earlier"
    demand_numbers(pair.one, got, range(64, SIZE + 64), what, LOOK_AT, slow.kernel)


def test_it_comes_after_launches_of_the_target(pair: Pair) -> None:
  slow = Loaded(pair.one, slow_copy())
  with (
    memories(pair.one, [0] * SIZE, range(SIZE), [1] * SIZE, [0] * SIZE) as (out, source, ones, seen),
    memories(pair.two, [7] * SIZE) as (sevens,),
  ):
    for _ in range(PENDING):
      slow(out, source, ones)
    slow(seen, out, ones)
    copy(pair.one, out, pair.two, sevens, 4 * SIZE)
    what = "a launch on the target overwrote what was copied after it"
    demand_numbers(pair.one, out, [7] * SIZE, what, LOOK_AT, slow.kernel)
    what = "a launch on the target saw what was copied after it"
    demand_numbers(pair.one, seen, range(128, SIZE + 128), what, LOOK_AT, slow.kernel)


def test_launches_of_the_target_come_after_it(pair: Pair) -> None:
  slow, there = Loaded(pair.one, slow_copy()), Loaded(pair.two, slow_copy())
  with (
    memories(pair.one, [0] * SIZE, [0] * SIZE, [1] * SIZE) as (copied, out, ones),
    memories(pair.two, [0] * SIZE, range(SIZE), [1] * SIZE) as (source, numbers, more),
  ):
    there(source, numbers, more)
    copy(pair.one, copied, pair.two, source, 4 * SIZE)
    slow(out, copied, ones)
    what = "a launch on the target read what was there before a copy that came earlier"
    demand_numbers(pair.one, out, range(128, SIZE + 128), what, LOOK_AT, slow.kernel)


@pytest.mark.parametrize("by", ("launch", "write", "free"))
def test_what_changes_the_source_comes_after_it(pair: Pair, by: str) -> None:
  """The copy has to wait for a launch on the target, and the source's next step for the copy."""
  slow, there = Loaded(pair.one, slow_copy()), Loaded(pair.two, slow_copy())
  with (
    memories(pair.one, [0] * SIZE, range(SIZE), [1] * SIZE) as (out, busy, ones),
    memories(pair.two, [5] * SIZE, [0] * SIZE, [1] * SIZE) as held,
  ):
    for _ in range(PENDING):
      slow(out, busy, ones)
    copy(pair.one, out, pair.two, held[0], 4 * SIZE)
    if by == "launch":
      there(*held)
    elif by == "write":
      pair.two.device.write(held[0], 0, memoryview(bytes(4 * SIZE)))
    else:
      pair.two.device.free(held.pop(0))
      held.append(filled(pair.two, [-1] * SIZE))  # likely the same place
    pair.two.device.sync()
    what = f"a {by} on the source, which came after a copy, changed what was copied"
    demand_numbers(pair.one, out, [5] * SIZE, what, LOOK_AT)


def test_back_and_forth(pair: Pair) -> None:
  """A value goes to and fro and is changed on both sides; nobody waits."""
  kernels = [Loaded(side, slow_copy()) for side in (pair.one, pair.two)]
  with (
    memories(pair.one, range(SIZE), [0] * SIZE, [1] * SIZE) as one,
    memories(pair.two, [0] * SIZE, [0] * SIZE, [1] * SIZE) as two,
  ):
    for _ in range(PENDING):
      kernels[0](one[1], one[0], one[2])
      copy(pair.two, two[0], pair.one, one[1], 4 * SIZE)
      kernels[1](two[1], two[0], two[2])
      copy(pair.one, one[0], pair.two, two[1], 4 * SIZE)
    expected = range(128 * PENDING, SIZE + 128 * PENDING)
    demand_numbers(pair.one, one[0], expected, f"a value that went to and fro {PENDING} times", LOOK_AT)


def test_many_without_waiting(pair: Pair) -> None:
  """More than what tells that a copy is done has room for, perhaps."""
  count = 300
  with memories(pair.one, [0] * count) as (out,), memories(pair.two, range(count)) as (source,):
    for n in range(count):
      copy(pair.one, out, pair.two, source, 4, 4 * n, 4 * (count - 1 - n))
    demand_numbers(pair.one, out, range(count - 1, -1, -1), f"{count} copies of one number each", LOOK_AT)


def test_it_returns_its_time(pair: Pair) -> None:
  with memories(pair.one, [0] * 4096) as (out,), memories(pair.two, range(4096)) as (source,):
    seconds = copy(pair.one, out, pair.two, source, 4 * 4096, wait=True)
    demand_seconds(seconds, "copy_from")
    inside = copy(pair.one, out, pair.one, out, 4 * 4096 - 4, 4, wait=True)
    demand_seconds(inside, "copy_from the device itself,")


def test_the_other_is_closed_and_opened_again(pair: Pair) -> None:
  look_at = "what one device keeps of another (mappings, events, answers) ends with that one's close"
  for value in (3, 4):
    other = opened_beside(pair.one)
    demand(Pair(pair.one, other).reach(), "a device that was opened again is not reached any more", look_at=look_at)
    with memories(pair.one, [0] * SIZE) as (out,):
      source = filled(other, [value] * SIZE)
      copy(pair.one, out, other, source, 4 * SIZE)
      other.device.close()  # with what was not freed
      demand_numbers(pair.one, out, [value] * SIZE, "what was copied before the other device was closed", look_at)


def test_from_several_threads(pair: Pair) -> None:
  """In both directions at once, through the locks that shared code has."""
  one, two = (OpenDevice(side.name, side.device, None, "", None, side.backend) for side in (pair.one, pair.two))

  def work(number: int) -> bool:
    here, there = (one, two) if number % 2 else (two, one)
    data, out = random.Random(number).randbytes(5000 + number), bytearray(5000 + number)
    memory, source = here.alloc(len(data)), there.alloc(len(data))
    for _ in range(5):
      there.write(source, 0, memoryview(data))
      here.copy_from((memory, 0), there, (source, 0), len(data), number % 3 == 0)
      there.write(source, 0, memoryview(bytes(len(data))))
      here.read(memory, 0, memoryview(out))
    here.release(memory, len(data))
    there.release(source, len(data))
    return bytes(out) == data

  demand(one.reaches(two) and two.reaches(one), "reaches, by way of shared code")
  with ThreadPoolExecutor(8) as pool:
    right = list(pool.map(work, range(16)))
  one.sync()
  two.sync()
  what = f"of 16 threads that copied to and fro, {right.count(False)} got wrong bytes"
  demand(all(right), what, look_at=f"what belongs to a thread, as a driver's current context; {LOOK_AT}")
