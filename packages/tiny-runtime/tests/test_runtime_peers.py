"""Copies between devices: directly where one reaches the other, else by way of the host; what is counted and said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tiny_runtime import CapturedGraph, Device, DeviceLost, GlobalCounters, buffer_of, capture, run
from tiny_runtime.conformance.only_contract import only_contract
from tiny_uop import Context, Ops, UOp, dtypes

PEERS = """
from dataclasses import replace
from tiny_runtime import DeviceLost, GraphCopy
from tiny_runtime.ref import RefDevice
from tiny_runtime.ref.backend import RefBackend

class Device(RefDevice):
  # REF with graphs of several devices, which it runs call by call. `calls`: what came to it

  def __init__(self, number):
    super().__init__()
    record = replace(self.info.capabilities, graphs=True, peer_graphs=number < 3, host_mapped=False, peers=number != 5)
    self.info = replace(self.info, name=f"PEER:{number}", capabilities=record)
    self.number, self.calls, self.lost = number, [], False

  def reaches(self, source):
    self.calls.append(("reaches", source.number))
    return (self.number < 4) == (source.number < 4)  # two groups

  def copy_from(self, memory, offset, source, source_memory, source_offset, nbytes, wait):
    self.calls.append(("copy_from", source.number, nbytes, wait))
    if self.lost or source.lost: raise DeviceLost("the bus was unplugged")
    return super().copy_from(memory, offset, source, source_memory, source_offset, nbytes, wait)

  def read(self, *arguments):
    self.calls.append(("read",))
    super().read(*arguments)

  def sync(self):
    if self.lost: raise DeviceLost("unplugged")

  def make_graph(self, calls, memories):
    return list(calls), list(memories)

  def run_graph(self, graph, memories, kernels, wait):
    calls, mine = graph
    for position, memory in memories: mine[position] = memory
    for index, kernel in kernels: calls[index] = kernel
    self.calls.append(("run_graph", len(calls)))
    if self.lost: raise DeviceLost("unplugged")
    for call in calls:
      if isinstance(call, GraphCopy):
        (to, start), (of, begin) = call.target, call.source
        RefDevice.copy_from(self, mine[to], start, self, mine[of], begin, call.nbytes, False)
      else:
        buffers = [(mine[position], offset) for position, offset in call.buffers]
        self.launch(call.program, buffers, call.integers, call.global_size, call.local_size, False)

class Backend(RefBackend):
  api = (1, 4)
  opened = {}

  def open(self, index):
    self.opened[index] = Device(index)
    return self.opened[index]

class Old(RefBackend):
  api = (1, 3)

  def open(self, index):
    device = RefDevice()
    device.info = replace(device.info, capabilities=replace(device.info.capabilities, peers=False))
    return device

BACKEND, OLD = Backend(), Old()
"""


@pytest.fixture
def devices(make_plugin: Callable[..., Path]) -> Iterator[dict[int, Any]]:
  """The devices PEER and PEER:1 to PEER:7, by number; 0 to 3 reach each other, so do 4, 6 and 7."""
  make_plugin("tiny-runtime-peers", "PEER", PEERS)
  for n in range(8):
    Device.opened(f"PEER:{n}")
  module: ModuleType = __import__("tiny_runtime_peers")
  yield module.BACKEND.opened


def copied(kernels_on: Any, target: str, source: str, numbers: list[float]) -> list[float]:
  """What a copy from one device to another leaves there."""
  here, there = kernels_on(target), kernels_on(source)
  x, y = there.buffer(numbers), here.buffer(size=len(numbers))
  GlobalCounters.reset()
  run(here.linear(here.copy(y, x)))
  values: list[float] = here.values(y)
  return values


@pytest.mark.parametrize(
  ("target", "source", "direct"),
  [("PEER:1", "PEER", True), ("PEER:6", "PEER:4", True), ("PEER:4", "PEER", False), ("PEER:4", "PEER:5", False),
   ("PEER", "REF", False), ("REF:1", "REF", True)],
)  # fmt: skip
def test_copies_go_directly_where_they_can(
  kernels_on: Any, devices: dict[int, Any], target: str, source: str, direct: bool
) -> None:
  assert copied(kernels_on, target, source, [1.0, 2.0, 3.0]) == [1.0, 2.0, 3.0]
  assert (GlobalCounters.peer_bytes, GlobalCounters.host_bytes) == ((12, 0) if direct else (0, 12))
  assert (GlobalCounters.kernel_count, GlobalCounters.global_mem) == (1, 24)
  assert f"peer_bytes={12 * direct}, host_bytes={12 * (not direct)}" in repr(GlobalCounters)


def test_who_reaches_whom_is_asked_once(kernels_on: Any, devices: dict[int, Any]) -> None:
  for _ in range(3):
    assert copied(kernels_on, "PEER:1", "PEER", [1.0]) == [1.0]
  assert devices[1].calls == [("reaches", 0), *([("copy_from", 0, 4, False), ("read",)] * 3)]
  Device._opened.pop("PEER").close()
  assert copied(kernels_on, "PEER:1", "PEER", [2.0]) == [2.0]
  assert devices[1].calls[-3:] == [("reaches", 0), ("copy_from", 0, 4, False), ("read",)]  # another one now


def test_a_copy_within_a_device_is_its_own(kernels_on: Any, devices: dict[int, Any]) -> None:
  GlobalCounters.reset()
  on = kernels_on("PEER")
  x = on.buffer([1.0, 2.0, 3.0, 4.0])
  to, of = (UOp(Ops.BUFFER_VIEW, dtypes.float32, (x,), (offset, 3)) for offset in (4, 0))
  run(on.linear(on.copy(to, of)))
  assert on.values(x) == [1.0, 1.0, 2.0, 3.0]
  assert devices[0].calls == [("copy_from", 0, 12, False), ("read",)]
  assert GlobalCounters.peer_bytes == GlobalCounters.host_bytes == 0


def test_a_plugin_of_before_goes_by_the_host(kernels_on: Any, make_plugin: Callable[..., Path]) -> None:
  make_plugin("tiny-runtime-peers", "OLD", PEERS, attribute="OLD")
  assert copied(kernels_on, "OLD:1", "OLD", [5.0]) == [5.0] and GlobalCounters.host_bytes == 4


def test_debug_says_which_way(kernels_on: Any, devices: dict[int, Any], capsys: pytest.CaptureFixture[str]) -> None:
  with Context(DEBUG=2):
    copied(kernels_on, "PEER:1", "PEER:2", [1.0] * 500)
    copied(kernels_on, "PEER:1", "PEER:4", [1.0] * 500)
    copied(kernels_on, "PEER:1", "PEER:1", [1.0] * 500)
    copied(kernels_on, "PEER:1", "HOST", [1.0] * 500)
  lines = [line for line in capsys.readouterr().err.splitlines() if "copy" in line]
  words = [("copy 2 kB from PEER:2, peer ", "GB/s"), ("copy 2 kB from PEER:4, by host ", "GB/s")]
  words += [("copy 2 kB from PEER:1  ", "GB/s"), ("copy 2 kB from HOST  ", "GB/s")]
  assert [all(word in line for word in said) for said, line in zip(words, lines, strict=True)] == [True] * 4
  assert devices[1].calls.count(("copy_from", 2, 2000, True)) == 1, "it is waited for, to know its time"


@pytest.mark.parametrize("lost", [0, 1])
def test_which_of_two_was_lost(kernels_on: Any, devices: dict[int, Any], lost: int) -> None:
  one, two = kernels_on("PEER"), kernels_on("PEER:1")
  x, y = one.buffer([1.0]), two.buffer([0.0])
  devices[lost].lost = True
  with pytest.raises(DeviceLost, match="copying 4 bytes from PEER to PEER:1: unplugged"):
    run(two.linear(two.copy(y, x)))
  kept, gone = ((two, y), x) if lost == 0 else ((one, x), y)
  assert kept[0].values(kept[1]) == [0.0 if lost == 0 else 1.0]
  with pytest.raises(DeviceLost, match="gone"):
    buffer_of(gone).read()
  assert copied(kernels_on, "PEER:1", "PEER", [3.0]) == [3.0], "it was opened again"


def step(kernels_on: Any, names: list[str]) -> tuple[CapturedGraph, UOp, Any]:
  """x + 1 on the first device, doubled on each of the next ones, and back."""
  sides = [kernels_on(name) for name in names]
  x, calls = sides[0].buffer([1.0, 2.0]), []
  value = x
  for here, before in zip((*sides, sides[0]), (sides[0], *sides)):
    there, made = here.buffer(size=2), here.buffer(size=2)
    if before is not here:
      calls.append(here.copy(there, value))
      value = there
    calls.append(here.add(made, value))
    value = made
  linear = sides[0].linear(*calls)
  with capture() as captured:
    run(linear)
  return CapturedGraph(captured, [x], [value]), x, sides[0]


@pytest.mark.parametrize(
  ("names", "pieces"),
  [
    (["PEER", "PEER:1", "PEER:2"], [7]),  # a graph may be of several devices
    (["PEER:3", "PEER:2"], [1, 1, 1, 1, 1]),  # one does not claim it
    (["PEER", "PEER:1", "PEER:4", "PEER:2"], [3, 1, 1, 1, 3]),  # no way between
    (["PEER", "REF"], [1, 3, 1]),
  ],
)
def test_a_graph_is_cut_where_devices_share_none(
  kernels_on: Any, devices: dict[int, Any], names: list[str], pieces: list[int]
) -> None:
  graph, _, on = step(kernels_on, names)
  count = len(names) + 1
  for number in (5.0, 7.0):
    (out,) = graph.replay([on.buffer([number, number])])
    assert on.values(out) == [number + count, number + count]
  assert [len(piece.launches) for piece in graph._pieces] == pieces
  GlobalCounters.reset()
  graph.replay([on.buffer([1.0, 1.0])])
  assert GlobalCounters.kernel_count == sum(pieces)
  assert GlobalCounters.peer_bytes + GlobalCounters.host_bytes == 8 * len(names)


def test_a_graph_of_several_devices_is_one_call(kernels_on: Any, devices: dict[int, Any]) -> None:
  graph, _, on = step(kernels_on, ["PEER", "PEER:1", "PEER:2"])
  for device in devices.values():
    device.calls.clear()
  inputs = [on.buffer([n, n]) for n in (1.0, 2.0)]
  for x in inputs:
    graph.replay([x])
  assert devices[0].calls == [("run_graph", 7)] * 2
  assert not any(devices[n].calls for n in (1, 2))


def test_a_lost_device_of_a_graph_is_named(kernels_on: Any, devices: dict[int, Any]) -> None:
  graph, x, on = step(kernels_on, ["PEER", "PEER:1"])
  graph.replay([x])
  devices[0].lost = True
  with pytest.raises(DeviceLost, match="a captured graph on PEER and PEER:1: unplugged"):
    graph.replay([x])
  assert Device.opened("PEER:1").lost == "" and "PEER" not in Device.open_names()


def test_nothing_but_the_contract_is_used(kernels_on: Any, devices: dict[int, Any]) -> None:
  with only_contract():
    assert copied(kernels_on, "PEER:1", "PEER", [4.0]) == [4.0] and GlobalCounters.peer_bytes == 4
    graph, _, on = step(kernels_on, ["PEER", "PEER:1"])
    assert on.values(graph.replay([on.buffer([5.0, 6.0])])[0]) == [8.0, 9.0]


def test_copies_in_opposite_directions_at_once(kernels_on: Any, devices: dict[int, Any]) -> None:
  one, two = kernels_on("PEER"), kernels_on("PEER:1")
  wrong: list[object] = []

  def work(here: Any, there: Any, value: float) -> None:
    try:
      for _ in range(50):
        x, y = there.buffer([value] * 4), here.buffer(size=4)
        run(here.linear(here.copy(y, x)))
        if here.values(y) != [value] * 4:
          wrong.append(value)
    except BaseException as error:
      wrong.append(error)

  ways = [(one, two, 1.0), (two, one, 2.0)] * 3
  threads = [threading.Thread(target=work, args=way) for way in ways]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(60)
  assert wrong == [] and not any(thread.is_alive() for thread in threads)
