"""`checkpoint` and `function`: calls whose backward pass is not that of their graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast, overload

from tiny_tensor.autograd import tracing
from tiny_tensor.autograd.custom_gradient import Grads, Pullback, with_gradient
from tiny_tensor.autograd.reverse import pullback
from tiny_tensor.autograd.rules import moved, view_chain
from tiny_tensor.autograd.tracing import Frame
from tiny_tensor.base import is_const
from tiny_tensor.custom_kernel import checked_gradients
from tiny_tensor.pytree import rebuild, refilled
from tiny_tensor.tensor import Tensor
from tiny_tensor.transforms.batching_rules import written_buffer
from tiny_uop import Ops, UOp, dtypes
from tiny_uop.records import dataclass

F = TypeVar("F", bound=Callable[..., Any])


def called(
  what: str, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], pull: Callable[[int], Pullback],
  transparent: bool,
) -> Any:  # fmt: skip
  """What `f` gives, with a derivative of its own in the Tensors among its arguments: `pull(their number)`.

  Values that it takes from around it are inputs after these.
  """
  name = f"{what}({tracing.name_of(f)})"
  frame = Frame(name, pure=True)
  arguments: list[UOp] = []

  def argument(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
      return leaf
    arguments.append(frame.argument(leaf.uop))
    return leaf._derive(arguments[-1])

  inner_args, inner_kwargs = rebuild((args, kwargs), argument)
  with tracing.running(frame):
    result = f(*inner_args, **inner_kwargs)
  outputs: list[Tensor] = tracing.returned(result, name)
  around = taken_from_around(arguments, [o.uop for o in outputs])
  made = with_gradient(
    [o.uop for o in outputs], (*arguments, *around), pull(len(arguments)), name, transparent=transparent,
    given=None if transparent else len(arguments),
  )  # fmt: skip
  return refilled(result, [o._derive(m) for o, m in zip(outputs, made, strict=True)])


def depending(roots: Sequence[UOp], leaves: Iterable[UOp]) -> dict[UOp, None]:
  """The nodes of the roots' graphs that depend on leaves, sources first; not the leaves themselves."""
  inside = set(leaves)
  found: dict[UOp, None] = {}
  top = UOp.sink(*roots)
  for u in top.walk(lambda n: n not in inside):
    if u is not top and u not in inside and any(s in inside for s in u.src):
      inside.add(u)
      found[u] = None
  return found


def taken_from_around(arguments: Sequence[UOp], outputs: Sequence[UOp]) -> tuple[UOp, ...]:
  """The float values of a function's graph that do not depend on its arguments, but are used with what does."""
  inside = depending(outputs, arguments)
  own = {*arguments, *inside}
  taken: dict[UOp, None] = {}
  for u in inside:
    # where something is written to is no value that is taken
    taken.update((s, None) for s in u.src[u.op is Ops.STORE :] if s not in own)
  taken.update((o, None) for o in outputs if o not in own)
  return tuple([u for u in taken if dtypes.is_float(u.dtype) and any(n.op is Ops.BUFFER for n in u.walk())])


# *** checkpoint ***


@dataclass(frozen=True)
class Recompute:
  """The pullback of a function that is called again: its first `arguments` inputs come back once the gradients are
  there, and the graph of its results is made anew of them."""

  arguments: int

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    given = [g for g in gs if g is not None]
    again = {a: after(a.src[0] if a.op is Ops.CUSTOM_GRADIENT else a, given) for a in inputs[: self.arguments]}
    values = [r.src[0] for r in results]
    inside = depending(values, inputs[: self.arguments])
    written = dict.fromkeys(written_buffer(u) for u in inside if u.op is Ops.STORE)
    again |= {b: UOp.new_buffer(str(b.device), b.arg[1], b.dtype) for b in written}
    pairs = [(v.substitute(again), g) for v, g in zip(values, gs, strict=True) if g is not None]
    targets = [again.get(i, i) for i in inputs]
    made = pullback(pairs, targets)
    found = [made.get(t) for t in targets]
    around = [(i, g) for i, g in zip(inputs[self.arguments :], found[self.arguments :]) if g is not None]
    # what is computed from the gradients of the arguments waits until those of parameters are there, which read the
    # values that were computed again: one function's values are in memory at a time
    sums = [g for i, at in around if (g := pullback([(i, at)], [i.base]).get(i.base)) is not None]
    if not sums:
      return tuple(found)
    return (*[None if g is None else after(g, sums) for g in found[: self.arguments]], *found[self.arguments :])


def after(value: UOp, before: Sequence[UOp]) -> UOp:
  """The value, later than others: below its movement operations, which it does not have to be copied for."""
  moves = view_chain(value)
  value = moves[0].src[0] if moves else value
  if value.op is not Ops.CONST:
    value = value.later_than(*dict.fromkeys([g.base for g in before if not is_const(g)]))
  return moved(value, moves)


def checkpoint(f: F) -> F:
  """`f`, whose intermediate values are not kept for the backward pass but computed again in it, from the arguments,
  once the gradient has come back to where `f` gave its results: less memory for more time (Chen et al., "Training deep
  nets with sublinear memory cost", 2016).

  Values, derivatives of any order, and random draws are those of `f`. It may not write to Tensors from outside
  (TransformError); what does not depend on its arguments is not computed again.
  """

  @functools.wraps(f)
  def checkpointed(*args: Any, **kwargs: Any) -> Any:
    return called("checkpoint", f, args, kwargs, Recompute, True)

  return cast(F, checkpointed)


# *** function ***


class Given:
  """The pullback that a user's function is, in terms of Tensors."""

  def __init__(self, name: str, grad_fxn: Callable[..., Any], arguments: int) -> None:
    self.name, self.grad_fxn, self.arguments = name, grad_fxn, arguments

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    gradient = [Tensor._wrap(r.const_like(0) if g is None else g, False) for g, r in zip(gs, results, strict=True)]
    output = [Tensor._wrap(r, False) for r in results]
    given = [Tensor._wrap(i, False) for i in inputs[: self.arguments]]
    one = len(results) == 1
    first = gradient[0] if one else tuple(gradient)
    found = self.grad_fxn(first, output[0] if one else tuple(output), *given)
    return (*checked_gradients(self.name, found, given), *[None] * (len(inputs) - self.arguments))


@overload
def function(fxn: F, *, grad_fxn: Callable[..., Any] | None = None) -> F: ...


@overload
def function(fxn: None = None, *, grad_fxn: Callable[..., Any] | None = None) -> Callable[[F], F]: ...


def function(fxn: Callable[..., Any] | None = None, *, grad_fxn: Callable[..., Any] | None = None) -> Any:
  """Decorator: a function of Tensors with a gradient of its own.

  `grad_fxn(gradient, output, *inputs)` gets the gradient of the result, the result, and the Tensors among the arguments
  (those in containers, too) in order, and gives the gradient of each, or None. For several results `gradient` and
  `output` are tuples. It is made of Tensors, too, so that derivatives of higher order, vmap and jvp go through it;
  forward mode is its transpose, and needs one that is linear in `gradient`. A value that the function takes from around
  it has no gradient: wanting one is a RuntimeError.

  Without `grad_fxn` the derivative is that of what the function computes.
  """
  if fxn is None:
    return functools.partial(function, grad_fxn=grad_fxn)
  if grad_fxn is None:
    return fxn
  # one object for each number, so that equal calls are one node
  pull = functools.cache(functools.partial(Given, tracing.name_of(fxn), grad_fxn))

  @functools.wraps(fxn)
  def with_own_gradient(*args: Any, **kwargs: Any) -> Any:
    return called("function", fxn, args, kwargs, pull, False)

  return with_own_gradient
