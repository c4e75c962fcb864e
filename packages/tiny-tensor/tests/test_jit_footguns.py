"""Ways in which a captured program could be told to lie: each gives what the plain function gives, or a clear error."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jit_calls import T, captured

from tiny_tensor import Context, GlobalCounters, JitError, Tensor, TinyJit, nn


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


# *** Python that looks at values, or changes ***


def test_python_branch_on_a_value_names_the_line() -> None:
  def f(x: Tensor) -> Tensor:
    return (x + 1 if x.sum().item() > 0 else x - 1).realize()

  jitted = TinyJit(f)
  assert jitted(T(1.0)).item() == 2, "the first call is an ordinary one"
  line = f.__code__.co_firstlineno + 1
  with pytest.raises(JitError, match=rf"test_jit_footguns.py:{line} reads a value"):
    jitted(T(1.0))


def test_python_truth_of_a_tensor_is_an_error_always() -> None:
  with pytest.raises(TypeError, match="truth"):
    TinyJit(lambda x: (x + 1 if x > 0 else x).realize())(T(1.0))


@pytest.mark.parametrize("look", [Tensor.nonzero, Tensor.unique, lambda t: t[t > 0]], ids=["nonzero", "unique", "mask"])
def test_python_shape_that_depends_on_values(look: Callable[[Tensor], Any]) -> None:
  jitted = TinyJit(lambda x: (look(x), (x + 1).realize())[1])
  jitted(T(1.0, 2.0))
  with pytest.raises(JitError, match="reads a value"):
    jitted(T(1.0, 2.0))


def test_python_that_catches_the_error_does_not_hide_it() -> None:
  def f(x: Tensor) -> Tensor:
    try:
      return (x * x.item()).realize()
    except RuntimeError:
      return (x * 0).realize()

  jitted = TinyJit(f)
  jitted(T(3.0))
  with pytest.raises(JitError, match="reads a value"):
    jitted(T(3.0))


def test_saving_inside_is_reading(tmp_path: Any) -> None:
  def f(x: Tensor) -> Tensor:
    nn.state.safe_save({"x": x}, tmp_path / "x.safetensors")
    return (x + 1).realize()

  jitted = TinyJit(f)
  jitted(T(1.0))
  with pytest.raises(JitError, match="writing a Tensor"):
    jitted(T(1.0))


SCALE = 2.0


def test_changed_global_constant(monkeypatch: pytest.MonkeyPatch) -> None:
  f = captured(lambda x: (x * SCALE).realize(), T(1.0))
  monkeypatch.setitem(globals(), "SCALE", 3.0)
  with pytest.raises(JitError, match=r"SCALE is 3.0, it was 2.0"):
    f(T(1.0))
  monkeypatch.setitem(globals(), "SCALE", 2.0)
  assert f(T(5.0)).item() == 10


def test_changed_closure_constant() -> None:
  by = 2.0
  f = captured(lambda x: (x * by).realize(), T(1.0))
  by = -0.0
  with pytest.raises(JitError, match=r"by is -0.0, it was 2.0"):
    f(T(1.0))
  by = 2.0
  assert f(T(5.0)).item() == 10


def test_changed_constant_of_a_function_that_is_called() -> None:
  by = [2.0]

  def helper(x: Tensor) -> Tensor:
    return x * by[0]

  f = captured(lambda x: helper(x).realize(), T(1.0))
  by[0] = 3.0
  with pytest.raises(JitError, match=r"element of by is 3.0, it was 2.0"):
    f(T(1.0))


def test_changed_attribute_of_an_object() -> None:
  config = types.SimpleNamespace(inner=types.SimpleNamespace(scale=2.0))
  f = captured(lambda x: (x * config.inner.scale).realize(), T(1.0))
  config.inner.scale = 3.0
  with pytest.raises(JitError, match=r"config.inner.scale is 3.0, it was 2.0"):
    f(T(1.0))
  config.inner = types.SimpleNamespace(scale=2.0)
  with pytest.raises(JitError, match=r"config.inner is"):
    f(T(1.0))


class Scaled:
  factor = 3.0

  def __init__(self) -> None:
    self.layers: list[Callable[[Tensor], Tensor]] = [nn.LayerNorm(2), Tensor.exp]
    self.by = 2.0

  @property
  def both(self) -> float:
    return self.by * self.factor

  @TinyJit
  def __call__(self, x: Tensor) -> Tensor:
    for layer in self.layers:
      x = layer(x)
    return (x * self.both).realize()


CHANGES: dict[str, Callable[[Scaled], object]] = {
  "by": lambda m: setattr(m, "by", 5.0),
  "factor": lambda m: setattr(m, "factor", 5.0),
  "eps": lambda m: setattr(m.layers[0], "eps", 1.0),
  "layers": lambda m: m.layers.append(Tensor.log),
  "weight": lambda m: setattr(m.layers[0], "weight", T(1.0, 2.0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_attribute_of_the_object_of_a_method(name: str) -> None:
  model = Scaled()
  for _ in range(4):
    before = model(T(1.0, 2.0)).tolist()
  CHANGES[name](model)
  with pytest.raises(JitError, match=name):
    model(T(1.0, 2.0))
  other = Scaled()  # its own capture
  assert [other(T(1.0, 2.0)).tolist() for _ in range(4)][-1] == pytest.approx(before)


def test_constant_that_changes_in_every_call() -> None:
  step = [0]

  def f(x: Tensor) -> Tensor:
    step[0] += 1
    return (x * float(step[0])).realize()

  jitted = TinyJit(f)
  assert [jitted(T(1.0)).item() for _ in range(3)] == [1, 2, 3], "as long as nothing is captured, it is right"
  with pytest.raises(JitError, match=r"first 4 calls.*test_jit_footguns.py:\d+, has the constant 4.0.*it was 3.0"):
    jitted(T(1.0))


def test_data_from_python_that_changes_in_every_call() -> None:
  step = [0.0]

  def f(x: Tensor) -> Tensor:
    step[0] += 1
    return (x + Tensor([step[0], 0.0])).realize()

  jitted = TinyJit(f)
  assert [jitted(T(1.0, 1.0)).tolist()[0] for _ in range(3)] == [2, 3, 4]
  with pytest.raises(JitError, match="data from Python"):
    jitted(T(1.0, 1.0))


def test_python_branch_that_alternates() -> None:
  flags = [True, False, True, False]
  jitted = TinyJit(lambda x: ((x + 1) if flags.pop() else (x + 1).realize() * 2).realize())
  for _ in range(3):
    jitted(T(1.0))
  with pytest.raises(JitError, match="kernel"):
    jitted(T(1.0))


def test_lazy_state_of_the_first_call_is_no_part_of_the_capture() -> None:
  cache: dict[str, Tensor] = {}

  def f(x: Tensor) -> Tensor:
    if "table" not in cache:
      cache["table"] = (Tensor.arange(3).float() * 2).contiguous().realize()
    return (x + cache["table"]).realize()

  jitted = TinyJit(f)
  kernels = []
  for i in range(5):
    x = T(i, 0.0, 0.0)
    GlobalCounters.reset()
    assert jitted(x).tolist() == [i, 2, 4]
    kernels.append(GlobalCounters.kernel_count)
  assert kernels[3:] == [1, 1] and jitted.captured


HIDDEN = types.SimpleNamespace(by=2.0)


def test_jit_check_finds_what_is_hidden() -> None:
  f = captured(lambda x: (x * vars(HIDDEN)["by"]).realize(), T(1.0))
  HIDDEN.by = 3.0
  assert f(T(2.0)).item() == 4, "as the README says: what subscripts give is not seen"
  with Context(JIT_CHECK=1), pytest.raises(JitError, match=r"a replay would not.*constant 3.0.*it was 2.0"):
    f(T(2.0))
  HIDDEN.by = 2.0
  with Context(JIT_CHECK=1):
    assert f(T(3.0)).item() == 6


# *** arguments ***


def test_arguments_by_name_in_any_order() -> None:
  @TinyJit
  def f(a: Tensor, b: Tensor, *, c: Tensor) -> Tensor:
    return (a - b * c).realize()

  for _ in range(3):
    assert f(a=T(7.0), b=T(2.0), c=T(3.0)).item() == 1
  assert f(c=T(2.0), b=T(2.0), a=T(7.0)).item() == 3
  with pytest.raises(JitError, match=r"kwargs\['a'\] is absent"):
    f(T(7.0), b=T(2.0), c=T(3.0))


def test_names_and_keys_in_another_order_where_it_may_matter() -> None:
  by_name: TinyJit[..., Tensor] = TinyJit(lambda **named: (next(iter(named.values())) * 1.5).realize())
  for _ in range(3):
    by_name(a=T(2.0), b=T(4.0))
  with pytest.raises(JitError, match="order"):
    by_name(b=T(4.0), a=T(2.0))
  f = captured(lambda d: (d["a"] - d["b"]).realize(), {"a": T(3.0), "b": T(1.0)})
  with pytest.raises(JitError, match=r"\['b'\], \['a'\], it was .*\['a'\], \['b'\]"):
    f({"b": T(1.0), "a": T(3.0)})


@dataclasses.dataclass(frozen=True)
class Batch:
  x: Tensor
  weights: list[Tensor]
  scale: float | None = 2.0


def test_dataclasses_and_nested_containers() -> None:
  @TinyJit
  def f(batch: Batch, more: tuple[dict[str, Tensor], ...]) -> dict[str, Any]:
    total = (batch.x * (batch.scale or 0) + batch.weights[0] + more[0]["y"]).realize()
    return {"batch": Batch(total, [(total * 2).realize(), batch.x], None), "n": (None, [total])}

  for i in range(5):
    out = f(Batch(x := T(float(i)), [T(1.0)]), ({"y": T(10.0)},))
    assert out["batch"].x.item() == 2 * i + 11 and out["batch"].weights[0].item() == 4 * i + 22
    assert out["batch"].weights[1] is x and out["n"][1][0] is out["batch"].x and out["batch"].scale is None
  with pytest.raises(JitError, match=r"args\[0\].scale is 3.0, it was 2.0"):
    f(Batch(T(1.0), [T(1.0)], 3.0), ({"y": T(10.0)},))


def test_containers_of_another_kind_or_length() -> None:
  f = captured(lambda xs: (xs[0] + len(xs)).realize(), [T(1.0)])
  with pytest.raises(JitError, match="tuple"):
    f((T(1.0),))
  with pytest.raises(JitError, match="2 parts"):
    f([T(1.0), T(2.0)])
  g = captured(lambda x, more: (x + (1 if more == [] else 2)).realize(), T(1.0), [])
  with pytest.raises(JitError, match="empty tuple"):
    g(T(1.0), ())


def test_plain_arguments_that_are_equal_and_not_the_same() -> None:
  f = captured(lambda x, by: (x / by).realize(), T(1.0), 0.0)
  with pytest.raises(JitError, match=r"args\[1\] is -0.0, it was 0.0"):
    f(T(1.0), -0.0)
  g = captured(lambda x, by: (x * by).realize(), T(1.0), 1)
  for other in (True, 1.0):
    with pytest.raises(JitError, match=r"args\[1\]"):
      g(T(1.0), other)
  nan = captured(lambda x, by: (x + by).realize(), T(1.0), float("nan"))
  assert nan(T(1.0), float("nan")).isnan().item()


def test_defaults_of_the_frontend_that_change() -> None:
  f = captured(lambda x: (x + Tensor.ones(1)).realize(), T(1.0))
  with Context(DEVICE="REF:1"), pytest.raises(JitError, match="DEVICE is 'REF:1', it was 'REF'"):
    f(Tensor([1.0], device="REF").realize())


def test_gradient_of_an_argument_belongs_to_it() -> None:
  def f(x: Tensor) -> Tensor:
    loss = (x * x).sum()
    loss.backward()
    return loss.realize()

  jitted: TinyJit[..., Tensor] = TinyJit(f)
  for i in range(1, 5):
    x = T(float(i)).requires_grad_(True)
    jitted(x)
    assert x.grad is not None and x.grad.item() == 2 * i
    with pytest.raises(JitError, match="gradient"):
      jitted(x)
    if i == 1:
      jitted.reset()
