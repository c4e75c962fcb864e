"""`Tensor.autocast`, `GradScaler`: what is narrow, steps that are left out, and a network that learns as in float32."""

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tiny_tensor import Context, Tensor, TinyJit, dtypes, nn
from tiny_tensor.nn import optim
from tiny_uop import Ops


@pytest.fixture(autouse=True)
def _training_on_the_cpu() -> Iterator[None]:
  with Context(DEVICE="CPU"), Tensor.train():
    yield


def test_products_are_narrow_and_the_rest_is_not() -> None:
  x, w = Tensor([[1.0, 1 / 3]]), Tensor([[1 / 3], [1.0]], requires_grad=True)
  for dtype in (dtypes.bfloat16, dtypes.float16):
    with Tensor.autocast(dtype):
      y = x @ w
      assert y.dtype is dtypes.float32 and any(u.dtype is dtype for u in y.uop.toposort)
      assert not any(u.dtype is dtype for u in (x * 2).softmax().sum().uop.toposort)
      assert (x.double() @ w.double()).dtype is dtypes.float64
      with Tensor.autocast(enabled=False):
        assert not any(u.dtype is dtype for u in (x @ w).uop.toposort)
    exact, rounded = (x @ w).item(), (x.cast(dtype) @ w.cast(dtype)).item()
    assert y.item() == rounded != exact
  w.grad = None
  y.backward()
  assert w.grad is not None and w.grad.tolist() == (x.half().float().T).tolist()
  with Tensor.autocast(dtypes.float16):
    sums = [u for u in (Tensor.empty(4, 8) @ Tensor.empty(8, 4)).uop.toposort if u.op is Ops.REDUCE]
  assert [u.dtype for u in sums] == [dtypes.float32]
  with pytest.raises(ValueError, match="bfloat16 or float16, got int32"), Tensor.autocast("int32"):
    pass


def test_a_step_with_an_infinite_gradient_changes_nothing() -> None:
  w = Tensor([1.0, 2.0]).realize()
  opt, scaler = optim.Adam([w], lr=0.1), optim.GradScaler(init_scale=8.0, growth_interval=2)
  scales, values = [], []
  for pull in (1.0, float("inf"), 1.0, 1.0, float("nan"), 1.0):
    opt.zero_grad()
    loss = (w * Tensor([pull, 1.0])).sum()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    scales.append(scaler.get_scale())
    values.append(w.tolist())
  assert scales == [8, 4, 4, 8, 4, 4]
  assert values[0] == values[1] != values[2] and values[3] == values[4] != values[5]
  # four steps without a scale
  other = Tensor([1.0, 2.0]).realize()
  plain = optim.Adam([other], lr=0.1)
  for _ in range(4):
    plain.zero_grad()
    other.sum().backward()
    plain.step()
  np.testing.assert_allclose(values[-1], other.numpy(), rtol=1e-6)
  with pytest.raises(RuntimeError, match="comes after step"):
    scaler.update()


def learned(dtype: str | None) -> float:
  """The share of right digits that a small convolutional network reaches."""
  Tensor.manual_seed(0)
  images, labels = load_digits(return_X_y=True)
  x, y = Tensor((images / 16).astype(np.float32).reshape(-1, 1, 8, 8)), Tensor(labels.astype(np.int32))
  net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
  )
  opt, scaler = optim.Adam(net.parameters(), lr=0.003), optim.GradScaler()

  @TinyJit
  def step(a: Tensor, b: Tensor) -> Tensor:
    opt.zero_grad()
    with Tensor.autocast(dtype or "bfloat16", enabled=dtype is not None):
      loss = net(a).cross_entropy(b)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    return loss

  order = np.random.default_rng(0)
  for _ in range(300):
    chosen = order.integers(0, 1400, 128)
    step(x[Tensor(chosen.astype(np.int32))].realize(), y[Tensor(chosen.astype(np.int32))].realize())
  with Tensor.autocast(dtype or "bfloat16", enabled=dtype is not None):
    guesses = net(x[1400:]).argmax(1)
  return float((guesses == y[1400:]).mean().item())


@pytest.mark.parametrize("dtype", [pytest.param("bfloat16", marks=pytest.mark.nightly), "float16"])
def test_digits_are_learned_as_well(dtype: str) -> None:
  full = learned(None)
  assert full > 0.9
  assert (narrow := learned(dtype)) > full - 0.01, (dtype, narrow, full)
