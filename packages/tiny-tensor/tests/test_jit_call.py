"""The quick way into a replay: it is taken where it may be, and gives what the long way gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tiny_tensor import Context, JitError, Tensor, TinyJit, Variable, dtypes
from tiny_tensor.jit.call import quick_call
from tiny_tensor.jit.inputs import Inputs
from tiny_uop import UOp


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


@pytest.fixture
def long_way(monkeypatch: pytest.MonkeyPatch) -> list[int]:
  """Has one entry for each call that took the long way (the two up to the capture do too)."""
  calls: list[int] = []
  inner = Inputs.__init__

  def init(self: Inputs, *arguments: Any) -> None:
    calls.append(1)
    inner(self, *arguments)

  monkeypatch.setattr(Inputs, "__init__", init)
  return calls


def realized(*values: float) -> Tensor:
  return Tensor([*values]).realize()


def test_tensors_plain_values_and_variables(long_way: list[int]) -> None:
  n, other = Variable("n", 1, 8), object()

  @TinyJit
  def f(x: Tensor, scale: float, size: UOp, tag: object, *, flag: bool, y: Tensor) -> Tensor:
    summand = x * scale + y
    return (summand + Tensor.ones(1) * size).realize()

  for i in range(1, 6):
    x, y = realized(i, 1.0), realized(10.0, i)
    assert f(x, 2.0, n.bind(i), other, flag=True, y=y).tolist() == [3 * i + 10, 2 * i + 2]
  assert len(long_way) == 2
  assert f(realized(1.0, 1.0), 2.0, n.bind(2), other, y=realized(0.0, 0.0), flag=True).tolist() == [4, 4]
  assert len(long_way) == 3, "arguments in another order are for the long way"
  with pytest.raises(JitError, match=r"args\[1\] is 3.0, it was 2.0"):
    f(realized(1.0, 1.0), 3.0, n.bind(2), other, flag=True, y=realized(0.0, 0.0))


def test_no_arguments(long_way: list[int]) -> None:
  state = realized(0.0)
  f = TinyJit(lambda: state.assign(state + 1).realize())
  assert [f().item() for _ in range(5)] == [1, 2, 3, 4, 5] and len(long_way) == 2


def test_results_of_any_shape(long_way: list[int]) -> None:
  @TinyJit
  def f(x: Tensor, y: Tensor) -> dict[str, Any]:
    return {"same": y, "new": [(x + 1).realize(), None], "sum": (x + y).reshape(1, 2).realize()}

  for i in range(5):
    x, y = realized(i, 0.0), realized(0.0, i)
    out = f(x, y)
    assert out["same"].tolist() == [0, i] and out["new"][0].tolist() == [i + 1, 1] and out["new"][1] is None
    assert out["sum"].tolist() == [[i, i]]
  assert len(long_way) == 2


def grown(x: Tensor) -> Tensor:
  return Tensor([*x.tolist(), 1.0]).realize()


OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
  "another shape": grown,
  "another order": lambda x: x.reshape(1, 2),
  "another dtype": lambda x: x.cast(dtypes.float64).realize(),
  "a gradient wanted": lambda x: realized(*x.tolist()).requires_grad_(True),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_what_differs_is_refused(change: Callable[[Tensor], Tensor], long_way: list[int]) -> None:
  f = TinyJit(lambda x: (x * 2).realize())
  for _ in range(3):
    f(realized(1.0, 2.0))
  with pytest.raises(JitError, match=r"args\[0\]"):
    f(change(realized(1.0, 2.0)))
  assert f(realized(4.0, 5.0)).tolist() == [8, 10] and len(long_way) == 3


def test_views_lazy_tensors_and_constants_go_the_long_way(long_way: list[int]) -> None:
  f = TinyJit(lambda x: (x * 2).realize())
  data = realized(1.0, 2.0, 3.0, 4.0)
  for _ in range(3):
    f(realized(1.0, 2.0))
  assert f(data[1:3]).tolist() == [4, 6] and f(data[:2] + 1).tolist() == [4, 6]
  assert f(Tensor.full((2,), 5.0)).tolist() == [10, 10] and len(long_way) == 5


def test_the_same_tensor_twice_is_refused_as_ever() -> None:
  f = TinyJit(lambda x, y: (x + y).realize())
  x, y = realized(1.0), realized(2.0)
  for _ in range(3):
    f(x, y)
  with pytest.raises(JitError, match="the same buffer"):
    f(x, x)
  assert f(y, x).item() == 3


def test_training_is_looked_at() -> None:
  f = TinyJit(lambda x: (x + 1).realize())
  for _ in range(3):
    f(realized(1.0))
  with Tensor.train(), pytest.raises(JitError, match=r"Tensor\.training"):
    f(realized(1.0))


def test_what_is_no_simple_call() -> None:
  x = realized(1.0, 2.0)
  assert quick_call((x, 1, "a", None), {"k": 2.0}) is not None
  for argument in ([x], {"x": x}, (x,), x[:1], x + 1, bytearray(2), Variable("n", 1, 3).bind(1) + 1):
    assert quick_call((argument,), {}) is None, argument
  n = Variable("n", 1, 3)
  assert quick_call((n.bind(1), n.bind(1)), {}) is None


def test_results_do_not_change_under_whoever_holds_them() -> None:
  f = TinyJit(lambda x: (x + 1).realize())
  for _ in range(2):
    f(realized(0.0))
  kept, views, lazy, arrays = [], [], [], []
  for i in range(1, 6):
    kept.append(f(realized(float(10 * i))))
    views.append(f(realized(float(10 * i))).reshape(1, 1))
    lazy.append(f(realized(float(10 * i))) * 2)
    arrays.append(f(realized(float(10 * i))).data())
    f(realized(-1.0))
  expected = [10.0 * i + 1 for i in range(1, 6)]
  assert [t.item() for t in kept] == [t.item() for t in views] == [a[0] for a in arrays] == expected
  assert [t.item() for t in lazy] == [2 * e for e in expected]


def test_threads_share_one_jit() -> None:
  f = TinyJit(lambda x: ((x * 3).realize() + 1).realize())
  for i in range(2):
    f(realized(float(i)))
  wrong: list[float] = []

  def work(start: int) -> None:
    for i in range(start, start + 40):
      if f(realized(float(i))).item() != 3 * i + 1:
        wrong.append(i)

  threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not wrong
