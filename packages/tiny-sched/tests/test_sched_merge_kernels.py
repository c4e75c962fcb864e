"""Which kernels become one that writes several results, and that the results are those of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_sched import schedule
from tiny_sched.merge_kernels import MOST_REGIONS
from tiny_uop import Ops, UOp, dtypes
from tiny_uop.context import Context

Array = np.ndarray[Any, np.dtype[Any]]
Memory = dict[UOp, Array]
Run = Callable[..., list[UOp]]

LARGE = (32, 1024)  # more than a launch costs: what is merged has to share something


def new(*shape: int) -> UOp:
  return UOp.new_buffer("CPU", int(np.prod(shape)), dtypes.float32).reshape(shape)


def stored(x: UOp) -> UOp:
  return new(*[int(s) for s in x.shape]).assign(x)


def total(x: UOp, *axes: int) -> UOp:
  return x.reduce_axes(Ops.ADD, axes)


def base(x: UOp) -> UOp:
  while x.op is not Ops.BUFFER:
    x = x.src[0]
  return x


def written(call: UOp) -> int:
  """How many results a call has."""
  return sum(u.op is Ops.STORE for u in call.src[0].toposort)


@pytest.fixture
def run(execute: Callable[[UOp, Memory], None], evaluate: Callable[[UOp, Memory], Array]) -> Run:
  def check(*roots: UOp) -> list[UOp]:
    sink = UOp.sink(*roots)
    rng = np.random.default_rng(0)
    buffers = [u for u in sink.toposort if u.op is Ops.BUFFER]
    memory: Memory = {u: rng.standard_normal(u.arg[1]).astype(np.float32) for u in buffers}
    wanted = [(root, evaluate(root, memory)) for root in roots]
    with Context(SPEC=2):
      linear = schedule(sink)
    execute(linear, memory)
    for root, want in wanted:
      np.testing.assert_allclose(memory[base(root)], want.reshape(-1), rtol=2e-4, atol=1e-4)
    return list(linear.src)

  return check


def test_sums_over_the_same_memory(run: Run) -> None:
  x, g = new(64, 256), new(64, 256)
  (call,) = run(stored(total(x * g, 1)), stored(total(g, 1)))
  loops = {u for u in call.src[0].toposort if u.op is Ops.RANGE}
  assert written(call) == 2 and len(loops) == 2  # one of rows, one of terms


def test_a_mean_and_the_variance_that_needs_it(run: Run) -> None:
  x = new(64, 256)
  mean = total(x, 1) * (1 / 256)
  d = x - mean.expand(x.shape)
  (call,) = run(stored(mean), stored(total(d * d, 1)))
  assert written(call) == 2


def test_moments_and_the_parameter_that_they_move(run: Run) -> None:
  p, g, m, v = (new(*LARGE) for _ in range(4))
  m1, v1 = m.assign(m * 0.9 + g * 0.1), v.assign(v * 0.99 + g * g * 0.01)
  (call,) = run(m1, v1, p.assign(p - m1 / ((v1 * v1).sqrt() + 1.0)))
  assert written(call) == 3 and len(call.src) == 5
  loads = [u for u in call.src[0].toposort if u.op is Ops.LOAD]
  assert len(loads) == 4  # each of the four is read once, nothing is read again after it was written


def test_what_nothing_else_reads_is_not_written(run: Run) -> None:
  x = new(*LARGE)
  y = (x + 1).contiguous()
  (call,) = run(stored(y * y), stored(y.exp()))
  assert written(call) == 2 and len(call.src) == 4


def test_what_others_read_is_written(run: Run) -> None:
  x = new(*LARGE)
  y = (x + 1).contiguous()
  first, second = run(stored(y * y), stored(total(y, 0)))
  assert written(first) == 2 and written(second) == 1


def test_large_kernels_that_share_nothing_stay_apart(run: Run) -> None:
  assert len(run(stored(new(*LARGE) + 1), stored(new(*LARGE) * 2))) == 2


def test_small_kernels_that_share_nothing_are_one_call(run: Run) -> None:
  (call,) = run(stored(new(64) + 1), stored(new(64) * 2), stored(new(64) * 3))
  assert written(call) == 3


def test_other_elements_of_a_result_wait_for_it(run: Run) -> None:
  x = new(64)
  y = stored(x * 2)
  assert len(run(y, stored(y.flip((0,)) + x))) == 2


def test_other_elements_are_read_before_they_are_overwritten(run: Run) -> None:
  x, y = new(64), new(64)
  assert len(run(stored(x.flip((0,)) + y), x.assign(y * 2))) == 2


def test_the_same_elements_are_read_before_they_are_overwritten(run: Run) -> None:
  x, y = new(64), new(64)
  (call,) = run(stored(x + y), x.assign(x + y * 2))
  assert written(call) == 2


def test_what_lies_between_is_not_overtaken(run: Run) -> None:
  x, y = new(64), new(64)
  first = stored(x * 2)
  between = stored(total(first, 0))
  calls = run(first, between, y.assign(between.expand((64,)) + x))
  assert len(calls) == 3


def test_matrix_products_stay_alone(run: Run) -> None:
  a, b = new(32, 1, 64), new(1, 32, 64)
  product = total(a.expand((32, 32, 64)) * b.expand((32, 32, 64)), 2)
  other = total((a.expand((32, 32, 64)) + 1) * b.expand((32, 32, 64)), 2)
  assert len(run(stored(product), stored(other))) == 2


def test_short_sums_leave_the_vectors_of_elementwise_kernels_alone(run: Run) -> None:
  x, y = new(32768), new(32768, 4)
  assert len(run(stored(x + 1), stored(total(y, 1).reshape((32768,)) + x))) == 2


def test_a_call_has_a_limited_number_of_arguments(run: Run) -> None:
  x = new(64)
  calls = run(*[stored(x * k) for k in range(2, 2 * MOST_REGIONS)])
  assert len(calls) == 2 and max(len(call.src) - 1 for call in calls) == MOST_REGIONS
