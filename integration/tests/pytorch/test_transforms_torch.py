"""Transforms of functions against torch.func, on the device that DEVICE names (default REF: it compiles quickest).

The same function is written once, of operations that both have under one name; it is given the tensors of either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, checkpoint, vmap
from tiny_tensor import func as ours

torch: Any = pytest.importorskip("torch")
theirs = torch.func
DEVICE = os.environ.get("DEVICE") or "REF"
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
  with Context(DEVICE=DEVICE):
    yield


# of (x, y) `(3, 4)` and `(4, 2)`; each gives one tensor
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
  "matmul": lambda x, y: (x @ y).tanh(),
  "softmax": lambda x, y: (x.softmax(-1) @ y).log_softmax(-1),
  "elementwise": lambda x, y: (x.sigmoid() * x.exp()).log1p().sum(1) - (y.erf() * y.cos()).sum(),
  "extrema": lambda x, y: x.max() * y + x.clamp(-0.5, 0.5).sum() * y.relu() + x.abs().sum(),
  "movement": lambda x, y: x.reshape(4, 3).flip(0).permute(1, 0)[1:, ::2].roll(1, 0).sum() * y.T,
  "variance": lambda x, y: x.std(1).sum() * (y - y.mean(0)).square(),
  "masks": lambda x, y: x.masked_fill(x > 0.1, 0.25).sin() @ y,
  "solve": lambda x, y: _solved(x.T @ x + _eye(x), y),
  "determinant": lambda x, y: (x.T @ x + _eye(x)).det() * y,
  "convolution": lambda x, y: _conv(x.reshape(1, 1, 3, 4), y.reshape(1, 1, 4, 2)),
}  # fmt: skip


def _eye(x: Any) -> Any:
  return Tensor.eye(4, dtype="float64") if isinstance(x, Tensor) else torch.eye(4, dtype=torch.float64)


def _solved(a: Any, b: Any) -> Any:
  return a.solve(b) if isinstance(a, Tensor) else torch.linalg.solve(a, b)


def _conv(x: Any, w: Any) -> Any:
  return x.conv2d(w, padding=2) if isinstance(x, Tensor) else torch.nn.functional.conv2d(x, w, padding=2)


def arrays(*lead: int) -> tuple[Array, Array]:
  rng = np.random.default_rng(1)
  return rng.standard_normal((*lead, 3, 4)), rng.standard_normal((*lead, 4, 2))


def same(found: Any, expected: Any, tolerance: float = 1e-9) -> None:
  """Tensors in containers, ours and theirs. All of ours are computed together."""
  mine, other = flat(found), flat(expected)
  assert len(mine) == len(other)
  mine[0].realize(*mine[1:])
  for a, b in zip(mine, other, strict=True):
    np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


def flat(tree: Any) -> list[Any]:
  return [leaf for part in tree for leaf in flat(part)] if isinstance(tree, (tuple, list)) else [tree]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_transform(name: str) -> None:
  f = FUNCTIONS[name]
  x, y = arrays()
  dx, dy = (a[::-1].copy() * 0.5 for a in arrays())
  mine, other = [Tensor(a) for a in (x, y)], [torch.tensor(a) for a in (x, y)]
  along, theirs_along = tuple(Tensor(a) for a in (dx, dy)), tuple(torch.tensor(a) for a in (dx, dy))

  def loss(a: Any, b: Any) -> Any:
    return (f(a, b) * 0.5).square().sum()

  same(
    [
      ours.grad(loss, (0, 1))(*mine),
      ours.jvp(f, tuple(mine), along),
      ours.jacrev(f, (0, 1))(*mine),
      ours.jacfwd(f)(*mine),
      ours.jvp(ours.grad(checkpoint(loss)), tuple(mine), along)[1],
    ],
    [
      theirs.grad(loss, (0, 1))(*other),
      theirs.jvp(f, tuple(other), theirs_along),
      theirs.jacrev(f, (0, 1))(*other),
      theirs.jacrev(f)(*other),
      theirs.jvp(theirs.grad(loss), tuple(other), theirs_along)[1],
    ],
  )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_mapped(name: str) -> None:
  f = FUNCTIONS[name]
  x, y = arrays(3)
  mine, other = [Tensor(x), Tensor(y[0])], [torch.tensor(x), torch.tensor(y[0])]

  def loss(a: Any, b: Any) -> Any:
    return f(a, b).square().sum()

  same(
    [vmap(f, (0, None), 1)(*mine), vmap(ours.grad(loss, (0, 1)), (0, None))(*mine)],
    [theirs.vmap(f, (0, None), 1)(*other), theirs.vmap(theirs.grad(loss, (0, 1)), (0, None))(*other)],
  )


def test_hessian() -> None:
  def f(v: Any) -> Any:
    return (v.sin() * v.sum()).tanh().sum() + (v * v).prod()

  x = np.linspace(-1, 1, 5)
  same(ours.hessian(f)(Tensor(x)), theirs.hessian(f)(torch.tensor(x)))


def test_per_example_gradients_of_a_network() -> None:
  rng = np.random.default_rng(3)
  weights = [rng.standard_normal(s) for s in ((2, 1, 3, 3), (2,), (8, 3))]
  images, labels = rng.standard_normal((4, 1, 4, 4)), np.array([0, 2, 1, 1])

  def loss(model: Any, image: Any, label: Any) -> Any:
    kernel, bias, out = model
    if isinstance(image, Tensor):
      hidden = image.unsqueeze(0).conv2d(kernel, bias).relu()
      return (hidden.reshape(1, 8) @ out).cross_entropy(label.unsqueeze(0))
    hidden = torch.nn.functional.conv2d(image.unsqueeze(0), kernel, bias).relu()
    return torch.nn.functional.cross_entropy(hidden.reshape(1, 8) @ out, label.unsqueeze(0))

  mine = vmap(ours.grad(loss), (None, 0, 0))([Tensor(w) for w in weights], Tensor(images), Tensor(labels))
  other = theirs.vmap(theirs.grad(loss), (None, 0, 0))(
    [torch.tensor(w) for w in weights], torch.tensor(images), torch.tensor(labels)
  )
  same(mine, other)
