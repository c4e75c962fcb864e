"""Level 5, claims about what comes in between: `reentrant`, calls in the middle of calls of the same thread, and
`survives_fork`."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import pytest

from tiny_runtime.conformance.failure import demand
from tiny_runtime.conformance.kernels import elementwise
from tiny_runtime.conformance.launching import I, Loaded, demand_numbers, filled, memories
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.values import pack, unpack

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
      with memories(target, [0] * COUNT, [self.count] * COUNT) as (result, source):
        self.program(result, source)
        demand_numbers(target, result, [self.count + 3] * COUNT, "what came in between", "")
    except Exception as error:  # of a device that is wrong, any
      self.errors.append(f"{where}: {type(error).__name__}: {error}")


def test_reentrant(target: Target) -> None:
  device = target.device
  target.needs("reentrant")
  look_at = "what a method notes in the device between its steps; or take the claim `reentrant` back"
  interrupted, one = Interrupting(target), add(target, 1)
  with memories(target) as held:
    for size in (4 * COUNT, 4 * COUNT, 1 << 20):
      memory = interrupted(lambda: device.alloc(size))  # noqa: B023  # called at once
      held.append(memory)
    source, result = held[:2]
    for memory, numbers in ((source, [7] * COUNT), (result, [0] * COUNT)):
      data = memoryview(pack(I, numbers))
      interrupted(lambda: device.write(memory, 0, data))  # noqa: B023
    demand_numbers(target, source, [7] * COUNT, "a write that was interrupted", look_at)
    two = add(target, 2)
    program = interrupted(lambda: device.load(two.binary))
    interrupted(lambda: one(result, source))
    call = two.call((source, 0), (result, 0))
    interrupted(lambda: device.launch(program, call.buffers, [], call.global_size, call.local_size, False))
    interrupted(device.sync)
    out = bytearray(4 * COUNT)
    interrupted(lambda: device.read(source, 0, memoryview(out)))
    got = [int(number) for number in unpack(I, bytes(out))]
    demand(got == [10] * COUNT, "what was interrupted", expected=[10] * COUNT, got=got, look_at=look_at)
    demand_numbers(target, result, [8] * COUNT, "what was interrupted", look_at)
    while held:
      interrupted(lambda: device.free(held.pop()))
    held.append(filled(target, [5] * COUNT))
    demand_numbers(target, held[0], [5] * COUNT, "memory after that", look_at)
  wrong = interrupted.errors
  demand(not wrong, f"a call in the middle of another one of the same thread failed, {wrong[:1]}", look_at=look_at)


def test_survives_fork(target: Target) -> None:
  target.needs("survives_fork")
  if not hasattr(os, "fork"):
    pytest.skip("this system has no fork")
  program, look_at = add(target, 1), "what is left in a forked child; or take the claim `survives_fork` back"
  with memories(target, [0] * COUNT, [41] * COUNT) as (result, source):
    program(result, source)

    def go_on() -> None:
      demand_numbers(target, result, [42] * COUNT, "a result of the parent", look_at)
      program(source, result)
      demand_numbers(target, source, [43] * COUNT, "memory of the parent, after a launch in the child", look_at)
      with memories(target, [0] * COUNT) as (new,):
        add(target, 2)(new, source)
        demand_numbers(target, new, [45] * COUNT, "new memory, and a program that was loaded in the child", look_at)
      target.device.sync()

    for _ in range(2):
      said = in_child(go_on)
      demand(not said, f"in a forked child: {said}", look_at=look_at)
      demand_numbers(target, source, [41] * COUNT, "memory of the parent after a child wrote to its own", look_at)
    program(source, result)
    demand_numbers(target, source, [43] * COUNT, "a launch in the parent after forks", look_at)


def in_child(work: Callable[[], None]) -> str:
  """What goes wrong in a forked child that does something; empty if nothing does."""
  reading, writing = os.pipe()
  child = os.fork()
  if child == 0:
    said = ""
    try:
      work()
    except BaseException as error:
      said = f"{type(error).__name__}: {error}"
    finally:
      os.write(writing, b"ended " + said.encode()[:4000])
      os._exit(0)
  os.close(writing)
  with os.fdopen(reading, "rb") as pipe:
    ended, _, _ = select.select([pipe], [], [], SECONDS)
    if not ended:
      os.kill(child, signal.SIGKILL)
    said = pipe.read().decode() if ended else f"ended {SECONDS} seconds are not enough"
  os.waitpid(child, 0)
  return said.removeprefix("ended ") if said else "the child crashed"
