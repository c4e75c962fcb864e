"""Level 4: running out of memory, threads, leaks, opening and closing. The order of launches is in the file beside."""

from __future__ import annotations

import gc
import sys
import sysconfig
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tiny_runtime import system
from tiny_runtime.conformance.failure import Misbehaved, demand, demand_raises, demand_seconds
from tiny_runtime.conformance.kernels import Loaded, elementwise
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.test_level0_package import compile_in_threads
from tiny_runtime.errors import OutOfMemory, Unavailable
from tiny_uop import UOp, dtypes

I = dtypes.int32  # noqa: E741
ROUNDS = 12
"""An eighth of the memory each: one and a half times all of it."""
LEAK = 100
"""Bytes that one round of alloc, load, launch and free may leave in Python's memory, on average."""
KEEPS_CODE = sys.version_info[:2] == (3, 13) and bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
"""Whether the interpreter frees no code object once there has been a second thread (its documentation of free
threading, "Immortalization")."""


def add(amount: int, size: int = 64) -> UOp:
  return elementwise(f"add_{amount}", size, I, [I], lambda a: a + amount)


def works(target: Target, after: str) -> None:
  """One small kernel."""
  with target.memories([0] * 64, range(64)) as (out, source):
    Loaded(target, add(1))(out, source, wait=True)
    look_at = "what was just done has left the device in another state than before"
    target.demand_numbers(out, range(1, 65), f"after {after}, a small kernel gave wrong results", look_at, add(1))


def piece(target: Target) -> int:
  """An eighth of the device's memory."""
  return target.device.info.memory // 8 or 64 << 20


@pytest.mark.parametrize("times", (2, 1 << 20))
def test_out_of_memory_then_continue(target: Target, times: int) -> None:
  nbytes = min(times * (target.device.info.memory or 1 << 42), 1 << 62)
  look_at = "alloc raises OutOfMemory, from tiny_runtime, where there is no room, and the device stays as it was"
  what = f"alloc({nbytes}), where info.memory is {target.device.info.memory},"
  demand_raises(OutOfMemory, lambda: target.device.alloc(nbytes), what, look_at=look_at)
  works(target, "running out of memory")


def test_memory_can_be_filled_again_and_again(target: Target) -> None:
  """More than the device's memory in all; a device that does not get freed memory back runs out."""
  size, done = piece(target), 0
  try:
    while done < ROUNDS:
      target.device.free(target.device.alloc(size))
      done += 1
  except OutOfMemory as error:
    what = f"memory leaks: after {size} bytes were allocated and freed {done} times, there is no room for them"
    expected = f"room each time: info.memory is {target.device.info.memory}"
    look_at = "free gives the memory back to the driver, or to whoever counts what is left"
    raise Misbehaved(what, expected=expected, look_at=look_at) from error
  held = [target.device.alloc(size // 4) for _ in range(4)]
  for memory in held:
    target.device.free(memory)
  works(target, "filling the memory again and again")


def test_many_small_allocations(target: Target) -> None:
  for _ in range(3):
    held = [target.device.alloc(1 + 97 * k) for k in range(500)]
    for memory in held:
      target.device.free(memory)
  works(target, "1500 small allocations")


A_LOT = {"bytes of memory": 4 << 20, "bytes of malloc": 1 << 20, "files": 40, "threads": 40}
"""More than devices keep: rings for arguments, commands and bytes on their way, of which these cases use little."""
SECONDS = 10.0
"""After which a slow device is left alone, if what it leaves is not A_LOT by then."""


class Footprint:
  """What a process holds: bytes of memory, those that `malloc` gave out, open files, threads; each None where this
  system does not say. Memory alone hides leaks in what was freed and is kept by the process: there is much of that
  behind the cases of large buffers."""

  def __init__(self) -> None:
    gc.collect()
    ask = (system.resident_bytes, system.allocated_bytes, system.open_files, system.thread_count)
    self.counts = {what: each() for what, each in zip(A_LOT, ask)}

  def more_than(self, before: Footprint, most: dict[str, int]) -> dict[str, int]:
    """What there is more of than `most` since then."""
    found = {}
    for what, now in self.counts.items():
      then = before.counts[what]
      if now is not None and then is not None and now - then > most[what]:
        found[what] = now - then
    return found


def demand_nothing_left(
  action: Callable[[], object], count: int, most: int, each: int, what: str, look_at: str
) -> None:
  """Raise Misbehaved where rounds of `count` actions leave more than `each` bytes an action, a quarter of that of
  `malloc`, or a file or a thread for every second one, all of them, until that is more than A_LOT.

  One round that leaves less ends it: what is kept once, or now and then, is no leak; nor is a ring of memory that is
  touched for the first time. So do `most` actions, or SECONDS.
  """
  for _ in range(count):
    action()
  first = before = Footprint()
  growing, rounds, end = set(A_LOT), 0, time.monotonic() + SECONDS
  while growing and rounds * count < most and time.monotonic() < end:
    for _ in range(count):
      action()
    rounds, now = rounds + 1, Footprint()
    most_left = {"bytes of memory": count * each, "bytes of malloc": count * each // 4}
    growing &= now.more_than(before, most_left | dict.fromkeys(("files", "threads"), count // 2)).keys()
    left = {kind: number for kind, number in now.more_than(first, A_LOT).items() if kind in growing}
    told = f"{what}: {rounds * count} times leave {', '.join(f'{number} {kind}' for kind, number in left.items())}"
    demand(not left or rounds < 3, told, expected="no more the longer a program runs", look_at=look_at)
    before = now


def test_launches_leave_nothing(target: Target) -> None:
  """In the process's memory, in which drivers are too: arguments, events, commands that are done."""
  loaded = Loaded(target, add(7))
  with target.memories([0] * 64, range(64)) as (out, source):

    def some() -> None:
      for _ in range(20):
        loaded(out, source)
      target.device.sync()

    look_at = "what a launch gets from the driver: events, commands, arguments; they are given back when it is done"
    demand_nothing_left(some, 40, 2000, 20 * 128, "20 launches and sync", look_at)
    look_at += "; timers"
    demand_nothing_left(lambda: loaded(out, source, wait=True), 200, 20_000, 256, "a launch with wait=True", look_at)


def test_programs_leave_nothing(target: Target) -> None:
  """One that nobody holds any more is unloaded: its pages and files with it."""
  kernel, binary = add(7), target.compile(add(7))
  with target.memories([0] * 64, range(64)) as (out, source):

    def once() -> None:
      Loaded(target, kernel, binary)(out, source, wait=True)

    look_at = "what load makes is released when the program is dropped (weakref.finalize): mappings, modules, files"
    demand_nothing_left(once, 50, 3000, 1024, "load, launch, and dropping the program", look_at)


def test_memories_leave_nothing(target: Target) -> None:
  device, data, out = target.device, bytes(8), bytearray(8)

  def round_trip() -> None:
    memory = device.alloc(1000)
    device.write(memory, 0, memoryview(data))
    device.read(memory, 0, memoryview(out))
    device.free(memory)

  look_at = "what alloc, write and read get besides the memory: staging buffers, mappings, events"
  demand_nothing_left(round_trip, 200, 12_000, 256, "alloc, write, read and free", look_at)


def test_devices_leave_nothing(target: Target) -> None:
  """One that is closed leaves no memory, no file and no thread behind."""

  def once() -> None:
    other = target.again()
    device = other.device
    memory = device.alloc(100)
    device.write(memory, 0, memoryview(bytes(100)))
    device.close()

  look_at = "close gives everything back: contexts, queues, files of the driver, threads"
  demand_nothing_left(once, 10, 200, 1 << 14, "open, use and close", look_at)


def test_programs_are_told_apart(target: Target) -> None:
  """Two kernels may have one name, and one place in memory one after the other."""
  kernels = [elementwise("same", 64, I, [I], lambda a, n=n: a + n) for n in range(10, 30)]
  binaries = [target.compile(kernel) for kernel in kernels]
  with target.memories([0] * 64, range(64)) as (out, source):
    for amount, same, binary in zip(range(10, 30), kernels, binaries):
      Loaded(target, same, replace(binary))(out, source)  # a copy, which lies where the one before it did
      look_at = "load makes a program of each binary: it keeps none by name, size or address (id) of another"
      target.demand_numbers(out, range(amount, amount + 64), f"the kernel `same` that adds {amount}", look_at, same)


@pytest.mark.skipif(KEEPS_CODE, reason="without the GIL, Python 3.13 frees no code, as of kernels that are Python")
def test_nothing_is_kept(target: Target) -> None:
  """Python objects, that is: lists of all launches, programs or memories that nobody takes anything off."""
  binary = target.compile(add(7))

  def rounds(count: int) -> int:
    for _ in range(count):
      with target.memories([0] * 64, range(64)) as (out, source):
        Loaded(target, add(7), binary)(out, source, wait=True)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]

  tracemalloc.start()
  try:
    rounds(20)
    level, grown = rounds(50), 50 * LEAK
    for _ in range(6):
      if grown < 50 * LEAK:
        break  # what is kept once, or now and then, is no leak
      before, level = level, rounds(50)
      grown = level - before
  finally:
    tracemalloc.stop()
  what = f"something is kept: every 50 rounds of load, alloc, launch and free leave {grown} bytes of Python's memory"
  expected = f"at most {LEAK} bytes a round, and no more the longer a program runs"
  look_at = "lists and dicts of launches, programs or memories in the device, and caches without a limit"
  demand(grown < 50 * LEAK, what, expected=expected, look_at=look_at)


def test_many_programs(target: Target) -> None:
  binary = target.compile(add(3))
  for _ in range(200):
    target.device.load(binary)
  gc.collect()
  with target.memories([0] * 64, range(64)) as (out, source):
    loaded = [Loaded(target, add(k)) for k in range(20)]
    for k, program in enumerate(loaded):
      program(out, source)
      look_at = "programs are told apart by what load returned, not by name; one is dropped only when nobody holds it"
      target.demand_numbers(out, range(k, k + 64), f"with 20 programs loaded, number {k}", look_at, program.kernel)


def test_calls_from_several_threads(target: Target) -> None:
  """One at a time, as the contract says, but each from another thread."""
  lock, begun = threading.Lock(), threading.Barrier(8)

  def work() -> None:
    begun.wait()  # so that each call has a thread of its own
    for _ in range(5):
      with lock:
        works(target, "calls from other threads")

  with ThreadPoolExecutor(8) as pool:
    errors = [error for call in [pool.submit(work) for _ in range(8)] if (error := call.exception())]
  if errors:
    look_at = "what belongs to the thread that opened the device: a driver's current context, thread-local state"
    raise Misbehaved(f"a thread failed that had not opened the device: {errors[0]}", look_at=look_at) from errors[0]


def test_compiling_in_several_threads(target: Target) -> None:
  compile_in_threads(target, [add(k) for k in range(16)], 8)


def test_open_close_and_open_again(target: Target) -> None:
  for _ in range(3):
    other = target.again()
    works(other, "opening the device again")
    other.device.close()
    other.device.close()
  works(target, "closing another instance of the device")


def test_close_gives_memory_back(target: Target) -> None:
  """That nobody has freed."""
  device: Any = target.device
  if target.device.info.capabilities.trims:
    device.trim()  # what it keeps to save time is not there for another one of the same GPU
  for done in range(12):
    other = target.again()
    try:
      other.device.alloc(piece(target))
    except OutOfMemory as error:
      what = f"close keeps memory: an eighth of it was left allocated {done} times, and now there is no room"
      raise Misbehaved(what, look_at="close gives everything back, also what was never freed") from error
    finally:
      other.device.close()
  works(target, "closing devices with memory in use")


def test_launch_returns_its_time(target: Target) -> None:
  with target.memories([0] * 4096, [1] * 4096) as (out, source):
    seconds = Loaded(target, add(1, 4096))(out, source, wait=True)
  # whether they are seconds, a longer kernel tells: test_waiting_and_time
  look_at = "launch with wait=True returns the seconds that the kernel took, as a float; DEBUG=2 and BEAM live on it"
  demand_seconds(seconds, "launch", look_at)


def test_another_device_has_memory_of_its_own(target: Target) -> None:
  found = target.backend.probe()
  if isinstance(found, Unavailable) or len(found) < 2:
    pytest.skip("there is one device")
  other = target.again(len(found) - 1)
  try:
    held = [(side, side.filled([number] * 16), number) for number, side in enumerate((target, other))]
    for side, memory, number in held:
      what = f"device {side.index} holds other numbers after the other was written to"
      look_at = "open(index) gives a device that shares no memory with that of another index"
      side.demand_numbers(memory, [number] * 16, what, look_at)
      side.device.free(memory)
    works(other, "opening it beside the first device")
  finally:
    other.device.close()
