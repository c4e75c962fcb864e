"""What these tests schedule and compile is printed and parsed back on the side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tiny_uop.golden import round_trips_checked


@pytest.fixture(autouse=True, scope="session")
def graphs_round_trip() -> Iterator[None]:
  with round_trips_checked():
    yield
