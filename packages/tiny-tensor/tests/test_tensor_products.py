"""Sums of products of narrow types: the products are as exact as the sums."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tiny_runtime import capture
from tiny_tensor import Context, Tensor, dtypes
from tiny_uop import Ops

PRODUCTS: list[Callable[[Tensor, Tensor], Tensor]] = [
  lambda a, b: a @ b,
  lambda a, b: Tensor.einsum("ij,jk->ik", a, b),
  lambda a, b: a.reshape(1, 1, 1, 8, 16).conv2d(b.T.reshape(4, 1, 1, 1, 16)).reshape(4, 8).T,
]


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


@pytest.mark.parametrize("product", PRODUCTS, ids=["matmul", "einsum", "conv2d"])
@pytest.mark.parametrize(("dtype", "unit"), [("bfloat16", 2.0**-8), ("float16", 2.0**-11)])
def test_products_of_halves_are_not_rounded(
  product: Callable[[Tensor, Tensor], Tensor], dtype: str, unit: float
) -> None:
  # (1 + u)² − 1 − 2u is u², which is lost if the first product is rounded to the narrow type
  step = 2 * unit
  a, b = np.zeros((8, 16), np.float32), np.zeros((16, 4), np.float32)
  a[:, 0], b[0] = 1 + step, 1 + step
  a[:, 1], b[1] = -1, 1
  a[:, 2], b[2] = -2 * step, 1
  result = product(Tensor(a).cast(dtype), Tensor(b).cast(dtype))
  assert result.dtype is dtypes.parse(dtype)
  np.testing.assert_array_equal(result.cast("float32").numpy(), np.full((8, 4), step * step, np.float32))


def test_products_of_bytes_fit_into_the_type_that_is_asked_for() -> None:
  a, b = Tensor.full((2, 64), 100, dtype="int8"), Tensor.full((64, 3), 100, dtype="int8")
  assert a.matmul(b, dtype="int32").tolist() == [[640_000] * 3] * 2
  assert Tensor.einsum("ij,jk->ik", a, b, dtype="int32").tolist() == [[640_000] * 3] * 2
  assert (a @ b).dtype is dtypes.int8


def test_the_gradient_of_causal_attention_is_no_larger_than_its_scores() -> None:
  """Both factors of a masked sum take the gradient of the sum, not that of each of its terms."""
  x = Tensor(np.ones((2, 8, 12), np.float32)).realize()
  weights = [Tensor(np.ones((12, 12), np.float32), requires_grad=True).realize() for _ in range(2)]
  heads = (x @ weights[0]).reshape(2, 8, 3, 4).transpose(1, 2)
  out = heads.scaled_dot_product_attention(heads, heads, is_causal=True).transpose(1, 2).reshape(2, 8, 12)
  (out @ weights[1]).square().sum().backward()
  with capture() as made:
    Tensor.realize(*[w.grad for w in weights if w.grad is not None])
  buffers = [a for linear in made for call in linear.src for a in call.src[1:] if a.op is Ops.BUFFER]
  assert max(b.arg[1] for b in buffers) <= 2 * 3 * 8 * 8
