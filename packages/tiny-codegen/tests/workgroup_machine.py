"""Runs a LINEAR the way a device with workgroups does: every thread on its own, all of them together up to each
barrier.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tiny_uop import AddrSpace, GroupOp, Ops, PtrDType, UOp, exec_alu


class Thread:
  """One thread: its counters, registers, and place in the program."""

  def __init__(self, linear: UOp, memory: dict[UOp, Any], shared: dict[UOp, Any], counters: dict[str, int]) -> None:
    self.code, self.memory, self.shared, self.counters = linear.src, memory, shared, counters
    self.values: dict[UOp, Any] = {}
    self.registers: dict[UOp, Any] = {}

  def value(self, u: UOp) -> Any:
    return u.arg if u.op is Ops.CONST else self.values[u]

  def run(self) -> Iterator[None]:
    """Yields at each barrier."""
    starts: dict[UOp, int] = {}
    place = 0
    while place < len(self.code):
      u = self.code[place]
      if u.op is Ops.BARRIER:
        yield
      elif u.op is Ops.RANGE:
        starts[u] = place
        self.values[u] = 0
        if not self.value(u.src[0]):
          place = next(i for i, e in enumerate(self.code) if e.op is Ops.END and u in e.src)
      elif u.op is Ops.END:
        loop = u.src[-1]
        self.values[loop] += 1
        if self.values[loop] < self.value(loop.src[0]):
          place = starts[loop]
      elif u.op is Ops.IF and not self.value(u.src[0]):
        place = next(i for i, e in enumerate(self.code) if e.op is Ops.ENDIF and u in e.src)
      else:
        self.step(u)
      place += 1

  def step(self, u: UOp) -> None:
    if u.op is Ops.SPECIAL:
      self.values[u] = self.counters[u.arg]
    elif u.op is Ops.LOAD:
      array, offset = self.place(u.src[0])
      self.values[u] = (
        array[offset].item() if u.dtype.count == 1 else tuple(array[offset : offset + u.dtype.count].tolist())
      )
    elif u.op is Ops.STORE:
      array, offset = self.place(u.src[0])
      array[offset : offset + u.src[1].dtype.count] = self.value(u.src[1])
    elif u.op in GroupOp.Elementwise:
      self.values[u] = exec_alu(u.op, u.dtype, [self.value(s) for s in u.src], u.src[0].dtype)
    elif u.op not in (Ops.CONST, Ops.PARAM, Ops.ALLOC, Ops.AFTER, Ops.INDEX, Ops.ENDIF, Ops.IF):
      raise NotImplementedError(u)

  def place(self, index: UOp) -> tuple[Any, int]:
    pointer = index.src[0]
    while pointer.op is Ops.AFTER:
      pointer = pointer.src[0]
    assert isinstance(pointer.dtype, PtrDType)
    space = {AddrSpace.GLOBAL: self.memory, AddrSpace.LOCAL: self.shared, AddrSpace.REG: self.registers}[
      pointer.dtype.space
    ]
    if pointer not in space:
      # memory that nobody has written is not a number
      space[pointer] = np.full(pointer.dtype.size, np.nan)
    offset = self.value(index.src[1])
    assert 0 <= offset < len(space[pointer]), f"{offset} is outside of {pointer!r}"
    return space[pointer], offset


def run_workgroups(program: UOp, arrays: list[Any]) -> None:
  """Run a PROGRAM on flat arrays in slot order."""
  linear = program.src[1]
  memory = {u: arrays[u.arg] for u in linear.toposort if u.op is Ops.PARAM}
  sizes = [[int(s.arg) for s in group.src] for group in program.src[3:5]]
  names = [u.arg for u in linear.src if u.op is Ops.SPECIAL]
  for group in itertools.product(*map(range, sizes[0])):
    shared: dict[UOp, Any] = {}
    threads = []
    for local in itertools.product(*map(range, sizes[1])):
      counters = {n: (group if n.startswith("gidx") else local)[int(n[4:])] for n in names}
      threads.append(Thread(linear, memory, shared, counters).run())
    while threads:
      waiting = [next(t, "done") for t in threads]
      assert len(set(map(str, waiting))) == 1, "some threads of a workgroup wait at a barrier that others never reach"
      if waiting[0] == "done":
        break
