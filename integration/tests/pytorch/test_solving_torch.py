"""Linear equations and factors of matrices against PyTorch, on the device that DEVICE names (default CPU)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from torch_rows import Row, check_forward_and_backward, same, torch

from tiny_tensor import Context, Tensor

DEVICE = os.environ.get("DEVICE") or "CPU"


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
  with Context(DEVICE=DEVICE):
    yield


ROWS = [
  *same(
    "solve",
    lambda a, b: a.solve(b),
    torch.linalg.solve,
    ((4, 4), (4, 2)),
    ((2, 3, 3), (3, 1)),
    ((2, 2), (2,)),
    tolerance=2e-4,
  ),
  *same("inverse", lambda a: a.inverse(), None, ((4, 4),), ((2, 3, 3),), tolerance=2e-4),
  *same("det", lambda a: a.det(), None, ((4, 4),), ((2, 3, 3),), ((1, 1),), tolerance=2e-4),
  *same(
    "cholesky",
    lambda a: (a @ a.transpose(-2, -1) + Tensor.eye(4)).cholesky(),
    lambda a: torch.linalg.cholesky(a @ a.transpose(-2, -1) + torch.eye(4)),
    ((4, 4),),
    ((2, 4, 4),),
    tolerance=2e-4,
  ),
  *same(
    "lstsq",
    lambda a, b: a.lstsq(b),
    lambda a, b: torch.linalg.lstsq(a, b).solution,
    ((4, 2), (4, 1)),
    ((2, 4), (2, 1)),
    tolerance=5e-4,
  ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_forward_and_backward(row: Row) -> None:
  check_forward_and_backward(row)
