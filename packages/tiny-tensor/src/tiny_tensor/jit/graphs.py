"""Questions of `TinyJit` about graphs and about the live tensors."""

import threading
import weakref
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from tiny_tensor.base import TensorBase
from tiny_tensor.live import Changes, live_tensors, nodes_above, tensors_above, tensors_at
from tiny_tensor.pytree import leaves
from tiny_tensor.realize import buffer_under, is_holder, is_realized, pieces_of, realize_tensors, storage, writer
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops, UOp, written_params

T = TypeVar("T", bound=TensorBase)


def buffers_below(uop: UOp) -> tuple[UOp, ...]:
  """The BUFFERs, one for each device, that a realised tensor is a view of; none for one that is not realised."""
  base = storage(uop)
  return () if base is None or base.op is Ops.AFTER else tuple([piece.base for piece in pieces_of(base)])


def any_below(uop: UOp, buffers: Collection[UOp]) -> bool:
  """Whether a tensor is realised, and a view of one of the BUFFERs."""
  return any(b in buffers for b in buffers_below(uop))


def is_whole(uop: UOp) -> bool:
  """Whether a tensor is all of its buffers, in order."""
  while uop.op in (Ops.RESHAPE, Ops.DETACH):
    uop = uop.src[0]
  return is_holder(uop) and uop.op is not Ops.AFTER


def binds_in(uop: UOp) -> dict[UOp, UOp]:
  """The BINDs in a graph, each with its VARIABLE."""
  return {u: u.src[0] for u in uop.toposort if u.op is Ops.BIND}


def all_tensors() -> list[Tensor]:
  """Every live tensor, oldest first."""
  return [t for t in live_tensors() if isinstance(t, Tensor)]


def tensors_in(tree: Any) -> list[Tensor]:
  """The tensors in a container, in order; one that is in it twice comes twice."""
  return [leaf for _, leaf in leaves(tree, "") if isinstance(leaf, Tensor)]


def realize_lazy(tensors: Iterable[Tensor]) -> None:
  """Realises those of the tensors that are not."""
  if lazy := [t for t in tensors if not is_realized(t.uop)]:
    realize_tensors(lazy)


def assigned(tensors: Iterable[T]) -> list[T]:
  """Those of the tensors that were assigned to and are not computed since."""
  return [t for t in tensors if (base := storage(t.uop)) is not None and base.op is Ops.AFTER]


def waiting() -> list[Tensor]:
  """The live tensors that this thread assigned to, or one that has ended, and that are not computed since. What other
  threads have assigned they carry out themselves: here it would be done twice."""
  found = assigned(all_tensors())
  others = {t.ident for t in threading.enumerate()} - {threading.get_ident()} if found else set()
  return [t for t in found if (base := storage(t.uop)) is None or writer(base) not in others]


def carry_out_writes(to: Collection[UOp] | None = None) -> None:
  """Realises the live tensors that were assigned to, if they lie in the BUFFERs `to` (None: what is `waiting`)."""
  if found := waiting() if to is None else [t for t in assigned(tensors_above(to)) if _lies_in(t, to)]:
    realize_tensors(found)


def _lies_in(t: TensorBase, buffers: Collection[UOp]) -> bool:
  return any(piece.base in buffers for piece in pieces_of(buffer_under(t.uop.base)))


def written_slots(call: UOp) -> set[int]:
  """The positions of the arguments that a CALL writes."""
  return {0} if call.src[0].op is Ops.COPY else written_params(call.src[0])


def variables_of(calls: Iterable[UOp]) -> set[str]:
  """The names of the variables that CALLs take."""
  return {str(a.src[0].arg[0]) for call in calls for a in call.src[1:] if a.op is Ops.BIND}


def updated_by(calls: Iterable[UOp]) -> set[UOp]:
  """The BUFFERs that CALLs write."""
  slots: dict[UOp, set[int]] = {}  # many calls are of few kernels, and finding it out looks through all of one
  found: set[UOp] = set()
  for call in calls:
    if (written := slots.get(call.src[0])) is None:
      written = slots[call.src[0]] = written_slots(call)
    found.update(argument_buffer(call.src[1 + slot]) for slot in written)
  return found


def argument_buffer(argument: UOp) -> UOp:
  """The BUFFER of an argument of a CALL that is one or a part of one."""
  return argument.src[0] if argument.op is Ops.BUFFER_VIEW else argument


class Alive:
  """The tensors that live at a time, without keeping them alive."""

  def __init__(self) -> None:
    self._references = {id(t): weakref.ref(t) for t in all_tensors()}

  def __contains__(self, t: Tensor) -> bool:
    found = self._references.get(id(t))
    return found is not None and found() is t


def holders() -> "dict[UOp, list[weakref.ref[Tensor]]]":
  """For each BUFFER the live tensors with it in their graphs."""
  found: dict[UOp, list[weakref.ref[Tensor]]] = {}
  for t in all_tensors():
    for u in t.uop.toposort:
      if u.op is Ops.BUFFER:
        found.setdefault(u, []).append(weakref.ref(t))
  return found


def compute_readers(updated: Collection[UOp]) -> None:
  """Realises the live tensors that are not computed yet and read one of the BUFFERs."""
  if (computed := [u for u in nodes_above(updated) if not buffers_below(u)]) and (readers := tensors_at(computed)):
    realize_tensors(readers)


class Readers:
  """The live tensors that replays of a graph have to do with. A tensor is looked at when it is new or has changed."""

  def __init__(self, updated: Collection[UOp], watched: Collection[UOp]) -> None:
    """The BUFFERs that are `updated` in a replay, and those `watched` of which the views are asked for."""
    self._updated, self._watched = updated, watched
    self._changes = Changes()
    self._views: dict[weakref.ref[TensorBase], UOp] = {}

  def compute(self) -> list[Tensor]:
    """Realises what is not computed yet and reads something `updated`. Gives the live views of what is `watched`."""
    changed, mark = self._changes.look()
    readers = []
    for t in changed:
      if not (buffers := buffers_below(t.uop)):
        if any(u in self._updated for u in t.uop.walk()):
          readers.append(t)
      elif self._watched and any(b in self._watched for b in buffers):
        self._views[t._entry] = t.uop
    if readers:
      realize_tensors(readers)
    self._changes.done(mark)
    views = self._views
    found = [v for entry, uop in views.items() if (v := entry()) is not None and v.uop is uop]
    if len(found) != len(views):
      self._views = {v._entry: v.uop for v in found}
    return [v for v in found if isinstance(v, Tensor)]
