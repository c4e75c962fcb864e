"""Level 1: bytes go in and come out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tiny_runtime.conformance.failure import demand
from tiny_runtime.conformance.target import Target
from tiny_runtime.contract import Memory
from tiny_runtime.errors import OutOfMemory

MIB = 1 << 20
SIZES = (1, 2, 3, 63, 64, 65, 4095, 4096, 4097, (1 << 16) + 1, MIB + 3, 4 * MIB + 5, 16 * MIB + 7, 64 * MIB + 9)
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


def large_memory(target: Target, size: int) -> Memory:
  """Memory of a size that takes more than 31 bits; skips a case for which there is none, or nobody knows."""
  if target.device.info.memory == 0:
    pytest.skip(f"{target.name} does not say how much memory it has")
  room(target, size)
  try:
    return target.device.alloc(size)
  except OutOfMemory as error:
    pytest.skip(f"there is no room for {size} bytes: {error}")


@pytest.mark.parametrize("size", SIZES)
def test_round_trip(target: Target, size: int) -> None:
  room(target, size)
  data = noise(size, size)
  with target.memories(data) as (memory,):
    what = f"{size} bytes were written and read back"
    target.demand_bytes(memory, data, what, "write and read copy exactly data.nbytes bytes")


def test_parts(target: Target) -> None:
  data, look_at = bytearray(noise(1000, 1)), "offset and data.nbytes count bytes; any of them are allowed, also 0 bytes"
  with target.memories(data) as (memory,):
    for offset, size in PLACES:
      data[offset : offset + size] = part = noise(size, offset)
      target.device.write(memory, offset, memoryview(data)[offset : offset + size])
      what = f"{size} bytes were written at byte {offset} of 1000"
      target.demand_bytes(memory, data, f"{what}, then all were read", f"write: {look_at} and odd places")
      target.demand_bytes(memory, part, f"{what}, then these were read", f"read: {look_at} and odd places", offset)


def at_places(target: Target, memory: Memory, size: int, places: tuple[int, ...]) -> None:
  """Each place holds what was written there, written in one order and read in another, with nothing in between."""
  kept = {place: noise(2, place) for place in places}
  for place, data in kept.items():
    target.device.write(memory, place, memoryview(data))
  for place, data in reversed(kept.items()):
    look_at = "offsets of write and read have as many bits as the size of the memory needs"
    what = f"2 bytes were written at byte {place} of {size}, others elsewhere, then these were read"
    target.demand_bytes(memory, data, what, look_at, place)
  target.device.free(memory)


def test_far_places(target: Target) -> None:
  """Offsets that take 16 bits and more."""
  size = max(FAR) + 100
  room(target, size)
  at_places(target, target.device.alloc(size), size, FAR)


def test_places_beyond_31_bits(target: Target) -> None:
  """Offsets that take 32 bits and more, on devices that have the memory."""
  size = max(BEYOND) + 100
  at_places(target, large_memory(target, size), size, BEYOND)


@pytest.mark.parametrize("size", (1, 256, 1 << 17, (4 << 20) + 1))
def test_data_may_be_reused_after_write(target: Target, size: int) -> None:
  data = bytearray(noise(size, 2))
  before = bytes(data)
  with target.memories(data) as (memory,):
    data[:] = bytes([before[0] ^ 255]) * size
    what = "data was changed after write had returned"
    target.demand_bytes(memory, before, what, "write has copied the data, or what it needs of it, when it returns")


def test_memories_keep_their_contents(target: Target) -> None:
  """Reading one leaves it and others as they are."""
  pieces = [noise(100, seed) for seed in range(3)]
  look_at = "staging buffers that read or write leave behind"
  with target.memories(*pieces) as held:
    for memory, data in [*zip(held, pieces)] * 2:
      target.demand_bytes(memory, data, "one of three memories was read twice", look_at)


def test_read_only_and_other_formats_are_accepted(target: Target) -> None:
  memory, data = target.device.alloc(64), noise(64, 3)
  target.device.write(memory, 0, memoryview(data).cast("I"))
  out: Any = memoryview(bytearray(64)).cast("d")
  target.device.read(memory, 0, out)
  look_at = "take data.nbytes bytes, data.cast('B'), whatever the view's format is; it may be read-only in write"
  what, got = "64 bytes were written as uint32 and read as float64: they are wrong", bytes(out.cast("B"))
  demand(got == data, what, expected=data.hex(" "), got=got.hex(" "), look_at=look_at)
  target.device.free(memory)


def test_allocations_do_not_overlap(target: Target) -> None:
  sizes = [size for size in (1, 5, 64, 100, 4096, 70000) for _ in range(5)]
  pieces = [noise(size, seed) for seed, size in enumerate(sizes)]
  with target.memories(*pieces) as held:
    for memory, data in zip(held, pieces):
      what = "one of 30 memories lost what was written to it"
      target.demand_bytes(memory, data, what, "alloc gave out bytes that are in use")
    for place in range(0, len(pieces), 2):
      target.device.free(held[place])
    for place in range(0, len(pieces), 2):
      pieces[place] = pieces[place][::-1]
      held[place] = target.filled(pieces[place])
    for memory, data in zip(held, pieces):
      what = "a memory was changed after others were freed and allocated again"
      target.demand_bytes(memory, data, what, "free gave back more than it should, or alloc gave out what is in use")
