"""Scattering, large enough that each term goes to its place instead of being compared with all, against PyTorch:
forward, gradients, second gradients, in a TinyJit, mapped, and on several devices. On the device that DEVICE names
(default CPU).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, TinyJit, nn
from tiny_tensor.func import vmap

torch = pytest.importorskip("torch")
DEVICE = os.environ.get("DEVICE") or "CPU"
COUNT, PLACES, WIDTH = 300, 70, 24
random = np.random.default_rng(0)
INDEX = random.integers(0, PLACES, COUNT).astype(np.int32)
ROWS = random.integers(0, PLACES, (COUNT, WIDTH)).astype(np.int32)
VALUES = random.standard_normal((COUNT, WIDTH)).astype(np.float32)
BASE = random.standard_normal((PLACES, WIDTH)).astype(np.float32)
Pair = tuple[Callable[..., Any], Callable[..., Any]]


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
  with Context(DEVICE=DEVICE):
    yield


def i(x: np.ndarray[Any, Any]) -> Any:
  return torch.from_numpy(x).long()


def same_call(method: str, *args: Any, **named: Any) -> Pair:
  """A method by one name and with the same arguments for both."""

  def call(wrap: Callable[[Any], Any], x: Any, v: Any) -> Any:
    given = [v if a is VALUES else wrap(a) if isinstance(a, np.ndarray) else a for a in args]
    return getattr(x, method)(*given, **named)

  return (lambda x, v: call(Tensor, x, v)), (lambda x, v: call(i, x, v))


CASES: dict[str, Pair] = {
  "index_add": same_call("index_add", 0, INDEX, VALUES),
  "scatter_add": same_call("scatter_add", 0, ROWS, VALUES),
  "scatter_prod": same_call("scatter_reduce", 0, ROWS, VALUES, "prod"),
  "scatter_mean": same_call("scatter_reduce", 0, ROWS, VALUES, "mean"),
  "scatter_amax": same_call("scatter_reduce", 0, ROWS, VALUES, "amax"),
  "scatter_amin_without_self": same_call("scatter_reduce", 0, ROWS, VALUES, "amin", include_self=False),
  "scatter_sum_without_self": same_call("scatter_reduce", 0, ROWS, VALUES, "sum", include_self=False),
  "index_put": (
    lambda x, v: x.index_put((Tensor(INDEX),), v, accumulate=True),
    lambda x, v: x.index_put((i(INDEX),), v, accumulate=True),
  ),
  "two_indices": (
    lambda x, v: x.index_put((Tensor(INDEX), Tensor(INDEX % WIDTH)), v[:, 0], accumulate=True),
    lambda x, v: x.index_put((i(INDEX), i(INDEX % WIDTH)), v[:, 0], accumulate=True),
  ),
  "picked": (lambda x, v: x[Tensor(INDEX)] * v, lambda x, v: x[i(INDEX)] * v),
  "picked_columns": (lambda x, v: x[:, Tensor(INDEX % WIDTH)].sum(1), lambda x, v: x[:, i(INDEX % WIDTH)].sum(1)),
  "gathered": (lambda x, v: x.gather(0, Tensor(ROWS)) * v, lambda x, v: x.gather(0, i(ROWS)) * v),
}


@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward(name: str) -> None:
  ours, theirs = CASES[name]
  x, v = Tensor(BASE, requires_grad=True), Tensor(VALUES, requires_grad=True)
  a, b = torch.tensor(BASE, requires_grad=True), torch.tensor(VALUES, requires_grad=True)
  out, want = ours(x, v), theirs(a, b)
  np.testing.assert_allclose(out.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-4)
  weight = random.standard_normal(want.shape).astype(np.float32)
  (out * Tensor(weight)).sum().backward()
  (want * torch.from_numpy(weight)).sum().backward()
  for got, expected in ((x.grad, a.grad), (v.grad, b.grad)):
    if expected is not None:
      assert got is not None
      np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ("index_add", "picked", "gathered", "scatter_add"))
def test_second_gradients(name: str) -> None:
  ours, theirs = CASES[name]
  x, v = Tensor(BASE, requires_grad=True), Tensor(VALUES, requires_grad=True)
  a, b = torch.tensor(BASE, requires_grad=True), torch.tensor(VALUES, requires_grad=True)
  (first,) = (ours(x, v) ** 3).sum().gradient(x)
  (second,) = (first**2).sum().gradient(v)
  (want,) = torch.autograd.grad((theirs(a, b) ** 3).sum(), a, create_graph=True)
  (want,) = torch.autograd.grad((want**2).sum(), b)
  scale = float(want.abs().max())
  np.testing.assert_allclose(second.numpy() / scale, want.numpy() / scale, atol=1e-4)


def test_terms_go_to_their_places() -> None:
  """What is compared here is not the sums over all pairs."""
  plan = Tensor(BASE).index_add(0, Tensor(INDEX), Tensor(VALUES)).schedule_linear()
  names = [call.src[0].arg.name for call in plan.src if call.src[0].arg is not None]
  assert any(name.startswith("scatter_") for name in names), names


def test_the_last_value_counts() -> None:
  x, v = Tensor(BASE), Tensor(VALUES)
  want = BASE.copy()
  want[INDEX] = VALUES  # NumPy: the last one
  np.testing.assert_array_equal(x.index_put((Tensor(INDEX),), v).numpy(), want)
  target = Tensor(BASE).contiguous().realize()
  target[Tensor(INDEX)] = v
  np.testing.assert_array_equal(target.numpy(), want)


def test_places_outside_are_left_out() -> None:
  outside = np.where(np.arange(COUNT) % 7 == 0, PLACES + 3, INDEX).astype(np.int32)
  outside[1] = -PLACES - 2
  keep = (outside < PLACES) & (outside >= -PLACES)
  want = BASE.copy()
  np.add.at(want, outside[keep], VALUES[keep])
  got = Tensor(BASE).index_add(0, Tensor(outside), Tensor(VALUES)).numpy()
  np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ("int8", "int64", "float16", "bfloat16", "bool"))
def test_types(dtype: str) -> None:
  values = random.integers(0, 2, (COUNT, WIDTH)).astype(np.float32)
  x = Tensor(np.zeros_like(BASE)).cast(dtype)
  got = x.index_add(0, Tensor(INDEX), Tensor(values).cast(dtype)).cast("float32").numpy()
  want = np.zeros_like(BASE)
  np.add.at(want, INDEX, values)
  np.testing.assert_array_equal(got, np.minimum(want, 1) if dtype == "bool" else want)


def test_counts() -> None:
  numbers = random.integers(0, 500, 4000).astype(np.int32)
  assert (Tensor(numbers).bincount(minlength=512).numpy() == np.bincount(numbers, minlength=512)).all()
  weights = random.standard_normal(4000).astype(np.float32)
  got = Tensor(numbers).bincount(Tensor(weights)).numpy()
  np.testing.assert_allclose(got, np.bincount(numbers, weights), rtol=1e-3, atol=1e-4)
  np.testing.assert_array_equal(
    Tensor(weights).histc(64, -2, 2).numpy(), torch.histc(torch.from_numpy(weights), 64, -2, 2).numpy()
  )


def test_sums_are_always_the_same() -> None:
  """To the bit, whatever threads do."""
  numbers = random.integers(0, 100, 20_000).astype(np.int32)
  values = (random.standard_normal((20_000, 64)) * 10 ** random.uniform(-3, 3, (20_000, 1))).astype(np.float32)
  results = {Tensor.zeros(100, 64).index_add(0, Tensor(numbers), Tensor(values)).numpy().tobytes() for _ in range(3)}
  assert len(results) == 1


def test_captured() -> None:
  weight = Tensor(BASE, requires_grad=True).realize()

  @TinyJit
  def step(index: Tensor, values: Tensor) -> Tensor:
    weight.grad = None
    (weight[index] * values).sum().backward()
    assert weight.grad is not None
    return weight.grad.realize()

  for seed in range(5):
    drawn = np.random.default_rng(seed)
    numbers, values = drawn.integers(0, PLACES, COUNT).astype(np.int32), drawn.standard_normal((COUNT, WIDTH))
    want = np.zeros_like(BASE)
    np.add.at(want, numbers, values.astype(np.float32))
    got = step(Tensor(numbers).realize(), Tensor(values.astype(np.float32)).realize())
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


def test_mapped() -> None:
  batch = random.integers(0, PLACES, (4, COUNT)).astype(np.int32)
  got = vmap(lambda index: Tensor(BASE).index_add(0, index, Tensor(VALUES)))(Tensor(batch))
  for one, index in zip(got.numpy(), batch, strict=True):
    want = BASE.copy()
    np.add.at(want, index, VALUES)
    np.testing.assert_allclose(one, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", (None, 0, 1))
def test_sharded(axis: int | None) -> None:
  devices = (f"{DEVICE}", f"{DEVICE}:1")
  index, values = Tensor(INDEX).shard(devices, None), Tensor(VALUES).shard(devices, axis)
  got = Tensor(BASE).shard(devices, None if axis == 0 else axis).index_add(0, index, values)
  want = BASE.copy()
  np.add.at(want, INDEX, VALUES)
  np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


def test_an_embedding_that_is_trained() -> None:
  """Of a model: tokens of a batch, the gradient and a step of the optimiser."""
  tokens = random.integers(0, PLACES, (4, 80)).astype(np.int32)
  layer, theirs = nn.Embedding(PLACES, WIDTH), torch.nn.Embedding(PLACES, WIDTH)
  layer.weight = Tensor(BASE, requires_grad=True)
  theirs.weight = torch.nn.Parameter(torch.tensor(BASE))
  optimiser, other = nn.optim.SGD([layer.weight], lr=0.1), torch.optim.SGD([theirs.weight], lr=0.1)
  with Tensor.train():
    for _ in range(2):
      optimiser.zero_grad()
      (layer(Tensor(tokens)) ** 2).sum().backward()
      optimiser.step()
      other.zero_grad()
      (theirs(i(tokens)) ** 2).sum().backward()
      other.step()
  np.testing.assert_allclose(layer.weight.numpy(), theirs.weight.detach().numpy(), rtol=1e-3, atol=1e-4)
