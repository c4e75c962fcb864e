"""The simulation of how kernels divide among many processors."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from scaling import Kernel, Machine, lengths, simulate

EVEN = Kernel("even", 256, 64e6, 4000, 1 << 20)


@pytest.mark.parametrize(("extent", "parts"), [(224, 128), (29, 16), (7, 7), (1000, 96)])
@pytest.mark.parametrize("shares", [2, 3, 16])
def test_shares_of_a_division_are_even(extent: int, parts: int, shares: int) -> None:
  """Longer parts are in all of them, and each part has an iteration."""
  of = [lengths(extent, parts, share, shares) for share in range(shares)]
  assert sum(map(sum, of)) == extent and sum(map(len, of)) == parts and all(n > 0 for part in of for n in part)
  each = extent / parts
  assert all(abs(sum(part) - each * len(part)) < 1 for part in of)


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
  """Threads with parts of 30 ns: a counter is slower than the work of the 8 that share it, and more have others."""
  tiny = Kernel("tiny", 512, 512 * 30.0, 128, 1 << 10)
  awake = Machine(wake=0.0, woken=0.0)
  assert simulate(replace(tiny, extent=32), 8, awake).nanoseconds > 32 * Machine().shared
  assert simulate(tiny, 128, awake).nanoseconds < 512 * Machine().shared / 10
