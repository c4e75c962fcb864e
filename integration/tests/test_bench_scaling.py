"""The simulation of how kernels divide among many processors."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from scaling import Kernel, Machine, simulate

EVEN = Kernel("even", 256, 64e6, 4000, 1 << 20)


@pytest.mark.parametrize("threads", [2, 16, 64])
def test_even_parts_take_as_long_as_they_should(threads: int) -> None:
  made = simulate(EVEN, threads, Machine())
  assert made.nanoseconds == pytest.approx(EVEN.nanoseconds / threads, rel=0.02) and 0 < made.imbalance < 0.02
  assert made.claims == 4 * threads + threads


def test_threads_without_a_part_are_waited_for() -> None:
  eight = replace(EVEN, extent=8)
  assert simulate(eight, 8, Machine()).imbalance < 0.02
  assert simulate(eight, 16, Machine()).imbalance == pytest.approx(1.0, rel=0.02)
  assert simulate(replace(EVEN, extent=20), 16, Machine()).imbalance == pytest.approx(0.6, rel=0.02)


def test_one_thread_needs_nobody() -> None:
  alone = simulate(replace(EVEN, useful=1), 64, Machine())
  assert (alone.nanoseconds, alone.imbalance, alone.claims) == (EVEN.nanoseconds, 0.0, 0)


def test_sockets_keep_to_their_memory() -> None:
  """Unless one has nothing left to do: with slow cores, others take their parts."""
  assert simulate(EVEN, 16, Machine(1)).far == 0 and simulate(EVEN, 16, Machine(2)).far < 0.02
  assert simulate(EVEN, 16, Machine(2, slow=8)).far > 0.1


def test_claims_wait_for_each_other() -> None:
  """128 threads with parts of 30 ns: the counter is slower than the work."""
  tiny = Kernel("tiny", 512, 512 * 30.0, 128, 1 << 10)
  assert simulate(tiny, 128, Machine()).nanoseconds > 512 * Machine().shared
