"""The result of a replay: tensors that it computes, and tensors that the caller or others had before."""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from tiny_tensor.jit.graphs import any_below, binds_in, buffers_below
from tiny_tensor.jit.run import Run
from tiny_tensor.pytree import leaves, rebuild
from tiny_tensor.realize import storage
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops, UOp

R = TypeVar("R")


class _Replay(NamedTuple):
  """What the results of one replay are made of: the graphs that it computed, its buffers, the caller's tensors (not
  looked at unless `Template.needs_tensors`), and how BINDs, and BUFFERs of arguments, of the capture change."""

  made: Sequence[UOp]
  buffers: Sequence[UOp]
  tensors: Sequence[Tensor]
  binds: dict[UOp, UOp]
  changes: dict[UOp, UOp]
  contents: dict[int, object]


class _Computed:
  """A tensor that every replay makes. Those with the same `contents` are views of each other."""

  def __init__(self, places: dict[UOp, int], t: Tensor) -> None:
    self.uop, self.places, self.contents = t.uop, places, id(t._contents)
    """`places`: where what the tensor consists of is among the graphs that a replay computes; itself, or its pieces."""
    self.requires_grad, self._history = t.requires_grad, t._history

  def of(self, made: Sequence[UOp]) -> UOp:
    """The tensor's graph over what a replay made."""
    if (place := self.places.get(self.uop)) is not None:
      return made[place]
    return self.uop.substitute({part: made[place] for part, place in self.places.items()})

  def tensor(self, replay: _Replay) -> Tensor:
    """The tensor of a replay."""
    made = Tensor._wrap(self.of(replay.made).substitute(replay.binds), self.requires_grad, self._history)
    made._contents = replay.contents[self.contents]
    return made


class _Argument:
  """The caller's tensor itself (`uop` None), or a view of it."""

  def __init__(self, index: int, uop: UOp | None) -> None:
    self.index, self.uop = index, uop

  def tensor(self, replay: _Replay) -> Tensor:
    """The caller's tensor, or a view of it; of the copy that the function got, if the caller's is a view itself."""
    given = replay.tensors[self.index]
    if self.uop is None:
      return given
    view = Tensor._wrap(self.uop.substitute(replay.changes), given.requires_grad)
    if replay.buffers[self.index] in buffers_below(given.uop):
      view._contents = given._contents
    return view


class _Outside:
  """A tensor that existed before the call, or a view of one. It is not held: `get_state_dict` of an object that has a
  TinyJit must not find it there."""

  def __init__(self, t: Tensor, existed: bool) -> None:
    self.reference = weakref.ref(t) if existed else None
    self.uop, self._contents, self.requires_grad = t.uop, t._contents, t.requires_grad

  def tensor(self, replay: _Replay) -> Tensor:
    """The tensor that the function gave, or another view of what it was one of."""
    if self.reference is not None and (t := self.reference()) is not None:
      return t
    view = Tensor._wrap(self.uop.substitute(replay.changes), self.requires_grad)
    view._contents = self._contents
    return view


class Template(Generic[R]):
  """Made of a run; `computed` are the graphs of what a replay has to give, results first, then gradients."""

  def __init__(self, run: Run[R]) -> None:
    self._inputs = run.inputs.buffers
    self.computed: list[UOp] = []
    self._seen: dict[int, Any] = {}
    self._tree = rebuild(run.result, lambda leaf: self._leaf(leaf, run))
    found = [leaf for _, leaf in leaves(self._tree, "") if leaf is not None]
    self._contents = {leaf.contents for leaf in found if isinstance(leaf, _Computed)}
    self._gradients: list[tuple[int, _Computed]] = []
    """Of arguments: the place of the tensor, and its gradient."""
    first = {id(t): place for place, t in reversed(list(enumerate(run.inputs.tensors)))}
    for place, t in enumerate(run.inputs.tensors):
      if t.grad is not None and any_below(t.grad.uop, run.created) and place == first[id(t)]:
        self._gradients.append((place, self._computed(t.grad)))
    self.needs_tensors = bool(self._gradients) or any(isinstance(leaf, _Argument) for leaf in found)
    """Whether `make` looks at the caller's tensors, not only at their buffers."""
    graphs = [*self.computed, *[leaf.uop for leaf in found if not isinstance(leaf, _Computed) and leaf.uop is not None]]
    self.bound = {str(variable.arg[0]): bind for uop in graphs for bind, variable in binds_in(uop).items()}
    """The BINDs in the shapes of results."""
    tree = self._tree
    simple = isinstance(tree, _Computed) and tree.uop in tree.places and not self._gradients and not self.bound
    self.only: _Computed | None = tree if simple else None
    """The result, if it is one tensor, the first of `computed`: `make` does more than that needs."""

  def _leaf(self, leaf: Any, run: Run[R]) -> Any:
    """The placeholder in the tree for a result."""
    if leaf is None:
      return None
    if id(leaf) not in self._seen:
      self._seen[id(leaf)] = self._placeholder(leaf, run)
    return self._seen[id(leaf)]

  def _placeholder(self, t: Tensor, run: Run[R]) -> Any:
    tensors = run.inputs.tensors
    if (places := [n for n, given in enumerate(tensors) if given is t]) != []:
      return _Argument(places[0], None)
    buffer = next(iter(buffers_below(t.uop)), None)
    if buffer in run.created:
      return self._computed(t)
    if buffer in self._inputs:
      return _Argument(self._inputs.index(buffer), t.uop)
    return _Outside(t, t in run.before)

  def _computed(self, t: Tensor) -> _Computed:
    base = storage(t.uop)
    parts = base.src if base is not None and base.op is Ops.MULTI else (t.uop,)
    self.computed += parts
    return _Computed(dict(zip(parts, range(len(self.computed) - len(parts), len(self.computed)))), t)

  def make(
    self, made: Sequence[UOp], buffers: Sequence[UOp], variables: Mapping[str, int], tensors: Sequence[Tensor]
  ) -> R:
    """The result of a replay that computed `made`, with these buffers, values of variables, and the caller's tensors
    (not looked at unless `needs_tensors`)."""
    binds = {bind: bind.src[0].bind(variables[name]) for name, bind in self.bound.items() if name in variables}
    changes = {**binds, **dict(zip(self._inputs, buffers, strict=True))}
    replay = _Replay(made, buffers, tensors, binds, changes, {number: object() for number in self._contents})
    done: dict[Any, Tensor | None] = {None: None}  # a result that is there twice is one tensor

    def result(leaf: Any) -> Tensor | None:
      if leaf not in done:
        done[leaf] = leaf.tensor(replay)
      return done[leaf]

    results: R = rebuild(self._tree, result)
    for place, gradient in self._gradients:
      tensors[place].grad = Tensor._wrap(gradient.of(made))
    return results
