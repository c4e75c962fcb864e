"""What loops ask memory for before it is read or written, and where in their bodies they do: see `llvm_ahead`,
`llvm_fill_ahead` and `llvm_prefetch`.

An iteration asks first, so that memory has all of it. But LLVM moves no load over what asks: behind that are then the
loads of all steps of a sum that are written out, in any order, and those of the second step come up to the first. Where
there are as many accumulators as registers can hold, some of these are on the stack for it, which costs some percent of
the time. In such loops the first step has been read and multiplied when memory is asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence

from tiny_codegen.render.llvm.ahead import ask, panels_ahead
from tiny_codegen.render.llvm.fill_ahead import fills_ahead
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.memory import in_register
from tiny_codegen.render.llvm.prefetch import fetch_row, lines_to_fetch, prefetch
from tiny_codegen.target import Target
from tiny_uop import Ops, ProgramInfo, UOp

Address = Callable[[UOp, UOp | None, int], str]
"""The name of the address of an element of a buffer (None: the first one), or so many bytes behind it, computed now."""


class Asking:
  """All that the loops of a program ask for. None of one without instructions."""

  def __init__(self, linear: Sequence[UOp], info: ProgramInfo, target: Target) -> None:
    caches = target.caches
    self.fetched = lines_to_fetch(linear, info, caches)
    self.ahead = panels_ahead(linear, info, caches)
    self.later = fills_ahead(linear, info, caches, [memory for memory, _ in self.ahead.values()])
    loops = {*self.fetched, *self.ahead, *self.later}
    self.places = dict(_second_steps(linear, loops, target))
    self.waiting: dict[UOp, Callable[[], None]] = {}

  def before(self, body: Function, loop: UOp, address: Address) -> None:
    """Compute what is the same in all iterations, and ask for what they are too few for."""
    fetched = [(rows, address(rows.pointer, rows.offset, rows.byte)) for rows in self.fetched.get(loop, ())]
    for rows, first in fetched:
      if rows.count == 1:
        prefetch(body, first, write=True, level=3)
    near, pieces = self.ahead.get(loop, (loop, ()))
    columns = [(piece, address(piece.pointer, piece.start, 0)) for piece in pieces]

    def each() -> None:
      for piece, first in columns:
        ask(body, piece, first, loop, body.operand(near))
      for rows, first in fetched:
        if rows.count > 1:
          fetch_row(body, rows, first, loop)
      for later in self.later.get(loop, ()):
        prefetch(body, address(later.pointer, later.offset, later.byte), write=False, level=3)

    self.waiting[self.places.get(loop, loop)] = each

  def reach(self, u: UOp) -> None:
    """Ask if it is the time: before this instruction, or at the beginning of this loop."""
    if (each := self.waiting.pop(u, None)) is not None:
      each()


def _second_steps(linear: Sequence[UOp], loops: Collection[UOp], target: Target) -> Iterator[tuple[UOp, UOp]]:
  """By loop without others inside: the first vector that is read for the second step of a sum, where the vectors of two
  steps do not fit into registers besides the accumulators, and a scalar that is spread."""
  for place, loop in enumerate(linear):
    if loop.op is Ops.RANGE and loop in loops:
      body = list(itertools.takewhile(lambda u: u.op not in (Ops.RANGE, Ops.END), linear[place + 1 :]))
      added = next((n for n, u in enumerate(body) if u.op is Ops.STORE and in_register(u)), len(body))
      second = next((n for n, u in enumerate(body) if n > added and _is_vector(u) and not in_register(u)), None)
      if second is not None:
        lanes = [(in_register(u), -(-u.dtype.count // target.lanes(u.dtype))) for u in body[:second] if _is_vector(u)]
        if sum(n if kept else 2 * n for kept, n in lanes) + 1 > target.vector_registers:
          yield loop, body[second]


def _is_vector(u: UOp) -> bool:
  return u.op is Ops.LOAD and u.dtype.count > 1
