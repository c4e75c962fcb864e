"""Captured graphs: a table of calls in memory, run by one native call (graph.ll). Nothing is compiled per graph."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import cast, overload

from tiny_runtime import GraphCopy, GraphKernel
from tiny_runtime_cpu.host import has_uneven_cores
from tiny_runtime_cpu.memory import Block
from tiny_runtime_cpu.pool import Functions, Pool
from tiny_runtime_cpu.program import BYTES_PER_NS, Program, divide, threads_for
from tiny_runtime_cpu.settings import thread_count
from tiny_runtime_cpu.system import MONOTONIC_CLOCK

NS_PER_HOT_THREAD = 8_000
"""Work that is worth another thread in a graph, where the workers are awake after the first kernel that needs them."""

SHORT_NS = 20_000
"""Graphs of less estimated work keep the GIL: to get it back can take 5 ms if another thread has it."""

DIVISION = 3
"""Integers that say how a call is divided: extent, parts, threads."""

Call = GraphKernel | GraphCopy


class _Settings:
  """What may change from run to run of a call, or of several that change together: integers, size, and the division
  among threads; and where the native loop finds them."""

  __slots__ = ("call", "global_size", "numbers", "shared")

  def __init__(self, call: Call, shared: bool) -> None:
    self.call = call
    """The call, or the first of them: the program, or what is copied."""
    integers, self.global_size = (call.integers, call.global_size) if isinstance(call, GraphKernel) else ((), ())
    self.numbers = (ctypes.c_int64 * (DIVISION + len(integers)))(*(0,) * DIVISION, *integers)
    """The division, then the integers: one array for both, as a model has thousands of calls."""
    self.shared = shared

  def places(self) -> list[ctypes.c_int64 | int]:
    """Two fields of a row of the table: where the integers are, and the division."""
    division = ctypes.addressof(self.numbers)
    return [division + DIVISION * ctypes.sizeof(ctypes.c_int64), division]


class Times(Sequence[tuple[float, float]]):
  """Seconds from the beginning of a run to the begin and the end of each call. `noted`: the time before the first call
  and behind each, as pairs of seconds and nanoseconds."""

  def __init__(self, noted: bytes) -> None:
    self.noted = noted

  @cached_property
  def pairs(self) -> list[tuple[float, float]]:
    """All of them, when they are looked at."""
    numbers = memoryview(self.noted).cast("q").tolist()
    ends = [(s - numbers[0]) * 10**9 + ns - numbers[1] for s, ns in zip(numbers[::2], numbers[1::2])]
    return list(pairwise([end * 1e-9 for end in ends]))

  def __len__(self) -> int:
    return len(self.pairs)

  @overload
  def __getitem__(self, index: int) -> tuple[float, float]: ...

  @overload
  def __getitem__(self, index: slice) -> list[tuple[float, float]]: ...

  def __getitem__(self, index: int | slice) -> tuple[float, float] | list[tuple[float, float]]:
    return self.pairs[index]


class Graph:
  """A table of calls, each a function, its arguments and its division among threads; fields of graph.ll."""

  def __init__(self, native: Functions, calls: Sequence[Call], memories: Sequence[Block]) -> None:
    self._native = native
    self._calls = list(calls)
    self._needs = [0] * len(memories)
    """For each memory, how many bytes of it are used."""
    self._addresses = (ctypes.c_int64 * len(memories))()
    self._copies = any(isinstance(call, GraphCopy) for call in calls)
    self._limit = self._workers = -1  # what the division was made for
    self._alone = False  # no number of threads would change it
    self._settings: list[_Settings] = []
    """Of each call."""
    self._together: dict[tuple[int, ...], _Settings] = {}
    """Of calls that change together."""
    self._resized: set[_Settings] = set()  # those with another size than the one that was divided
    self._lay_out()
    for position, block in enumerate(memories):
      self.place(position, block)
    nanoseconds = sum(_nanoseconds(call) for call in calls)
    self._function = native.run_graph_locked if nanoseconds < SHORT_NS else native.run_graph

  def _lay_out(self) -> None:
    """Make the table, the arguments of all calls, and the patches that write addresses into them."""
    buffers = [_buffers(call) for call in self._calls]
    self._pointers = (ctypes.c_int64 * sum(map(len, buffers)))()
    pointer = ctypes.addressof(self._pointers)
    rows: list[int] = []
    patches: list[int] = []
    for call, uses in zip(self._calls, buffers):
      function = call.program.address if isinstance(call, GraphKernel) else self._native.copy_bytes
      rows += (function, pointer, 0, 0)
      for position, offset, nbytes in uses:
        self._needs[position] = max(self._needs[position], offset + nbytes)
        patches += (pointer, position, offset)
        pointer += 8
    self._rows = (ctypes.c_int64 * len(rows))(*rows)
    self._patches = (ctypes.c_int64 * len(patches))(*patches)
    tables = [ctypes.addressof(table) for table in (self._rows, self._patches, self._addresses)]
    self._header = (ctypes.c_int64 * 8)(0, tables[0], len(self._calls), tables[1], len(patches) // 3, tables[2])
    self._times: ctypes.Array[ctypes.c_int64] | None = None
    self._header_address = ctypes.addressof(self._header)
    for n, call in enumerate(self._calls):
      self._settings.append(settings := _Settings(call, False))
      self._rows[4 * n + 2 : 4 * n + 4] = settings.places()

  def place(self, position: int, block: Block) -> None:
    """Use another memory. Raises ValueError if it is too small or was freed."""
    if block.address is None or block.nbytes < self._needs[position]:
      raise ValueError(f"the graph needs {self._needs[position]} bytes of {block!r}")
    self._addresses[position] = block.address
    if self._copies:  # what overlaps now cannot be copied by several threads
      self._limit, self._alone = -1, False

  def change(self, index: int, kernel: GraphKernel) -> None:
    """Use other integers and another size for a call."""
    settings = self._settings[index]
    if settings.shared:
      self._join((index,))
      settings = self._settings[index]
    self._change(settings, kernel.integers, kernel.global_size)

  def change_together(self, calls: tuple[int, ...], integers: Sequence[int], global_size: tuple[int, ...]) -> None:
    """Use other integers and another size for calls of one program."""
    if calls not in self._together:
      self._together[calls] = self._join(calls)
    self._change(self._together[calls], integers, global_size)

  def _change(self, settings: _Settings, integers: Sequence[int], global_size: tuple[int, ...]) -> None:
    settings.numbers[DIVISION:] = [*integers]
    if settings.global_size != global_size:
      settings.global_size = global_size
      self._resized.add(settings)

  def _join(self, calls: tuple[int, ...]) -> _Settings:
    """New settings for some calls, which they share; whom they shared theirs with before no longer do."""
    apart = {n for known in self._together if not set(calls).isdisjoint(known) for n in known}.difference(calls)
    self._together = {known: found for known, found in self._together.items() if set(calls).isdisjoint(known)}
    for indices in (calls, *[(n,) for n in apart]):
      before = self._settings[indices[0]]
      settings = _Settings(self._calls[indices[0]], len(indices) > 1)
      settings.numbers[DIVISION:], settings.global_size = [*before.numbers[DIVISION:]], before.global_size
      for n in indices:
        self._settings[n] = settings
        self._rows[4 * n + 2 : 4 * n + 4] = settings.places()
      self._resized.add(settings)
    return self._settings[calls[0]]

  def run_timed(self, pool: Pool) -> None:
    """Run all calls, and note when."""
    if self._times is None:
      self._times = (ctypes.c_int64 * (2 * len(self._calls) + 2))()
      self._header[7] = MONOTONIC_CLOCK
    self._header[6] = ctypes.addressof(self._times)
    try:
      self.run(pool)
    finally:
      self._header[6] = 0

  def times(self) -> Times:
    """Of the last `run_timed`."""
    return Times(b"" if self._times is None else bytes(self._times))

  def run(self, pool: Pool) -> None:
    """Run all calls. Threads are those of the pool."""
    if self._resized or not self._alone:
      limit = thread_count()
      # a forked child's pool has another state than the parent's, whose threads are not there
      other = self._workers > 0 and self._header[0] != pool.address
      if limit != self._limit or pool.workers < self._workers or other:
        self._divide(pool, limit, dict.fromkeys(self._settings), 1)
      elif self._resized:
        self._divide(pool, limit, self._resized, self._workers + 1)
      if self._workers:
        pool.affinity.settle()
    self._function(self._header_address)

  def _divide(self, pool: Pool, limit: int, changed: Iterable[_Settings], most: int) -> None:
    """Decide how many threads each of some calls gets; others have `most` at most."""
    for settings in changed:
      extent, parts, threads = self._division(settings.call, settings.global_size, limit)
      if threads > 1:
        threads = pool.ensure(threads)
      settings.numbers[:DIVISION] = [extent, parts, threads]
      most = max(most, threads)
    self._resized.clear()
    if self._limit != limit:
      self._alone = all(threads_for(_nanoseconds(call), NS_PER_HOT_THREAD) == 1 for call in self._calls)
    self._limit, self._workers = limit, most - 1
    self._header[0] = pool.address if most > 1 else 0

  def _division(self, call: Call, global_size: Sequence[int], limit: int) -> tuple[int, int, int]:
    """(extent, parts, threads) of a call."""
    useful = threads_for(_nanoseconds(call), NS_PER_HOT_THREAD)
    if isinstance(call, GraphKernel):
      extent = 0 if 0 in global_size else global_size[0]
      return (extent, *divide(extent, useful, limit, has_uneven_cores()))
    target, source = (self._addresses[position] + offset for position, offset in (call.target, call.source))
    if abs(target - source) < call.nbytes:  # they overlap: one part
      return call.nbytes, 1, 1
    return (call.nbytes, *divide(call.nbytes, useful, limit))


def _buffers(call: Call) -> list[tuple[int, int, int]]:
  """The buffer arguments as (position of the memory, byte offset, bytes needed)."""
  if isinstance(call, GraphCopy):
    return [(*call.target, call.nbytes), (*call.source, call.nbytes)]
  program = cast(Program, call.program)
  program.check_count(call.buffers, call.integers)
  return [(*buffer, need) for buffer, need in zip(call.buffers, program.needs)]


def _nanoseconds(call: Call) -> float:
  return call.program.nanoseconds if isinstance(call, GraphKernel) else 2 * call.nbytes / BYTES_PER_NS
