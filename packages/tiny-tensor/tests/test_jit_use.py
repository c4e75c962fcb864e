"""`TinyJit` used rightly: replays give what plain calls give."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tiny_runtime import GlobalCounters
from tiny_tensor import Context, Tensor, TinyJit, Variable, dtypes, nn
from tiny_tensor.jit import Arena


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def test_python_runs_twice_and_results_stay_right() -> None:
  calls = []

  @TinyJit
  def double(x: Tensor) -> Tensor:
    calls.append(1)
    return (x * 2).realize()

  results = [double(Tensor([i, i + 1])) for i in range(5)]
  assert [r.tolist() for r in results] == [[2 * i, 2 * i + 2] for i in range(5)], "every call has a result of its own"
  assert len(calls) == 2 and double.captured
  double.reset()
  assert double(Tensor([7, 8])).tolist() == [14, 16]
  assert len(calls) == 3 and not double.captured


def test_a_replay_runs_the_same_kernels() -> None:
  @TinyJit
  def step(x: Tensor) -> Tensor:
    y = (x * 2).realize()
    return (y + 1).realize()

  counts = []
  for i in range(4):
    x = Tensor([i]).realize()
    GlobalCounters.reset()
    step(x)
    counts.append(GlobalCounters.kernel_count)
  assert counts == [2, 3, 2, 2], "the call that is captured gets a copy of its argument"


class Pair(NamedTuple):
  one: Tensor
  two: Tensor


def test_nested_containers_in_and_out() -> None:
  @TinyJit
  def f(batch: dict[str, Any], *rest: Tensor, scale: Tensor) -> dict[str, Any]:
    total = (batch["x"] + batch["pair"].two * scale).realize()
    return {"sum": total, "list": [(total + rest[0]).realize(), None], "pair": Pair(total.reshape(1, 2), total * 1 + 0)}

  def g(batch: dict[str, Any], *rest: Tensor, scale: Tensor) -> dict[str, Any]:
    out = f.fxn(batch, *rest, scale=scale)
    return {**out, "pair": Pair(out["pair"].one, out["pair"].two.realize())}

  jitted = TinyJit(g)
  for i in range(4):
    batch = {"x": Tensor([i, 2]), "pair": Pair(Tensor([0, 0]), Tensor([i, 5]))}
    out = jitted(batch, Tensor([100, 100]), scale=Tensor([10, 1]))
    assert out["sum"].tolist() == [11 * i, 7]
    assert out["list"][0].tolist() == [100 + 11 * i, 107] and out["list"][1] is None
    assert isinstance(out["pair"], Pair) and out["pair"].one.tolist() == [[11 * i, 7]]
    assert out["pair"].two.tolist() == [11 * i, 7]


def test_state_is_updated_in_place() -> None:
  state = Tensor([0, 0]).realize()

  @TinyJit
  def add(x: Tensor) -> Tensor:
    return state.assign(state + x).realize()

  seen = [add(Tensor([1, i])).tolist() for i in range(5)]
  assert seen == [[i + 1, sum(range(i + 1))] for i in range(5)]
  assert state.tolist() == [5, 10]


def test_lazy_readers_of_the_state_see_what_it_was() -> None:
  state = Tensor([0]).realize()

  @TinyJit
  def bump(x: Tensor) -> Tensor:
    return state.assign(state + x).realize()

  lazy = []
  for _ in range(5):
    lazy.append(state * 10)
    bump(Tensor([1]))
  assert [t.item() for t in lazy] == [0, 10, 20, 30, 40]


def test_an_argument_is_updated_in_place() -> None:
  @TinyJit
  def bump(x: Tensor) -> None:
    x.assign(x + 1).realize()

  tensors = [Tensor([i, i]).realize() for i in range(4)]
  for t in tensors:
    bump(t)
  assert [t.tolist() for t in tensors] == [[i + 1, i + 1] for i in range(4)]


def test_views_constants_and_lazy_arguments() -> None:
  data = Tensor([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]).realize()

  @TinyJit
  def f(x: Tensor) -> Tensor:
    return (x * 10).realize()

  for i in range(4):
    assert f(data[i : i + 2]).tolist() == [[20 * i, 20 * i + 10], [20 * i + 20, 20 * i + 30]]
  assert f(data[3:].permute(1, 0)).tolist() == [[60, 80], [70, 90]]
  assert f(Tensor.full((2, 2), 3)).tolist() == [[30, 30], [30, 30]]
  assert f(data[:2] + 1).tolist() == [[10, 20], [30, 40]]


def test_an_output_that_is_an_input_or_a_weight() -> None:
  weight = Tensor([5.0]).realize()

  @TinyJit
  def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x, weight, (x + weight).realize()

  for i in range(4):
    x = Tensor([float(i)]).realize()
    same, w, total = f(x)
    assert (same.tolist(), w.tolist(), total.tolist()) == ([i], [5.0], [i + 5.0])


def test_outputs_feed_back() -> None:
  @TinyJit
  def f(x: Tensor) -> Tensor:
    return (x * 2).realize()

  x = Tensor([1]).realize()
  history = [x := f(x) for _ in range(6)]
  assert [t.item() for t in history] == [2, 4, 8, 16, 32, 64]


def test_bound_variables_are_inputs() -> None:
  data = Tensor([1, 2, 3, 4, 5, 6, 7, 8]).realize()
  n = Variable("n", 1, 8)

  @TinyJit
  def total(count: Any) -> Tensor:
    return data.shrink(((0, count),)).sum().realize()

  for i in (1, 4, 2, 8, 7):
    assert total(n.bind(i)).item() == i * (i + 1) // 2
  assert total.captured


def test_random_numbers_go_on() -> None:
  def draws(jit: bool) -> list[list[float]]:
    Tensor.manual_seed(3)

    def draw(x: Tensor) -> Tensor:
      return (Tensor.rand(4) + Tensor.rand(4) * 0 + x).realize()

    f = TinyJit(draw) if jit else draw
    return [f(Tensor([0.0, 0.0, 0.0, 0.0])).tolist() for _ in range(5)]

  plain, jitted = draws(jit=False), draws(jit=True)
  assert jitted == plain
  assert len({tuple(d) for d in jitted}) == 5


def test_dropout_differs_in_every_replay() -> None:
  @TinyJit
  @Tensor.train()
  def f(x: Tensor) -> Tensor:
    return x.dropout(0.5).realize()

  x = Tensor.ones(32).contiguous().realize()
  masks = {tuple(f(x).tolist()) for _ in range(6)}
  assert len(masks) == 6


def test_training_matches_training_without_jit() -> None:
  def train(jit: bool) -> tuple[list[float], list[list[float]]]:
    Tensor.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm(4), Tensor.relu, nn.Linear(4, 1))
    opt = nn.optim.Adam(nn.state.get_parameters(net), lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
      opt.zero_grad()
      loss = ((net(x) - y) ** 2).mean()
      loss.backward()
      opt.step()
      return loss.realize()

    f = TinyJit(step) if jit else step
    losses = []
    with Tensor.train():
      for i in range(5):
        x = Tensor([[i, 1.0, -1.0], [0.5, i, 2.0], [1.0, 0.0, i]])
        losses.append(f(x, x.sum(1, keepdim=True)).item())
    return losses, [t.flatten().tolist() for t in nn.state.get_parameters(net)]

  plain, jitted = train(jit=False), train(jit=True)
  assert jitted[0] == pytest.approx(plain[0], rel=1e-6)
  for a, b in zip(jitted[1], plain[1]):
    assert a == pytest.approx(b, rel=1e-5, abs=1e-7)


def test_weights_loaded_after_the_capture_are_used() -> None:
  layer, other = nn.Linear(2, 1), nn.Linear(2, 1)
  forward = TinyJit(lambda x: layer(x).realize())
  x = Tensor([[1.0, 2.0]])
  for _ in range(3):
    before = forward(x).item()
  nn.state.load_state_dict(layer, nn.state.get_state_dict(other), verbose=False)
  assert forward(x).item() == pytest.approx(other(x).item()) != before


def test_methods_are_captured_per_object() -> None:
  class Scale:
    def __init__(self, by: int) -> None:
      self.by = by

    @TinyJit
    def __call__(self, x: Tensor) -> Tensor:
      return (x * self.by).realize()

  two, three = Scale(2), Scale(3)
  for i in range(4):
    assert two(Tensor([i])).item() == 2 * i
    assert three(Tensor([i])).item() == 3 * i


def test_a_jit_inside_a_jit_is_part_of_it() -> None:
  @TinyJit
  def inner(x: Tensor) -> Tensor:
    return (x + 1).realize()

  @TinyJit
  def outer(x: Tensor) -> Tensor:
    return (inner(inner(x)) * 2).realize()

  assert [outer(Tensor([i])).item() for i in range(5)] == [2 * (i + 2) for i in range(5)]


def test_jit_0_calls_plainly() -> None:
  calls = []

  @TinyJit
  def f(x: Tensor) -> float:
    calls.append(1)
    return (x + 1).item()

  with Context(JIT=0):
    assert [f(Tensor([i])) for i in range(4)] == [1, 2, 3, 4]
  assert len(calls) == 4 and not f.captured


def test_gradients_with_respect_to_an_argument() -> None:
  @TinyJit
  def grad(x: Tensor) -> Tensor:
    return (x * x * x).sum().gradient(x)[0].realize()

  for i in range(4):
    x = Tensor([float(i), 1.0])
    assert grad(x).tolist() == [3.0 * i * i, 3.0]


def test_buffers_of_the_capture_are_freed_with_it() -> None:
  def run() -> None:
    f = TinyJit(lambda x: (x.realize() + 1).realize())
    for _ in range(4):
      f(Tensor.zeros(1000).contiguous().realize())

  run()
  before = GlobalCounters.mem_used
  run()
  assert GlobalCounters.mem_used == before


def test_dtypes_that_are_not_default() -> None:
  @TinyJit
  def f(x: Tensor) -> Tensor:
    return (x + x).realize()

  for i in range(4):
    out = f(Tensor([i, 2], dtype=dtypes.int16))
    assert (out.dtype, out.tolist()) == (dtypes.int16, [2 * i, 4])


def test_temporaries_share_memory_and_what_is_kept_does_not() -> None:
  weight = Tensor([1.0] * 1000).realize().requires_grad_(True)

  @TinyJit
  def step(x: Tensor) -> Tensor:
    weight.grad = None
    y = x
    for n in range(8):
      y = (y + n).realize()
    loss = (y * weight).sum()
    loss.backward()
    assert weight.grad is not None
    weight.grad.realize()
    return loss.realize()

  for i in range(5):
    loss = step(Tensor([float(i)] * 1000).realize())
    assert weight.grad is not None
    assert loss.item() == 1000 * (i + 28) and weight.grad.tolist() == [i + 28.0] * 1000
  used = GlobalCounters.mem_used
  step.reset()
  # besides them: the input, and the gradient of the capture and of two replays
  assert used - GlobalCounters.mem_used < 7 * 4000, "eight temporaries of the loop need the memory of two"


def test_functions_with_one_arena_have_the_memory_of_the_largest() -> None:
  def of(size: int, arena: Arena) -> TinyJit[[Tensor], Tensor]:
    def steps(x: Tensor) -> Tensor:
      y = x.expand(size).contiguous().realize()
      for n in range(4):
        y = (y + n).realize()
      return y.sum().realize()

    return TinyJit(steps, arena=arena)

  sizes, together = (1000, 5000, 3000), Arena()
  shared, alone = [of(size, together) for size in sizes], [of(size, Arena()) for size in sizes]

  def used_by(functions: list[TinyJit[[Tensor], Tensor]]) -> int:
    before = GlobalCounters.mem_used
    for i in range(6):  # they are captured by turns: the second needs more than the first had
      for size, function in zip(sizes, functions, strict=True):
        assert function(Tensor([float(i)]).realize()).item() == size * (i + 6)
    return GlobalCounters.mem_used - before

  assert together.nbytes == 0
  few = used_by(shared)
  assert 2 * 5000 * 4 <= together.nbytes < 2 * 5000 * 4 + 1024, "two values at a time"
  assert few < together.nbytes + 4096
  assert used_by(alone) - few >= 2 * (1000 + 3000) * 4
  assert shared[0].captured is not None
  used = GlobalCounters.mem_used
  shared[0].captured.free_intermediates()
  assert used - GlobalCounters.mem_used == together.nbytes
  used_by(shared)
  assert GlobalCounters.mem_used == used
