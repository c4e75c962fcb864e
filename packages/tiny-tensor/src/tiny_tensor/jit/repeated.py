"""`Repeated`: a part of a program that is run again and again over other tensors, such as the layers of a model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from tiny_runtime import capture
from tiny_tensor.autograd import tracing
from tiny_tensor.capturing import JitError
from tiny_tensor.jit import graphs
from tiny_tensor.jit.inputs import Inputs, named_parameters
from tiny_tensor.pytree import rebuild
from tiny_tensor.realize import run_schedule
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops, UOp, dtypes
from tiny_uop.context import JIT
from tiny_uop.locks import undivided
from tiny_uop.origins import origins_of, set_origins

__all__ = ["Repeated"]

P = ParamSpec("P")
R = TypeVar("R")


class Repeated(Generic[P, R]):
  """Calls a function of tensors, and from the second call that is like an earlier one on only runs its kernels, over
  the buffers of the tensors that are given now.

  It is for what a program repeats within one run: of 30 layers that are alike, Python builds and schedules one. Inside
  a `TinyJit` its kernels become part of what that captures, and outside they run at once; either way each is launched
  by itself, so that a `TinyJit` around all of it is faster from its third call on.

  Calls are alike if their tensors (also in lists, tuples, dicts and dataclasses) have the same shapes, dtypes and
  devices, and all else is the same; variables may be bound to other values. The function may assign to its arguments,
  and is otherwise one of its arguments alone: JitError if it reads other tensors, draws random numbers, or assigns to
  an argument that is a view. What it returns is realised, and has no history of gradients; where an argument requires
  one, under transforms, and with `JIT=0` these are plain calls.
  """

  def __init__(self, fxn: Callable[P, R]) -> None:
    self.fxn = fxn
    self._names = named_parameters(fxn)
    self._kinds: dict[tuple[Any, ...], _Kind] = {}
    functools.update_wrapper(self, fxn)

  def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
    if tracing.active() or not JIT.value:
      return self.fxn(*args, **kwargs)
    inputs = Inputs(self._names, args, kwargs)
    if any(t.requires_grad for t in inputs.tensors):
      return self.fxn(*args, **kwargs)
    key = tuple(inputs.described.items())
    if (kind := self._kinds.get(key)) is not None:
      return kind.run(inputs)  # type: ignore[no-any-return]
    if not inputs.copies:  # what is given itself: profiles know objects by their names, and copies of them by none
      inputs.args, inputs.kwargs = args, kwargs
    return self._first(key, inputs)

  def _first(self, key: tuple[Any, ...], inputs: Inputs) -> R:
    """Calls the function, and keeps what it ran."""
    with capture() as schedules:
      result: R = self.fxn(*inputs.args, **inputs.kwargs)
      graphs.realize_lazy({id(t): t for t in graphs.tensors_in(result)}.values())
      graphs.carry_out_writes(inputs.buffers)
    self._kinds[key] = _Kind(inputs, schedules, schedules.created.difference(inputs.buffers), result)
    return result


class _Kind:
  """What one kind of call runs, over BUFFERs that stand for those of a call and have no memory."""

  def __init__(self, inputs: Inputs, schedules: list[UOp], created: frozenset[UOp], result: Any) -> None:
    calls = [call for linear in schedules for call in linear.src]
    used = {graphs.argument_buffer(a): None for call in calls for a in call.src[1:]}
    variables = {u for u in used if u.op is Ops.BIND}
    given = {*inputs.buffers, *created, *variables}
    if others := [u for u in used if u not in given]:
      raise JitError(
        f"the function reads a tensor of {others[0].arg[1]} {others[0].dtype.name} on {others[0].device} that is no "
        "argument (or draws a random number): the next call would read that one again. Give it as an argument"
      )
    if unknown := [u for u in variables if str(u.src[0].arg[0]) not in inputs.variables]:
      raise JitError(f"the variable {unknown[0].src[0].arg[0]!r} is no argument: bind it outside, and give it")
    if not (written := graphs.updated_by(calls)).isdisjoint(inputs.copies):
      raise JitError("the function assigns to an argument that is a view: pass all of its buffer")
    places = {u: _another(u) for u in (*inputs.buffers, *created)}
    self._given = [places[u] for u in inputs.buffers]
    self._written = [n for n, u in enumerate(inputs.buffers) if u in written]
    self._made = [places[u] for u in used if u in created]
    self._binds = list(variables | {bind for t in graphs.tensors_in(result) for bind in graphs.binds_in(t.uop)})
    self._linear = _over(UOp(Ops.LINEAR, dtypes.void, tuple(calls)), places)
    self._result = rebuild(result, lambda t: None if t is None else t.uop.substitute(places))

  def run(self, inputs: Inputs) -> Any:
    """Runs the kernels of a call like the first, and gives its result."""
    # others may still want what is there now
    graphs.compute_readers([inputs.buffers[n] for n in self._written])
    places = dict(zip(self._given, inputs.buffers, strict=True))
    places |= {u: _another(u) for u in self._made}
    places |= {bind: bind.src[0].bind(inputs.variables[str(bind.src[0].arg[0])]) for bind in self._binds}
    result = rebuild(self._result, lambda uop: None if uop is None else Tensor._wrap(uop.substitute(places)))
    with undivided:
      run_schedule(_over(self._linear, places))
    return result


def _another(buffer: UOp) -> UOp:
  """A new BUFFER of the same size."""
  assert buffer.device is not None
  return UOp.new_buffer(buffer.device, buffer.arg[1], buffer.dtype)


def _over(linear: UOp, places: dict[UOp, UOp]) -> UOp:
  """A schedule over other buffers and values of variables."""

  def argument(uop: UOp) -> UOp:
    if uop.op is Ops.BUFFER_VIEW:
      return uop.with_src((places[uop.src[0]], *uop.src[1:]))
    return places.get(uop, uop)

  calls = []
  for call in linear.src:
    made = call.with_src((call.src[0], *map(argument, call.src[1:])))
    set_origins(made, origins_of(call))
    calls.append(made)
  return linear.with_src(tuple(calls))
