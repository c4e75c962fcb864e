"""Sums of many products: one product of stacked operands, and where they are left alone."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sched_graphs import new, stored, total

from tiny_sched import Room, schedule
from tiny_sched.passes import PASSES
from tiny_sched.products import split
from tiny_sched.products.stacked import LEAST, LONG, MOST, stack_products
from tiny_sched.room import RoomOf, unknown
from tiny_uop import Context, DType, Ops, UOp, dtypes, value_nodes
from tiny_uop.passes import run_passes


def product(x: UOp, y: UOp) -> UOp:
  """The terms of xᵀ·y, `(rows, m, n)`, of x `(rows, m)` and y `(rows, n)`."""
  (rows, m), n = x.shape, y.shape[1]
  return x.reshape((rows, m, 1)).expand((rows, m, n)) * y.reshape((rows, 1, n)).expand((rows, m, n))


def steps(count: int, rows: int = 4, dtype: DType = dtypes.int32) -> list[tuple[UOp, UOp]]:
  """Pairs of a state and of what is computed from it, each from the one before, as along a sequence."""
  x, weight = new(rows, 16, dtype=dtype), new(16, 16, dtype=dtype)
  found = []
  for _ in range(count):
    wide = x.reshape((rows, 16, 1)).expand((rows, 16, 16)) * weight.reshape((1, 16, 16)).expand((rows, 16, 16))
    y = total(wide, 1).reshape((rows, 16)) + 1
    found.append((x, y))
    x = y * 3
  return found


def summed(pairs: list[tuple[UOp, UOp]], *more: UOp) -> UOp:
  return total(reduce(add, [product(x, y) for x, y in pairs] + list(more)), 0)


def sums_of(linear: UOp) -> list[str]:
  """The kernels that compute the sums of these tests."""
  return [name for call in linear.src if (name := call.src[0].arg.name).startswith("reduce_16x16")]


def check(roots: list[UOp], execute: Any, evaluate: Any, room_of: RoomOf = unknown) -> UOp:
  """Bit for bit what the graph says, for integers. The schedule."""
  sink = UOp.sink(*roots)
  random = np.random.default_rng(0)
  memory = {u: random.integers(-5, 6, u.arg[1]).astype(np.int32) for u in sink.toposort if u.op is Ops.BUFFER}
  wanted = [evaluate(root, memory) for root in roots]
  with Context(SPEC=2):
    execute(linear := schedule(sink, room_of), memory)
  for root, want in zip(roots, wanted, strict=True):
    np.testing.assert_array_equal(memory[root.src[0].src[0]], want.reshape(-1))
  return linear


def test_one_kernel_sums_all(execute: Any, evaluate: Any) -> None:
  pairs = steps(LEAST + 1)
  linear = check([stored(summed(pairs))], execute, evaluate)
  # a state per step, what is computed from it, and the sum of all but the first, whose state is in memory
  assert len(linear.src) <= 2 * len(pairs) + 2
  assert sums_of(linear) == [f"reduce_16x16_r{4 * LEAST}x4"]


def test_what_others_use_is_computed_once(execute: Any, evaluate: Any) -> None:
  pairs = steps(LEAST + 1)
  alone = schedule(UOp.sink(stored(summed(pairs))))
  both = check([stored(summed(pairs)), *[stored(total(y, 0)) for _, y in pairs[:3]]], execute, evaluate)
  assert len(both.src) <= len(alone.src) + 3


def test_two_sums_share_a_stack(execute: Any, evaluate: Any) -> None:
  pairs = steps(LEAST + 1)
  other = [(y, x) for x, y in pairs]
  linear = check([stored(summed(pairs)), stored(summed(other) * 2)], execute, evaluate)
  names = [call.src[0].arg.name for call in linear.src]
  assert not [name for name in names if name.startswith("move")]


def test_other_terms_stay_in_a_sum_of_their_own(execute: Any, evaluate: Any) -> None:
  linear = check([stored(summed(steps(LEAST + 1), *[new(4, 16, 16, dtype=dtypes.int32)] * 2))], execute, evaluate)
  assert sums_of(linear) == [f"reduce_16x16_r{4 * LEAST}x4"]


@pytest.mark.parametrize(
  ("count", "rows", "why"), [(LEAST - 1, 4, "few"), (LEAST, LONG + 1, "long"), (LEAST, LONG, "")]
)
def test_where_it_pays(count: int, rows: int, why: str) -> None:
  sink = UOp.sink(stored(summed(steps(count + 1, rows)[1:])))
  assert (stack_products(sink, value_nodes(sink)) is sink) == bool(why), why


def test_windows_of_one_value_are_left_alone() -> None:
  wide, weights = new(4, 16 + LEAST) + 1, new(LEAST, 4, 16)
  pairs = [
    (wide.shrink(((0, 4), (n, n + 16))), weights.shrink(((n, n + 1), (0, 4), (0, 16))).reshape((4, 16)))
    for n in range(LEAST)
  ]
  sink = UOp.sink(stored(summed(pairs)))
  assert stack_products(sink, value_nodes(sink)) is sink


def test_operands_in_memory_are_left_alone() -> None:
  sink = UOp.sink(stored(summed([(new(4, 16), new(4, 16)) for _ in range(LEAST)])))
  assert stack_products(sink, value_nodes(sink)) is sink


def test_sums_of_sums_are_not_walked_for_ever() -> None:
  x = product(new(4, 16) + 1, new(4, 16))
  for _ in range(60):  # as many paths as 2 to the 60
    x = x + x
  sink = UOp.sink(stored(total(x, 0)))
  assert stack_products(sink, value_nodes(sink)) is sink
  assert MOST < 1 << 60


@st.composite
def sums(draw: st.DrawFn) -> list[UOp]:
  """Sums of products of which some factors are computed, some in memory, some parts of others, and moved before they
  are multiplied."""
  rows, m, n = draw(st.integers(1, 5)), draw(st.sampled_from([16, 17, 24])), draw(st.sampled_from([16, 20]))
  turned = draw(st.booleans())
  used: list[UOp] = []

  def factor(size: int) -> UOp:
    shape = (size, rows) if turned else (rows, size)
    kind = draw(st.sampled_from(["computed", "computed", "computed", "memory", "row", "again"]))
    x = new(*shape, dtype=dtypes.int32)
    if kind == "computed":
      x = x * draw(st.integers(2, 5)) + draw(st.integers(1, 3))
      used.append(x)
    elif kind == "row":
      x = new(3, *shape, dtype=dtypes.int32).shrink(((1, 2), (0, shape[0]), (0, shape[1]))).reshape(shape)
    elif kind == "again" and (fitting := [y for y in used if y.shape == shape]):
      x = draw(st.sampled_from(fitting))
    return x.permute((1, 0)) if turned else x

  pairs = [(factor(m), factor(n)) for _ in range(draw(st.integers(LEAST, 3 * LEAST)))]
  roots = [stored(summed(pairs) + draw(st.integers(0, 1)))]
  return roots + [stored(total(x, 0)) for x in draw(st.lists(st.sampled_from(used), max_size=2))] if used else roots


@settings(
  max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(roots=sums())
def test_random_sums(roots: list[UOp], execute: Any, evaluate: Any) -> None:
  check(roots, execute, evaluate)


def test_kernels_of_all_steps_are_the_same() -> None:
  """Places in a stack are memory that begins elsewhere, so that steps are compiled once."""
  linear = run_passes(UOp.sink(stored(summed(steps(2 * LEAST)))), PASSES)
  assert len({call.src[0] for call in linear.src}) < 10


def test_beside_sums_that_threads_share(monkeypatch: pytest.MonkeyPatch, execute: Any, evaluate: Any) -> None:
  """Both have temporaries before the others have theirs."""
  for name in ("SECOND_KERNEL", "PART", "TERMS"):
    monkeypatch.setattr(split, name, 0)
  long = total(product(new(64, 3, dtype=dtypes.int32), new(64, 5, dtype=dtypes.int32)), 0)
  linear = check([stored(summed(steps(LEAST + 1))), stored(long * 2)], execute, evaluate, lambda _: Room(threads=16))
  assert len(sums_of(linear)) == 1
  assert len([call for call in linear.src if "_r16" in call.src[0].arg.name]) >= 1
