"""Which calls of a schedule may run: those that find in memory what they would find if all ran in order.

Buffers overlap: temporaries lie in one arena, where one takes the place of another. So each BUFFER is cut at all bytes
where an argument begins or ends; what is between two cuts, a cell, is read and written as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tiny_uop import Ops, UOp, read_params, written_params

Cell = tuple[UOp, int]
"""A BUFFER, and the byte in it where the cell begins."""


class Write(NamedTuple):
  """A call writes a cell: what has to be there, and who has to have read that before."""

  before: int | None
  readers: tuple[int, ...]


class Span(NamedTuple):
  """An argument of a call: bytes of a BUFFER."""

  buffer: UOp
  start: int
  stop: int

  @classmethod
  def of(cls, argument: UOp) -> Span:
    """The bytes of a BUFFER or a BUFFER_VIEW."""
    if argument.op is Ops.BUFFER:
      return cls(argument, 0, argument.arg[1] * argument.dtype.itemsize)
    start, size = argument.arg
    return cls(argument.src[0], start, start + size * argument.dtype.itemsize)


class Progress:
  """What the cells of a schedule's buffers hold: contents from before it (None), or what call number n has written."""

  def __init__(self, calls: Sequence[UOp], names: Sequence[str], temporaries: Collection[UOp]) -> None:
    self.names = names
    self.holds: dict[Cell, int | None] = {}
    self.done: set[int] = set()
    self.reads: list[dict[Cell, int | None]] = []
    """For each call, what it expects in the cells that it reads."""
    self.writes: list[dict[Cell, Write]] = []
    """For each call, the cells that it writes. Of temporaries only the names count: who needs them will miss them."""
    self.scratch: list[list[Cell]] = []
    """For each call, the cells of temporaries that it writes."""
    self._follow(calls, frozenset(temporaries))

  def _follow(self, calls: Sequence[UOp], temporaries: frozenset[UOp]) -> None:
    uses = [_uses(call) for call in calls]
    cuts: dict[UOp, set[int]] = {}
    for span, _, _ in (use for call in uses for use in call):
      cuts.setdefault(span.buffer, set()).update((span.start, span.stop))
    places = {buffer: sorted(cut) for buffer, cut in cuts.items()}
    indices = {buffer: {byte: n for n, byte in enumerate(cut)} for buffer, cut in places.items()}

    def cells(span: Span) -> Iterator[Cell]:
      index = indices[span.buffer]
      for byte in places[span.buffer][index[span.start] : index[span.stop]]:
        yield span.buffer, byte

    readers: dict[Cell, list[int]] = {}
    for number, call in enumerate(uses):
      reads = {cell: self.holds.get(cell) for span, read, _ in call if read for cell in cells(span)}
      for cell in reads:
        readers.setdefault(cell, []).append(number)
      writes: dict[Cell, Write] = {}
      scratch: list[Cell] = []
      for cell in dict.fromkeys(cell for span, _, written in call if written for cell in cells(span)):
        before = tuple([reader for reader in readers.pop(cell, ()) if reader != number])
        if cell[0] in temporaries:
          scratch.append(cell)
        else:
          writes[cell] = Write(self.holds.get(cell), before)
        self.holds[cell] = number
      self.reads.append(reads)
      self.writes.append(writes)
      self.scratch.append(scratch)
    self.holds.clear()

  def check(self, number: int) -> None:
    """Raise RuntimeError where call `number` would find, or leave, other contents than in its turn."""
    holds = self.holds.get
    for cell, expected in self.reads[number].items():
      if (found := holds(cell)) != expected:
        raise self._refusal(number, "reads", expected, found)
    for cell, (before, readers) in self.writes[number].items():
      found = holds(cell)
      if found not in (before, number):
        raise self._refusal(number, "overwrites", before, found)
      if waiting := [reader for reader in readers if reader not in self.done]:
        raise RuntimeError(
          f"{self._name(number)} overwrites what {self._name(waiting[0])} reads, which has not run: run them in order"
        )

  def note(self, number: int) -> None:
    """Call `number` has run."""
    self.done.add(number)
    for cell in (*self.writes[number], *self.scratch[number]):
      self.holds[cell] = number

  def _name(self, number: int) -> str:
    return f"item {number} ({self.names[number]})"

  def _refusal(self, number: int, verb: str, expected: int | None, found: int | None) -> RuntimeError:
    name = self._name(number)
    if found == number:
      return RuntimeError(f"{name} has run, and updates what it reads: schedule it again")
    if expected is not None and expected not in self.done:
      return RuntimeError(f"{name} {verb} what {self._name(expected)} writes, which has not run: run them in order")
    assert found is not None
    return RuntimeError(f"{name} {verb} what {self._name(found)} has overwritten: schedule it again")


def _uses(call: UOp) -> list[tuple[Span, bool, bool]]:
  """The arguments of a call with memory, and whether it reads and writes each."""
  body = call.src[0]
  written = {0} if body.op is Ops.COPY else written_params(body)
  read = {1} if body.op is Ops.COPY else read_params(body)
  spans = [Span.of(argument) for argument in call.src[1:] if argument.op is not Ops.BIND]
  return [(span, slot in read, slot in written) for slot, span in enumerate(spans)]
