"""The result of a replay: tensors that it computes, and tensors that the caller or others had before."""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from tiny_tensor.jit.graphs import any_below, binds_in, buffers_below
from tiny_tensor.jit.run import Run
from tiny_tensor.pytree import leaves, rebuild
from tiny_tensor.realize import storage
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops, UOp

R = TypeVar("R")


class _Computed:
  """A tensor that every replay makes. Those with the same `contents` are views of each other."""

  def __init__(self, places: dict[UOp, int], t: Tensor) -> None:
    self.uop, self.places, self._contents = t.uop, places, id(t._contents)
    """`places`: where what the tensor consists of is among the graphs that a replay computes; itself, or its pieces."""
    self.requires_grad, self._history = t.requires_grad, t._history

  def of(self, made: Sequence[UOp]) -> UOp:
    """The tensor's graph over what a replay made."""
    if (place := self.places.get(self.uop)) is not None:
      return made[place]
    return self.uop.substitute({part: made[place] for part, place in self.places.items()})


class _Argument:
  """The caller's tensor itself (`uop` None), or a view of it."""

  def __init__(self, index: int, uop: UOp | None) -> None:
    self.index, self.uop = index, uop


class _Outside:
  """A tensor that existed before the call, or a view of one. It is not held: `get_state_dict` of an object that has a
  TinyJit must not find it there."""

  def __init__(self, t: Tensor, existed: bool) -> None:
    self.tensor = weakref.ref(t) if existed else None
    self.uop, self._contents, self.requires_grad = t.uop, t._contents, t.requires_grad


class Template(Generic[R]):
  """Made of a run; `computed` are the graphs of what a replay has to give, results first, then gradients."""

  def __init__(self, run: Run[R]) -> None:
    self._inputs = run.inputs.buffers
    self.computed: list[UOp] = []
    self._seen: dict[int, Any] = {}
    self._tree = rebuild(run.result, lambda leaf: self._leaf(leaf, run))
    self._contents = {leaf._contents for _, leaf in leaves(self._tree, "") if isinstance(leaf, _Computed)}
    self._gradients: list[tuple[int, _Computed]] = []
    """Of arguments: the place of the tensor, and its gradient."""
    first = {id(t): place for place, t in reversed(list(enumerate(run.inputs.tensors)))}
    for place, t in enumerate(run.inputs.tensors):
      if t.grad is not None and any_below(t.grad.uop, run.created) and place == first[id(t)]:
        self._gradients.append((place, self._computed(t.grad)))
    of_arguments = any(isinstance(leaf, _Argument) for _, leaf in leaves(self._tree, ""))
    self.needs_tensors = of_arguments or bool(self._gradients)
    """Whether `make` looks at the caller's tensors, not only at their buffers."""
    self.bound = {str(variable.arg[0]): bind for uop in self._graphs() for bind, variable in binds_in(uop).items()}
    """The BINDs in the shapes of results."""
    tree = self._tree
    simple = isinstance(tree, _Computed) and tree.uop in tree.places and not self._gradients and not self.bound
    self.only: _Computed | None = tree if simple else None
    """The result, if it is one tensor, the first of `computed`: `make` does more than that needs."""

  def _graphs(self) -> list[UOp]:
    others = [leaf.uop for _, leaf in leaves(self._tree, "") if isinstance(leaf, (_Argument, _Outside))]
    return [*self.computed, *[uop for uop in others if uop is not None]]

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
    contents = {number: object() for number in self._contents}
    done: dict[int, Tensor] = {}

    def result(leaf: Any) -> Tensor | None:
      if leaf is None:
        return None
      if id(leaf) not in done:
        if isinstance(leaf, _Computed):
          done[id(leaf)] = Tensor._wrap(leaf.of(made).substitute(binds), leaf.requires_grad, leaf._history)
          done[id(leaf)]._contents = contents[leaf._contents]
        elif isinstance(leaf, _Argument):
          done[id(leaf)] = _of_argument(leaf, tensors[leaf.index], buffers[leaf.index], changes)
        else:
          done[id(leaf)] = _outside(leaf, changes)
      return done[id(leaf)]

    results: R = rebuild(self._tree, result)
    for place, gradient in self._gradients:
      tensors[place].grad = Tensor._wrap(gradient.of(made))
    return results


def _of_argument(leaf: _Argument, given: Tensor, buffer: UOp, changes: dict[UOp, UOp]) -> Tensor:
  """The caller's tensor, or a view of it; of the copy that the function got, if the caller's is a view itself."""
  if leaf.uop is None:
    return given
  view = Tensor._wrap(leaf.uop.substitute(changes), given.requires_grad)
  if buffer in buffers_below(given.uop):
    view._contents = given._contents
  return view


def _outside(leaf: _Outside, changes: dict[UOp, UOp]) -> Tensor:
  """The tensor that the function gave, or another view of what it was one of."""
  if leaf.tensor is not None and (t := leaf.tensor()) is not None:
    return t
  view = Tensor._wrap(leaf.uop.substitute(changes), leaf.requires_grad)
  view._contents = leaf._contents
  return view
