"""Attention in kernels of blocks against PyTorch's, of sizes at which it is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tiny_tensor import Tensor
from tiny_tensor.nn import functional
from tiny_tensor.realize import plan_tensors

torch: Any = pytest.importorskip("torch")


@pytest.mark.parametrize("kind", ["causal", "mask", "bias", "groups", "half"])
def test_attention(kind: str) -> None:
  rng = np.random.default_rng(0)
  heads, length, seen, size = 4, 257, 320 if kind in ("mask", "bias") else 257, 32
  keys = 2 if kind == "groups" else heads
  shapes = (rng.standard_normal((2, h, t, size)) for h, t in ((heads, length), (keys, seen), (keys, seen)))
  given = [x.astype(np.float16 if kind == "half" else np.float32) for x in shapes]
  options: dict[str, Any] = {"is_causal": kind in ("causal", "half"), "enable_gqa": kind == "groups"}
  mask: Any = None
  if kind in ("mask", "bias"):
    mask = rng.random((length, seen)) < 0.5 if kind == "mask" else rng.standard_normal((length, seen)).astype("f4")
  q, k, v = (Tensor(x) for x in given)
  got = functional.scaled_dot_product_attention(q, k, v, None if mask is None else Tensor(mask), scale=0.3, **options)
  assert any(call.src[0].arg.name.startswith("softmax_") for call in plan_tensors([got])[0].src)
  want = torch.nn.functional.scaled_dot_product_attention(
    *[torch.from_numpy(x) for x in given], attn_mask=None if mask is None else torch.from_numpy(mask), scale=0.3,
    **options,
  )  # fmt: skip
  error = 2e-3 if kind == "half" else 2e-6
  np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=error, atol=error)


def test_gradients_where_some_see_nothing() -> None:
  """Results and gradients of these are 0, not 0/0."""
  rng = np.random.default_rng(0)
  given = [rng.standard_normal((1, 2, 256, 16)).astype(np.float32) for _ in range(3)]
  mask = rng.random((256, 256)) < 0.5
  mask[::7] = False
  ours = [Tensor(x).realize().requires_grad_() for x in given]
  q, k, v = ours
  got = functional.scaled_dot_product_attention(q, k, v, Tensor(mask).realize())
  got.square().sum().backward()
  found = [got, *[x.grad for x in ours if x.grad is not None]]
  names = [call.src[0].arg.name for call in plan_tensors(found)[0].src]
  assert len([name for name in names if name.startswith("softmax_")]) == 3
  got.realize(*found[1:])
  theirs = [torch.tensor(x, requires_grad=True) for x in given]
  want = torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=torch.from_numpy(mask))
  want.square().sum().backward()
  for a, b in zip(found, [want.detach(), *[x.grad for x in theirs]], strict=True):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)
