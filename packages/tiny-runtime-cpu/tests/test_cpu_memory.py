"""The allocator."""

from __future__ import annotations

import random
import threading

import pytest

from tiny_runtime import OutOfMemory
from tiny_runtime_cpu.memory import ALIGNMENT, SMALL, Allocator, Block, size_class


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


def test_free_memory_above_the_limit_goes_back_to_the_system() -> None:
  allocator = Allocator(keep=1 << 20)
  blocks = [allocator.alloc(300_000) for _ in range(5)]
  for block in blocks:
    allocator.free(block)
  assert allocator.cached <= 1 << 20
  allocator.trim()
  assert allocator.cached == 0


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
