"""The frontend on devices of which only the plugin contract can be seen: a captured training step, on a device with
graphs. The suite of tiny-tensor runs in this way as a whole, on the devices that are installed beside it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from tiny_runtime.conformance.only_contract import only_contract
from tiny_tensor import Device, Tensor, TinyJit, nn


class Net:
  def __init__(self) -> None:
    self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)

  def __call__(self, x: Tensor) -> Tensor:
    return self.second(self.first(x).relu())


def train(steps: int, path: Path) -> tuple[str, list[float], list[float]]:
  """Kind of the device, losses, and weights after a way through a file."""
  Tensor.manual_seed(3)
  net = Net()
  optimiser = nn.optim.Adam(nn.state.get_parameters(net), lr=0.01)

  @TinyJit
  def step(x: Tensor, y: Tensor) -> Tensor:
    with Tensor.train():
      optimiser.zero_grad()
      loss = net(x).sparse_categorical_crossentropy(y).backward()
      optimiser.step()
      return loss.realize()

  losses = [step(Tensor.randn(8, 6).realize(), Tensor([0, 1, 2, 0, 1, 2, 0, 1])).item() for _ in range(steps)]
  nn.state.safe_save(nn.state.get_state_dict(net), str(path))
  loaded = nn.state.safe_load(str(path))["first.weight"].to("CPU").flatten().tolist()
  return type(Device["CPU"]).__name__, losses, loaded


def test_training_sees_only_the_contract(tmp_path: Path) -> None:
  kinds, results = [], []
  for wrapped in (False, True):
    with only_contract() if wrapped else nullcontext():
      kind, *rest = train(6, tmp_path / f"{wrapped}.safetensors")
    kinds.append(kind)
    results.append(rest)
  assert kinds == ["CPUDevice", "OnlyDevice"]
  assert results[0] == results[1]
