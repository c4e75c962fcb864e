"""Schedules as lists of items: what each says of itself, and when it may run."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

import pytest

from tiny_runtime import Binary, ExecItem, GlobalCounters, Metadata, buffer_of, capture, exec_items, run_schedule
from tiny_uop import KernelInfo, Ops, UOp, dtypes

COUNT = 4
PART = array("f", [1, 2, 3, 4])


def new(count: int = COUNT) -> UOp:
  return UOp.new_buffer("REF", count, dtypes.float32)


def filled() -> UOp:
  made = new()
  buffer_of(made).write(PART)
  return made


def part(base: UOp, at: int) -> UOp:
  return UOp(Ops.BUFFER_VIEW, dtypes.float32, (base,), (at * 4, COUNT))


def add(out: UOp, *sources: UOp) -> UOp:
  """A call: out[i] = the sum of all sources at i, plus one."""
  i = UOp.range(COUNT, 0)
  params = [UOp.param(slot, dtypes.float32.ptr(COUNT)) for slot in range(1 + len(sources))]
  value = UOp.const(dtypes.float32, 1.0)
  for p in params[1:]:
    value = value + p.index(i).load()
  kernel = UOp.sink(params[0].index(i).store(value).end(i), arg=KernelInfo(f"add_{len(sources)}"))
  return UOp(Ops.CALL, dtypes.void, (kernel, out, *sources))


def update(out: UOp) -> UOp:
  """A call: out[i] = 2 out[i]."""
  i = UOp.range(COUNT, 0)
  place = UOp.param(0, dtypes.float32.ptr(COUNT)).index(i)
  kernel = UOp.sink(place.store(place.load() * 2.0).end(i), arg=KernelInfo("update"))
  return UOp(Ops.CALL, dtypes.void, (kernel, out))


def linear(*calls: UOp) -> UOp:
  return UOp(Ops.LINEAR, dtypes.void, calls)


def numbers(uop: UOp) -> Sequence[float]:
  return memoryview(buffer_of(uop).read()).cast("f").tolist()


def test_what_an_item_is() -> None:
  a, out = filled(), new()
  copy = UOp(Ops.CALL, dtypes.void, (UOp(Ops.COPY, dtypes.void), new(), a))
  first, second = exec_items(linear(add(out, a), copy))
  assert isinstance(first, ExecItem) and first.bufs == [buffer_of(out), buffer_of(a)]
  assert first.ast.op is Ops.SINK and first.metadata == (Metadata("add"),) and second.metadata == (Metadata("copy"),)
  assert first.prg is None and isinstance(first.lower().prg, Binary) and second.lower().prg is None
  assert "0: add_1 on REF, 2 buffers" in repr(first) and "1: copy" in repr(second)
  assert not buffer_of(out).is_written()
  with pytest.raises(TypeError, match="takes a schedule"):
    exec_items(out)


def test_seconds_and_counters() -> None:
  (item,) = exec_items(linear(add(new(), filled())))
  GlobalCounters.reset()
  assert item.run() is None and item.run(do_update_stats=False) is None
  assert GlobalCounters.kernel_count == 1
  GlobalCounters.reset()
  seconds = item.run(wait=True)
  assert seconds is not None and 0 < seconds == GlobalCounters.time_sum_s


def test_items_are_captured() -> None:
  items = exec_items(linear(add(new(), filled()), add(new(), filled())))
  with capture() as captured:
    run_schedule(items)
  assert [schedule.src for schedule in captured] == [(item.call,) for item in items]


def test_what_failed_may_run_again() -> None:
  a = new()
  items = exec_items(linear(add(out := new(), a), update(out)))
  with pytest.raises(RuntimeError, match="never written"):
    items[0].run()
  with pytest.raises(RuntimeError, match=r"item 1 \(update\) reads what item 0 \(add_1\) writes, which has not run"):
    items[1].run()
  buffer_of(a).write(PART)
  run_schedule(items)
  assert numbers(out) == [4, 6, 8, 10]


@pytest.mark.parametrize("seed", range(12))
def test_in_any_order(seed: int) -> None:
  """Random schedules over buffers and overlapping parts of an arena: whatever is not refused leaves what the order of
  the schedule leaves."""
  rng = random.Random(seed)

  def make() -> tuple[list[UOp], UOp, UOp]:
    kept, arena = [filled() for _ in range(3)], new(3 * COUNT)
    choice = random.Random(seed)
    calls: list[UOp] = []
    written: list[UOp] = []
    for _ in range(6):
      sources = choice.sample([*kept, *written], choice.randrange(1, 3))
      if choice.random() < 0.5:
        out = part(arena, choice.choice([0, 2, 4, 6, 8]))
        written = [w for w in written if abs(w.arg[0] - out.arg[0]) >= COUNT * 4]  # what it lies on is gone
        calls.append(add(out, *[s for s in sources if s.op is Ops.BUFFER or s in written]))
        written.append(out)
      else:
        out = choice.choice(kept)
        calls.append(update(out) if choice.random() < 0.3 else add(out, *[s for s in sources if s is not out]))
    return kept, linear(*calls), arena

  def run_all(items: Sequence[ExecItem]) -> int:
    ran = 0
    for item in items:
      try:
        item.run()
        ran += 1
      except RuntimeError:
        pass
    return ran

  kept, schedule, _ = make()
  run_schedule(exec_items(schedule))
  expected = [numbers(u) for u in kept]
  for _ in range(8):
    kept, schedule, arena = make()
    items = exec_items(schedule, [arena])
    run_all([rng.choice(items) for _ in range(10)])
    for _ in items:
      run_all(items)
    assert [numbers(u) for u in kept] == expected
