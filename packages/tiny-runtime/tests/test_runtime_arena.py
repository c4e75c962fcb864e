"""Memory that temporaries of a captured graph share."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest

from tiny_runtime import Buffer, CapturedGraph, GlobalCounters, buffer_of, capture, run
from tiny_runtime.execution.arena import ALIGNMENT, Lifetime, plan
from tiny_uop import Ops, UOp, dtypes


def needs_of(*needs: tuple[int, Lifetime]) -> dict[Buffer, tuple[int, Lifetime]]:
  return {Buffer("REF", nbytes, dtypes.uint8): (nbytes, life) for nbytes, life in needs}


def test_buffers_that_live_one_after_the_other_share_a_place() -> None:
  needs = needs_of((1000, (0, 1)), (1000, (1, 2)), (1000, (2, 3)), (100, (0, 3)))
  offsets, size = plan(needs)
  a, b, c, d = offsets.values()
  assert a == c != b and size == 2 * 1024 + ALIGNMENT and len({a, b, d}) == 3
  assert plan({}) == ({}, 0)


@pytest.mark.parametrize("seed", range(20))
def test_places_never_overlap_while_both_live(seed: int) -> None:
  chosen = random.Random(seed)
  lives = [sorted((chosen.randrange(30), chosen.randrange(30))) for _ in range(40)]
  needs = needs_of(*[(chosen.choice([0, 1, 128, 1000, 5000]), (first, last)) for first, last in lives])
  offsets, size = plan(needs)
  spans = [(offsets[b], offsets[b] + max(1, nbytes), life) for b, (nbytes, life) in needs.items()]
  assert all(start % ALIGNMENT == 0 and 0 <= start < end <= size for start, end, _ in spans)
  for n, (start, end, life) in enumerate(spans):
    for other, stop, others in spans[:n]:
      assert end <= other or stop <= start or life[1] < others[0] or others[1] < life[0]


def test_replays_with_shared_memory(kernels: Any) -> None:
  size, gone = 1000, []
  x, y = kernels.buffer([0.0] * size), kernels.buffer(size=size)
  with capture() as captured:
    last = x
    for n in range(10):
      following = kernels.buffer(size=size)
      run(kernels.linear(kernels.add(following, last, float(n))))
      gone.append(following)
      last = following
    part = UOp(Ops.BUFFER_VIEW, dtypes.float32, (last,), (4, size - 1))
    run(
      kernels.linear(
        kernels.add(y, last, 0.5), kernels.copy(UOp(Ops.BUFFER_VIEW, dtypes.float32, (y,), (0, size - 1)), part)
      )
    )
  del last, following, part
  before = GlobalCounters.mem_used
  graph = CapturedGraph(captured, [x], [y], gone)
  for value in (1.0, 5.0):
    (out,) = graph.replay([kernels.buffer([value] * size)])
    assert kernels.values(out) == [value + 45.0] * (size - 1) + [value + 45.5]
  gc.collect()
  assert GlobalCounters.mem_used <= before - 4 * 4 * size
  with pytest.raises(RuntimeError, match="freed"):
    buffer_of(gone[0]).read()


def test_inputs_outputs_and_what_was_there_before_do_not_share(kernels: Any) -> None:
  x, w, t, y = kernels.buffer([1.0]), kernels.buffer([2.0]), kernels.buffer(size=1), kernels.buffer(size=1)
  with capture() as captured:
    run(kernels.linear(kernels.increment(w), kernels.add(t, x), kernels.add(y, t)))
  graph = CapturedGraph(captured, [x], [y], [x, w, t, y])
  for n in range(3):
    (out,) = graph.replay([kernels.buffer([float(n)])])
    assert kernels.values(out) == [n + 2.0] and kernels.values(w) == [n + 4.0]
  assert kernels.values(y) == [3.0]
  with pytest.raises(RuntimeError, match="was freed"):  # one temporary alone is in the arena as well
    kernels.values(t)
