"""What moves and joins elements keeps their bits: zeros of both signs, numbers below the normal ones, infinities, NaN
with what it carries. Against NumPy, bit by bit, computed at once and captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, TinyJit

Array = np.ndarray[Any, Any]
SHAPE = (4, 6)


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def elements(dtype: str, seed: int) -> Array:
  """Of a float dtype, every kind of number at any place."""
  limits = np.finfo(dtype)
  digits = np.dtype(dtype).itemsize * 8
  kind = np.dtype(f"u{digits // 8}")
  special = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, -1.0, 0, 0, limits.tiny, -limits.max], dtype)
  special[6:8] = limits.smallest_subnormal * np.array([1, -1], dtype)
  if dtype == "float16":  # what NaN carries there is lost where it is computed in float32
    return np.random.default_rng(seed).permutation(np.resize(special, 24)).reshape(SHAPE)
  # quiet NaN of either sign with something in it, as computing makes and keeps them
  exponent = int(np.array(np.inf, dtype).view(kind))
  quiet = 1 << (limits.nmant - 1)
  nan = np.array([exponent | quiet | 5, exponent | quiet | (1 << (digits - 1)) | 3], kind).view(dtype)
  rng = np.random.default_rng(seed)
  return rng.permutation(np.resize(np.concatenate([special, nan]), SHAPE).ravel()).reshape(SHAPE)


INDEX = [[3, 0], [1, 1], [2, 3]]
MASK = np.arange(24).reshape(SHAPE) % 3 == 0
KEPT: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Array, Array], Array]]] = {
  "cat": (lambda x, y: x.cat(y), lambda x, y: np.concatenate([x, y])),
  "cat inner": (lambda x, y: x.cat(y, x, dim=1), lambda x, y: np.concatenate([x, y, x], 1)),
  "cat of parts": (lambda x, y: x[:, 1:].cat(y[:, :0], y[:, 3:], dim=-1), lambda x, y: np.hstack([x[:, 1:], y[:, 3:]])),
  "stack": (lambda x, y: x.stack(y), lambda x, y: np.stack([x, y])),
  "stack inner": (lambda x, y: x.stack(y, y, dim=-1), lambda x, y: np.stack([x, y, y], -1)),
  "hstack": (lambda x, y: Tensor.hstack(x, y), lambda x, y: np.hstack([x, y])),
  "pad": (lambda x, y: x.pad(((1, 2), (0, 3))), lambda x, y: np.pad(x, ((1, 2), (0, 3)))),
  "pad value": (
    lambda x, y: x.pad(((1, 2), (0, 3)), value=2.0), lambda x, y: np.pad(x, ((1, 2), (0, 3)), constant_values=2)
  ),
  "pad -0.0": (
    lambda x, y: x.pad(((1, 0), (0, 3)), value=-0.0),
    lambda x, y: np.pad(x, ((1, 0), (0, 3)), constant_values=-0.0),
  ),
  "pad circular": (lambda x, y: x.pad((2, 3), mode="circular"), lambda x, y: np.pad(x, ((0, 0), (2, 3)), mode="wrap")),
  "pad reflect": (lambda x, y: x.pad((2, 3), mode="reflect"), lambda x, y: np.pad(x, ((0, 0), (2, 3)), mode="reflect")),
  "pad replicate": (
    lambda x, y: x.pad((2, 3), mode="replicate"), lambda x, y: np.pad(x, ((0, 0), (2, 3)), mode="edge")
  ),
  "reshape": (lambda x, y: x.reshape(3, 8), lambda x, y: x.reshape(3, 8)),
  "permute": (lambda x, y: x.T, lambda x, y: x.T),
  "expand": (lambda x, y: x[:1].expand(3, 6), lambda x, y: np.broadcast_to(x[:1], (3, 6))),
  "shrink": (lambda x, y: x[1:3, 2:], lambda x, y: x[1:3, 2:]),
  "stride": (lambda x, y: x[::2, ::-2], lambda x, y: x[::2, ::-2]),
  "flip": (lambda x, y: x.flip(0, 1), lambda x, y: np.flip(x)),
  "roll": (lambda x, y: x.roll((1, -2), (0, 1)), lambda x, y: np.roll(x, (1, -2), (0, 1))),
  "repeat": (lambda x, y: x.repeat(2, 3), lambda x, y: np.tile(x, (2, 3))),
  "repeat_interleave": (lambda x, y: x.repeat_interleave(2, 1), lambda x, y: np.repeat(x, 2, 1)),
  "unfold": (lambda x, y: x.unfold(1, 3, 2), lambda x, y: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2]),
  "diagonal": (lambda x, y: x.diagonal(1), lambda x, y: np.diagonal(x, 1)),
  "split": (lambda x, y: x.split(4, 1)[1], lambda x, y: x[:, 4:]),
  "triu": (lambda x, y: x.triu(1), lambda x, y: np.where(np.tri(*SHAPE, 0, dtype=bool), x.dtype.type(0), x)),
  "tril": (lambda x, y: x.tril(), lambda x, y: np.where(np.tri(*SHAPE, 0, dtype=bool), x, x.dtype.type(0))),
  "gather": (
    lambda x, y: x.gather(0, Tensor(INDEX)), lambda x, y: np.take_along_axis(x[:, :2], np.array(INDEX), 0),
  ),
  "rows": (lambda x, y: x[Tensor([3, 0, 3])], lambda x, y: x[[3, 0, 3]]),
  "elements": (lambda x, y: x[Tensor([3, 0]), Tensor([1, 5])], lambda x, y: x[[3, 0], [1, 5]]),
  "where": (lambda x, y: Tensor(MASK).where(x, y), lambda x, y: np.where(MASK, x, y)),
  "masked_fill": (lambda x, y: x.masked_fill(Tensor(MASK), 1.0), lambda x, y: np.where(MASK, x.dtype.type(1), x)),
  "meshgrid": (lambda x, y: x[0].meshgrid(y[1])[1], lambda x, y: np.meshgrid(x[0], y[1], indexing="ij")[1]),
  "contiguous": (lambda x, y: x.T.contiguous(), lambda x, y: x.T),
  "first of cumsum": (lambda x, y: x.cumsum(1)[:, :1], lambda x, y: x[:, :1]),
  "first of a long cumsum": (lambda x, y: x.repeat(1, 7).cumsum(1)[:, :1], lambda x, y: x[:, :1]),
  "detach": (lambda x, y: x.detach().stack(y), lambda x, y: np.stack([x, y])),
}  # fmt: skip


def check(name: str, got: Array, expected: Array) -> None:
  kind = f"u{expected.dtype.itemsize}"
  assert got.dtype == expected.dtype and got.shape == expected.shape
  different = got.view(kind) != np.ascontiguousarray(expected).view(kind)
  assert not different.any(), f"{name}: {got[different][:4]!r}, expected {expected[different][:4]!r}"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_bits_are_kept(dtype: str) -> None:
  a, b = elements(dtype, 0), elements(dtype, 1)
  x, y = Tensor(a).realize(), Tensor(b).realize()
  results = [ours(x, y) for ours, _ in KEPT.values()]
  results[0].realize(*results[1:])
  for (name, (_, theirs)), got in zip(KEPT.items(), results, strict=True):
    check(name, got.numpy(), theirs(a, b))


def test_bits_are_kept_by_captured_functions() -> None:
  def all_of_them(x: Tensor, y: Tensor) -> list[Tensor]:
    results = [ours(x, y).contiguous() for ours, _ in KEPT.values()]
    results[0].realize(*results[1:])
    return results

  captured = TinyJit(all_of_them)
  for seed in (0, 2, 4, 6):
    a, b = elements("float32", seed), elements("float32", seed + 1)
    for (name, (_, theirs)), got in zip(KEPT.items(), captured(Tensor(a).realize(), Tensor(b).realize()), strict=True):
      check(name, got.numpy(), theirs(a, b))


def test_bits_of_gradients_are_kept() -> None:
  """What joins is taken apart without a sum."""
  a, b = elements("float32", 8), elements("float32", 9)
  x, y = Tensor(np.zeros(SHAPE, np.float32)), Tensor(np.zeros(SHAPE, np.float32))
  found = x.cat(y).gradient(x, y, gradient=Tensor(np.concatenate([a, b])))
  check("x", found[0].numpy(), a)
  check("y", found[1].numpy(), b)
