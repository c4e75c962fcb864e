"""Layers and optimisers against PyTorch: a network with the same weights trains the same way."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, TinyJit, nn

torch: Any = pytest.importorskip("torch")  # only in the environment `oracle`


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Iterator[None]:
  with Context(DEVICE="CPU"):
    Tensor.manual_seed(1)
    yield


def data(*shape: int) -> Any:
  return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def give_weights(ours: Any, theirs: Any) -> None:
  state = {k: torch.from_numpy(t.numpy().copy()) for k, t in nn.state.get_state_dict(ours).items()}
  own = theirs.state_dict()
  theirs.load_state_dict({k: v.reshape(own[k].shape) for k, v in state.items()})


def close(ours: Tensor, theirs: Any, tolerance: float = 2e-5) -> None:
  np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


LAYERS: list[tuple[str, Callable[[Any], Any], tuple[int, ...]]] = [
  ("linear", lambda n: n.Linear(5, 3), (4, 5)),
  ("conv1d", lambda n: n.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9)),
  ("conv2d", lambda n: n.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), (2, 4, 9, 8)),
  ("conv3d", lambda n: n.Conv3d(2, 3, 2, padding=1), (1, 2, 3, 4, 5)),
  ("strided conv3d", lambda n: n.Conv3d(2, 4, (5, 3, 2), stride=(3, 2, 1), padding=(2, 1, 0)), (2, 2, 8, 7, 3)),
  ("depthwise", lambda n: n.Conv2d(4, 4, (3, 5), stride=(2, 4), padding=1, groups=4), (2, 4, 6, 9)),
  ("conv same", lambda n: n.Conv2d(2, 3, (4, 3), padding="same"), (2, 2, 6, 5)),
  ("convtranspose1d", lambda n: n.ConvTranspose1d(4, 2, 3, stride=2, padding=1, output_padding=1), (2, 4, 5)),
  ("convtranspose2d", lambda n: n.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 5, 3)),
  ("batchnorm", lambda n: n.BatchNorm2d(3), (4, 3, 5, 2)),
  ("groupnorm", lambda n: n.GroupNorm(2, 4), (3, 4, 5)),
  ("layernorm", lambda n: n.LayerNorm((4, 5)), (3, 4, 5)),
]


@pytest.mark.parametrize(("make", "shape"), [case[1:] for case in LAYERS], ids=[case[0] for case in LAYERS])
def test_layer_forward_and_gradients(make: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
  ours, theirs = make(nn), make(torch.nn)
  give_weights(ours, theirs)
  raw = data(*shape)
  x, y = Tensor(raw, requires_grad=True), torch.tensor(raw, requires_grad=True)
  trained = [t.requires_grad_(True) for t in nn.state.get_parameters(ours) if t.requires_grad is not False]
  with Tensor.train():
    out, expected = ours(x), theirs(y)
    close(out, expected)
    (out * out.sigmoid()).sum().backward()
    (expected * expected.sigmoid()).sum().backward()
  assert x.grad is not None
  close(x.grad, y.grad, 1e-4)
  for mine, (_, other) in zip(trained, theirs.named_parameters()):
    assert mine.grad is not None
    close(mine.grad, other.grad, 1e-3)


WITHOUT_WEIGHTS: list[Callable[[Any], Any]] = [
  *(lambda n, name=name: getattr(n, name)() for name in (
    "Identity Flatten ReLU LeakyReLU ReLU6 ELU SELU CELU GELU SiLU Mish Sigmoid Tanh LogSigmoid Hardsigmoid Hardswish "
    "Hardtanh Softplus Softsign GLU"
  ).split()),
  lambda n: n.LeakyReLU(0.2), lambda n: n.GELU("tanh"), lambda n: n.Softmax(dim=1), lambda n: n.LogSoftmax(1),
  lambda n: n.MaxPool2d(2, 1), lambda n: n.AvgPool2d(3, stride=2, padding=1), lambda n: n.MaxPool1d(2),
  lambda n: n.AvgPool1d(2), lambda n: n.MaxPool3d(2), lambda n: n.AvgPool3d(2), lambda n: n.AdaptiveAvgPool1d(3),
  lambda n: n.AdaptiveAvgPool2d((2, 3)), lambda n: n.AdaptiveMaxPool2d(2), lambda n: n.PixelShuffle(2),
  lambda n: n.Upsample(scale_factor=2, mode="bilinear"), lambda n: n.Flatten(2),
]  # fmt: skip
LOSSES: list[tuple[Callable[[Any], Any], bool]] = [
  *((lambda n, name=name: getattr(n, name)(), name in ("CrossEntropyLoss", "NLLLoss")) for name in (
    "L1Loss MSELoss SmoothL1Loss HuberLoss CrossEntropyLoss NLLLoss BCELoss BCEWithLogitsLoss KLDivLoss"
  ).split()),
  (lambda n: n.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2), True),
  (lambda n: n.MSELoss(reduction="sum"), False),
  (lambda n: n.HuberLoss(delta=0.3), False), (lambda n: n.KLDivLoss(reduction="batchmean"), False),
]  # fmt: skip


def test_layers_without_weights_and_losses() -> None:
  """All of them in one schedule."""
  found, expected = [], []
  for make in WITHOUT_WEIGHTS:
    ours, theirs = make(nn), make(torch.nn)
    name = type(theirs).__name__
    shape = (2, 4, 8) if name.endswith("1d") else (2, 2, 4, 4, 6) if name.endswith("3d") else (2, 4, 6, 8)
    found.append(ours(Tensor(data(*shape))))
    expected.append(theirs(torch.from_numpy(data(*shape))))
  inputs, targets = torch.from_numpy(data(4, 3)).sigmoid(), torch.from_numpy(data(3, 4).T.copy()).sigmoid()
  for loss, of_classes in LOSSES:
    target = torch.tensor([0, 2, 1, 2]) if of_classes else targets
    found.append(loss(nn)(Tensor(inputs.numpy()), Tensor(target.numpy())))
    expected.append(loss(torch.nn)(inputs, target))
  Tensor.realize(*found)
  for one, other in zip(found, expected, strict=True):
    close(one, other)


OPTIMISERS: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
  ("sgd", lambda p: nn.optim.SGD(p, lr=0.05), lambda p: torch.optim.SGD(p, lr=0.05)),
  (
    "nesterov",
    lambda p: nn.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-2),
    lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-2),
  ),
  ("adam", lambda p: nn.optim.Adam(p, lr=0.01), lambda p: torch.optim.Adam(p, lr=0.01)),
  (
    "adamw",
    lambda p: nn.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
  ),
]


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "jit"])
@pytest.mark.parametrize(("ours", "theirs"), [case[1:] for case in OPTIMISERS], ids=[case[0] for case in OPTIMISERS])
def test_training(ours: Callable[[Any], Any], theirs: Callable[[Any], Any], jit: bool) -> None:
  class Net:
    def __init__(self) -> None:
      # no bias before the normalisation: its gradient is zero but for rounding, which Adam would blow up
      self.conv, self.norm, self.linear = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm(4), nn.Linear(4 * 2 * 2, 3)

    def __call__(self, x: Tensor) -> Tensor:
      return self.linear(self.norm(self.conv(x)).relu().max_pool2d((2, 2)).flatten(1))

  class TorchNet(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
      super().__init__()
      self.conv, self.norm = torch.nn.Conv2d(1, 4, 3, bias=False), torch.nn.BatchNorm2d(4)
      self.linear = torch.nn.Linear(4 * 2 * 2, 3)

    def forward(self, x: Any) -> Any:
      x = torch.nn.functional.max_pool2d(self.norm(self.conv(x)).relu(), 2)
      return self.linear(x.flatten(1))

  net, other = Net(), TorchNet()
  give_weights(net, other)
  opt, other_opt = ours(nn.state.get_parameters(net)), theirs(other.parameters())

  def step(x: Tensor, y: Tensor) -> Tensor:
    opt.zero_grad()
    loss = net(x).sparse_categorical_crossentropy(y)
    loss.backward()
    opt.step()
    return loss.realize()

  call = TinyJit(step) if jit else step
  rng = np.random.default_rng(0)
  with Tensor.train():
    for _ in range(6):
      x, y = rng.standard_normal((8, 1, 6, 6)).astype(np.float32), rng.integers(0, 3, 8)
      other_opt.zero_grad()
      expected = torch.nn.functional.cross_entropy(other(torch.tensor(x)), torch.tensor(y))
      expected.backward()
      other_opt.step()
      loss = call(Tensor(x), Tensor(y.astype(np.int32)))
      assert loss.item() == pytest.approx(expected.item(), rel=1e-3)
  for name, value in other.state_dict().items():
    np.testing.assert_allclose(
      nn.state.get_state_dict(net)[name].numpy().reshape(value.shape), value.numpy(), rtol=5e-3, atol=5e-4, err_msg=name
    )
