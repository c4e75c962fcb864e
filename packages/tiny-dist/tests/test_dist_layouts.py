"""Tensors on several ranks: every layout rule, against NumPy."""

from __future__ import annotations

import pytest
from dist_ranks import lines, ranks


@pytest.mark.parametrize("count", [1, 2, 4])
def test_layouts(count: int) -> None:
  assert lines(ranks(count, "layouts.py")) == [f"layouts are right on {i}" for i in range(count)]
