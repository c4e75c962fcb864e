"""Level 5: the capability `peer_graphs`. A graph of several devices gives what the same calls give one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tiny_runtime.conformance.launching import Loaded, demand_numbers, memories
from tiny_runtime.conformance.peers import Pair, copy, paired
from tiny_runtime.conformance.test_level4_order import PENDING, SIZE, slow_copy
from tiny_runtime.contract import GraphCopy, GraphKernel

ORDER = "calls of one device, or over one memory, run in order, and after all launches so far on all devices of a graph"
BYTES = 4 * SIZE


@pytest.fixture(scope="module")
def pair(target: object) -> Iterator[Pair]:
  """Two devices that reach each other."""
  yield from paired(target, "peer_graphs")  # type: ignore[arg-type]  # the kit's fixture


def call(kernel: Loaded, *positions: int) -> GraphKernel:
  """A launch in a graph over whole memories, in slot order."""
  return kernel.call(*[(position, 0) for position in positions])


def made(pair: Pair, calls: Sequence[GraphKernel | GraphCopy], held: Sequence[Any]) -> Any:
  """A graph of the first device's."""
  return pair.one.device.make_graph(calls, held)  # type: ignore[attr-defined]  # claimed


def run(pair: Pair, graph: Any, changed: Sequence[tuple[int, Any]] = (), wait: bool = False) -> None:
  """Run it."""
  pair.one.device.run_graph(graph, changed, (), wait)  # type: ignore[attr-defined]  # claimed


def test_a_value_goes_to_and_fro(pair: Pair) -> None:
  """Each device computes with what the other sent, several times; what comes after a run waits for it."""
  here, there = Loaded(pair.one, slow_copy()), Loaded(pair.two, slow_copy())
  with (
    memories(pair.one, range(SIZE), [0] * SIZE, [1] * SIZE) as one,
    memories(pair.two, [0] * SIZE, [0] * SIZE, [1] * SIZE) as two,
  ):
    step: list[GraphKernel | GraphCopy] = [
      call(here, 1, 0, 2),
      GraphCopy((3, 0), (1, 0), BYTES),
      call(there, 4, 3, 5),
      GraphCopy((0, 0), (4, 0), BYTES),
    ]
    graph = made(pair, step * 3, [*one, *two])
    for runs in (1, 2, 3):
      run(pair, graph, wait=runs == 2)
      what = f"a value that went to and fro 3 times in each of {runs} runs"
      demand_numbers(pair.two, two[1], range(384 * runs, SIZE + 384 * runs), what, ORDER, here.kernel)
      demand_numbers(pair.one, one[0], range(384 * runs, SIZE + 384 * runs), what, ORDER, here.kernel)


def test_it_comes_after_launches_of_every_device(pair: Pair) -> None:
  there = Loaded(pair.two, slow_copy())
  with (
    memories(pair.one, [0] * SIZE) as (got,),
    memories(pair.two, [0] * SIZE, range(SIZE), [1] * SIZE) as (out, source, ones),
  ):
    graph = made(pair, [GraphCopy((0, 0), (1, 0), BYTES)], [got, out])
    for _ in range(PENDING):
      there(out, source, ones)
    run(pair, graph)
    what = "a graph copied what the other device held before an earlier launch"
    demand_numbers(pair.one, got, range(64, SIZE + 64), what, ORDER, there.kernel)


def test_what_comes_later_on_every_device_waits_for_it(pair: Pair) -> None:
  here, there = Loaded(pair.one, slow_copy()), Loaded(pair.two, slow_copy())
  with (
    memories(pair.one, [0] * SIZE, [0] * SIZE, range(SIZE), [1] * SIZE) as (got, out, source, ones),
    memories(pair.two, range(SIZE), [0] * SIZE, [1] * SIZE) as (given, after, more),
  ):
    graph = made(pair, [GraphCopy((0, 0), (1, 0), BYTES), GraphCopy((1, 0), (2, 0), BYTES)], [got, given, out])
    for _ in range(PENDING):
      here(out, source, ones)
    run(pair, graph)
    there(after, given, more)
    pair.two.device.write(given, 0, memoryview(bytes(BYTES)))
    pair.two.device.sync()
    what = "a launch on the other device, behind a graph, did not see what it wrote there"
    demand_numbers(pair.two, after, range(128, SIZE + 128), what, ORDER, there.kernel)
    what = "a graph copied what was written on the other device after it"
    demand_numbers(pair.one, got, range(SIZE), what, ORDER, there.kernel)


def test_other_memories_and_places(pair: Pair) -> None:
  """On both sides; and copies of parts, also within either device."""
  look_at = "changes given to run_graph hold for this run and later ones, for memories of every device"
  with (
    memories(pair.one, [0] * SIZE, range(SIZE)) as (out, other),
    memories(pair.two, range(100, SIZE + 100), range(200, SIZE + 200)) as (source, another),
  ):
    calls = [GraphCopy((0, 8), (1, 4), 40), GraphCopy((0, 9), (0, 8), 39), GraphCopy((1, 0), (1, 16), 16)]
    graph = made(pair, calls, [out, source])
    run(pair, graph)
    run(pair, graph, [(0, other), (1, another)])
    for to, of, memory, start in (
      (out, range(100, SIZE + 100), source, 0),
      (other, range(200, SIZE + 200), another, 1),
    ):
      before = bytearray(b"".join(n.to_bytes(4, "little") for n in (range(SIZE) if start else [0] * SIZE)))
      given = b"".join(n.to_bytes(4, "little") for n in of)
      before[8:48] = given[4:44]
      before[9:48] = bytes(before[8:47])
      expected = [int.from_bytes(before[k : k + 4], "little", signed=True) for k in range(0, BYTES, 4)]
      demand_numbers(pair.one, to, expected, "copies of parts, between two devices and in one", look_at)
      moved = [*of[4:8], *of[4:]]
      demand_numbers(pair.two, memory, moved, "a copy in the other device", look_at)
    copy(pair.one, out, pair.two, source, BYTES)
    run(pair, graph, [(0, out), (1, source)])
