"""Products of bytes and of bfloat16, with the instructions that the machine has for them, against NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Tensor, dtypes

Array = Any
MATRICES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Callable[[Any, Any], tuple[Any, Any]]]] = {
  "plain": ((96, 128), (128, 160), lambda a, b: (a, b)),
  "odd": ((37, 67), (67, 131), lambda a, b: (a, b)),
  "left transposed": ((70, 50), (70, 90), lambda a, b: (a.swapaxes(-1, -2), b)),
  "right transposed": ((64, 256), (100, 256), lambda a, b: (a, b.swapaxes(-1, -2))),
  "both transposed": ((63, 40), (80, 63), lambda a, b: (a.swapaxes(-1, -2), b.swapaxes(-1, -2))),
  "blocks": ((512, 512), (256, 512), lambda a, b: (a, b.swapaxes(-1, -2))),
  "batched": ((3, 40, 64), (3, 64, 50), lambda a, b: (a, b)),
  "broadcast": ((3, 33, 64), (64, 48), lambda a, b: (a, b)),
  "gram": ((200, 64), (1, 1), lambda a, b: (a.swapaxes(-1, -2), a)),
  "vector": ((300, 200), (200,), lambda a, b: (a, b)),
  "slices": ((65, 130), (130, 70), lambda a, b: (a[1:, 1:], b[1:, 3:])),
  "short sum": ((64, 3), (3, 64), lambda a, b: (a, b)),
}  # fmt: skip


def numbers(shape: tuple[int, ...], dtype: Any = np.int8) -> Array:
  """Numbers over the whole range, the extremes among them."""
  limits = np.iinfo(dtype)
  made = np.random.default_rng(5).integers(limits.min, limits.max + 1, shape).astype(dtype)
  made[0] = limits.min if limits.min else limits.max
  return made


class Swappable:
  """A Tensor under NumPy's names, so that one expression says what both compute."""

  def __init__(self, tensor: Tensor) -> None:
    self.tensor = tensor

  def swapaxes(self, a: int, b: int) -> "Swappable":
    return Swappable(self.tensor.transpose(a, b))

  def __getitem__(self, place: Any) -> "Swappable":
    return Swappable(self.tensor[place])


@pytest.mark.parametrize("name", MATRICES)
def test_bytes_are_exact(name: str) -> None:
  a_shape, b_shape, views = MATRICES[name]
  a, b = numbers(a_shape), numbers(b_shape)
  left, right = views(a.astype(np.int64), b.astype(np.int64))
  x, y = views(Swappable(Tensor(a)), Swappable(Tensor(b)))
  np.testing.assert_array_equal(x.tensor.dot(y.tensor, dtype=dtypes.int32).numpy(), left @ right)


@pytest.mark.parametrize(("left", "right"), [(np.uint8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8)])
def test_bytes_without_a_sign(left: Any, right: Any) -> None:
  a, b = numbers((50, 72), left), numbers((72, 66), right)
  wide = dtypes.uint32 if left is right else dtypes.int32
  found = Tensor(a).dot(Tensor(b), dtype=wide).numpy()
  np.testing.assert_array_equal(found, a.astype(np.int64) @ b.astype(np.int64))


def test_numbers_of_16_bits() -> None:
  a, b = numbers((50, 71), np.int16), numbers((71, 66), np.int16)
  found = Tensor(a).dot(Tensor(b), dtype=dtypes.int32).numpy()
  np.testing.assert_array_equal(found, (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32))


def test_sums_wrap_as_int32_does() -> None:
  """(-128)² summed 2**17 times is 2**31, which is one more than the largest int32."""
  a = np.full((4, 1 << 17), -128, np.int8)
  found = Tensor(a).dot(Tensor(np.full((1 << 17, 32), -128, np.int8)), dtype=dtypes.int32).numpy()
  assert (found == -(2**31)).all()


def test_results_of_eight_bits() -> None:
  """Without a dtype the result has that of the operands: the sum modulo 256."""
  a, b = numbers((40, 64)), numbers((64, 48))
  found = Tensor(a).dot(Tensor(b)).numpy()
  np.testing.assert_array_equal(found, (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int8))


@pytest.mark.parametrize(("stride", "padding", "groups"), [(1, 1, 1), (2, 0, 1), (1, 2, 4)])
def test_convolutions_of_bytes(stride: int, padding: int, groups: int) -> None:
  images, weights = numbers((2, 16, 13, 13)), numbers((24, 16 // groups, 3, 3))
  wide = [Tensor(x).cast(dtypes.int32) for x in (images, weights)]
  found = wide[0].conv2d(wide[1], stride=stride, padding=padding, groups=groups).numpy()
  padded = np.pad(images.astype(np.int64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
  size = (13 + 2 * padding - 3) // stride + 1
  for group in range(groups):
    ins, outs = (slice(group * n // groups, (group + 1) * n // groups) for n in (16, 24))
    exact = np.zeros((2, 24 // groups, size, size), np.int64)
    for i in range(3):
      for j in range(3):
        window = padded[:, ins, i : i + stride * size : stride, j : j + stride * size : stride]
        exact += np.einsum("nchw,oc->nohw", window[..., :size, :size], weights[outs, :, i, j].astype(np.int64))
    np.testing.assert_array_equal(found[:, outs], exact)


def test_scales_and_a_bias_behind_the_sum() -> None:
  """What a quantised layer does: bytes in, float32 out."""
  a, b = numbers((48, 128)), numbers((64, 128))
  scale, bias = np.float32(0.01), np.linspace(-1, 1, 64, dtype=np.float32)
  found = Tensor(a).dot(Tensor(b).T, dtype=dtypes.int32).cast(dtypes.float32) * float(scale) + Tensor(bias)
  exact = (a.astype(np.int64) @ b.T.astype(np.int64)) * np.float64(scale) + bias
  np.testing.assert_allclose(found.numpy(), exact, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("name", MATRICES)
def test_bfloat16(name: str) -> None:
  """Products are exact in float32, sums of n of them off by n roundings at most; then one rounding to 8 bits."""
  a_shape, b_shape, views = MATRICES[name]
  rng = np.random.default_rng(5)
  floats = [Tensor(rng.standard_normal(shape).astype(np.float32)) for shape in (a_shape, b_shape)]
  tensors = [t.cast(dtypes.bfloat16).realize() for t in floats]
  left, right = views(*[t.cast(dtypes.float32).numpy().astype(np.float64) for t in tensors])
  x, y = views(*[Swappable(t) for t in tensors])
  exact, size = left @ right, np.abs(left) @ np.abs(right)
  found = x.tensor.dot(y.tensor).cast(dtypes.float32).numpy()
  assert (np.abs(found - exact) <= 2.0**-8 * np.abs(exact) + size * left.shape[-1] * 2.0**-24).all()
  found = x.tensor.dot(y.tensor, dtype=dtypes.float32).numpy()
  assert (np.abs(found - exact) <= size * left.shape[-1] * 2.0**-24).all()
