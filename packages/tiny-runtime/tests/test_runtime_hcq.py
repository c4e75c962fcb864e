"""The base for devices with hardware queues, on one that is played in Python."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from queue_toy import BACKEND, MEMORY, PACKET, SLOTS, ToyHardware, toy_device

from tiny_runtime import DeviceLost, GraphCopy, GraphKernel, OutOfMemory, Unavailable
from tiny_runtime.conformance.kernels import elementwise
from tiny_runtime.hcq import Block, Command, HostRing, Kind, QueueDevice, Ring, Timeline, Transfer
from tiny_runtime.hcq.pool import Memory, rounded
from tiny_runtime.hcq.programs import Program
from tiny_uop import Context, dtypes

ONE = (1, 1, 1)
I = dtypes.int32  # noqa: E741


@pytest.fixture
def device() -> Iterator[QueueDevice]:
  opened = toy_device()
  yield opened
  opened.close()
  opened.close()
  assert not hardware(opened).held


def hardware(device: QueueDevice) -> ToyHardware:
  assert isinstance(device.hardware, ToyHardware)
  return device.hardware


def affine(device: QueueDevice, size: int, factor: int, summand: int, name: str = "") -> Program:
  kernel = elementwise(name or f"affine_{factor}_{summand}", size, I, [I], lambda a: a * factor + summand)
  return device.load(BACKEND.compiler("python").compile(kernel))


def filled(device: QueueDevice, numbers: list[int]) -> Memory:
  memory = device.alloc(4 * len(numbers))
  device.write(memory, 0, memoryview(b"".join(n.to_bytes(4, "little", signed=True) for n in numbers)))
  return memory


def numbers_in(device: QueueDevice, memory: Memory) -> list[int]:
  out = bytearray(memory.nbytes)
  device.read(memory, 0, memoryview(out))
  return memoryview(out).cast("i").tolist()


def test_conformance() -> None:
  """All that is not about what a compiler makes."""
  command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider"]
  command += ["--pyargs", "tiny_runtime.conformance", "--backend", "queue_toy:BACKEND"]
  path = os.pathsep.join([str(Path(__file__).parent), *(p for p in sys.path if p)])
  env = {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
  chosen = "(level1 or level4 or level5) and not many_programs and not use_all_of"
  done = subprocess.run([*command, "-k", chosen], env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr


# *** parts ***


def test_a_ring_waits_for_room_and_does_not_go_over_its_end() -> None:
  taken, view = [0], memoryview(bytearray(8 * 4))
  ring = Ring(view, 4, lambda: taken[0], lambda: taken.__setitem__(0, taken[0] + 1))
  seen: list[int] = []
  for size in (3, 8, 1, 20, 5):
    for number, count in ring.pieces(size):
      assert count and number % 8 + count <= 8 and number + count - taken[0] <= 8
      assert ring.at(number, count).nbytes == 4 * count
      seen += range(number, number + count)
  assert seen == list(range(37)) and ring.written == 37
  with pytest.raises(ValueError, match="a power of two of slots, not 3"):
    Ring(view[:12], 4, lambda: 0, lambda: None)


def test_a_host_ring_gives_a_part_out_again_when_it_is_done() -> None:
  device = toy_device()
  toy, timeline = hardware(device), Timeline(device.hardware)
  ring = HostRing(toy.allocate(4 * 4096, Kind.HOST), timeline)
  free = random.Random(0)
  in_use: dict[int, tuple[int, int]] = {}
  for _ in range(200):
    size, alignment = free.randrange(1, 1500), 1 << free.randrange(7)
    remainder = free.randrange(alignment)
    address, view = ring.take(size, alignment, remainder)
    assert address % alignment == remainder and view.nbytes == size
    in_use = {number: place for number, place in in_use.items() if number > toy.done}
    assert all(address + size <= begin or end <= address for begin, end in in_use.values())
    in_use[timeline.next] = (address, address + size)
    timeline.submit(toy.prepare([Transfer(toy.base + 4096, toy.base + 8192, 2)]), ())
  with pytest.raises(ValueError, match="do not fit into a part of 4096 bytes"):
    ring.take(4097)


def test_sizes_of_blocks() -> None:
  for nbytes in (1, 4096, 4097, 65536, 65537, 1_000_000, (1 << 30) + 1):
    assert nbytes <= rounded(nbytes) <= max(nbytes * 17 // 16, nbytes + 4095) and rounded(nbytes) % 4096 == 0
  assert rounded(MEMORY) == MEMORY


# *** order and waiting ***


def test_nothing_waits_before_it_must_and_what_was_freed_is_used_again(device: QueueDevice) -> None:
  program, first = affine(device, 4, 2, 1), filled(device, [1, 2, 3, 4])
  second = device.alloc(16)
  device.sync()
  pauses = hardware(device).pauses
  device.launch(program, [(second, 0), (first, 0)], [], ONE, ONE, False)
  address = first.address
  device.free(first)
  third = device.alloc(16)
  assert third.address == address, "the same memory, for what comes after"
  device.write(third, 0, memoryview(bytes(16)))
  assert hardware(device).pauses == pauses
  assert numbers_in(device, second) == [3, 5, 7, 9] and numbers_in(device, third) == [0] * 4


def test_what_is_written_to_memory_that_nobody_uses_need_not_wait(
  device: QueueDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Memory of launches, graphs and copies under way is in use, and what was freed since."""
  program, (a, b, c) = affine(device, 4, 2, 1), (filled(device, [n] * 4) for n in range(3))
  call = GraphKernel(program, ((0, 0), (1, 0)), (), ONE, ONE)
  graph = device.make_graph([call], [a, b])
  ahead: list[set[bool]] = []
  prepare = hardware(device).prepare

  def noting(commands: Sequence[Command]) -> bytearray:
    ahead.append({command.ahead for command in commands if isinstance(command, Transfer)})
    return prepare(commands)

  def needs_to_wait(memory: Memory) -> bool:
    ahead.clear()
    device.write(memory, 0, memoryview(bytes(16)))
    return ahead == [{False}]

  monkeypatch.setattr(hardware(device), "prepare", noting)
  runs: tuple[Callable[[], object], ...] = (
    lambda: device.launch(program, [(a, 0), (b, 0)], [], ONE, ONE, False),
    lambda: device.run_graph(graph, (), (), False),
    lambda: device.copy_from(a, 0, device, b, 0, 16, False),
  )
  for run in runs:
    device.sync()
    run()
    assert [needs_to_wait(memory) for memory in (a, b, c)] == [True, True, False]
  device.sync()
  device.run_graph(graph, (), (), False)
  device.run_graph(graph, [(0, c)], (), False)
  assert needs_to_wait(a), "the run before the change uses it"
  device.sync()
  device.run_graph(device.make_graph([call], [a, b]), (), (), False)
  assert needs_to_wait(a), "a run of a graph that nobody holds any more"
  device.free(b)
  assert needs_to_wait(device.alloc(16))


def test_submissions_that_are_longer_than_the_ring(device: QueueDevice) -> None:
  program, memory = affine(device, 1, 1, 1), filled(device, [0])
  call = GraphKernel(program, ((0, 0), (0, 0)), (), ONE, ONE)
  graph = device.make_graph([call] * (3 * SLOTS + 1), [memory])
  before = hardware(device).submissions
  device.run_graph(graph, (), (), False)
  assert hardware(device).submissions == before + 1
  assert numbers_in(device, memory) == [3 * SLOTS + 1]


def test_a_graph_is_changed_while_it_runs(device: QueueDevice) -> None:
  """It takes turns with another instance, so nothing waits for the first run before the second is prepared."""
  program, memories = affine(device, 2, 1, 1), [filled(device, [10 * n, 10 * n + 1]) for n in range(6)]
  out = [device.alloc(8) for _ in range(6)]
  calls = [GraphKernel(program, ((0, 0), (1, 0)), (), ONE, ONE)]
  graph = device.make_graph(calls, [out[0], memories[0]])
  device.sync()
  pauses = hardware(device).pauses
  for n in range(2):
    device.run_graph(graph, [(0, out[n]), (1, memories[n])], (), False)
  assert hardware(device).pauses == pauses and len(graph.instances) == 2
  for n in range(2, 6):
    device.run_graph(graph, [(0, out[n]), (1, memories[n])], (), False)
  assert len(graph.instances) == 2
  assert [numbers_in(device, memory) for memory in out] == [[10 * n + 1, 10 * n + 2] for n in range(6)]


def test_copies_in_graphs_that_begin_to_overlap(device: QueueDevice) -> None:
  x, y = filled(device, list(range(8))), filled(device, [0] * 8)
  graph = device.make_graph([GraphCopy((1, 4), (0, 0), 28)], [x, y])
  device.run_graph(graph, (), (), False)
  assert numbers_in(device, y) == [0, *range(7)]
  device.run_graph(graph, [(1, x)], (), False)
  assert numbers_in(device, x) == [0, *range(7)]
  device.run_graph(graph, [(1, y)], (), False)
  assert numbers_in(device, y) == [0, 0, *range(6)]


def test_what_nobody_holds_is_given_back_when_it_is_done(device: QueueDevice) -> None:
  memory = filled(device, [1])
  device.sync()
  before = len(hardware(device).held)
  program = affine(device, 1, 3, 0)
  graph = device.make_graph([GraphKernel(program, ((0, 0), (0, 0)), (), ONE, ONE)], [memory])
  device.run_graph(graph, (), (), False)
  assert len(hardware(device).held) == before + 2
  del program, graph
  gc.collect()
  assert len(hardware(device).held) == before + 2, "it may be under way"
  device.sync()
  assert len(hardware(device).held) == before and numbers_in(device, memory) == [3]


# *** what goes wrong ***


def test_out_of_memory_gives_back_what_is_not_in_use(device: QueueDevice) -> None:
  small = [device.alloc(MEMORY // 16) for _ in range(8)]
  for memory in small:
    device.free(memory)
  half = device.alloc(MEMORY // 2)  # which takes those pieces
  device.alloc(MEMORY // 4)
  with pytest.raises(OutOfMemory, match=f"TOY: {MEMORY // 2} bytes asked for; {3 * MEMORY // 4} bytes are in use"):
    device.alloc(MEMORY // 2)
  with pytest.raises(OutOfMemory, match=f"it has {MEMORY}"):
    device.alloc(MEMORY + 1)
  device.free(half)
  device.alloc(MEMORY // 2)
  with pytest.raises(ValueError, match="was freed"):
    device.free(half)


def test_code_gets_the_room_of_what_is_not_in_use(device: QueueDevice) -> None:
  whole = device.alloc(MEMORY - 4096)  # address 0 is none
  device.free(whole)
  program, memory = affine(device, 1, 1, 1), filled(device, [1])
  device.launch(program, [(memory, 0)] * 2, [], ONE, ONE, False)
  assert numbers_in(device, memory) == [2]


def test_a_host_without_memory() -> None:
  toy = hardware(toy_device())
  toy.free[Kind.HOST] = []
  with pytest.raises(Unavailable, match="TOY gets no memory of the host"):
    QueueDevice(toy)
  assert not toy.held


def test_arguments_that_do_not_fit(device: QueueDevice) -> None:
  program, memory = affine(device, 4, 1, 0), device.alloc(16)
  for buffers, message in (
    ([(memory, 0)], "takes 2 buffers and 0 integers, not 1 and 0"),
    ([(memory, 0), (memory, 4)], r"bytes \[4, 20\) are outside this memory of 16"),
  ):
    with pytest.raises(ValueError, match=message):
      device.launch(program, buffers, [], ONE, ONE, False)
  with pytest.raises(ValueError, match=r"workgroups of \(2, 1, 1\) threads"):
    device.launch(program, [(memory, 0), (memory, 0)], [], ONE, (2, 1, 1), False)
  assert device.launch(program, [(memory, 0), (memory, 0)], [], (0, 1, 1), ONE, True) == 0.0
  assert hardware(device).submissions == 0 or numbers_in(device, memory)


def test_a_fault_names_the_kernel_that_was_running(device: QueueDevice) -> None:
  memory = filled(device, [1])
  good, bad, after = (affine(device, 1, 1, n, name) for n, name in enumerate(("good", "bad", "after")))
  device.sync()
  buffers = [(memory, 0)] * 2
  device.launch(good, buffers, [], ONE, ONE, True)
  device.launch(bad, buffers, [], ONE, ONE, False)
  device.launch(after, buffers, [], ONE, ONE, False)
  hardware(device).broken = "the toy is broken"
  with pytest.raises(DeviceLost, match="^TOY: waiting: the toy is broken. It was kernel bad$"):
    device.sync()
  for use in (device.sync, lambda: device.alloc(1), lambda: device.launch(good, buffers, [], ONE, ONE, False)):
    with pytest.raises(DeviceLost, match="It was kernel bad"):
      use()
  device.free(memory)


def test_a_fault_of_a_copy(device: QueueDevice) -> None:
  memory = filled(device, [1])
  hardware(device).broken = "broken"
  with pytest.raises(DeviceLost, match="^TOY: reading 4 bytes: broken. It was a copy$"):
    numbers_in(device, memory)


def test_a_fault_in_a_graph_names_its_kernels(device: QueueDevice) -> None:
  memory = filled(device, [1])
  calls = [GraphKernel(affine(device, 1, 1, n, f"k{n}"), ((0, 0), (0, 0)), (), ONE, ONE) for n in range(10)]
  graph = device.make_graph(calls, [memory])
  device.sync()
  hardware(device).broken = "broken"
  with pytest.raises(DeviceLost, match=r"a graph of 10 calls: broken.*together: k0, k1, .* k7 \(and 2 more\)"):
    device.run_graph(graph, (), (), True)


def test_a_device_that_does_nothing_is_given_up(device: QueueDevice, monkeypatch: pytest.MonkeyPatch) -> None:
  memory = filled(device, [1])
  program = affine(device, 1, 1, 1, "endless")
  device.sync()
  hardware(device).stuck = True
  device.launch(program, [(memory, 0)] * 2, [], ONE, ONE, False)
  clock = iter(range(0, 10**9, 10))
  monkeypatch.setattr("tiny_runtime.hcq.timeline.time.monotonic", lambda: float(next(clock)))
  with Context(QUEUE_TIMEOUT=60):
    message = "nothing was finished for 60 seconds: .*QUEUE_TIMEOUT=0 .*. It was kernel endless"
    with pytest.raises(DeviceLost, match=message):
      device.sync()


def test_a_block_knows_its_bytes() -> None:
  device = toy_device()
  block: Block = hardware(device).allocate(PACKET, Kind.HOST)
  assert block.view is not None and block.view.nbytes == block.nbytes == 4096
  device.close()


# *** two devices ***


@pytest.fixture
def pair() -> Iterator[tuple[QueueDevice, QueueDevice]]:
  """Two devices that reach each other."""
  one, two = toy_device(), toy_device()
  assert one.reaches(two) and two.reaches(one)
  yield one, two
  one.close()
  two.close()


def copied(one: QueueDevice, memory: Memory, two: QueueDevice, source: Memory, wait: bool = False) -> float | None:
  return one.copy_from(memory, 0, two, source, 0, source.nbytes, wait)


def test_nobody_waits_for_a_copy_between_devices(pair: tuple[QueueDevice, QueueDevice]) -> None:
  one, two = pair
  add = affine(two, 4, 1, 1)
  memory, source = filled(one, [0] * 4), filled(two, [1, 2, 3, 4])
  pauses = [hardware(device).pauses for device in pair]
  two.launch(add, [(source, 0), (source, 0)], (), ONE, ONE, False)
  copied(one, memory, two, source)
  two.launch(add, [(source, 0), (source, 0)], (), ONE, ONE, False)
  two.free(source)
  assert [hardware(device).pauses for device in pair] == pauses
  assert numbers_in(one, memory) == [2, 3, 4, 5]
  before = [hardware(device).submissions for device in pair]
  again = filled(two, [5] * 4)
  seconds = copied(one, memory, two, again, wait=True)
  assert seconds is not None and seconds > 0 and numbers_in(one, memory) == [5] * 4
  assert hardware(two).submissions == before[1] + 1, (
    "with a host that waits, the source has nothing to do but the write"
  )


def test_devices_without_a_way_do_not_reach_each_other() -> None:
  one, two = toy_device(), toy_device()
  hardware(two).alone = True
  assert not one.reaches(two) and not two.reaches(one) and not hardware(one).guests
  one.close()
  two.close()


def test_memory_that_goes_back_is_shared_no_more(pair: tuple[QueueDevice, QueueDevice]) -> None:
  one, two = pair
  memory, source = filled(one, [0] * 4), filled(two, [1] * 4)
  copied(one, memory, two, source)
  place = (source.block.address, source.block.address + source.block.nbytes)
  assert place in hardware(one).guests
  two.free(source)
  two.pool.trim()
  assert place not in hardware(one).guests and numbers_in(one, memory) == [1] * 4


@pytest.mark.parametrize("lost", [0, 1])
def test_who_waits_for_a_lost_device_is_let_go(pair: tuple[QueueDevice, QueueDevice], lost: int) -> None:
  one, two = pair
  memory, source = filled(one, [0] * 4), filled(two, [1] * 4)
  copied(one, memory, two, source)
  hardware(pair[lost]).broken = "unplugged"
  with pytest.raises(DeviceLost, match="waiting: unplugged. It was a copy"):
    pair[lost].sync()
  other = pair[1 - lost]
  other.sync()
  assert numbers_in(other, filled(other, [7])) == [7]
  with pytest.raises(DeviceLost, match="unplugged"):
    copied(one, memory, two, source)
  other.sync()
