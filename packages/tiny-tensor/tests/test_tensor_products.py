"""Sums of products of narrow types: the products are as exact as the sums."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, dtypes

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
