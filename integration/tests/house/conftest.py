"""Rules of this repository are looked up in trees of all its sources."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def trees_are_not_collected() -> Iterator[None]:
  """Millions of nodes that are in no cycle: looking for garbage among them again and again takes longer than making
  them."""
  gc.disable()
  yield
  gc.enable()
