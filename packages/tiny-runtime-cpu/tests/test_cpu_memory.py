"""The allocator."""

from __future__ import annotations

import ctypes
import random
import sys
import threading

import pytest

from tiny_runtime import Buffer, Device, OutOfMemory
from tiny_runtime_cpu import CPUDevice
from tiny_runtime_cpu.memory import ALIGNMENT, SMALL, Allocator, Block, FreeBlocks, size_class
from tiny_uop import dtypes


@pytest.mark.parametrize("nbytes", (1, 63, 64, 65, 100, 1000, 4096, SMALL, SMALL + 1, 100_000, 1 << 20, 12_345_678))
def test_size_classes_are_aligned_and_waste_little(nbytes: int) -> None:
  size = size_class(nbytes)
  assert size >= nbytes and size % ALIGNMENT == 0
  assert size <= max(ALIGNMENT, nbytes * 1.25 + 4096 * (nbytes > SMALL) + ALIGNMENT)
  assert size_class(size) == size, "a whole block must be of its own class, or it is never reused"


@pytest.mark.parametrize("nbytes", (1, 64, 100, 4096, SMALL + 1, 5 << 20))
def test_blocks_are_aligned_and_writable(nbytes: int) -> None:
  block = Allocator().alloc(nbytes)
  assert block.address is not None and block.address % ALIGNMENT == 0
  block.view[nbytes - 1] = 7
  assert len(block.view) >= nbytes


def test_a_freed_block_is_reused_and_its_old_handle_is_dead() -> None:
  allocator = Allocator()
  for nbytes in (100, 1 << 20):
    block = allocator.alloc(nbytes)
    address = block.address
    allocator.free(block)
    again = allocator.alloc(nbytes)
    assert (again.address, block.address) == (address, None)
    with pytest.raises(ValueError, match="already freed"):
      allocator.free(block)


def test_live_blocks_never_overlap() -> None:
  allocator, rng = Allocator(), random.Random(0)
  live: list[Block] = []
  for _ in range(2000):
    if live and rng.random() < 0.45:
      allocator.free(live.pop(rng.randrange(len(live))))
    else:
      live.append(allocator.alloc(int(2 ** rng.uniform(0, 18))))
  spans = sorted((b.address, b.address + b.nbytes) for b in live if b.address is not None)
  assert len(spans) == len(live)
  assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:]))
  for block in live:
    allocator.free(block)
  assert allocator.used == 0


def test_out_of_memory_is_clear_and_leaves_the_allocator_usable() -> None:
  allocator = Allocator(limit=1 << 20)
  held = allocator.alloc(600_000)
  with pytest.raises(OutOfMemory, match=r"cannot allocate 600000 bytes .* bytes are in use"):
    allocator.alloc(600_000)
  allocator.free(held)
  assert allocator.alloc(600_000).nbytes == 600_000
  with pytest.raises(OutOfMemory):
    Allocator().alloc(1 << 60)
  with pytest.raises(ValueError, match="at least 1"):
    allocator.alloc(0)


def test_the_oldest_free_memory_goes_back_to_the_system() -> None:
  allocator = Allocator(keep=1 << 20)
  blocks = [allocator.alloc(300_000) for _ in range(5)]
  addresses = [block.address for block in blocks]
  for block in blocks:
    allocator.free(block)
  assert allocator.cached == 3 * size_class(300_000)
  assert [allocator.alloc(300_000).address for _ in range(3)] == addresses[:1:-1], "the last one freed comes first"
  allocator.trim()
  assert allocator.cached == 0


def test_all_devices_give_free_memory_back() -> None:
  device = Device["CPU"]
  assert isinstance(device, CPUDevice)
  buffer, kept = Buffer("CPU", 3_000_000, dtypes.uint8).allocate(), Buffer("CPU", 4, dtypes.uint8)
  kept.write(b"kept")
  del buffer
  assert device.allocator.cached >= 3_000_000
  Device.trim()
  assert device.allocator.cached == 0 and kept.read() == b"kept"


def test_free_memory_makes_room_for_other_sizes_within_the_limit() -> None:
  allocator = Allocator(limit=4 << 20, keep=4 << 20)
  for block in [allocator.alloc(1 << 20) for _ in range(3)]:
    allocator.free(block)
  assert allocator.cached == 3 << 20
  large = allocator.alloc(3 << 20)
  assert allocator.cached == 1 << 20 and allocator.used == 3 << 20
  allocator.free(large)


def test_old_free_blocks_are_lent_to_the_system_and_still_reused(monkeypatch: pytest.MonkeyPatch) -> None:
  lent: list[int] = []
  monkeypatch.setattr("tiny_runtime.system.lend", lambda view: lent.append(len(view)))
  free = FreeBlocks(warm=3, most=100)

  def block(start: int, size: int) -> Block:
    return Block(start, size, memoryview(bytes(size)))

  for start in range(5):
    free.push(block(start, 1))
  assert lent == [1, 1] and free.nbytes == 5
  assert [found.start for found in iter(lambda: free.pop(1), None)] == [4, 3, 2, 1, 0]
  assert free.nbytes == 0
  for start in range(5):
    free.push(block(start, 1 + start))
  assert lent == [1, 1, 1, 2, 3, 4, 5], "one that is larger than what stays warm is lent at once"
  free.shrink(9)
  assert free.nbytes == 9 and free.pop(1) is None and free.pop(3) is None and free.pop(4) is not None


def test_lent_pages_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr("tiny_runtime_cpu.memory.WARM", 0)
  allocator = Allocator(keep=64 << 20)
  for value in range(3):
    one, two = allocator.alloc(8 << 20), allocator.alloc(100_000)
    for block in (one, two):
      block.view[:] = bytes([value + 1]) * len(block.view)
      assert block.view[0] == block.view[len(block.view) - 1] == value + 1
      allocator.free(block)


@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults as Linux does")
def test_memory_that_is_used_again_does_not_fault() -> None:
  import resource

  allocator, nbytes = Allocator(), 32 << 20

  def use() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = allocator.alloc(nbytes)
    assert block.address is not None
    ctypes.memset(block.address, 1, nbytes)
    allocator.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

  assert use() >= 16, "new pages fault, also huge ones"
  assert max(use() for _ in range(5)) < 16


def test_several_threads() -> None:
  allocator, errors = Allocator(), []

  def work(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
      block = allocator.alloc(rng.randrange(1, 200_000))
      block.view[0] = seed
      if block.view[0] != seed:
        errors.append(seed)
      allocator.free(block)

  threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not errors and allocator.used == 0


def test_adopted_memory_is_not_reused() -> None:
  allocator, own = Allocator(), bytearray(b"abcd" * 4)
  block = allocator.adopt(memoryview(own)[1:9])
  assert (block.nbytes, bytes(block.view), allocator.used) == (8, b"bcdabcda", 0)
  assert block.address == ctypes.addressof(ctypes.c_char.from_buffer(own)) + 1
  allocator.free(block)
  own.append(0)  # nobody looks at it any more
  assert block.address is None and allocator.alloc(8).address != block.start and allocator.cached == 0
  with pytest.raises(ValueError, match="already freed"):
    allocator.free(block)
