"""The live tensors, found from the nodes of their graphs: nobody has to look at all of them to find those that a
computed value, a write or a gradient concerns.

A tensor's graph is *filed* when somebody asks next: each node in it learns which nodes read it, each root which tensors
stand for it. Both are weak, so that neither graphs nor tensors live longer. Filing costs one step per new node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from itertools import chain, count, islice, takewhile
from typing import TYPE_CHECKING
from weakref import ref

from tiny_uop import Ops, UOp, is_kernel

if TYPE_CHECKING:
  from tiny_tensor.base import TensorBase

_live: dict[object, int] = {}
"""Every live tensor, with a number that grows with each, in the order in which they began to stand for their graphs.
Among them are the marks of `Changes`."""
_number = count().__next__
_HAS_LOCK: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
_forget = _live.pop  # no function of Python, which would take longer than all else that a tensor's end costs here


def enter(t: TensorBase) -> None:
  """Puts a new tensor among the live ones."""
  entry = ref(t, _forget)
  object.__setattr__(t, "_entry", entry)
  _live[entry] = _number()


def changed(t: TensorBase) -> None:
  """Says that a tensor stands for another graph."""
  if (entry := getattr(t, "_entry", None)) is not None:  # else it is not there yet
    number = _live.pop(entry, None)  # None: a signal handler, or another thread, has come back in the middle of this
    _live[entry] = _number() if number is None else number


class Changes:
  """Which live tensors are new, or stand for another graph, since they were last asked for: all are the first time."""

  def __init__(self) -> None:
    self._mark: object = None
    self._next: object = None

  def __del__(self, live: dict[object, int] = _live) -> None:
    live.pop(self._mark, None)  # an argument, because globals go first when the process ends
    live.pop(self._next, None)

  def look(self) -> tuple[list[TensorBase], object]:
    """(these tensors in the order of the changes, what `done` takes once all is done that they give to do)."""
    _live.pop(self._next, None)
    self._next = mark = object()
    _live[mark] = _number()  # what changes from now on comes behind it
    entries = _behind(self._mark)
    return [t for e in reversed(entries) if isinstance(e, ref) and (t := e()) is not None], mark

  def done(self, mark: object) -> None:
    """Leaves out what `look` gave with this mark from now on."""
    before, self._mark, self._next = self._mark, mark, None
    _live.pop(before, None)


def _behind(mark: object) -> list[object]:
  """What came among the live tensors after a mark, the newest first; all of it if the mark is not there.

  It is taken out of the dict at once. Between two steps of `reversed` others may change it, and where as many came as
  went, Python does not notice, and reads behind the end of a table that has become smaller.
  """
  size = 64
  while True:
    try:
      # a call of C, in which the iterator is made last, as making others may collect garbage: with the interpreter's
      # lock nobody comes between, and without it a dict locks itself for `list`
      newest = chain.from_iterable(map(reversed, (_live,)))
      entries = list(islice(newest, size)) if _HAS_LOCK else list(_live)[::-1]
    except RuntimeError:  # garbage was collected all the same
      continue
    newer = list(takewhile(lambda entry: entry is not mark, entries))
    if len(newer) < len(entries) or len(entries) < size or not _HAS_LOCK:
      return newer
    size *= 4


def live_tensors() -> list[TensorBase]:
  """Every live tensor, oldest first. Whoever is asked in each step asks for `tensors_above` instead."""
  known = {e: t for e in list(_live) if isinstance(e, ref) and (t := e()) is not None}
  return [known[e] for e in sorted(known, key=_age)]


def _age(entry: object) -> int:
  return _live.get(entry, 0)  # not there for a moment while another thread changes the tensor


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


_unfiled = Changes()


def _file() -> None:
  """Files the graphs of all tensors that are not."""
  fresh, mark = _unfiled.look()
  for t in fresh:
    tensors = _place(t.uop).tensors
    if (size := len(tensors)) & (size - 1) == 0:  # at powers of two: each is looked at a few times at most
      for other in [e for e in list(tensors) if (x := e()) is None or x.uop is not t.uop]:
        tensors.pop(other, None)
    tensors[t._entry] = None
    open_nodes = [t.uop]
    while open_nodes:
      node = open_nodes.pop()
      if not (place := _place(node)).filed:
        # a kernel that somebody gave has no tensors in it
        sources = node.src[1:] if node.op is Ops.CALL and is_kernel(node.src[0]) else node.src
        for s in sources:
          below = s.__dict__.get("live") or _place(s)  # mostly it is there: a call less for each edge
          below.readers[ref(node, below.readers.pop)] = None
          if not below.filed:
            open_nodes.append(s)
        place.filed = True
  _unfiled.done(mark)


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
  return [found[e] for e in sorted(found, key=_age)]


def tensors_above(nodes: Iterable[UOp], passes: Callable[[UOp, UOp], bool] | None = None) -> list[TensorBase]:
  """The live tensors whose graphs have one of `nodes` in them, oldest first. `passes`: see `nodes_above`."""
  return tensors_at(nodes_above(nodes, passes))
