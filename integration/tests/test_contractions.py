"""Products of two operands, in sizes for which the heuristics pack, tile and share them, against NumPy in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Tensor, dtypes

Array = Any
MATRICES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Callable[[Any, Any], Any]]] = {
  "plain": ((130, 257), (257, 330), lambda a, b: a @ b),
  "left transposed": ((256, 512), (256, 256), lambda a, b: a.swapaxes(-1, -2) @ b),
  "left transposed, blocks": ((1024, 128), (1024, 256), lambda a, b: a.swapaxes(-1, -2) @ b),
  "right transposed": ((150, 300), (170, 300), lambda a, b: a @ b.swapaxes(-1, -2)),
  "both transposed": ((300, 150), (170, 300), lambda a, b: a.swapaxes(-1, -2) @ b.swapaxes(-1, -2)),
  "batched": ((5, 64, 96), (5, 96, 80), lambda a, b: a @ b),
  "broadcast": ((7, 33, 64), (64, 100), lambda a, b: a @ b),
  "heads": ((3, 130, 64), (3, 130, 64), lambda a, b: a @ b.swapaxes(-1, -2)),
  "one row": ((1, 300), (300, 500), lambda a, b: a @ b),
  "few columns": ((500, 300), (300, 3), lambda a, b: a @ b),
  "long sum": ((16, 20000), (20000, 48), lambda a, b: a @ b),
  "long sum in blocks": ((96, 8192), (8192, 200), lambda a, b: a @ b),
  "long sum in blocks, transposed": ((6144, 100), (130, 6144), lambda a, b: a.swapaxes(-1, -2) @ b.swapaxes(-1, -2)),
  "long sum in blocks, epilogue": ((33, 12288), (12288, 65), lambda a, b: (a @ b + 3) * 0.5),
  "long sums, batched": ((3, 40, 4096), (3, 4096, 72), lambda a, b: a @ b),
  "squared": ((512, 512), (1, 1), lambda a, b: a @ a),
  "gram": ((300, 140), (1, 1), lambda a, b: a.swapaxes(-1, -2) @ a),
  "scaled": ((128, 200), (200, 160), lambda a, b: (a * 2 + 1) @ (b * b)),
  "epilogue": ((128, 200), (200, 160), lambda a, b: (a @ b + 3) * 0.5),
}  # fmt: skip


def arrays(*shapes: tuple[Any, ...]) -> list[Array]:
  """Numbers of both signs, the same in every run."""
  rng = np.random.default_rng(7)
  return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def close(found: Array, exact: Array, terms: int) -> None:
  """Within the rounding of a sum of so many terms."""
  np.testing.assert_allclose(found, exact, rtol=1e-5, atol=2e-7 * terms)


@pytest.mark.parametrize("name", MATRICES)
def test_matrix_products(name: str) -> None:
  a_shape, b_shape, product = MATRICES[name]
  a, b = arrays(a_shape, b_shape)

  def swapped(t: Tensor) -> "Swappable":
    return Swappable(t)

  found = product(swapped(Tensor(a)), swapped(Tensor(b))).tensor.numpy()
  close(found, product(a.astype(np.float64), b.astype(np.float64)), max(a_shape))


class Swappable:
  """A Tensor under NumPy's names, so that one expression says what both compute."""

  def __init__(self, tensor: Tensor) -> None:
    self.tensor = tensor

  def swapaxes(self, a: int, b: int) -> "Swappable":
    return Swappable(self.tensor.transpose(a, b))

  def __matmul__(self, other: "Swappable") -> "Swappable":
    return Swappable(self.tensor @ other.tensor)

  def __mul__(self, other: "Swappable | float") -> "Swappable":
    return Swappable(self.tensor * (other.tensor if isinstance(other, Swappable) else other))

  def __add__(self, other: float) -> "Swappable":
    return Swappable(self.tensor + other)


def numpy_conv(x: Array, w: Array, padding: int, stride: int, dilation: int, groups: int) -> Array:
  """A two-dimensional convolution, by its definition."""
  x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
  reach = (w.shape[2] - 1) * dilation + 1
  windows = np.lib.stride_tricks.sliding_window_view(x, (reach, reach), axis=(2, 3))
  windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
  n, c, height, width = windows.shape[:4]
  windows = windows.reshape(n, groups, c // groups, height, width, *w.shape[2:])
  kernels = w.reshape(groups, -1, *w.shape[1:])
  return np.einsum("ngchwyx,gocyx->ngohw", windows, kernels, optimize=True).reshape(n, w.shape[0], height, width)


@pytest.mark.parametrize(
  ("image", "weight", "options"),
  [
    ((2, 16, 28, 28), (64, 16, 3, 3), {"padding": 1}),
    ((2, 16, 28, 28), (64, 16, 3, 3), {"padding": 1, "stride": 2}),
    ((2, 16, 29, 29), (48, 16, 3, 3), {"padding": 2, "dilation": 2}),
    ((2, 16, 28, 28), (64, 16, 1, 1), {}),
    ((2, 64, 28, 28), (96, 64, 1, 1), {"stride": 2}),
    ((2, 256, 14, 14), (128, 256, 1, 1), {}),
    ((3, 32, 7, 7), (64, 32, 3, 3), {"padding": 1}),
    ((1, 3, 56, 56), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((2, 32, 15, 15), (64, 8, 3, 3), {"padding": 1, "groups": 4}),
    ((2, 32, 30, 30), (32, 1, 3, 3), {"padding": 1, "groups": 32}),
    ((1, 64, 20, 20), (64, 64, 5, 5), {"stride": 3}),
  ],
)
def test_convolutions(image: tuple[int, ...], weight: tuple[int, ...], options: dict[str, int]) -> None:
  x, w = arrays(image, weight)
  every: dict[str, Any] = {"padding": 0, "stride": 1, "dilation": 1, "groups": 1, **options}
  exact = numpy_conv(x.astype(np.float64), w.astype(np.float64), **every)
  close(Tensor(x).conv2d(Tensor(w), **every).numpy(), exact, w[0].size)
  fused = (Tensor(x) * 0.5 + 1).conv2d(Tensor(w), **every).relu().numpy()
  exact = numpy_conv(np.float64(x) * 0.5 + 1, w.astype(np.float64), **every)
  close(fused, np.maximum(exact, 0), w[0].size)


def test_gradients_of_a_convolution() -> None:
  x, w = (Tensor(a) for a in arrays((2, 16, 18, 18), (32, 16, 3, 3)))
  for target in (x, w):
    step = 1e-2
    direction = Tensor(arrays(target.shape)[0])
    (gradient,) = x.conv2d(w, padding=1).square().mean().gradient(target)
    near = [
      (x + direction * e if target is x else x)
      .conv2d(w + direction * e if target is w else w, padding=1)
      .square()
      .mean()
      for e in (step, -step)
    ]
    slope = (near[0].item() - near[1].item()) / (2 * step)
    assert (gradient * direction).sum().item() == pytest.approx(slope, rel=2e-3)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int32, dtypes.int8])
def test_other_types(dtype: Any) -> None:
  rng = np.random.default_rng(3)
  a, b = (rng.integers(-8, 8, shape) for shape in ((70, 128), (128, 96)))
  found = Tensor(a.tolist(), dtype=dtype).cast(dtypes.float32) @ Tensor(b.tolist(), dtype=dtype).cast(dtypes.float32)
  np.testing.assert_array_equal(found.numpy(), a @ b)
  found = Tensor(a.tolist(), dtype=dtype).matmul(Tensor(b.tolist(), dtype=dtype), dtype=dtypes.float32)
  np.testing.assert_array_equal(found.cast(dtypes.float64).numpy(), a @ b)


@pytest.mark.parametrize(
  ("image", "weight", "options"),
  [
    ((2, 4, 9, 8), (6, 4, 3, 3), {"padding": 1}),
    ((2, 4, 9, 8), (6, 2, 3, 2), {"padding": (1, 0), "groups": 2}),
    ((2, 4, 11, 11), (6, 4, 3, 3), {"dilation": 2}),
    ((2, 4, 9, 9), (4, 1, 5, 5), {"padding": (2, 1, 0, 3), "groups": 4}),
    ((2, 3, 12), (5, 3, 4), {"padding": 3}),
    ((1, 2, 5, 6, 7), (3, 2, 2, 3, 1), {}),
  ],
)
def test_the_gradient_of_a_convolution_is_that_of_its_parts(
  image: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
  """conv2d has a derivative of its own; the table of derivatives applied to what it is made of has to agree, and the
  derivative of the derivative too."""
  x, w = (Tensor(a) for a in arrays(image, weight))

  def both_orders() -> list[Array]:
    first = x.conv2d(w, **options).square().sum().gradient(x, w)
    second = (first[0].square().sum() + first[1].square().sum()).gradient(x, w)
    return [t.numpy() for t in (*first, *second)]

  own = both_orders()
  monkeypatch.setattr("tiny_tensor.methods.conv.with_gradient", lambda values, *rest: values)
  for mine, parts in zip(own, both_orders(), strict=True):
    np.testing.assert_allclose(mine, parts, rtol=1e-4, atol=1e-4 * float(np.abs(parts).max()))
