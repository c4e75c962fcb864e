"""Ranks, products, distances and angles against PyTorch, on the device that DEVICE names (default CPU)."""

from __future__ import annotations

import math
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
  *same("kthvalue", lambda x: x.kthvalue(2, 0)[0], None, ((3, 5),)),
  *same("median", lambda x: x.median(1)[0], None, ((3, 6),)),
  *same("median_all", lambda x: x.median(), None, ((3, 5),)),
  *same("quantile", lambda x: x.quantile(0.3, 1), None, ((3, 5),)),
  *same(
    "quantiles",
    lambda x: x.quantile(Tensor([0.1, 0.8]), 0, keepdim=True),
    lambda x: x.quantile(torch.tensor([0.1, 0.8]), 0, keepdim=True),
    ((4, 3),),
  ),
  *same("outer", lambda x, y: x.outer(y), None, ((3,), (4,))),
  *same("cross", lambda x, y: x.cross(y, dim=1), None, ((4, 3, 2), (4, 3, 2))),
  *same("kron", lambda x, y: x.kron(y), None, ((2, 3), (2, 2)), ((3,), (2, 2))),
  *same("trace", lambda x: x.trace(), None, ((3, 5),)),
  *same(
    "tensordot",
    lambda x, y: x.tensordot(y, ([0, 2], [1, 0])),
    lambda x, y: torch.tensordot(x, y, ([0, 2], [1, 0])),
    ((2, 3, 4), (4, 2, 5)),
  ),
  *(
    row
    for p in (1.0, 2.0, 3.0, math.inf)
    for row in same(
      f"cdist_{p}", lambda x, y, p=p: x.cdist(y, p), lambda x, y, p=p: torch.cdist(x, y, p), ((2, 3, 4), (2, 5, 4))
    )
  ),
  *same("as_strided", lambda x: x.as_strided((3, 3), (2, 1), 1), None, ((3, 4),)),
  *same("atan2", lambda x, y: x.atan2(y), None, ((4, 5), (4, 5))),
  *same("log1p", lambda x: x.log1p(), None, low=-0.9, high=4),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_forward_and_backward(row: Row) -> None:
  check_forward_and_backward(row)
