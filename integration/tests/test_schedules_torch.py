"""Schedules of learning rates, and clipped gradients, against PyTorch's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, nn
from tiny_tensor.nn import schedule

torch: Any = pytest.importorskip("torch")  # only in the environment `oracle`
theirs_of = torch.optim.lr_scheduler

PAIRS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
  "step": (lambda o: schedule.StepLR(o, 3, 0.5), lambda o: theirs_of.StepLR(o, 3, 0.5)),
  "multi-step": (lambda o: schedule.MultiStepLR(o, [2, 5]), lambda o: theirs_of.MultiStepLR(o, [2, 5])),
  "lambda": (lambda o: schedule.LambdaLR(o, lambda n: 0.9**n), lambda o: theirs_of.LambdaLR(o, lambda n: 0.9**n)),
  "cosine": (lambda o: schedule.CosineWarmupLR(o, 0, 8, 0.01), lambda o: theirs_of.CosineAnnealingLR(o, 8, 0.01)),
  "one cycle": (lambda o: schedule.OneCycleLR(o, 2.0, 9), lambda o: theirs_of.OneCycleLR(o, 2.0, 9)),
}


def optimisers(lr: float) -> tuple[Any, Any]:
  return nn.optim.SGD([Tensor([1.0])], lr=lr), torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=lr)


@pytest.mark.parametrize("name", PAIRS)
def test_rates(name: str) -> None:
  with Context(DEVICE="REF"):
    ours, theirs = optimisers(0.4)
    mine, other = (make(o) for make, o in zip(PAIRS[name], (ours, theirs), strict=True))
    for _ in range(8):
      assert ours.lr.item() == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-5, abs=1e-9)
      theirs.step()
      mine.step()
      other.step()


@pytest.mark.parametrize("mode", ["min", "max"])
def test_plateau(mode: Any) -> None:
  kw: dict[str, Any] = {"factor": 0.5, "patience": 1, "cooldown": 1, "min_lr": 0.02}
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
