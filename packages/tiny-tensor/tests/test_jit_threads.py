"""`TinyJit` beside other threads, which have tensors of their own: what waits there is theirs to carry out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tiny_tensor import Context, Tensor, TinyJit
from tiny_tensor.live import live_tensors
from tiny_tensor.realize import is_realized

SECONDS = 30


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


class Other:
  """A thread that does one thing after the other, when it is told to."""

  def __init__(self, *steps: Callable[[], object]) -> None:
    self._steps = iter(steps)
    self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
    self._errors: list[BaseException] = []
    self._thread = threading.Thread(target=self._run, args=(len(steps),), daemon=True)
    self._thread.start()

  def _run(self, count: int) -> None:
    for _ in range(count):
      self._go.acquire(timeout=SECONDS)
      try:
        next(self._steps)()
      except BaseException as error:
        self._errors.append(error)
      self._done.release()

  def step(self) -> None:
    """Let it do the next, and wait."""
    self._go.release()
    assert self._done.acquire(timeout=SECONDS), "the other thread hangs"
    assert not self._errors, self._errors


@pytest.mark.parametrize("inside", [False, True], ids=["before", "inside"])
def test_assignments_of_other_threads_are_theirs(inside: bool) -> None:
  state = Tensor([1.0, 2.0]).realize()
  added = Tensor([10.0, 20.0]).realize()
  other = Other(lambda: state.assign(state + added), lambda: state.realize())
  if not inside:
    other.step()

  def double(x: Tensor) -> Tensor:
    if inside and is_realized(state.uop):  # only in the first call
      other.step()
    return (x * 2).realize()

  jit = TinyJit(double)
  for n in range(4):
    assert jit(Tensor([float(n), 3.0])).tolist() == [2.0 * n, 6.0]
    assert not is_realized(state.uop), "it waits for its thread"
  assert jit.captured is not None
  other.step()
  assert state.tolist() == [11.0, 22.0], "once"


def test_what_a_thread_left_when_it_ended_is_carried_out() -> None:
  state = Tensor([1.0, 2.0]).realize()
  thread = threading.Thread(target=lambda: state.assign(state + 10))
  thread.start()
  thread.join(SECONDS)
  jit = TinyJit(lambda x: (x + state).realize())
  for n in range(4):
    assert jit(Tensor([float(n), 0.0])).tolist() == [11.0 + n, 12.0]
  assert state.tolist() == [11.0, 12.0]


def test_gradients_of_other_threads_are_theirs() -> None:
  weight = Tensor([3.0, 4.0], requires_grad=True).realize()
  other = Other(
    lambda: (weight * weight).sum().backward(), lambda: weight.grad.realize() if weight.grad is not None else None
  )

  def double(x: Tensor) -> Tensor:
    if weight.grad is None:
      other.step()
    return (x * 2).realize()

  jit = TinyJit(double)
  for n in range(3):
    assert jit(Tensor([float(n), 3.0])).tolist() == [2.0 * n, 6.0]
  assert weight.grad is not None and not is_realized(weight.grad.uop), "its thread has not asked for it"
  other.step()
  assert weight.grad.tolist() == [6.0, 8.0]


def test_gradients_of_the_function_are_computed_beside_other_threads() -> None:
  weight, bias = (Tensor([3.0, 4.0], requires_grad=True).realize() for _ in range(2))
  other = Other(lambda: None)

  def step(x: Tensor) -> Tensor:
    weight.grad = bias.grad = None
    loss = (weight * x).sum() + (weight * weight).sum() + bias.sum()
    loss.backward()
    return loss.realize()

  jit = TinyJit(step)
  for n in range(4):
    jit(Tensor([float(n), 1.0]))
    assert bias.grad is not None and is_realized(bias.grad.uop) and bias.grad.tolist() == [1.0, 1.0], "of no memory"
    assert weight.grad is not None and is_realized(weight.grad.uop) and weight.grad.tolist() == [6.0 + n, 9.0]
  other.step()


def test_what_another_thread_holds_for_a_moment_is_not_kept() -> None:
  """As it does while it looks at all tensors: arguments, and what the function made."""
  ended = threading.Event()

  def look() -> None:
    while not ended.is_set():
      held = live_tensors()
      ended.wait(0.02)
      del held
      ended.wait(0.005)

  def doubled(x: Tensor) -> Tensor:
    y = (x[1:] * 2).realize()
    time.sleep(0.05)  # the other thread has looked
    return y + 1

  thread = threading.Thread(target=look)
  thread.start()
  try:
    for n in range(5):
      step = TinyJit(doubled)
      for turn in range(3):
        x = Tensor([float(n), float(turn), 2.0]).realize()
        assert step(x).tolist() == [2.0 * turn + 1, 5.0]
  finally:
    ended.set()
    thread.join()
