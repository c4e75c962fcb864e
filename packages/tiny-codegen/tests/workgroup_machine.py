"""Runs a LINEAR the way a device with workgroups does: every thread on its own, all of them together up to each
barrier, and through each tensor-core instruction, whose matrices are put together from the fragments of the threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import Any

import numpy as np

from tiny_codegen import Fragment, SharedOperand, TensorCore
from tiny_uop import AddrSpace, GroupOp, Ops, PtrDType, UOp, evaluate, exec_alu
from tiny_uop.evaluate import scalar_function
from tiny_uop.truncate import rounding

Step = Generator[UOp, Any, None]
Array = np.ndarray[Any, Any]


class Code:
  """A LINEAR with what every thread that runs it would look up again: where blocks end, constants, a function for each
  elementwise operation."""

  def __init__(self, linear: UOp) -> None:
    self.nodes = linear.src
    self.constants = {u: u.arg for u in linear.toposort if u.op is Ops.CONST}
    self.other_end: dict[int, int] = {}
    """The place of a RANGE and that of its END, of either; of an IF, that of its ENDIF."""
    for place, u in enumerate(self.nodes):
      if u.op is Ops.RANGE:
        end = next(i for i, e in enumerate(self.nodes) if e.op is Ops.END and u in e.src)
        self.other_end |= {place: end, end: place}
      elif u.op is Ops.IF:
        self.other_end[place] = next(i for i, e in enumerate(self.nodes) if e.op is Ops.ENDIF and u in e.src)
    self.steps = [elementwise(u) if u.op in GroupOp.Elementwise else None for u in self.nodes]


@cache
def code_of(linear: UOp) -> Code:
  return Code(linear)


def elementwise(u: UOp) -> Callable[[dict[UOp, Any]], Any]:
  """The value of a node from those of its sources."""
  op, dtype, sources, source = u.op, u.dtype, u.src, u.src[0].dtype
  if any(v.dtype.count > 1 for v in (u, *sources)):
    return lambda values: exec_alu(op, dtype, [values[s] for s in sources], source)
  function = scalar_function(op, dtype, source if op is Ops.BITCAST else None)
  if len(sources) == 2:
    a, b = sources
    return lambda values: function(values[a], values[b])
  return lambda values: function(*[values[s] for s in sources])


class Thread:
  """One thread: its counters, registers, and place in the program."""

  def __init__(self, linear: UOp, memory: dict[UOp, Any], shared: dict[UOp, Any], counters: dict[str, int]) -> None:
    """`counters` has the values of SPECIALs, and of variables."""
    self.code, self.memory, self.shared, self.counters = code_of(linear), memory, shared, counters
    self.values: dict[UOp, Any] = dict(self.code.constants)
    self.registers: dict[UOp, Any] = {}
    self.copies: list[tuple[Any, int, Any]] = []
    """Asynchronous STOREs since the last BARRIER that counts: array, offset, values."""
    self.groups: list[list[tuple[Any, int, Any]]] = []

  def value(self, u: UOp) -> Any:
    return self.values[u]

  def lanes(self, u: UOp) -> list[Any]:
    """The value as a list of its lanes."""
    value = self.values[u]
    return list(value) if isinstance(value, tuple) else [value] * u.dtype.count

  def run(self) -> Step:
    """Yields each BARRIER, and each MMA and SHUFFLE, for which it is sent its part of the result."""
    nodes, steps, values, other_end = self.code.nodes, self.code.steps, self.values, self.code.other_end
    place = 0
    while place < len(nodes):
      u, step = nodes[place], steps[place]
      if step is not None:
        values[u] = step(values)
      elif u.op is Ops.BARRIER:
        self.wait(u.arg)
        yield u
      elif u.op is Ops.MMA or u.op is Ops.SHUFFLE or (u.op is Ops.LOAD and u.arg is not None):
        values[u] = yield u
      elif u.op is Ops.RANGE:
        values[u] = 0
        if not values[u.src[0]]:
          place = other_end[place]
      elif u.op is Ops.END:
        loop = u.src[-1]
        values[loop] += 1
        if values[loop] < values[loop.src[0]]:
          place = other_end[place]
      elif u.op is Ops.IF:
        if not values[u.src[0]]:
          place = other_end[place]
      else:
        self.step(u)
      place += 1

  def step(self, u: UOp) -> None:
    if u.op is Ops.SPECIAL:
      self.values[u] = self.counters[u.arg]
    elif u.op is Ops.VARIABLE:
      self.values[u] = self.counters[u.arg[0]]
    elif u.op is Ops.LOAD and len(u.src[0].src) > 2 and not self.value(u.src[0].src[2]):
      self.values[u] = self.value(u.src[1]) if len(u.src) > 1 else (0,) * u.dtype.count
    elif u.op is Ops.LOAD:
      array, offset = self.place(u.src[0])
      self.values[u] = (
        array[offset].item() if u.dtype.count == 1 else tuple(array[offset : offset + u.dtype.count].tolist())
      )
    elif u.op is Ops.STORE:
      array, offset = self.place(u.src[0])
      whole = slice(offset, offset + u.src[1].dtype.count)
      array[whole] = self.value(u.src[1]) if u.arg is None else np.nan  # of a copy, nothing is there yet
      if u.arg is not None:
        self.copies.append((array, offset, self.value(u.src[1])))
    elif u.op is Ops.VECTORIZE:
      self.values[u] = tuple(lane for s in u.src for lane in self.lanes(s))
    elif u.op is Ops.EXTRACT:
      picked = [self.lanes(u.src[0])[lane] for lane in u.arg]
      self.values[u] = picked[0] if len(picked) == 1 else tuple(picked)
    elif u.op not in (Ops.CONST, Ops.PARAM, Ops.ALLOC, Ops.AFTER, Ops.INDEX, Ops.ENDIF):
      raise NotImplementedError(u)

  def wait(self, pending: int | None) -> None:
    """At a BARRIER, as late as it may: all groups of copies are there but the last so many."""
    if pending is None:
      return
    self.groups.append(self.copies)
    self.copies = []
    while len(self.groups) > pending:
      for array, offset, values in self.groups.pop(0):
        array[offset : offset + len(values)] = values

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
      space[pointer] = np.full(pointer.dtype.size * pointer.dtype.base.count, np.nan)
    offset = self.value(index.src[1]) * pointer.dtype.base.count
    assert 0 <= offset < len(space[pointer]), f"{offset} is outside of {pointer!r}"
    return space[pointer], offset


def shared_operand(operand: SharedOperand, threads: Sequence[Thread], source: UOp, lines: int, depth: int) -> Any:
  """What a tensor core reads from local memory itself: `lines` rows of A, or columns of B, by `depth` steps."""
  places = [thread.place(source) for thread in threads]
  assert len({offset for _, offset in places}) == 1, "threads give different places"
  array, start = places[0]
  assert isinstance(source.dtype, PtrDType)
  size = source.dtype.base.itemsize
  width, piece = 128 // size, 16 // size
  made = np.full((lines, depth), np.nan)
  for line, step in itertools.product(range(lines), range(depth)):
    along, row = (step, line) if operand.along_sum else (line, step)
    at = start + along // width * (operand.block // size) + row * width + along % width
    number, inside = divmod(at, width)
    made[line, step] = array[number * width + (inside // piece ^ number % 8) * piece + inside % piece]
  return made


def multiply(mma: UOp, threads: Sequence[Thread]) -> list[Any]:
  """The fragments of the result of an MMA that these threads execute together."""
  core: TensorCore = mma.arg
  n, m, k = core.dims

  def matrix(source: int, layout: Fragment, rows: int, columns: int) -> Any:
    if core.shared is not None and source < 2:
      # rows of A, columns of B
      found = shared_operand(core.shared[source], threads, mma.src[source], (rows, columns)[source], k)
      return found if source == 0 else found.T
    made = np.full((rows, columns), np.nan)
    made[places(layout, len(threads))] = [thread.lanes(mma.src[source]) for thread in threads]
    return made

  result = matrix(0, core.a, m, k) @ matrix(1, core.b, k, n) + matrix(2, core.c, m, n)
  parts = result[places(core.c, core.threads)].tolist()
  rounded = rounding(core.dtype_out)
  return [tuple(map(rounded, part)) if len(part) > 1 else rounded(part[0]) for part in parts]


@cache
def places(layout: Fragment, threads: int) -> tuple[Array, Array]:
  """Rows and columns of the elements that threads hold: both (threads, elements)."""
  found = np.array([[layout.place(t, e) for e in range(layout.count)] for t in range(threads)])
  return found[..., 0], found[..., 1]


def load_matrices(load: UOp, threads: Sequence[Thread]) -> list[Any]:
  """What each thread of a warp gets of a MatrixLoad."""
  element = load.dtype.itemsize // load.dtype.count
  piece, length = 4 // element, 16 // element
  rows = []
  for thread in threads[: 8 * load.arg.matrices]:
    array, offset = thread.place(load.src[0])
    assert offset % length == 0 and offset + length <= len(array), f"{offset} is no row of {len(array)} elements"
    rows.append(array[offset : offset + length])
  found = []
  for number in range(len(threads)):
    low, high = number % 4 * piece, number // 4
    pieces = []
    for matrix in (rows[n : n + 8] for n in range(0, len(rows), 8)):
      pieces += [matrix[low + e][high] if load.arg.transposed else matrix[high][low + e] for e in range(piece)]
    found.append(tuple(pieces))
  return found


def meet(mma: UOp, threads: Sequence[Thread]) -> list[Any]:
  """What each thread of a workgroup gets of an MMA, a SHUFFLE or a MatrixLoad: neighbours execute it together."""
  if mma.op is Ops.LOAD:
    warps = [threads[start : start + 32] for start in range(0, len(threads), 32)]
    return [part for warp in warps for part in load_matrices(mma, warp)]
  if mma.op is Ops.SHUFFLE:
    return [threads[number ^ mma.arg].value(mma.src[0]) for number in range(len(threads))]
  size = mma.arg.threads
  assert len(threads) % size == 0, f"a workgroup of {len(threads)} threads is not a multiple of {size}"
  return [part for start in range(0, len(threads), size) for part in multiply(mma, threads[start : start + size])]


def run_group(threads: Sequence[Thread], backwards: bool) -> None:
  """Run the threads of one workgroup, one after the other up to each barrier, to the end."""
  steps = [t.run() for t in threads]
  sent: list[Any] = [None] * len(threads)
  order = range(len(threads))[:: -1 if backwards else 1]
  while True:
    waiting: list[UOp | None] = [None] * len(threads)
    for place in order:
      try:
        waiting[place] = steps[place].send(sent[place])
      except StopIteration:
        waiting[place] = None
    first = waiting[0]
    assert all(w is first for w in waiting), "some threads of a workgroup wait where others never arrive"
    if first is None:
      return
    sent = meet(first, threads) if first.op is not Ops.BARRIER else [None] * len(threads)


def run_workgroups(
  program: UOp, arrays: list[Any], values: dict[str, int] | None = None, backwards: bool = False
) -> None:
  """Run a PROGRAM on flat arrays in slot order, with values for its variables. `backwards`: the last thread of a
  workgroup comes first, which shows what only one order gets right.
  """
  linear, variables = program.src[1], values or {}
  memory = {u: arrays[u.arg] for u in linear.toposort if u.op is Ops.PARAM}
  sizes = [[_size(s, variables) for s in group.src] for group in program.src[3:5]]
  names = [u.arg for u in linear.src if u.op is Ops.SPECIAL]
  for group in itertools.product(*map(range, sizes[0])):
    shared: dict[UOp, Any] = {}
    threads = []
    # the first counter runs fastest, as on the hardware: it decides who is whose neighbour
    for reverse in itertools.product(*map(range, reversed(sizes[1]))):
      local = reverse[::-1]
      counters = {n: (group if n.startswith("gidx") else local)[int(n[4:])] for n in names}
      threads.append(Thread(linear, memory, shared, counters | variables))
    run_group(threads, backwards)


def _size(size: UOp, values: dict[str, int]) -> int:
  found = evaluate(size, values)
  assert isinstance(found, int)
  return found
