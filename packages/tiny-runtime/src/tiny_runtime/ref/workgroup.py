"""Threads of a workgroup, which wait for each other at barriers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def run_workgroup(threads: Sequence[Iterator[None]]) -> None:
  """Run the threads, generators that yield at each barrier: all of them up to a barrier before any goes on.

  Raises RuntimeError for a barrier that only some of the threads reach, where hardware would hang or go on too early.
  """
  waiting = list(threads)
  while waiting:
    arrived = [thread for thread in waiting if next(thread, True) is None]
    if arrived and len(arrived) < len(waiting):
      raise RuntimeError(f"{len(arrived)} of {len(waiting)} threads wait at a barrier that the others never reach")
    waiting = arrived
