"""Captured graphs: what replay does to inputs, outputs, state and variables."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime import CapturedGraph, Device, DeviceLost, GlobalCounters, buffer_of, capture, profile, run
from tiny_runtime.execution import results
from tiny_uop import Context, Ops, UOp, dtypes

WITH_GRAPHS = """
from dataclasses import replace
from tiny_runtime import DeviceLost, GraphCopy
from tiny_runtime.ref import RefDevice
from tiny_runtime.ref.backend import RefBackend

class Device(RefDevice):
  # REF with graphs, which it runs call by call; `submissions`: calls, changed memories, changed kernels of each

  def __init__(self):
    super().__init__()
    self.info = replace(self.info, name="GRAPHS", capabilities=replace(self.info.capabilities, graphs=True))
    self.submissions, self.lost = [], False

  def make_graph(self, calls, memories):
    return list(calls), list(memories)

  def run_graph(self, graph, memories, kernels, wait):
    calls, mine = graph
    for position, memory in memories: mine[position] = memory
    for index, kernel in kernels: calls[index] = kernel
    self.submissions.append((len(calls), len(memories), len(kernels)))
    if self.lost: raise DeviceLost("unplugged")
    for call in calls:
      if isinstance(call, GraphCopy):
        (to, start), (of, begin) = call.target, call.source
        self.write(mine[to], start, memoryview(bytes(self.view(mine[of])[begin:begin + call.nbytes])))
      elif 0 not in call.global_size:
        buffers = [(mine[position], offset) for position, offset in call.buffers]
        self.launch(call.program, buffers, call.integers, call.global_size, call.local_size, False)

class Backend(RefBackend):
  api = (1, 1)

  def open(self, index):
    return Device()

BACKEND = Backend()
"""


@pytest.fixture
def with_graphs(make_plugin: Callable[..., Path]) -> Any:
  """The open device GRAPHS."""
  make_plugin("tiny-runtime-graphs", "GRAPHS", WITH_GRAPHS)
  return Device.opened("GRAPHS").device


@pytest.fixture(params=["REF", "GRAPHS"])
def kernels(request: pytest.FixtureRequest, kernels_on: Any, with_graphs: Any) -> Any:
  """Every test is for devices with and without graphs."""
  return kernels_on(request.param)


def test_replay_over_other_inputs(kernels: Any) -> None:
  x, t, y = kernels.buffer([1.0, 2.0]), kernels.buffer(size=2), kernels.buffer(size=2)
  with capture() as captured:
    run(kernels.linear(kernels.add(t, x, 1.0)))
    run(kernels.linear(kernels.add(y, t, 10.0)))
  run(kernels.linear(kernels.increment(x)))  # not recorded
  assert len(captured.linears) == 2 and captured.created == {t, y}
  graph = CapturedGraph(captured.linears, [x], [y])
  first = kernels.buffer([5.0, 6.0])
  (a,) = graph.replay([first])
  (b,) = graph.replay([kernels.buffer([7.0, 8.0])])
  assert a is not b and a is not y
  assert kernels.values(a) == [16.0, 17.0] and kernels.values(b) == [18.0, 19.0] and kernels.values(y) == [12.0, 13.0]
  assert kernels.values(first) == [5.0, 6.0]
  GlobalCounters.reset()
  (c,) = graph.replay([b])  # an output may be the next input
  assert kernels.values(c) == [29.0, 30.0] and GlobalCounters.kernel_count == 2


def test_state_is_updated_in_place(kernels: Any) -> None:
  w, x, y = kernels.buffer([0.0]), kernels.buffer([1.0]), kernels.buffer(size=1)
  with capture() as captured:
    run(kernels.linear(kernels.increment(w), kernels.add(y, w, 0.5), kernels.add(kernels.buffer(size=1), x)))
  graph = CapturedGraph(captured, [x], [y, w])
  for n in range(3):
    out, state = graph.replay([kernels.buffer([0.0])])
    assert state is w and kernels.values(w) == [n + 2.0] and kernels.values(out) == [n + 2.5]


def test_partly_written_state_is_no_fresh_output(kernels: Any) -> None:
  table, x = kernels.buffer([1.0, 2.0, 3.0]), kernels.buffer([5.0])
  view = UOp(Ops.BUFFER_VIEW, dtypes.float32, (table,), (4, 1))
  with capture() as captured:
    run(kernels.linear(kernels.add(view, x)))
  graph = CapturedGraph(captured, [x], [table])
  assert graph.replay([kernels.buffer([7.0])]) == (table,)
  assert kernels.values(table) == [1.0, 8.0, 3.0]


def test_views_of_inputs_and_outputs(kernels: Any) -> None:
  x, y = kernels.buffer([1.0, 2.0, 3.0, 4.0]), kernels.buffer(size=2)
  part = UOp(Ops.BUFFER_VIEW, dtypes.float32, (x,), (8, 1))
  whole = UOp(Ops.BUFFER_VIEW, dtypes.float32, (y,), (4, 1))
  first = UOp(Ops.BUFFER_VIEW, dtypes.float32, (y,), (0, 1))
  with capture() as captured:
    run(kernels.linear(kernels.add(whole, part), kernels.copy(first, part)))
  (out,) = CapturedGraph(captured, [x], [y]).replay([kernels.buffer([0.0, 0.0, 9.0, 0.0])])
  assert kernels.values(out) == [9.0, 10.0]


def test_variables(kernels: Any) -> None:
  x, y = kernels.buffer([1.0, 2.0, 3.0, 4.0]), kernels.buffer(size=1)
  length = UOp.variable("length", 1, 4)
  with capture() as captured:
    run(kernels.linear(kernels.prefix(y, x, length.bind(2))))
  graph = CapturedGraph(captured, [x], [y])
  assert [kernels.values(graph.replay([x], {"length": n})[0]) for n in (1, 4, 3)] == [[1.0], [10.0], [6.0]]
  assert kernels.values(graph.replay([x])[0]) == [6.0]  # the last value stays
  with pytest.raises(ValueError, match="no variable size; it has length"):
    graph.replay([x], {"size": 1})
  with pytest.raises(ValueError, match=r"variable 'length' has bounds \[1, 4\], cannot bind it to 5"):
    graph.replay([x], {"length": 5})
  assert kernels.values(graph.replay([x])[0]) == [6.0]


def test_without_knowing_what_was_created(kernels: Any) -> None:
  x, w, y = kernels.buffer([1.0]), kernels.buffer([1.0]), kernels.buffer(size=1)
  linear = kernels.linear(kernels.increment(w), kernels.add(y, x))
  run(linear)
  out, state = CapturedGraph([linear], [x], [y, w]).replay([kernels.buffer([4.0])])
  assert out is not y and kernels.values(out) == [5.0] and state is w and kernels.values(w) == [3.0]


def test_host_input(kernels: Any, kernels_on: Any) -> None:
  host = kernels_on("HOST")
  x, t, y = host.buffer([1.0]), kernels.buffer(size=1), kernels.buffer(size=1)
  with capture() as captured:
    run(kernels.linear(kernels.copy(t, x), kernels.add(y, t)))
  graph = CapturedGraph(captured, [], [y])
  buffer_of(x).write(buffer_of(host.buffer([7.0])).read())  # refreshed in place
  assert kernels.values(graph.replay([])[0]) == [8.0]


def test_wrong_use(kernels: Any, kernels_on: Any) -> None:
  x, w, y = kernels.buffer([1.0, 2.0]), kernels.buffer([0.0, 0.0]), kernels.buffer(size=2)
  with capture() as captured:
    run(kernels.linear(kernels.add(y, x), kernels.increment(w)))
  graph = CapturedGraph(captured, [x, w], [y])
  other, name = kernels.buffer([1.0, 2.0]), kernels.device
  with pytest.raises(ValueError, match="captured with 2 inputs, 1 given"):
    graph.replay([x])
  with pytest.raises(ValueError, match=f"input 0 is 3 × float32 on {name}, the graph was captured with 2"):
    graph.replay([kernels.buffer([1.0] * 3), other])
  with pytest.raises(ValueError, match=f"input 0 is 2 × int32 on {name}"):
    graph.replay([UOp.new_buffer(name, 2, dtypes.int32), other])
  with pytest.raises(ValueError, match="input 1 is 2 × float32 on HOST"):
    graph.replay([x, kernels_on("HOST").buffer([1.0, 2.0])])
  with pytest.raises(ValueError, match="input 0 is <CONST.*expected a BUFFER"):
    graph.replay([UOp.const(dtypes.float32, 1.0), other])
  with pytest.raises(ValueError, match="input 1 is written by the graph, so it cannot be given as another input too"):
    graph.replay([other, other])
  with pytest.raises(RuntimeError, match="was never written to"):
    graph.replay([kernels.buffer(size=2), other])
  owner = CapturedGraph(captured, [x])
  with pytest.raises(ValueError, match="input 0 is a buffer that the graph itself writes"):
    owner.replay([w])
  with pytest.raises(ValueError, match="not used by the captured schedules"):
    CapturedGraph(captured, [other])
  with pytest.raises(ValueError, match="same BUFFER is given as two inputs"):
    CapturedGraph(captured, [x, x])
  with pytest.raises(ValueError, match="are BUFFERs, got <ADD"):
    CapturedGraph(captured, [x], [UOp.const(dtypes.int32, 1).alu(Ops.ADD, UOp.variable("v", 0, 1, dtypes.int32))])
  graph.replay([x, w])  # still usable


def test_captures_nest_and_end_with_an_error(kernels: Any) -> None:
  x = kernels.buffer([1.0])
  with capture() as outer:
    with pytest.raises(ZeroDivisionError), capture() as inner:
      run(kernels.linear(kernels.increment(x)))
      _ = 1 / 0
    run(kernels.linear(kernels.increment(x)))
  run(kernels.linear(kernels.increment(x)))
  assert len(inner) == 1 and len(outer) == 2


def test_one_submission_with_what_changed(kernels_on: Any, with_graphs: Any) -> None:
  kernels = kernels_on("GRAPHS")
  x, t, y, z = kernels.buffer([1.0, 2.0]), *[kernels.buffer(size=2) for _ in range(3)]
  with capture() as captured:
    run(kernels.linear(kernels.add(t, x), kernels.copy(y, t)))
    run(kernels.linear(kernels.add(z, y)))
  graph = CapturedGraph(captured, [x], [z])
  (first,) = graph.replay([x])
  (second,) = graph.replay([x])
  del first
  (third,) = graph.replay([x])
  (fourth,) = graph.replay([kernels.buffer([3.0, 4.0])])
  assert [kernels.values(out) for out in (second, third, fourth)] == [[3.0, 4.0], [3.0, 4.0], [5.0, 6.0]]
  made, output, output_again, both = with_graphs.submissions
  assert (made, output, output_again, both) == ((3, 0, 0), (3, 1, 0), (3, 1, 0), (3, 2, 0))


def test_variables_change_only_calls_that_have_them(kernels_on: Any, with_graphs: Any) -> None:
  kernels = kernels_on("GRAPHS")
  x, y = kernels.buffer([1.0, 2.0, 3.0, 4.0]), kernels.buffer([0.0])
  length = UOp.variable("length", 1, 4)
  with capture() as captured:
    run(kernels.linear(kernels.increment(x), kernels.prefix(y, x, length.bind(2)), kernels.increment(x)))
  graph = CapturedGraph(captured, [])
  for value in (2, 3, 3, 4):
    graph.replay([], {"length": value})
  assert kernels.values(y) == [10.0 + 4 * 9]
  assert with_graphs.submissions == [(3, 0, 0), (3, 0, 1), (3, 0, 0), (3, 0, 1)]


def test_a_graph_over_several_devices_is_cut(kernels_on: Any, with_graphs: Any) -> None:
  one, two = kernels_on("GRAPHS"), kernels_on("REF")
  x, t, u, v, w = one.buffer([1.0]), one.buffer(size=1), two.buffer(size=1), two.buffer(size=1), one.buffer(size=1)
  y = one.buffer(size=1)
  with capture() as captured:
    run(
      one.linear(one.add(t, x), one.increment(t), one.copy(u, t), two.add(v, u, 100.0), one.copy(w, v), one.add(y, w))
    )
  graph = CapturedGraph(captured, [x], [y])
  GlobalCounters.reset()
  (out,) = graph.replay([one.buffer([5.0])])
  assert one.values(out) == [108.0] and GlobalCounters.kernel_count == 6
  assert [calls for calls, _, _ in with_graphs.submissions] == [2, 1]


def test_counters_are_those_of_the_launches(kernels: Any) -> None:
  x, y, length = kernels.buffer([1.0, 2.0, 3.0, 4.0]), kernels.buffer(size=1), UOp.variable("length", 1, 4)
  z = kernels.buffer(size=1)

  def counts() -> tuple[int, int, int]:
    return GlobalCounters.kernel_count, GlobalCounters.global_ops, GlobalCounters.global_mem

  with capture() as captured:
    run(kernels.linear(kernels.prefix(y, x, length.bind(2)), kernels.copy(z, y)))
  graph = CapturedGraph(captured, [x], [z])
  for value in (2, 4):
    GlobalCounters.reset()
    run(kernels.linear(kernels.prefix(y, x, length.bind(value)), kernels.copy(z, y)))
    eager = counts()
    GlobalCounters.reset()
    graph.replay([x], {"length": value})
    assert counts() == eager and eager[0] == 2


def test_debug_2_shows_each_launch(kernels: Any, capfd: pytest.CaptureFixture[str]) -> None:
  x, y = kernels.buffer([1.0]), kernels.buffer(size=1)
  with capture() as captured:
    run(kernels.linear(kernels.add(y, x, name="shown"), kernels.increment(y, name="seen")))
  graph = CapturedGraph(captured, [x], [y])
  graph.replay([x])
  capfd.readouterr()
  with Context(DEBUG=2):
    (out,) = graph.replay([kernels.buffer([5.0])])
  text = capfd.readouterr().err
  assert "shown" in text and "seen" in text and kernels.values(out) == [7.0]
  (out,) = graph.replay([kernels.buffer([6.0])])
  assert kernels.values(out) == [8.0] and not capfd.readouterr().err


def test_freed_buffers_are_seen(kernels: Any) -> None:
  x, w, y = kernels.buffer([1.0]), kernels.buffer([2.0]), kernels.buffer(size=1)
  with capture() as captured:
    run(kernels.linear(kernels.add(y, x), kernels.increment(w, name="update")))
  graph = CapturedGraph(captured, [x], [y])
  (out,) = graph.replay([x])
  buffer_of(out).free()
  (out,) = graph.replay([x])  # it is not used again
  assert kernels.values(out) == [2.0]
  buffer_of(w).free()
  with pytest.raises(RuntimeError, match="was freed") as caught:
    graph.replay([x])
  assert "as an argument of kernel update" in "".join(caught.value.__notes__)


def test_a_failed_replay_changes_nothing_for_the_next(kernels: Any) -> None:
  x, y = kernels.buffer([1.0]), kernels.buffer(size=1)
  with capture() as captured:
    run(kernels.linear(kernels.add(y, x)))
  graph = CapturedGraph(captured, [x], [y])
  graph.replay([x])
  empty = kernels.buffer(size=1)
  for _ in range(2):
    with pytest.raises(RuntimeError, match="was never written to"):
      graph.replay([empty])
  buffer_of(empty).write(b"\0\0\0\0")
  assert kernels.values(graph.replay([empty])[0]) == [1.0] and kernels.values(graph.replay([x])[0]) == [2.0]


def test_a_lost_device_is_reported(kernels_on: Any, with_graphs: Any) -> None:
  kernels = kernels_on("GRAPHS")
  x, y = kernels.buffer([1.0]), kernels.buffer(size=1)
  with capture() as captured:
    run(kernels.linear(kernels.add(y, x)))
  graph = CapturedGraph(captured, [x], [y])
  with_graphs.lost = True
  with pytest.raises(DeviceLost, match="a captured graph on GRAPHS: unplugged"):
    graph.replay([x])
  with pytest.raises(DeviceLost, match="unplugged"):
    graph.replay([x])


HOLDS: dict[str, Callable[[UOp], object]] = {
  "the node": lambda out: out,
  "its buffer node": lambda out: out.base,
  "a view": lambda out: out.reshape((1, 2)),
  "a graph": lambda out: out + out,
  "the buffer": lambda out: buffer_of(out.base),
  "a view of the buffer": lambda out: buffer_of(out.base).view(0, 1),
}


@pytest.mark.parametrize("held", HOLDS.values(), ids=HOLDS)
def test_outputs_are_not_used_again_while_held(kernels: Any, held: Callable[[UOp], object]) -> None:
  x, y = kernels.buffer([1.0, 2.0]), kernels.buffer(size=2)
  with capture() as captured:
    run(kernels.linear(kernels.add(y, x)))
  graph = CapturedGraph(captured, [x], [y.reshape((2, 1))])
  kept, ids = [], []
  for n in range(8):
    (out,) = graph.replay([kernels.buffer([float(n), 0.0])])
    kept.append(held(out))
    ids.append(out.base.arg[0])
    del out
  assert len(set(ids)) == 8


def test_the_tuple_of_outputs_holds_them(kernels: Any) -> None:
  x, y = kernels.buffer([1.0]), kernels.buffer(size=1)
  with capture() as captured:
    run(kernels.linear(kernels.add(y, x)))
  graph = CapturedGraph(captured, [x], [y])
  outputs = [graph.replay([kernels.buffer([float(n)])]) for n in range(8)]
  assert [kernels.values(out) for (out,) in outputs] == [[n + 1.0] for n in range(8)]


def test_outputs_that_nobody_holds_are_used_again(kernels: Any) -> None:
  x, y = kernels.buffer([1.0, 2.0]), kernels.buffer(size=2)
  with capture() as captured:
    run(kernels.linear(kernels.add(y, x)))
  graph = CapturedGraph(captured, [x], [y.reshape((2, 1))])
  exact = sys.implementation.name == "cpython"
  ids = {graph.replay([x])[0].base.arg[0] for _ in range(10)}
  assert len(ids) == 1 or not exact
  ids, out = set(), graph.replay([x])[0].base
  for _ in range(10):
    out = graph.replay([out])[0].base
    ids.add(out.arg[0])
  assert kernels.values(out) == [12.0, 13.0] and (len(ids) <= 3 or not exact)


def test_of_large_outputs_only_the_last_are_kept(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(results, "SMALL", 0)
  x, y = kernels.buffer([1.0, 2.0]), kernels.buffer(size=2)
  with capture() as captured:
    run(kernels.linear(kernels.add(y, x)))
  graph = CapturedGraph(captured, [x], [y])
  numbers = {graph.replay([x])[0].arg[0] for _ in range(5)}
  assert len(numbers) == 1 or sys.implementation.name != "cpython"
  held = graph.replay([x])[0]
  first, other = weakref.ref(buffer_of(held)), graph.replay([x])[0]
  assert kernels.values(held) == kernels.values(other) == [2.0, 3.0] and held is not other
  del held
  gc.collect()
  assert first() is None


def test_threads_share_a_graph(kernels: Any) -> None:
  x, t, y = kernels.buffer([1.0]), kernels.buffer(size=1), kernels.buffer(size=1)
  with capture() as captured:
    run(kernels.linear(kernels.add(t, x), kernels.add(y, t)))
  graph = CapturedGraph(captured, [x], [y])
  wrong: list[int] = []

  def work(start: int) -> None:
    for n in range(start, start + 60):
      (out,) = graph.replay([kernels.buffer([float(n)])])
      if kernels.values(out) != [n + 2.0]:
        wrong.append(n)

  threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not wrong


def test_a_replay_is_one_record_of_a_profile(kernels_on: Any, with_graphs: Any) -> None:
  kernels = kernels_on("GRAPHS")
  x, t, y = kernels.buffer([1.0, 2.0]), *[kernels.buffer(size=2) for _ in range(2)]
  with capture() as captured:
    run(kernels.linear(kernels.add(t, x), kernels.copy(y, t)))
  graph = CapturedGraph(captured, [x], [y], name="step")
  graph.replay([x])
  with profile() as p:
    graph.replay([x])
    with Context(DEBUG=2):
      graph.replay([x])
  launches = [(r.kind, r.name, r.device, r.ops, r.nbytes, r.kernels) for r in p.records if r.kernels or r.ops]
  assert launches == [("graph", "step", "GRAPHS", 2, 32, 2), ("kernel", "add", "GRAPHS", 2, 16, 1)]
