"""Sums of which each term goes to one element: memory is filled, then a kernel accumulates in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sched_graphs import arange, gather, new, one_hot, stored, total

from tiny_sched import schedule
from tiny_sched.scatter import LEAST_PLACES, pays
from tiny_uop import Accumulate, Ops, UOp, dtypes

Run = Callable[..., list[str]]
COUNT, PLACES, WIDTH = 50, 40, 48


def index(count: int = COUNT) -> UOp:
  return new(count, dtype=dtypes.int32)


def wide(x: UOp, axis: int, shape: tuple[int, int, int]) -> UOp:
  """A matrix repeated along one more axis."""
  return x.reshape(tuple(1 if i == axis else s for i, s in enumerate(shape))).expand(shape)


def hot(idx: UOp) -> UOp:
  """(count, places, width): whether a place is the one that the index names."""
  return one_hot(idx, PLACES).reshape((COUNT, PLACES, 1)).expand((COUNT, PLACES, WIDTH))


def rows(value: UOp, idx: UOp, op: Ops = Ops.ADD, other: float = 0.0) -> UOp:
  """`out[idx[n]] op= value[n]`, (places, width)."""
  spread = wide(value, 1, (COUNT, PLACES, WIDTH))
  return hot(idx).where(spread, other).reduce_axes(op, (0,)).reshape((PLACES, WIDTH))


@pytest.mark.parametrize(
  ("op", "other"), ((Ops.ADD, 0.0), (Ops.MUL, 1.0), (Ops.MAX, float("-inf"))), ids=("sum", "product", "maximum")
)
def test_rows(run: Run, op: Ops, other: float) -> None:
  names = run(rows(new(COUNT, WIDTH), index(), op, other).maximum(-1e30), top=PLACES + 10)
  assert names == [f"fill_{PLACES * WIDTH}", f"scatter_{COUNT}x{WIDTH}", f"elementwise_{PLACES * WIDTH}"]


def test_into_the_result(run: Run) -> None:
  assert run(rows(new(COUNT, WIDTH), index()), top=PLACES) == [f"fill_{PLACES * WIDTH}", f"scatter_{COUNT}x{WIDTH}"]


def test_what_is_scattered_is_computed_on_the_way(run: Run) -> None:
  value = (new(COUNT, WIDTH) * new(COUNT, WIDTH) + 1.0).exp()
  assert run(rows(value, index()), top=PLACES) == [f"fill_{PLACES * WIDTH}", f"scatter_{COUNT}x{WIDTH}"]


def test_counts(run: Run) -> None:
  count, places = 4000, 50
  counts = total(one_hot(index(count), places).cast(dtypes.int32), 0)
  assert run(counts.reshape((places,)), top=places + 3) == [f"fill_{places}", f"scatter_{count}"]


def test_whether_a_place_is_named(run: Run) -> None:
  count, places = 4000, 50
  named = one_hot(index(count), places).reduce_axes(Ops.MAX, (0,)).reshape((places,))
  assert run(named.cast(dtypes.int32), top=places)[:2] == [f"fill_{places}", f"scatter_{count}"]


def test_the_last_term(run: Run) -> None:
  """Numbers from 1 on, and 0 where there is none: no term is less."""
  count, places = 4000, 50
  number = (arange(count) + 1).reshape((count, 1)).expand((count, places))
  last = one_hot(index(count), places).where(number, 0).reduce_axes(Ops.MAX, (0,))
  assert run(last.reshape((places,)), top=places)[:2] == [f"fill_{places}", f"scatter_{count}"]


def test_a_batch(run: Run) -> None:
  batch, count, places = 3, 700, 40
  idx, value = new(batch, count, dtype=dtypes.int32), new(batch, count)
  shape = (batch, places, count)
  there = idx.reshape((batch, 1, count)).expand(shape).eq(arange(places).reshape((1, places, 1)).expand(shape))
  out = there.where(value.reshape((batch, 1, count)).expand(shape), 0.0).reduce_axes(Ops.ADD, (2,))
  assert run(out.reshape((batch, places)), top=places) == [f"fill_{batch * places}", f"scatter_{batch}x{count}"]


def test_two_indices(run: Run) -> None:
  count, n, m = 700, 9, 12
  shape = (count, n, m)
  first = index(count).reshape((count, 1, 1)).expand(shape).eq(arange(n).reshape((1, n, 1)).expand(shape))
  second = index(count).reshape((count, 1, 1)).expand(shape).eq(arange(m).reshape((1, 1, m)).expand(shape))
  out = (first & second).where(new(count).reshape((count, 1, 1)).expand(shape), 0.0).reduce_axes(Ops.ADD, (0,))
  assert run(out.reshape((n, m)), top=14) == [f"fill_{n * m}", f"scatter_{count}"]


def test_only_terms_that_a_mask_lets_through(run: Run) -> None:
  count, places = 4000, 50
  wanted = (index(count) < 3).reshape((count, 1)).expand((count, places))
  counts = total((one_hot(index(count), places) & wanted).cast(dtypes.int32), 0)
  assert run(counts.reshape((places,)), top=60) == [f"fill_{places}", f"scatter_{count}"]


def test_few_places_stay_a_sum(run: Run) -> None:
  count, places = 40_000, LEAST_PLACES - 1
  names = run(total(one_hot(index(count), places).cast(dtypes.int32), 0).reshape((places,)), top=places)
  assert not any(name.startswith("scatter") for name in names)
  assert not pays([1000], (1000,), 10) and pays([1000], (1000,), 1000)


def test_picking_stays_a_load(run: Run) -> None:
  assert run(gather(new(200, 30), index(300)), top=200) == ["elementwise_300x30"]


def test_a_read_of_what_was_there(evaluate: Callable[..., np.ndarray], execute: Callable[..., None]) -> None:
  """The old contents of the buffer that is scattered into are read by another kernel."""
  value, idx, out = new(COUNT, WIDTH), index(), new(PLACES, WIDTH)
  other = stored(out * 2.0)
  sink = UOp.sink(out.assign(rows(value, idx) + 0.0 * out), other)
  random = np.random.default_rng(0)
  memory = {u: (random.integers(0, PLACES, u.arg[1]) if u.dtype is dtypes.int32 else random.standard_normal(u.arg[1]))
            .astype(u.dtype.name) for u in sink.toposort if u.op is Ops.BUFFER}  # fmt: skip
  wanted = [evaluate(root, memory) for root in sink.src]
  linear = schedule(sink)
  assert any(isinstance(u.arg, Accumulate) for call in linear.src for u in call.src[0].toposort)
  execute(linear, memory)
  for root, want in zip(sink.src, wanted, strict=True):
    np.testing.assert_allclose(memory[root.src[0].base], want.reshape(-1), rtol=1e-4, atol=1e-5)
