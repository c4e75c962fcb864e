"""Memory: what is dropped is freed at once, and programs whose graphs never repeat do not grow."""

from __future__ import annotations

import gc
import importlib
import random
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tiny_runtime import GlobalCounters
from tiny_sched import schedule_cache_clear, schedule_cache_info
from tiny_tensor import Context, Tensor
from tiny_uop import dtypes, live_nodes

Step = Callable[[Tensor, float], Tensor]

# One structure each; sizes and constants make the schedules, or only their order does.
STEPS: tuple[Step, ...] = (
  lambda x, c: x + c,
  lambda x, c: (x > c).where(x, c),
  lambda x, c: x.sum(0, keepdim=True) + x * c,
  lambda x, c: x.softmax(-1) * c,
  lambda x, c: x.pad(((1, 2), (0, 0)))[1:-2] - c,
  lambda x, c: x.flip(0).contiguous() + x,
  lambda x, c: (x.T @ x).sin().sum() + x * c,
  lambda x, c: x.reshape(-1)[2:].max() + x,
)


@pytest.fixture(autouse=True)
def small_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  """Caches that are full after a few cycles, so that what grows afterwards is a leak. Nothing on disk."""
  monkeypatch.setattr(importlib.import_module("tiny_sched.schedule"), "CACHE_SIZE", 4 * len(STEPS))
  monkeypatch.setattr("tiny_uop.text.parse._parse_dtype", lru_cache(maxsize=32)(dtypes.parse))
  schedule_cache_clear()
  with Context(DEVICE="REF", CACHELEVEL=1):
    yield
  schedule_cache_clear()


def leaf(rows: int, value: float = 0.5) -> Tensor:
  """Something in memory."""
  return Tensor.full((rows, 3), value).contiguous()


def new_kernels(number: int) -> Tensor:
  """A graph of which no kernel has been there before."""
  return STEPS[number % len(STEPS)](leaf(4 + number), 0.25 + number)


def new_schedule(number: int) -> Tensor:
  """A graph that has not been there before, made of few kernels: five steps, one of eight each, in memory."""
  x = leaf(4)
  for digit in f"{number:05o}":
    x = STEPS[int(digit)](x, 0.25).contiguous()
  return x


def gradients(number: int) -> Tensor:
  """A gradient that has not been there before."""
  x = leaf(4 + number).requires_grad_(True)
  (grad,) = STEPS[number % len(STEPS)](x * x, 0.25 + number).sum().gradient(x)
  return grad


def resident() -> int:
  """Bytes of memory that this process has now."""
  return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def check_plateau(cycle: Callable[[int], object], count: int) -> None:
  """Runs cycles: the second half must not need more than the first, in nodes, blocks of Python's allocator, buffers.

  All is looked at once per round of the steps, with the caches full of the rounds before.
  """
  seen: list[tuple[int, int, int]] = []
  for number in range(count):
    cycle(number)
    if number % (count // 16 // len(STEPS) * len(STEPS)) == 0 and number >= count // 4:
      gc.collect()
      seen.append((live_nodes(), sys.getallocatedblocks(), GlobalCounters.mem_used))
  middle = len(seen) // 2
  nodes, blocks, buffers = (max(values) for values in zip(*seen[:middle], strict=True))
  later_nodes, later_blocks, later_buffers = (max(values) for values in zip(*seen[middle:], strict=True))
  assert later_nodes <= nodes * 1.02 + 100, f"live nodes grow: {seen}"
  assert later_blocks - blocks <= 1000 + 0.05 * count, f"allocated blocks grow: {seen}"
  assert later_buffers <= buffers, f"buffers grow: {seen}"


@pytest.mark.parametrize("make", [new_kernels, new_schedule, gradients])
@pytest.mark.parametrize("use", [lambda x: x, Tensor.schedule, Tensor.realize], ids=["drop", "schedule", "realize"])
def test_a_dropped_graph_is_freed_at_once(make: Callable[[int], Tensor], use: Callable[[Tensor], object]) -> None:
  for number in (8, 9, 10):
    use(make(number))  # what stays: constants, tables, one entry in the cache
  gc.collect()
  before = live_nodes(), GlobalCounters.mem_used
  gc.disable()
  try:
    for number in (8, 9, 10):
      use(make(number))
      assert (live_nodes(), GlobalCounters.mem_used) == before, "something refers to itself and waits for the collector"
  finally:
    gc.enable()


def test_the_garbage_collector_waits_until_a_graph_is_planned() -> None:
  graph, collections, threshold = leaf(4), list[str](), gc.get_threshold()
  for step in STEPS * 3:
    graph = step(graph, 0.25)

  def count(phase: str, info: object) -> None:
    collections.append(phase)

  gc.collect()
  gc.callbacks.append(count)
  gc.set_threshold(200)  # of 700: thirteen collections where planning does not hold them off, four where it does
  try:
    graph.schedule_linear()
  finally:
    gc.set_threshold(*threshold)
    gc.callbacks.remove(count)
  assert collections.count("start") < 9, "planning is looked through for garbage time and again"


def test_scheduling_of_ever_new_graphs_does_not_grow() -> None:
  check_plateau(lambda number: new_kernels(number).schedule(), 640)
  assert schedule_cache_info().misses == 640


def test_gradients_of_ever_new_graphs_do_not_grow() -> None:
  check_plateau(lambda number: gradients(number).schedule(), 384)


def test_ever_new_kernels_do_not_grow() -> None:
  check_plateau(lambda number: new_kernels(number).realize(), 384)


def test_ever_new_schedules_of_known_kernels_do_not_grow() -> None:
  order = random.Random(0).sample(range(8**5), 384)
  check_plateau(lambda number: new_schedule(order[number]).realize(), 384)


@pytest.mark.parametrize(
  "count", [pytest.param(320, marks=pytest.mark.slow), pytest.param(10_000, marks=pytest.mark.nightly)]
)
def test_many_cycles_do_not_grow(count: int) -> None:
  order = random.Random(1).sample(range(8**5), count)

  def cycle(number: int) -> None:
    new_schedule(order[number]).realize()
    if number % 4 == 0:
      new_kernels(number // 4).schedule()

  for number in range(min(300, count // 2)):
    cycle(number)
  gc.collect()
  start = resident()
  check_plateau(cycle, count)
  assert schedule_cache_info().misses >= count * 5 / 4, "every graph was a new one"
  assert resident() - start < 8e6, f"{(resident() - start) / 1e6:.1f} MB more after {count} cycles"
