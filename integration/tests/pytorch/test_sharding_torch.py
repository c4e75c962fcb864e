"""Training on several devices gives what PyTorch gives in one process, whichever way the model is spread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tiny_tensor import Tensor, TinyJit, nn

torch: Any = pytest.importorskip("torch")

CPUS = ("CPU", "CPU:1", "CPU:2")
# devices, axes of the first weight, its bias, the second weight, and the batch; None: all of it on each
WAYS: dict[str, tuple[tuple[str, ...], tuple[int | None, ...]]] = {
  "data": (CPUS, (None, None, None, 0)),
  "tensor": (CPUS[:2], (0, 0, 1, None)),
  "both": (CPUS, (0, 0, 1, 0)),
  "other backends": (("CPU", "REF"), (None, None, None, 0)),
}
STEPS, BATCH = 6, 10


class Ours:
  def __init__(self) -> None:
    self.up, self.down = nn.Linear(5, 12), nn.Linear(12, 4)

  def __call__(self, x: Tensor) -> Tensor:
    return self.down(self.up(x).silu())


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
  rng = np.random.default_rng(3)
  return [(rng.normal(size=(BATCH, 5)).astype(np.float32), rng.integers(0, 4, BATCH)) for _ in range(STEPS)]


def start() -> dict[str, np.ndarray]:
  rng = np.random.default_rng(4)
  shapes = {"0.weight": (12, 5), "0.bias": (12,), "2.weight": (4, 12), "2.bias": (4,)}
  return {name: (rng.normal(size=shape) * 0.5).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def torchs() -> tuple[list[float], list[np.ndarray]]:
  model = torch.nn.Sequential(torch.nn.Linear(5, 12), torch.nn.SiLU(), torch.nn.Linear(12, 4))
  model.load_state_dict({name: torch.from_numpy(value) for name, value in start().items()})
  optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
  losses = []
  for x, y in batches():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
  return losses, [p.detach().numpy() for p in model.parameters()]


@pytest.mark.parametrize("way", WAYS)
def test_training(way: str, torchs: tuple[list[float], list[np.ndarray]]) -> None:
  devices, (weight, bias, second, batch) = WAYS[way]
  model = Ours()
  assert model.up.bias is not None and model.down.bias is not None
  parameters = [model.up.weight, model.up.bias, model.down.weight, model.down.bias]
  for t, value, axis in zip(parameters, start().values(), (weight, bias, second, None), strict=True):
    t.assign(Tensor(value)).shard_(devices, axis)
  optimizer = nn.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)

  @TinyJit
  def step(x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = model(x).cross_entropy(y)
    loss.backward()
    optimizer.step()
    return loss.realize()

  with Tensor.train():
    losses = [
      float(step(Tensor(x).shard(devices, batch), Tensor(y).shard(devices, batch)).item()) for x, y in batches()
    ]
  assert step.captured
  np.testing.assert_allclose(losses, torchs[0], rtol=2e-5)
  for ours, theirs in zip(parameters, torchs[1], strict=True):
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=2e-5)
