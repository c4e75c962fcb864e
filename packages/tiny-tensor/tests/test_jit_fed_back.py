"""What a captured function gave can be given to it again, beside and in place of what the user made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from tiny_tensor import Context, Tensor, TinyJit, dtypes
from tiny_tensor.jit import JitError


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def test_tokens_that_are_chosen_are_the_next_input() -> None:
  table = Tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])

  @TinyJit
  def following(token: Tensor) -> Tensor:
    return table[token].argmax(-1).realize()

  token, seen = Tensor([0]).realize(), []
  for _ in range(6):
    token = following(token)
    seen.append(token.item())
  assert seen == [1, 2, 0, 1, 2, 0] and following.captured
  assert following(Tensor([1]).realize()).item() == 2, "and the user's again"


@pytest.mark.parametrize("dtype", [d for d in dtypes.all if not dtypes.is_float(d)], ids=lambda d: d.name)
@pytest.mark.parametrize("given", [lambda t: t, lambda t: [t]], ids=["quick", "in a list"])
def test_integers_may_say_that_they_require_no_gradient(dtype: Any, given: Callable[[Tensor], Any]) -> None:
  @TinyJit
  def negated(x: Any) -> Tensor:
    only: Tensor = x[0] if isinstance(x, list) else x
    return (1 - only.int()).cast(dtype).realize()

  for n, before in enumerate([None, None, None, False, None, False, False]):
    x = Tensor([0, 1], dtype=dtype).realize().requires_grad_(before)
    assert negated(given(x)).tolist() == [1, 0]
    assert bool(negated.captured) == (n > 0)


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
@pytest.mark.parametrize("how", ["as it is", "detached", "of constants"])
def test_results_of_every_dtype_are_arguments_again(dtype: Any, how: str) -> None:
  """Shape, dtype, device and structure of a result are those of what the user gave; whether it requires a gradient is
  not, and counts for floats."""

  @TinyJit
  def following(x: Tensor, state: Tensor) -> Tensor:
    new = (x.cast(dtype) + state).cast(dtype) if how != "of constants" else (x + state > 0).where(1, 0).cast(dtype)
    return (new.detach() if how == "detached" else new).realize()

  def run(start: bool | None) -> list[bool | None]:
    state, found = Tensor([0, 0], dtype=dtype).realize().requires_grad_(start), []
    for _ in range(4):
      state = following(Tensor([1, 0], dtype=dtype).realize(), state)
      found.append(state.requires_grad)
    assert state.dtype is dtype and state.tolist()[1] == 0
    return found

  usual = run(None)[-1]
  run(usual)
  other = None if usual is False else False
  with pytest.raises(JitError, match="requires_grad") if dtypes.is_float(dtype) else nullcontext():
    run(other)


def test_integers_outside_may_say_so_later() -> None:
  """A function that looks for gradients sees what requires one, which an integer does not."""
  weight = Tensor([1.0, 2.0], requires_grad=True).realize()
  places = Tensor([1, 0]).realize()

  @TinyJit
  def step(x: Tensor) -> Tensor:
    weight.grad = None
    loss = (weight[places] * x).sum()
    loss.backward()
    assert weight.grad is not None
    return loss.realize(weight.grad)

  for _ in range(3):
    step(Tensor([1.0, 1.0]).realize())
  places.requires_grad_(False)
  assert step(Tensor([1.0, 3.0]).realize()).item() == 5
