"""The schedule cache: what is a hit, and that a hit computes with the new buffers and values."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_sched import schedule, schedule_cache_info
from tiny_sched import schedule as schedule_function
from tiny_sched.normalise import normalise, slot_of
from tiny_uop import Ops, UOp, dtypes, live_nodes
from tiny_uop.origins import recording


def buffer(size: int = 8) -> UOp:
  return UOp.new_buffer("CPU", size, dtypes.int32)


def graph(x: UOp, out: UOp) -> UOp:
  return UOp.sink(out.assign((x.reduce_axes(Ops.ADD, (0,)).expand((8,)) * x).contiguous().flip((0,)) + 1))


def cached(x: UOp, position: UOp, out: UOp) -> UOp:
  """A cache that has grown to `position + 1` entries, the last of them new."""
  entry = x.shrink(((position, position + 1),))
  stored = x.after(entry.store(entry + 100))
  return UOp.sink(stored, out.assign(stored.shrink(((0, position + 1),)).reduce_axes(Ops.ADD, (0,))))


def test_same_graph_over_other_buffers_is_a_hit(execute: Callable[[UOp, Any], None]) -> None:
  for _ in range(3):
    x, out = buffer(), buffer()
    memory = {x: np.arange(8, dtype=np.int32), out: np.zeros(8, np.int32)}
    execute(schedule(graph(x, out)), memory)
    np.testing.assert_array_equal(memory[out], (28 * np.arange(8))[::-1] + 1)
  assert schedule_cache_info()[:2] == (2, 1)


def test_other_bound_value_is_a_hit(execute: Callable[[UOp, Any], None]) -> None:
  n = UOp.variable("position", 0, 7)
  x, out = buffer(), buffer(1)
  for value in (2, 5, 0):
    memory = {x: np.arange(8, dtype=np.int32), out: np.zeros(1, np.int32)}
    linear = schedule(cached(x, n.bind(value), out))
    execute(linear, memory)
    assert memory[out][0] == sum(range(value + 1)) + 100 and memory[x][value] == value + 100
    assert all(call.src[-1] is n.bind(value) for call in linear.src)
  assert schedule_cache_info()[:2] == (2, 1)


def test_bound_values_that_the_graph_has_as_constants_are_hits() -> None:
  n = UOp.variable("position", 0, 7)
  x, out = buffer(), buffer(1)
  for value in (1, 5, 0):  # `cached` adds 1 to the position
    schedule(cached(x, n.bind(value), out))
  assert schedule_cache_info()[:2] == (2, 1)


def test_constants_that_are_equal_as_numbers_are_misses() -> None:
  x, out = UOp.new_buffer("CPU", 8, dtypes.float32), UOp.new_buffer("CPU", 8, dtypes.float32)
  values = [0.0, -0.0, float("nan")]
  kernels = [schedule(UOp.sink(out.assign(x.maximum(x.const_like(v))))).src[0].src[0] for v in (*values, *values)]
  assert schedule_cache_info()[:2] == (3, 3) and len(set(kernels)) == 3


def test_a_hit_makes_calls_of_the_same_kernels() -> None:
  first, second = schedule(graph(buffer(), buffer())), schedule(graph(buffer(), buffer()))
  assert [a.src[0] for a in first.src] == [b.src[0] for b in second.src]
  assert first is not second


def test_same_buffer_twice_is_another_graph() -> None:
  x, y = buffer(), buffer()
  schedule(UOp.sink(buffer().assign(x * y)))
  schedule(UOp.sink(buffer().assign(x * x)))
  assert schedule_cache_info().misses == 2


def test_other_sizes_and_dtypes_are_misses() -> None:
  schedule(UOp.sink(buffer().assign(buffer() + 1)))
  schedule(UOp.sink(buffer(9).assign(buffer(9) + 1)))
  schedule(UOp.sink(UOp.new_buffer("CPU", 8, dtypes.int64).assign(UOp.new_buffer("CPU", 8, dtypes.int64) + 1)))
  schedule(UOp.sink(UOp.new_buffer("GPU", 8, dtypes.int32).assign(UOp.new_buffer("GPU", 8, dtypes.int32) + 1)))
  assert schedule_cache_info()[:2] == (0, 4)


def test_arenas_are_new_each_time() -> None:
  x, out = buffer(), buffer()
  arenas = [
    {a.src[0] for c in schedule(graph(x, out)).src for a in c.src[1:] if a.op is Ops.BUFFER_VIEW} for _ in range(2)
  ]
  assert arenas[0] and not arenas[0] & arenas[1]


def test_cache_keeps_no_buffer_alive() -> None:
  schedule(graph(buffer(), buffer()))  # tables and constants
  gc.collect()
  before = live_nodes()
  for _ in range(5):
    schedule(graph(buffer(), buffer()))
  gc.collect()
  assert live_nodes() == before


def test_a_dropped_schedule_is_freed_at_once() -> None:
  schedule(graph(buffer(), buffer()))
  gc.collect()
  before = live_nodes()
  gc.disable()
  try:
    for _ in range(3):
      schedule(graph(buffer(), buffer()))
      assert live_nodes() == before, "something refers to itself and so waits for the garbage collector"
  finally:
    gc.enable()


def test_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setitem(schedule_function.__globals__, "CACHE_SIZE", 3)
  for size in range(1, 8):
    schedule(UOp.sink(buffer(size).assign(buffer(size) + 1)))
  assert schedule_cache_info().size == 3


def test_normal_form_remembers_what_it_replaced() -> None:
  n = UOp.variable("n", 1, 8)
  x, out = buffer(), buffer(1)
  normal = normalise(UOp.sink(out.assign(x.shrink(((0, n.bind(3)),)).reduce_axes(Ops.ADD, (0,)))))
  slots = [u for u in normal.sink.toposort if u.op is Ops.BUFFER]
  assert [normal.buffers[slot_of(b)] for b in slots] == [out, x] and normal.binds == {n: n.bind(3)}
  assert not any(u.op is Ops.BIND for u in normal.sink.toposort)


def test_two_values_of_one_variable_are_an_error() -> None:
  n = UOp.variable("n", 1, 8)
  sums = [buffer(1).assign(buffer().shrink(((0, n.bind(v)),)).reduce_axes(Ops.ADD, (0,))) for v in (2, 3)]
  with pytest.raises(ValueError, match="'n' is bound to 2 and to 3"):
    schedule(UOp.sink(*sums))


def test_a_value_that_is_a_constant_of_the_graph_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
  """With origins wanted, whose places are those of a graph in which no value of a variable is a node."""
  monkeypatch.setattr(recording, "wanted", 1)
  x, out = buffer(), UOp.new_buffer("CPU", 4, dtypes.int32)
  i = UOp.variable("i", 0, 4)
  for value in (3, 4, 1, 2, 0):
    at = i.bind(value)
    schedule(UOp.sink(out.assign((x.shrink(((at, at + 4),)) * 2).contiguous() + 1)))
  assert schedule_cache_info()[:2] == (4, 1)
