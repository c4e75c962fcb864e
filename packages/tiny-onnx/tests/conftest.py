"""The device of these tests: the reference, whose small kernels need no compiler, unless the environment names one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiny_tensor import Context, Tensor

sys.path.insert(0, str(Path(__file__).parent))  # helpers shared by the test files


@pytest.fixture(autouse=True)
def small_kernels() -> Iterator[None]:
  with Context(DEVICE=os.environ.get("DEVICE") or "REF"):
    yield


@pytest.fixture(autouse=True)
def seeded() -> None:
  """Random tensors are the same in each run of a test, whichever tests ran before."""
  Tensor.manual_seed(0)
