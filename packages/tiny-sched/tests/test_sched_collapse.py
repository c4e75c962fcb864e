"""Sums in closed form: equal to the loop, for conditions of every kind; and left alone where they have none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_sched.collapse import reduce_over, sum_over
from tiny_uop import AxisType, DType, Ops, UOp, dtypes, evaluate

K = UOp.range(7, 0, AxisType.REDUCE)
X = UOp.variable("x", -12, 12)


def by_loop(term: UOp, x: int, op: Ops = Ops.ADD) -> Any:
  terms = [evaluate(term.substitute({K: UOp.const(dtypes.index, k)}), {X: x}) for k in range(7)]
  return any(terms) if term.dtype is dtypes.bool else sum(terms)


def const(value: float, dtype: DType = dtypes.int32) -> UOp:
  return UOp.const(dtype, value)


@st.composite
def linear(draw: st.DrawFn) -> UOp:
  u = K * draw(st.sampled_from([-3, -2, -1, 1, 2, 5])) + draw(st.integers(-9, 9))
  return u + X * draw(st.integers(-2, 2))


@st.composite
def comparisons(draw: st.DrawFn) -> UOp:
  a, b = draw(linear()), X * draw(st.integers(-2, 2)) + draw(st.integers(-9, 9))
  if draw(st.booleans()):
    a = a // draw(st.integers(1, 4))
  kind = draw(st.sampled_from(["<", ">", ">=", "=="]))
  return a < b if kind == "<" else b < a if kind == ">" else (a < b).logical_not() if kind == ">=" else a.eq(b)


@settings(max_examples=300, deadline=None)
@given(
  conds=st.lists(comparisons(), min_size=1, max_size=3),
  x=st.integers(-12, 12),
  values=st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
)
def test_closed_form_equals_the_loop(conds: list[UOp], x: int, values: tuple[int, int]) -> None:
  cond = conds[0]
  for other in conds[1:]:
    cond = cond & other
  for term in (
    cond.where(const(values[0]), const(0)),
    cond.where(const(0), const(values[1])),
    cond,
    cond.cast(dtypes.int32),
  ):
    closed = sum_over(term, K)
    if closed is not None:
      assert K not in closed.ranges
      assert evaluate(closed, {X: x}) == by_loop(term, x), f"{cond.render()} at x={x}"


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64, dtypes.float32, dtypes.uint8])
def test_count(dtype: DType) -> None:
  closed = sum_over((K < X).where(const(2, dtype), const(0, dtype)), K)
  assert closed is not None and [evaluate(closed, {X: x}) for x in (-3, 0, 3, 9)] == [0, 0, 6, 14]


def pointer(size: int) -> UOp:
  return UOp.param(1, dtypes.float32.ptr(size))


def test_picking_one_element_becomes_a_gated_load() -> None:
  closed = sum_over(K.eq(X).where(pointer(7).index(K).load(), const(0.0, dtypes.float32)), K)
  assert closed is not None and not any(u.op is Ops.RANGE for u in closed.toposort)
  (load,) = [u for u in closed.toposort if u.op is Ops.LOAD]
  gate = load.src[0].src[2]
  assert load.src[0].src[1] is X and [evaluate(gate, {X: x}) for x in (-1, 0, 6, 7)] == [False, True, True, False]


@pytest.mark.parametrize("term", [
  pointer(7).index(K).load(),
  (K < X).where(pointer(7).index(K).load(), const(0.0, dtypes.float32)),
  pointer(7).index(K).load() * K.cast(dtypes.float32),
  (K * K < X).where(const(1), const(0)),
  (pointer(7).index(K).load() < 0).where(const(1), const(0)),
])  # fmt: skip
def test_what_has_no_closed_form_stays_a_loop(term: UOp) -> None:
  assert sum_over(term, K) is None
  assert reduce_over(Ops.ADD, term, (K,)).op is Ops.REDUCE


def test_maximum_of_a_term_without_the_loop_is_the_term() -> None:
  assert reduce_over(Ops.MAX, const(3), (K,)) is const(3)
  assert reduce_over(Ops.MAX, K.cast(dtypes.int32), (K,)).op is Ops.REDUCE


def test_conversion_that_could_wrap_is_not_solved() -> None:
  narrow = UOp.range(1000, 0, AxisType.REDUCE).cast(dtypes.int8)
  loop = narrow.src[0]
  assert sum_over((narrow < 5).where(const(1), const(0)), loop) is None


def test_sum_of_the_counter() -> None:
  closed = sum_over(K * 3 + X, K)
  assert closed is not None and evaluate(closed, {X: 2}) == 3 * 21 + 14
