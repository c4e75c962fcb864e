"""What several tests ask of this process."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def rests(window: float = 0.2, most: float = 0.005) -> bool:
  """Whether this process soon uses no processor time: at most `most` seconds in a window of as many. Threads on a busy
  machine may be late to notice that there is nothing to do; those that spin are seen in every window for ten seconds.
  """
  deadline = time.monotonic() + 10
  while time.monotonic() < deadline:
    before = time.process_time()
    time.sleep(window)
    if time.process_time() - before < most:
      return True
  return False


@pytest.fixture
def comes_to_rest() -> Callable[[], bool]:
  return rests
