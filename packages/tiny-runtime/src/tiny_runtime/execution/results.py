"""Fresh outputs of a captured graph: buffers and nodes, made anew or taken again once nobody else holds them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tiny_runtime.buffer import Buffer, buffer_of
from tiny_runtime.execution.pieces import Piece
from tiny_runtime.opened import spare
from tiny_uop import UOp

Place: TypeAlias = tuple[Piece, int, int, UOp | None]
"""Where a BUFFER is an argument: piece, index of the launch, position, and the BUFFER_VIEW through which it is used."""

SMALL = 32 << 20
"""Several sets of outputs of up to this many bytes in all are kept for later replays: to make their nodes takes 100
microseconds after a kernel that left nothing else in the caches. Of larger ones only that which the launches hold
anyway."""
KEPT = 3
"""How many sets of outputs are kept at most: a loop that feeds an output back needs two."""


class Results:
  """New buffers for the outputs of a replay, and the outputs over these buffers."""

  __slots__ = ("_alone", "_held", "outputs", "placed", "places")

  def __init__(self, fresh: Mapping[UOp, Sequence[Place]], outputs: Sequence[UOp]) -> None:
    """`fresh` are the BUFFERs to replace by new ones in `outputs`, and where they are arguments."""
    self._make(fresh, outputs)  # in a frame of its own: nothing there holds a node any more when we count
    self._alone = self._counts()
    self.placed: list[int] = []
    """The reference counts when only the launches hold the buffers; empty if nobody has counted yet."""

  def _make(self, fresh: Mapping[UOp, Sequence[Place]], outputs: Sequence[UOp]) -> None:
    made = {uop: UOp.new_buffer(str(uop.device), uop.arg[1], uop.dtype) for uop in fresh}
    buffers = [buffer_of(new) for new in made.values()]
    self.places = [
      (piece, index, slot, buffer if view is None else buffer.view(view.arg[0], view.arg[1], view.dtype))
      for buffer, places in zip(buffers, fresh.values(), strict=True)
      for piece, index, slot, view in places
    ]
    """Piece, index of the launch, position, and the Buffer that belongs there."""
    self.outputs: tuple[UOp, ...] = tuple([uop.substitute(made) for uop in outputs])
    self._held: tuple[object, ...] = (self.outputs, *self.outputs, *made.values(), *buffers)
    for uop in (*made.values(), *self.outputs):
      _ = uop.toposort  # a node keeps it, and so holds the nodes below

  def _counts(self) -> list[int]:
    return list(map(sys.getrefcount, self._held))

  def note_placed(self) -> None:
    """Called when the launches hold the buffers, and before anyone else does."""
    self.placed = self._counts()

  def is_free(self, placed: bool) -> bool:
    """Whether nobody else holds a buffer or a node, so that nobody would see them change. `placed`: the launches still
    hold the buffers."""
    return list(map(sys.getrefcount, self._held)) == (self.placed if placed else self._alone)


class ResultPool:
  """Gives out Results; those that are free again first. Not safe to use from two threads at once."""

  def __init__(self, fresh: Mapping[UOp, Sequence[Place]], outputs: Sequence[UOp]) -> None:
    self._fresh, self._outputs = fresh, tuple(outputs)
    small = sum(uop.arg[1] * uop.dtype.itemsize for uop in fresh) <= SMALL
    self._most = (KEPT if small else 1) if _counts_are_exact() else 0
    self._kept: list[Results] = []
    self._frees = 0
    spare.add(self)

  def take(self, current: Results | None) -> Results:
    """A set that is free. `current` is the one that the launches hold."""
    kept = self._kept
    if self._frees != Buffer.frees:  # one of the buffers may have been freed
      kept.clear()
      self._frees = Buffer.frees
    for results in kept:
      if results.is_free(results is current):
        return results
    results = Results(self._fresh, self._outputs)
    if self._most:
      del kept[: len(kept) + 1 - self._most]
      kept.append(results)
    return results

  def give_up(self) -> None:
    """Keep nothing for later: memory is short."""
    self._kept.clear()


def _counts_are_exact() -> bool:
  """Whether a reference count tells who holds an object: in CPython with its global lock."""
  enabled = getattr(sys, "_is_gil_enabled", None)
  return sys.implementation.name == "cpython" and (enabled is None or bool(enabled()))
