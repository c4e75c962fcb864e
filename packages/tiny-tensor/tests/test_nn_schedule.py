"""Schedules, clipping, and optimisers whose steps are in proportion to the weights: against NumPy."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, TinyJit, nn
from tiny_tensor.nn import optim, schedule


@pytest.fixture(autouse=True)
def _training_on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"), Tensor.train():
    yield


def sgd(lr: float = 0.5) -> optim.SGD:
  return optim.SGD([Tensor([1.0])], lr=lr)


def rates(make: Callable[[optim.Optimizer], schedule.LRScheduler], count: int) -> list[float]:
  opt = sgd()
  scheduler, seen = make(opt), []
  for _ in range(count):
    seen.append(opt.lr.item())
    assert scheduler.get_last_lr() == pytest.approx(seen[-1])
    scheduler.step()
  return seen


def test_schedules_at_their_corners() -> None:
  assert rates(lambda o: schedule.StepLR(o, 2), 5) == pytest.approx([0.5, 0.5, 0.05, 0.05, 0.005])
  assert rates(lambda o: schedule.MultiStepLR(o, [3, 1], 0.5), 4) == pytest.approx([0.5, 0.25, 0.25, 0.125])
  assert rates(lambda o: schedule.LambdaLR(o, lambda n: 1 / (n + 1)), 3) == pytest.approx([0.5, 0.25, 0.5 / 3])
  cosine = rates(lambda o: schedule.CosineWarmupLR(o, 2, 6, 0.1), 9)
  wave = 0.2 * math.sqrt(0.5)
  assert cosine == pytest.approx([0, 0.25, 0.5, 0.3 + wave, 0.3, 0.3 - wave, 0.1, 0.1, 0.1])
  cycle = rates(lambda o: schedule.OneCycleLR(o, 1.0, 10), 11)
  assert cycle[0] == pytest.approx(1 / 25) and cycle[2] == pytest.approx(1)
  assert cycle[9] == cycle[10] == pytest.approx(1 / 25e4)
  assert cycle[:3] == sorted(cycle[:3]) and cycle[2:] == sorted(cycle[2:], reverse=True)


def test_plateau() -> None:
  opt = sgd(1.0)
  plateau = schedule.ReduceLROnPlateau(opt, factor=0.5, patience=1, cooldown=1, min_lr=0.2)
  seen = []
  for measure in (5, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3):
    plateau.step(measure)
    seen.append(opt.lr.item())
  assert seen == pytest.approx([1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2, 0.2, 0.2, 0.2], abs=1e-6)


def test_a_captured_step_sees_the_schedule() -> None:
  weight = Tensor([8.0])
  opt = optim.SGD([weight], lr=1.0)
  scheduler = schedule.StepLR(opt, 1, 0.5)

  @TinyJit
  def step() -> Tensor:
    opt.zero_grad()
    weight.sum().backward()
    opt.step()
    return weight

  for _ in range(4):
    step()
    scheduler.step()
  assert weight.item() == 8 - (1 + 0.5 + 0.25 + 0.125)


def with_gradients() -> tuple[list[Tensor], list[Any]]:
  params = [Tensor([3.0, -1.0]), Tensor([[2.0], [0.5]]), Tensor([1.0])]
  for p in params:
    p.requires_grad_()
  (params[0].square().sum() + params[1].square().sum() * 2).backward()
  return params, [np.array([6.0, -2.0]), np.array([[8.0], [2.0]])]


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("limit", [1.5, 100.0])
def test_clip_grad_norm(norm_type: float, limit: float) -> None:
  params, grads = with_gradients()
  total = nn.clip_grad_norm_(params, limit, norm_type)
  norm = np.linalg.norm(np.concatenate([g.ravel() for g in grads]), norm_type)
  assert total.item() == pytest.approx(norm)
  assert params[2].grad is None
  for p, g in zip(params, grads, strict=False):
    assert p.grad is not None
    np.testing.assert_allclose(p.grad.numpy(), g * min(1, limit / (norm + 1e-6)), rtol=1e-5)


def test_clip_grad_value_and_errors() -> None:
  params, grads = with_gradients()
  nn.clip_grad_value_(params, 2.5)
  for p, g in zip(params, grads, strict=False):
    assert p.grad is not None
    np.testing.assert_array_equal(p.grad.numpy(), g.clip(-2.5, 2.5))
  with pytest.raises(ValueError, match="positive, got 0"):
    nn.clip_grad_norm_(params, 0)
  params[0].grad = Tensor([math.inf, 0.0])
  with pytest.raises(RuntimeError, match="norm of the gradients is inf"):
    nn.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
  assert nn.clip_grad_norm_([], 1.0).item() == 0


START = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
STEPS = 3


def trained(make: Callable[[list[Tensor]], optim.Optimizer]) -> Any:
  w = Tensor(START.astype(np.float32))
  opt = make([w])
  for step in range(STEPS):
    opt.zero_grad()
    (w * w * (step + 1)).sum().backward()
    opt.step()
  return w.numpy()


def test_lars() -> None:
  p, b = START.copy(), np.zeros_like(START)
  for step in range(STEPS):
    g = 2 * p * (step + 1) + 0.1 * p
    b = 0.9 * b + 0.5 * 0.01 * np.linalg.norm(p) / np.linalg.norm(g) * g
    p = p - b
  got = trained(lambda w: optim.LARS(w, lr=0.5, weight_decay=0.1, tcoef=0.01))
  np.testing.assert_allclose(got, p, rtol=1e-5)


def test_lamb() -> None:
  p, m, v = START.copy(), np.zeros_like(START), np.zeros_like(START)
  for step in range(STEPS):
    g = 2 * p * (step + 1)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    r = m / (1 - 0.9 ** (step + 1)) / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-6) + 0.1 * p
    p = p - 0.05 * np.linalg.norm(p) / np.linalg.norm(r) * r
  np.testing.assert_allclose(trained(lambda w: optim.LAMB(w, lr=0.05, weight_decay=0.1)), p, rtol=1e-4)


@pytest.mark.parametrize("nesterov", [True, False])
def test_muon(nesterov: bool) -> None:
  p, b = START.copy(), np.zeros_like(START)
  for step in range(STEPS):
    g = 2 * p * (step + 1)
    b = 0.9 * b + 0.1 * g
    x = 0.1 * g + 0.9 * b if nesterov else b
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
      gram = x @ x.T
      x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    p = p * (1 - 0.02 * 0.1) - 0.02 * x
  np.testing.assert_allclose(trained(lambda w: optim.Muon(w, lr=0.02, momentum=0.9, nesterov=nesterov)), p, rtol=1e-4)
  with pytest.raises(ValueError, match="Muon trains matrices"):
    optim.Muon([Tensor([1.0])])


WRONG: list[tuple[Callable[[], Any], str]] = [
  (lambda: schedule.StepLR(sgd(), 0), "step_size"),
  (lambda: schedule.CosineWarmupLR(sgd(), 5, 5), "warmup_steps=5"),
  (lambda: schedule.OneCycleLR(sgd(), 1.0, 0), "total_steps=0"),
  (lambda: schedule.ReduceLROnPlateau(sgd(), "low"), "'low'"),
  (lambda: schedule.ReduceLROnPlateau(sgd(), factor=2), "factor"),
  (lambda: nn.clip_grad_value_([], -1), "negative"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_errors(call: Callable[[], Any], message: str) -> None:
  with pytest.raises(ValueError, match=message):
    call()
