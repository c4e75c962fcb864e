"""Captured graphs: what replay does to inputs, outputs, state and variables."""

from __future__ import annotations

from typing import Any

import pytest

from tiny_runtime import CapturedGraph, GlobalCounters, buffer_of, capture, run
from tiny_uop import Ops, UOp, dtypes


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
  other = kernels.buffer([1.0, 2.0])
  with pytest.raises(ValueError, match="captured with 2 inputs, 1 given"):
    graph.replay([x])
  with pytest.raises(ValueError, match="input 0 is 3 × float32 on REF, the graph was captured with 2 × float32 on REF"):
    graph.replay([kernels.buffer([1.0] * 3), other])
  with pytest.raises(ValueError, match="input 0 is 2 × int32 on REF"):
    graph.replay([UOp.new_buffer("REF", 2, dtypes.int32), other])
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
