"""What PyTorch's operator samples leave to chance, or have only without derivatives: alignments, windows, attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import tiny_tensor.nn.functional as F  # noqa: E402
from tiny_tensor import Context, Tensor  # noqa: E402

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def normal(*shape: int) -> Any:
  return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("steps", [9, 2])
def test_ctc_loss(steps: int) -> None:
  """Behind a log_softmax derivatives are PyTorch's; two steps are too few for the first sequence."""
  scores = normal(steps, 3, 5)
  targets, times, counts = np.array([[1, 1, 2, 3], [4, 2, 0, 0], [1, 0, 0, 0]]), [steps, steps - 1, 2], [4, 2, 1]
  ours, theirs = Tensor(scores, requires_grad=True), torch.tensor(scores, requires_grad=True)
  for reduction in ("none", "mean"):
    expected = torch.nn.functional.ctc_loss(
      theirs.log_softmax(2), torch.from_numpy(targets), times, counts, reduction=reduction
    )
    got = F.ctc_loss(ours.log_softmax(2), Tensor(targets), times, counts, reduction=reduction)
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=1e-4)
  joined = np.concatenate([row[:n] for row, n in zip(targets, counts, strict=True)])
  found = F.ctc_loss(ours.log_softmax(2), Tensor(joined), Tensor(times), Tensor(counts), zero_infinity=True)
  expected = torch.nn.functional.ctc_loss(
    theirs.log_softmax(2), torch.from_numpy(targets), times, counts, zero_infinity=True
  )
  assert found.item() == pytest.approx(expected.item(), rel=1e-4)
  slope = found.gradient(ours)[0].numpy()
  np.testing.assert_allclose(slope, torch.autograd.grad(expected, theirs)[0].numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("axes", [2, 3])
def test_windows_that_begin_at_given_places(axes: int) -> None:
  x, places = normal(2, 3, *[9, 8, 7][:axes]), RNG.uniform(0, 1, (2, 3, axes)).astype(np.float32)
  name = f"fractional_max_pool{axes}d"
  options = {"output_size": (5, 4, 3)[:axes], "return_indices": True}
  found = getattr(F, name)(Tensor(x), (2, 3, 2)[:axes], _random_samples=Tensor(places), **options)
  expected = getattr(torch.nn.functional, name)(
    torch.from_numpy(x), (2, 3, 2)[:axes], _random_samples=torch.from_numpy(places), **options
  )
  for got, wanted in zip(found, expected, strict=True):
    np.testing.assert_array_equal(got.numpy(), wanted.numpy())


@pytest.mark.parametrize("further", [False, True])
def test_attention_with_masks_and_derivatives(further: bool) -> None:
  length, seen, n, size = 3, 5, 2, 4
  names = ("query", "key", "value", "weight", "bias", "out_weight", "out_bias", "bias_k", "bias_v")
  shapes = ((length, n, size), (seen, n, size), (seen, n, size), (12, 4), (12,), (4, 4), (4,), (1, 1, 4), (1, 1, 4))
  data = {name: normal(*shape) for name, shape in zip(names, shapes, strict=True)}
  hidden, padding = RNG.uniform(0, 1, (length, seen)) < 0.3, np.array([[False] * 5, [False] * 3 + [True] * 2])

  def attended(attention: Callable[..., Any], tensors: dict[str, Any], make: Callable[[Any], Any]) -> Any:
    t = tensors
    extra = (t["bias_k"], t["bias_v"], True) if further else (None, None, False)
    return attention(
      *(t[name] for name in ("query", "key", "value")), size, 2, t["weight"], t["bias"], *extra, 0.0,
      t["out_weight"], t["out_bias"], key_padding_mask=make(padding), attn_mask=make(hidden),
      average_attn_weights=not further,
    )  # fmt: skip

  ours = {name: Tensor(array, requires_grad=True) for name, array in data.items()}
  theirs = {name: torch.tensor(array, requires_grad=True) for name, array in data.items()}
  found = attended(F.multi_head_attention_forward, ours, Tensor)
  expected = attended(torch.nn.functional.multi_head_attention_forward, theirs, torch.from_numpy)
  for got, wanted in zip(found, expected, strict=True):
    np.testing.assert_allclose(got.numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
  used = names if further else names[:-2]
  slopes = (found[0] * found[0]).sum().gradient(*[ours[name] for name in used])
  wanted_slopes = torch.autograd.grad((expected[0] * expected[0]).sum(), [theirs[name] for name in used])
  for name, got, wanted in zip(used, slopes, wanted_slopes, strict=True):
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-3, atol=1e-4, err_msg=name)
