"""Captured graphs on CPU: threads, forks, errors, and that nothing spins afterwards. What they compute is tested by the
conformance kit."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Callable, Sequence

import pytest

from tiny_runtime import Broken, CapturedGraph, Device, GlobalCounters, GraphCopy, buffer_of, capture, run
from tiny_runtime_cpu import CPUDevice
from tiny_runtime_cpu.graph import SHORT_NS, Graph
from tiny_uop import Context, KernelInfo, Ops, UOp, dtypes

LARGE = 1 << 19
"""Elements that keep several threads busy."""


def call(name: str, out: UOp, source: UOp, factor: float = 2.0) -> UOp:
  """CALL of out[i] = source[i] * factor + 1."""
  size = out.arg[1]
  i, (to, of) = UOp.range(size, 0), (UOp.param(slot, dtypes.float32.ptr(size)) for slot in range(2))
  body = UOp.sink(to.index(i).store(of.index(i).load() * factor + 1.0).end(i), arg=KernelInfo(name))
  return UOp(Ops.CALL, dtypes.void, (body, out, source))


def buffer(values: Sequence[float], times: int = 1) -> UOp:
  uop = UOp.new_buffer("CPU", len(values) * times, dtypes.float32)
  buffer_of(uop).write(array("f", values) * times)
  return uop


def values(uop: UOp) -> list[float]:
  return list(memoryview(buffer_of(uop).read()).cast("f"))


def captured(size: int) -> tuple[CapturedGraph, UOp]:
  """A graph of two kernels: ((x · 2 + 1) · 3 + 1); and the input that it was captured with."""
  x, t, y = buffer([0.0], size), *[UOp.new_buffer("CPU", size, dtypes.float32) for _ in range(2)]
  with capture() as schedules:
    run(UOp(Ops.LINEAR, dtypes.void, (call("one", t, x), call("two", y, t, 3.0))))
  return CapturedGraph(schedules, [x], [y]), x


def threads(graph: Graph) -> list[int]:
  """Threads of each call."""
  return [settings.numbers[2] for settings in graph._settings]


def native(graph: CapturedGraph) -> Graph:
  (piece,) = graph._pieces
  made = piece._graph  # type: ignore[attr-defined]
  assert isinstance(made, Graph)
  return made


@pytest.mark.parametrize("size", (5, LARGE))
def test_the_number_of_threads_may_change(size: int) -> None:
  graph, _ = captured(size)
  for threads in (1, 3, 2, 1, 4):
    with Context(CPU_COUNT=threads):
      (out,) = graph.replay([buffer([float(threads)], size)])
    assert values(out) == [6.0 * threads + 4] * size


def test_tiny_kernels_stay_on_this_thread_and_keep_the_gil() -> None:
  small, large = captured(5)[0], captured(LARGE)[0]
  with Context(CPU_COUNT=3):
    for graph in (small, large):
      graph.replay([graph.inputs[0]])
  assert threads(native(small)) == [1, 1] and native(small)._header[0] == 0
  assert native(small)._function is native(small)._native.run_graph_locked
  assert threads(native(large)) == [3, 3] and native(large)._header[0] != 0
  assert native(large)._function is native(large)._native.run_graph
  assert SHORT_NS < 2 * 8 * LARGE / 32


def test_closing_the_pool_between_replays() -> None:
  graph, x = captured(LARGE)
  device = Device.opened("CPU").device
  assert isinstance(device, CPUDevice)
  with Context(CPU_COUNT=3):
    for _ in range(3):
      device.pool.close()
      assert set(values(graph.replay([x])[0])) == {4.0}


def pool_of(device: object) -> int:
  """Where the native state of the device's pool is."""
  assert isinstance(device, CPUDevice)
  return device.pool.address


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_goes_on_with_graphs() -> None:
  graph, x = captured(LARGE)
  with Context(CPU_COUNT=3):
    graph.replay([x])
    child = os.fork()
    if child == 0:
      right = False
      try:
        mine, y = captured(LARGE)
        both = ((graph, x), (mine, y), (graph, y))
        right = all(set(values(g.replay([given])[0])) == {4.0} for g, given in both for _ in range(3))
        # not the pool that the parent has, whose threads are not here
        right = right and {native(g)._header[0] for g, _ in both} == {pool_of(Device.opened("CPU").device)}
      finally:
        os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert set(values(graph.replay([x])[0])) == {4.0}


def test_graphs_and_launches_of_several_python_threads() -> None:
  graphs, wrong = [captured(size)[0] for size in (7, LARGE, 5, LARGE)], []

  def work(graph: CapturedGraph) -> None:
    size = graph.inputs[0].arg[1]
    for n in range(20):
      x, y = buffer([float(n)], size), UOp.new_buffer("CPU", size, dtypes.float32)
      (out,) = graph.replay([x])
      run(UOp(Ops.LINEAR, dtypes.void, (call("eager", y, x, 5.0),)))
      if set(values(out)) != {6.0 * n + 4} or set(values(y)) != {5.0 * n + 1}:
        wrong.append((size, n))

  with Context(CPU_COUNT=2):
    threads = [threading.Thread(target=work, args=(graph,)) for graph in graphs]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
  assert not wrong


def test_nothing_spins_after_a_replay(comes_to_rest: Callable[[], bool]) -> None:
  graph, x = captured(LARGE)
  with Context(CPU_COUNT=4):
    graph.replay([x])
    assert comes_to_rest()


def test_memory_that_does_not_fit_is_refused() -> None:
  graph, x = captured(1000)
  graph.replay([x])
  opened, made = Device.opened("CPU"), native(graph)
  small = opened.device.alloc(16)
  with pytest.raises(Broken, match="the graph needs 4000 bytes of Block"):
    opened.run_graph(made, [(0, small)], ())
  opened.device.free(small)
  with pytest.raises(Broken, match="freed"):
    opened.run_graph(made, [(0, small)], ())
  assert values(graph.replay([x])[0]) == [4.0] * 1000


def copy(out: UOp, source: UOp) -> UOp:
  return UOp(Ops.CALL, dtypes.void, (UOp(Ops.COPY, dtypes.void), out, source))


def test_a_graph_over_several_devices_is_one_call() -> None:
  x, y = buffer([1.0, 2.0]), UOp.new_buffer("CPU", 2, dtypes.float32)
  there, made = (UOp.new_buffer("CPU:3", 2, dtypes.float32) for _ in range(2))
  with capture() as schedules:
    run(UOp(Ops.LINEAR, dtypes.void, (copy(there, x), call("there", made, there), copy(y, made))))
  graph = CapturedGraph(schedules, [x], [y])
  for number in (3.0, 5.0):
    GlobalCounters.reset()
    (out,) = graph.replay([buffer([number, -number])])
    assert values(out) == [2 * number + 1, -2 * number + 1] and GlobalCounters.peer_bytes == 16
  assert len(native(graph)._calls) == 3


def test_copies_are_divided_unless_they_overlap() -> None:
  """Memory that was adopted may overlap other memory."""
  device, nbytes = CPUDevice(), 1 << 22
  own = bytearray(2 * nbytes + 64)
  memories = [device.adopt(memoryview(own)[start : start + nbytes]) for start in (0, 64, nbytes + 64)]
  calls = [GraphCopy((2, 0), (0, 0), nbytes), GraphCopy((1, 0), (0, 0), nbytes), GraphCopy((1, 0), (1, 64), 4096)]
  graph = device.make_graph(calls, memories)
  divided = [graph._division(one, (), 4)[2] for one in calls]
  assert divided[0] > 1 and divided[1:] == [1, 1]
  own[:nbytes] = before = bytes(range(256)) * (nbytes // 256)
  device.run_graph(graph, (), (), False)
  assert own[nbytes + 64 :] == before and own[64 + 4096 : 64 + nbytes] == before[4096:]
  for memory in memories:
    device.free(memory)
