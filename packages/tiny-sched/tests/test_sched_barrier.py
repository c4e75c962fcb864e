"""BARRIER: what is computed from it comes later, and is computed again."""

from __future__ import annotations

from tiny_sched import schedule
from tiny_uop import Ops, UOp, dtypes


def buffer(size: int = 4096) -> UOp:
  return UOp.new_buffer("CPU", size, dtypes.float32)


def total(x: UOp) -> UOp:
  """A kernel of its own."""
  return x.reshape((64, 64)).reduce_axes(Ops.ADD, (1,)).expand((64, 64)).reshape((4096,))


def test_a_kernel_waits_for_what_it_does_not_read() -> None:
  x, first, second = buffer(), buffer(), buffer(64)
  late = x.reshape((64, 64)).reduce_axes(Ops.MAX, (1,)).reshape((64,))
  waited = (x * 3).sqrt()

  def order(value: UOp) -> list[UOp]:
    # the root of what waits is first in the graph, and so would come first
    linear = schedule(UOp.sink(second.assign(late.substitute({x: value})), first.assign(waited)))
    return [call.src[1] for call in linear.src]

  assert order(x) == [second, first]
  assert order(x.later_than(waited)) == [first, second]


def test_what_is_computed_again_is_not_what_was_computed_before() -> None:
  x, out, again = buffer(), buffer(), buffer()
  heavy = (x * 2).sin()
  once = schedule(UOp.sink(out.assign(total(heavy)), again.assign(total(heavy).sqrt())))
  twice = schedule(
    UOp.sink(out.assign(total(heavy)), again.assign(total((x.later_than(total(heavy)) * 2).sin()).sqrt()))
  )
  assert len(twice.src) > len(once.src)


def test_a_value_that_is_computed_is_kept() -> None:
  """A value behind a BARRIER has memory, from which all read it."""
  x, out = buffer(), buffer(64)
  kept = (x * 2).sin()
  rows = (kept.later_than(x) + kept).reshape((64, 64)).reduce_axes(Ops.ADD, (1,)).reshape((64,))
  linear = schedule(UOp.sink(out.assign(rows)))
  assert [call.src[0].arg.name for call in linear.src] == ["elementwise_4096", "reduce_64_r64"]
  assert linear.src[0].src[1].op is Ops.BUFFER_VIEW and linear.src[1].src[2:] == (linear.src[0].src[1],)


def test_waiting_for_numbers_is_no_waiting() -> None:
  x, out = buffer(), buffer()
  linear = schedule(UOp.sink(out.assign(x.later_than(x.const_like(3)) * 2)))
  assert len(linear.src) == 1
  linear = schedule(UOp.sink(out.assign(x.const_like(3).later_than(x) * x)))
  assert len(linear.src) == 1
