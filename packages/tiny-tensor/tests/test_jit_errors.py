"""`TinyJit` used wrongly: an error, never a silent wrong result, and the process goes on."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tiny_tensor import Context, Tensor, TinyJit, Variable, dtypes
from tiny_tensor.jit import JitError
from tiny_tensor.jit.guards import CALL, CAPTURE, RETURN


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


@pytest.fixture
def double() -> TinyJit[..., Tensor]:
  """Captured with `(x, **options)`: x int32 of shape (2,)."""
  jitted: TinyJit[..., Tensor] = TinyJit(lambda x, **options: (x * 2).realize())
  for i in range(2):
    jitted(Tensor([i, i]))
  assert jitted.captured
  return jitted


def test_the_readme_lists_every_guard() -> None:
  rows = [("capture", guard.catches) for guard in (*CAPTURE, *RETURN)] + [("call", guard.catches) for guard in CALL]
  readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
  _, _, listed = readme.partition("| when | what |\n|---|---|\n")
  assert listed.partition("\n\n")[0].splitlines() == [f"| {when} | {what} |" for when, what in rows]


def _captured(fxn: Callable[..., Tensor]) -> TinyJit[..., Tensor]:
  jitted: TinyJit[..., Tensor] = TinyJit(fxn)
  for i in range(2):
    jitted(Tensor([i, i]))
  assert jitted.captured
  return jitted


def _another_name() -> None:
  held = SimpleNamespace(scale=2)
  jitted = _captured(lambda x: (x * held.scale).realize())
  held.scale = 3
  jitted(Tensor([1, 1]))


def _another_argument() -> None:
  _captured(lambda x: (x * 2).realize())(Tensor([1, 2, 3]))


def _another_weight() -> None:
  weight = Tensor([1, 2]).realize()
  jitted = _captured(lambda x: (x * weight).realize())
  weight.assign(Tensor([3, 4]))
  jitted(Tensor([1, 1]))


def _another_gradient() -> None:
  weight = Tensor([1.0, 2.0], requires_grad=True).realize()

  def step(x: Tensor) -> Tensor:
    loss = (x * weight).sum()
    loss.backward()
    return loss.realize()

  jitted: TinyJit[..., Tensor] = TinyJit(step)
  for _ in range(2):
    jitted(Tensor([1.0, 1.0]))
    weight.grad = None
  weight.grad = Tensor([1.0, 1.0])
  jitted(Tensor([1.0, 1.0]))


def _another_kernel() -> None:
  jitted = _captured(lambda x: (x * 2).realize())
  with Context(JIT_CHECK=1):
    jitted(Tensor([1, 1]))


CHANGES = {
  "Names": _another_name, "Arguments": _another_argument, "Outside": _another_weight, "Gradients": _another_gradient,
  "Trace": _another_kernel,
}  # fmt: skip


class Asked(Exception):
  """A guard was asked."""


@pytest.mark.parametrize("guard", CALL)
def test_every_guard_of_a_call_is_asked_where_the_table_says(guard: type, monkeypatch: pytest.MonkeyPatch) -> None:
  def failure(*_: object) -> None:
    raise Asked

  monkeypatch.setattr(guard, "failure", failure)
  with pytest.raises(Asked) as caught:
    CHANGES[guard.__name__]()
  assert CALL[guard] in [entry.frame.code.raw.co_qualname for entry in caught.traceback]


def test_the_file_that_reads_bytecode_can_be_left_out() -> None:
  program = (
    "import sys; sys.modules['tiny_tensor.jit.code_names'] = None\n"
    "from tiny_tensor import Context, Tensor, TinyJit\n"
    "scale = 2\n"
    "with Context(DEVICE='REF'):\n"
    "  f = TinyJit(lambda x: (x * scale).realize())\n"
    "  [f(Tensor([i])) for i in range(2)]\n"
    "  scale = 3\n"
    "  assert f.captured and f(Tensor([5])).tolist() == [10]\n"
  )
  subprocess.run([sys.executable, "-c", program], check=True)


def test_a_float_that_requires_no_gradient_for_one_that_does_not_say() -> None:
  with Context(DEVICE="REF"):

    @TinyJit
    def halved(x: Tensor) -> Tensor:
      return (x / 2).realize()

    for _ in range(2):
      halved(Tensor([1.0, 2.0]))
    with pytest.raises(JitError, match="requires_grad=False.*requires_grad=None"):
      halved(Tensor([1.0, 2.0]).requires_grad_(False))


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: Tensor([1, 2, 3]), r"\(3,\).*\(2,\)"),
    (lambda: Tensor([[1, 2]]), r"\(1, 2\).*\(2,\)"),
    (lambda: Tensor([1.0, 2.0]), "float32.*int32"),
    (lambda: Tensor([1, 2], dtype=dtypes.int64), "int64.*int32"),
    (lambda: Tensor([1, 2], device="REF:1"), "REF:1"),
    (lambda: [Tensor([1, 2])], r"args\[0\]"),
    (lambda: 3, "3"),
  ],
)
def test_another_kind_of_argument(double: TinyJit[..., Tensor], make: Callable[[], Any], message: str) -> None:
  with Context(DEVICE="REF"), pytest.raises((JitError, RuntimeError), match=message):
    double(make())
  assert double(Tensor([5, 6])).tolist() == [10, 12], "it is usable afterwards"


def test_arguments_that_appear_or_vanish(double: TinyJit[..., Tensor]) -> None:
  with pytest.raises(JitError, match="extra"):
    double(Tensor([1, 2]), extra=Tensor([1]))
  with pytest.raises(JitError, match=r"args\[0\]"):
    double()


def test_plain_arguments_must_stay_as_they_were() -> None:
  @TinyJit
  def f(x: Tensor, by: float, name: str | None = None) -> Tensor:
    return (x * by).realize()

  for _ in range(3):
    assert f(Tensor([3]), 2, name="a").item() == 6
  with pytest.raises(JitError, match=r"args\[1\] is 3, it was 2"):
    f(Tensor([3]), 3, name="a")
  with pytest.raises(JitError, match="'b'"):
    f(Tensor([3]), 2, name="b")
  with pytest.raises(JitError, match="2.0"):
    f(Tensor([3]), 2.0, name="a")


def test_objects_must_be_the_same() -> None:
  @TinyJit
  def f(x: Tensor, model: Callable[[Tensor], Tensor]) -> Tensor:
    return model(x).realize()

  def one(x: Tensor) -> Tensor:
    return x + 1

  for _ in range(3):
    assert f(Tensor([1]), one).item() == 2
  with pytest.raises(JitError, match="lambda"):
    f(Tensor([1]), lambda x: x + 2)


def test_arrays_are_refused() -> None:
  @TinyJit
  def f(x: bytearray) -> Tensor:
    return (Tensor(list(x)) + 1).realize()

  with pytest.raises(JitError, match="bytearray"):
    f(bytearray(b"ab"))


def test_training_flag_must_stay() -> None:
  f = TinyJit(lambda x: (x.dropout(0.5) * 2).realize())
  x = Tensor.ones(4).contiguous().realize()
  for _ in range(2):
    f(x)
  with Tensor.train(), pytest.raises(JitError, match="training"):
    f(x)


def captured(f: Callable[..., Any], *args: Any) -> None:
  """The two calls of which the second captures."""
  jitted = TinyJit(f)
  jitted(*args)
  jitted(*args)


def test_the_same_buffer_twice() -> None:
  x = Tensor([1, 2]).realize()
  with pytest.raises(JitError, match="same buffer"):
    captured(lambda a, b: (a + b).realize(), x, x)
  with pytest.raises(JitError, match="same buffer"):
    captured(lambda a, b: (a.sum() + b).realize(), x, x.reshape(2, 1))
  f = TinyJit(lambda a, b: (a - b).realize())
  for i in range(3):
    assert f(Tensor([i]), Tensor([1])).item() == i - 1
  with pytest.raises(JitError, match=r"args\[1\] and args\[0\] are the same buffer"):
    f(one := Tensor([1]).realize(), one)


def test_an_assignment_that_was_never_realised() -> None:
  state = Tensor([0, 0]).realize()

  def f(x: Tensor) -> Tensor:
    state.assign(state + x)
    return (x * 2).realize()

  with pytest.raises(JitError, match="assigns"):
    captured(f, Tensor([1, 2]))


def test_an_output_that_is_no_tensor() -> None:
  with pytest.raises(JitError, match=r"result\[1\] is the int 3"):
    captured(lambda x: ((x + 1).realize(), 3), Tensor([1]))


@pytest.mark.parametrize("read", [Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.data], ids=lambda f: f.__name__)
def test_reading_a_value_inside(read: Callable[[Tensor], Any]) -> None:
  def f(x: Tensor) -> Tensor:
    y = (x + 1).realize()
    read(y)
    return y

  with pytest.raises(JitError, match="Return the Tensor"):
    captured(f, Tensor([1]))
  assert (Tensor([1]) + 1).item() == 2


def test_nothing_to_capture() -> None:
  with pytest.raises(JitError, match="no kernel"):
    captured(lambda x: None, Tensor([1]).realize())


def test_a_tensor_that_is_kept() -> None:
  kept = []

  def f(x: Tensor) -> Tensor:
    kept.append((x + 1).realize())
    return (kept[-1] * 2).realize()

  with pytest.raises(JitError, match="kept outside"):
    captured(f, Tensor([1]))


def test_a_variable_bound_inside() -> None:
  data = Tensor([1, 2, 3, 4]).realize()
  n = Variable("n", 1, 4)
  with pytest.raises(JitError, match="'?n'? is bound inside"):
    captured(lambda: data.shrink(((0, n.bind(2)),)).sum().realize())


def test_a_variable_of_another_range() -> None:
  data = Tensor([1, 2, 3, 4]).realize()
  f = TinyJit(lambda count: data.shrink(((0, count),)).sum().realize())
  for i in (1, 2, 3):
    f(Variable("n", 1, 4).bind(i))
  with pytest.raises(JitError, match=r"\[1, 3\]"):
    f(Variable("n", 1, 3).bind(2))


def test_assigning_to_a_view() -> None:
  data = Tensor([1, 2, 3, 4]).realize()
  with pytest.raises(JitError, match="view"):
    captured(lambda x: x.assign(x + 1).realize(), data[1:3])


def test_an_error_inside_leaves_it_uncaptured() -> None:
  fail = [False, True, False, False]

  @TinyJit
  def f(x: Tensor) -> Tensor:
    if fail.pop(0):
      raise KeyError("inside")
    return (x + 1).realize()

  f(Tensor([1]))
  with pytest.raises(KeyError):
    f(Tensor([1]))
  assert not f.captured
  assert [f(Tensor([i])).item() for i in range(3)] == [1, 2, 3]
  assert f.captured
