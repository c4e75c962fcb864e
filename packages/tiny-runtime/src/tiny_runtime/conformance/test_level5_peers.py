"""Level 5: the capability `peers`. Bytes of one device are on another, in the order of both."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tiny_runtime.conformance.failure import demand, demand_seconds
from tiny_runtime.conformance.kernels import Loaded
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.test_level4_order import COUNTS, NEW, ONES, PENDING, SIZE, pending, slow_copy
from tiny_runtime.contract import Memory
from tiny_runtime.errors import Unavailable
from tiny_runtime.opened import OpenDevice

LOOK_AT = "copy_from comes after all launches so far on both devices, and what comes later on either comes after it"
MEMMOVE = "copy_from with the device itself is memmove: any place, any size, also where the two overlap"
BYTES = 4 * SIZE
Contents = Sequence[Sequence[int]]


class Pair:
  """The first device and the second, as targets: `one` and `two`."""

  def __init__(self, one: Target, two: Target) -> None:
    self.one, self.two = one, two

  def reach(self) -> bool:
    """Whether each of them reaches the other."""
    ways = ((self.one, self.two), (self.two, self.one))
    answers = [to.device.reaches(of.device) for to, of in ways]  # type: ignore[attr-defined]  # claimed
    what = "reaches"
    demand(all(isinstance(answer, bool) for answer in answers), what, expected="True or False", got=answers)
    return all(answers)

  @contextmanager
  def memories(self, one: Contents, two: Contents) -> Iterator[tuple[list[Memory], list[Memory]]]:
    """New memories of both, that hold these numbers."""
    with self.one.memories(*one) as ones, self.two.memories(*two) as twos:
      yield ones, twos

  def slow(self) -> tuple[Loaded, Loaded]:
    """`slow_copy` on both."""
    return Loaded(self.one, slow_copy()), Loaded(self.two, slow_copy())


def copy(
  to: Target, memory: Memory, of: Target, source: Memory, nbytes: int, offset: int = 0, source_offset: int = 0,
  wait: bool = False,
) -> float | None:  # fmt: skip
  """`nbytes` from one device to another."""
  places = memory, offset, of.device, source, source_offset
  seconds: float | None = to.device.copy_from(*places, nbytes, wait)  # type: ignore[attr-defined]  # claimed
  return seconds


def opened_beside(target: Target) -> Target:
  """The second device. Skips the test where there is none."""
  found = target.backend.probe()
  if isinstance(found, Unavailable) or len(found) < 2:
    pytest.skip("there is one device: this needs two")
  return target.again(1)


def paired(target: Target, claim: str) -> Iterator[Pair]:
  """A fixture's body: two devices that make a claim and reach each other, or the test is skipped."""
  target.needs(claim)
  other = opened_beside(target)
  try:
    pair = Pair(target, other)
    what = f"{claim} is claimed by the first device, and not by the second"
    demand(getattr(other.device.info.capabilities, claim), what)
    if not pair.reach():
      pytest.skip("the first two devices do not reach each other")
    yield pair
  finally:
    other.device.close()


@pytest.fixture(scope="module")
def pair(target: Target) -> Iterator[Pair]:
  """Two devices that reach each other."""
  yield from paired(target, "peers")


def test_what_reaches_is_asked_again(pair: Pair) -> None:
  demand(pair.reach(), "reaches said True, and now False", look_at="the answer holds for as long as both are open")


@pytest.mark.parametrize(
  ("nbytes", "to", "of"),
  [(1, 0, 0), (1, 3, 5), (3, 0, 1), (64, 0, 0), (4095, 1, 1), (4096, 4, 8), (4099, 7, 3), ((1 << 20) + 5, 2, 9)],
)
def test_contents(pair: Pair, nbytes: int, to: int, of: int) -> None:
  """Any number of bytes from any place to any other, and none around them."""
  data = random.Random(nbytes).randbytes(of + nbytes + 16)
  for here, there in ((pair.one, pair.two), (pair.two, pair.one)):
    with there.memories(data) as (source,), here.memories(b"\x5a" * (to + nbytes + 16)) as (memory,):
      copy(here, memory, there, source, nbytes, to, of)
      expected = b"\x5a" * to + data[of : of + nbytes] + b"\x5a" * 16
      what = f"{nbytes} bytes from byte {of} of one device to byte {to} of the other"
      here.demand_bytes(memory, expected, what, "copy_from: both offsets count bytes, and so does nbytes")
      what = f"the source of {nbytes} bytes, after copying them"
      there.demand_bytes(source, data, what, "copy_from changes one side")


@pytest.mark.parametrize(("nbytes", "to", "of"), [(40, 0, 64), (90, 1, 0), (90, 0, 1), (100, 13, 5), (64, 32, 0)])
def test_within_one_device(target: Target, nbytes: int, to: int, of: int) -> None:
  target.needs("peers")
  before = bytes(range(128))
  after, apart = bytearray(before), bytearray(128)
  after[to : to + nbytes] = apart[to : to + nbytes] = before[of : of + nbytes]
  with target.memories(before, bytes(128)) as (memory, other):
    copy(target, other, target, memory, nbytes, to, of)
    copy(target, memory, target, memory, nbytes, to, of)
    target.demand_bytes(other, apart, f"{nbytes} bytes of one memory from {of} to {to} of another", MEMMOVE)
    target.demand_bytes(memory, after, f"{nbytes} bytes from byte {of} of a memory to its byte {to}", MEMMOVE)


def test_it_comes_after_launches_of_the_source(pair: Pair) -> None:
  with pair.one.memories(NEW) as (got,), pending(pair.two) as (out, *_):
    copy(pair.one, got, pair.two, out, BYTES)
    what = "what was copied is what the source held before a launch that came earlier"
    pair.one.demand_numbers(got, range(64, SIZE + 64), what, LOOK_AT, slow_copy())


def test_it_comes_after_launches_of_the_target(pair: Pair) -> None:
  slow, _ = pair.slow()
  with pair.memories([NEW], [[7] * SIZE]) as ((seen,), (sevens,)), pending(pair.one) as (out, _, ones):
    slow(seen, out, ones)
    copy(pair.one, out, pair.two, sevens, BYTES)
    what = "a launch on the target overwrote what was copied after it"
    pair.one.demand_numbers(out, [7] * SIZE, what, LOOK_AT, slow.kernel)
    what = "a launch on the target saw what was copied after it"
    pair.one.demand_numbers(seen, range(128, SIZE + 128), what, LOOK_AT, slow.kernel)


def test_launches_of_the_target_come_after_it(pair: Pair) -> None:
  here, there = pair.slow()
  with pair.memories([NEW, NEW, ONES], [NEW, COUNTS, ONES]) as ((copied, out, ones), (source, numbers, more)):
    there(source, numbers, more)
    copy(pair.one, copied, pair.two, source, BYTES)
    here(out, copied, ones)
    what = "a launch on the target read what was there before a copy that came earlier"
    pair.one.demand_numbers(out, range(128, SIZE + 128), what, LOOK_AT, here.kernel)


@pytest.mark.parametrize("by", ("launch", "write", "free"))
def test_what_changes_the_source_comes_after_it(pair: Pair, by: str) -> None:
  """The copy has to wait for a launch on the target, and the source's next step for the copy."""
  _, there = pair.slow()
  with pair.two.memories([5] * SIZE, NEW, ONES) as held, pending(pair.one) as (out, *_):
    copy(pair.one, out, pair.two, held[0], BYTES)
    if by == "launch":
      there(*held)
    elif by == "write":
      pair.two.device.write(held[0], 0, memoryview(bytes(BYTES)))
    else:
      pair.two.device.free(held.pop(0))
      held.append(pair.two.filled([-1] * SIZE))  # likely the same place
    pair.two.device.sync()
    what = f"a {by} on the source, which came after a copy, changed what was copied"
    pair.one.demand_numbers(out, [5] * SIZE, what, LOOK_AT)


def test_back_and_forth(pair: Pair) -> None:
  """A value goes to and fro and is changed on both sides; nobody waits."""
  here, there = pair.slow()
  with pair.memories([COUNTS, NEW, ONES], [NEW, NEW, ONES]) as (one, two):
    for _ in range(PENDING):
      here(one[1], one[0], one[2])
      copy(pair.two, two[0], pair.one, one[1], BYTES)
      there(two[1], two[0], two[2])
      copy(pair.one, one[0], pair.two, two[1], BYTES)
    expected = range(128 * PENDING, SIZE + 128 * PENDING)
    pair.one.demand_numbers(one[0], expected, f"a value that went to and fro {PENDING} times", LOOK_AT)


def test_many_without_waiting(pair: Pair) -> None:
  """More than what tells that a copy is done has room for, perhaps."""
  count = 300
  with pair.memories([[0] * count], [range(count)]) as ((out,), (source,)):
    for n in range(count):
      copy(pair.one, out, pair.two, source, 4, 4 * n, 4 * (count - 1 - n))
    pair.one.demand_numbers(out, range(count - 1, -1, -1), f"{count} copies of one number each", LOOK_AT)


def test_it_returns_its_time(pair: Pair) -> None:
  with pair.memories([[0] * 4096], [range(4096)]) as ((out,), (source,)):
    demand_seconds(copy(pair.one, out, pair.two, source, 4 * 4096, wait=True), "copy_from")
    inside = copy(pair.one, out, pair.one, out, 4 * 4096 - 4, 4, wait=True)
    demand_seconds(inside, "copy_from the device itself,")


def test_the_other_is_closed_and_opened_again(pair: Pair) -> None:
  look_at = "what one device keeps of another (mappings, events, answers) ends with that one's close"
  for value in (3, 4):
    other = opened_beside(pair.one)
    demand(Pair(pair.one, other).reach(), "a device that was opened again is not reached any more", look_at=look_at)
    with pair.one.memories(NEW) as (out,):
      copy(pair.one, out, other, other.filled([value] * SIZE), BYTES)
      other.device.close()  # with what was not freed
      pair.one.demand_numbers(out, [value] * SIZE, "what was copied before the other device was closed", look_at)


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
