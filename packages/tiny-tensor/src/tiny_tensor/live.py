"""The live tensors, found from the nodes of their graphs: nobody has to look at all of them to find those that a
computed value, a write or a gradient concerns.

A tensor's graph is *filed* when somebody asks next: each node in it learns which nodes read it, each root which tensors
stand for it. Both are weak, so that neither graphs nor tensors live longer. Filing costs one step per new node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import count
from typing import TYPE_CHECKING
from weakref import ref

from tiny_uop import UOp

if TYPE_CHECKING:
  from tiny_tensor.base import TensorBase

_live: dict[ref[TensorBase], int] = {}
"""Every live tensor, with a number that grows with each."""
_fresh: dict[ref[TensorBase], None] = {}
"""Those that are new, or stand for another graph than when they were filed."""
_by_change: dict[object, None] = {}
"""Every live tensor, in the order in which they last were new or changed their graph; and the marks of `Changes`."""
_number = count().__next__


def _forget(
  entry: ref[TensorBase], live: dict[ref[TensorBase], int] = _live, fresh: dict[ref[TensorBase], None] = _fresh,
  by_change: dict[object, None] = _by_change,
) -> None:  # fmt: skip
  live.pop(entry, None)  # arguments, because globals go first when the process ends
  fresh.pop(entry, None)
  by_change.pop(entry, None)


def enter(t: TensorBase) -> None:
  """Puts a new tensor among the live ones."""
  entry = ref(t, _forget)
  object.__setattr__(t, "_entry", entry)
  _live[entry] = _number()
  _fresh[entry] = _by_change[entry] = None


def changed(t: TensorBase) -> None:
  """Says that a tensor stands for another graph."""
  if (entry := getattr(t, "_entry", None)) is not None:  # else it is not there yet
    _by_change.pop(entry, None)
    _fresh[entry] = _by_change[entry] = None


def live_tensors() -> list[TensorBase]:
  """Every live tensor, oldest first. Whoever is asked in each step asks for `tensors_above` instead."""
  return [t for r in list(_live) if (t := r()) is not None]


class Changes:
  """Tells which tensors changed: for who would look at all of them in each step."""

  def __init__(self) -> None:
    self._mark = object()

  def since(self) -> list[TensorBase]:
    """The live tensors that are new, or stand for another graph, since this was last asked; at first all of them."""
    before, self._mark = self._mark, object()
    _by_change[self._mark] = None  # first: other threads make tensors meanwhile
    entries = list(iter(reversed(_by_change).__next__, before))
    _by_change.pop(before, None)
    return [t for r in entries if isinstance(r, ref) and (t := r()) is not None]

  def __del__(self, by_change: dict[object, None] = _by_change) -> None:
    by_change.pop(self._mark, None)


class _Place:
  """What is above a node: the nodes that have it as a source, and the tensors that stand for it."""

  __slots__ = ("filed", "readers", "tensors")

  def __init__(self) -> None:
    self.readers: dict[ref[UOp], None] = {}
    self.tensors: dict[ref[TensorBase], None] = {}
    self.filed = False


def _place(node: UOp) -> _Place:
  known = node.__dict__
  found: _Place | None = known.get("live")
  if found is None:
    found = known.setdefault("live", _Place())
  return found


def _file() -> None:
  """Files the graphs of all fresh tensors."""
  for entry in list(_fresh):
    _fresh.pop(entry, None)
    if (t := entry()) is None:
      continue
    tensors = _place(t.uop).tensors
    if (size := len(tensors)) & (size - 1) == 0:  # at powers of two: each is looked at a few times at most
      for other in [e for e in list(tensors) if (x := e()) is None or x.uop is not t.uop]:
        tensors.pop(other, None)
    tensors[entry] = None
    open_nodes = [t.uop]
    while open_nodes:
      node = open_nodes.pop()
      if not (place := _place(node)).filed:
        for s in node.src:
          readers = _place(s).readers
          readers[ref(node, readers.pop)] = None
        open_nodes += node.src
        place.filed = True


def nodes_above(nodes: Iterable[UOp], passes: Callable[[UOp, UOp], bool] | None = None) -> Collection[UOp]:
  """`nodes` and all that live tensors compute from them; with `passes(reader, node)`, by way of such readers only."""
  _file()
  found = dict.fromkeys(nodes)
  open_nodes = list(found)
  while open_nodes:
    node = open_nodes.pop()
    for r in list(_place(node).readers):
      reader = r()
      if reader is not None and reader not in found and (passes is None or passes(reader, node)):
        found[reader] = None
        open_nodes.append(reader)
  return found.keys()


def tensors_at(nodes: Iterable[UOp]) -> list[TensorBase]:
  """The live tensors that stand for `nodes`, oldest first."""
  _file()
  found = {e: t for u in nodes for e in list(_place(u).tensors) if (t := e()) is not None and t.uop is u}
  return [found[e] for e in sorted(found, key=_live.__getitem__)]


def tensors_above(nodes: Iterable[UOp], passes: Callable[[UOp, UOp], bool] | None = None) -> list[TensorBase]:
  """The live tensors whose graphs have one of `nodes` in them, oldest first. `passes`: see `nodes_above`."""
  return tensors_at(nodes_above(nodes, passes))
