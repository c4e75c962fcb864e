"""`nn.functional`: what it adds to the methods. Values are compared with PyTorch's in integration/tests."""

from __future__ import annotations

import inspect
import itertools
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tiny_tensor.nn.functional as F
from tiny_tensor import Context, Tensor, nn


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def test_functions_over_any_number_of_axes_look_like_their_own() -> None:
  assert F.conv2d.__name__ == F.conv2d.__qualname__ == "conv2d" and pickle.loads(pickle.dumps(F.conv2d)) is F.conv2d
  names = ["input", "weight", "bias", "stride", "padding", "dilation", "groups"]
  assert list(inspect.signature(F.conv2d).parameters) == names
  assert "divisor_override" in inspect.signature(F.avg_pool2d).parameters
  assert "divisor_override" not in inspect.signature(F.avg_pool1d).parameters
  with pytest.raises(TypeError, match="convN.*stride"):
    F.conv1d(Tensor.ones(1, 1, 3), Tensor.ones(1, 1, 3), strides=2, stride=1)  # type: ignore[call-arg]


def test_layers_have_the_arguments_of_their_functions() -> None:
  assert list(inspect.signature(nn.MaxPool2d).parameters)[:2] == ["kernel_size", "stride"]
  assert [p.kind for p in inspect.signature(nn.HuberLoss).parameters.values()] == [inspect.Parameter.KEYWORD_ONLY] * 3
  assert inspect.getdoc(nn.ReLU6) == f"`functional.relu6`: {F.relu6.__doc__}"

  class Doubled(nn.ReLU):
    """A subclass keeps the function, and has its own text."""

  assert Doubled()(Tensor([-1.0, 2.0])).tolist() == [0.0, 2.0] and "own text" in (Doubled.__doc__ or "")
  with pytest.raises(TypeError, match="positional"):
    nn.L1Loss("sum")  # type: ignore[call-arg]
  with pytest.raises(TypeError, match="L1Loss.*'reduced'"):
    nn.L1Loss(reduced="sum")


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


def test_sums_of_rows() -> None:
  """Bags in rows, bags one after the other, and a bag of nothing."""
  table = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
  weight, numbers = Tensor(table), [1, 2, 2, 5, 0]
  bags = [[1, 2], [], [2, 5, 0]]
  for mode, combine in (("sum", np.sum), ("mean", np.mean), ("max", np.max)):
    expected = [combine(table[bag], 0) if bag else np.zeros(3) for bag in bags]
    got = F.embedding_bag(Tensor(numbers), weight, Tensor([0, 2, 2]), mode=mode)
    np.testing.assert_allclose(got.numpy(), np.array(expected), rtol=1e-6)
    ends = F.embedding_bag(Tensor(numbers), weight, Tensor([0, 2, 2, 5]), mode=mode, include_last_offset=True)
    np.testing.assert_array_equal(ends.numpy(), got.numpy())
  layer = nn.EmbeddingBag(6, 3, mode="sum", padding_idx=-1)
  layer.weight = Tensor(table)
  found = layer(Tensor([[1, 5], [2, 0]]), per_sample_weights=Tensor([[2.0, 3.0], [1.0, -1.0]]))
  np.testing.assert_allclose(found.numpy(), [2 * table[1], table[2] - table[0]], rtol=1e-6)
  with pytest.raises(NotImplementedError, match="no max_norm"):
    F.embedding_bag(Tensor(numbers), weight, Tensor([0]), max_norm=1.0)
  with pytest.raises(ValueError, match=r"rows \(n,\) and offsets, got shape \(5,\)"):
    F.embedding_bag(Tensor(numbers), weight)


def test_ctc_loss_is_the_sum_over_alignments() -> None:
  logs = Tensor(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)).log_softmax(-1)
  values, label = logs.numpy().astype(np.float64), (1, 1)
  total = 0.0
  for path in itertools.product(range(3), repeat=4):
    said = tuple(c for c, before in zip(path, (0, *path), strict=False) if c and c != before)
    total += math.exp(sum(values[t, c] for t, c in enumerate(path))) if said == label else 0.0
  got = F.ctc_loss(logs, Tensor(label), [4], [2], reduction="sum")
  assert got.item() == pytest.approx(-math.log(total), rel=1e-5)
  with pytest.raises(ValueError, match="2 sequences need as many input_lengths, got 1"):
    F.ctc_loss(Tensor.zeros(3, 2, 4), Tensor([[1], [1]]), [3], [1, 1])


def test_windows_at_random_end_with_the_image() -> None:
  Tensor.manual_seed(0)
  x = Tensor.arange(49.0).reshape(1, 1, 7, 7)
  out, places = F.fractional_max_pool2d(x, 2, output_ratio=0.6, return_indices=True)
  assert out.shape == (1, 1, 4, 4) and out[0, 0, -1, -1].item() == 48 and places.tolist() == out.int().tolist()
  with pytest.raises(ValueError, match="output_size or output_ratio, and not both"):
    F.fractional_max_pool2d(x, 2)


def test_low_rank_factors() -> None:
  rng = np.random.default_rng(0)
  a = (rng.standard_normal((7, 2)) @ rng.standard_normal((2, 5))).astype(np.float32)
  u, s, v = Tensor(a).svd_lowrank(3)
  assert u.shape == (7, 3) and v.shape == (5, 3)
  np.testing.assert_allclose(((u * s) @ v.transpose(0, 1)).numpy(), a, atol=1e-5)
  directions = Tensor(a).pca_lowrank(2)[2].numpy()
  centred = a - a.mean(0)
  np.testing.assert_allclose(centred @ directions @ directions.T, centred, atol=1e-5)
