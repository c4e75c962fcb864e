"""Two worlds that live through the same events, one with `TinyJit` and one without: they look the same, or JitError.

`python test_jit_twins.py SEED SECONDS` goes on with as many worlds as there is time for.
"""

from __future__ import annotations

import functools
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jit_calls import T

from tiny_tensor import Context, JitError, Tensor, TinyJit


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


STATEMENTS: dict[str, str] = {
  "weight": "y = y * self.weight",
  "state": "y = y + self.state",
  "scale": "y = y * self.scale",
  "argument": "y = y - x",
  "kernel": "y = (y + 1).realize()",
  "random": "y = y + Tensor.rand(2)",
  "assign": "y = self.state.assign(self.state * 0.5 + y.detach()).realize() + 1",
  "slice": "self.state[0:1] = y[1:2]; self.state.realize()",
  "gradient": "self.weight.grad = None; (self.weight * y.detach()).sum().backward()",
  "train": "self.weight.grad = None; ((self.weight * y.detach()) ** 2).sum().backward(); "
  "self.weight.assign(self.weight - self.weight.grad.detach() * 0.01).realize()",
  "write the argument": "y = x.assign(x + 1).realize() * 2",
}
RESULTS: dict[str, str] = {
  "new": "y",
  "view": "[y, y[0:1]]",
  "argument": "(x, {'y': y})",
  "state": "{'state': self.state, 'y': y}",
}


class World:
  """Weights, state, and a function of STATEMENTS that gives one of RESULTS, called many times."""

  def __init__(self, lines: list[str], returns: str, jit: bool) -> None:
    self.state, self.weight = T(1.0, -1.0), T(2.0, 0.5).requires_grad_(True)
    self.scale = 3.0
    self.held: list[Any] = []
    self.last: Any = T(0.0, 0.0)
    body = [*(STATEMENTS[line] for line in lines), "y = (y * 1.0 + 0.25).realize()", f"return {RESULTS[returns]}"]
    made: dict[str, Any] = {"Tensor": Tensor, "__name__": __name__}
    exec("\n".join(["def step(self, x):", "  y = x", *(f"  {line}" for line in body)]), made)
    step = functools.partial(made["step"], self)
    self.f = TinyJit(step) if jit else step

  def seen(self) -> list[Any]:
    """All that can be looked at."""
    grad = self.weight.grad
    parts = [self.state, self.weight, *([] if grad is None else [grad]), *self.held]
    return [[float(f"{v:.4g}") for v in t.flatten().tolist()] for t in parts]


def flat(result: Any) -> list[Tensor]:
  """The tensors of a result."""
  if isinstance(result, Tensor):
    return [result]
  return [t for part in (result.values() if isinstance(result, dict) else result) for t in flat(part)]


def call(argument: Callable[[World, float], Tensor]) -> Callable[[World, float], None]:
  """An event: a call."""

  def event(world: World, number: float) -> None:
    world.last = world.f(argument(world, number))

  return event


def _replace(world: World, number: float) -> None:
  world.weight = T(number, number).requires_grad_(True)


def _scale(world: World, number: float) -> None:
  world.scale = number


def _forget(world: World, number: float) -> None:
  world.weight.grad = None


def _copy_argument(world: World, number: float) -> Tensor:
  return flat(world.last)[-1][:1] * 1 + T(number, 0.0)


EVENTS: dict[str, Callable[[World, float], Any]] = {
  "call": call(lambda w, n: T(n, 1.0)),
  "call again": call(lambda w, n: T(n, -n)),
  "call lazily": call(lambda w, n: T(n, 2.0) + 1),
  "call on a view": call(lambda w, n: T(5.0, n, 2.0, 7.0)[1:3]),
  "call on a result": call(_copy_argument),
  "call on the state": call(lambda w, n: w.state),
  "hold": lambda w, n: w.held.extend(flat(w.last)),
  "hold lazily": lambda w, n: w.held.append(w.state * n + flat(w.last)[0].sum()),
  "hold a gradient": lambda w, n: w.held.append(w.weight.grad) if w.weight.grad is not None else None,
  "hold a view of a gradient": lambda w, n: w.held.append(w.weight.grad[1:]) if w.weight.grad is not None else None,
  "assign": lambda w, n: w.state.assign(w.state * 0 + n),
  "assign and realise": lambda w, n: w.state.assign(w.state + n).realize(),
  "assign a part": lambda w, n: w.state[1:].assign(T(n)),
  "write a result": lambda w, n: flat(w.last)[-1].assign(flat(w.last)[-1] + 10),
  "assign the weight": lambda w, n: w.weight.assign(w.weight.detach() * 0 + n),
  "replace the weight": _replace,
  "another scale": _scale,
  "forget the gradient": _forget,
  "seed": lambda w, n: Tensor.manual_seed(int(n * 10)),
}

calls = st.sampled_from([name for name in EVENTS if name.startswith("call")])
events = st.lists(
  st.tuples(st.one_of(calls, st.sampled_from(sorted(EVENTS))), st.sampled_from([0.5, 1.5, -2.0])), max_size=10
)


def live(lines: list[str], returns: str, plan: list[tuple[str, float]], jit: bool) -> tuple[list[Any], int]:
  """What is seen at the end, and after how many events that is: an event with a JitError is the last."""
  Tensor.manual_seed(7)
  world, done = World(lines, returns, jit), 0
  for name, number in plan:
    try:
      EVENTS[name](world, number)
    except JitError:
      break
    done += 1
  return world.seen(), done


def compare(lines: list[str], returns: str, plan: list[tuple[str, float]]) -> int:
  """Compares the worlds up to the first JitError, whose call ran or did not; gives the events that went well."""
  plan = [("call", 1.5), ("call", -2.0), ("call", 0.5), *plan]
  _, done = live(lines, returns, plan, jit=True)
  if done < len(plan):
    plan = plan[:done]
  (ours, _), (plain, _) = live(lines, returns, plan, jit=True), live(lines, returns, plan, jit=False)
  assert ours == plain
  return done


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(sorted(STATEMENTS)), max_size=4), st.sampled_from(sorted(RESULTS)), events)
def test_worlds_look_the_same(lines: list[str], returns: str, plan: list[tuple[str, float]]) -> None:
  compare(lines, returns, plan)


@pytest.mark.parametrize("line", STATEMENTS)
def test_each_statement_is_captured(line: str) -> None:
  plan = [("call", 1.5), ("hold", 0.0), ("call again", 0.5), ("assign", 2.0), ("call lazily", 1.0), ("call", 3.0)]
  returns = list(RESULTS)[list(STATEMENTS).index(line) % len(RESULTS)]
  assert compare([line], returns, plan) == len(plan) + 3, "no JitError here"


def main(seed: int, seconds: float) -> None:
  """Prints the worlds that differ, and how many were compared."""
  end, count = time.monotonic() + seconds, 0
  with Context(DEVICE="REF"):
    while time.monotonic() < end:
      chance, count = random.Random(seed + count), count + 1
      lines = chance.choices(sorted(STATEMENTS), k=chance.randint(0, 4))
      names = [sorted(EVENTS), [name for name in EVENTS if name.startswith("call")]]
      plan = [(chance.choice(chance.choice(names)), chance.choice([0.5, 1.5, -2.0])) for _ in range(10)]
      try:
        compare(lines, returns := chance.choice(sorted(RESULTS)), plan)
      except AssertionError:
        print("differ:", lines, returns, plan)
  print(f"{count} worlds")


if __name__ == "__main__":
  main(int(sys.argv[1]), float(sys.argv[2]))
