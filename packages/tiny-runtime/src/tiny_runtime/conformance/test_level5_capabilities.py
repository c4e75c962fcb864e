"""Level 5: what the capability record claims. A claim that fails is a failure. Graphs and peers are in the files
beside; types are tried at levels 2 and 3, workgroups at level 3."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from inspect import getattr_static
from math import prod
from types import FrameType
from typing import Any, TypeVar

import pytest

from tiny_runtime.conformance.failure import demand, demand_equal, demand_raises
from tiny_runtime.conformance.kernels import I, Loaded, elementwise, kernel
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.test_level4_order import SIZE, pending
from tiny_runtime.conformance.values import pack
from tiny_runtime.contract import Capabilities
from tiny_runtime.errors import CompileError
from tiny_runtime.plugins.discovery import plugins
from tiny_uop import NativeCode, Ops, UOp, dtypes

METHODS = {
  "host_mapped": ("view",),
  "host_import": ("adopt",),
  "graphs": ("make_graph", "run_graph"),
  "trims": ("trim",),
  "peers": ("reaches", "copy_from"),
  "peer_graphs": ("make_graph", "run_graph", "reaches", "copy_from"),
  "graph_times": ("make_graph", "run_graph", "graph_times"),
  "graph_changes": ("make_graph", "run_graph", "change_graph"),
  "stream": ("enter_stream", "address_of"),
  "recordings": ("launch_recorded",),
}
"""What a device has that makes the claim."""

SUITES = {
  "test_level2_ops": ["dtypes"],
  "test_level2_expressions": ["fused_multiply_add"],
  "test_level3_workgroups": ["local_memory", "max_local_size"],
  "test_level3_accumulate": ["atomics"],
  "test_level5_capabilities": [
    "kernels",
    "threads",
    "host_mapped",
    "host_import",
    "persistent",
    "survives_fork",
    "reentrant",
    "trims",
    "stream",
    "recordings",
    "native",
  ],
  "test_level5_graphs": ["graphs", "peer_graphs", "graph_times", "graph_changes"],
  "test_level5_peers": ["peers"],
}
"""What tries which claims of the record."""

if untried := {field.name for field in fields(Capabilities)}.difference(*SUITES.values()):
  raise RuntimeError(f"capabilities that nothing here tries: {', '.join(sorted(untried))}. Write a suite for each")


def test_dtypes_are_names(target: Target) -> None:
  known = {d.name for d in dtypes.all}
  claimed = target.device.info.capabilities.dtypes
  unknown, needed = claimed - known, {"bool", "int32", "float32"} - claimed
  what = f"Capabilities.dtypes has names that are no types: {sorted(unknown)}"
  demand(not unknown, what, expected=f"some of {sorted(known)}", got=sorted(claimed))
  what = f"Capabilities.dtypes lacks {sorted(needed)}, without which hardly anything runs"
  demand(not needed, what, look_at="tiny-codegen makes types that the hardware lacks of those that it has")


def test_record_is_consistent(target: Target) -> None:
  record, info = target.device.info.capabilities, target.device.info
  look_at = "Capabilities in DeviceInfo"
  demand(record.kernels, "kernels is False: a device that runs none is storage, no backend", look_at=look_at)
  demand(record.max_local_size >= 1, "max_local_size", expected="at least 1", got=record.max_local_size)
  demand(record.local_memory >= 0, "local_memory", expected="0 or more bytes", got=record.local_memory)
  demand(record.threads >= 0, "threads", expected="0 or more", got=record.threads, look_at=look_at)
  what = "threads and local_memory: threads of workgroups are the kernel's, and not counted"
  demand(not (record.threads and record.local_memory), what, got=(record.threads, record.local_memory), look_at=look_at)
  demand(info.memory >= 0, "info.memory", expected="bytes; 0 if not known", got=info.memory)
  both = (record.local_memory > 0) == (record.max_local_size > 1)
  what = "local_memory and max_local_size: a workgroup has both, several threads and memory that they share"
  demand(both, what, got=(record.local_memory, record.max_local_size), look_at=look_at)
  if target.name in plugins():
    what = "info.name is not the name of the entry point, by which users ask for the device"
    demand_equal(info.name, target.name, what)
  if not target.given_arch:
    what = "info.arch is not the arch that probe gave, so kernels would be compiled for another device"
    demand_equal(info.arch, target.arch, what)
  demand_equal(target.device.info, info, "info changes while the device is open")


@pytest.mark.parametrize("claim", METHODS)
def test_what_is_claimed_is_there(target: Target, claim: str) -> None:
  target.needs(claim)
  lacking = [name for name in METHODS[claim] if getattr_static(target.device, name, None) is None]
  what = f"{claim} is claimed, but the device has no {', '.join(lacking)}"
  demand(not lacking, what, look_at="tiny_runtime.contract has the protocol; or take the claim back")


def test_persistent(target: Target) -> None:
  device = target.device
  target.needs("persistent")
  memory = device.alloc(64)
  target.numbers_in(memory, 16)  # which is an error on others
  device.free(memory)


def test_host_mapped(target: Target) -> None:
  device = target.device
  target.needs("host_mapped")
  program = add(target, 1)
  with target.memories([0] * 16, [0] * 16) as (result, source):
    before = device.view(result)  # type: ignore[attr-defined]  # claimed
    view = device.view(source)  # type: ignore[attr-defined]
    demand_equal((view.nbytes, view.format, view.readonly), (64, "B", False), "view: (nbytes, format, readonly)")
    view.cast("i")[:] = memoryview(bytearray(64)).cast("i")
    view[:4] = (41).to_bytes(4, "little")
    look_at = "view is the memory itself, not a copy of it"
    target.demand_numbers(source, [41, *[0] * 15], "what was written through a view", look_at)
    program(result, source)
    device.sync()
    look_at = f"{look_at}; after sync, what launches wrote is there"
    what = "a view taken before a launch does not show what it wrote"
    demand_equal(before.cast("i").tolist(), [42, *[1] * 15], what, look_at=look_at)
    del before, view
  again = target.filled([5])
  target.demand_numbers(again, [5], "memory after views were dropped", "what a view keeps")
  device.free(again)


def test_host_mapped_shows_what_launches_wrote_after_sync(target: Target) -> None:
  """Sync waits for launches that are still on their way: what the host looks at then is what they wrote."""
  target.needs("host_mapped")
  with pending(target) as held:
    view = target.device.view(held[0])  # type: ignore[attr-defined]  # claimed
    target.device.sync()
    got, expected = view.cast("i").tolist(), list(range(64, SIZE + 64))
    look_at = "sync waits for all launches, also where memory of the device is memory of the host"
    demand_equal(got, expected, "what a view shows after launches and sync", look_at=look_at)
    del view


def test_trims(target: Target) -> None:
  """What is in use stays, also by launches that still run, and new memory is as good as the old."""
  target.needs("trims")
  look_at = "trim gives back what no allocation has, once no launch uses it"
  device: Any = target.device
  with pending(target) as held:
    for _ in range(3):
      device.free(target.filled([7] * SIZE))
    device.trim()
    device.trim()
    target.demand_numbers(held[0], list(range(64, SIZE + 64)), "what launches wrote that trim found running", look_at)
    with target.memories([41] * COUNT, [0] * COUNT) as (source, result):
      add(target, 1)(result, source)
      device.trim()
      target.demand_numbers(result, [42] * COUNT, "memory that was allocated after trim", look_at)


def test_recordings(target: Target) -> None:
  """A launch of which the hardware records what waves do comes in its turn, and computes what it computes without."""
  target.needs("recordings")
  device: Any = target.device
  kernel = add(target, 1)
  with target.memories([41] * COUNT, [0] * COUNT, [0] * COUNT) as (source, between, result):
    kernel(between, source)
    call = kernel.call((result, 0), (between, 0))
    given = (call.program, call.buffers, call.integers, call.global_size, call.local_size)
    found = device.launch_recorded(*given)
    kernel(between, result)
    look_at = "launch_recorded is launch with wait, and what has the hardware record it before and behind the kernel"
    target.demand_numbers(result, [43] * COUNT, "what a recorded launch wrote", look_at)
    target.demand_numbers(between, [44] * COUNT, "what a launch behind it wrote", look_at)
    nothing = device.launch_recorded(*given[:3], (0, *call.global_size[1:]), call.local_size)
  what = "a Recording names what ran, and the seconds that it took"
  demand(found.arch == target.device.info.arch and found.kernel == kernel.binary.entry, what, got=found.kernel)
  demand(found.code == kernel.binary.code and 0 < found.seconds < 60, what, got=found.seconds)
  for name, _, begin, parts in found.layout:
    end, size = begin + 8 * prod(parts.values()), len(found.counters)
    demand(end <= size, f"the values of {name} are in `counters`", expected=f"{end} bytes", got=size)
  demand(not nothing.traces and nothing.seconds == 0, "a recorded launch of no workgroups has nothing to tell")


def test_memory_is_aligned(target: Target) -> None:
  """For any access: so for the widest element."""
  device = target.device
  target.needs("host_mapped")  # else nobody sees where memory is
  for size in (1, 3, 8, 100, 1 << 20):
    memory = device.alloc(size)
    view = device.view(memory)  # type: ignore[attr-defined]  # claimed
    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    device.free(memory)
    what = f"alloc({size}) gave memory that elements of 8 bytes cannot be aligned in"
    demand(address % 8 == 0, what, expected="an address that is a multiple of 8", got=hex(address))
    del view


def test_host_import(target: Target) -> None:
  device = target.device
  target.needs("host_import")
  program = add(target, 1)
  own = bytearray(128)
  # at an address that is aligned for an element and for no more
  data, look_at = memoryview(own)[4:68], "adopt gives a handle of the memory itself, not a copy of it"
  data.cast("i")[:] = memoryview(bytearray(64)).cast("i")
  source = device.adopt(data)  # type: ignore[attr-defined]  # claimed
  own[4:8] = (41).to_bytes(4, "little")
  with target.memories([0] * 16) as (result,):
    program(result, source)
    target.demand_numbers(result, [42, *[1] * 15], "what the host wrote to adopted memory before a launch", look_at)
    program(source, result)
    device.sync()
  what = "what a launch wrote to adopted memory"
  demand_equal(data.cast("i").tolist(), [43, *[2] * 15], what, look_at=look_at)
  demand_equal(bytes(own[:4]) + bytes(own[68:]), bytes(64), "what lies around adopted memory")
  device.free(source)
  del source
  data.release()
  try:
    own.append(0)  # a bytearray that someone looks at cannot grow
  except BufferError:
    demand(False, "adopted memory is still held after free", look_at="free drops the memoryview")


def test_stream(target: Target) -> None:
  device = target.device
  target.needs("stream")
  handle = device.enter_stream()  # type: ignore[attr-defined]  # claimed
  what = "enter_stream gives the handle of the one stream that launches are in"
  demand(isinstance(handle, int) and handle > 0, what, expected="an address", got=handle)
  with target.memories([0] * 16, [1] * 16) as (first, second):
    places = [device.address_of(m) for m in (first, second)]  # type: ignore[attr-defined]
    what = f"the addresses {places} of two memories of 64 bytes each"
    demand(abs(places[0] - places[1]) >= 64, what, expected="one after the other, in any order", got=places)
    add(target, 1)(first, second)
    again = [device.address_of(m) for m in (first, second)]  # type: ignore[attr-defined]
    demand_equal(again, places, "the addresses after a launch", look_at="a memory stays where it is")
    target.demand_numbers(first, [2] * 16, "a launch after enter_stream was called", "it changes nothing")
  demand_equal(device.enter_stream(), handle, "the stream after a launch")  # type: ignore[attr-defined]


# *** what comes in between: calls in the middle of calls of the same thread, and forks ***

T = TypeVar("T")
COUNT = 16
EACH = 200
"""So many interruptions of one call at every place; after that at every tenth."""
SECONDS = 60
"""After which a forked child hangs."""


def add(target: Target, number: int) -> Loaded:
  return Loaded(target, elementwise(f"add_{number}", COUNT, I, [I], lambda a: a + number))


class Interrupting:
  """Does something else whenever Python calls something, or returns, in the middle of a call: signal handlers and
  finalisers come at such places."""

  def __init__(self, target: Target) -> None:
    self.target, self.program = target, add(target, 3)
    self.count = 0
    self.errors: list[str] = []

  def __call__(self, call: Callable[[], T]) -> T:
    self.count = 0
    sys.setprofile(self._interrupt)
    try:
      return call()
    finally:
      sys.setprofile(None)

  def _interrupt(self, frame: FrameType, event: str, argument: Any) -> None:
    self.count += 1
    if self.errors or (self.count > EACH and self.count % 10):
      return
    target = self.target
    where = f"in {frame.f_code.co_qualname}, at line {frame.f_lineno} of {frame.f_code.co_filename}"
    try:
      with target.memories([0] * COUNT, [self.count] * COUNT) as (result, source):
        self.program(result, source)
        target.demand_numbers(result, [self.count + 3] * COUNT, "what came in between", "")
    except Exception as error:  # of a device that is wrong, any
      self.errors.append(f"{where}: {type(error).__name__}: {error}")


def test_reentrant(target: Target) -> None:
  device = target.device
  target.needs("reentrant")
  look_at = "what a method notes in the device between its steps; or take the claim `reentrant` back"
  interrupted, one = Interrupting(target), add(target, 1)
  with target.memories() as held:
    for size in (4 * COUNT, 4 * COUNT, 1 << 20):
      memory = interrupted(lambda: device.alloc(size))  # noqa: B023  # called at once
      held.append(memory)
    source, result = held[:2]
    for memory, numbers in ((source, [7] * COUNT), (result, [0] * COUNT)):
      data = memoryview(pack(I, numbers))
      interrupted(lambda: device.write(memory, 0, data))  # noqa: B023
    target.demand_numbers(source, [7] * COUNT, "a write that was interrupted", look_at)
    two = add(target, 2)
    program = interrupted(lambda: device.load(two.binary))
    interrupted(lambda: one(result, source))
    call = two.call((source, 0), (result, 0))
    interrupted(lambda: device.launch(program, call.buffers, [], call.global_size, call.local_size, False))
    interrupted(device.sync)
    got = interrupted(lambda: target.numbers_in(source, COUNT))
    demand_equal(got, [10] * COUNT, "what was interrupted", look_at=look_at)
    target.demand_numbers(result, [8] * COUNT, "what was interrupted", look_at)
    while held:
      interrupted(lambda: device.free(held.pop()))
    held.append(target.filled([5] * COUNT))
    target.demand_numbers(held[0], [5] * COUNT, "memory after that", look_at)
  wrong = interrupted.errors
  demand(not wrong, f"a call in the middle of another one of the same thread failed, {wrong[:1]}", look_at=look_at)


def test_survives_fork(target: Target) -> None:
  target.needs("survives_fork")
  if "fork" not in multiprocessing.get_all_start_methods():
    pytest.skip("this system has no fork")
  program, look_at = add(target, 1), "what is left in a forked child; or take the claim `survives_fork` back"
  with target.memories([0] * COUNT, [41] * COUNT) as (result, source):
    program(result, source)

    def go_on() -> None:
      target.demand_numbers(result, [42] * COUNT, "a result of the parent", look_at)
      program(source, result)
      target.demand_numbers(source, [43] * COUNT, "memory of the parent, after a launch in the child", look_at)
      with target.memories([0] * COUNT) as (new,):
        add(target, 2)(new, source)
        target.demand_numbers(new, [45] * COUNT, "new memory, and a program that was loaded in the child", look_at)
      target.device.sync()

    for _ in range(2):
      said = in_child(go_on)
      demand(not said, f"in a forked child: {said}", look_at=look_at)
      target.demand_numbers(source, [41] * COUNT, "memory of the parent after a child wrote to its own", look_at)
    program(source, result)
    target.demand_numbers(source, [43] * COUNT, "a launch in the parent after forks", look_at)


def in_child(work: Callable[[], None]) -> str:
  """What goes wrong in a forked child that does something; empty if nothing does."""
  context: Any = multiprocessing.get_context("fork")
  reading, writing = context.Pipe(duplex=False)

  def child() -> None:
    said = ""
    try:
      work()
    except BaseException as error:
      said = f"{type(error).__name__}: {error}"
    writing.send(said[:4000])
    os._exit(0)

  process = context.Process(target=child)
  process.start()
  writing.close()
  try:
    return str(reading.recv()) if reading.poll(SECONDS) else f"{SECONDS} seconds are not enough"
  except EOFError:
    return "the child crashed"
  finally:
    process.kill()
    process.join()


# *** programs that come from elsewhere: what the compiler makes of a kernel is one ***

NUMBERS = 100
LOOK_AT = "what the compiler makes of a kernel that is one NATIVE: its program, after a look at form and arch"


def differences() -> UOp:
  """Not the same with its arguments exchanged."""
  return elementwise("differences", NUMBERS, I, [I, I], lambda a, b: a - b * 2)


def program_of(target: Target) -> NativeCode:
  """What the compiler makes of it, by itself."""
  return target.compile(differences()).native(target.device.info.capabilities.native[0], target.arch)


def native(program: NativeCode, *slots: int) -> UOp:
  """A kernel that is a program, over buffers of these slots."""
  buffers = tuple([UOp.param(n, I.ptr(NUMBERS)) for n in slots])
  return kernel(program.entry, UOp(Ops.NATIVE, dtypes.void, buffers, program))


def test_forms_are_names(target: Target) -> None:
  target.needs("native")
  forms = target.device.info.capabilities.native
  demand(len(set(forms)) == len(forms) and all(forms), "native", expected="names, each once", got=forms)


def test_what_a_compiler_made_is_a_program(target: Target) -> None:
  target.needs("native")
  program = program_of(target)
  numbers = [list(range(NUMBERS)), [7 - 3 * n for n in range(NUMBERS)]]
  expected = pack(I, [a - b * 2 for a, b in zip(*numbers)])
  # arguments in the program's order, whatever the slots of the CALL are
  for slots in ((0, 1, 2), (2, 0, 1)):
    contents = [b""] * 3
    for slot, data in zip(slots, (bytes(4 * NUMBERS), *[pack(I, each) for each in numbers])):
      contents[slot] = data
    found = target.run(native(program, *slots), contents)
    demand_equal(found[slots[0]], expected, f"the results of a program over the buffers {slots}", look_at=LOOK_AT)
    loaded = Loaded(target, native(program, *slots))
    demand_equal(loaded.binary.entry, program.entry, "Binary.entry of a program", look_at=LOOK_AT)


def test_the_compiler_is_as_pure_as_with_kernels(target: Target) -> None:
  target.needs("native")
  sink = native(program_of(target), 0, 1, 2)
  again = pickle.loads(pickle.dumps(target.compiler))
  same = target.compile(sink).to_bytes() == again.compile(sink).to_bytes()
  demand(same, "a program compiled twice gave different bytes", look_at=LOOK_AT)


def test_a_program_for_another_device_is_refused(target: Target) -> None:
  """By the compiler, naming what it is for and what it should be for."""
  target.needs("native")
  program = program_of(target)
  for wrong in (replace(program, arch="none99"), replace(program, form="no-such-form")):
    what = f"compile took {wrong.form} for {wrong.arch}, or"
    sink = native(wrong, 0, 1, 2)
    error = demand_raises(CompileError, lambda: target.compiler.compile(sink), what, look_at=LOOK_AT)  # noqa: B023
    named = [name for name in (wrong.form, wrong.arch, program.form) if name in str(error)]
    what = "the CompileError for a program of another device names both"
    demand(len(named) == 3, what, expected=(wrong.form, wrong.arch, program.form), got=str(error), look_at=LOOK_AT)
