"""`TinyJit`: a function of tensors, captured once as a list of kernels and then replayed without its Python."""

import functools
import gc
import weakref
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from tiny_runtime import CapturedGraph, buffer_of, capture
from tiny_tensor import capturing
from tiny_tensor.base import live_tensors
from tiny_tensor.capturing import JitError
from tiny_tensor.containers import leaves, rebuild
from tiny_tensor.jit_call import PLAIN, QuickCall, quick_call
from tiny_tensor.realize import is_realized, realize_tensors, storage
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops, UOp
from tiny_uop.context import JIT

__all__ = ["JitError", "TinyJit"]

P = ParamSpec("P")
R = TypeVar("R")

_MUTABLE_DATA = (bytearray, memoryview)


def buffer_below(uop: UOp) -> UOp | None:
  """The BUFFER that a realised tensor is a view of; None for one that is not realised."""
  base = storage(uop)
  return base if base is not None and base.op is Ops.BUFFER else None


def _is_whole(uop: UOp) -> bool:
  """Whether a tensor is all of its buffer, in order."""
  while uop.op in (Ops.RESHAPE, Ops.DETACH):
    uop = uop.src[0]
  return uop.op is Ops.BUFFER


def _binds(uop: UOp) -> dict[UOp, UOp]:
  """The BINDs in a graph, each with its VARIABLE."""
  return {u: u.src[0] for u in uop.toposort if u.op is Ops.BIND}


class Inputs:
  """The arguments of one call: buffers and variables that a replay substitutes, and a description of all the rest."""

  def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    found = [*leaves(args, "args"), *leaves(kwargs, "kwargs")]
    tensors = [leaf for _, leaf in found if isinstance(leaf, Tensor)]
    if lazy := [t for t in tensors if not is_realized(t.uop)]:
      lazy[0].realize(*lazy[1:])
    self.buffers: list[UOp] = []
    self.copies: list[UOp] = []
    """Those of the buffers that are copies: the caller's tensor is a view, or a constant."""
    self.variables: dict[str, int] = {}
    self.described: dict[str, Any] = {"Tensor.training": (bool, Tensor.training)}
    self._owners: dict[UOp, str] = {}
    replaced: dict[int, Tensor] = {}
    for path, leaf in found:
      if isinstance(leaf, Tensor):
        replaced[id(leaf)] = self._tensor(path, leaf)
      elif isinstance(leaf, UOp):
        self.described[path] = ("variable", self._bind(path, leaf).arg)
      elif isinstance(leaf, _MUTABLE_DATA) or hasattr(leaf, "__array_interface__"):
        raise JitError(f"{path} is a {type(leaf).__name__}, whose contents a replay would not look at: pass a Tensor")
      else:
        self.described[path] = (type(leaf), leaf) if isinstance(leaf, PLAIN) else _Same(leaf)
    self.args, self.kwargs = rebuild((args, kwargs), lambda leaf: replaced.get(id(leaf), leaf))

  def _bind(self, path: str, uop: UOp) -> UOp:
    """Notes the value of a bound variable, and gives the variable."""
    if uop.op is not Ops.BIND:
      raise JitError(f"{path} is the UOp {uop!r}: only a bound Variable can be an argument")
    variable, value = uop.unbind()
    name = str(variable.arg[0])
    if self.variables.setdefault(name, value) != value:
      raise JitError(f"variable {name!r} is bound to {self.variables[name]} and, in {path}, to {value}")
    return variable

  def _tensor(self, path: str, t: Tensor) -> Tensor:
    """Notes a tensor, and gives the one to call the function with."""
    binds = _binds(t.uop)
    for bind in binds:
      self._bind(path, bind)
    if 0 in t.shape:
      self.described[path] = ("tensor", t.shape, t.dtype.name, t.device, t.requires_grad, None)
      return t
    if not binds and not _is_whole(t.uop):
      # where a view begins is part of the graph: a copy is right for every view
      t = Tensor(t.uop).contiguous().realize().requires_grad_(t.requires_grad)
      self.copies += [below] if (below := buffer_below(t.uop)) is not None else []
    buffer = buffer_below(t.uop)
    if buffer is None:
      raise JitError(f"{path}, of shape {t.shape}, has no buffer after it was realised: {t.uop!r}")
    if buffer in self._owners:
      raise JitError(
        f"{path} and {self._owners[buffer]} are the same buffer: a replay could not tell them apart, copy one"
      )
    self._owners[buffer] = path
    self.buffers.append(buffer)
    shape = tuple(s if isinstance(s, int) else s.substitute(_binds(s)) for s in t.shape)
    view = t.uop.substitute({**binds, buffer: UOp.const(buffer.dtype, 0, (buffer.arg[1],))}) if binds else None
    self.described[path] = ("tensor", shape, t.dtype.name, t.device, t.requires_grad, view)
    return t

  def check_like(self, captured: "Inputs") -> None:
    """Raises JitError, naming the first argument that differs from how it was at the capture."""
    if self.described == captured.described:
      return
    for path in {**captured.described, **self.described}:
      was, now = captured.described.get(path, _ABSENT), self.described.get(path, _ABSENT)
      if was != now:
        raise JitError(
          f"{path} is {_show(now)}, it was {_show(was)} when TinyJit captured the function: "
          "use a TinyJit for each kind of call, or reset() it"
        )


@dataclass(frozen=True, eq=False)
class _Same:
  """An argument of no type that can be compared: it has to be the same object."""

  value: object

  def __eq__(self, other: object) -> bool:
    return isinstance(other, _Same) and other.value is self.value

  def __hash__(self) -> int:
    return id(self.value)


_ABSENT = _Same("absent")


def _show(described: Any) -> str:
  if isinstance(described, _Same):
    return f"{described.value!r}"
  if isinstance(described, tuple) and described[0] == "tensor":
    _, shape, dtype, device, grad, view = described
    viewed = "" if view is None else ", a symbolic view"
    return f"a {dtype} tensor of shape {shape} on {device} with requires_grad={grad}{viewed}"
  if isinstance(described, tuple) and described[0] == "variable":
    name, low, high = described[1]
    return f"the variable {name!r} in [{low}, {high}]"
  return repr(described[1])


class Captured(Generic[R]):
  """A function's kernels, and how to make its result from their outputs."""

  def __init__(self, fxn: Callable[..., R], inputs: Inputs) -> None:
    pending = _pending()
    with capturing.recording() as recorded, capture() as schedules:
      self.result = fxn(*inputs.args, **inputs.kwargs)
    linears = list(schedules)
    calls = [call for linear in linears for call in linear.src]
    found = list(leaves(self.result, "the result"))
    outputs = [buffer for path, leaf in found if (buffer := _output(path, leaf)) is not None]
    if not calls:
      raise JitError("the function ran no kernel, so there is nothing to capture: realize() what it computes")
    if new := _pending() - pending:
      raise JitError(
        f"the function assigns to a tensor of {next(iter(new)).src[0].size} elements that nothing realises: "
        "call realize() on it, or give it to the optimiser whose step() does"
      )
    _check_kept(schedules.created, set(outputs))
    _check_copies(calls, inputs.copies)
    self._check_variables(calls, inputs)
    used = {b for call in calls for a in call.src[1:] for b in a.toposort if b.op is Ops.BUFFER}
    self.inputs = inputs
    self.draws = recorded.draws
    # what lives outside and is written by replays
    self._updated = updated_by(calls) - schedules.created
    self._unaffected: weakref.WeakSet[UOp] = weakref.WeakSet()
    self._positions = [i for i, buffer in enumerate(inputs.buffers) if buffer in used]
    # graphs, not tensors: the capture's own result belongs to the caller, and get_state_dict must find no tensors here
    self._template = rebuild(self.result, lambda leaf: leaf if leaf is None else self._placeholder(leaf.uop))
    self._alone = isinstance(self._template, _Computed)
    results = [leaf.uop for _, leaf in leaves(self._template, "") if isinstance(leaf, _Computed)]
    given = [inputs.buffers[i] for i in self._positions]
    self._graph = CapturedGraph(schedules, given, results, schedules.created - _looked_at())

  def _placeholder(self, uop: UOp) -> "_Computed | UOp":
    """What stands in the template for a result: itself, if it is an argument or has no elements."""
    buffer = buffer_below(uop)
    return uop if buffer is None or buffer in self.inputs.buffers else _Computed(uop)

  def _check_variables(self, calls: list[UOp], inputs: Inputs) -> None:
    self._variables = {str(a.src[0].arg[0]) for call in calls for a in call.src[1:] if a.op is Ops.BIND}
    if hidden := self._variables - inputs.variables.keys():
      raise JitError(
        f"variable {', '.join(sorted(hidden))} is bound inside the function or around it: pass it as an argument, "
        "or replays would use this call's value"
      )

  def __call__(self, inputs: Inputs) -> R:
    """Replays over other inputs."""
    inputs.check_like(self.inputs)
    return self.replay(inputs.buffers, inputs.variables)

  def replay(self, buffers: list[UOp], variables: dict[str, int]) -> R:
    """Replays over the buffers of other inputs, in their order, and other values of variables."""
    if self._updated:
      self._before(buffers)
    for buffer, following in self.draws:
      buffer_of(buffer).write(following())
    given = buffers if len(self._positions) == len(buffers) else [buffers[i] for i in self._positions]
    bound = {name: variables[name] for name in self._variables} if self._variables else None
    made = self._graph.replay(given, bound)
    if self._bound:
      binds = {bind: bind.src[0].bind(variables[name]) for name, bind in self._bound.items() if name in variables}
      made = tuple([uop.substitute(binds) for uop in made])
    if self._alone:
      return Tensor.wrap(made[0])  # type: ignore[return-value]  # what the function returns is a Tensor
    new, computed = dict(zip(self.inputs.buffers, buffers)), iter(made)

    def result(leaf: "_Computed | UOp | None") -> Tensor | None:
      if leaf is None:
        return None
      return Tensor.wrap(next(computed) if isinstance(leaf, _Computed) else leaf.substitute(new))

    results: R = rebuild(self._template, result)
    return results

  def _before(self, given: list[UOp]) -> None:
    """Computes what still has to read what the replay will overwrite."""
    new = dict(zip(self.inputs.buffers, given))
    if new.keys().isdisjoint(self._updated):
      compute_readers(self._updated, self._unaffected)
    else:  # an argument is written, another one every time: what was looked at has to be looked at again
      compute_readers({new.get(buffer, buffer) for buffer in self._updated}, weakref.WeakSet())

  @functools.cached_property
  def _bound(self) -> dict[str, UOp]:
    """The BINDs in the shapes of the outputs."""
    uops = [leaf.uop for _, leaf in leaves(self._template, "") if isinstance(leaf, _Computed)]
    return {str(variable.arg[0]): bind for uop in uops for bind, variable in _binds(uop).items()}


@dataclass(frozen=True)
class _Computed:
  """In a template: a result that replays compute, with the graph that it had at the capture."""

  uop: UOp


def _output(path: str, leaf: Any) -> UOp | None:
  """The buffer of one output; None if there is nothing in it. Raises JitError for what a replay could not make."""
  if leaf is None or (isinstance(leaf, Tensor) and 0 in leaf.shape):
    return None
  if not isinstance(leaf, Tensor):
    raise JitError(
      f"{path} is the {type(leaf).__name__} {leaf!r}, which a replay would not compute again: return Tensors"
    )
  if (buffer := buffer_below(leaf.uop)) is None:
    raise JitError(
      f"{path}, of shape {leaf.shape}, was never realised: call realize() on it before the function returns"
    )
  return buffer


def _live_nodes() -> set[UOp]:
  """The graphs of all live tensors."""
  seen: set[UOp] = set()
  for t in live_tensors():
    if t.uop not in seen:
      seen.update(t.uop.toposort)
  return seen


def _pending() -> set[UOp]:
  """The assignments that live tensors wait for."""
  return {u for u in _live_nodes() if u.op is Ops.AFTER}


def _looked_at() -> set[UOp]:
  """The BUFFERs that live tensors may read."""
  return {u for u in _live_nodes() if u.op is Ops.BUFFER}


def _check_kept(created: frozenset[UOp], outputs: set[UOp]) -> None:
  """Raises JitError if a tensor made in the function lives on without being returned: replays would not update it."""

  def kept() -> list[Any]:
    tensors = live_tensors()
    grads = {id(t.grad) for t in tensors if t.grad is not None}
    mine = [t for t in tensors if (buffer := buffer_below(t.uop)) in created and buffer not in outputs]
    return [t for t in mine if id(t) not in grads]

  if kept():
    gc.collect()  # it may only wait for the collector
  if found := kept():
    raise JitError(
      f"a tensor of shape {found[0].shape} that the function made is kept outside of it, where replays would not "
      "update it: return it, or assign() to a tensor that exists before"
    )


def _written(call: UOp) -> set[int]:
  """Which arguments of a CALL are written."""
  slots = {0} if call.src[0].op is Ops.COPY else set()
  for store in (u for u in call.src[0].toposort if u.op is Ops.STORE):
    pointer = store.src[0]
    while pointer.op in (Ops.INDEX, Ops.AFTER):
      pointer = pointer.src[0]
    if pointer.op is Ops.PARAM:
      slots.add(pointer.arg)
  return slots


def updated_by(calls: Iterable[UOp]) -> set[UOp]:
  """The BUFFERs that CALLs write."""
  found = {call.src[1 + slot] for call in calls for slot in _written(call)}
  return {a.src[0] if a.op is Ops.BUFFER_VIEW else a for a in found}


def compute_readers(updated: Collection[UOp], unaffected: "weakref.WeakSet[UOp]") -> None:
  """Realises the live tensors that are not computed yet and read one of the BUFFERs `updated`, but those `unaffected`,
  to which it adds the others."""
  readers = []
  buffer, reshape = Ops.BUFFER, Ops.RESHAPE
  for t in live_tensors() if updated else ():
    uop = t.uop
    # nearly all are computed, which is seen sooner than found in the set
    while uop.op is reshape:
      uop = uop.src[0]
    if uop.op is buffer or t.uop in unaffected:
      continue
    if buffer_below(t.uop) is None and any(u in updated for u in t.uop.walk()):
      readers.append(t)
    else:
      unaffected.add(t.uop)
  if readers:
    realize_tensors(readers)


def _check_copies(calls: list[UOp], copies: list[UOp]) -> None:
  """Raises JitError if an argument that was copied is written: the caller would not see it."""
  for call in calls:
    arguments = call.src[1:]
    if copies and (written := [arguments[slot] for slot in _written(call) if arguments[slot].base in copies]):
      raise JitError(
        f"the function assigns to an argument of {written[0].size} elements that is a view: pass all of its buffer"
      )


class TinyJit(Generic[P, R]):
  """Calls a function of tensors; captures what it runs on the second call, and replays that from the third on.

  Tensors in the arguments (also in lists, tuples and dicts) are inputs, and so are bound Variables; all other arguments
  must stay as they were. The function has to realise what it returns (Tensors, in containers of any nesting, or None).
  Every replay returns new tensors and leaves those of earlier calls alone. Random draws go on as without the jit.

  What the function does in Python happens only in the first two calls. Its state has to be in tensors that exist before
  and are updated with `assign`. JitError is raised for what is seen to go wrong: other shapes, dtypes, devices, plain
  arguments or `Tensor.training`; one buffer given twice; an output or an assignment that was never realised; a value
  read, or a variable bound, inside; a tensor made inside and kept.

  A method is captured once per object. `JIT=0` turns all of this into plain calls.
  """

  def __init__(self, fxn: Callable[P, R]) -> None:
    self.fxn = fxn
    self._calls = 0
    self._captured: tuple[Captured[R], QuickCall | None] | None = None
    self._updated: weakref.WeakSet[UOp] = weakref.WeakSet()
    self._bound: weakref.WeakKeyDictionary[Any, TinyJit[..., R]] = weakref.WeakKeyDictionary()
    functools.update_wrapper(self, fxn)

  @property
  def captured(self) -> bool:
    """Whether the next call is a replay."""
    return self._captured is not None

  def reset(self) -> None:
    """Forgets the capture: the next two calls run the function again."""
    self._calls, self._captured = 0, None

  def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
    # inside another capture the function's kernels become part of that
    if not JIT.value or capturing.current() is not None:
      return self.fxn(*args, **kwargs)
    if self._captured is not None:
      captured, quick = self._captured
      if quick is not None and (found := quick.match(args, kwargs)) is not None:
        return captured.replay(*found)
      return captured(Inputs(args, kwargs))
    if self._calls == 0:
      with capture() as schedules:
        result = self.fxn(*args, **kwargs)
      self._calls, calls = 1, (call for linear in schedules for call in linear.src)
      self._updated = weakref.WeakSet(updated_by(calls) - schedules.created)
      return result
    inputs = Inputs(args, kwargs)
    # other tensors must not be computed inside the capture, nor read later what it overwrites
    compute_readers([*self._updated, *inputs.buffers], weakref.WeakSet())
    made: Captured[R] = Captured(self.fxn, inputs)
    result, self._captured = made.result, (made, quick_call(args, kwargs))
    del made.result
    return result

  def __get__(self, obj: Any, owner: type | None = None) -> "TinyJit[..., R]":
    if obj is None:
      return self
    if (found := self._bound.get(obj)) is None:
      reference, fxn = weakref.ref(obj), self.fxn

      def method(*args: Any, **kwargs: Any) -> R:
        if (me := reference()) is None:
          raise ReferenceError(
            f"the object whose method {getattr(fxn, '__name__', fxn)!r} is called does not exist any more"
          )
        return fxn(me, *args, **kwargs)

      found = self._bound[obj] = TinyJit(functools.wraps(fxn)(method))
    return found
