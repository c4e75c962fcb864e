"""What a step costs does not depend on how many tensors live: counted in instructions of Python, not in seconds."""

import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, TinyJit, live, nn
from tiny_tensor.live import Changes, live_tensors, nodes_above, tensors_at


def instructions(step: Callable[[], object]) -> int:
  """How many bytecode instructions a call executes."""
  count = 0

  def trace(frame: FrameType, event: str, arg: object) -> Any:
    nonlocal count
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    count += event == "opcode"
    return trace

  before = sys.gettrace()
  gc.disable()  # finalisers run Python too
  sys.settrace(trace)
  try:
    step()
  finally:
    sys.settrace(before)
    gc.enable()
  return count


def in_memory(i: int) -> Tensor:
  return Tensor(np.full((2,), i, np.float32))


SOURCE = Tensor([1.0, 2.0], device="REF").realize()
# what lives beside: computed, waiting to be computed (each from memory of its own, or all from the same), a view
OTHERS: dict[str, Callable[[int], Tensor]] = {
  "computed": in_memory,
  "lazy": lambda i: in_memory(i) * 2,
  "lazy, of one": lambda i: SOURCE + i,
  "constants": lambda i: Tensor.zeros(2) + 1,
  "assigned to": lambda i: in_memory(i).assign(Tensor([3.0, 4.0])),
}


def realize() -> None:
  (SOURCE * 3 + 1).realize()


def assign() -> None:
  (t := in_memory(1)).assign(t + 1).realize()
  t[0] = 5
  t.add_(1).realize()


def differentiate() -> None:
  x = in_memory(2).requires_grad_()
  (x * x).sum().backward()
  assert x.grad is not None
  x.grad.realize()


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("step", [realize, assign, differentiate], ids=lambda f: f.__name__)
def test_no_step_looks_at_all_live_tensors(others: str, step: Callable[[], None]) -> None:
  with Context(DEVICE="REF"):
    kept: list[Tensor] = []
    counts = []
    for size in (10, 1000, 4000):
      kept += [OTHERS[others](i) for i in range(size - len(kept))]
      for _ in range(2):  # those that are new are filed once, and what is compiled is compiled
        step()
      # the least of some: now and then, what is scheduled is printed and parsed on the side (conftest.py)
      counts.append(min(instructions(step) for _ in range(3)))
    assert max(counts) < 1.02 * min(counts), counts


def test_changes_since_the_last_time() -> None:
  with Context(DEVICE="REF"):
    a, b = in_memory(1), in_memory(2) * 2
    mine, other = Changes(), Changes()

    def taken(changes: Changes) -> list[int]:
      tensors, mark = changes.look()
      changes.done(mark)
      return list(map(id, tensors))

    assert {id(a), id(b)} <= set(taken(mine)) and taken(mine) == []
    c = in_memory(3)
    b.realize()
    # they are given again until all is done that they give to do
    assert [id(t) for t in mine.look()[0]] == [id(c), id(b)] == taken(mine) and taken(mine) == []
    del c
    assert len(taken(other)) == len(live_tensors())
    del mine, other


@pytest.mark.parametrize("has_lock", [True, False])
def test_changes_are_those_of_one_moment(monkeypatch: pytest.MonkeyPatch, has_lock: bool) -> None:
  """Whatever comes and goes while they are looked at, as in other threads: as many, so that the size stays."""
  with Context(DEVICE="REF"):
    changes = Changes()
    changes.done(changes.look()[1])
    kept, others = [in_memory(i) for i in range(200)], [in_memory(i) for i in range(50)]

    def late(keep: Callable[[object], bool], entries: list[object]) -> Iterator[object]:
      for entry in entries:
        others[:] = [in_memory(i) for i in range(50)]
        if not keep(entry):
          return
        yield entry

    monkeypatch.setattr(live, "takewhile", late)
    monkeypatch.setattr(live, "_HAS_LOCK", has_lock)
    found, _ = changes.look()
    assert [id(t) for t in found if any(t is k for k in kept)] == [id(t) for t in kept]


def test_a_tensor_changes_while_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
  """As by a signal handler that assigns to it."""
  with Context(DEVICE="REF"):
    t = in_memory(1)
  again = [t]

  class Interrupted(dict[object, int]):
    def pop(self, *args: Any) -> Any:
      found = super().pop(*args)
      if again:
        live.changed(again.pop())
      return found

  monkeypatch.setattr(live, "_live", Interrupted(live._live))
  live.changed(t)
  assert not again and id(t) in [id(each) for each in live_tensors()]


def replays() -> dict[str, Callable[[], object]]:
  """Replays that write: state, their argument, gradients; and one after an assignment elsewhere."""
  x, state, weight, elsewhere = (in_memory(i).clone().realize() for i in range(4))
  weight.requires_grad_()

  @TinyJit
  def counted(x: Tensor) -> Tensor:
    return state.assign(state + x).realize() * 1

  @TinyJit
  def changed(x: Tensor) -> None:
    x.assign(x + 1).realize()

  @TinyJit
  def trained(x: Tensor) -> None:
    weight.grad = None
    (weight * x).sum().backward()
    assert weight.grad is not None
    Tensor.realize(weight.grad, weight.assign((weight - weight.grad).detach()))

  def after_an_assignment() -> None:
    elsewhere.assign(Tensor([7.0, 8.0])).realize()
    counted(x)

  return {
    "state": lambda: counted(x), "argument": lambda: changed(x), "gradients": lambda: trained(x),
    "after an assignment": after_an_assignment,
  }  # fmt: skip


@pytest.mark.parametrize("others", OTHERS)
def test_no_replay_looks_at_all_live_tensors(others: str) -> None:
  with Context(DEVICE="REF"):
    kept: list[Tensor] = []
    counts: dict[str, list[int]] = {}
    steps = replays()
    for step in steps.values():
      for _ in range(3):
        step()
    for size in (10, 1000):
      kept += [OTHERS[others](i) for i in range(size - len(kept))]
      for name, step in steps.items():
        for _ in range(2):
          step()
        counts.setdefault(name, []).append(min(instructions(step) for _ in range(3)))
    assert all(max(c) < 1.02 * min(c) for c in counts.values()), counts


def test_a_replay_computes_what_reads_its_state_once() -> None:
  """Whenever the reader was made, and also after a replay that could not compute it."""
  with Context(DEVICE="REF"):
    state = Tensor([1.0]).realize()
    count = TinyJit(lambda x: state.assign(state + x).realize() * 1)
    one = Tensor([1.0]).realize()
    before = state * 10
    for _ in range(3):
      count(one)
    readers = []
    for _ in range(3):
      readers.append((state * 10, state.tolist()[0] * 10))
      count(one)
      view = state.reshape((1, 1))
      readers.append((view + 1, view.tolist()[0][0] + 1))
    count(one)
    assert [r.tolist() for r, _ in readers[::2]] == [[e] for _, e in readers[::2]]
    assert [r.tolist() for r, _ in readers[1::2]] == [[[e]] for _, e in readers[1::2]]
    assert before.tolist() == [10.0]


@pytest.mark.nightly
def test_ten_thousand_live_tensors() -> None:
  with Context(DEVICE="REF"):
    counts = []
    for size in (10, 10_000):
      kept = [in_memory(i) for i in range(size)]
      for _ in range(2):
        realize()
      counts.append(min(instructions(realize) for _ in range(3)))
      del kept
    assert max(counts) < 1.02 * min(counts), counts


def test_loading_a_state_dict_is_linear() -> None:
  def load(count: int) -> int:
    model = [Tensor.zeros(2).contiguous().realize() for _ in range(count)]
    values = {str(i): Tensor(np.full(2, i, np.float64)) for i in range(count)}
    loaded = instructions(lambda: nn.state.load_state_dict(model, values, verbose=False))
    assert model[-1].tolist() == [count - 1] * 2
    return loaded

  with Context(DEVICE="REF"):
    load(4)
    small, large = load(40), load(400)
    assert large < 11 * small, (small, large)


def test_dead_tensors_and_graphs_leave_nothing() -> None:
  with Context(DEVICE="REF"):
    x = in_memory(1)
    gc.collect()
    before = len(live_tensors())
    for _ in range(100):
      y = x.detach()
      assert set(map(id, tensors_at([y.uop]))) == {id(y)}
      (y + 1).realize()
    del y
    assert len(live_tensors()) == before
    assert len(nodes_above([x.uop.base])) <= 3  # the memory, the view of it, nothing of the sums


def test_a_graph_given_by_hand_is_known() -> None:
  with Context(DEVICE="REF"):
    x, y = in_memory(1), in_memory(2)
    (x + y).realize()
    y.uop = (x * 2).uop
    x.assign(Tensor([7.0, 7.0])).realize()
    assert y.tolist() == [2, 2]
