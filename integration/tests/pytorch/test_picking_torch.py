"""Taking, adding and counting by index or by value against PyTorch, on the device that DEVICE names (default CPU)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from torch_rows import Row, check_forward_and_backward, same, torch

from tiny_tensor import Context, Tensor

DEVICE = os.environ.get("DEVICE") or "CPU"
AT = [2, 0, 2]


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
  with Context(DEVICE=DEVICE):
    yield


ROWS = [
  *same(
    "index_select", lambda x: x.index_select(1, Tensor(AT)), lambda x: x.index_select(1, torch.tensor(AT)), ((2, 3),)
  ),
  *same(
    "take_along_dim",
    lambda x: x.take_along_dim(Tensor([[2, 0]]), 1),
    lambda x: x.take_along_dim(torch.tensor([[2, 0]]), 1),
    ((4, 3),),
  ),
  *same(
    "index_add",
    lambda x, y: x.index_add(0, Tensor(AT), y, alpha=0.5),
    lambda x, y: x.index_add(0, torch.tensor(AT), y, alpha=0.5),
    ((4, 2), (3, 2)),
  ),
  *same(
    "scatter_add",
    lambda x, y: x.scatter_add(1, Tensor([[0, 0, 1]]), y),
    lambda x, y: x.scatter_add(1, torch.tensor([[0, 0, 1]]), y),
    ((3, 4), (1, 3)),
  ),
  *same(
    "searchsorted",
    lambda x, y: x.sort()[0].searchsorted(y),
    lambda x, y: torch.searchsorted(x.sort()[0], y),
    ((9,), (2, 5)),
    ((2, 7), (2, 3)),
    grad=False,
  ),
  *same("unique", lambda x: (x * 2).round().unique(), None, ((5, 6),), grad=False),
  *same(
    "unique_inverse",
    lambda x: (x * 2).round().unique(return_inverse=True)[1],
    lambda x: (x * 2).round().unique(return_inverse=True)[1],
    ((5, 6),),
    grad=False,
  ),
  *same("bincount", lambda x: (x * 9).int().bincount(minlength=12), None, ((50,),), grad=False, low=0, high=1),
  *same("step", lambda x: x[::2], None, ((7,),), ((8, 2),)),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_forward_and_backward(row: Row) -> None:
  check_forward_and_backward(row)


@pytest.mark.parametrize("kind", ["float32", "float16", "float64", "int8", "uint8", "int64"])
def test_medians_and_kth_values_with_ties(kind: str) -> None:
  rng = np.random.default_rng(0)
  a = rng.integers(0 if kind == "uint8" else -3, 4, (4, 37))
  a[2, :9] = 1 if kind.startswith("f") else np.iinfo(kind).max
  a = a.astype(kind)
  if kind.startswith("f"):
    a[0, :6] = np.inf, -np.inf, -0.0, 0.0, np.nan, np.nan
    a[1, 3:5] = np.inf, -np.inf
  order = np.argsort(a, -1, kind="stable")
  rows = np.arange(len(a))
  for k in (1, 19, 37):
    values, places = Tensor(a).kthvalue(k)
    np.testing.assert_array_equal(places.numpy(), order[:, k - 1])
    np.testing.assert_array_equal(values.numpy(), torch.from_numpy(a).kthvalue(k)[0].numpy())
  for x, t, axis in ((Tensor(a), torch.from_numpy(a), 1), (Tensor(a).T, torch.from_numpy(a).T, 0)):
    values, places = x.median(axis)
    np.testing.assert_array_equal(values.numpy(), t.median(axis)[0].numpy())
    np.testing.assert_array_equal(values.numpy(), a[rows, places.numpy()])
    if kind.startswith("f"):
      assert places.numpy()[0] == 4  # the first NaN
