"""Level 1: bytes go in and come out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tiny_runtime.conformance.failure import demand
from tiny_runtime.conformance.target import Target
from tiny_runtime.errors import OutOfMemory

SIZES = (
  1,
  2,
  3,
  63,
  64,
  65,
  4095,
  4096,
  4097,
  (1 << 16) + 1,
  (1 << 20) + 3,
  (4 << 20) + 5,
  (16 << 20) + 7,
  (64 << 20) + 9,
)
"""Also larger ones than the buffers by way of which bytes go to a device and come from it."""
PLACES = ((0, 1), (1, 2), (17, 100), (999, 1), (64, 64), (3, 0), (993, 7))


FAR = tuple((1 << n) + more for n in (8, 15, 16, 17, 20, 24) for more in (-3, 0, 5))
"""Places that take more than so many bits."""
BEYOND = tuple((1 << n) + more for n in (31, 32) for more in (-3, 0, 5))
PERIOD = 65521
"""Bytes after which noise comes again: a prime, so that no two pieces of a power of two bytes are the same."""


def noise(size: int, seed: int) -> bytes:
  some = random.Random(seed).randbytes(min(size, PERIOD))
  return (some * (size // PERIOD + 1))[:size]


def room(target: Target, size: int) -> None:
  """Skip a case for which the device has too little memory."""
  if 0 < target.device.info.memory < 4 * size:
    pytest.skip(f"{target.name} has {target.device.info.memory} bytes of memory")


def fetch(target: Target, memory: object, offset: int, size: int) -> bytes:
  out = bytearray(size)
  target.device.read(memory, offset, memoryview(out))
  return bytes(out)


def demand_bytes(got: bytes, expected: bytes, what: str, look_at: str) -> None:
  """Raise Misbehaved, which says where the bytes differ first and how many do."""
  if got == expected:
    return
  wrong = [n for n in range(len(expected)) if got[n] != expected[n]]
  first, last = wrong[0], wrong[-1]
  where = f"bytes {first} to {last}" if last - first + 1 == len(wrong) else f"{len(wrong)} bytes, the first is {first}"
  tail = last == len(expected) - 1 and last - first + 1 == len(wrong) < len(expected)
  demand(
    False,
    f"{what}: {where} of {len(expected)} are wrong",
    expected=expected[first : first + 16].hex(" "),
    got=got[first : first + 16].hex(" "),
    look_at=f"sizes that are no multiple of a word: the last {len(wrong)} bytes are lost. {look_at}"
    if tail
    else look_at,
  )


@pytest.mark.parametrize("size", SIZES)
def test_round_trip(target: Target, size: int) -> None:
  room(target, size)
  memory, data = target.device.alloc(size), noise(size, size)
  target.device.write(memory, 0, memoryview(data))
  got = fetch(target, memory, 0, size)
  demand_bytes(got, data, f"{size} bytes were written and read back", "write and read copy exactly data.nbytes bytes")
  target.device.free(memory)


def test_parts(target: Target) -> None:
  memory, data = target.device.alloc(1000), bytearray(noise(1000, 1))
  target.device.write(memory, 0, memoryview(data))
  for offset, size in PLACES:
    data[offset : offset + size] = noise(size, offset)
    target.device.write(memory, offset, memoryview(data)[offset : offset + size])
    what = f"{size} bytes were written at byte {offset} of 1000"
    look_at = "offset and data.nbytes count bytes; any of them are allowed, also 0 bytes and odd places"
    demand_bytes(fetch(target, memory, 0, 1000), bytes(data), f"{what}, then all were read", f"write: {look_at}")
    part = bytes(data[offset : offset + size])
    demand_bytes(fetch(target, memory, offset, size), part, f"{what}, then these were read", f"read: {look_at}")
  target.device.free(memory)


def at_places(target: Target, size: int, places: tuple[int, ...]) -> None:
  """Each place holds what was written there, written in one order and read in another, with nothing in between."""
  memory, kept = target.device.alloc(size), {place: noise(2, place) for place in places}
  for place, data in kept.items():
    target.device.write(memory, place, memoryview(data))
  for place, data in reversed(kept.items()):
    look_at = "offsets of write and read have as many bits as the size of the memory needs"
    what = f"2 bytes were written at byte {place} of {size}, others elsewhere, then these were read"
    demand_bytes(fetch(target, memory, place, 2), data, what, look_at)
  target.device.free(memory)


def test_far_places(target: Target) -> None:
  """Offsets that take 16 bits and more."""
  size = max(FAR) + 100
  room(target, size)
  at_places(target, size, FAR)


def test_places_beyond_31_bits(target: Target) -> None:
  """Offsets that take 32 bits and more, on devices that have the memory."""
  size = max(BEYOND) + 100
  if target.device.info.memory == 0:
    pytest.skip(f"{target.name} does not say how much memory it has")
  room(target, size)
  try:
    target.device.free(target.device.alloc(size))
  except OutOfMemory as error:
    pytest.skip(f"there is no room for {size} bytes: {error}")
  at_places(target, size, BEYOND)


@pytest.mark.parametrize("size", (1, 256, 1 << 17, (4 << 20) + 1))
def test_data_may_be_reused_after_write(target: Target, size: int) -> None:
  memory, data = target.device.alloc(size), bytearray(noise(size, 2))
  before = bytes(data)
  target.device.write(memory, 0, memoryview(data))
  data[:] = bytes(byte ^ 255 for byte in before[:1]) * size
  got = fetch(target, memory, 0, size)
  what = "data was changed after write had returned"
  demand_bytes(got, before, what, "write has copied the data, or what it needs of it, when it returns")
  target.device.free(memory)


def test_memories_keep_their_contents(target: Target) -> None:
  """Reading one leaves it and others as they are."""
  pieces = [(target.device.alloc(100), noise(100, seed)) for seed in range(3)]
  for memory, data in pieces:
    target.device.write(memory, 0, memoryview(data))
  for _ in range(2):
    for memory, data in pieces:
      got = fetch(target, memory, 0, 100)
      demand_bytes(got, data, "one of three memories was read twice", "staging buffers that read or write leave behind")
  for memory, _ in pieces:
    target.device.free(memory)


def test_read_only_and_other_formats_are_accepted(target: Target) -> None:
  memory, data = target.device.alloc(64), noise(64, 3)
  target.device.write(memory, 0, memoryview(data).cast("I"))
  out: Any = memoryview(bytearray(64)).cast("d")
  target.device.read(memory, 0, out)
  look_at = "take data.nbytes bytes, data.cast('B'), whatever the view's format is; it may be read-only in write"
  demand_bytes(bytes(out.cast("B")), data, "64 bytes were written as uint32 and read as float64", look_at)
  target.device.free(memory)


def test_allocations_do_not_overlap(target: Target) -> None:
  sizes = [size for size in (1, 5, 64, 100, 4096, 70000) for _ in range(5)]
  pieces = [(target.device.alloc(size), noise(size, seed)) for seed, size in enumerate(sizes)]
  for memory, data in pieces:
    target.device.write(memory, 0, memoryview(data))
  for memory, data in pieces:
    got = fetch(target, memory, 0, len(data))
    demand_bytes(got, data, "one of 30 memories lost what was written to it", "alloc gave out bytes that are in use")
  for memory, _ in pieces[::2]:
    target.device.free(memory)
  again = [(target.device.alloc(len(data)), data[::-1]) for _, data in pieces[::2]]
  for memory, data in again:
    target.device.write(memory, 0, memoryview(data))
  for memory, data in [*pieces[1::2], *again]:
    got = fetch(target, memory, 0, len(data))
    what = "a memory was changed after others were freed and allocated again"
    demand_bytes(got, data, what, "free gave back more than it should, or alloc gave out what is in use")
    target.device.free(memory)
