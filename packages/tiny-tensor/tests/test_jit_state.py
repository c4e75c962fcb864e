"""Aliasing, state, gradients, chance and life cycle under `TinyJit`: what a replay could get wrong, test by test."""

from __future__ import annotations

import dataclasses
import gc
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jit_calls import T, captured

from tiny_tensor import Context, GlobalCounters, JitError, Tensor, TinyJit, Variable, nn


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


# *** outputs ***


def test_output_that_is_an_argument_is_the_callers_tensor() -> None:
  f = captured(lambda x: (x, x.reshape(1, 2), (x + 1).realize()), T(1.0, 2.0))
  x = T(3.0, 4.0)
  same, view, new = f(x)
  assert same is x and view.tolist() == [[3, 4]] and new.tolist() == [4, 5]
  view[0, 0] = 9.0
  assert x.tolist() == [9, 4] and new.tolist() == [4, 5], "a write through the view is seen by the argument"


def test_outputs_that_are_views_of_each_other() -> None:
  def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = (x + 1).realize()
    return y, y[1:], y

  jitted = captured(f, T(1.0, 2.0))
  a, part, b = jitted(T(3.0, 4.0))
  assert a is b and part.tolist() == [5]
  part.assign(part * 0).realize()
  assert a.tolist() == [4, 0]


def test_output_that_is_a_weight_is_that_tensor() -> None:
  weight = T(1.0, 2.0)
  f = captured(lambda x: (weight.assign(weight + x).realize(), weight[:1]), T(1.0, 1.0))
  out, part = f(T(1.0, 1.0))
  assert out is weight and weight.tolist() == [5, 6] and part.tolist() == [5]
  part.assign(part * 0).realize()
  assert weight.tolist() == [0, 6]


def test_outputs_of_earlier_calls_stay() -> None:
  f = captured(lambda x: [(x + 1).realize(), (x * 2).realize()], T(0.0))
  kept = [f(T(float(i))) for i in range(6)]
  assert [[t.item() for t in pair] for pair in kept] == [[i + 1, 2 * i] for i in range(6)]


def test_output_used_as_the_next_input_and_as_both() -> None:
  f = captured(lambda h, x: ((h + x).realize(), (h * x).realize()), T(1.0), T(2.0))
  h, x = T(1.0), T(3.0)
  for _ in range(3):
    h, x = f(h, x)
  assert (h.item(), x.item()) == (19.0, 84.0)


# *** state that is written ***


def test_slice_assignment_at_a_symbolic_place() -> None:
  cache, at = Tensor.zeros(6).contiguous().realize(), Variable("at", 0, 5)

  @TinyJit
  def put(x: Tensor, place: Any) -> Tensor:
    cache[place : place + 1] = x
    return (cache * 1).contiguous().realize(cache)

  before = cache * 10
  for i in range(6):
    out = put(T(i + 1.0), at.bind(i))
    assert out.tolist() == [float(j + 1) if j <= i else 0.0 for j in range(6)]
  assert cache.tolist() == [1, 2, 3, 4, 5, 6] and before.tolist() == [0.0] * 6


def test_slice_assignment_to_an_argument() -> None:
  def f(x: Tensor) -> None:
    x[1:3] = x[0:2] * 2
    x.realize()

  jitted = captured(f, T(1.0, 1.0, 1.0))
  x = T(1.0, 5.0, 7.0)
  jitted(x)
  assert x.tolist() == [1, 2, 10]


def test_assignment_to_an_argument_that_is_a_view_in_a_later_call() -> None:
  f = captured(lambda x: x.assign(x + 1).realize(), T(1.0, 2.0))
  data = T(1.0, 2.0, 3.0)
  with pytest.raises(JitError, match="argument of 2 elements that is a view"):
    f(data[1:])
  assert data.tolist() == [1, 2, 3]


def test_state_as_an_argument_of_what_writes_it() -> None:
  state = T(1.0)
  f = captured(lambda x: state.assign(state + x).realize(), T(1.0))
  with pytest.raises(JitError, match="also writes to by another name"):
    f(state)
  assert f(T(2.0)).item() == state.item() == 6


def test_assignment_outside_that_nobody_has_realised() -> None:
  weight = T(1.0)
  f = captured(lambda x: (x * weight).realize(), T(1.0))
  weight.assign(weight * 5)
  assert f(T(2.0)).item() == 10
  weight[0] = 7.0
  assert f(T(2.0)).item() == 14


def test_assignment_outside_before_every_call_is_no_part_of_the_capture() -> None:
  rate = T(0.0)
  f = TinyJit(lambda x: (x * rate).realize())
  for i in range(5):
    rate.assign(Tensor([float(i)]))
    assert f(T(2.0)).item() == 2 * i


def test_tensor_that_was_replaced_instead_of_assigned() -> None:
  model = types.SimpleNamespace(weights={"a": T(1.0)})
  f = captured(lambda x: (x * next(iter(vars(model)["weights"].values()))).realize(), T(1.0))
  model.weights["a"] = T(2.0)
  with pytest.raises(JitError, match="a tensor of 1 float32 that the function read .* is gone"):
    f(T(1.0))
  f.reset()
  assert f(T(3.0)).item() == 6


def test_weights_loaded_between_replays() -> None:
  model, other = nn.Linear(2, 1), nn.Linear(2, 1)
  f = captured(lambda x: model(x).realize(), T(1.0, 2.0))
  nn.state.load_state_dict(model, nn.state.get_state_dict(other), verbose=False, realize=False)
  assert f(T(1.0, 2.0)).item() == pytest.approx(other(T(1.0, 2.0)).item())


# *** arguments that have another name ***


def test_argument_that_the_function_also_reads_by_another_name() -> None:
  weight = T(2.0)
  f = captured(lambda x: (x * weight).realize(), weight, calls=4)
  assert f(T(5.0)).item() == 10 and f(weight).item() == 4


def test_argument_that_the_function_assigns_to_and_reads_by_another_name() -> None:
  state = T(2.0)
  f = TinyJit(lambda x: x.assign(x + state).realize())
  f(state)
  with pytest.raises(JitError, match="also reads as state"):
    f(state)


def test_argument_that_the_function_keeps() -> None:
  kept: list[Tensor] = []

  def f(x: Tensor) -> Tensor:
    kept[:] = [x]
    return (x + 1).realize()

  jitted = TinyJit(f)
  jitted(x := T(1.0))
  assert kept[0] is x
  with pytest.raises(JitError, match="keeps an argument"):
    jitted(T(1.0))


# *** training ***


def test_gradients_that_others_hold_stay() -> None:
  weight = T(1.0, 1.0).requires_grad_(True)

  def f(x: Tensor) -> Tensor:
    weight.grad = None
    (loss := (weight * x).sum()).backward()
    return loss.realize()

  jitted = captured(f, T(0.0, 0.0), calls=4)
  kept, views = [], []
  for i in range(1, 4):
    jitted(T(i, 2.0 * i))
    assert weight.grad is not None
    kept.append(weight.grad)
    jitted(T(10.0 * i, 0.0))
    views.append(weight.grad.reshape(2, 1)[0])
  assert [g.tolist() for g in kept] == [[i, 2 * i] for i in range(1, 4)]
  assert [v.tolist() for v in views] == [[10 * i] for i in range(1, 4)]
  weight.grad = None
  jitted(T(5.0, 6.0))
  assert [t.grad.tolist() for t in (weight,) if t.grad is not None] == [[5, 6]]


def test_gradients_that_add_up() -> None:
  weight = T(1.0).requires_grad_(True)

  def f(x: Tensor) -> Tensor:
    (loss := (weight * x).sum()).backward()
    return loss.realize()

  jitted = TinyJit(f)
  jitted(T(1.0))
  with pytest.raises(JitError, match=r"zero_grad\(\) inside"):
    jitted(T(1.0))
  weight.grad = None
  jitted.reset()
  for i in range(4):  # forgotten outside, before every call
    jitted(T(float(i)))
    assert weight.grad is not None and weight.grad.item() == i
    weight.grad = None
  jitted(T(1.0))
  with pytest.raises(JitError, match=r"zero_grad\(\) inside"):
    jitted(T(1.0))


def test_weight_that_is_frozen_after_the_capture() -> None:
  weights = [T(1.0).requires_grad_(True), T(2.0).requires_grad_(True)]
  opt = nn.optim.SGD(weights, lr=0.1)

  def step(x: Tensor) -> Tensor:
    opt.zero_grad()
    (loss := (weights[0] * weights[1] * x).sum()).backward()
    opt.step()
    return loss.realize()

  with Tensor.train():
    jitted = captured(step, T(1.0), calls=4)
    weights[1].requires_grad_(False)
    with pytest.raises(JitError, match=r"requires_grad of a tensor of shape \(1,\) is False, it was True"):
      jitted(T(1.0))
    weights[1].requires_grad_(True)
    jitted(T(1.0))
  predict = captured(lambda x: (weights[0] * x).realize(), T(1.0))
  weights[0].requires_grad_(False)
  assert predict(T(2.0)).item() == 2 * weights[0].item(), "a program without backward() does not look"


def test_training_with_momentum_continues_where_it_was() -> None:
  def train(jit: bool) -> list[float]:
    weight = T(1.0, -2.0)
    opt = nn.optim.SGD([weight], lr=0.1, momentum=0.9)

    def step(x: Tensor) -> Tensor:
      opt.zero_grad()
      (loss := ((weight * x) ** 2).sum()).backward()
      opt.step()
      return loss.realize()

    f, losses = TinyJit(step) if jit else step, []
    with Tensor.train():
      for i in range(8):
        if i == 5:
          opt.lr.assign([0.05])
        losses.append(f(T(1.0, i * 0.1)).item())
    return [*losses, *weight.tolist()]

  assert train(jit=True) == pytest.approx(train(jit=False), rel=1e-6)


# *** chance ***


def test_random_numbers_inside_are_new_and_reproducible() -> None:
  def draw() -> list[Any]:
    return [Tensor.rand(3).realize(), Tensor.randn(2).realize(), Tensor.randperm(4).realize()]

  def numbers(f: Callable[[], list[Tensor]]) -> list[Any]:
    Tensor.manual_seed(11)
    return [[t.tolist() for t in f()] for _ in range(4)]

  jitted = TinyJit(draw)
  plain = numbers(draw)
  assert numbers(jitted) == plain and jitted.captured
  assert numbers(jitted) == plain, "a seed set between replays counts"
  assert len({str(n) for n in plain}) == 4


# *** life cycle ***


def test_exception_during_the_capture_leaves_nothing_behind() -> None:
  state, fail = T(1.0), [False, True, False, False, False]

  def f(x: Tensor) -> Tensor:
    state.assign(state + x).realize()
    if fail.pop(0):
      raise KeyError("inside")
    return (state * 2).realize()

  jitted = TinyJit(f)
  jitted(T(1.0))
  with pytest.raises(KeyError):
    jitted(T(1.0))
  assert not jitted.captured and (T(1.0) + 1).item() == 2, "reading is possible again"
  assert [jitted(T(1.0)).item() for _ in range(4)] == [8, 10, 12, 14] and jitted.captured


def test_recursion_is_part_of_the_capture() -> None:
  @TinyJit
  def power(x: Tensor, n: int) -> Tensor:
    return (x if n == 1 else x * power(x, n - 1)).contiguous().realize()

  assert [power(T(2.0), 4).item() for _ in range(4)] == [16] * 4


def test_threads_that_capture_and_replay_together() -> None:
  Tensor.manual_seed(3)
  f = TinyJit(lambda x: ((x * 3).realize() + Tensor.rand(1)).realize())
  seen: list[tuple[int, float]] = []

  def work(start: int) -> None:
    for i in range(start, start + 12):
      seen.append((i, f(T(float(i))).item()))

  threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(seen) == 36 and all(3 * i <= value < 3 * i + 1 for i, value in seen)
  assert len({round(value - 3 * i, 4) for i, value in seen}) == 36, "no draw is given twice"


def test_objects_that_are_equal_have_captures_of_their_own() -> None:
  @dataclasses.dataclass(eq=True, unsafe_hash=True)
  class Model:
    name: str = "a"
    weight: Tensor = dataclasses.field(default_factory=lambda: T(1.0), compare=False)

    @TinyJit
    def __call__(self, x: Tensor) -> Tensor:
      return (x * self.weight).realize()

  one, two = Model(), Model(weight=T(2.0))
  assert one == two
  for _ in range(4):
    assert (one(T(3.0)).item(), two(T(3.0)).item()) == (3, 6)


def test_method_of_an_object_that_cannot_be_watched() -> None:
  class Slots:
    __slots__ = ()

    @TinyJit
    def f(self, x: Tensor) -> Tensor:
      return (x + 1).realize()

  with pytest.raises(JitError, match="__slots__"):
    Slots().f(T(1.0))


def test_objects_and_buffers_are_freed_with_their_captures() -> None:
  class Model:
    def __init__(self) -> None:
      self.weight = Tensor.ones(5000).contiguous().realize()

    @TinyJit
    def __call__(self, x: Tensor) -> Tensor:
      return ((x + self.weight).realize() * 2).realize()

  gc.collect()
  before = GlobalCounters.mem_used
  model = Model()
  for _ in range(4):
    model(T(1.0))
  assert list(nn.state.get_state_dict(model)) == ["weight"]
  reference = weakref.ref(model)
  del model
  gc.collect()
  assert reference() is None and GlobalCounters.mem_used == before


def test_reset_frees_and_captures_anew() -> None:
  by = 2.0
  f = captured(lambda x: ((x * by).realize() + 1).realize(), Tensor.ones(5000).contiguous().realize())
  gc.collect()
  before = GlobalCounters.mem_used
  by = 3.0
  f.reset()
  gc.collect()
  assert before - GlobalCounters.mem_used >= 5000 * 4
  assert not f.captured and f(T(1.0)).item() == 4


# *** constants ***


def kernels_of(f: Callable[[], object]) -> int:
  GlobalCounters.reset()
  f()
  return GlobalCounters.kernel_count


def test_a_constant_from_before_needs_no_kernel_in_the_first_run() -> None:
  bias = Tensor.full((3, 300), 2.0).contiguous()
  jitted = TinyJit(lambda x: (x + bias.sum(1)).realize())
  x = T(1.0, 2.0, 3.0)
  assert kernels_of(lambda: jitted(x)) == 1, "the host writes the constant"
  bias.assign(bias * 2).realize()
  assert [jitted(x).tolist() for _ in range(3)] == [[1201, 1202, 1203]] * 3 and jitted.captured is not None


def test_a_constant_that_the_function_makes_is_made_in_every_call() -> None:
  def f(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x + 1).realize(), Tensor.full((2,), 7.0).contiguous()

  jitted = TinyJit(f)
  for n in range(4):
    _, made = jitted(T(1.0, float(n)))
    assert made.tolist() == [7, 7], n
    made.assign(made * 0).realize()
    assert (jitted.captured is not None) == (n > 0), "the second call is captured, since the first was like it"


def test_the_gradient_of_a_loss_needs_no_kernel() -> None:
  weight = T(1.0, 2.0).requires_grad_()

  def f(x: Tensor) -> Tensor:
    weight.grad = None
    loss = (weight * x).sum()
    loss.backward()
    return loss

  assert kernels_of(lambda: f(T(3.0, 4.0)).realize()) == 1
  jitted = TinyJit(f)
  assert kernels_of(lambda: jitted(T(3.0, 4.0))) == 2, "the loss, and the weight's gradient"
  loss = jitted(T(3.0, 4.0))
  assert loss.grad is not None and loss.grad.item() == 1 and weight.grad is not None
  jitted(T(5.0, 6.0))
  assert jitted.captured is not None and weight.grad.tolist() == [5, 6]
