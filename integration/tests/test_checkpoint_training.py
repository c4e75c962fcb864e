"""A step of training with `checkpoint`, captured on the processor: the same numbers as without it, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tiny_tensor import Context, Tensor, TinyJit, checkpoint, nn
from tiny_tensor.nn import optim
from tiny_tensor.nn.state import get_parameters


def train(wrap: Callable[[Any], Any]) -> list[np.ndarray[Any, Any]]:
  """The losses of four steps, and the parameters after them."""
  Tensor.manual_seed(1)
  first, second, out = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
  parameters = [p for layer in (first, second, out) for p in get_parameters(layer)]
  optimiser = optim.Adam(parameters, lr=0.01)

  @TinyJit
  def step(x: Tensor, y: Tensor) -> Tensor:
    optimiser.zero_grad()
    hidden = wrap(lambda v: second(first(v).relu()).tanh().dropout(0.2))(x)
    loss: Tensor = wrap(lambda v: out(v))(hidden).cross_entropy(y).backward()
    optimiser.step()
    return loss.realize()

  rng = np.random.default_rng(0)
  losses = []
  for _ in range(4):
    x, y = rng.standard_normal((4, 6)).astype(np.float32), rng.integers(0, 3, 4).astype(np.int32)
    losses.append(step(Tensor(x), Tensor(y)).numpy())
  assert step.captured
  return [*losses, *[p.numpy() for p in parameters]]


def test_the_same_numbers() -> None:
  with Context(DEVICE="CPU"), Tensor.train():
    plain, again = train(lambda f: f), train(checkpoint)
  for a, b in zip(plain, again, strict=True):
    np.testing.assert_array_equal(a, b)
