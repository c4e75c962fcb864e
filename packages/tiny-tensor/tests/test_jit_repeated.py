"""`Repeated`: the kernels of the first call over the tensors of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tiny_tensor import Context, JitError, Tensor, TinyJit, Variable
from tiny_tensor.jit import Repeated


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


@dataclass(frozen=True)
class Layer:
  weight: Tensor
  bias: Tensor | None
  scale: float


def layer_of(n: int, scale: float = 2.0, bias: bool = True) -> Layer:
  weight = (Tensor.arange(9).reshape(3, 3).float() + n).realize()
  return Layer(weight, (Tensor.arange(3).float() * n).realize() if bias else None, scale)


def plain(layer: Layer, x: Tensor, state: Tensor) -> Tensor:
  state.assign(state + x.sum())
  y = (x @ layer.weight) * layer.scale
  y = y if layer.bias is None else y + layer.bias
  return (y / y.abs().max()).realize()


def expected(layers: list[Layer], x: Tensor) -> list[float]:
  for layer in layers:
    x = plain(layer, x, Tensor.zeros(1).contiguous().realize())
  return [float(n) for n in x.tolist()]


def test_only_the_first_of_its_kind_runs_python() -> None:
  calls: list[float] = []

  def fxn(layer: Layer, x: Tensor, state: Tensor) -> Tensor:
    calls.append(layer.scale)
    return plain(layer, x, state)

  repeated = Repeated(fxn)
  layers = [layer_of(n) for n in range(4)] + [layer_of(5, 3.0), layer_of(6, bias=False), layer_of(7, 3.0)]
  start = Tensor([1.0, 2.0, 3.0]).realize()
  x, states = start, [Tensor.zeros(1).contiguous().realize() for _ in layers]
  given = []
  for layer, state in zip(layers, states):
    given.append(x)
    x = repeated(layer, x, state)
  assert calls == [2.0, 3.0, 2.0]  # two layers of the first kind and one with another scale have no other call
  assert x.tolist() == pytest.approx(expected(layers, start))
  assert [s.item() for s in states] == pytest.approx([t.sum().item() for t in given])


def test_a_variable_and_a_part_of_its_argument() -> None:
  n = Variable("n", 1, 4)
  repeated = Repeated(lambda x, n: (x[:n].sum() * 2).realize())
  x, y = Tensor([1.0, 2.0, 3.0, 4.0]).realize(), Tensor([5.0, 6.0, 7.0, 8.0]).realize()
  assert [repeated(t, n.bind(k)).item() for t, k in [(x, 2), (y, 3), (x, 4), (y, 1)]] == [6.0, 36.0, 20.0, 10.0]


def test_within_a_function_that_is_captured() -> None:
  layers = [layer_of(n) for n in range(3)]
  repeated = Repeated(plain)
  state = Tensor.zeros(1).contiguous().realize()

  @TinyJit
  def run(x: Tensor) -> Tensor:
    for layer in layers:
      x = repeated(layer, x, state)
    return x

  total = 0.0
  for k in range(5):
    x = (Tensor([1.0, 2.0, 3.0]) + k).realize()
    assert run(x).tolist() == pytest.approx(expected(layers, x))
    y = x
    for layer in layers:
      total += y.sum().item()
      y = plain(layer, y, Tensor.zeros(1).contiguous().realize())
    assert state.item() == pytest.approx(total)
  assert run.captured is not None


def test_results_of_any_structure_and_views() -> None:
  repeated = Repeated(lambda x: {"sum": x.sum().realize(), "rows": [(x * 2).realize()[1:], None, x]})
  for k in range(3):
    x = (Tensor.arange(6).reshape(2, 3).float() + k).realize()
    found = repeated(x)
    rows, nothing, same = found["rows"]
    assert found["sum"].item() == 15 + 6 * k and nothing is None
    assert rows.tolist() == [[2.0 * (3 + k), 2.0 * (4 + k), 2.0 * (5 + k)]] and same.tolist() == x.tolist()


def test_memory_that_nothing_was_written_to() -> None:
  def step(state: Tensor, x: Tensor) -> Tensor:
    state[:2] = x
    return (x * 2).realize()

  repeated = Repeated(step)
  states = [Tensor.empty(4).realize() for _ in range(3)]
  for k, state in enumerate(states):
    repeated(state, (Tensor([1.0, 2.0]) + k).realize())
  assert [s[:2].tolist() for s in states] == [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]


def test_an_earlier_value_that_somebody_still_wants() -> None:
  def step(state: Tensor) -> Tensor:
    return state.assign(state + 1).realize()

  repeated = Repeated(step)
  states = [Tensor.zeros(2).contiguous().realize() for _ in range(3)]
  before = [state * 10 for state in states]  # not computed yet
  for state in states:
    repeated(state)
  assert [b.tolist() for b in before] == [[0.0, 0.0]] * 3
  assert [s.tolist() for s in states] == [[1.0, 1.0]] * 3


def test_where_gradients_are_wanted_it_is_a_plain_call() -> None:
  repeated = Repeated(lambda w, x: (w * x).sum())
  x = Tensor([1.0, 2.0]).realize()
  for k in range(1, 4):
    w = Tensor([3.0 * k, 4.0], requires_grad=True)
    repeated(w, x).backward()
    assert w.grad is not None and w.grad.tolist() == [1.0, 2.0]


def test_what_is_no_function_of_its_arguments_is_refused() -> None:
  outside = Tensor([1.0, 2.0]).realize()
  with pytest.raises(JitError, match="reads a tensor of 2 float"):
    Repeated(lambda x: (x + outside).realize())(Tensor([3.0, 4.0]).realize())
  with pytest.raises(JitError, match="draws a random number"):
    Repeated(lambda x: (x + Tensor.rand(2)).realize())(Tensor([3.0, 4.0]).realize())
  whole = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
  with pytest.raises(JitError, match="assigns to an argument that is a view"):
    Repeated(lambda x: x.assign(x + 1).realize())(whole[1])
  n = Variable("n", 1, 2)
  with pytest.raises(JitError, match="'n' is no argument"):
    Repeated(lambda x: x[: n.bind(1)].sum().realize())(whole)
