"""Optimisers against their formulas in NumPy, on the reference device."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_runtime import run_schedule
from tiny_tensor import Context, Tensor, dtypes, nn
from tiny_tensor.realize import is_realized

Array = Any


@pytest.fixture(autouse=True)
def _training_on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"), Tensor.train():
    yield


START: dict[str, Array] = {"w": np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]), "b": np.array([0.1, -0.2])}
STEPS = 4


def gradients(p: dict[str, Array], step: int) -> dict[str, Array]:
  """Of the loss in `loss_of`, by hand."""
  return {"w": 2 * p["w"] * (step + 1), "b": 3 * p["b"] ** 2 - 1}


def loss_of(w: Tensor, b: Tensor, step: int) -> Tensor:
  return (w * w * (step + 1)).sum() + (b * b * b - b).sum()


def ours(make: Callable[[list[Tensor]], Any]) -> dict[str, Array]:
  w, b = (Tensor(START[k].astype(np.float32)) for k in ("w", "b"))
  opt = make([w, b])
  for step in range(STEPS):
    opt.zero_grad()
    loss_of(w, b, step).backward()
    opt.step()
  return {"w": w.numpy(), "b": b.numpy()}


def sgd(lr: float, momentum: float = 0, weight_decay: float = 0, nesterov: bool = False) -> dict[str, Array]:
  p = {k: v.copy() for k, v in START.items()}
  velocity = {k: np.zeros_like(v) for k, v in p.items()}
  for step in range(STEPS):
    for k, g in gradients(p, step).items():
      g = g + weight_decay * p[k]
      velocity[k] = momentum * velocity[k] + g
      p[k] = p[k] - lr * (g + momentum * velocity[k] if nesterov else velocity[k])
  return p


def adam(
  lr: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0, l2: float = 0
) -> dict[str, Array]:
  p = {k: v.copy() for k, v in START.items()}
  m, v = ({k: np.zeros_like(x) for k, x in p.items()} for _ in range(2))
  for step in range(STEPS):
    for k, g in gradients(p, step).items():
      g = g + l2 * p[k]
      m[k] = b1 * m[k] + (1 - b1) * g
      v[k] = b2 * v[k] + (1 - b2) * g**2
      p[k] = p[k] * (1 - lr * weight_decay)
      p[k] = p[k] - lr * (m[k] / (1 - b1 ** (step + 1))) / (np.sqrt(v[k] / (1 - b2 ** (step + 1))) + eps)
  return p


CASES: dict[str, tuple[Callable[[list[Tensor]], Any], Callable[[], dict[str, Array]]]] = {
  "sgd": (lambda p: nn.optim.SGD(p, lr=0.05), lambda: sgd(0.05)),
  "sgd decay": (lambda p: nn.optim.SGD(p, lr=0.05, weight_decay=0.1), lambda: sgd(0.05, weight_decay=0.1)),
  "momentum": (lambda p: nn.optim.SGD(p, lr=0.05, momentum=0.9), lambda: sgd(0.05, 0.9)),
  "nesterov": (
    lambda p: nn.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    lambda: sgd(0.05, 0.9, 0.01, nesterov=True),
  ),
  "adam": (lambda p: nn.optim.Adam(p, lr=0.1), lambda: adam(0.1)),
  "adam betas": (lambda p: nn.optim.Adam(p, lr=0.1, b1=0.8, b2=0.9, eps=1e-3), lambda: adam(0.1, 0.8, 0.9, 1e-3)),
  "adam decay": (lambda p: nn.optim.Adam(p, lr=0.1, weight_decay=0.2), lambda: adam(0.1, l2=0.2)),
  "adamw": (lambda p: nn.optim.AdamW(p, lr=0.1, weight_decay=0.2), lambda: adam(0.1, weight_decay=0.2)),
}


@pytest.mark.parametrize("name", CASES)
def test_follows_its_formula(name: str) -> None:
  make, reference = CASES[name]
  expected = reference()
  for key, got in ours(make).items():
    np.testing.assert_allclose(got, expected[key], rtol=1e-4, atol=1e-5)


def test_classic_momentum_keeps_old_learning_rates() -> None:
  p = Tensor([1.0])
  opt = nn.optim.SGD([p], lr=0.1, momentum=0.5, classic=True)
  for lr in (0.1, 0.0):
    opt.lr.assign(Tensor([lr])).realize()
    opt.zero_grad()
    (p * 2).sum().backward()
    opt.step()
  # 1 - 0.1·2, then the momentum of the first step alone: 0.5·0.2
  np.testing.assert_allclose(p.numpy(), [0.7], rtol=1e-6)


def test_groups_step_together() -> None:
  a, b, c = Tensor([1.0]), Tensor([1.0]), Tensor([1.0])
  opt = nn.optim.OptimizerGroup(nn.optim.SGD([a], lr=0.5), nn.optim.SGD([b, c], lr=0.25))
  opt.zero_grad()
  (a + b + c).sum().backward()
  opt.step()
  assert [t.item() for t in (a, b, c)] == [0.5, 0.75, 0.75]
  opt.zero_grad()
  assert a.grad is None and b.grad is None


def test_tied_parameters_are_stepped_once() -> None:
  p = Tensor([1.0])
  opt = nn.optim.SGD([p, p], lr=0.5)
  (p * 1.0).sum().backward()
  opt.step()
  assert p.item() == 0.5


def test_buffers_are_realised_but_not_trained() -> None:
  layer = nn.BatchNorm(2)
  opt = nn.optim.SGD(nn.state.get_parameters(layer), lr=0.1)
  assert len(opt.params) == 2 and len(opt.buffers) == 3
  layer(Tensor([[1.0, 2.0], [3.0, 6.0]])).sum().backward()
  opt.step()
  assert layer.num_batches_tracked.tolist() == [1]
  np.testing.assert_allclose(layer.running_mean.numpy(), [0.2, 0.4], rtol=1e-6)


def test_halves_have_moments_in_single_precision() -> None:
  p = Tensor([1.0, -1.0], dtype=dtypes.float16)
  opt = nn.optim.Adam([p], lr=0.125)
  (p * 1e-4).sum().backward()
  opt.step()
  assert p.dtype is dtypes.float16
  assert opt.v[0].dtype is dtypes.float32
  assert p.tolist() == [0.875, -1.125], "the square of the gradient underflows in half precision"


def test_errors() -> None:
  p = Tensor([1.0, 2.0])
  opt = nn.optim.SGD([p])
  with pytest.raises(RuntimeError, match=r"parameter 0.*\(2,\).*backward"):
    opt.step()
  with pytest.raises(ValueError, match="requires a gradient"):
    nn.optim.SGD([Tensor([1, 2])])
  with pytest.raises(ValueError, match="nesterov"):
    nn.optim.SGD([p], nesterov=True)
  with pytest.raises(ValueError, match="at least one"):
    nn.optim.OptimizerGroup()
  p.sum().backward()
  with Tensor.train(False), pytest.raises(RuntimeError, match=r"Tensor\.train"):
    opt.step()
  opt.step()


@pytest.mark.parametrize(
  "make",
  [
    lambda weights: nn.optim.Adam(weights),
    lambda weights: nn.optim.SGD(weights, momentum=0.9),
    lambda weights: nn.optim.RMSprop(weights, momentum=0.9, centered=True),
  ],
  ids=["Adam", "SGD", "RMSprop"],
)
def test_the_second_step_has_no_new_kernels(make: Callable[[list[Tensor]], Any]) -> None:
  w, b = (Tensor(START[name].astype(np.float32)) for name in ("w", "b"))
  opt, kernels = make([w, b]), []
  for _ in range(2):
    opt.zero_grad()
    loss_of(w, b, 0).backward()
    items = Tensor.schedule(*opt.schedule_step())
    kernels.append({item.ast for item in items})
    run_schedule(items)
  assert kernels[1] <= kernels[0]


def test_a_step_computes_nothing_of_the_one_before() -> None:
  found = []
  for together in (False, True):
    w, b = (Tensor(START[name].astype(np.float32)).realize() for name in ("w", "b"))
    opt = nn.optim.SGD([w, b], lr=0.01, momentum=0.9)
    for step in range(2):
      opt.zero_grad()
      loss_of(w, b, step).backward()
      results = opt.schedule_step()
      assert not any(is_realized(t.uop) for t in (w, b, *opt.b)), step
      if not together:
        results[0].realize(*results[1:])
    results[0].realize(*results[1:])
    found.append((w.tolist(), b.tolist(), [t.tolist() for t in opt.b]))
  assert found[0] == found[1]
