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


def normalised(
  make: Callable[[list[Tensor]], optim.Optimizer],
  activation: Callable[[Tensor], Tensor],
  shape: tuple[int, ...] = IMAGES,
  tracked: bool = False,
) -> list[Tensor]:
  conv, norm = nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm(16, track_running_stats=tracked)
  x = data(*shape)
  return step(make, [conv, norm], lambda: activation(norm(conv(x))).sum())


def residual(channels: int = 16, shortcut: bool = False) -> list[Tensor]:
  out = 2 * channels if shortcut else channels
  stride = out // channels
  first, second, beside = (
    nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False),
    nn.Conv2d(out, out, 3, padding=1, bias=False),
    nn.Conv2d(channels, out, 1, stride=stride, bias=False),
  )
  norms = [nn.BatchNorm(out) for _ in range(3)]
  made(first, second, beside, *norms)
  x = data(1, channels, 32, 32)
  with Tensor.train(False):
    y = norms[1](second(norms[0](first(x)).relu()))
    return [(y + (norms[2](beside(x)) if shortcut else x)).relu()]


def transformer(swiglu: bool) -> list[Tensor]:
  x, norm = data(2, 32, 64), nn.LayerNorm(64)
  up, gate, down = nn.Linear(64, 256), nn.Linear(64, 256), nn.Linear(256, 64)
  made(norm, up, gate, down)
  n = norm(x)
  return [x + down(gate(n).silu() * up(n) if swiglu else up(n).gelu())]


def plain(f: Callable[[Tensor], Tensor], *shape: int) -> Callable[[], list[Tensor]]:
  return lambda: [f(data(*shape))]


def rotary(size: int, places: int) -> list[Tensor]:
  frequencies = 1.0 / (10000 ** (Tensor.arange(0, size, 2) / size))
  angles = Tensor.arange(places).unsqueeze(1) * frequencies.unsqueeze(0)
  return [angles.cos().stack(angles.sin(), dim=-1)]


Program = Callable[[], Sequence[Tensor]]
# program, kernels, why
COUNTS: list[tuple[str, Program, int, str]] = [
  ("sgd, 1 convolution", lambda: convolutions(sgd, 1), 3, "forward, gradient of each image, their sum and the update"),
  ("sgd, 2 convolutions", lambda: convolutions(sgd, 2), 7, "as above for each, and one gradient of an input"),
  ("sgd, 4 convolutions", lambda: convolutions(sgd, 4), 15, "4 forward, 3 gradients of inputs, 8 of kernels"),
  ("nesterov, 4 convolutions", lambda: convolutions(nesterov, 4), 15, "the momentum is written along with the weight"),
  ("adam, 4 convolutions", lambda: convolutions(adam, 4), 16, "and one for the two powers, which all updates read"),
  ("sgd, 4 with biases", lambda: convolutions(sgd, 4, bias=True), 19, "a sum over all places for each bias"),
  (
    "sgd, batch norm",
    lambda: normalised(sgd, Tensor.relu),
    8,
    "convolution, its statistics, its gradient, the sums of that, gradient of what is normalised, of the weight, and "
    "updates of the weight and of the norm",
  ),
  ("sgd, batch norm, elu", lambda: normalised(sgd, Tensor.elu), 8, "as above"),
  ("sgd, batch norm, tiny", lambda: normalised(sgd, Tensor.elu, (1, 3, 4, 4)), 7, "sums are made again instead"),
  ("sgd, batch norm, tracked", lambda: normalised(sgd, Tensor.relu, tracked=True), 9, "and the number of batches"),
  ("residual block", residual, 2, "one for each convolution"),
  ("residual block, shortcut", lambda: residual(shortcut=True), 2, "its convolution is small"),
  ("residual block, wide", lambda: residual(64, shortcut=True), 3, "loops are tiled for one contraction"),
  ("transformer block", lambda: transformer(False), 3, "norm, and a matrix product each"),
  ("transformer block, gated", lambda: transformer(True), 4, "loops are tiled for one product"),
  ("rotary table", lambda: rotary(32, 2048), 1, "it reads nothing, and is made once"),
  ("rotary table, large", lambda: rotary(128, 4096), 1, "as above"),
  ("rotary table, half", lambda: [rotary(64, 512)[0].half().contiguous()], 1, "as above"),
  ("sum of sums", plain(lambda x: x.sum(2).sum(1), 8, 16, 32), 1, "one sum over both axes"),
  ("sum of sums, long", plain(lambda x: x.sum(2).sum(1), 64, 64, 64), 1, "rows enough for all processors"),
  ("sum of sums, few rows", plain(lambda x: x.sum(2).sum(1), 4, 512, 64), 2, "4 rows would keep few of them busy"),
  ("sum of maxima", plain(lambda x: x.max(2).sum(1), 8, 16, 32), 1, "less work than a call"),
  ("sum of maxima, long", plain(lambda x: x.max(2).sum(1), 64, 64, 64), 2, "neither could be tiled"),
  ("variance", plain(lambda x: x.var(), 32, 32), 1, "the mean is computed once"),
  ("cross-entropy", plain(lambda x: x.log_softmax(1).sum(), 32, 10), 1, "three sums, one in the other"),
]


@pytest.mark.parametrize(("program", "count", "why"), [c[1:] for c in COUNTS], ids=[c[0] for c in COUNTS])
def test_number_of_kernels(program: Program, count: int, why: str) -> None:
  found = kernels(program())
  assert len(found) == count, f"{found}, where {count} are due: {why}"
