"""Helpers that tests share lie beside them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tiny_tensor import Tensor

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def seeded() -> None:
  """Random tensors are the same in each run of a test, whichever tests ran before."""
  Tensor.manual_seed(0)
