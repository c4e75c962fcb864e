"""`nn.functional`: what it adds to the methods. Values are compared with PyTorch's in integration/tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tiny_tensor.nn.functional as F
from tiny_tensor import Context, Tensor


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def test_inplace_also_assigns() -> None:
  x = Tensor([-1.0, 2.0])
  assert F.relu(x).tolist() == [0.0, 2.0] and x.tolist() == [-1.0, 2.0]
  assert F.relu(x, inplace=True).tolist() == [0.0, 2.0] and x.tolist() == [0.0, 2.0]


def test_dropout_keeps_the_mean_of_what_it_is_told() -> None:
  x = Tensor.ones(64, 32)
  Tensor.manual_seed(0)
  assert F.dropout(x, 0.5, training=False) is x
  out = F.dropout(x, 0.25).numpy()
  assert set(np.unique(out)) == {np.float32(0), np.float32(1 / 0.75)} and abs(out.mean() - 1) < 0.06
  channels = F.dropout2d(Tensor.ones(16, 8, 3, 3), 0.5).numpy().reshape(128, 9)
  assert all(len(set(row)) == 1 for row in channels)
  with pytest.raises(ValueError, match="between 0 and 1, got 2"):
    F.dropout(x, 2)


def test_fold_is_the_transpose_of_unfold() -> None:
  rng = np.random.default_rng(0)
  x = Tensor(rng.standard_normal((2, 3, 7, 6)).astype(np.float32))
  options = {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (1, 0), "stride": (2, 1)}
  columns = F.unfold(x, **options)
  y = Tensor(rng.standard_normal(tuple(columns.shape)).astype(np.float32))
  back = F.fold(y, (7, 6), **options)
  assert back.shape == x.shape
  assert (columns * y).sum().item() == pytest.approx((x * back).sum().item(), rel=1e-4)


def test_padding_same_keeps_the_size() -> None:
  x, w = Tensor.ones(1, 1, 6), Tensor.ones(1, 1, 4)
  assert F.conv1d(x, w, padding="same").tolist() == [[[3.0, 4.0, 4.0, 4.0, 3.0, 2.0]]]
  with pytest.raises(ValueError, match="'same' needs stride 1, got 2"):
    F.conv1d(x, w, stride=2, padding="same")


def test_running_statistics_move() -> None:
  x = Tensor([[1.0], [3.0]])
  mean, var = Tensor([0.0]).contiguous().realize(), Tensor([1.0]).contiguous().realize()
  assert F.batch_norm(x, mean, var, training=True, eps=0).tolist() == [[-1.0], [1.0]]
  assert mean.tolist() == pytest.approx([0.2]) and var.tolist() == pytest.approx([0.9 + 0.1 * 2])


def test_samples_on_the_grid_are_the_pixels() -> None:
  x = Tensor(np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4))
  grid = F.affine_grid(Tensor([[[1.0, 0, 0], [0, 1, 0]]]), (1, 1, 3, 4))
  for mode in ("bilinear", "nearest", "bicubic"):
    np.testing.assert_allclose(F.grid_sample(x, grid, mode).numpy(), x.numpy(), atol=1e-5)


def test_embedding_leaves_the_padding_alone() -> None:
  w = Tensor([[1.0], [2.0], [3.0]], requires_grad=True)
  F.embedding(Tensor([0, 2, 2]), w, padding_idx=-1).sum().backward()
  assert w.grad is not None and w.grad.tolist() == [[1.0], [0.0], [0.0]]


def test_errors_name_what_is_wrong() -> None:
  with pytest.raises(ValueError, match="'none' or 'tanh', got 'fast'"):
    F.gelu(Tensor([1.0]), "fast")
  with pytest.raises(ValueError, match="even size, got 3"):
    F.glu(Tensor.ones(3))
  with pytest.raises(ValueError, match="one of size and scale_factor"):
    F.interpolate(Tensor.ones(1, 1, 4))
  assert math.isclose(float(F.mse_loss(Tensor([1.0, 2.0]), Tensor([0.0, 0.0]))), 2.5)


MISTAKES: list[tuple[str, Callable[[Tensor], Any]]] = [
  ("at most half of the window", lambda x: F.avg_pool1d(x, 2, padding=2)),
  ("must not be negative", lambda x: F.max_pool1d(x, 2, padding=-1)),
  ("divisor_override", lambda x: F.avg_pool2d(x, 2, divisor_override=0)),
  ("output_size must not be negative", lambda x: F.adaptive_avg_pool1d(x, -1)),
  (r"takes \(n, c, size…\)", lambda x: F.adaptive_max_pool2d(Tensor.ones(2, 2), 2)),
  ("nor one per channel", lambda x: F.prelu(x, Tensor.ones(2))),
  ("lower=1", lambda x: F.rrelu(x, 1, 0)),
  ("min_val=1", lambda x: F.hardtanh(x, 1, 0)),
  ("margin must be positive", lambda x: F.triplet_margin_loss(x, x, x, margin=-1)),
  ("no labels", lambda x: F.multi_margin_loss(Tensor.ones(5, 4), Tensor.ones(5))),
  (r"\(count, size\)", lambda x: F.embedding(Tensor([1]), x)),
]


@pytest.mark.parametrize(("what", "call"), MISTAKES, ids=[what for what, _ in MISTAKES])
def test_mistakes_are_told(what: str, call: Callable[[Tensor], Any]) -> None:
  with pytest.raises(ValueError, match=what):
    call(Tensor.ones(1, 1, 4))
