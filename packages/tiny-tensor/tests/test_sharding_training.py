"""Training on several devices: data parallel, tensor parallel, captured by TinyJit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, TinyJit, nn
from tiny_tensor.realize import graph_plan
from tiny_uop import Ops, UOp

ONE = "REF"
TWO, THREE = (ONE, f"{ONE}:1"), (ONE, f"{ONE}:1", f"{ONE}:2")


@pytest.fixture(autouse=True, scope="module")
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


class Model:
  def __init__(self) -> None:
    self.up, self.norm, self.down = nn.Linear(4, 8), nn.BatchNorm(8), nn.Linear(8, 3)

  def __call__(self, x: Tensor) -> Tensor:
    return self.down(self.norm(self.up(x)).relu())


def data_parallel(model: Model, devices: tuple[str, ...]) -> None:
  for t in nn.state.get_parameters(model):
    t.shard_(devices)


def tensor_parallel(model: Model, devices: tuple[str, ...]) -> None:
  """Columns of the first layer, rows of the second (Shoeybi et al., "Megatron-LM", 2019); weights are `(out, in)`."""
  data_parallel(model, devices)
  for t in nn.state.get_parameters([model.up, model.norm]):
    if t.shape[0] == 8:
      t.shard_(devices, 0)
  model.down.weight.shard_(devices, 1)


def train(
  devices: tuple[str, ...] = (), batch_axis: int | None = 0, split: object = data_parallel, jit: bool = False,
  steps: int = 5, batch: int = 10,
) -> tuple[list[float], dict[str, np.ndarray]]:  # fmt: skip
  """Losses, and the parameters afterwards."""
  Tensor.manual_seed(7)
  model = Model()
  if devices:
    assert callable(split)
    split(model, devices)
  optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=0.1, momentum=0.9)

  def step(x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = model(x).cross_entropy(y)
    loss.backward()
    optimizer.step()
    return loss.realize()

  run = TinyJit(step) if jit else step
  rng, losses = np.random.default_rng(0), []
  with Tensor.train():
    for _ in range(steps):
      x, y = (Tensor(v) for v in (rng.normal(size=(batch, 4)).astype(np.float32), rng.integers(0, 3, batch)))
      if devices:
        x, y = x.shard(devices, batch_axis), y.shard(devices, batch_axis)
      losses.append(float(run(x.realize(), y.realize()).item()))
  assert not isinstance(run, TinyJit) or run.captured
  return losses, {name: t.numpy() for name, t in nn.state.get_state_dict(model).items()}


@pytest.fixture(scope="module")
def alone() -> tuple[list[float], dict[str, np.ndarray]]:
  return train()


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "jit"])
@pytest.mark.parametrize(
  ("devices", "batch_axis", "split"),
  [(TWO, 0, data_parallel), (THREE, 0, data_parallel), (TWO, None, tensor_parallel), (TWO, 0, tensor_parallel)],
  ids=["data-2", "data-3-uneven", "tensor-2", "both"],
)
def test_training_is_that_of_one_device(
  alone: tuple[list[float], dict[str, np.ndarray]], devices: tuple[str, ...], batch_axis: int | None, split: object,
  jit: bool,
) -> None:  # fmt: skip
  losses, parameters = train(devices, batch_axis, split, jit)
  np.testing.assert_allclose(losses, alone[0], rtol=1e-5)
  for name, value in parameters.items():
    np.testing.assert_allclose(value, alone[1][name], rtol=1e-4, atol=1e-5, err_msg=name)


def work(linear: UOp) -> tuple[Counter[str], int]:
  """(kernels per device, copies)."""
  kernels = Counter(str(call.src[1].device) for call in linear.src if call.src[0].op is not Ops.COPY)
  return kernels, sum(call.src[0].op is Ops.COPY for call in linear.src)


def test_each_device_does_its_part_once() -> None:
  """A step of two layers: as many kernels on a device as without the others, and two for each sum over the devices."""

  def step(devices: tuple[str, ...]) -> UOp:
    x, w, v = (Tensor(np.ones(shape, np.float32)) for shape in ((8, 4), (4, 6), (6, 2)))
    if devices:
      x, w, v = x.shard(devices, 0), w.shard(devices), v.shard(devices)
    w.requires_grad_()
    v.requires_grad_()
    Tensor.realize(x, w, v)
    ((x @ w).relu() @ v).sum().backward()
    assert w.grad is not None and v.grad is not None
    return w.grad.schedule_linear(v.grad)

  plain, _ = work(step(()))
  several, copies = work(step(TWO))
  assert several.keys() == set(TWO) and several[ONE] == several[TWO[1]] == plain[ONE] + 2
  assert copies == 2 * 2  # two gradients, one copy each way


def test_state_of_optimisers_lies_as_the_parameters_do() -> None:
  w = Tensor(np.ones((4, 6), np.float32)).shard(TWO, 1).requires_grad_()
  optimizer = nn.optim.Adam([w], lr=0.1)
  with Tensor.train():
    (w * w).sum().backward()
    optimizer.step()
  assert w.grad is not None
  for t in (w, w.grad, *optimizer.m, *optimizer.v):
    assert t.uop.sharding == w.uop.sharding
  np.testing.assert_allclose(w.numpy(), 0.9, rtol=1e-5)


OPTIMISERS: dict[str, Callable[[Tensor], nn.optim.Optimizer]] = {
  "SGD": lambda w: nn.optim.SGD([w], lr=0.1),
  "momentum": lambda w: nn.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
  "classic": lambda w: nn.optim.SGD([w], lr=0.1, momentum=0.9, classic=True),
  "Adam": lambda w: nn.optim.Adam([w], lr=0.1),
  "AdamW": lambda w: nn.optim.AdamW([w], lr=0.1),
  "LARS": lambda w: nn.optim.LARS([w], lr=0.1),
  "LARS without decay first": lambda w: nn.optim.LARS([w], lr=0.1, pre_wd=False),
  "LAMB": lambda w: nn.optim.LAMB([w], lr=0.1, weight_decay=0.1),
  "LAMB as AdamW": lambda w: nn.optim.LAMB([w], lr=0.1, adam=True),
  "RMSprop": lambda w: nn.optim.RMSprop([w], lr=0.1, momentum=0.9, centered=True),
  "Adagrad": lambda w: nn.optim.Adagrad([w], lr=0.1, lr_decay=0.1),
  "Muon": lambda w: nn.optim.Muon([w], lr=0.1, ns_steps=2),
}


def test_every_optimiser_is_tried_on_several_devices() -> None:
  every = {c for c in vars(nn.optim).values() if isinstance(c, type) and issubclass(c, nn.optim.Optimizer)}
  assert {type(make(Tensor([[1.0]]))) for make in OPTIMISERS.values()} == every - {nn.optim.Optimizer}


@pytest.mark.parametrize("when", ["before", "after", "between steps"])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_follow_parameters_to_several_devices(name: str, when: str) -> None:
  def trained(move: Callable[[Tensor], object]) -> tuple[Tensor, nn.optim.Optimizer]:
    w = Tensor([[1.0, 2.0], [3.0, -4.0], [5.0, 6.0]]).contiguous().realize()
    if when == "before":
      move(w)
    optimizer = OPTIMISERS[name](w)
    if when == "after":
      move(w)
    with Tensor.train():
      for n in range(3):
        if when == "between steps" and n == 1:
          move(w)
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
    return w, optimizer

  expected = trained(lambda w: None)[0].numpy()
  for axis in (0, None):
    w, optimizer = trained(lambda w, axis=axis: w.shard_(TWO, axis))  # type: ignore[misc]
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-6)
    state = [t for attribute in optimizer.per_parameter for t in getattr(optimizer, attribute)]
    assert all(t.uop.sharding == w.uop.sharding for t in state)
    saved = {k: v.numpy() for k, v in nn.state.get_state_dict(optimizer).items()}
    nn.state.load_state_dict(optimizer, {k: Tensor(v) for k, v in saved.items()}, verbose=False)
    assert all(t.uop.sharding == w.uop.sharding for t in state)


def decode(devices: tuple[str, ...], jit: bool) -> np.ndarray:
  """Attention over a cache that grows: heads on several devices, positions of symbolic number."""
  rng = np.random.default_rng(0)
  query, out = (Tensor(rng.normal(size=(12, 12)).astype(np.float32)) for _ in range(2))
  cache = Tensor.zeros(2, 1, 4, 8, 3).contiguous()
  if devices:
    query, out, cache = query.shard(devices, 0), out.shard(devices, 1), cache.shard(devices, 2)
  Tensor.realize(query, out, cache)

  def step(x: Tensor, position: UOp) -> Tensor:
    q = (x @ query.T).reshape(1, 1, 4, 3).transpose(1, 2)
    cache[:, :, :, position : position + 1].assign(q.stack(q * 2)).realize()
    keys, values = cache[0, :, :, : position + 1], cache[1, :, :, : position + 1]
    heads = q.scaled_dot_product_attention(keys, values)
    return (heads.transpose(1, 2).reshape(1, 1, 12) @ out.T).realize()

  run = TinyJit(step) if jit else step
  tokens = []
  for n in range(6):
    x = Tensor(rng.normal(size=(1, 1, 12)).astype(np.float32))
    x = x.shard(devices).realize() if devices else x.realize()
    tokens.append(run(x, UOp.variable("position", 0, 7).bind(n)).numpy())
  return np.concatenate(tokens)


def test_a_cache_of_keys_in_pieces() -> None:
  expected = decode((), False)
  for jit in (False, True):
    np.testing.assert_allclose(decode(TWO, jit), expected, rtol=1e-4, atol=1e-4)


# *** TinyJit ***


def test_replays_over_other_pieces() -> None:
  @TinyJit
  def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x * 2 + y).realize(), (x.sum(0) * y[0]).realize()

  for n in range(5):
    a, b = np.full((4, 2), n, np.float32), np.arange(8, dtype=np.float32).reshape(4, 2)
    one, two = f(Tensor(a).shard(TWO, 0), Tensor(b).shard(TWO, 0))
    assert one.device == TWO and one.uop.sharding is not None and one.uop.sharding.axis == 0
    np.testing.assert_array_equal(one.numpy(), a * 2 + b)
    np.testing.assert_array_equal(two.numpy(), a.sum(0) * b[0])
  kept = [f(Tensor(np.full((4, 2), n, np.float32)).shard(TWO, 0), Tensor(b).shard(TWO, 0))[0] for n in (1, 2)]
  assert [t[0, 0].item() for t in kept] == [2, 4]  # every replay gives tensors of its own
  with pytest.raises(RuntimeError, match="in pieces of axis 1.*in pieces of axis 0"):
    f(Tensor(a).shard(TWO, 1), Tensor(b).shard(TWO, 0))


def test_state_that_a_jit_updates() -> None:
  total = Tensor.zeros(4, 2).contiguous().shard(TWO, 1).realize()

  @TinyJit
  def add(x: Tensor, into: Tensor) -> Tensor:
    total.assign(total + x).realize()
    into.assign(into * 2).realize()
    return into

  into = Tensor.ones(3).contiguous().shard(TWO, 0).realize()
  for n in range(1, 6):
    x = Tensor(np.full((4, 2), n, np.float32)).shard(TWO, 1).realize()
    assert add(x, into) is into
  assert add.captured and total.tolist() == [[15.0] * 2] * 4 and into.tolist() == [32.0] * 3


def test_gradients_outside_of_a_jit() -> None:
  w = Tensor(np.arange(6, dtype=np.float32).reshape(3, 2)).shard(TWO, 1).requires_grad_()

  @TinyJit
  def backward(x: Tensor) -> None:
    w.grad = None
    (w * x).sum().backward()

  for n in range(5):
    backward(Tensor(np.full((3, 2), n, np.float32)).shard(TWO, 1).realize())
    assert w.grad is not None and w.grad.tolist() == [[float(n)] * 2] * 3


def test_equal_steps_write_in_one_order() -> None:
  """Whatever the addresses of nodes: ranks that run one program make one graph, and the schedule cache knows it."""
  orders: set[tuple[int, ...]] = set()
  kept: list[list[Tensor]] = []
  for _ in range(4):
    tensors = [Tensor.full((4,), float(n)).shard(TWO, 0).contiguous().realize() for n in range(8)]
    kept.append([Tensor([1.0]) + n for n in range(7 * len(kept))])  # so that addresses differ
    memory = [{u for u in t.uop.toposort if u.op is Ops.BUFFER} for t in tensors]
    for n, t in enumerate(tensors):
      t.assign(t * 2 + n)
    total = tensors[0]
    for t in tensors[1:]:
      total = total + t
    touched = [{u for u in effect.toposort if u.op is Ops.BUFFER} for effect in graph_plan([total]).effects]
    writes = [[n for n, own in enumerate(memory) if own & buffers] for buffers in touched]
    orders.add(tuple([found[0] for found in writes if len(found) == 1]))
  assert len(orders) == 1 and len(orders.pop()) == 8
