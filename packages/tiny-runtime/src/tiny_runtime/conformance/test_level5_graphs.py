"""Level 5: the capabilities `graphs` and `peer_graphs`. Graphs give what the same launches give one by one, also after
changes."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from tiny_runtime.conformance.failure import demand
from tiny_runtime.conformance.kernels import I, Loaded, elementwise, kernel
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.test_level4_order import (
  COUNTS,
  NEW,
  ONES,
  PENDING,
  SIZE,
  Stopwatch,
  demand_in_time,
)
from tiny_runtime.conformance.test_level5_peers import BYTES, Pair, copy, paired
from tiny_runtime.conformance.values import pack, unpack
from tiny_runtime.contract import GraphChange, GraphCopy, GraphKernel, Memory
from tiny_uop import UOp

ORDER = "the calls of a graph run in order, after all launches before; each sees what those before it wrote"
CHANGES = "changes given to run_graph hold for this run and later ones, each for its own position"
COPIES = "GraphCopy is memmove: byte offsets, any size, the two places may overlap"


class Calls:
  """Memories, and launches over them as calls of a graph. All memories hold int32."""

  def __init__(self, target: Target) -> None:
    self.target = target
    self.device: Any = target.device
    self.memories: list[Memory] = []
    self.sizes: list[int] = []

  def memory(self, values: Sequence[int]) -> int:
    """A new memory with these contents; its position."""
    self.memories.append(self.target.filled(values))
    self.sizes.append(len(values))
    return len(self.memories) - 1

  def values(self, position: int) -> list[int]:
    """What a memory holds now."""
    return self.target.numbers_in(self.memories[position], self.sizes[position])

  def expect(self, what: str, contents: Mapping[int, Sequence[int]], look_at: str = ORDER) -> None:
    """Raise Misbehaved where a memory, named by its position, does not hold these numbers."""
    for position, expected in contents.items():
      self.target.demand_numbers(self.memories[position], expected, f"{what}, memory {position}", look_at)

  def load(self, sink: UOp) -> Callable[..., GraphKernel]:
    """A kernel as a function of its buffers, each (position, byte offset), in slot order, and of its variables."""
    return Loaded(self.target, sink).call

  def launch(self, call: GraphKernel) -> None:
    """Launch a call by itself."""
    buffers = [(self.memories[position], offset) for position, offset in call.buffers]
    self.device.launch(call.program, buffers, call.integers, call.global_size, call.local_size, False)

  def make(self, *calls: GraphKernel | GraphCopy) -> Callable[..., float | None]:
    """A graph of the calls: what runs it, with other memories in some positions, as (position, memory)."""
    graph = self.device.make_graph(calls, self.memories)
    return lambda *changed, kernels=(), wait=False: self.device.run_graph(graph, changed, kernels, wait)

  def run(self, *calls: GraphKernel | GraphCopy) -> Callable[..., float | None]:
    """The same, run once."""
    again = self.make(*calls)
    again()
    return again


@pytest.fixture
def calls(target: Target) -> Iterator[Calls]:
  target.needs("graphs")
  made = Calls(target)
  yield made
  target.device.sync()
  for memory in made.memories:
    target.device.free(memory)


def affine(size: int, factor: int, summand: int) -> UOp:
  """out[i] = in[i] * factor + summand."""
  return elementwise(f"affine_{factor}_{summand}_{size}", size, I, [I], lambda a: a * factor + summand)


def test_calls_run_in_order(calls: Calls) -> None:
  x, t, y = calls.memory([1, 2, 3, 4]), calls.memory([0] * 4), calls.memory([0] * 4)
  double, plus = calls.load(affine(4, 2, 0)), calls.load(affine(4, 1, 7))
  again = calls.run(double((t, 0), (x, 0)), plus((y, 0), (t, 0)), double((t, 0), (y, 0)), plus((x, 0), (t, 0)))
  calls.expect("four launches", {y: [9, 11, 13, 15], x: [25, 29, 33, 37]})
  again()
  calls.expect("the same four launches once more", {y: [57, 65, 73, 81]})


def test_long_graphs_equal_launches_one_by_one(calls: Calls) -> None:
  chosen, size = random.Random(0), 33
  kernels = [calls.load(affine(size, factor, summand)) for factor, summand in ((1, 1), (-1, 3), (2, -5), (0, 9))]
  add = calls.load(elementwise("graph_add", size, I, [I, I], lambda a, b: (a + b) % 1000))
  contents = [chosen.choices(range(100), k=size) for _ in range(6)]
  graph, eager = [[calls.memory(values) for values in contents] for _ in range(2)]
  picks = [(chosen.randrange(len(kernels) + 1), *chosen.sample(range(6), 3)) for _ in range(200)]

  def chain(memories: list[int]) -> list[GraphKernel]:
    places = [(position, 0) for position in memories]
    return [
      kernels[k](places[out], places[a]) if k < len(kernels) else add(places[out], places[a], places[b])
      for k, out, a, b in picks
    ]

  calls.run(*chain(graph))
  for call in chain(eager):
    calls.launch(call)
  for by_graph, one_by_one in zip(graph, eager):
    calls.expect("200 launches, against the same one by one", {by_graph: calls.values(one_by_one)})


def test_other_memories(calls: Calls) -> None:
  x, y, other, out = calls.memory([1, 2]), calls.memory([0, 0]), calls.memory([30, 40]), calls.memory([5, 5])
  plus, twice = calls.load(affine(2, 1, 1)), calls.load(affine(2, 2, 0))
  again = calls.run(plus((y, 0), (x, 0)), twice((x, 0), (y, 0)), plus((y, 0), (x, 0)))
  calls.expect("the first run", {x: [4, 6], y: [5, 7]})
  memories = calls.memories
  again((x, memories[other]))
  calls.expect("with another memory for x", {x: [4, 6], y: [63, 83], other: [62, 82]}, CHANGES)
  again((y, memories[out]))  # the first change stays
  calls.expect("with another for y as well", {x: [4, 6], y: [63, 83], other: [126, 166], out: [127, 167]}, CHANGES)
  again((x, memories[x]), (y, memories[y]))
  calls.expect("with the first ones again", {x: [10, 14], y: [11, 15], other: [126, 166], out: [127, 167]}, CHANGES)


def test_one_memory_in_two_positions(calls: Calls) -> None:
  x, y, z = calls.memory([1, 2]), calls.memory([10, 20]), calls.memory([0, 0])
  add = calls.load(elementwise("graph_sum", 2, I, [I, I], lambda a, b: a + b))
  again = calls.run(add((z, 0), (x, 0), (y, 0)))
  again((y, calls.memories[x]))
  calls.expect("y replaced by x's memory", {z: [2, 4]}, CHANGES)
  again((x, calls.memories[y]))  # the other position stays as it is
  calls.expect("x replaced by y's memory", {z: [11, 22]}, CHANGES)


def test_offsets_and_copies(calls: Calls) -> None:
  x, y = calls.memory(range(16)), calls.memory([0] * 16)
  plus = calls.load(affine(4, 1, 100))
  copies = GraphCopy((y, 0), (x, 4), 12), GraphCopy((y, 48), (y, 16), 16), GraphCopy((y, 8), (y, 4), 8)
  again = calls.run(plus((y, 16), (x, 32)), *copies)
  want = [1, 2, 2, 3, 108, 109, 110, 111, 0, 0, 0, 0, 108, 109, 110, 111]
  calls.expect("a launch and copies, at byte offsets", {y: want}, COPIES)
  again((x, calls.memories[y]))
  first = [want[1], want[2], want[2], want[3], 100, 100, 100, 100]
  calls.expect("the same within one memory", {y: [*first, 0, 0, 0, 0, 100, 100, 100, 100]}, COPIES)


@pytest.mark.parametrize("nbytes", [4, 4096, 1 << 22])
def test_copies_of_any_size(calls: Calls, nbytes: int) -> None:
  x, y = calls.memory(range(nbytes // 4)), calls.memory([0] * (nbytes // 4))
  calls.run(GraphCopy((y, 0), (x, 0), nbytes))
  calls.expect(f"a copy of {nbytes} bytes", {y: range(nbytes // 4)}, COPIES)


def test_far_offsets(calls: Calls) -> None:
  """Offsets that take more than 16 bits, in launches and copies."""
  size, far = 1 << 19, 1 << 18
  x, y = calls.memory(range(size)), calls.memory([0] * size)
  plus = calls.load(affine(4, 1, 100))
  calls.run(plus((y, 4 * far), (x, 4 * far + 64)), GraphCopy((y, 4 * far + 1024), (x, 8 * far - 16), 16))
  expected = [0] * size
  expected[far : far + 4] = range(far + 116, far + 120)
  expected[far + 256 : far + 260] = range(size - 4, size)
  calls.expect("a launch and a copy at far offsets", {y: expected}, COPIES)


def test_sequences_may_be_reused(calls: Calls) -> None:
  """Those that make_graph is given."""
  x, y = calls.memory([1, 2]), calls.memory([0, 0])
  plus = calls.load(affine(2, 1, 1))
  listed: list[GraphKernel | GraphCopy] = [plus((y, 0), (x, 0))]
  memories = list(calls.memories)
  graph = calls.device.make_graph(listed, memories)
  listed[0], memories[:] = plus((x, 0), (x, 0)), [calls.memories[y]] * 2
  calls.device.run_graph(graph, (), (), False)
  look_at = "make_graph has taken what it needs of its lists when it returns"
  calls.expect("lists given to make_graph were changed afterwards", {x: [1, 2], y: [2, 3]}, look_at)


def test_copies_within_one_memory(calls: Calls) -> None:
  size = 1 << 20
  x, y = calls.memory(range(size)), calls.memory([0] * size)
  again = calls.run(GraphCopy((y, 4), (x, 0), 4 * (size - 1)))
  calls.expect("a copy between two memories", {y: [0, *range(size - 1)]}, COPIES)
  again((y, calls.memories[x]))  # now they overlap
  calls.expect("a copy that overlaps itself", {x: [0, *range(size - 1)]}, COPIES)


def test_other_variables(calls: Calls) -> None:
  n = UOp.variable("n", 0, 32)
  i = UOp.range(n, 0)
  out, source = (UOp.param(slot, I.ptr(32)) for slot in range(2))
  body = out.index(i).store(source.index(i).load() + n.cast(I)).end(i)
  prefix = calls.load(kernel("graph_prefix", body))
  copy = calls.load(affine(32, 1, 0))
  x, y, z = calls.memory(range(32)), calls.memory([-1] * 32), calls.memory([0] * 32)

  def made(length: int) -> GraphKernel:
    return prefix((y, 0), (x, 0), n=length)

  again = calls.run(copy((y, 0), (z, 0)), made(5), copy((z, 0), (y, 0)))
  calls.expect("a launch of 5 elements", {z: [*range(5, 10)] + [0] * 27})
  for length in (32, 1, 0, 17):
    before = calls.values(z)
    again(kernels=[(1, made(length))])
    expected = [k + length for k in range(length)] + before[length:]
    calls.expect(f"the same launch with {length} elements", {z: expected}, CHANGES)
  before = calls.values(z)
  again()  # the last values stay
  calls.expect("the last variables, which stay", {z: before}, CHANGES)


def test_calls_that_change_together(calls: Calls) -> None:
  """The capability `graph_changes`: as `run_graph` with each of the calls."""
  calls.target.needs("graph_changes")
  n = UOp.variable("n", 0, 32)
  i = UOp.range(n, 0)
  out, source = (UOp.param(slot, I.ptr(32)) for slot in range(2))
  prefix = calls.load(kernel("graph_together", out.index(i).store(source.index(i).load() + n.cast(I)).end(i)))
  x = calls.memory(range(32))
  made = [calls.memory([0] * 32) for _ in range(4)]

  def call(position: int, length: int) -> GraphKernel:
    return prefix((position, 0), (x, 0), n=length)

  graph = calls.device.make_graph([call(position, 3) for position in made], calls.memories)
  held, lengths, all_calls = [[0] * 32 for _ in made], [3] * 4, (0, 1, 2, 3)

  def run(what: str, together: Mapping[tuple[int, ...], int], alone: Mapping[int, int]) -> None:
    changes, kernels = [], []
    for indices, length in together.items():
      one = call(made[0], length)
      changes.append(GraphChange(indices, one.integers, one.global_size, one.local_size))
      for index in indices:
        lengths[index] = length
    for index, length in alone.items():
      kernels.append((index, call(made[index], length)))
      lengths[index] = length
    if changes:
      calls.device.change_graph(graph, changes)
    calls.device.run_graph(graph, (), kernels, False)
    for values, length in zip(held, lengths):
      values[:length] = [k + length for k in range(length)]
    calls.expect(what, dict(zip(made, held)), CHANGES)

  run("as they were made", {}, {})
  run("all together", {all_calls: 32}, {})
  run("again", {all_calls: 1}, {})
  run("what stays", {}, {})
  run("one of them alone", {}, {2: 7})
  run("all together after that", {all_calls: 0}, {})
  run("two and two", {(0, 3): 5, (1, 2): 9}, {})
  run("one of two, and the others", {(1, 2): 6}, {0: 11})
  run("all together at last", {all_calls: 30}, {})


def test_kernels_that_use_all_of_the_device(calls: Calls) -> None:
  size = 1 << 18
  x, y = calls.memory(range(size)), calls.memory([0] * size)
  forth, back, small = calls.load(affine(size, 3, 1)), calls.load(affine(size, 1, -1)), calls.load(affine(1, 5, 0))
  calls.run(forth((y, 0), (x, 0)), small((x, 0), (y, 0)), back((y, 0), (y, 0)))
  calls.expect("large launches around a small one", {x: [5, *range(1, size)], y: range(0, 3 * size, 3)})


def test_order_with_launches_and_seconds(calls: Calls) -> None:
  x, y = calls.memory([1]), calls.memory([0])
  plus = calls.load(affine(1, 1, 1))
  call = plus((x, 0), (x, 0))
  both, other = calls.make(plus((y, 0), (x, 0)), plus((x, 0), (y, 0))), calls.make(call)
  for _ in range(3):
    calls.launch(call)
    both()
    other()
  seconds = both(wait=True)
  calls.expect("graphs and launches in turn", {x: [1 + 3 * 4 + 2]})
  right = isinstance(seconds, float) and 0 <= seconds < 60
  demand(right, "run_graph with wait=True", expected="the seconds that it took", got=seconds)


def test_waiting_and_time(calls: Calls) -> None:
  """With `wait`, run_graph returns when everything is done, and says how many seconds it took."""
  x, y = calls.memory([1] * SIZE), calls.memory([0] * SIZE)
  clock = Stopwatch(calls.target, calls.memories[y], calls.memories[x])
  call = calls.load(clock.long.kernel)((y, 0), (x, 0), steps=clock.steps)
  twice = calls.make(call, call)

  def run() -> tuple[float, float, float, float]:
    start = time.perf_counter()
    seconds = twice(wait=True)
    return time.perf_counter() - start, clock.read(), seconds or 0.0, clock.run()

  demand_in_time(
    run,
    lambda passed, left, said, one: left < 2 * one / 3 and passed / 20 < said < passed * 1.1 + 1e-3,
    "run_graph with wait=True: by the clock it took, reading a result after it took, it says, and one launch takes"
    " (seconds)",
    "it takes as long as two launches do, reading takes next to nothing, and it says as much as the clock",
    "with wait, run_graph waits for its calls; its seconds are seconds, of this run alone",
  )


def test_times_of_calls(calls: Calls) -> None:
  """The capability `graph_times`: when each call of a run with `wait` ran."""
  calls.target.needs("graph_times")
  x, y = calls.memory([1] * SIZE), calls.memory([0] * SIZE)
  plus, empty = calls.load(affine(SIZE, 1, 1)), calls.memory([0])
  one = calls.load(affine(1, 1, 1))
  device = calls.device
  graph = device.make_graph([plus((y, 0), (x, 0)), one((empty, 0), (empty, 0)), plus((x, 0), (y, 0))], calls.memories)
  device.run_graph(graph, (), (), False)
  for _ in range(2):
    seconds = device.run_graph(graph, (), (), True)
    times = [tuple(pair) for pair in device.graph_times(graph)]
    look_at = "graph_times gives (begin, end) of each call of the last run with wait, in seconds from its beginning"
    demand(len(times) == 3, "graph_times of three calls", expected="three pairs", got=times, look_at=look_at)
    right = all(0 <= of <= to <= seconds + 1e-3 for of, to in times) and times == sorted(times)
    what = f"graph_times of calls that run one after the other, in a run of {seconds} seconds"
    demand(right, what, expected="begin ≤ end, in order, within the run", got=times, look_at=look_at)
    demand(times[0][1] > times[0][0], "a call that takes time", expected="begin < end", got=times[0], look_at=look_at)


def test_a_graph_without_calls(calls: Calls) -> None:
  x = calls.memory([3])
  calls.run()
  calls.expect("a graph without calls", {x: [3]})


def test_dropped_graphs_leave_the_device_usable(calls: Calls) -> None:
  x, y = calls.memory([1, 2]), calls.memory([0, 0])
  plus = calls.load(affine(2, 1, 1))
  for _ in range(50):
    calls.run(plus((y, 0), (x, 0)), plus((x, 0), (y, 0)))
  gc.collect()
  calls.expect("50 graphs, each dropped at once", {x: [101, 102]}, "what belongs to a graph that nobody holds any more")


# *** graphs of several devices: the capability `peer_graphs` ***

BETWEEN = (
  "calls of one device, or over one memory, run in order, and after all launches so far on all devices of a graph"
)


@pytest.fixture(scope="module")
def graphs(target: Target) -> Iterator[Pair]:
  """Two devices that share graphs."""
  yield from paired(target, "peer_graphs")


def graph_of(pair: Pair, calls: Sequence[GraphKernel | GraphCopy], held: Sequence[Memory]) -> Callable[..., None]:
  """A graph of the first device's: what runs it, with other memories in some positions."""
  device: Any = pair.one.device
  graph = device.make_graph(calls, held)
  return lambda *changed, wait=False: device.run_graph(graph, changed, (), wait)


def test_a_value_goes_to_and_fro(graphs: Pair) -> None:
  """Each device computes with what the other sent, several times; what comes after a run waits for it."""
  here, there = graphs.slow()
  step: list[GraphKernel | GraphCopy] = [
    here.call((1, 0), (0, 0), (2, 0)), GraphCopy((3, 0), (1, 0), BYTES),
    there.call((4, 0), (3, 0), (5, 0)), GraphCopy((0, 0), (4, 0), BYTES),
  ]  # fmt: skip
  with graphs.memories([COUNTS, NEW, ONES], [NEW, NEW, ONES]) as (one, two):
    run = graph_of(graphs, step * 3, [*one, *two])
    for runs in (1, 2, 3):
      run(wait=runs == 2)
      what, expected = (
        f"a value that went to and fro 3 times in each of {runs} runs",
        range(384 * runs, SIZE + 384 * runs),
      )
      graphs.two.demand_numbers(two[1], expected, what, BETWEEN, here.kernel)
      graphs.one.demand_numbers(one[0], expected, what, BETWEEN, here.kernel)


def test_it_comes_after_launches_of_every_device(graphs: Pair) -> None:
  _, there = graphs.slow()
  with graphs.memories([NEW], [NEW, COUNTS, ONES]) as ((got,), (out, source, ones)):
    run = graph_of(graphs, [GraphCopy((0, 0), (1, 0), BYTES)], [got, out])
    for _ in range(PENDING):
      there(out, source, ones)
    run()
    what = "a graph copied what the other device held before an earlier launch"
    graphs.one.demand_numbers(got, range(64, SIZE + 64), what, BETWEEN, there.kernel)


def test_what_comes_later_on_every_device_waits_for_it(graphs: Pair) -> None:
  here, there = graphs.slow()
  with graphs.memories([NEW, NEW, COUNTS, ONES], [COUNTS, NEW, ONES]) as (one, (given, after, more)):
    got, out, source, ones = one
    run = graph_of(graphs, [GraphCopy((0, 0), (1, 0), BYTES), GraphCopy((1, 0), (2, 0), BYTES)], [got, given, out])
    for _ in range(PENDING):
      here(out, source, ones)
    run()
    there(after, given, more)
    graphs.two.device.write(given, 0, memoryview(bytes(BYTES)))
    graphs.two.device.sync()
    what = "a launch on the other device, behind a graph, did not see what it wrote there"
    graphs.two.demand_numbers(after, range(128, SIZE + 128), what, BETWEEN, there.kernel)
    what = "a graph copied what was written on the other device after it"
    graphs.one.demand_numbers(got, COUNTS, what, BETWEEN, there.kernel)


def test_other_memories_and_places(graphs: Pair) -> None:
  """On both sides; and copies of parts, also within either device."""
  look_at = "changes given to run_graph hold for this run and later ones, for memories of every device"
  first, second = range(100, SIZE + 100), range(200, SIZE + 200)
  calls = [GraphCopy((0, 8), (1, 4), 40), GraphCopy((0, 9), (0, 8), 39), GraphCopy((1, 0), (1, 16), 16)]
  with graphs.memories([NEW, COUNTS], [first, second]) as ((out, other), (source, another)):
    run = graph_of(graphs, calls, [out, source])
    run()
    run((0, other), (1, another))
    for to, held, memory, given in ((out, NEW, source, first), (other, COUNTS, another, second)):
      expected = bytearray(pack(I, held))
      expected[8:48] = pack(I, given)[4:44]
      expected[9:48] = bytes(expected[8:47])
      what = "copies of parts, between two devices and in one"
      graphs.one.demand_numbers(to, [int(n) for n in unpack(I, bytes(expected))], what, look_at)
      graphs.two.demand_numbers(memory, [*given[4:8], *given[4:]], "a copy in the other device", look_at)
    copy(graphs.one, out, graphs.two, source, BYTES)
    run((0, out), (1, source))
