"""Copies of the plugin AMD by a DMA engine, on the model: what is in its packets, order, overlap, and mistakes.

The conformance kit (`test_gpu_model_kfd.py`) makes copies of all sizes and places this way, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from gpu_model_devices import filled

from gpu_model.kfd_backend import ModelBackend
from gpu_model.toolchain import compiler
from tiny_runtime import DeviceLost, GraphCopy, GraphKernel, Unavailable
from tiny_runtime.hcq import QueueDevice
from tiny_runtime.hcq.programs import Program
from tiny_runtime_amd import aql, queue, sdma
from tiny_runtime_amd.hardware import LEAST_BY_ENGINE
from tiny_runtime_amd.kfd import KFDError
from tiny_uop import Context, KernelInfo, UOp, dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

N = LEAST_BY_ENGINE // 4
Array = np.ndarray[Any, np.dtype[np.float32]]


@pytest.fixture(params=["gfx942"])
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[ModelBackend, QueueDevice]]:
  backend = ModelBackend(gpu=request.param)
  device = backend.open(0)
  yield backend, device
  device.close()
  assert backend.model.misuse == [] and backend.model.left() == []


def numbers(seed: int = 0, count: int = N) -> Array:
  return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def contents(device: QueueDevice, memory: Any) -> Array:
  out = np.empty(memory.nbytes // 4, np.float32)
  device.read(memory, 0, out.data.cast("B"))
  return out


def doubled(device: QueueDevice, backend: ModelBackend) -> Program:
  """p0[i] = p1[i] * 2."""
  i, p = UOp.range(N, 0), [UOp.param(n, dtypes.float32.ptr(N)) for n in range(2)]
  kernel = UOp.sink(p[0].index(i).store(p[1].index(i).load() * 2).end(i), arg=KernelInfo("doubled"))
  return device.load(backend.compiler(device.info.arch).compile(kernel))


def sizes(program: Program) -> tuple[tuple[int, ...], tuple[int, ...]]:
  """Of a launch: workgroups, and threads of each."""
  return program.binary.sizes({})[:2]


def launch(device: QueueDevice, program: Program, *memories: Any) -> None:
  device.launch(program, [(memory, 0) for memory in memories], (), *sizes(program), False)


def engine_first(backend: ModelBackend) -> int:
  """Let the engines do what they need not wait for; how many copies they make."""
  model = backend.model
  before = len(model.processor.engine.log)
  for each in [each for each in model.queues.values() if each.copies]:
    model.processor._take_some(each)
  return len(model.processor.engine.log) - before


@pytest.mark.parametrize("opened", ["gfx942", "gfx1100"], indirect=True)
def test_large_copies_are_the_engines(opened: tuple[ModelBackend, QueueDevice]) -> None:
  """In packets as large as its count allows: 4 MiB on SDMA 4, 1 GiB on SDMA 6."""
  backend, device = opened
  log = backend.model.processor.engine.log
  for nbytes, place in ((LEAST_BY_ENGINE - 1, 0), (LEAST_BY_ENGINE, 3), ((5 << 20) + 5, 1)):
    one, two = device.alloc(nbytes + place + 9), device.alloc(nbytes + place + 9)
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    device.write(one, 0, memoryview(bytes(one.nbytes)))
    device.write(two, 0, memoryview(bytes(one.nbytes)))
    device.write(one, place, data.data)
    device.sync()
    log.clear()
    device.copy_from(two, place, device, one, place, nbytes, False)
    device.sync()
    old = backend.model.chip == "gfx942"
    sizes = [] if nbytes < LEAST_BY_ENGINE else [1 << 22, (1 << 20) + 5] if nbytes > 1 << 22 and old else [nbytes]
    assert [size for _, _, size in log] == sizes
    out = np.zeros(two.nbytes, np.uint8)
    device.read(two, 0, out.data)
    np.testing.assert_array_equal(out, np.concatenate([np.zeros(place, np.uint8), data, np.zeros(9, np.uint8)]))


def test_what_nobody_uses_is_written_beside_kernels(opened: tuple[ModelBackend, QueueDevice]) -> None:
  """Memory that a kernel under way uses, or may use since it was freed, is written after it."""
  backend, device = opened
  program = doubled(device, backend)
  of, to, other = (filled(device, numbers(n)) for n in range(3))
  device.sync()
  expected = 2 * numbers(0)
  for memory, copies in ((other, 1), (of, 0), (to, 0)):
    device.sync()
    launch(device, program, to, of)
    device.write(memory, 0, numbers(7).data.cast("B"))
    assert engine_first(backend) == copies, "before any packet of the other queue"
    device.sync()
    np.testing.assert_array_equal(contents(device, to), numbers(7) if memory is to else expected)
    device.write(of, 0, numbers(0).data.cast("B"))
  np.testing.assert_array_equal(contents(device, other), numbers(7))
  launch(device, program, to, of)
  address = of.address
  device.free(of)
  again = device.alloc(4 * N)
  assert again.address == address
  device.write(again, 0, numbers(9).data.cast("B"))
  assert engine_first(backend) == 0
  np.testing.assert_array_equal(contents(device, to), expected)


def test_kernels_wait_for_what_was_written_beside_others(opened: tuple[ModelBackend, QueueDevice]) -> None:
  """The queue takes nothing behind the copy before that is done."""
  backend, device = opened
  program = doubled(device, backend)
  of, to, other = (filled(device, numbers(n)) for n in range(3))
  device.sync()
  launch(device, program, to, of)
  device.write(other, 0, numbers(7).data.cast("B"))
  launch(device, program, to, other)
  (packets,) = [each for each in backend.model.queues.values() if not each.copies]
  before = len(backend.model.processor.launched)
  backend.model.processor._take_some(packets)
  assert len(backend.model.processor.launched) - before == 1
  np.testing.assert_array_equal(contents(device, to), 2 * numbers(7))


def test_memory_of_a_graph_is_not_written_while_it_runs(opened: tuple[ModelBackend, QueueDevice]) -> None:
  backend, device = opened
  program = doubled(device, backend)
  memories = [filled(device, numbers(n)) for n in range(4)]
  of, to, other, more = memories
  calls: list[GraphKernel | GraphCopy] = [
    GraphKernel(program, ((1, 0), (0, 0)), (), *sizes(program)), GraphCopy((2, 0), (1, 0), 4 * N),
    GraphKernel(program, ((1, 0), (2, 0)), (), *sizes(program)),
  ]  # fmt: skip
  graph = device.make_graph(calls, [of, to, other])
  for memory in (of, to, other, more):
    device.sync()
    device.run_graph(graph, (), (), False)
    device.write(memory, 0, numbers(0).data.cast("B"))
    assert engine_first(backend) == (memory is more)
    np.testing.assert_array_equal(contents(device, to), numbers(0) if memory is to else 4 * numbers(0))
  device.run_graph(graph, (), (), False)
  device.run_graph(graph, [(0, more)], (), False)
  device.write(of, 0, numbers(5).data.cast("B"))
  assert engine_first(backend) == 0, "the run before the change uses it"
  seconds = device.run_graph(graph, (), (), True)
  times = device.graph_times(graph)
  assert seconds is not None and all(0 <= begin <= end <= seconds for begin, end in times)
  assert times[0][1] <= times[1][0] < times[1][1] <= times[2][0]
  assert (device.copy_from(of, 0, device, to, 0, 4 * N, True) or 0) > 0
  np.testing.assert_array_equal(contents(device, of), 4 * numbers(0))


def test_rings_and_signals_are_used_again(
  opened: tuple[ModelBackend, QueueDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
  """The end of the ring is padded; a graph has more copies than there are signals, and room."""
  backend, _ = opened
  for module, name, value in ((sdma, "RING", 2048), (queue, "FENCES", 6), (queue, "TOGETHER", 3)):
    monkeypatch.setattr(module, name, value)
  device = backend.open(0)
  parts = [filled(device, numbers(n)) for n in range(3)]
  for n in range(40):
    device.write(parts[n % 3], 0, numbers(n).data.cast("B"))
  for part, n in zip(parts, (39, 37, 38)):
    np.testing.assert_array_equal(contents(device, part), numbers(n))
  graph = device.make_graph([GraphCopy((n + 1 & 1, 0), (n & 1, 0), 4 * N) for n in range(50)], parts[:2])
  for _ in range(3):
    device.run_graph(graph, (), (), False)
  np.testing.assert_array_equal(contents(device, parts[1]), numbers(39))
  device.close()


@pytest.mark.parametrize("engines", [0, 1])
def test_without_engines_kernels_copy(engines: int) -> None:
  backend = ModelBackend(engines=engines)
  device = backend.open(0)
  memory = filled(device, numbers())
  np.testing.assert_array_equal(contents(device, memory), numbers())
  device.close()
  assert bool(backend.model.processor.engine.log) == bool(engines)
  assert backend.model.misuse == [] and backend.model.left() == []


# *** what the model refuses ***


def changed(name: str, change: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
  """A function of `sdma` gives what `change` makes of its arguments and its result."""

  def apply(patch: pytest.MonkeyPatch) -> None:
    made = getattr(sdma, name)
    patch.setattr(sdma, name, lambda *given: change(made(*given), *given))

  return apply


def word(index: int, value: Callable[[int], int]) -> Callable[..., list[int]]:
  """Another value of a word of a packet."""
  return lambda packet, *_: [value(w) if n == index else w for n, w in enumerate(packet)]


def first_word(index: int, value: Callable[[int], int]) -> Callable[..., list[list[int]]]:
  return lambda packets, *_: [word(index, value)(packets[0]), *packets[1:]]


def in_words(patch: pytest.MonkeyPatch) -> None:
  def tell(self: sdma.SDMAQueue) -> None:
    self.places[sdma.WRITTEN // 8] = self.doorbell[0] = self.written

  patch.setattr(sdma.SDMAQueue, "_tell", tell)


def without_padding(patch: pytest.MonkeyPatch) -> None:
  def put(self: sdma.SDMAQueue, packets: list[list[int]]) -> None:
    for one in (w for packet in packets for w in packet):
      self._write([one])
    self._tell()

  patch.setattr(sdma, "RING", 1024)
  patch.setattr(sdma.SDMAQueue, "put", put)


def not_from_others(patch: pytest.MonkeyPatch) -> None:
  made = aql.barrier
  hidden = lambda first, signal, depends=0: made(first & ~aql.ACQUIRES | aql.AGENT << 9, signal, depends)  # noqa: E731
  patch.setattr(aql, "barrier", hidden)


def not_for_others(patch: pytest.MonkeyPatch) -> None:
  made = aql.barrier
  hidden = lambda first, signal, depends=0: made(first & ~aql.RELEASES | aql.AGENT << 11, signal, depends)  # noqa: E731
  patch.setattr(aql, "barrier", hidden)


MISTAKES: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
  "a copy of another kind": (changed("copies", first_word(0, lambda w: w | 4 << 8)), "a copy of another kind"),
  "a count too large": (changed("copies", first_word(1, lambda w: w | 1 << 22)), "a copy of .* bytes, or with"),
  "bytes exchanged": (changed("copies", first_word(2, lambda w: 1 << 16)), "bytes exchanged"),
  "not mapped": (changed("copies", first_word(4, lambda w: w ^ 1)), "are in no buffer"),
  "packets for larger counts": (changed("most_bytes", lambda *_: 1 << 30), "a copy of 5242880 bytes"),
  "another fence": (changed("fence", word(0, lambda w: w | 3 << 16)), "a fence that goes another way"),
  "a fence between words": (changed("fence", word(1, lambda w: w + 2)), "is no multiple of 4"),
  "a register is polled": (changed("poll", word(0, lambda w: w & ~sdma.MEMORY)), "looks at a register"),
  "more is equal enough": (changed("poll", word(0, lambda w: w | 7 << 28)), "something else than equality"),
  "it looks for a while": (changed("poll", word(5, lambda w: w & 0xFFFF)), "looks for a while only"),
  "pointers in words": (in_words, "an engine's doorbell was rung for|of which .* are written"),
  "packets over the end": (without_padding, "goes over the end of the ring"),
  "what the engine wrote is not seen": (not_from_others, "would not be seen|does not see what the host wrote"),
  "what kernels wrote is not shown": (not_for_others, "who waits for the signal would not see"),
  "times between words": (changed("timestamp", word(1, lambda w: w + 8)), "is no multiple of 32"),
  "times of another clock": (changed("timestamp", word(0, lambda w: w & 255)), "a time of another clock"),
}


def copy_some(backend: ModelBackend, device: QueueDevice) -> None:
  one, two = filled(device, numbers(0, 5 << 18)), filled(device, numbers(1, 5 << 18))
  for n in range(80):
    device.write(two, 4 * n, numbers(n).data.cast("B"))
  device.copy_from(two, 0, device, one, 0, one.nbytes, True)
  np.testing.assert_array_equal(contents(device, two), numbers(0, 5 << 18))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_refused(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
  backend = ModelBackend()
  apply, expected = MISTAKES[mistake]
  apply(monkeypatch)
  with Context(QUEUE_TIMEOUT=1), pytest.raises((DeviceLost, Unavailable, KFDError)):
    device = backend.open(0)
    copy_some(backend, device)
  assert any(re.search(expected, text) for text in backend.model.misuse), backend.model.misuse


WRONG: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
  "the other way": changed("copies", lambda packets, *_: [[*p[:3], *p[5:], *p[3:5]] for p in packets]),
  "a byte less": changed("copies", first_word(1, lambda w: w - 1)),
  "the first packet only": changed("copies", lambda packets, *_: packets[:1]),
  "nothing is waited for": changed("poll", lambda *_: [sdma.NOP]),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_show(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
  backend = ModelBackend()
  device = backend.open(0)
  program = doubled(device, backend)
  of, to, one, two = (filled(device, numbers(n, (4 << 18) + N)) for n in range(4))
  device.sync()
  WRONG[mistake](monkeypatch)
  launch(device, program, to, of)
  device.copy_from(two, 0, device, to, 0, two.nbytes, False)
  engine_first(backend)
  device.sync()
  monkeypatch.undo()
  expected = np.concatenate([2 * numbers(0, (4 << 18) + N)[:N], numbers(1, (4 << 18) + N)[N:]])
  assert not np.array_equal(contents(device, two), expected)
  device.close()


def test_who_does_not_ring_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
  backend = ModelBackend()
  device = backend.open(0)
  monkeypatch.setattr(sdma.SDMAQueue, "_tell", lambda self: None)
  with Context(QUEUE_TIMEOUT=1), pytest.raises(DeviceLost, match="nothing was finished for 1"):
    contents(device, filled(device, numbers()))
  device.close()
