"""How many kernels programs make: exactly, so that what takes fewer than before is written down here as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tiny_tensor import Context, Tensor, nn
from tiny_tensor.nn import optim
from tiny_tensor.realize import plan_tensors
from tiny_uop import Ops

IMAGES = (2, 3, 32, 32)


@pytest.fixture(autouse=True)
def _training_on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"), Tensor.train():
    yield


def kernels(tensors: Sequence[Tensor]) -> list[str]:
  """The names of the kernels that the tensors take; nothing runs."""
  linear, _ = plan_tensors(tensors)
  return [call.src[0].arg.name if call.src[0].op is Ops.SINK else "copy" for call in linear.src]


def data(*shape: int) -> Tensor:
  """Memory whose contents do not matter."""
  return Tensor.empty(*shape)


def made(*layers: Any) -> list[Tensor]:
  """The tensors of layers, all in memory."""
  tensors = nn.state.get_parameters(list(layers))
  for t in tensors:
    t.uop = Tensor.empty(*t.shape, dtype=t.dtype).uop
  return tensors


def step(
  make: Callable[[list[Tensor]], optim.Optimizer], layers: Sequence[Any], loss: Callable[[], Tensor]
) -> list[Tensor]:
  """What one step of an optimiser has to realise."""
  opt = make(made(*layers))
  made(opt)
  opt.zero_grad()
  loss().backward()
  return opt.schedule_step()


def convolutions(make: Callable[[list[Tensor]], optim.Optimizer], count: int, bias: bool = False) -> list[Tensor]:
  layers = [nn.Conv2d(3 << n, 6 << n, 3, bias=bias) for n in range(count)]
  x = data(*IMAGES)
  return step(make, layers, lambda: x.sequential([f for layer in layers for f in (layer, Tensor.relu)]).sum())


def sgd(tensors: list[Tensor]) -> optim.Optimizer:
  return optim.SGD(tensors)


def nesterov(tensors: list[Tensor]) -> optim.Optimizer:
  return optim.SGD(tensors, momentum=0.9, nesterov=True, weight_decay=0.1)


def adam(tensors: list[Tensor]) -> optim.Optimizer:
  return optim.Adam(tensors)


def normalised(make: Callable[[list[Tensor]], optim.Optimizer], activation: Callable[[Tensor], Tensor]) -> list[Tensor]:
  conv, norm = nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm(16)
  x = data(*IMAGES)
  return step(make, [conv, norm], lambda: activation(norm(conv(x))).square().mean())


Program = Callable[[], Sequence[Tensor]]
# program, kernels, why
COUNTS: list[tuple[str, Program, int, str]] = [
  ("sgd, 1 convolution", lambda: convolutions(sgd, 1), 3, "forward, gradient of each image, their sum and the update"),
  ("sgd, 2 convolutions", lambda: convolutions(sgd, 2), 7, "as above for each, and one gradient of an input"),
  ("sgd, 4 convolutions", lambda: convolutions(sgd, 4), 15, "4 forward, 3 gradients of inputs, 8 of kernels"),
  ("nesterov, 4 convolutions", lambda: convolutions(nesterov, 4), 15, "the momentum is written along with the weight"),
  ("adam, 4 convolutions", lambda: convolutions(adam, 4), 16, "and one for the two powers, which all updates read"),
  ("sgd, 4 with biases", lambda: convolutions(sgd, 4, bias=True), 19, "a sum over all places for each bias"),
]


@pytest.mark.parametrize(("program", "count", "why"), [c[1:] for c in COUNTS], ids=[c[0] for c in COUNTS])
def test_number_of_kernels(program: Program, count: int, why: str) -> None:
  found = kernels(program())
  assert len(found) == count, f"{found}, where {count} are due: {why}"
