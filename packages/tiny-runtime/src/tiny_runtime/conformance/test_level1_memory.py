"""Level 1: bytes go in and come out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tiny_runtime.conformance.target import Target

SIZES = (1, 2, 3, 63, 64, 65, 4095, 4096, 4097, (1 << 20) + 3)


def noise(size: int, seed: int) -> bytes:
  return random.Random(seed).randbytes(size)


def fetch(target: Target, memory: object, offset: int, size: int) -> bytes:
  out = bytearray(size)
  target.device.read(memory, offset, memoryview(out))
  return bytes(out)


@pytest.mark.parametrize("size", SIZES)
def test_round_trip(target: Target, size: int) -> None:
  memory, data = target.device.alloc(size), noise(size, size)
  target.device.write(memory, 0, memoryview(data))
  assert fetch(target, memory, 0, size) == data
  target.device.free(memory)


def test_parts(target: Target) -> None:
  memory, data = target.device.alloc(1000), bytearray(noise(1000, 1))
  target.device.write(memory, 0, memoryview(data))
  for offset, size in ((0, 1), (1, 2), (17, 100), (999, 1), (64, 64), (3, 0)):
    data[offset : offset + size] = noise(size, offset)
    target.device.write(memory, offset, memoryview(data)[offset : offset + size])
    assert fetch(target, memory, 0, 1000) == data, f"after writing {size} bytes at {offset}"
    assert fetch(target, memory, offset, size) == data[offset : offset + size]
  target.device.free(memory)


def test_data_may_be_reused_after_write(target: Target) -> None:
  memory, data = target.device.alloc(256), bytearray(noise(256, 2))
  before = bytes(data)
  target.device.write(memory, 0, memoryview(data))
  data[:] = bytes(256)
  assert fetch(target, memory, 0, 256) == before
  target.device.free(memory)


def test_read_only_and_other_formats_are_accepted(target: Target) -> None:
  memory, data = target.device.alloc(64), noise(64, 3)
  target.device.write(memory, 0, memoryview(data).cast("I"))
  out: Any = memoryview(bytearray(64)).cast("d")
  target.device.read(memory, 0, out)
  assert out.cast("B") == data
  target.device.free(memory)


def test_allocations_do_not_overlap(target: Target) -> None:
  pieces = [(target.device.alloc(size), noise(size, size)) for size in (1, 5, 64, 100, 4096, 70000) for _ in range(5)]
  for memory, data in pieces:
    target.device.write(memory, 0, memoryview(data))
  for memory, data in pieces:
    assert fetch(target, memory, 0, len(data)) == data
  for memory, _ in pieces[::2]:
    target.device.free(memory)
  again = [(target.device.alloc(len(data)), data[::-1]) for _, data in pieces[::2]]
  for memory, data in again:
    target.device.write(memory, 0, memoryview(data))
  for memory, data in [*pieces[1::2], *again]:
    assert fetch(target, memory, 0, len(data)) == data, "a new allocation took memory that is still in use"
    target.device.free(memory)
