"""Schedules of learning rates, and clipped gradients, against PyTorch's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, nn
from tiny_tensor.nn import schedule

torch: Any = pytest.importorskip("torch")  # only in the environment `oracle`
theirs_of = torch.optim.lr_scheduler

# a schedule of `m`, ours or theirs, over an optimiser
MADE: dict[str, Callable[[Any, Any], Any]] = {
  "step": lambda m, o: m.StepLR(o, 3, 0.5),
  "multi-step": lambda m, o: m.MultiStepLR(o, [2, 5]),
  "lambda": lambda m, o: m.LambdaLR(o, lr_lambda=lambda n: 0.9**n),
  "multiplicative": lambda m, o: m.MultiplicativeLR(o, lambda n: 1 - 0.1 * n),
  "exponential": lambda m, o: m.ExponentialLR(o, 0.7),
  "linear": lambda m, o: m.LinearLR(o),
  "linear down": lambda m, o: m.LinearLR(o, 1.0, 0.25, total_iters=8),
  "constant": lambda m, o: m.ConstantLR(o, 0.5, total_iters=4),
  "polynomial": lambda m, o: m.PolynomialLR(o, 6, power=2.0),
  "cosine": lambda m, o: m.CosineAnnealingLR(o, 8, 0.01),
  "cosine, periodic": lambda m, o: m.CosineAnnealingLR(o, 3),
  "restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 4),
  "longer restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 2, 3, eta_min=0.05),
  "one cycle": lambda m, o: m.OneCycleLR(o, 2.0, 20),
  "one cycle in lines": lambda m, o: m.OneCycleLR(o, 2.0, 20, anneal_strategy="linear", pct_start=0.25),
  "three phases": lambda m, o: m.OneCycleLR(o, 2.0, 20, three_phase=True),
  "cyclic": lambda m, o: m.CyclicLR(o, 0.1, 0.9, 3, **momentum(m)),
  "cyclic, halved": lambda m, o: m.CyclicLR(o, 0.1, 0.9, 2, 4, "triangular2", **momentum(m)),
  "cyclic, exponential": lambda m, o: m.CyclicLR(o, 0.1, 0.9, 4, 1, "exp_range", 0.9, **momentum(m)),
  "cyclic, own": lambda m, o: m.CyclicLR(
    o, 0.1, 0.9, 3, scale_fn=lambda n: 1 / (n + 2), scale_mode="iterations", **momentum(m)
  ),
  "sequential": lambda m, o: m.SequentialLR(
    o, [m.ConstantLR(o, 0.1, 9), m.ExponentialLR(o, 0.8), m.CosineAnnealingLR(o, 5)], milestones=[3, 9]
  ),
  "warm-up": lambda m, o: m.SequentialLR(o, [m.LinearLR(o, 0.1), m.PolynomialLR(o, 6)], [5]),
  "chained": lambda m, o: m.ChainedScheduler([m.ConstantLR(o, 0.1, 3), m.ExponentialLR(o, 0.8)]),
  "chained, many": lambda m, o: m.ChainedScheduler(
    [m.LinearLR(o), m.StepLR(o, 2, 0.5), m.CosineAnnealingLR(o, 4, 0.001), m.PolynomialLR(o, 30)]
  ),
}


def momentum(module: Any) -> dict[str, Any]:
  """Theirs changes momenta too unless told otherwise."""
  return {"cycle_momentum": False} if module is theirs_of else {}


def optimisers(lr: float) -> tuple[Any, Any]:
  return nn.optim.SGD([Tensor([1.0])], lr=lr), torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=lr)


@pytest.mark.parametrize("name", MADE)
def test_rates(name: str) -> None:
  with Context(DEVICE="REF"):
    ours, theirs = optimisers(0.4)
    make = MADE[name]
    mine, other = make(schedule, ours), make(theirs_of, theirs)
    for i in range(18):
      rate = theirs.param_groups[0]["lr"]
      assert ours.lr.item() == pytest.approx(rate, rel=1e-5, abs=1e-8), i
      assert mine.get_last_lr() == pytest.approx(rate, rel=1e-6, abs=1e-8), i
      theirs.step()
      mine.step()
      other.step()
      if i == 7:  # go on from a saved state
        state = mine.state_dict()
        ours, _ = optimisers(0.4)
        mine = make(schedule, ours)
        mine.load_state_dict(state)


@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_plateau(mode: Any, threshold_mode: Any) -> None:
  kw: dict[str, Any] = {"factor": 0.5, "patience": 1, "cooldown": 1, "min_lr": 0.02}
  kw |= {"threshold": 0.3, "threshold_mode": threshold_mode, "eps": 1e-3}
  with Context(DEVICE="REF"):
    ours, theirs = optimisers(0.4)
    mine, other = schedule.ReduceLROnPlateau(ours, mode, **kw), theirs_of.ReduceLROnPlateau(theirs, mode, **kw)
    for measure in np.random.default_rng(0).integers(0, 9, 40) / 3:
      mine.step(float(measure))
      other.step(float(measure))
      assert ours.lr.item() == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-5)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_clip_grad_norm(norm_type: float) -> None:
  data = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
  with Context(DEVICE="REF"):
    x, y = Tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    (x**3).sum().backward()
    (y**3).sum().backward()
    total, expected = (m.clip_grad_norm_([t], 0.7, norm_type) for m, t in ((nn, x), (torch.nn.utils, y)))
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5)


RULES: dict[str, dict[str, Any]] = {
  "RMSprop": {},
  "RMSprop, momentum": {"momentum": 0.9, "weight_decay": 0.1, "alpha": 0.8},
  "RMSprop, centered": {"centered": True, "eps": 1e-3},
  "RMSprop, all": {"centered": True, "momentum": 0.5, "weight_decay": 0.01, "maximize": True, "alpha": 0.9},
  "Adagrad": {},
  "Adagrad, all": {"lr_decay": 0.1, "weight_decay": 0.05, "initial_accumulator_value": 0.5, "eps": 1e-3},
  "Adagrad, maximize": {"maximize": True},
  "Adam": {"betas": (0.8, 0.95)},
  "AdamW": {"betas": (0.8, 0.95), "weight_decay": 0.1},
}


@pytest.mark.parametrize("name", RULES)
def test_optimisers_over_steps(name: str) -> None:
  rng = np.random.default_rng(3)
  data, kind, kw = rng.standard_normal((3, 4)).astype(np.float32), name.partition(",")[0], {"lr": 0.05, **RULES[name]}
  with Context(DEVICE="REF"), Tensor.train():
    x, y = Tensor(data), torch.nn.Parameter(torch.tensor(data))
    ours, theirs = getattr(nn.optim, kind)([x], **kw), getattr(torch.optim, kind)([y], **kw)
    for i in range(8):
      pull = rng.standard_normal((3, 4)).astype(np.float32)
      for opt, w, a in ((ours, x, Tensor(pull)), (theirs, y, torch.tensor(pull))):
        opt.zero_grad()
        (w * w * a + w).sum().backward()
        opt.step()
      np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=2e-5, atol=1e-6)
      if i == 4:  # go on from a saved state
        state = {name: t.numpy() for name, t in ours.state_dict().items()}
        ours = getattr(nn.optim, kind)([x], **{**kw, "lr": 0.5})
        ours.load_state_dict(state)
